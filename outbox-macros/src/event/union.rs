//! Checks an enum whose variants hold events.

use quote::ToTokens as _;
use syn::{DataEnum, DeriveInput, Fields};

use super::attr;
use super::model::Inner;
use crate::errors::Errors;

pub(super) fn of_union<'a>(
    input: &'a DeriveInput,
    data: &'a DataEnum,
    container: &attr::Container,
    errors: &mut Errors,
) -> Vec<Inner<'a>> {
    let case = &container.case;
    let has_options = case.event_type.is_some()
        || case.aggregate.is_some()
        || case.version.is_some()
        || !case.aliases.is_empty()
        || !case.upcasts.is_empty()
        || container.topic.is_some()
        || container.source.is_some();
    if has_options {
        let attr = input.attrs.iter().find(|attr| attr.path().is_ident("outbox"));
        errors.add(
            attr,
            "a union has no event type of its own",
            "besides `union` it takes only `crate`; the events in its variants say the rest",
        );
    }
    if data.variants.is_empty() {
        errors.add(
            &input.ident,
            format_args!("the union `{}` has no variants", input.ident),
            "each variant holds one event",
        );
    }
    let mut inners: Vec<Inner<'a>> = Vec::new();
    for variant in &data.variants {
        let fields = variant.fields.iter().flat_map(|field| &field.attrs);
        for attr in variant.attrs.iter().chain(fields) {
            if attr.path().is_ident("outbox") {
                errors.add(attr, "a variant of a union has no options", "the event in it says everything");
            }
        }
        let event = match &variant.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => &fields.unnamed[0].ty,
            _ => {
                errors.add(
                    variant,
                    format_args!("the variant `{}` does not hold one event", variant.ident),
                    format_args!("write `{}(OrderPaid)`", variant.ident),
                );
                continue;
            }
        };
        let text = event.to_token_stream().to_string();
        if let Some(other) = inners.iter().find(|other| other.event.to_token_stream().to_string() == text) {
            errors.add(
                event,
                format_args!("`{}` holds this event too", other.variant),
                "a message could be read as either, so an event stands in one variant",
            );
        }
        inners.push(Inner { variant: &variant.ident, event });
    }
    inners
}
