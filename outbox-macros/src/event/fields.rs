//! Checks what is said of fields.

use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{Fields, Ident, Member};

use super::attr;
use super::model::{Field, Header};
use crate::errors::Errors;

/// A field with what its attributes say.
pub(super) struct Given<'a> {
    pub(super) field: Field<'a>,
    /// As it is written in a template: without `r#`, or an index.
    pub(super) name: String,
    pub(super) attr: attr::Field,
}

pub(super) fn read<'a>(fields: &'a Fields, errors: &mut Errors) -> Vec<Given<'a>> {
    fields
        .members()
        .zip(fields)
        .map(|(member, field)| Given {
            name: match &member {
                Member::Named(name) => name.unraw().to_string(),
                Member::Unnamed(index) => index.index.to_string(),
            },
            field: Field { member, ty: &field.ty },
            attr: attr::Field::read(&field.attrs, errors),
        })
        .collect()
}

pub(super) fn key<'a>(given: &[Given<'a>], errors: &mut Errors) -> Option<Field<'a>> {
    let mut marked = given.iter().filter_map(|given| Some((given, given.attr.key?)));
    let (key, _) = marked.next()?;
    for (second, span) in marked {
        errors.add(
            Ident::new("key", span),
            format_args!("`{}` is a second field marked as the key", second.name),
            "an event has one ordering key",
        );
    }
    Some(key.field.clone())
}

pub(super) fn headers<'a>(given: &[Given<'a>], errors: &mut Errors) -> Vec<Header<'a>> {
    let mut headers: Vec<Header<'a>> = Vec::new();
    for given in given {
        let (name, place) = match &given.attr.header {
            None => continue,
            Some(attr::Header::Named(name)) => (name.value(), name.to_token_stream()),
            Some(attr::Header::Unnamed(span)) => {
                (given.name.clone(), Ident::new("header", *span).into_token_stream())
            }
        };
        if let Err((what, help)) = check_header(&name) {
            errors.add(&place, what, help);
        } else if headers.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
            errors.add(&place, format_args!("a second header `{name}`"), "give it a name of its own");
        }
        headers.push(Header { name, field: given.field.clone() });
    }
    headers
}

/// The rules that a message applies to each header; here they are heard before the first publish.
fn check_header(name: &str) -> Result<(), (String, &'static str)> {
    const RESERVED: [&str; 5] = ["outbox-", "ce-", "ce_", "cloudevents:", "cloudevents_"];
    const LINKS: [&str; 2] = ["outbox-causation-id", "outbox-correlation-id"];
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:".contains(&byte);
    if name.is_empty() || name.len() > 255 || !name.bytes().all(is_token) {
        return Err((
            format!("`{name}` is no name of a header"),
            "a header's name has from 1 to 255 letters, digits and `!#$%&'*+-.^_|~:`",
        ));
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err((
            "a field without a name needs a name for its header".to_owned(),
            r#"write `header = "tenant"`"#,
        ));
    }
    let lower = name.to_ascii_lowercase();
    if LINKS.contains(&name) {
        return Ok(());
    }
    if RESERVED.iter().any(|prefix| lower.starts_with(prefix)) {
        return Err((
            format!("the header `{name}` is reserved"),
            "names with this beginning are written by the library",
        ));
    }
    Ok(())
}
