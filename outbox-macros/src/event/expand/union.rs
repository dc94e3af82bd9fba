//! An enum whose variants hold events.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;

use super::super::model::{Event, Inner};
use super::disjoint;
use crate::spans::located;

/// Its types, methods and reading: each variant does what its event does.
pub(super) fn union(
    event: &Event<'_>,
    inners: &[Inner<'_>],
    private: &TokenStream,
) -> (TokenStream, TokenStream, TokenStream) {
    let sets = inners.iter().map(|Inner { event, .. }| {
        let this = quote_spanned!(located(event.span())=> <#event as #private::OutboxEvent>);
        quote!(#this::TYPES)
    });
    let types = disjoint(event, sets, private);
    let each = |call: &dyn Fn(&TokenStream) -> TokenStream| {
        let arms = inners.iter().map(|Inner { variant, event }| {
            let call = call(&quote!(<#event as #private::OutboxEvent>));
            quote!(Self::#variant(event) => #call,)
        });
        quote!(match self { #(#arms)* })
    };
    let meta = each(&|event| quote!(#event::meta(event)));
    let aggregate_id = each(&|event| quote!(#event::aggregate_id(event)));
    let key = each(&|event| quote!(#event::key(event)));
    let headers = each(&|event| quote!(#event::headers(event, headers)));
    let encode = each(&|event| quote!(#event::encode(event, codec)));
    let methods = quote! {
        fn meta(&self) -> &'static #private::EventMeta {
            #meta
        }

        fn aggregate_id(&self) -> #private::Option<#private::Cow<'_, str>> {
            #aggregate_id
        }

        fn key(&self) -> #private::Option<#private::Cow<'_, str>> {
            #key
        }

        fn headers(&self, headers: &mut #private::Headers) -> #private::OutboxResult<()> {
            #headers
        }

        fn encode(&self, codec: &dyn #private::Codec) -> #private::OutboxResult<#private::Vec<u8>> {
            #encode
        }
    };
    let reads = inners.iter().map(|Inner { variant, event }| {
        quote! {
            if #private::answers::<#event>(message) {
                return #private::Result::map(
                    <#event as #private::DecodeEvent>::decode(message, codecs),
                    Self::#variant,
                );
            }
        }
    });
    let name = event.input.ident.unraw().to_string();
    let decode = quote! {
        #(#reads)*
        #private::Result::Err(#private::unknown_type(#name, message))
    };
    (types, methods, decode)
}
