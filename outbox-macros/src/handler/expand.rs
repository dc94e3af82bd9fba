//! The type that stands beside a handler's function, its impl, and its registration.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    AngleBracketedGenericArguments, GenericParam, Generics, Path, ReturnType, Type, WherePredicate,
    parse_quote,
};

use super::model::{Effect, Function, Handler, Parameter, Registration};

pub(super) fn handler(handler: &Handler<'_>) -> TokenStream {
    let function = handler.function;
    let definition = definition(function, handler.krate);
    let checked = checked(handler);
    let vtable = vtable(handler);
    let implementation = implementation(function, handler.krate, handler.database(), &vtable);
    let registrations = registrations(handler);
    quote! {
        #definition
        #checked
        #implementation
        #registrations
    }
}

/// The type of the function's name. Its braces keep it out of the namespace of values, where the function is.
pub(super) fn definition(function: &Function, krate: &Path) -> TokenStream {
    let (vis, name) = (&function.vis, &function.sig.ident);
    let cfgs = function.cfgs();
    let generics = type_generics(&function.sig.generics);
    let (parameters, _, bounds) = generics.split_for_impl();
    let types: Vec<_> = generics.type_params().map(|parameter| &parameter.ident).collect();
    let marker =
        (!types.is_empty()).then(|| quote!(marker: #krate::__private::PhantomData<fn() -> (#(#types,)*)>));
    quote! {
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, reason = "it has the function's name")]
        #vis struct #name #parameters #bounds { #marker }
    }
}

