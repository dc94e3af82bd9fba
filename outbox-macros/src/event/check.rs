//! Holds the attributes of an event against its fields, and collects every mistake.

use syn::ext::IdentExt as _;
use syn::{Data, DataEnum, DeriveInput, Ident};

use super::fields::Given;
use super::model::{Case, Event, Kind};
use super::name::Name;
use super::union::of_union;
use super::{aggregate, attr, fields, upcast};
use crate::errors::{Errors, error};
use crate::words;

/// The event; none after a mistake, which is in `errors` then.
pub(super) fn event<'a>(
    input: &'a DeriveInput,
    container: &'a attr::Container,
    errors: &mut Errors,
) -> Option<Event<'a>> {
    let kind = match &input.data {
        Data::Struct(data) if container.union.is_none() => {
            let given = fields::read(&data.fields, errors);
            Kind::Struct(Box::new(of_struct(input, container, &given, errors)?))
        }
        Data::Enum(data) if container.union.is_none() => of_enum(input, data, container, errors)?,
        Data::Enum(data) => Kind::Union(of_union(input, data, container, errors)),
        Data::Struct(_) => {
            errors.add(
                &input.ident,
                format_args!("`{}` is no union of events", input.ident),
                "`union` is for an enum that holds one event in each variant",
            );
            return None;
        }
        Data::Union(data) => {
            errors.add(
                data.union_token,
                "a `union` cannot be an event",
                "make it a struct or an enum; `#[outbox(union)]` is for an enum of events",
            );
            return None;
        }
    };
    Some(Event { input, krate: &container.krate, kind })
}

fn of_struct<'a>(
    input: &DeriveInput,
    container: &attr::Container,
    given: &[Given<'a>],
    errors: &mut Errors,
) -> Option<Case<'a>> {
    let name = match &container.case.event_type {
        Some(template) => errors.take(Name::read(template, &input.generics)),
        None => errors.take(default_name(
            &input.ident,
            Name::of_words(&words::split(&input.ident.unraw().to_string())),
        )),
    };
    let topic = match (&container.topic, &name) {
        (Some(topic), _) => Some(topic.value()),
        (None, Some(name)) => errors.take(name.first_word().ok_or_else(|| {
            error(
                &container.case.event_type,
                "no topic can be read off this event type",
                r#"give one: `topic = "orders"`"#,
            )
        })),
        (None, None) => None,
    };
    let parts =
        Parts { owner: &input.ident, variant: None, own: &container.case, container, inherited: None };
    case(input, &parts, name, topic, given, errors)
}

fn of_enum<'a>(
    input: &'a DeriveInput,
    data: &'a DataEnum,
    container: &attr::Container,
    errors: &mut Errors,
) -> Option<Kind<'a>> {
    if data.variants.is_empty() {
        errors.add(
            &input.ident,
            format_args!("`{}` has no variants, so it is no event", input.ident),
            "each variant is one event type",
        );
    }
    if let Some(alias) = container.case.aliases.first() {
        errors.add(
            alias,
            "an alias of an enum stands for none of its event types",
            "give it to the variant that had this name",
        );
    }
    let first_word = words::split(&input.ident.unraw().to_string()).into_iter().next();
    let template = container.case.event_type.as_ref();
    let prefix = || template.map(|template| Name::read(template, &input.generics)).transpose();
    // Read once for its mistakes, and once for each variant.
    let by_prefix = errors.take(prefix())?.map(|prefix| prefix.first_word());
    let topic = match (&container.topic, by_prefix) {
        (Some(topic), _) => Some(topic.value()),
        (None, by_prefix) => errors.take(by_prefix.unwrap_or(first_word.clone()).ok_or_else(|| {
            error(
                &input.ident,
                "no topic can be read off this name",
                r#"give one: `#[outbox(topic = "orders")]`"#,
            )
        })),
    };
    let mut cases: Vec<Case<'_>> = Vec::new();
    for variant in &data.variants {
        let own = attr::Case::read(&variant.attrs, errors);
        let name = match &own.event_type {
            Some(template) => errors.take(Name::read(template, &input.generics)),
            None => errors.take(prefix().and_then(|prefix| {
                let variant_words = words::split(&variant.ident.unraw().to_string());
                let first_word = first_word.as_deref().unwrap_or_default();
                default_name(&variant.ident, Name::of_variant(prefix, first_word, &variant_words))
            })),
        };
        let given = fields::read(&variant.fields, errors);
        let parts = Parts {
            owner: &variant.ident,
            variant: Some(&variant.ident),
            own: &own,
            container,
            inherited: container.case.aggregate.as_ref(),
        };
        let Some(case) = case(input, &parts, name, topic.clone(), &given, errors) else {
            continue;
        };
        for other in &cases {
            if let Some(shared) = shared_name(other, &case) {
                errors.add(
                    &variant.ident,
                    format_args!("two variants have the event type `{shared}`"),
                    "give one of them another `type`",
                );
            }
        }
        cases.push(case);
    }
    Some(Kind::Enum(cases))
}

