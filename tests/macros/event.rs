//! `#[derive(OutboxEvent)]`: names, aggregates, keys, headers, payloads.

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::rc::Rc;

use outbox::codec::{Codecs, Json};
use outbox::{DecodeEvent, ErrorKind, EventMeta, Headers, Message, OutboxEvent};
use serde::{Deserialize, Serialize};

use crate::{Currency, Eur, OrderPaid, OrderPlaced, Usd};

pub(crate) fn meta<E: OutboxEvent>() -> &'static EventMeta {
    match E::TYPES.all()[..] {
        [meta] => meta,
        ref several => panic!("one type, not {several:?}"),
    }
}

pub(crate) fn names<E: OutboxEvent>() -> Vec<&'static str> {
    E::TYPES.all().iter().map(|meta| meta.event_type).collect()
}

pub(crate) fn aggregate<E: OutboxEvent>(event: &E) -> Option<String> {
    event.aggregate_id().map(Cow::into_owned)
}

pub(crate) fn headers<E: OutboxEvent>(event: &E) -> Vec<(String, String)> {
    let mut headers = Headers::new();
    event.headers(&mut headers).expect("valid headers");
    let pairs = headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.collect()
}

pub(crate) fn payload<E: OutboxEvent>(event: &E) -> String {
    String::from_utf8(event.encode(&Json).expect("can be written")).expect("JSON is UTF-8")
}

/// A stored message of this type and payload.
pub(crate) fn message(event_type: &str, payload: &str) -> Message {
    let json = serde_json::json!({
        "id": "m1", "event_type": event_type, "version": 1, "topic": "t", "payload": payload,
        "content_type": "application/json", "created_at": "2024-05-06T07:08:09Z",
    });
    Message::from_json(json.to_string().as_bytes()).expect("a message")
}

#[track_caller]
pub(crate) fn assert_comes_back<E: DecodeEvent + PartialEq + Debug>(event: &E) {
    let mut message = message(event.meta().event_type, &payload(event));
    message.version = event.meta().version;
    assert_eq!(&E::decode(&message, &Codecs::default()).expect("reads back"), event);
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
struct OrderLineItemAdded {
    order_id: u64,
    quantity: u32,
}

#[test]
fn the_defaults_come_from_the_name_and_the_only_id() {
    let event = OrderLineItemAdded { order_id: 7, quantity: 2 };
    let meta = meta::<OrderLineItemAdded>();
    assert_eq!(event.meta(), meta);
    assert_eq!(meta.event_type, "order_line_item.added");
    assert_eq!((meta.version, meta.topic, meta.source, meta.aliases), (1, "order", None, &[][..]));
    assert_eq!(meta.rust_type, concat!(module_path!(), "::OrderLineItemAdded"));
    assert_eq!(aggregate(&event).as_deref(), Some("7"));
    assert_eq!(event.key(), None);
    assert_eq!(headers(&event), []);
    assert_eq!(payload(&event), r#"{"order_id":7,"quantity":2}"#);
    assert_comes_back(&event);
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "billing.invoice:sent-v2", topic = "billing", source = "/shop")]
#[outbox(version = 2, alias = "InvoiceSent", alias = "invoice.sent")]
#[outbox(aggregate = "{{{customer.id}}}/{r#type}-{ number }")]
struct InvoiceSent {
    customer: Customer,
    r#type: String,
    number: u32,
    #[outbox(key)]
    shard: char,
    #[outbox(header)]
    tenant: String,
    #[outbox(header = "x-trace")]
    trace: Option<String>,
    #[outbox(header = "x-span")]
    span: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Customer {
    id: u64,
}

fn invoice() -> InvoiceSent {
    InvoiceSent {
        customer: Customer { id: 3 },
        r#type: "credit".into(),
        number: 9,
        shard: 's',
        tenant: "acme".into(),
        trace: None,
        span: Some(5),
    }
}

#[test]
fn every_option_of_a_struct_is_heard() {
    let meta = meta::<InvoiceSent>();
    assert_eq!(meta.event_type, "billing.invoice:sent-v2");
    assert_eq!((meta.version, meta.topic, meta.source), (2, "billing", Some("/shop")));
    assert_eq!(meta.aliases, ["InvoiceSent", "invoice.sent"]);
    assert!(InvoiceSent::TYPES.find("invoice.sent").is_some());
    let event = invoice();
    assert_eq!(aggregate(&event).as_deref(), Some("{3}/credit-9"));
    assert_eq!(event.key().as_deref(), Some("s"));
    assert_comes_back(&event);
}

#[test]
fn a_header_that_is_none_is_not_written() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(headers(&invoice()), [pair("tenant", "acme"), pair("x-span", "5")]);
}

#[test]
fn a_header_with_a_control_character_is_refused() {
    let event = InvoiceSent { tenant: "a\nb".into(), ..invoice() };
    let error = event.headers(&mut Headers::new()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidMessage);
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
struct SeatReserved(#[outbox(aggregate_id, key)] String, u8);

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = "{1.id}-{0}")]
struct SeatMoved(u8, Customer);

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = none)]
struct Heartbeat;

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = "the one {{clock}}", topic = "clock-{0}")]
struct ClockSet {}

