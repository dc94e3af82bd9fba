//! How an event is read back, in this version and in older ones.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, Field, Fields, Lifetime, Type, parse_quote_spanned};

use super::super::model::{Case, Event, Kind, Upcast};
use crate::spans::located;

/// The body of `decode`.
pub(super) fn reading(
    event: &Event<'_>,
    cases: &[Case<'_>],
    metas: &[TokenStream],
    private: &TokenStream,
) -> TokenStream {
    if cases.iter().all(|case| case.upcasts.is_empty()) {
        return quote!(#private::read(message, codecs));
    }
    let now = quote!(<Self as #private::Shape>::read(message, codecs)?);
    let mut read =
        cases.iter().zip(metas).filter(|(case, _)| !case.upcasts.is_empty()).map(|(case, meta)| {
            let older = older(&case.upcasts, private);
            (meta, quote!(match message.version { #older _ => #now, }))
        });
    let read = match &event.kind {
        Kind::Enum(_) => {
            let arms = read.map(|(meta, read)| {
                quote!(if #private::EventMeta::answers_to(#meta, &message.event_type) { #read } else)
            });
            quote!(#(#arms)* { #now })
        }
        _ => read.next().map_or(now, |(_, read)| read),
    };
    quote! {
        #private::known::<Self>(message)?;
        let event: Self = #read;
        #private::agreeing(event, message)
    }
}

/// The arms of a match over the versions before this one.
fn older(upcasts: &[Upcast], private: &TokenStream) -> TokenStream {
    // A step that is missing is reported at the older shape.
    let last = upcasts.last().map_or_else(Span::call_site, |upcast| upcast.shape.span());
    let this: Type = parse_quote_spanned!(located(last)=> Self);
    let mut arms = TokenStream::new();
    if let Some(oldest) = upcasts.first().map(|upcast| upcast.version)
        && oldest > 1
    {
        arms.extend(quote!(0..#oldest => return #private::Result::Err(#private::too_old(message, #oldest)),));
    }
    for (at, upcast) in upcasts.iter().enumerate() {
        let (version, shape) = (upcast.version, &upcast.shape);
        let read =
            quote_spanned!(located(shape.span())=> <#shape as #private::Shape>::read(message, codecs)?);
        // Each shape becomes the next, and the last one the event.
        let steps = upcasts[at..]
            .iter()
            .map(|upcast| &upcast.shape)
            .zip(upcasts[at + 1..].iter().map(|upcast| &upcast.shape).chain([&this]));
        let event = steps.fold(read, |event, (old, new)| {
            quote_spanned!(located(old.span())=> <#new as #private::Upcast<#old>>::upcast(#event))
        });
        arms.extend(quote!(#version => #event,));
    }
    arms
}

/// Whether a field is a reference that serde could only read for as long as the payload lives. Such an event can be
/// published and not received; left to the compiler, it would speak of lifetimes where the handler is.
///
/// What serde is told about a field may change that, so then nothing is assumed.
pub(super) fn only_borrows(data: &Data) -> bool {
    let of = |fields: &Fields| fields.iter().any(is_borrowed);
    match data {
        Data::Struct(data) => of(&data.fields),
        Data::Enum(data) => data.variants.iter().any(|variant| of(&variant.fields)),
        Data::Union(_) => false,
    }
}

fn is_borrowed(field: &Field) -> bool {
    let is_static = |lifetime: &Lifetime| lifetime.ident == "static";
    let is_told = || field.attrs.iter().any(|attr| attr.path().is_ident("serde"));
    match &field.ty {
        Type::Reference(reference) => !reference.lifetime.as_ref().is_some_and(is_static) && !is_told(),
        _ => false,
    }
}