/// `impl Handler<__DB>` for every database, or for that which the `&mut` parameter lends.
///
/// A bound that names `__DB` is not checked at the impl, and what follows from it is not either: a parameter of
/// another type is reported once, by [`registrations`].
pub(super) fn implementation(
    function: &Function,
    krate: &Path,
    lent: Option<&Type>,
    vtable: &TokenStream,
) -> TokenStream {
    let private = quote!(#krate::__private);
    let name = &function.sig.ident;
    let cfgs = function.cfgs();
    let generics = type_generics(&function.sig.generics);
    let (_, arguments, _) = generics.split_for_impl();
    let mut of_impl = generics.clone();
    of_impl.params.push(parse_quote!(__DB: #private::Backend));
    if let Some(lent) = lent {
        let bounds = of_impl.make_where_clause();
        bounds.predicates.push(parse_quote!(#lent: #private::MutParam<__DB>));
    }
    let (parameters, _, bounds) = of_impl.split_for_impl();
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl #parameters #private::Handler<__DB> for #name #arguments #bounds {
            const VTABLE: #private::HandlerVTable<__DB> = #vtable;
        }
    }
}

/// Constants of what the options say of the event: for all databases one, so that a mistake is reported once.
fn checked(handler: &Handler<'_>) -> TokenStream {
    let Some(event) = handler.event() else { return TokenStream::new() };
    let private = handler.private();
    // The functions are imported, so that a call begins at the user's token, and an error stands there.
    let types = handler.types.map(|names| {
        let each = names.iter().map(|name| {
            let wrong = format!(
                "`{}` is none of the types of this handler's event\n\nhelp: `types` takes those of them that it handles, by \
                 their names on the wire",
                name.value()
            );
            let found = quote_spanned! {located(name.span())=>
                member(&<#event as #private::EventParam>::TYPES, #name, #wrong)
            };
            quote!(#private::TypeSet::One(#found))
        });
        quote! {
            const __TYPES: #private::TypeSet = {
                use #private::member;
                #private::TypeSet::Any(&[#(#each),*])
            };
        }
    });
    let batched = handler.policy.batch_option().map(|option| {
        let checked = quote_spanned!(located(option)=> batched(<#event as #private::EventParam>::BATCHED));
        quote! {
            const __BATCHED: bool = {
                use #private::batched;
                #checked
            };
        }
    });
    if types.is_none() && batched.is_none() {
        return TokenStream::new();
    }
    let cfgs = handler.function.cfgs();
    let name = &handler.function.sig.ident;
    let generics = type_generics(&handler.function.sig.generics);
    let (parameters, arguments, bounds) = generics.split_for_impl();
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl #parameters #name #arguments #bounds {
            #types
            #batched
        }
    }
}

/// Lifetimes belong to the call, not to the handler.
fn type_generics(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    let is_lifetime = |parameter: &GenericParam| matches!(parameter, GenericParam::Lifetime(_));
    generics.params = generics.params.into_iter().filter(|parameter| !is_lifetime(parameter)).collect();
    if let Some(bounds) = &mut generics.where_clause {
        bounds.predicates = std::mem::take(&mut bounds.predicates)
            .into_iter()
            .filter(|bound| !matches!(bound, WherePredicate::Lifetime(_)))
            .collect();
    }
    generics
}

fn vtable(handler: &Handler<'_>) -> TokenStream {
    let krate = handler.krate;
    let private = handler.private();
    let name = handler.function.sig.ident.unraw().to_string();
    let (consumer, aliases) = (&handler.consumer, handler.aliases);
    let options = handler.policy.expand(krate);
    let effect = match handler.effect {
        Effect::Database => quote!(#private::Effect::Database),
        Effect::External => quote!(#private::Effect::External),
        Effect::None => quote!(#private::Effect::None),
    };
    let event = |constant: TokenStream| {
        handler
            .event()
            .map(|ty| quote_spanned!(located(ty.span())=> <#ty as #private::EventParam>::#constant))
    };
    let types = handler.types.map_or_else(|| event(quote!(TYPES)), |_| Some(quote!(Self::__TYPES)));
    let batch = handler.policy.batch_option();
    let batched = batch.map_or_else(|| event(quote!(BATCHED)), |_| Some(quote!(Self::__BATCHED)));
    // A function can have any name, so that of a local variable must not be found by it.
    let (states, ctx) = (local("states"), local("ctx"));
    let checks: Vec<_> = handler
        .parameters
        .iter()
        .filter_map(|parameter| match parameter {
            Parameter::Extracted(ty) => {
                let at_type = located(ty.span());
                Some(quote_spanned!(at_type=> <#ty as #private::FromContext<__DB>>::check(#states)?;))
            }
            _ => None,
        })
        .collect();
    let states = if checks.is_empty() { quote!(_) } else { states.into_token_stream() };
    let call = call(handler, &ctx, &private);
    quote! {
        #private::HandlerVTable {
            name: #name,
            consumer: #consumer,
            aliases: &[#(#aliases),*],
            types: #types,
            batched: #batched,
            effect: #effect,
            options: #options,
            site: #private::Site::new(
                #private::module_path!(),
                #private::file!(),
                #private::line!(),
            ),
            check: |#states| {
                #(#checks)*
                #private::Result::Ok(())
            },
            call: |#ctx| #call,
        }
    }
}

/// The future of one call. All that is owned is taken before the connection is lent.
fn call(handler: &Handler<'_>, ctx: &Ident, private: &TokenStream) -> TokenStream {
    let mut taken = TokenStream::new();
    let mut arguments = Vec::new();
    for (at, parameter) in handler.parameters.iter().enumerate() {
        let at_type = located(parameter.ty().span());
        let value = match parameter {
            Parameter::Event(ty) => quote_spanned!(at_type=> #private::take_event::<#ty, __DB>(#ctx)),
            Parameter::Extracted(ty) => {
                quote_spanned!(at_type=> <#ty as #private::FromContext<__DB>>::from_context(#ctx))
            }
            Parameter::Database(ty) => {
                arguments.push(quote!(<#ty as #private::MutParam<__DB>>::borrow(#ctx)));
                continue;
            }
        };
        let variable = format_ident!("__parameter{at}", span = Span::mixed_site().located_at(at_type));
        taken.extend(quote!(let #variable = #value?;));
        arguments.push(variable.into_token_stream());
    }
    let sig = &handler.function.sig;
    let name = &sig.ident;
    let generics = type_generics(&sig.generics);
    let (_, arguments_of_type, _) = generics.split_for_impl();
    let turbofish = arguments_of_type.as_turbofish();
    // Both stand at the user's type: the call, and the argument that may not fit it.
    let at_output = located(match &sig.output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, ty) => ty.span(),
    });
    let returned = Ident::new("__returned", Span::mixed_site().located_at(at_output));
    // An error that is `Classify` is asked, whether it is shows the method that is found: that of the value goes before that
    // of a reference.
    let classify = quote_spanned! {at_output=>
        let #returned = {
            #[allow(unused_imports, reason = "one of them is needed")]
            use #private::{UnlessClassified as _, WhenClassified as _};
            (&#private::Returned(&#returned)).how().classified(#returned)
        };
    };
    let finish = quote_spanned!(at_output=> #private::HandlerReturn::into_result(#returned));
    // A future that cannot change its thread is reported at the name.
    let at_name = located(name.span());
    quote_spanned! {at_name=>
        #private::Box::pin(async move {
            #taken
            let #returned = #name #turbofish (#(#arguments),*).await;
            #classify
            #finish
        })
    }
}

fn registrations(handler: &Handler<'_>) -> TokenStream {
    let (name, krate) = (&handler.function.sig.ident, handler.krate);
    let private = quote!(#krate::__private);
    let cfgs: Vec<_> = handler.function.cfgs().collect();
    let submit = |arguments: Option<&AngleBracketedGenericArguments>| {
        let Some(lent) = handler.database() else {
            return quote! {
                #(#cfgs)*
                #krate::__submit_sqlite! { #name #arguments }
                #(#cfgs)*
                #krate::__submit_postgres! { #name #arguments }
                #(#cfgs)*
                #krate::__submit_mysql! { #name #arguments }
            };
        };
        // The database is inferred: one impl fits. A parameter for which none does is reported at its type.
        let at_type = lent.span();
        let mut name = name.clone();
        name.set_span(name.span().located_at(at_type));
        let entry = quote_spanned! {located(at_type)=>
            #private::HandlerEntry::new(&<#name #arguments as #private::Handler<_>>::VTABLE)
        };
        quote! {
            #(#cfgs)*
            #private::inventory::submit! { #entry }
        }
    };
    match handler.registration {
        Registration::Manual => TokenStream::new(),
        Registration::Itself => submit(None),
        Registration::Instances(instances) => {
            instances.iter().map(|instance| submit(Some(instance))).collect()
        }
    }
}

fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// Shown at the user's code, but known as generated: lints leave it alone.
fn located(span: Span) -> Span {
    Span::call_site().located_at(span)
}
