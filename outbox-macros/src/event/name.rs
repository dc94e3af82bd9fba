//! Names of event types: constants, also where they depend on the parameters of a generic type.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::{ExprPath, Generics, Ident, LitStr, Type};

use crate::errors::error;
use crate::spans::{located, standing_at};
use crate::template::{self, Piece};
use crate::words;

/// The longest name, in bytes.
const MAX: usize = 255;

pub(super) struct Name {
    parts: Vec<Part>,
    /// Where it is written, for what is wrong with its constants.
    span: Span,
}

enum Part {
    Text(String),
    /// The path of a `&'static str`.
    Constant(ExprPath),
    /// A const parameter.
    Parameter(Ident, Kind),
}

/// The type of a const parameter, as far as it matters for its text.
#[derive(Clone, Copy)]
enum Kind {
    Unsigned,
    Signed,
    Bool,
    Char,
}

impl Kind {
    fn of(ty: &Type) -> Option<Self> {
        let Type::Path(path) = ty else { return None };
        let name = path.path.get_ident()?.to_string();
        match &*name {
            "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => Some(Self::Unsigned),
            "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => Some(Self::Signed),
            "bool" => Some(Self::Bool),
            "char" => Some(Self::Char),
            _ => None,
        }
    }
}

impl Name {
    /// The name that an attribute gives, a template whose holes are constants.
    pub(super) fn read(template: &LitStr, generics: &Generics) -> syn::Result<Self> {
        let part = |piece| match piece {
            Piece::Text(text) => Ok(Part::Text(text)),
            Piece::Hole(hole) => constant(&hole, template, generics),
        };
        let parts: syn::Result<_> = template::split(template)?.into_iter().map(part).collect();
        let name = Self { parts: parts?, span: template.span() };
        name.check().map_err(|what| error(template, what, "such as `order.paid`"))?;
        Ok(name)
    }

    /// The name made of the words of a Rust name: the last word is what happened.
    pub(super) fn of_words(words: &[String]) -> Self {
        let name = match words.split_last() {
            Some((event, subject)) if !subject.is_empty() => format!("{}.{event}", subject.join("_")),
            _ => words.concat(),
        };
        Self { parts: vec![Part::Text(name)], span: Span::call_site() }
    }

    /// The name of a variant, below that of its enum.
    pub(super) fn of_variant(prefix: Option<Self>, first_word: &str, variant: &[String]) -> Self {
        let mut name = prefix.unwrap_or_else(|| Self::of_words(&[first_word.to_owned()]));
        name.parts.push(Part::Text(format!(".{}", variant.join("_"))));
        name.parts = merged(name.parts);
        name
    }

    /// What is wrong with its constant part; the rest is checked where it is put together, also at compile time.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let texts = || {
            self.parts.iter().filter_map(|part| match part {
                Part::Text(text) => Some(&**text),
                _ => None,
            })
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if self.parts.iter().all(|part| matches!(part, Part::Text(text) if text.is_empty())) {
            return Err("an event type is not empty");
        }
        if !texts().all(|text| text.bytes().all(is_allowed)) {
            return Err("an event type consists of letters and digits of ASCII and `.`, `_`, `:`, `-`");
        }
        if texts().map(str::len).sum::<usize>() > MAX {
            return Err("an event type has at most 255 bytes");
        }
        Ok(())
    }

    /// The whole name, where it depends on nothing.
    pub(super) fn text(&self) -> Option<&str> {
        match &*self.parts {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The first word, the default of the topic; none where the name begins with a hole.
    pub(super) fn first_word(&self) -> Option<String> {
        match self.parts.first() {
            Some(Part::Text(text)) => words::split(text).into_iter().next(),
            _ => None,
        }
    }

    /// An expression of type `&'static str`.
    pub(super) fn expand(&self, private: &TokenStream) -> TokenStream {
        if let Some(text) = self.text() {
            return quote!(#text);
        }
        let at_name = located(self.span);
        let private = &standing_at(private, at_name);
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => quote_spanned!(at_name=> .push(#text)),
            Part::Constant(path) => quote_spanned!(at_name=> .push(#path)),
            // `as` is the only conversion in a const.
            Part::Parameter(parameter, Kind::Unsigned) => {
                quote_spanned!(at_name=> .push_number(#parameter as u128))
            }
            Part::Parameter(parameter, Kind::Signed) => {
                quote_spanned!(at_name=> .push_signed(#parameter as i128))
            }
            Part::Parameter(parameter, Kind::Bool) => quote_spanned!(at_name=> .push_bool(#parameter)),
            Part::Parameter(parameter, Kind::Char) => quote_spanned!(at_name=> .push_char(#parameter)),
        });
        quote_spanned!(at_name=> const { &#private::ConstName::new() #(#parts)* }.as_str())
    }
}

/// Texts that follow one another put together.
fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        match (merged.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
            (_, part) => merged.push(part),
        }
    }
    merged
}

fn constant(hole: &str, template: &LitStr, generics: &Generics) -> syn::Result<Part> {
    const HELP: &str = "a hole of an event type is a constant: `{C::CODE}`, or a const parameter `{N}`";
    let path = LitStr::new(hole, template.span())
        .parse::<ExprPath>()
        .map_err(|_| error(template, format_args!("`{{{hole}}}` is no constant"), HELP))?;
    let Some(name) = path.path.get_ident().filter(|_| path.qself.is_none()) else {
        return Ok(Part::Constant(path));
    };
    if generics.type_params().any(|parameter| parameter.ident == *name) {
        return Err(error(
            template,
            format_args!("`{name}` is a type and has no text"),
            format_args!("name a constant of it, such as `{{{name}::NAME}}`"),
        ));
    }
    if let Some(parameter) = generics.const_params().find(|parameter| parameter.ident == *name) {
        return match Kind::of(&parameter.ty) {
            Some(kind) => Ok(Part::Parameter(parameter.ident.clone(), kind)),
            None => Err(error(
                template,
                format_args!("`{name}` cannot be part of an event type"),
                "a const parameter in an event type is an integer, a `bool` or a `char`",
            )),
        };
    }
    // By the lint of the language constants are in upper case, so this was meant to be a field.
    if name.unraw().to_string().starts_with(char::is_lowercase) {
        return Err(error(
            template,
            format_args!("`{{{name}}}` is no constant, and all values of a type have one event type"),
            HELP,
        ));
    }
    Ok(Part::Constant(path))
}
