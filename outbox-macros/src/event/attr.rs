//! What the attributes of an event say, one option at a time.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Lit, LitInt, LitStr, Path, Token, Type, parenthesized, token};

use crate::errors::{Errors, error};
use crate::options::{self, Place, Reader};

pub(super) static CONTAINER: Place = Place {
    name: "an event",
    location: "the struct or enum",
    options: &["type", "topic", "aggregate", "version", "alias", "upcast", "source", "crate", "union"],
    others: &[&FIELD],
};

pub(super) static VARIANT: Place = Place {
    name: "a variant of an event",
    location: "a variant",
    options: &["type", "aggregate", "version", "alias", "upcast"],
    others: &[&FIELD, &CONTAINER],
};

pub(super) static FIELD: Place = Place {
    name: "a field of an event",
    location: "a field",
    options: &["aggregate_id", "key", "header"],
    others: &[&CONTAINER],
};

const LAST_VERSION: u32 = i32::MAX.cast_unsigned();

/// What can be said of each event type, on the struct or on the variant.
#[derive(Default)]
pub(super) struct Case {
    pub(super) event_type: Option<LitStr>,
    pub(super) aggregate: Option<Aggregate>,
    pub(super) version: Option<u32>,
    pub(super) aliases: Vec<LitStr>,
    pub(super) upcasts: Vec<Upcast>,
}

/// `1 => OrderPaidV1`: the shape that the payload had in a version.
pub(super) struct Upcast {
    pub(super) number: LitInt,
    pub(super) version: u32,
    pub(super) shape: Type,
}

pub(super) enum Aggregate {
    None,
    Template(LitStr),
}

