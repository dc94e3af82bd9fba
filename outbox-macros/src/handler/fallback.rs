//! What stands in for a handler after a mistake, so that its registrations by hand are not reported as well.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

use super::expand;
use super::model::Function;
use crate::errors::Errors;

pub(super) fn handler(function: &Function, krate: &Path, errors: &Errors) -> TokenStream {
    let errors = errors.to_compile_error();
    // A type and an impl cannot stand where a method does.
    if function.sig.receiver().is_some() {
        return errors;
    }
    let definition = expand::definition(function, krate);
    let private = quote!(#krate::__private);
    let vtable = quote! {
        #private::HandlerVTable {
            name: "",
            consumer: "",
            aliases: &[],
            types: #private::TypeSet::Any(&[]),
            batched: false,
            effect: #private::Effect::Database,
            options: #private::HandlerOptions::DEFAULT,
            site: #private::Site::new("", "", 0),
            check: |_| #private::Result::Ok(()),
            call: |_| loop {},
        }
    };
    let implementation = expand::implementation(function, krate, None, &vtable);
    quote! {
        #errors
        #definition
        #implementation
    }
}
