//! What can happen.

use outbox::StartFrom;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

/// One step. Each makes sense after any other.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Orders are published in one transaction.
    Publish(Vec<Order>),
    /// Orders are published, and their transaction is rolled back.
    TakeBack(Vec<Order>),
    /// The consumers run until nothing is due.
    Run,
    /// The consumers run, and are gone in the middle of so manieth call; others run until nothing is due.
    Die(u8),
    /// An hour goes by.
    Wait,
    /// Everything that is dead is tried again.
    Requeue,
    /// One of the dead is tried again.
    RequeueOne(u8),
    /// One of the dead is given up.
    Discard(u8),
    /// Whatever made orders fail for good is mended.
    Mend,
    /// A consumer is paused.
    Pause(u8),
    /// A consumer goes on.
    Resume(u8),
    /// Messages that all are done with are removed.
    Prune,
    /// The third consumer comes, and starts there.
    Join(StartFrom),
}

/// An order, and what its handlers do.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) key: Option<u8>,
    pub(crate) does: Does,
    /// It is to be delivered after an hour, and out of its key's order.
    pub(crate) delayed: bool,
    /// The first consumer publishes an echo of its key. Not for a delayed one: it is in no order with others of its key, and so
    /// neither would its echo be.
    pub(crate) echo: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Does {
    /// Succeeds.
    Succeed,
    /// Fails so many times.
    Fail(u8),
    /// Panics once.
    Panic,
    /// Ends the transaction that it runs in, once.
    End,
    /// Fails until it is mended.
    FailOn,
    /// Fails for good, until it is mended.
    GiveUp,
}

pub(crate) fn sequence() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..24)
}

fn step() -> impl Strategy<Value = Step> {
    let orders = || vec(order(), 1..6);
    prop_oneof![
        8 => orders().prop_map(Step::Publish),
        1 => orders().prop_map(Step::TakeBack),
        8 => Just(Step::Run),
        2 => (1..8_u8).prop_map(Step::Die),
        4 => Just(Step::Wait),
        1 => Just(Step::Requeue),
        2 => any::<u8>().prop_map(Step::RequeueOne),
        1 => any::<u8>().prop_map(Step::Discard),
        1 => Just(Step::Mend),
        2 => Just(Step::Prune),
        1 => (0..2_u8).prop_map(Step::Pause),
        1 => (0..2_u8).prop_map(Step::Resume),
        1 => prop_oneof![Just(StartFrom::Unrouted), Just(StartFrom::Beginning), Just(StartFrom::Now)].prop_map(Step::Join),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let does = prop_oneof![
        6 => Just(Does::Succeed),
        2 => (1..3_u8).prop_map(Does::Fail),
        1 => Just(Does::Panic),
        1 => Just(Does::End),
        1 => Just(Does::FailOn),
        1 => Just(Does::GiveUp),
    ];
    let delayed = prop_oneof![7 => Just(false), 1 => Just(true)];
    (option::weighted(0.8, 0..3_u8), does, delayed, any::<bool>())
        .prop_map(|(key, does, delayed, echo)| Order { key, does, delayed, echo: echo && !delayed })
}
