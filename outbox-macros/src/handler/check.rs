//! Holds the options of a handler against its signature, and collects every mistake.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{FnArg, Generics, Ident, PatType, Safety, Type, TypeReference};

use super::attr::Options;
use super::model::{Effect, Function, Handler, Parameter, Registration};
use crate::errors::Errors;

/// The handler; none after a mistake, which is in `errors` then.
pub(super) fn handler<'a>(
    function: &'a Function,
    options: &'a Options,
    errors: &mut Errors,
) -> Option<Handler<'a>> {
    qualifiers(function, errors);
    let parameters = parameters(function, errors);
    let effect = effect(&parameters, options, errors);
    let registration = registration(function, options, errors)?;
    let name = || function.sig.ident.unraw().to_string();
    let consumer = options.consumer.as_ref().map_or_else(name, syn::LitStr::value);
    if let Some(own) = options.aliases.iter().find(|alias| alias.value() == consumer) {
        errors.add(
            own,
            format_args!("`{consumer}` is the consumer's name, and no alias"),
            "an alias is what it was called before",
        );
    }
    Some(Handler {
        function,
        krate: &options.krate,
        consumer,
        aliases: &options.aliases,
        types: options.types.as_deref(),
        policy: &options.policy,
        effect,
        parameters,
        registration,
    })
}

fn qualifiers(function: &Function, errors: &mut Errors) {
    let sig = &function.sig;
    if sig.asyncness.is_none() {
        errors.add(sig.fn_token, "a handler is `async`", format_args!("write `async fn {}`", sig.ident));
    }
    if let Safety::Unsafe(token) = &sig.safety {
        errors.add(
            token,
            "a handler is not `unsafe`",
            "nothing could keep its conditions; write `unsafe` in its body, around what needs it",
        );
    }
    if let Some(abi) = &sig.abi {
        errors.add(abi, "a handler is not `extern`", "remove this");
    }
}

fn parameters<'a>(function: &'a Function, errors: &mut Errors) -> Vec<Parameter<'a>> {
    let mut parameters = Vec::new();
    let mut database: Option<&TypeReference> = None;
    for (at, input) in function.sig.inputs.iter().enumerate() {
        let PatType { ty, .. } = match input {
            FnArg::Typed(typed) => typed,
            FnArg::Receiver(receiver) => {
                errors.add(
                    receiver,
                    "a handler is no method",
                    "make it a free function; what `self` held is taken as `State<T>`",
                );
                return parameters;
            }
        };
        if names_impl(ty.to_token_stream()) {
            errors.add(
                ty,
                "a parameter of a handler has a type with a name",
                "write the type in place of `impl ..`",
            );
        }
        match ungrouped(ty) {
            Type::Reference(reference) if at == 0 => {
                let help = if reference.mutability.is_some() {
                    "put the event before it: an event, or `Envelope` of one, by value".to_owned()
                } else {
                    format!("write `{}`", reference.elem.to_token_stream())
                };
                errors.add(ty, "the first parameter is the event, by value", help);
            }
            Type::Reference(reference) if reference.mutability.is_none() => errors.add(
                ty,
                "a handler takes no shared reference",
                "take a `State<T>` by value, which derefs to `T`",
            ),
            Type::Reference(reference) => {
                if database.is_some() {
                    errors.add(
                        ty,
                        "a second `&mut` parameter",
                        "one is enough: `&mut Context<DB>` derefs to the connection",
                    );
                }
                database = Some(reference);
                parameters.push(Parameter::Database(&reference.elem));
            }
            ty if at == 0 => parameters.push(Parameter::Event(ty)),
            ty => parameters.push(Parameter::Extracted(ty)),
        }
    }
    if function.sig.inputs.is_empty() {
        errors.add(
            &function.sig.ident,
            format_args!("`{}` takes no event", function.sig.ident),
            format_args!("its first parameter is one: `async fn {}(paid: OrderPaid)`", function.sig.ident),
        );
    }
    parameters
}

