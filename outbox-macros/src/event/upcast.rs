//! Checks the chain of older versions that an event is read from.

use syn::{Ident, Type};

use super::attr;
use super::model::Upcast;
use crate::errors::Errors;

/// The upcasts in the order of their versions, each of which leads to the next and the last to `version`.
pub(super) fn chain(given: &[attr::Upcast], version: u32, event: &Ident, errors: &mut Errors) -> Vec<Upcast> {
    let mut sorted: Vec<_> = given.iter().collect();
    sorted.sort_by_key(|upcast| upcast.version);
    let mut last: Option<&attr::Upcast> = None;
    for upcast in &sorted {
        let number = upcast.version;
        if number >= version {
            errors.add(
                &upcast.number,
                format_args!("the event is version {version}, and is read from older ones"),
                if version == 1 {
                    format!("give the event its version: `version = {}`", number.saturating_add(1))
                } else {
                    format!("an upcast is of a version below {version}")
                },
            );
            return Vec::new();
        }
        match last {
            None if is_itself(&upcast.shape, event) => errors.add(
                &upcast.shape,
                format_args!("version {number} is upcast from `{event}` to `{event}`"),
                format_args!(
                    "name the type that the payload had then; an older version that `{event}` reads as it is needs no upcast"
                ),
            ),
            Some(last) if last.version == number => errors.add(
                &upcast.number,
                format_args!("version {number} is upcast twice"),
                "remove one of the two",
            ),
            Some(last) if last.version + 1 < number => gap(last, number, errors),
            _ => {}
        }
        last = Some(upcast);
    }
    if let Some(last) = last
        && last.version + 1 < version
    {
        gap(last, version, errors);
    }
    sorted.iter().map(|upcast| Upcast { version: upcast.version, shape: upcast.shape.clone() }).collect()
}

fn gap(before: &attr::Upcast, after: u32, errors: &mut Errors) {
    let missing = before.version + 1;
    errors.add(
        &before.number,
        format_args!("nothing leads from version {} to version {after}", before.version),
        format_args!(
            "say what version {missing} was: `{missing} => ..V{missing}`, or `{missing} => Self` if it reads as the event \
             does now"
        ),
    );
}

/// As far as names tell.
fn is_itself(shape: &Type, event: &Ident) -> bool {
    match shape {
        Type::Path(path) if path.qself.is_none() => {
            path.path.is_ident("Self")
                || path
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == *event && path.path.segments.len() == 1)
        }
        _ => false,
    }
}
