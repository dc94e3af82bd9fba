//! Where generated code stands, for what the compiler says of it.

use proc_macro2::{Span, TokenStream};

/// Shown at the user's code, but known as generated: lints leave it alone.
pub(crate) fn located(span: Span) -> Span {
    Span::call_site().located_at(span)
}

/// A path whose every token stands at one place: what is reported of an expression that begins with it is shown there
/// and nowhere else.
pub(crate) fn standing_at(path: &TokenStream, span: Span) -> TokenStream {
    let moved = path.clone().into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    moved.collect()
}