/// Where the handler has its effect, by its parameters and by what it says.
fn effect(parameters: &[Parameter<'_>], options: &Options, errors: &mut Errors) -> Effect {
    let database = parameters.iter().any(|parameter| matches!(parameter, Parameter::Database(_)));
    let effect = match &options.effect {
        Some(effect) if database && effect.external => {
            errors.add(
                &effect.text,
                "a handler that is given a transaction is not `external`",
                "what is called outside of the database would be called again whenever the transaction is repeated; remove the \
                 `&mut` parameter and take a pool as `State<Pool<DB>>`, or give the call a handler of its own",
            );
            Effect::Database
        }
        Some(effect) if database => {
            errors.add(
                &effect.text,
                "a handler that is given a transaction has its effect there",
                "remove `effect`, or the `&mut` parameter",
            );
            Effect::Database
        }
        _ if database => Effect::Database,
        Some(effect) if !effect.external => Effect::None,
        _ => Effect::External,
    };
    if effect != Effect::External {
        for (name, span) in options.policy.external_options() {
            errors.add(
                Ident::new(name, span),
                format_args!("`{name}` is for handlers whose effect is external"),
                "remove it: this handler shares the transactions of its consumer",
            );
        }
    }
    if let (Effect::External, Some(span)) = (effect, options.policy.unmarked_option()) {
        errors.add(
            Ident::new("inbox", span),
            "an external handler needs the inbox",
            "remove it: each call is claimed there before it is made",
        );
    }
    effect
}

/// A type that a `macro_rules!` took as one piece comes in a group that cannot be seen.
fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        Type::Paren(paren) => ungrouped(&paren.elem),
        ty => ty,
    }
}

fn names_impl(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "impl",
        TokenTree::Group(group) => names_impl(group.stream()),
        _ => false,
    })
}

fn registration<'a>(
    function: &Function,
    options: &'a Options,
    errors: &mut Errors,
) -> Option<Registration<'a>> {
    let (name, generics) = (&function.sig.ident, &function.sig.generics);
    let parameters = parameters_of_types(generics);
    match (&options.instances, options.manual) {
        (Some(_), Some(manual)) => {
            errors.add(
                Ident::new("manual", manual),
                "`instances` are registered, and `manual` says that nothing is",
                "remove one of the two options",
            );
            None
        }
        (Some(instances), None) => {
            for (at, instance) in instances.iter().enumerate() {
                let text = instance.to_token_stream().to_string();
                if instance.args.len() != parameters {
                    errors.add(
                        instance,
                        format_args!(
                            "`{name}` takes {parameters} argument{} in angle brackets, and here are {}",
                            if parameters == 1 { "" } else { "s" },
                            instance.args.len()
                        ),
                        if parameters == 0 {
                            "remove `instances`: what is not generic is registered as it is"
                        } else {
                            "give one argument for each, such as `instances(<Usd>, <Eur>)`"
                        },
                    );
                } else if instances[..at].iter().any(|other| other.to_token_stream().to_string() == text) {
                    errors.add(instance, "this instance is listed twice", "remove one of the two");
                }
            }
            Some(Registration::Instances(instances))
        }
        (None, Some(_)) => Some(Registration::Manual),
        (None, None) if parameters == 0 => Some(Registration::Itself),
        (None, None) => {
            errors.add(
                name,
                "a generic handler cannot be registered by itself: nothing says for which types",
                format_args!(
                    "list them, `#[outbox_handler(instances(<Usd>, <Eur>))]`, or write `#[outbox_handler(manual)]` and \
                     register `{name}::<..>` where the consumers are built"
                ),
            );
            None
        }
    }
}

/// How many arguments an instance has.
fn parameters_of_types(generics: &Generics) -> usize {
    generics.type_params().count() + generics.const_params().count()
}
