//! `#[derive(OutboxEvent)]` on every shape of a type: what is kept private or inside a function, raw names, serde's
//! ways to write an enum, parameters of every kind, borrowed fields, lists of objects.

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::rc::Rc;

use outbox::codec::{Codecs, Json};
use outbox::{DecodeEvent, DynEvent, ErrorKind, OutboxEvent, Published};
use outbox_tests::TestDatabase;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::Sqlite;

use crate::event::{aggregate, assert_comes_back, message, meta, names, payload};
use crate::{Currency, Eur, Usd};

mod private {
    use super::{Deserialize, OutboxEvent, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
    pub(super) struct ParcelLost {
        parcel_id: u8,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
    struct ParcelFound {
        parcel_id: u8,
    }

    #[expect(private_interfaces, reason = "the derive must live with it")]
    #[derive(Debug, PartialEq, OutboxEvent)]
    #[outbox(union)]
    pub(super) enum Any {
        Lost(ParcelLost),
        Found(Found),
    }

    /// A name that leads to a private type.
    type Found = ParcelFound;

    pub(super) fn both() -> [Any; 2] {
        [Any::Lost(ParcelLost { parcel_id: 1 }), Any::Found(Found { parcel_id: 2 })]
    }
}

#[test]
fn events_may_be_private_or_stand_in_a_function() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
    #[outbox(version = 2, upcast(1 => Old))]
    struct SaidHere {
        word_id: u8,
    }

    #[derive(Deserialize)]
    struct Old(u8);

    impl From<Old> for SaidHere {
        fn from(old: Old) -> Self {
            Self { word_id: old.0 }
        }
    }

    assert_comes_back(&SaidHere { word_id: 1 });
    private::both().iter().for_each(assert_comes_back);
    assert_eq!(meta::<private::ParcelLost>().rust_type, concat!(module_path!(), "::private::ParcelLost"));
    let known = outbox::event_types();
    for name in ["said.here", "parcel.lost", "parcel.found"] {
        assert_eq!(known.iter().filter(|meta| meta.event_type == name).count(), 1, "{name}");
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "raw.struct", aggregate = "{r#type}.{fn}")]
#[expect(non_camel_case_types, reason = "a raw name is the point")]
struct r#struct {
    r#type: u8,
    r#fn: u8,
    #[outbox(header)]
    r#match: u8,
    #[outbox(key)]
    r#use: u8,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(aggregate = none)]
#[expect(non_camel_case_types, reason = "a raw name is the point")]
enum RawNames {
    r#final,
    r#Try { r#id: u8 },
}

#[test]
fn raw_names_are_written_without_their_mark() {
    let event = r#struct { r#type: 1, r#fn: 2, r#match: 3, r#use: 4 };
    assert_eq!(aggregate(&event).as_deref(), Some("1.2"));
    assert_eq!(event.key().as_deref(), Some("4"));
    assert_eq!(crate::event::headers(&event), [("match".to_owned(), "3".to_owned())]);
    assert_eq!(meta::<r#struct>().rust_type, concat!(module_path!(), "::struct"));
    assert_comes_back(&event);
    assert_eq!(names::<RawNames>(), ["raw.final", "raw.try"]);
    assert_eq!(RawNames::r#final.meta().rust_type, concat!(module_path!(), "::RawNames::final"));
    assert_comes_back(&RawNames::r#Try { r#id: 1 });
}

/// The same enum in each of serde's forms. What serde renames is renamed in the payload only.
macro_rules! forms {
    ($($name:ident $type:literal ($($serde:tt)*) => $opened:literal $closed:literal;)*) => {$(
        #[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
        #[serde(rename_all = "kebab-case", $($serde)*)]
        #[outbox(type = $type)]
        enum $name {
            DoorOpened {
                #[serde(rename = "door")]
                door_id: u8,
            },
            #[serde(rename = "shut")]
            #[outbox(type = "door.shut_for_good", aggregate = "door-{door_id}")]
            DoorClosed { door_id: u8, by: String },
        }
    )*

        #[test]
        fn the_payload_of_an_enum_is_what_serde_makes_of_it() {$(
            let opened = $name::DoorOpened { door_id: 1 };
            assert_eq!(payload(&opened), $opened);
            assert_eq!(opened.meta().event_type, concat!($type, ".door_opened"));
            assert_eq!(aggregate(&opened).as_deref(), Some("1"));
            assert_comes_back(&opened);
            let closed = $name::DoorClosed { door_id: 2, by: "wind".to_owned() };
            assert_eq!(payload(&closed), $closed);
            assert_eq!(closed.meta().event_type, "door.shut_for_good");
            assert_eq!(aggregate(&closed).as_deref(), Some("door-2"));
            assert_comes_back(&closed);
        )*}
    };
}

forms! {
    External "external" () =>
        r#"{"door-opened":{"door":1}}"# r#"{"shut":{"door_id":2,"by":"wind"}}"#;
    Internal "internal" (tag = "kind") =>
        r#"{"kind":"door-opened","door":1}"# r#"{"kind":"shut","door_id":2,"by":"wind"}"#;
    Adjacent "adjacent" (tag = "t", content = "c") =>
        r#"{"t":"door-opened","c":{"door":1}}"# r#"{"t":"shut","c":{"door_id":2,"by":"wind"}}"#;
    Untagged "untagged" (untagged) =>
        r#"{"door":1}"# r#"{"door_id":2,"by":"wind"}"#;
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[serde(untagged)]
enum LampEvent {
    Lit { lamp_id: u8 },
    PutOut { lamp_id: u8 },
}

#[test]
fn a_payload_that_is_read_as_another_variant_is_refused() {
    let event = LampEvent::PutOut { lamp_id: 1 };
    let error = LampEvent::decode(&message("lamp.put_out", &payload(&event)), &Codecs::default());
    let error = error.expect_err("it would have been lit");
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(
        error.to_string().contains("of type `lamp.put_out`") && error.to_string().contains("LampEvent::Lit"),
        "{error}"
    );
}

#[test]
fn an_event_is_not_read_from_a_message_of_another_type() {
    let error = LampEvent::decode(&message("door.opened", r#"{"lamp_id":1}"#), &Codecs::default());
    let error = error.expect_err("no lamp");
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().ends_with("LampEvent` is no event of type `door.opened`"), "{error}");
}

#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "of.{A}.{B}.{C}.{D}.{Self::WORD}", aggregate = none)]
struct OfEverything<const A: i64, const B: bool, const C: char, const D: u8>;

impl<const A: i64, const B: bool, const C: char, const D: u8> OfEverything<A, B, C, D> {
    const WORD: &'static str = if B { "yes" } else { "no" };
}

#[test]
fn const_parameters_of_every_type_can_be_in_a_name() {
    assert_eq!(
        meta::<OfEverything<{ i64::MIN }, true, 'x', 0>>().event_type,
        "of.-9223372036854775808.true.x.0.yes"
    );
    assert_eq!(meta::<OfEverything<7, false, '-', 255>>().event_type, "of.7.false.-.255.no");
    assert_comes_back(&OfEverything::<-1, true, '_', 10>);
}

/// A default, an array's length, a bound that is no trait of ours, and a where-clause on another type.
#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[serde(bound = "")]
#[outbox(type = "samples.{N}.{C::CODE}", aggregate = "{device}-{first.0}")]
struct Samples<T = u32, C = Usd, const N: usize = 2>
where
    T: Display + Debug + Clone + Serialize + DeserializeOwned + Send + 'static,
    C: Currency,
    [T; N]: Serialize + DeserializeOwned,
    Vec<T>: Clone,
{
    device: T,
    first: (T, T),
    all: [T; N],
    #[serde(skip)]
    currency: PhantomData<C>,
}

#[derive(Debug, PartialEq, OutboxEvent)]
#[outbox(union)]
enum Both<C: Currency, const N: usize, E>
where
    [u32; N]: Serialize + DeserializeOwned,
{
    Samples(Samples<u32, C, N>),
    Other(E),
}

#[test]
fn bounds_defaults_and_unions_of_generic_events_are_kept() {
    let samples = Samples::<u32> { device: 1, first: (2, 3), all: [4, 5], currency: PhantomData };
    assert_eq!(samples.meta().event_type, "samples.2.usd");
    assert_eq!(aggregate(&samples).as_deref(), Some("1-2"));
    assert_comes_back(&samples);
    assert_eq!(names::<Both<Eur, 3, LampEvent>>(), ["samples.3.eur", "lamp.lit", "lamp.put_out"]);
    assert_comes_back(&Both::<Usd, 2, LampEvent>::Samples(samples));
}

/// It can be published borrowed and received where it owns everything.
#[derive(Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "text.typed", aggregate = "{text_id}")]
struct TextTyped<'a, 'b: 'a> {
    text_id: Cow<'a, str>,
    #[outbox(header)]
    by: Option<Cow<'b, str>>,
}

/// The same on the wire; this one only borrows.
#[derive(Serialize, OutboxEvent)]
#[outbox(type = "text.typed")]
struct Typed<'a> {
    text_id: &'a str,
    by: Option<&'a str>,
    #[serde(skip)]
    _not_send: PhantomData<Rc<u8>>,
}

#[test]
fn what_is_published_borrowed_is_received_owned() {
    let text = "t1".to_owned();
    let borrowed = Typed { text_id: &text, by: None, _not_send: PhantomData };
    let stored = message(borrowed.meta().event_type, &payload(&borrowed));
    let owned = TextTyped::<'static, 'static>::decode(&stored, &Codecs::default()).expect("reads");
    assert_eq!(owned, TextTyped { text_id: Cow::Borrowed(&text), by: None });
    assert_comes_back(&TextTyped { text_id: Cow::Owned(text), by: Some("me".into()) });
}

#[tokio::test]
async fn events_of_different_types_are_published_as_one_list() {
    let Some(database) = TestDatabase::<Sqlite>::migrated().await else { return };
    let outbox = database.outbox();
    let mut tx = outbox.begin().await.expect("begun");
    let word = "w".to_owned();
    let typed = Typed { text_id: &word, by: Some("me"), _not_send: PhantomData };
    let on = LampEvent::Lit { lamp_id: 1 };
    let list: [&dyn DynEvent; 2] = [&typed, &on];
    let published = outbox.publish_events(&mut tx, list).await.expect("published");
    assert!(matches!(published[..], [Published::Buffered(_), Published::Buffered(_)]), "{published:?}");
    let boxed: Vec<Box<dyn DynEvent + Send>> =
        vec![Box::new(LampEvent::PutOut { lamp_id: 2 }), Box::new(RawNames::r#final)];
    outbox.publish_events(&mut tx, boxed).await.expect("published");
    outbox.publish_event(&mut tx, Box::new(LampEvent::Lit { lamp_id: 3 })).await.expect("published");
    tx.commit().await.expect("committed");
    let sql = "select event_type || ' ' || coalesce(aggregate_id, '-') || ' ' || payload from outbox_message order by seq";
    assert_eq!(
        database.texts(sql).await,
        [
            r#"text.typed w {"text_id":"w","by":"me"}"#,
            r#"lamp.lit 1 {"lamp_id":1}"#,
            r#"lamp.put_out 2 {"lamp_id":2}"#,
            r#"raw.final - "final""#,
            r#"lamp.lit 3 {"lamp_id":3}"#,
        ]
    );
    let object: &dyn DynEvent = &on;
    assert_eq!(object.dyn_meta(), on.meta());
    assert_eq!(OutboxEvent::encode(&object, &Json).expect("can be written"), payload(&on).into_bytes());
}
