//! Options of an attribute: `name`, `name = value`, `name(..)`.

use std::ops::RangeInclusive;

use proc_macro2::{Span, TokenTree};
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::parse::{ParseBuffer, ParseStream};
use syn::{Attribute, Ident, Lit, LitStr, Path, Token, parse_quote};

use crate::errors::{Errors, error};
use crate::words;

/// The options that one place takes.
pub(crate) struct Place {
    /// Such as `a field of an event`.
    pub(crate) name: &'static str,
    /// Such as `a field`: where its options are written.
    pub(crate) location: &'static str,
    pub(crate) options: &'static [&'static str],
    /// Where an option may have been meant instead.
    pub(crate) others: &'static [&'static Place],
}

/// Those of which each instance counts.
const REPEATABLE: &[&str] = &["alias", "upcast"];

/// Reads the options of one place, going on behind a mistake.
pub(crate) struct Reader<'a> {
    place: &'a Place,
    errors: &'a mut Errors,
    seen: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(place: &'a Place, errors: &'a mut Errors) -> Self {
        Self { place, errors, seen: Vec::new() }
    }

    /// Reads all `#[outbox(..)]` among `attrs`; `value` reads what follows the name of a known option.
    pub(crate) fn attributes(
        mut self,
        attrs: &[Attribute],
        mut value: impl FnMut(&str, &ParseNestedMeta<'_>) -> syn::Result<()>,
    ) {
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("outbox")) {
            let read = attr.parse_nested_meta(|meta| {
                self.option(&meta, &mut value);
                Ok(())
            });
            self.errors.take(read);
        }
    }

    /// Reads one option.
    pub(crate) fn option(
        &mut self,
        meta: &ParseNestedMeta<'_>,
        value: impl FnOnce(&str, &ParseNestedMeta<'_>) -> syn::Result<()>,
    ) {
        let name = name(&meta.path);
        let read = if !self.place.options.contains(&&*name) {
            Err(self.unknown(&name, meta))
        } else if self.seen.contains(&name) && !REPEATABLE.contains(&&*name) {
            Err(error(&meta.path, format_args!("`{name}` is given twice"), "remove one of the two"))
        } else {
            self.seen.push(name.clone());
            value(&name, meta)
        };
        if let Err(mistake) = read {
            self.errors.push(mistake);
            skip_value(meta.input);
        }
    }

    fn unknown(&self, name: &str, meta: &ParseNestedMeta<'_>) -> syn::Error {
        let elsewhere = self.place.others.iter().find(|other| other.options.contains(&name));
        let help = if let Some(other) = elsewhere {
            format!("`{name}` is written on {}", other.location)
        } else if let Some(meant) = words::most_similar(name, self.place.options) {
            format!("did you mean `{meant}`?")
        } else {
            format!("the options are {}", words::list(self.place.options, "and"))
        };
        error(&meta.path, format_args!("{} has no option `{name}`", self.place.name), help)
    }
}

fn name(path: &Path) -> String {
    let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
    names.join("::")
}

/// Goes to the next option after a mistake, so that it is reported as well.
fn skip_value(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) && input.parse::<TokenTree>().is_ok() {}
}

/// An option without a value. It counts as given also after a mistake.
pub(crate) fn flag(meta: &ParseNestedMeta<'_>, given: &mut Option<Span>) -> syn::Result<()> {
    *given = Some(meta.path.segments[0].ident.span());
    if meta.input.is_empty() || meta.input.peek(Token![,]) {
        return Ok(());
    }
    let name = name(&meta.path);
    let help = format!("write only `{name}`");
    Err(error(&meta.path, format_args!("`{name}` takes no value"), help))
}

/// `name = "text"`.
pub(crate) fn text(meta: &ParseNestedMeta<'_>, example: &str) -> syn::Result<LitStr> {
    match literal(meta) {
        Some(Lit::Str(text)) if text.suffix().is_empty() => Ok(text),
        other => Err(wrong_value(meta, other.as_ref(), "a text", example)),
    }
}

/// `name = 2`.
pub(crate) fn positive(meta: &ParseNestedMeta<'_>, most: u32, example: &str) -> syn::Result<u32> {
    let literal = literal(meta);
    let number = match &literal {
        Some(Lit::Int(number)) => number.base10_parse().ok(),
        _ => None,
    };
    number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        let expected = format!("a number from 1 to {most}");
        wrong_value(meta, literal.as_ref(), &expected, example)
    })
}

/// `name = 0.5`, within bounds.
pub(crate) fn number(
    meta: &ParseNestedMeta<'_>,
    bounds: RangeInclusive<f64>,
    expected: &str,
    example: &str,
) -> syn::Result<f64> {
    let literal = literal(meta);
    let number = match &literal {
        Some(Lit::Float(number)) => number.base10_parse().ok(),
        Some(Lit::Int(number)) => number.base10_parse().ok(),
        _ => None,
    };
    let number = number.filter(|number| bounds.contains(number));
    number.ok_or_else(|| wrong_value(meta, literal.as_ref(), expected, example))
}

/// `name = true`.
pub(crate) fn boolean(meta: &ParseNestedMeta<'_>, example: &str) -> syn::Result<bool> {
    match literal(meta) {
        Some(Lit::Bool(value)) => Ok(value.value),
        other => Err(wrong_value(meta, other.as_ref(), "`true` or `false`", example)),
    }
}

/// `crate = path` or `crate = "path"`.
pub(crate) fn krate(meta: &ParseNestedMeta<'_>) -> syn::Result<Path> {
    const EXAMPLE: &str = "crate = my_facade::outbox";
    if !meta.input.peek(Token![=]) {
        return Err(wrong_value(meta, None, "a path", EXAMPLE));
    }
    let value = meta.value()?;
    if value.peek(LitStr) {
        let text: LitStr = value.parse()?;
        return text
            .parse_with(Path::parse_mod_style)
            .map_err(|_| wrong_value(meta, Some(&Lit::Str(text)), "a path", EXAMPLE));
    }
    value.call(Path::parse_mod_style).map_err(|_| wrong_value(meta, None, "a path", EXAMPLE))
}

/// The path of the library where `crate` does not say another.
pub(crate) fn default_krate() -> Path {
    parse_quote!(::outbox)
}

/// `= none`, of an option that can be switched off.
pub(crate) fn is_none(meta: &ParseNestedMeta<'_>) -> bool {
    let ahead = meta.input.fork();
    ahead.parse::<Token![=]>().is_ok() && ahead.parse::<Ident>().is_ok_and(|word| word == "none")
}

fn literal(meta: &ParseNestedMeta<'_>) -> Option<Lit> {
    if !meta.input.peek(Token![=]) {
        return None;
    }
    meta.value().and_then(ParseBuffer::parse).ok()
}

pub(crate) fn wrong_value(
    meta: &ParseNestedMeta<'_>,
    found: Option<&Lit>,
    expected: &str,
    example: &str,
) -> syn::Error {
    let what = format!("`{}` takes {expected}", name(&meta.path));
    let help = format!("such as `{example}`");
    match found {
        Some(found) => error(found, what, help),
        None => error(&meta.path, what, help),
    }
}
