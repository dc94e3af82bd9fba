//! Templates: text with `{holes}`.

use syn::LitStr;

use crate::errors::error;

/// A piece of a template.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// What stands between braces, without spaces around it.
    Hole(String),
}

/// Splits a template; `{{` and `}}` are braces in the text. No two texts follow one another.
pub(crate) fn split(template: &LitStr) -> syn::Result<Vec<Piece>> {
    let value = template.value();
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let mut rest = &*value;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from_brace) = rest.split_at(at);
        text.push_str(before);
        let (brace, after) = from_brace.split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        let hole = after.split_once('}').filter(|_| brace == "{");
        let Some((hole, after)) = hole else {
            return Err(error(
                template,
                format_args!("this template has a `{brace}` without its partner"),
                format_args!("write `{brace}{brace}` where the brace itself is meant"),
            ));
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Hole(hole.trim().to_owned()));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    fn shown(template: &str) -> String {
        match split(&LitStr::new(template, Span::call_site())) {
            Ok(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => format!("'{text}'"),
                    Piece::Hole(hole) => format!("<{hole}>"),
                })
                .collect(),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn templates_are_split_at_their_holes() {
        for (template, expected) in [
            ("order-{order_id}", "'order-'<order_id>"),
            ("{a}{ b }", "<a><b>"),
            ("{{{a}}}", "'{'<a>'}'"),
            ("plain", "'plain'"),
            ("", ""),
            ("{}", "<>"),
            ("a}b", "this template has a `}` without its partner"),
            ("a{b", "this template has a `{` without its partner"),
        ] {
            assert_eq!(shown(template), expected, "{template}");
        }
    }
}