/// A default name, which can be unusable: Rust names may have letters that an event type cannot have.
fn default_name(ident: &Ident, name: Name) -> syn::Result<Name> {
    let usable = name.check().map_err(|what| {
        error(
            ident,
            format_args!("no event type can be made of `{ident}`: {what}"),
            r#"give one: `#[outbox(type = "order.paid")]`"#,
        )
    });
    usable.map(|()| name)
}

/// Where the parts of a case come from.
struct Parts<'a, 'b> {
    owner: &'b Ident,
    variant: Option<&'a Ident>,
    own: &'b attr::Case,
    container: &'b attr::Container,
    inherited: Option<&'b attr::Aggregate>,
}

fn case<'a>(
    input: &DeriveInput,
    parts: &Parts<'a, '_>,
    name: Option<Name>,
    topic: Option<String>,
    given: &[Given<'a>],
    errors: &mut Errors,
) -> Option<Case<'a>> {
    let resolved = aggregate::resolve(parts.owner, parts.own.aggregate.as_ref(), parts.inherited, given);
    let aggregate = errors.take(resolved);
    let aliases = aliases(input, parts.own, name.as_ref(), errors);
    let key = fields::key(given, errors);
    let headers = fields::headers(given, errors);
    let of_container = &parts.container.case;
    // What a variant says of its versions is all that holds for it.
    let (version, upcasts) = if parts.own.version.is_some() || !parts.own.upcasts.is_empty() {
        (parts.own.version, &*parts.own.upcasts)
    } else {
        (of_container.version, &*of_container.upcasts)
    };
    let version = version.or(of_container.version).unwrap_or(1);
    let upcasts = upcast::chain(upcasts, version, &input.ident, errors);
    Some(Case {
        variant: parts.variant,
        name: name?,
        aliases,
        version,
        topic: topic?,
        source: parts.container.source.as_ref().map(syn::LitStr::value),
        aggregate: aggregate?,
        key,
        headers,
        upcasts,
    })
}

fn aliases(input: &DeriveInput, own: &attr::Case, name: Option<&Name>, errors: &mut Errors) -> Vec<Name> {
    let mut aliases: Vec<Name> = Vec::new();
    for template in &own.aliases {
        let Some(alias) = errors.take(Name::read(template, &input.generics)) else {
            continue;
        };
        if let Some(text) = alias.text()
            && aliases.iter().chain(name).any(|other| other.text() == Some(text))
        {
            errors.add(
                template,
                format_args!("the event answers to `{text}` already"),
                "an alias is an older name of the event",
            );
        }
        aliases.push(alias);
    }
    aliases
}

/// A name that two event types would both answer to.
fn shared_name<'a>(one: &'a Case<'_>, other: &Case<'_>) -> Option<&'a str> {
    let mut names = one.aliases.iter().chain([&one.name]).filter_map(Name::text);
    names.find(|name| {
        let mut others = other.aliases.iter().chain([&other.name]).filter_map(Name::text);
        others.any(|other| other == *name)
    })
}
