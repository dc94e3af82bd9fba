//! Which aggregate an event belongs to. Whatever is ambiguous is an error, so that a new field never changes it
//! silently.

use syn::ext::IdentExt as _;
use syn::{Ident, Index, LitStr, Member};

use super::attr;
use super::fields::Given;
use super::model::{Aggregate, Piece};
use crate::errors::error;
use crate::template;
use crate::words;

/// The aggregate of the type or variant `owner`; none if it says that there is none.
pub(super) fn resolve<'a>(
    owner: &Ident,
    own: Option<&attr::Aggregate>,
    inherited: Option<&attr::Aggregate>,
    fields: &[Given<'a>],
) -> syn::Result<Option<Aggregate<'a>>> {
    let mut marked = fields.iter().filter_map(|given| Some((given, given.attr.aggregate_id?)));
    let first = marked.next();
    if let Some((second, span)) = marked.next() {
        let place = Ident::new("aggregate_id", span);
        let what = format!("`{}` is a second field marked as the aggregate id", second.name);
        return Err(error(
            place,
            what,
            r#"mark one of them, or write `aggregate = "{one}/{other}"` on the type"#,
        ));
    }
    match (first, own) {
        (Some((_, span)), Some(_)) => Err(error(
            Ident::new("aggregate_id", span),
            format_args!("`{owner}` says twice which aggregate it belongs to"),
            "remove the mark of the field, or `aggregate = ..`",
        )),
        (Some((given, _)), None) => Ok(Some(Aggregate::Field(given.field.clone()))),
        (None, _) => match own.or(inherited) {
            Some(attr::Aggregate::None) => Ok(None),
            Some(attr::Aggregate::Template(template)) => pieces(owner, template, fields).map(Some),
            None => by_name(owner, fields).map(Some),
        },
    }
}

/// The only field that is named like an id.
fn by_name<'a>(owner: &Ident, fields: &[Given<'a>]) -> syn::Result<Aggregate<'a>> {
    let candidates: Vec<_> =
        fields.iter().filter(|given| given.name == "id" || given.name.ends_with("_id")).collect();
    let found = match &*candidates {
        [only] => return Ok(Aggregate::Field(only.field.clone())),
        [] => "no field is named `id` or `.._id`".to_owned(),
        several => {
            let names: Vec<_> = several.iter().map(|given| &given.name).collect();
            format!("it could be {}", words::list(&names, "or"))
        }
    };
    let example = candidates
        .first()
        .or(fields.first().as_ref())
        .map_or_else(String::new, |given| format!("order-{{{}}}", given.name));
    Err(error(
        owner,
        format_args!("which aggregate does `{owner}` belong to? {found}"),
        if fields.is_empty() {
            "write `#[outbox(aggregate = none)]` if it belongs to none".to_owned()
        } else {
            format!(
                "mark the field with `#[outbox(aggregate_id)]`, or write `#[outbox(aggregate = \"{example}\")]`, or \
                 `#[outbox(aggregate = none)]` if it belongs to none"
            )
        },
    ))
}

fn pieces<'a>(owner: &Ident, template: &LitStr, fields: &[Given<'a>]) -> syn::Result<Aggregate<'a>> {
    let piece = |piece| match piece {
        template::Piece::Text(text) => Ok(Piece::Text(text)),
        template::Piece::Hole(hole) => value(owner, &hole, template, fields),
    };
    let pieces: syn::Result<_> = template::split(template)?.into_iter().map(piece).collect();
    pieces.map(Aggregate::Template)
}

fn value<'a>(owner: &Ident, hole: &str, template: &LitStr, fields: &[Given<'a>]) -> syn::Result<Piece<'a>> {
    let (first, rest) = match hole.split_once('.') {
        Some((first, rest)) => (first, rest.split('.').collect()),
        None => (hole, Vec::new()),
    };
    let path: Option<Vec<_>> = [first].into_iter().chain(rest).map(|name| member(name, template)).collect();
    let Some(mut path) = path else {
        return Err(error(
            template,
            format_args!("`{{{hole}}}` is no field"),
            "a hole names a field: `{order_id}`, `{0}`, or a field of a field: `{customer.id}`",
        ));
    };
    path.remove(0);
    let first = first.trim_start_matches("r#");
    let Some(given) = fields.iter().find(|given| given.name == first) else {
        let names: Vec<_> = fields.iter().map(|given| &*given.name).collect();
        let help = match words::most_similar(first, &names) {
            Some(meant) => format!("did you mean `{{{meant}}}`?"),
            None if fields.is_empty() => "it has no fields at all".to_owned(),
            None => format!("its fields are {}", words::list(&names, "and")),
        };
        return Err(error(template, format_args!("`{owner}` has no field `{first}`"), help));
    };
    Ok(Piece::Value(given.field.clone(), path))
}

fn member(name: &str, template: &LitStr) -> Option<Member> {
    if let Ok(index) = name.parse() {
        return Some(Member::Unnamed(Index { index, span: template.span() }));
    }
    let name = LitStr::new(name, template.span()).parse_with(Ident::parse_any).ok()?;
    // `{type}` stands for the field `r#type`.
    let is_keyword = syn::parse_str::<Ident>(&name.to_string()).is_err();
    let can_be_raw = !["self", "Self", "super", "crate", "_"].contains(&&*name.unraw().to_string());
    match (is_keyword, can_be_raw) {
        (false, _) => Some(Member::Named(name)),
        (true, true) => Some(Member::Named(Ident::new_raw(&name.to_string(), template.span()))),
        (true, false) => None,
    }
}
