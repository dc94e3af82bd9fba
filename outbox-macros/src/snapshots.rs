//! Whole expansions, as a person would write them. `SNAPSHOTS=overwrite cargo test -p outbox-macros` takes the new
//! ones.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;

use crate::{event, handler};

#[track_caller]
fn assert_expands(expansion: TokenStream, name: &str) {
    let file = syn::parse2(expansion).expect("an expansion is items");
    let text = prettyplease::unparse(&file);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(name);
    if std::env::var_os("SNAPSHOTS").is_some_and(|how| how == "overwrite") {
        std::fs::write(&path, &text).expect("the snapshot can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the snapshot can be read");
    assert_eq!(text, expected, "{name} has changed");
}

#[test]
fn a_generic_event() {
    let event = quote! {
        #[outbox(type = "order.paid.{C::CODE}", aggregate = "{customer.id}-{order_id}", alias = "paid")]
        struct OrderPaid<C: Currency> {
            order_id: u64,
            customer: Customer,
            #[outbox(header)]
            tenant: Option<String>,
            currency: PhantomData<C>,
        }
    };
    assert_expands(event::derive(event), "generic_event.rs");
}

#[test]
fn an_enum() {
    let event = quote! {
        enum OrderEvent {
            Placed { order_id: u64 },
            #[outbox(aggregate = none, version = 2)]
            DayClosed(#[outbox(key)] u8),
        }
    };
    assert_expands(event::derive(event), "enum.rs");
}

#[test]
fn an_event_with_older_versions() {
    let event = quote! {
        #[outbox(version = 4, upcast(2 => OrderPaidV2, 3 => OrderPaidV3))]
        struct OrderPaid<'a> {
            #[outbox(aggregate_id, key, header)]
            order: Cow<'a, str>,
        }
    };
    assert_expands(event::derive(event), "versions.rs");
}

#[test]
fn an_enum_with_older_versions() {
    let event = quote! {
        #[outbox(version = 2, upcast(1 => OrderEventV1), aggregate = none)]
        enum OrderEvent {
            Placed,
            #[outbox(version = 1)]
            Closed(),
        }
    };
    assert_expands(event::derive(event), "enum_versions.rs");
}

#[test]
fn a_unit_struct_with_const_parameters() {
    let event = quote! {
        #[outbox(crate = facade::outbox, type = "level.{A}.{B}", aggregate = "all {{levels}}", source = "/meter")]
        pub(crate) struct r#Level<const A: i8, const B: bool>;
    };
    assert_expands(event::derive(event), "const_parameters.rs");
}

#[test]
fn a_generic_union() {
    let event = quote! {
        #[outbox(union)]
        enum Either<A, B> where A: Debug {
            A(A),
            B(B),
        }
    };
    assert_expands(event::derive(event), "generic_union.rs");
}

#[test]
fn an_event_with_a_mistake() {
    let event = quote! {
        struct OrderPaid<C> where C: Currency {
            currency: C,
        }
    };
    assert_expands(event::derive(event), "mistake.rs");
}

#[test]
fn a_union() {
    let event = quote! {
        #[outbox(union)]
        enum AnyOrder {
            Placed(OrderPlaced),
            Paid(OrderPaid<Usd>),
        }
    };
    assert_expands(event::derive(event), "union.rs");
}

#[test]
fn a_handler() {
    let function = quote! {
        pub async fn book(paid: OrderPaid, mailer: State<Mailer>, db: &mut SqliteConnection) -> Result<(), Error> {
            mailer.send(db, paid).await
        }
    };
    let options =
        quote!(consumer = "billing", alias = "invoices", alias = "bills", rate = "100/m", inbox = false);
    assert_expands(handler::attribute(options, &function), "handler.rs");
}

#[test]
fn a_handler_of_some_types_in_batches() {
    let function = quote! {
        async fn index(batch: Vec<Envelope<AnyOrder>>) -> Result<(), Error> {
            search.index(batch).await
        }
    };
    let options = quote!(types = ["order.placed", "order.paid"], batch = 500, manual);
    assert_expands(handler::attribute(options, &function), "some_types.rs");
}

#[test]
fn a_generic_handler_without_a_database() {
    let function = quote!(
        async fn track<C: Currency>(_: OrderPaid<C>) {}
    );
    assert_expands(handler::attribute(quote!(instances(<Usd>, <Eur>)), &function), "generic_handler.rs");
}
