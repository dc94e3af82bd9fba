//! An event as it is known after all checks.

use syn::{DeriveInput, Ident, Member, Path, Type};

use super::name::Name;

pub(super) struct Event<'a> {
    pub(super) input: &'a DeriveInput,
    pub(super) krate: &'a Path,
    pub(super) kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    Struct(Box<Case<'a>>),
    /// One event type for each variant.
    Enum(Vec<Case<'a>>),
    /// Events of other Rust types, one for each variant.
    Union(Vec<Inner<'a>>),
}

/// One event type.
pub(super) struct Case<'a> {
    pub(super) variant: Option<&'a Ident>,
    pub(super) name: Name,
    pub(super) aliases: Vec<Name>,
    pub(super) version: u32,
    pub(super) topic: String,
    pub(super) source: Option<String>,
    pub(super) aggregate: Option<Aggregate<'a>>,
    pub(super) key: Option<Field<'a>>,
    pub(super) headers: Vec<Header<'a>>,
    /// From the oldest version that can still be read to the one before this, without a gap.
    pub(super) upcasts: Vec<Upcast>,
}

/// The shape of an older version.
pub(super) struct Upcast {
    pub(super) version: u32,
    pub(super) shape: Type,
}

pub(super) enum Aggregate<'a> {
    Field(Field<'a>),
    Template(Vec<Piece<'a>>),
}

pub(super) enum Piece<'a> {
    Text(String),
    /// A field, and the way from there: `customer` and `id` of `{customer.id}`.
    Value(Field<'a>, Vec<Member>),
}

#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) member: Member,
    pub(super) ty: &'a Type,
}

pub(super) struct Header<'a> {
    pub(super) name: String,
    pub(super) field: Field<'a>,
}

/// A variant of a union.
pub(super) struct Inner<'a> {
    pub(super) variant: &'a Ident,
    pub(super) event: &'a Type,
}
