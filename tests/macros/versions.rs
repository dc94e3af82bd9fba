//! Messages of other versions than the one that this build writes.

use outbox::codec::Codecs;
use outbox::{DecodeEvent, Error, ErrorKind, Message, OutboxEvent};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

use crate::event::{assert_comes_back, message};
use crate::{Currency, Eur};

fn of_version(event_type: &str, version: u32, payload: &str) -> Message {
    let mut message = message(event_type, payload);
    message.version = version;
    message
}

fn read<E: DecodeEvent>(event_type: &str, version: u32, payload: &str) -> outbox::Result<E> {
    E::decode(&of_version(event_type, version, payload), &Codecs::default())
}

#[track_caller]
fn assert_refused(error: &Error, kind: ErrorKind, texts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for text in texts {
        assert!(error.to_string().contains(text), "{text} in {error}");
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 4, alias = "PriceChanged")]
#[outbox(upcast(3 => Self, 1 => PriceV1), upcast(2 => older::PriceV2))]
struct PriceSet {
    price_id: u64,
    cents: i64,
    currency: String,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Deserialize)]
struct PriceV1 {
    price: u64,
    euros: i64,
}

mod older {
    #[derive(serde::Deserialize)]
    pub(super) struct PriceV2 {
        pub(super) price_id: u64,
        pub(super) cents: i64,
    }
}

impl From<PriceV1> for older::PriceV2 {
    fn from(old: PriceV1) -> Self {
        Self { price_id: old.price, cents: old.euros * 100 }
    }
}

impl From<older::PriceV2> for PriceSet {
    fn from(old: older::PriceV2) -> Self {
        Self { price_id: old.price_id, cents: old.cents, currency: "EUR".to_owned(), note: None }
    }
}

