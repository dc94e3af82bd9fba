//! The macros of [`outbox`](https://docs.rs/outbox), which re-exports and documents them.
//!
//! Each goes the same way: `attr` reads the attributes, `check` holds them against the item and collects every
//! mistake, `model` is what is then known to be right, `expand` writes it out, and `fallback` stands in for it
//! after a mistake, so that one mistake gives one error.
//!
//! Expansions are glue: impls of the library's traits and calls of its functions, each by its path below
//! `::outbox::__private`. What an expansion decides, it decides in constants.

use proc_macro::TokenStream;

mod errors;
mod event;
mod handler;
#[cfg(test)]
mod mistakes;
mod options;
#[cfg(test)]
mod snapshots;
mod spans;
mod template;
mod test;
mod words;

/// Implements `OutboxEvent` and, for what can be read back, `DecodeEvent`. Documented in `outbox`.
#[proc_macro_derive(OutboxEvent, attributes(outbox))]
pub fn derive_outbox_event(input: TokenStream) -> TokenStream {
    event::derive(input.into()).into()
}

/// Makes a function a handler. Documented in `outbox`.
#[proc_macro_attribute]
pub fn outbox_handler(options: TokenStream, item: TokenStream) -> TokenStream {
    handler::attribute(options.into(), &item.into()).into()
}

/// Gives a test a database of its own. Documented in `outbox`.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    test::attribute(options.into(), &item.into()).into()
}
