//! A handler as it is known after all checks.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser as _};
use syn::{AngleBracketedGenericArguments, Attribute, LitStr, Path, Signature, Token, Type, Visibility};

use super::policy::Policy;
use crate::errors::error;

/// A function of which only the signature is read: a body that is being typed still expands.
pub(super) struct Function {
    pub(super) attrs: Vec<Attribute>,
    pub(super) vis: Visibility,
    pub(super) sig: Signature,
}

impl Function {
    pub(super) fn parse(item: &TokenStream) -> syn::Result<Self> {
        let parser = |input: ParseStream<'_>| {
            let (attrs, vis) = (input.call(Attribute::parse_outer)?, input.parse()?);
            let is_function = input.peek(Token![fn])
                || input.peek(Token![async])
                || input.peek(Token![const])
                || input.peek(Token![unsafe])
                || input.peek(Token![extern]);
            if !is_function {
                return Err(error(
                    input.parse::<TokenStream>()?,
                    "a handler is a function",
                    "put `#[outbox_handler]` on an `async fn`",
                ));
            }
            let sig = input.parse()?;
            // The body.
            input.parse::<TokenStream>()?;
            Ok(Self { attrs, vis, sig })
        };
        parser.parse2(item.clone())
    }

    /// The conditions under which the function exists, and so all that belongs to it.
    pub(super) fn cfgs(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
    }
}

pub(super) struct Handler<'a> {
    pub(super) function: &'a Function,
    pub(super) krate: &'a Path,
    pub(super) consumer: String,
    /// What the consumer was called before.
    pub(super) aliases: &'a [LitStr],
    /// Those that it takes, where they are not all of its event.
    pub(super) types: Option<&'a [LitStr]>,
    pub(super) policy: &'a Policy,
    pub(super) effect: Effect,
    /// In the order of the signature.
    pub(super) parameters: Vec<Parameter<'a>>,
    pub(super) registration: Registration<'a>,
}

impl<'a> Handler<'a> {
    /// The path of what is for generated code.
    pub(super) fn private(&self) -> TokenStream {
        let krate = self.krate;
        quote!(#krate::__private)
    }

    pub(super) fn event(&self) -> Option<&'a Type> {
        self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Event(ty) => Some(*ty),
            _ => None,
        })
    }

    /// The `T` of the `&mut T`.
    pub(super) fn database(&self) -> Option<&'a Type> {
        self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Database(ty) => Some(*ty),
            _ => None,
        })
    }
}

/// A parameter by its role.
pub(super) enum Parameter<'a> {
    Event(&'a Type),
    /// The `T` of `&mut T`, which names the database.
    Database(&'a Type),
    Extracted(&'a Type),
}

impl<'a> Parameter<'a> {
    pub(super) fn ty(&self) -> &'a Type {
        match self {
            Self::Event(ty) | Self::Database(ty) | Self::Extracted(ty) => ty,
        }
    }
}

/// Where a handler has its effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Database,
    External,
    None,
}

pub(super) enum Registration<'a> {
    Manual,
    Itself,
    Instances(&'a [AngleBracketedGenericArguments]),
}
