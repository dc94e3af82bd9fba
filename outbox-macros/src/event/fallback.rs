//! What stands in for the impls after a mistake, so that the uses of the type are not reported as well.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Path};

use crate::errors::Errors;

pub(super) fn event(input: &DeriveInput, krate: &Path, errors: &Errors) -> TokenStream {
    let errors = errors.to_compile_error();
    let private = quote!(#krate::__private);
    let name = &input.ident;
    let (parameters, arguments, bounds) = input.generics.split_for_impl();
    let mut readable = input.generics.clone();
    readable.make_where_clause().predicates.push(syn::parse_quote!(for<'__de> Self: #private::Owned<'__de>));
    let (_, _, reading_bounds) = readable.split_for_impl();
    quote! {
        #errors

        #[automatically_derived]
        impl #parameters #private::OutboxEvent for #name #arguments #bounds {
            const TYPES: #private::TypeSet = #private::TypeSet::Any(&[]);

            fn meta(&self) -> &'static #private::EventMeta {
                loop {}
            }

            fn aggregate_id(&self) -> #private::Option<#private::Cow<'_, str>> {
                loop {}
            }

            fn encode(&self, _: &dyn #private::Codec) -> #private::OutboxResult<#private::Vec<u8>> {
                loop {}
            }
        }

        #[automatically_derived]
        impl #parameters #private::DecodeEvent for #name #arguments #reading_bounds {
            fn decode(_: &#private::Message, _: &#private::Codecs) -> #private::OutboxResult<Self> {
                loop {}
            }
        }
    }
}
