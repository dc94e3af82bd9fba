//! The impls of a checked event.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{GenericArgument, Generics, Member, PathArguments, Type, WhereClause, parse_quote};

use super::model::{Aggregate, Case, Event, Field, Kind, Piece};
use crate::spans::{located, standing_at};

mod reading;
mod union;

pub(super) fn event(event: &Event<'_>) -> TokenStream {
    let krate = event.krate;
    let private = &quote!(#krate::__private);
    let (types, methods, decode) = match &event.kind {
        Kind::Struct(case) => own(event, std::slice::from_ref(case), private),
        Kind::Enum(cases) => own(event, cases, private),
        Kind::Union(inners) => union::union(event, inners, private),
    };
    let name = &event.input.ident;
    let publishing = publishing_generics(event, private);
    let (_, arguments, _) = event.input.generics.split_for_impl();
    let (parameters, _, bounds) = publishing.split_for_impl();
    let reading = reading_generics(event, publishing.clone(), private);
    let (_, _, reading_bounds) = reading.split_for_impl();
    let entry = entry(event, private);
    // An event that borrows can be received only where it borrows for ever.
    let lifetimes = event
        .input
        .generics
        .lifetimes()
        .next()
        .map(|_| quote!(#[allow(redundant_lifetimes, reason = "what is received owns its data")]));
    let decoding = (!reading::only_borrows(&event.input.data)).then(|| {
        quote! {
            #[automatically_derived]
            #lifetimes
            impl #parameters #private::DecodeEvent for #name #arguments #reading_bounds {
                fn decode(
                    message: &#private::Message,
                    codecs: &#private::Codecs,
                ) -> #private::OutboxResult<Self> {
                    #decode
                }
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl #parameters #private::OutboxEvent for #name #arguments #bounds {
            const TYPES: #private::TypeSet = #types;
            #methods
        }

        #decoding

        #entry
    }
}

/// An event that is not generic stands in the catalogue of its program.
fn entry(event: &Event<'_>, private: &TokenStream) -> Option<TokenStream> {
    let generics = &event.input.generics;
    if is_generic(generics) {
        return None;
    }
    let name = &event.input.ident;
    let lifetimes: Vec<_> = generics.lifetimes().map(|_| quote!('static)).collect();
    let arguments = (!lifetimes.is_empty()).then(|| quote!(<#(#lifetimes),*>));
    Some(quote! {
        #private::inventory::submit! {
            #private::EventEntry::new(<#name #arguments as #private::OutboxEvent>::TYPES)
        }
    })
}

/// Whether a generic type can be written depends on its parameters. For any other the compiler knows, and says so
/// at the type.
fn publishing_generics(event: &Event<'_>, private: &TokenStream) -> Generics {
    let mut generics = event.input.generics.clone();
    let is_generic = is_generic(&generics);
    match &event.kind {
        Kind::Union(inners) if is_generic => {
            let bounds = generics.make_where_clause();
            for event in inners.iter().map(|inner| inner.event) {
                bounds.predicates.push(parse_quote!(#event: #private::OutboxEvent));
            }
        }
        Kind::Struct(_) | Kind::Enum(_) if is_generic => {
            let bounds = generics.make_where_clause();
            bounds.predicates.push(parse_quote!(Self: #private::Serialize));
        }
        _ => {}
    }
    generics
}

fn is_generic(generics: &Generics) -> bool {
    generics.type_params().next().is_some() || generics.const_params().next().is_some()
}

/// The bounds hold a lifetime of their own: without it rustc would refuse the impl of an event that can only be
/// published, instead of leaving it out.
///
/// What is said of older shapes is left to the compiler where nothing is generic: it points at them.
fn reading_generics(event: &Event<'_>, mut generics: Generics, private: &TokenStream) -> Generics {
    let is_generic = is_generic(&generics);
    let bounds = generics.make_where_clause();
    let own = |cases: &[Case<'_>], bounds: &mut WhereClause| {
        bounds.predicates.push(parse_quote!(for<'__de> Self: #private::Readable<'__de>));
        for upcast in cases.iter().flat_map(|case| &case.upcasts).filter(|_| is_generic) {
            let shape = &upcast.shape;
            bounds.predicates.push(parse_quote!(for<'__de> #shape: #private::Readable<'__de>));
        }
    };
    match &event.kind {
        Kind::Struct(case) => own(std::slice::from_ref(case), bounds),
        Kind::Enum(cases) => own(cases, bounds),
        Kind::Union(inners) => {
            for event in inners.iter().map(|inner| inner.event) {
                bounds.predicates.push(parse_quote!(for<'__de> #event: #private::DecodeInner<'__de>));
            }
        }
    }
    generics
}

/// For a struct or an enum that is itself the payload.
fn own(
    event: &Event<'_>,
    cases: &[Case<'_>],
    private: &TokenStream,
) -> (TokenStream, TokenStream, TokenStream) {
    let metas: Vec<_> = cases.iter().map(|case| meta(event, case, private)).collect();
    let types = if let (Kind::Struct(_), [meta]) = (&event.kind, &*metas) {
        quote!(#private::TypeSet::One(#meta))
    } else {
        disjoint(event, metas.iter().map(|meta| quote!(#private::TypeSet::One(#meta))), private)
    };
    let meta_arms = cases.iter().zip(&metas).map(|(case, meta)| {
        let pattern = pattern(case, []);
        quote!(#pattern => #meta,)
    });
    let aggregate_arms = cases.iter().map(|case| aggregate_arm(case, private));
    let keys = cases.iter().any(|case| case.key.is_some()).then(|| {
        let arms = cases.iter().map(|case| {
            let pattern = pattern(case, &case.key);
            let key = case.key.as_ref().map(|key| text(key, private));
            let key = optional(key, private);
            quote!(#pattern => #key,)
        });
        quote! {
            fn key(&self) -> #private::Option<#private::Cow<'_, str>> {
                match self { #(#arms)* }
            }
        }
    });
    let headers = cases.iter().any(|case| !case.headers.is_empty()).then(|| {
        let arms = cases.iter().map(|case| header_arm(case, private));
        quote! {
            fn headers(&self, headers: &mut #private::Headers) -> #private::OutboxResult<()> {
                match self { #(#arms)* }
                #private::Result::Ok(())
            }
        }
    });
    // A type that cannot be written is reported here.
    let at_type = located(event.input.ident.span());
    let encode = quote_spanned!(at_type=> #private::encode(self, codec));
    let methods = quote! {
        fn meta(&self) -> &'static #private::EventMeta {
            match self { #(#meta_arms)* }
        }

        fn aggregate_id(&self) -> #private::Option<#private::Cow<'_, str>> {
            match self { #(#aggregate_arms)* }
        }

        #keys

        #headers

        fn encode(&self, codec: &dyn #private::Codec) -> #private::OutboxResult<#private::Vec<u8>> {
            #encode
        }
    };
    (types, methods, reading::reading(event, cases, &metas, private))
}

/// The sets of all variants. Two that are the same are reported at the name.
fn disjoint(
    event: &Event<'_>,
    sets: impl Iterator<Item = TokenStream>,
    private: &TokenStream,
) -> TokenStream {
    let at_name = located(event.input.ident.span());
    let private = standing_at(private, at_name);
    quote_spanned!(at_name=> #private::TypeSet::Any(const { #private::disjoint(&[#(#sets),*]) }))
}

/// An expression of type `&'static EventMeta`, a constant also in a generic type.
fn meta(event: &Event<'_>, case: &Case<'_>, private: &TokenStream) -> TokenStream {
    let name = case.name.expand(private);
    let (version, topic) = (case.version, &case.topic);
    let source = optional(case.source.as_ref().map(|source| quote!(#source)), private);
    let aliases = case.aliases.iter().map(|alias| alias.expand(private));
    let rust_name = match case.variant {
        Some(variant) => format!("::{}::{}", event.input.ident.unraw(), variant.unraw()),
        None => format!("::{}", event.input.ident.unraw()),
    };
    quote! {
        const {
            &#private::EventMeta::new(
                #name,
                #version,
                #topic,
                #source,
                const { &[#(#aliases),*] },
                #private::concat!(#private::module_path!(), #rust_name),
            )
        }
    }
}

fn aggregate_arm(case: &Case<'_>, private: &TokenStream) -> TokenStream {
    let (pattern, id) = match &case.aggregate {
        None => (pattern(case, []), None),
        Some(Aggregate::Field(field)) => (pattern(case, [field]), Some(text(field, private))),
        Some(Aggregate::Template(pieces)) => {
            let fields = pieces.iter().filter_map(|piece| match piece {
                Piece::Text(_) => None,
                Piece::Value(field, _) => Some(field),
            });
            (pattern(case, fields), Some(template(pieces, private)))
        }
    };
    let id = optional(id, private);
    quote!(#pattern => #id,)
}

fn template(pieces: &[Piece<'_>], private: &TokenStream) -> TokenStream {
    let mut format = String::new();
    let mut values = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => format.push_str(&text.replace('{', "{{").replace('}', "}}")),
            Piece::Value(field, path) => {
                format.push_str("{}");
                let span = path.last().map_or_else(|| field.ty.span(), Member::span);
                let binding = binding(field);
                values.push(quote_spanned!(located(span)=> #binding #(.#path)*));
            }
        }
    }
    if values.is_empty() {
        let text: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => &**text,
                Piece::Value(..) => "",
            })
            .collect();
        return quote!(#private::Cow::Borrowed(#text));
    }
    quote!(#private::Cow::Owned(#private::format!(#format, #(#values),*)))
}

fn header_arm(case: &Case<'_>, private: &TokenStream) -> TokenStream {
    let pattern = pattern(case, case.headers.iter().map(|header| &header.field));
    let inserts = case.headers.iter().map(|header| {
        let (name, binding) = (&header.name, binding(&header.field));
        let insert = |ty: &Type| {
            let value = quote_spanned!(located(ty.span())=> #private::Text::text(#binding));
            quote!(#private::Headers::insert(headers, #name, #value)?;)
        };
        match option_of(header.field.ty) {
            Some(inner) => {
                let insert = insert(inner);
                quote!(if let #private::Option::Some(#binding) = #binding { #insert })
            }
            None => insert(header.field.ty),
        }
    });
    quote!(#pattern => { #(#inserts)* })
}

/// `T` of `Option<T>`, known by its name: a header that is `None` is not written.
fn option_of(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) if arguments.args.len() == 1 => Some(inner),
        _ => None,
    }
}

/// The pattern of a case that binds `fields`. Braces fit every kind of struct and variant.
fn pattern<'a>(case: &Case<'_>, fields: impl IntoIterator<Item = &'a Field<'a>>) -> TokenStream {
    let variant = case.variant.map(|variant| quote!(::#variant));
    let mut bound: Vec<&Member> = Vec::new();
    let mut bindings = Vec::new();
    for field in fields {
        if !bound.contains(&&field.member) {
            bound.push(&field.member);
            let (member, binding) = (&field.member, binding(field));
            bindings.push(quote!(#member: #binding,));
        }
    }
    quote!(Self #variant { #(#bindings)* .. })
}

fn binding(field: &Field<'_>) -> Ident {
    let name = match &field.member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    // An argument that does not fit is reported where it stands, so it stands at the field's type.
    format_ident!("__{name}", span = Span::mixed_site().located_at(field.ty.span()))
}

/// A field as a `Cow<str>`. A field without `Display` is reported at its type.
fn text(field: &Field<'_>, private: &TokenStream) -> TokenStream {
    let binding = binding(field);
    let text = quote_spanned!(located(field.ty.span())=> #private::Text::text(#binding));
    quote!(#private::Cow::Owned(#text))
}

fn optional(value: Option<TokenStream>, private: &TokenStream) -> TokenStream {
    value.map_or_else(|| quote!(#private::Option::None), |value| quote!(#private::Option::Some(#value)))
}