#[test]
fn an_older_version_becomes_this_one_step_by_step() {
    let expected = PriceSet { price_id: 7, cents: 300, currency: "EUR".to_owned(), note: None };
    for (version, payload) in [
        (1, r#"{"price":7,"euros":3}"#),
        (2, r#"{"price_id":7,"cents":300}"#),
        (3, r#"{"price_id":7,"cents":300,"currency":"EUR"}"#),
        (4, r#"{"price_id":7,"cents":300,"currency":"EUR","note":null}"#),
    ] {
        for event_type in ["price.set", "PriceChanged"] {
            assert_eq!(read::<PriceSet>(event_type, version, payload).expect(payload), expected);
        }
    }
    let now = of_version("price.set", 4, r#"{"price_id":7,"cents":300,"currency":"EUR","note":null}"#);
    assert_eq!(PriceSet::decode(&now, &Codecs::default()).expect("reads"), expected);
}

#[test]
fn a_payload_that_does_not_fit_its_version_names_the_path() {
    let error = read::<PriceSet>("price.set", 1, r#"{"price":7,"euros":"3"}"#).expect_err("a text");
    assert_refused(&error, ErrorKind::Decode, &["PriceV1", "`euros`"]);
    // The present shape, under an old number.
    let error = read::<PriceSet>("price.set", 1, r#"{"price_id":7,"cents":3,"currency":"EUR"}"#);
    assert_refused(&error.expect_err("not version 1"), ErrorKind::Decode, &["PriceV1"]);
}

#[test]
fn a_newer_version_is_not_guessed_at() {
    let fits = r#"{"price_id":7,"cents":300,"currency":"EUR"}"#;
    let error = read::<PriceSet>("price.set", 5, fits).expect_err("it may mean something else now");
    let texts = ["version 5 of `price.set`", "versions::PriceSet` of this build is version 4"];
    assert_refused(&error, ErrorKind::NewerVersion, &texts);
    let error = read::<Union>("price.set", 5, fits).expect_err("neither here");
    assert_refused(&error, ErrorKind::NewerVersion, &texts);
}

#[derive(Debug, PartialEq, OutboxEvent)]
#[outbox(union)]
enum Union {
    Price(PriceSet),
    Tax(TaxEvent),
}

#[test]
fn a_union_reads_the_versions_of_its_events() {
    let event = read::<Union>("PriceChanged", 1, r#"{"price":7,"euros":3}"#).expect("version 1");
    assert!(matches!(event, Union::Price(PriceSet { cents: 300, .. })), "{event:?}");
    let event = read::<Union>("tax.raised", 2, r#"{"Raised":{"percent":19}}"#).expect("version 2");
    assert_eq!(event, Union::Tax(TaxEvent::Raised { permille: 190 }));
}

/// Version 1 is gone for good.
#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = none, version = 3, upcast(2 => u8))]
struct LevelMeasured(u16);

impl From<u8> for LevelMeasured {
    fn from(old: u8) -> Self {
        Self(old.into())
    }
}

#[test]
fn a_version_before_the_first_known_one_is_refused() {
    assert_eq!(read::<LevelMeasured>("level.measured", 2, "7").expect("a byte"), LevelMeasured(7));
    assert_eq!(read::<LevelMeasured>("level.measured", 3, "700").expect("two bytes"), LevelMeasured(700));
    for version in [0, 1] {
        let error = read::<LevelMeasured>("level.measured", version, "7").expect_err("forgotten");
        assert_refused(&error, ErrorKind::Decode, &["`level.measured`", "from 2 on"]);
    }
}

/// What the enum says of versions holds for the variants that say nothing.
#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = none, version = 3, upcast(1 => TaxV1, 2 => TaxV2))]
enum TaxEvent {
    Raised {
        permille: u16,
    },
    #[outbox(version = 1)]
    Abolished,
    #[outbox(version = 2, upcast(1 => NamedV1), alias = "tax.called")]
    Named(String),
}

#[derive(Deserialize)]
enum TaxV1 {
    Up(u16),
}

#[derive(Deserialize)]
enum TaxV2 {
    Raised { percent: u16 },
}

#[derive(Deserialize)]
struct NamedV1 {
    name: String,
}

impl From<TaxV1> for TaxV2 {
    fn from(TaxV1::Up(percent): TaxV1) -> Self {
        Self::Raised { percent }
    }
}

impl From<TaxV2> for TaxEvent {
    fn from(TaxV2::Raised { percent }: TaxV2) -> Self {
        Self::Raised { permille: percent * 10 }
    }
}

impl From<NamedV1> for TaxEvent {
    fn from(old: NamedV1) -> Self {
        Self::Named(old.name)
    }
}

#[test]
fn each_variant_has_its_versions() {
    let raised = TaxEvent::Raised { permille: 190 };
    for (version, payload) in
        [(1, r#"{"Up":19}"#), (2, r#"{"Raised":{"percent":19}}"#), (3, r#"{"Raised":{"permille":190}}"#)]
    {
        assert_eq!(read::<TaxEvent>("tax.raised", version, payload).expect(payload), raised);
    }
    assert_eq!(
        read::<TaxEvent>("tax.abolished", 1, r#""Abolished""#).expect("version 1"),
        TaxEvent::Abolished
    );
    let named = TaxEvent::Named("vat".to_owned());
    assert_eq!(read::<TaxEvent>("tax.called", 1, r#"{"name":"vat"}"#).expect("version 1"), named);
    assert_eq!(read::<TaxEvent>("tax.named", 2, r#"{"Named":"vat"}"#).expect("version 2"), named);
    let error = read::<TaxEvent>("tax.abolished", 2, r#""Abolished""#).expect_err("newer");
    assert_refused(
        &error,
        ErrorKind::NewerVersion,
        &["version 2 of `tax.abolished`", "TaxEvent::Abolished` of this build is version 1"],
    );
    // What an old version becomes is of the message's type as well.
    let error = read::<TaxEvent>("tax.raised", 3, r#""Abolished""#).expect_err("another variant");
    assert_refused(&error, ErrorKind::Decode, &["of type `tax.raised`", "TaxEvent::Abolished"]);
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[serde(bound = "")]
#[outbox(type = "refund.paid.{C::CODE}", alias = "refund.{C::CODE}", version = 3)]
#[outbox(upcast(1 => RefundV1<C>, 2 => RefundV2<C, i64>))]
struct RefundPaid<C: Currency> {
    refund_id: u64,
    cents: i64,
    #[serde(skip)]
    currency: PhantomData<C>,
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct RefundV1<C: Currency> {
    refund_id: u64,
    #[serde(skip)]
    currency: PhantomData<C>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "A: Deserialize<'de>"))]
struct RefundV2<C: Currency, A> {
    refund_id: u64,
    amount: A,
    #[serde(skip)]
    currency: PhantomData<C>,
}

impl<C: Currency> From<RefundV1<C>> for RefundV2<C, i64> {
    fn from(old: RefundV1<C>) -> Self {
        Self { refund_id: old.refund_id, amount: 1, currency: PhantomData }
    }
}

impl<C: Currency> From<RefundV2<C, i64>> for RefundPaid<C> {
    fn from(old: RefundV2<C, i64>) -> Self {
        Self { refund_id: old.refund_id, cents: old.amount * 100, currency: PhantomData }
    }
}

#[test]
fn a_generic_event_has_generic_versions() {
    let event = read::<RefundPaid<Eur>>("refund.eur", 1, r#"{"refund_id":7}"#).expect("version 1");
    assert_eq!(event, RefundPaid { refund_id: 7, cents: 100, currency: PhantomData });
    let event = read::<RefundPaid<Eur>>("refund.paid.eur", 2, r#"{"refund_id":7,"amount":3}"#);
    assert_eq!(event.expect("version 2").cents, 300);
    assert!(read::<RefundPaid<Eur>>("refund.paid.usd", 1, r#"{"refund_id":7}"#).is_err());
}

/// Without upcasts an older version is read as the event is now.
#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 2)]
struct StockCounted {
    stock_id: u64,
    #[serde(default)]
    shelf: u8,
}

#[test]
fn fields_with_defaults_need_no_upcast() {
    assert_comes_back(&StockCounted { stock_id: 1, shelf: 2 });
    let event = read::<StockCounted>("stock.counted", 1, r#"{"stock_id":1,"gone":true}"#);
    assert_eq!(event.expect("it fits"), StockCounted { stock_id: 1, shelf: 0 });
}