#[test]
fn structs_of_every_form_are_events() {
    let reserved = SeatReserved("12a".into(), 1);
    assert_eq!(aggregate(&reserved).as_deref(), Some("12a"));
    assert_eq!(reserved.key().as_deref(), Some("12a"));
    assert_comes_back(&reserved);
    let moved = SeatMoved(4, Customer { id: 3 });
    assert_eq!(aggregate(&moved).as_deref(), Some("3-4"));
    assert_comes_back(&moved);
    assert_eq!(aggregate(&Heartbeat), None);
    assert_eq!(meta::<Heartbeat>().event_type, "heartbeat");
    assert_eq!(meta::<Heartbeat>().topic, "heartbeat");
    assert_comes_back(&Heartbeat);
    assert_eq!(aggregate(&ClockSet {}).as_deref(), Some("the one {clock}"));
    assert_eq!(meta::<ClockSet>().topic, "clock-{0}");
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(version = 3, source = "/shop")]
enum OrderEvent {
    Opened {
        order_id: u64,
    },
    #[outbox(type = "order.money_moved", version = 4, alias = "order.paid")]
    PaymentReceived(#[outbox(aggregate_id)] u64, #[outbox(header = "tenant")] String),
    #[outbox(aggregate = none)]
    DayClosed,
    #[outbox(aggregate = "line-{1}")]
    LineRemoved(u64, u8),
}

#[test]
fn each_variant_of_an_enum_is_a_type() {
    let all: Vec<_> = OrderEvent::TYPES.all();
    let seen: Vec<_> = all.iter().map(|meta| (meta.event_type, meta.version)).collect();
    assert_eq!(
        seen,
        [("order.opened", 3), ("order.money_moved", 4), ("order.day_closed", 3), ("order.line_removed", 3)]
    );
    assert!(all.iter().all(|meta| meta.topic == "order" && meta.source == Some("/shop")));
    assert_eq!(all[1].aliases, ["order.paid"]);
    assert_eq!(all[1].rust_type, concat!(module_path!(), "::OrderEvent::PaymentReceived"));
    let events = [
        OrderEvent::Opened { order_id: 1 },
        OrderEvent::PaymentReceived(2, "acme".into()),
        OrderEvent::DayClosed,
        OrderEvent::LineRemoved(4, 5),
    ];
    let aggregates: Vec<_> = events.iter().map(aggregate).collect();
    let expected = [Some("1"), Some("2"), None, Some("line-5")];
    assert_eq!(aggregates, expected.map(|id| id.map(str::to_owned)));
    assert_eq!(events.iter().map(|event| headers(event).len()).sum::<usize>(), 1);
    for (event, meta) in events.iter().zip(all) {
        assert_eq!(event.meta(), meta);
        assert_comes_back(event);
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "shop-{C::CODE}", aggregate = "cart")]
#[serde(bound = "")]
enum CartEvent<C: Currency> {
    Emptied,
    CheckedOut(PhantomData<C>),
}

#[test]
fn the_type_of_an_enum_stands_before_its_variants() {
    assert_eq!(names::<CartEvent<Usd>>(), ["shop-usd.emptied", "shop-usd.checked_out"]);
    assert_eq!(aggregate(&CartEvent::CheckedOut(PhantomData::<Usd>)).as_deref(), Some("cart"));
    assert_comes_back(&CartEvent::<Eur>::Emptied);
    assert_eq!(CartEvent::<Eur>::Emptied.meta().topic, "shop");
}

#[test]
fn the_name_of_a_generic_event_is_a_constant_of_each_instantiation() {
    assert_eq!(meta::<OrderPaid<Usd>>().event_type, "order.paid.usd");
    assert_eq!(meta::<OrderPaid<Eur>>().event_type, "order.paid.eur");
    assert_eq!(meta::<OrderPaid<Eur>>().aliases, ["paid-eur", "OrderPaid"]);
    let event = OrderPaid::<Usd> { order_id: 7, cents: 1999, currency: PhantomData };
    assert_eq!(aggregate(&event).as_deref(), Some("order-7"));
    assert_comes_back(&event);
}

const PREFIX: &str = "batch";

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "{PREFIX}:{N}.{<T as Currency>::CODE}", topic = "batches")]
struct BatchSent<T, const N: usize>
where
    T: Currency,
{
    id: u8,
    #[serde(skip)]
    currency: PhantomData<T>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
struct Wrapped<T: Display> {
    wrapped_id: T,
}

#[test]
fn parameters_of_every_kind_can_be_in_a_name() {
    let event = BatchSent::<Usd, 255> { id: 1, currency: PhantomData };
    assert_eq!(event.meta().event_type, "batch:255.usd");
    assert_eq!(meta::<BatchSent<Eur, { usize::MAX }>>().event_type, format!("batch:{}.eur", usize::MAX));
}

#[test]
fn without_a_type_all_instantiations_share_one() {
    assert_eq!(meta::<Wrapped<u8>>().event_type, "wrapped");
    assert_eq!(meta::<Wrapped<String>>(), meta::<Wrapped<u8>>());
    assert_comes_back(&Wrapped { wrapped_id: "x".to_owned() });
}

/// Borrowed and not `Send`: it can be published and not received.
#[derive(Serialize, OutboxEvent)]
struct NoteAdded<'a> {
    note_id: &'a str,
    text: Cow<'a, str>,
    #[serde(skip)]
    _local: Rc<u8>,
}

