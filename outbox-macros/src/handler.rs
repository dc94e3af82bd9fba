//! `#[outbox_handler]`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::errors::Errors;

mod attr;
mod check;
mod expand;
mod fallback;
mod model;
mod policy;
mod start_from;

pub(crate) fn attribute(options: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let options = attr::Options::read(options, &mut errors);
    let function = match model::Function::parse(item) {
        Ok(function) => function,
        Err(error) => {
            errors.push(error);
            let errors = errors.to_compile_error();
            return quote!(#errors #item);
        }
    };
    let expansion = match check::handler(&function, &options, &mut errors) {
        Some(handler) if errors.is_empty() => expand::handler(&handler),
        _ => fallback::handler(&function, &options.krate, &errors),
    };
    // The function stays as it is: what it says wrongly is reported by the compiler, at the user's tokens.
    quote! {
        #[allow(
            clippy::unused_async,
            reason = "a handler's form is given"
        )]
        #item
        #expansion
    }
}
