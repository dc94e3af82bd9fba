//! `#[outbox::test]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{FnArg, ItemFn, Path, Type};

use crate::errors::{Errors, error};
use crate::options::{self, Place, Reader};

static TEST: Place = Place { name: "a test", location: "a function", options: &["crate"], others: &[] };

pub(crate) fn attribute(options: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let krate = krate(options, &mut errors);
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(mistake) => {
            errors.push(mistake);
            let errors = errors.to_compile_error();
            return quote!(#errors #item);
        }
    };
    let parameters = parameters(&function, &mut errors);
    if errors.is_empty() { expand(&function, &parameters, &krate) } else { fallback(&function, &errors) }
}

fn krate(attribute: TokenStream, errors: &mut Errors) -> Path {
    use syn::parse::Parser as _;
    let mut krate = options::default_krate();
    let mut reader = Reader::new(&TEST, errors);
    let parser = syn::meta::parser(|meta| {
        reader.option(&meta, |_, meta| {
            krate = options::krate(meta)?;
            Ok(())
        });
        Ok(())
    });
    let read = parser.parse2(attribute);
    errors.take(read);
    krate
}

/// The types of the parameters: those that the library knows how to give.
fn parameters<'a>(function: &'a ItemFn, errors: &mut Errors) -> Vec<&'a Type> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        errors.add(signature.fn_token, "a test of an outbox is an `async fn`", "write `async fn`");
    }
    if !signature.generics.params.is_empty() {
        errors.add(
            &signature.generics,
            "a test has no parameters of types or lifetimes",
            "name the database, as in `outbox: Outbox<Sqlite>`",
        );
    }
    let mut types = Vec::new();
    for input in &signature.inputs {
        match input {
            FnArg::Typed(parameter) => types.push(&*parameter.ty),
            FnArg::Receiver(receiver) => {
                errors.push(error(receiver, "a test is no method", "move it out of the `impl`"));
            }
        }
    }
    if signature.inputs.is_empty() {
        errors.add(
            &signature.ident,
            "the test does not say on which database it is to run",
            "take an `outbox: Outbox<Sqlite>`",
        );
    }
    types
}

/// The function inside one of the same name that the test harness calls.
fn expand(function: &ItemFn, types: &[&Type], krate: &Path) -> TokenStream {
    let private = quote!(#krate::__private);
    let ItemFn { attrs, vis, sig, block, .. } = function;
    let (name, output) = (&sig.ident, &sig.output);
    let first = types[0];
    // A function can have any name, so that of a local variable must not be found by it.
    let database = Ident::new("database", Span::mixed_site());
    let taken =
        types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #private::Fixture>::take(#database)));
    quote! {
        #[::core::prelude::v1::test]
        #(#attrs)*
        #vis fn #name() #output {
            #sig #block
            #private::run::<<#first as #private::Fixture>::Database, _>(
                async |#database| #name(#(#taken),*).await
            )
        }
    }
}

/// The function as it stands, so that what is in it is still checked and completed.
fn fallback(function: &ItemFn, errors: &Errors) -> TokenStream {
    let errors = errors.to_compile_error();
    quote!(#errors #function)
}