#[test]
fn an_event_that_borrows_can_be_published() {
    let event = NoteAdded { note_id: "n1", text: "hello".into(), _local: Rc::new(1) };
    assert_eq!(aggregate(&event).as_deref(), Some("n1"));
    assert_eq!(payload(&event), r#"{"note_id":"n1","text":"hello"}"#);
}

#[derive(Debug, PartialEq, OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Placed(OrderPlaced),
    Usd(OrderPaid<Usd>),
    Event(OrderEvent),
    Invoice(InvoiceSent),
}

#[derive(OutboxEvent)]
#[outbox(union)]
enum AnyNote<'a> {
    _Added(NoteAdded<'a>),
}

#[derive(Debug, PartialEq, OutboxEvent)]
#[outbox(union)]
enum Either<A, B>
where
    A: Debug,
{
    A(A),
    B(B),
}

#[test]
fn a_union_does_what_the_event_in_it_does() {
    let expected = [
        "order.placed",
        "order.paid.usd",
        "order.opened",
        "order.money_moved",
        "order.day_closed",
        "order.line_removed",
        "billing.invoice:sent-v2",
    ];
    assert_eq!(names::<AnyOrder>(), expected);
    assert_eq!(names::<Either<AnyOrder, Heartbeat>>().len(), expected.len() + 1);
    assert_eq!(names::<AnyNote<'_>>(), ["note.added"]);
    let union = AnyOrder::Invoice(invoice());
    assert_eq!(union.meta(), invoice().meta());
    assert_eq!(aggregate(&union), aggregate(&invoice()));
    assert_eq!(union.key(), invoice().key());
    assert_eq!(headers(&union), headers(&invoice()));
    assert_eq!(payload(&union), payload(&invoice()));
    for event in
        [union, AnyOrder::Placed(OrderPlaced { order_id: 1 }), AnyOrder::Event(OrderEvent::LineRemoved(4, 5))]
    {
        assert_comes_back(&event);
        assert_comes_back(&Either::<Heartbeat, AnyOrder>::B(event));
    }
}

#[test]
fn a_union_reads_by_aliases_and_knows_what_it_does_not_hold() {
    let codecs = Codecs::default();
    let by_alias = message("InvoiceSent", &payload(&invoice()));
    assert_eq!(AnyOrder::decode(&by_alias, &codecs).expect("an alias"), AnyOrder::Invoice(invoice()));
    let error = AnyOrder::decode(&message("heartbeat", "null"), &codecs).expect_err("not in the union");
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(error.to_string(), "`AnyOrder` holds no event of type `heartbeat`");
}

pub(crate) mod facade {
    pub(crate) use outbox as library;
}

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(crate = crate::event::facade::library, aggregate = none)]
struct ByPath;

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(crate = "facade::library", aggregate = none)]
struct ByText;

#[test]
fn the_library_is_found_under_another_path() {
    assert_eq!(meta::<ByPath>().event_type, "by.path");
    assert_eq!(meta::<ByText>().event_type, "by.text");
}