impl Case {
    pub(super) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut case = Self::default();
        Reader::new(&VARIANT, errors).attributes(attrs, |name, meta| case.option(name, meta));
        case
    }

    fn option(&mut self, name: &str, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        match name {
            "type" => self.event_type = Some(options::text(meta, r#"type = "order.paid""#)?),
            "version" => self.version = Some(options::positive(meta, LAST_VERSION, "version = 2")?),
            "alias" => self.aliases.push(options::text(meta, r#"alias = "order.settled""#)?),
            "upcast" => self.upcasts.extend(upcasts(meta)?),
            "aggregate" => {
                // Also after a mistake it is given, and need not be asked for.
                self.aggregate = Some(Aggregate::None);
                self.aggregate = Some(aggregate(meta)?);
            }
            _ => return Err(meta.error("this option is read nowhere")),
        }
        Ok(())
    }
}

fn aggregate(meta: &ParseNestedMeta<'_>) -> syn::Result<Aggregate> {
    const EXAMPLE: &str = r#"aggregate = "order-{order_id}""#;
    if options::is_none(meta) {
        meta.input.parse::<Token![=]>()?;
        meta.input.parse::<syn::Ident>()?;
        return Ok(Aggregate::None);
    }
    let template = options::text(meta, EXAMPLE)?;
    match &*template.value() {
        "" => Err(error(
            &template,
            "an aggregate id is never empty",
            "write `aggregate = none` for an event that belongs to no aggregate",
        )),
        "none" => Err(error(
            &template,
            "this would be one aggregate of the name `none`",
            "write `aggregate = none`, without quotes, for an event that belongs to no aggregate",
        )),
        _ => Ok(Aggregate::Template(template)),
    }
}

fn upcasts(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<Upcast>> {
    const EXAMPLE: &str = "upcast(1 => OrderPaidV1)";
    let wrong = || options::wrong_value(meta, None, "older versions and what their payloads were", EXAMPLE);
    if !meta.input.peek(token::Paren) {
        return Err(wrong());
    }
    let content;
    parenthesized!(content in meta.input);
    match Punctuated::<Upcast, Token![,]>::parse_terminated(&content) {
        Ok(upcasts) if upcasts.is_empty() => Err(wrong()),
        Ok(upcasts) => Ok(upcasts.into_iter().collect()),
        Err(mistake) => {
            // What is left unread would be reported as well.
            content.parse::<TokenStream>()?;
            Err(mistake)
        }
    }
}

impl Parse for Upcast {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        const HELP: &str = "such as `1 => OrderPaidV1`: the version, and the type that its payload had";
        let wrong = |place: TokenTree| error(place, "this is no version and its type", HELP);
        let (number, version) = match input.parse()? {
            TokenTree::Literal(literal) => {
                let number = Lit::new(literal.clone());
                let parsed = match &number {
                    Lit::Int(number) => number.base10_parse().ok(),
                    _ => None,
                };
                match (number, parsed) {
                    (Lit::Int(number), Some(version @ 1..=LAST_VERSION)) => (number, version),
                    (Lit::Int(_), _) => {
                        let what = format!("versions go from 1 to {LAST_VERSION}");
                        return Err(error(literal, what, HELP));
                    }
                    _ => return Err(wrong(literal.into())),
                }
            }
            other => return Err(wrong(other)),
        };
        if !input.peek(Token![=>]) {
            let place = input.parse().unwrap_or_else(|_| TokenTree::Literal(number.token()));
            return Err(wrong(place));
        }
        input.parse::<Token![=>]>()?;
        let ahead: TokenStream = input.fork().parse()?;
        let shape = input.parse().map_err(|_| match ahead.into_iter().next() {
            Some(place) => wrong(place),
            None => wrong(TokenTree::Literal(number.token())),
        })?;
        Ok(Self { number, version, shape })
    }
}

/// The attributes of the struct or enum.
pub(super) struct Container {
    pub(super) case: Case,
    pub(super) topic: Option<LitStr>,
    pub(super) source: Option<LitStr>,
    pub(super) krate: Path,
    pub(super) union: Option<Span>,
}

impl Container {
    pub(super) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut container = Self {
            case: Case::default(),
            topic: None,
            source: None,
            krate: options::default_krate(),
            union: None,
        };
        Reader::new(&CONTAINER, errors).attributes(attrs, |name, meta| {
            match name {
                "topic" => container.topic = Some(text(meta, r#"topic = "orders""#)?),
                "source" => container.source = Some(text(meta, r#"source = "/shop/checkout""#)?),
                "crate" => container.krate = options::krate(meta)?,
                "union" => options::flag(meta, &mut container.union)?,
                name => container.case.option(name, meta)?,
            }
            Ok(())
        });
        container
    }
}

/// A text as the message's columns take it.
fn text(meta: &ParseNestedMeta<'_>, example: &str) -> syn::Result<LitStr> {
    let text = options::text(meta, example)?;
    let value = text.value();
    if value.is_empty() || value.len() > 255 || value.chars().any(char::is_control) {
        return Err(error(
            &text,
            "this text has from 1 to 255 bytes and no control characters",
            format_args!("such as `{example}`"),
        ));
    }
    Ok(text)
}

/// The attributes of a field.
#[derive(Default)]
pub(super) struct Field {
    pub(super) aggregate_id: Option<Span>,
    pub(super) key: Option<Span>,
    pub(super) header: Option<Header>,
}

pub(super) enum Header {
    /// Has the field's name.
    Unnamed(Span),
    Named(LitStr),
}

impl Field {
    pub(super) fn read(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut field = Self::default();
        Reader::new(&FIELD, errors).attributes(attrs, |name, meta| {
            match name {
                "aggregate_id" => options::flag(meta, &mut field.aggregate_id)?,
                "key" => options::flag(meta, &mut field.key)?,
                "header" if meta.input.peek(Token![=]) => {
                    field.header = Some(Header::Named(options::text(meta, r#"header = "tenant""#)?));
                }
                "header" => {
                    let mut span = None;
                    options::flag(meta, &mut span)?;
                    field.header = span.map(Header::Unnamed);
                }
                _ => return Err(meta.error("this option is read nowhere")),
            }
            Ok(())
        });
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_documented() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../outbox/src/docs/outbox_event.md"));
        // The examples are compiled with the library's doc tests.
        let code = text.split("```").skip(1).step_by(2);
        let attributes = code.flat_map(str::lines).filter(|line| line.trim_start().starts_with("#[outbox("));
        let used: Vec<&str> =
            attributes.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
        for option in [&CONTAINER, &VARIANT, &FIELD].iter().flat_map(|place| place.options) {
            let row = format!("| `{option}");
            let second = format!(", `{option}");
            let is_listed = text.lines().any(|line| line.starts_with(&row) || line.contains(&second));
            assert!(is_listed, "`{option}` is in no table of outbox_event.md");
            assert!(used.contains(option), "`{option}` is in no example of outbox_event.md");
        }
    }
}
