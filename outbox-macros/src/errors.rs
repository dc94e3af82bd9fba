//! Errors, collected so that all mistakes of an item are shown at once.

use std::fmt::Display;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// An error at `place`, with advice.
///
/// The help is part of the text: a procedural macro has no `help:` of its own on stable.
pub(crate) fn error(place: impl ToTokens, what: impl Display, help: impl Display) -> syn::Error {
    syn::Error::new_spanned(place, format!("{what}\n\nhelp: {help}"))
}

#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            none => *none = Some(error),
        }
    }

    /// [`error`], collected.
    pub(crate) fn add(&mut self, place: impl ToTokens, what: impl Display, help: impl Display) {
        self.push(error(place, what, help));
    }

    /// The value, unless it is an error.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn into_result(self) -> syn::Result<()> {
        self.0.map_or(Ok(()), Err)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn to_compile_error(&self) -> TokenStream {
        self.0.as_ref().map(syn::Error::to_compile_error).unwrap_or_default()
    }
}
