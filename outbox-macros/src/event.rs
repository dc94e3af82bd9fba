//! `#[derive(OutboxEvent)]`.

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::errors::Errors;

mod aggregate;
mod attr;
mod check;
mod expand;
mod fallback;
mod fields;
mod model;
mod name;
mod union;
mod upcast;

pub(crate) fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let container = attr::Container::read(&input.attrs, &mut errors);
    match check::event(&input, &container, &mut errors) {
        Some(event) if errors.is_empty() => expand::event(&event),
        _ => fallback::event(&input, &container.krate, &errors),
    }
}
