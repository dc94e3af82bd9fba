//! What the attribute of a handler says.

use proc_macro2::{Span, TokenStream};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, LitStr, Path, Token, bracketed, parenthesized, token};

use super::policy::{Policy, RETRY};
use crate::errors::{Errors, error};
use crate::options::{self, Place, Reader};

pub(super) static HANDLER: Place = Place {
    name: "a handler",
    location: "a function",
    options: &[
        "consumer",
        "alias",
        "types",
        "effect",
        "retry",
        "timeout",
        "on_dead",
        "ordered",
        "group",
        "batch",
        "concurrency",
        "lease",
        "start_from",
        "rate",
        "inbox",
        "manual",
        "instances",
        "crate",
    ],
    others: &[&RETRY],
};

pub(super) struct Options {
    pub(super) consumer: Option<LitStr>,
    /// What the consumer was called before.
    pub(super) aliases: Vec<LitStr>,
    pub(super) types: Option<Vec<LitStr>>,
    pub(super) effect: Option<Effect>,
    pub(super) manual: Option<Span>,
    pub(super) instances: Option<Vec<AngleBracketedGenericArguments>>,
    pub(super) krate: Path,
    pub(super) policy: Policy,
}

impl Options {
    pub(super) fn read(attribute: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self {
            consumer: None,
            aliases: Vec::new(),
            types: None,
            effect: None,
            manual: None,
            instances: None,
            krate: options::default_krate(),
            policy: Policy::default(),
        };
        let mut reader = Reader::new(&HANDLER, errors);
        let parser = syn::meta::parser(|meta| {
            reader.option(&meta, |name, meta| options.option(name, meta));
            Ok(())
        });
        let read = parser.parse2(attribute);
        errors.take(read);
        options
    }

    fn option(&mut self, name: &str, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        match name {
            "consumer" => self.consumer = Some(consumer(meta, r#"consumer = "billing""#)?),
            "alias" => {
                let alias = consumer(meta, r#"alias = "invoices""#)?;
                if self.aliases.iter().any(|other| other.value() == alias.value()) {
                    return Err(error(&alias, "this alias is given twice", "remove one of the two"));
                }
                self.aliases.push(alias);
            }
            "types" => self.types = Some(types(meta)?),
            "effect" => self.effect = Some(effect(meta)?),
            "manual" => options::flag(meta, &mut self.manual)?,
            "instances" => {
                // Also after a mistake they are given, and need not be asked for.
                self.instances = Some(Vec::new());
                self.instances = Some(instances(meta)?);
            }
            "crate" => self.krate = options::krate(meta)?,
            _ => return self.policy.option(name, meta),
        }
        Ok(())
    }
}

/// What the attribute says of where a handler without a database has its effect.
pub(super) struct Effect {
    pub(super) external: bool,
    pub(super) text: LitStr,
}

fn effect(meta: &ParseNestedMeta<'_>) -> syn::Result<Effect> {
    let text = options::text(meta, r#"effect = "none""#)?;
    let external = match &*text.value() {
        "external" => true,
        "none" => false,
        _ => {
            return Err(error(
                &text,
                "`effect` takes `\"external\"` or `\"none\"`",
                "a handler that calls somebody is `external` and runs in no transaction; one that may be repeated at any time, \
                 since it has no effect, is `none`",
            ));
        }
    };
    Ok(Effect { external, text })
}

fn consumer(meta: &ParseNestedMeta<'_>, example: &str) -> syn::Result<LitStr> {
    let name = options::text(meta, example)?;
    let value = name.value();
    if value.is_empty() || value.len() > 255 || value.contains('\0') {
        return Err(error(
            &name,
            "a consumer's name has from 1 to 255 bytes, none of them zero",
            format_args!("such as `{example}`"),
        ));
    }
    Ok(name)
}

fn types(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<LitStr>> {
    const HELP: &str = r#"such as `types = ["order.placed", "order.paid"]`, by their names on the wire"#;
    let wrong = || error(&meta.path, "`types` takes a list of event types in quotes", HELP);
    if !meta.input.peek(Token![=]) {
        return Err(wrong());
    }
    let value = meta.value()?;
    if !value.peek(token::Bracket) {
        return Err(wrong());
    }
    let list;
    bracketed!(list in value);
    let list: TokenStream = list.parse()?;
    let parser = Punctuated::<LitStr, Token![,]>::parse_terminated;
    let types: Vec<_> = parser.parse2(list).map_err(|_| wrong())?.into_iter().collect();
    if types.is_empty() {
        return Err(error(&meta.path, "`types` is empty, and the handler would take nothing", HELP));
    }
    for (at, name) in types.iter().enumerate() {
        if types[..at].iter().any(|other| other.value() == name.value()) {
            return Err(error(name, "this type is listed twice", "remove one of the two"));
        }
    }
    Ok(types)
}

fn instances(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<AngleBracketedGenericArguments>> {
    let wrong = |_| {
        error(
            &meta.path,
            "`instances` takes the arguments of each instantiation, in angle brackets",
            "such as `instances(<Usd>, <Eur>)`",
        )
    };
    if !meta.input.peek(token::Paren) {
        return Err(wrong(meta.error("")));
    }
    let list;
    parenthesized!(list in meta.input);
    let parser = Punctuated::<_, Token![,]>::parse_terminated;
    let instances = parser.parse2(list.parse()?).map_err(wrong)?;
    if instances.is_empty() {
        return Err(wrong(meta.error("")));
    }
    Ok(instances.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_documented() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../outbox/src/docs/outbox_handler.md"));
        for option in [&HANDLER, &RETRY].iter().flat_map(|place| place.options) {
            let row = format!("`{option}");
            assert!(text.contains(&row), "`{option}` is not in outbox_handler.md");
        }
    }
}
