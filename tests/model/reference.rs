//! The model.

use std::collections::{BTreeMap, BTreeSet};

use outbox::StartFrom;

use crate::steps::{Does, Order, Step};

/// After so many failures a message is dead.
pub(crate) const ATTEMPTS: u8 = 3;

/// The consumers: the first publishes echoes, the second takes them too and goes on behind what is dead, the third comes later.
pub(crate) const CONSUMERS: [&str; 3] = ["first", "second", "third"];

/// What a run comes to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    pub(crate) retried: u64,
    pub(crate) dead: u64,
    pub(crate) remaining: u64,
}

/// Messages that are handled one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    Key(u8),
    Alone(String),
}

#[derive(Debug, Clone)]
struct Message {
    id: String,
    order: Order,
    /// Published by a handler.
    echo: bool,
    /// When it is due, in hours.
    due: u32,
    /// It is not stored any more.
    pruned: bool,
}

impl Message {
    fn line(&self) -> Line {
        match self.order.key {
            Some(key) if !self.order.delayed => Line::Key(key),
            _ => Line::Alone(self.id.clone()),
        }
    }
}

/// A message that a consumer has not done.
#[derive(Debug, Clone)]
struct Open {
    message: Message,
    failed: u8,
    dead: bool,
    due: u32,
}

#[derive(Debug, Default)]
struct Consumer {
    lines: BTreeMap<Line, Vec<Open>>,
    done: BTreeMap<Line, Vec<String>>,
    paused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    now: u32,
    /// By their names' places; the first two come with the first run.
    consumers: BTreeMap<usize, Consumer>,
    messages: Vec<Message>,
    mended: bool,
    published: usize,
}

impl Reference {
    /// Ids for the next orders.
    pub(crate) fn ids(&mut self, count: usize) -> Vec<String> {
        let from = self.published;
        self.published += count;
        (from..self.published).map(|number| format!("m-{number}")).collect()
    }

    pub(crate) fn publish(&mut self, id: String, order: Order) {
        let due = self.now + u32::from(order.delayed);
        self.store(Message { id, order, echo: false, due, pruned: false });
    }

    fn store(&mut self, message: Message) {
        for (number, consumer) in &mut self.consumers {
            if !message.echo || *number == 1 {
                consumer.add(message.clone());
            }
        }
        self.messages.push(message);
    }

    /// The consumers that run. What was published before anybody came is theirs.
    pub(crate) fn run(&mut self) -> Counts {
        if self.consumers.is_empty() {
            for number in 0..2 {
                self.join_as(number, &StartFrom::Beginning);
            }
        }
        let mut counts = Counts::default();
        let numbers: Vec<usize> = self.consumers.keys().copied().collect();
        for number in numbers {
            // What the first one publishes comes to the second in the same run.
            let echoes = self.handle(number, &mut counts);
            for echo in echoes {
                self.store(echo);
            }
        }
        counts.remaining = self.unfinished();
        counts
    }

    fn handle(&mut self, number: usize, counts: &mut Counts) -> Vec<Message> {
        let (now, mended, mut echoes) = (self.now, self.mended, Vec::new());
        let Some(consumer) = self.consumers.get_mut(&number).filter(|consumer| !consumer.paused) else {
            return echoes;
        };
        for (line, open) in &mut consumer.lines {
            let mut at = 0;
            while at < open.len() {
                let next = &mut open[at];
                if next.dead && number == 1 {
                    at += 1;
                    continue;
                }
                if next.dead || next.due > now {
                    break;
                }
                let fails = match next.message.order.does {
                    _ if next.message.echo => false,
                    Does::Succeed => false,
                    Does::Fail(times) => next.failed < times,
                    Does::Panic | Does::End => next.failed == 0,
                    Does::FailOn | Does::GiveUp => !mended,
                };
                if !fails {
                    counts.handled += 1;
                    let message = open.remove(at).message;
                    if number == 0 && message.order.echo {
                        let order =
                            Order { does: Does::Succeed, delayed: false, echo: false, ..message.order };
                        let id = format!("{}-echo", message.id);
                        echoes.push(Message { id, order, echo: true, due: now, pruned: false });
                    }
                    consumer.done.entry(line.clone()).or_default().push(message.id);
                    continue;
                }
                next.failed += 1;
                next.due = now + 1;
                next.dead = next.failed == ATTEMPTS || next.message.order.does == Does::GiveUp;
                counts.dead += u64::from(next.dead);
                counts.retried += u64::from(!next.dead);
            }
        }
        echoes
    }

    pub(crate) fn join(&mut self, from: &StartFrom) {
        if !self.consumers.contains_key(&2) && !self.consumers.is_empty() {
            self.join_as(2, from);
        }
    }

    /// Whether no consumer has come yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Whether the third consumer is there.
    pub(crate) fn has_third(&self) -> bool {
        self.consumers.contains_key(&2)
    }

    fn join_as(&mut self, number: usize, from: &StartFrom) {
        let mut consumer = Consumer::default();
        if *from == StartFrom::Beginning {
            for message in self.messages.iter().filter(|message| !message.echo && !message.pruned) {
                consumer.add(message.clone());
            }
        }
        self.consumers.insert(number, consumer);
    }

    /// What happens without a handler.
    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::Wait => self.now += 1,
            Step::Mend => self.mended = true,
            Step::Prune if !self.consumers.is_empty() => {
                let lines = self.consumers.values().flat_map(|consumer| consumer.lines.values());
                let open: BTreeSet<&str> = lines.flatten().map(|open| open.message.id.as_str()).collect();
                for message in &mut self.messages {
                    message.pruned |= !open.contains(message.id.as_str());
                }
            }
            Step::Pause(number) | Step::Resume(number) => {
                if let Some(consumer) = self.consumers.get_mut(&usize::from(*number)) {
                    consumer.paused = matches!(step, Step::Pause(_));
                }
            }
            Step::Requeue => {
                for (number, id) in self.dead() {
                    self.change_one(number, &id, true);
                }
            }
            _ => {}
        }
    }

    /// Requeues or discards one of the dead.
    pub(crate) fn change_one(&mut self, number: usize, id: &str, requeue: bool) {
        let Some(consumer) = self.consumers.get_mut(&number) else { return };
        for open in consumer.lines.values_mut() {
            let Some(at) = open.iter().position(|open| open.dead && open.message.id == id) else { continue };
            if !requeue {
                open.remove(at);
                continue;
            }
            (open[at].dead, open[at].failed) = (false, 0);
            // What stands behind it waits for it, and then for nothing else.
            open[at..].iter_mut().for_each(|open| open.due = self.now);
        }
    }

    /// The dead, as the database must have them.
    pub(crate) fn dead(&self) -> BTreeSet<(usize, String)> {
        let of = |(number, consumer): (&usize, &Consumer)| {
            let dead = consumer.lines.values().flatten().filter(|open| open.dead);
            let number = *number;
            dead.map(move |open| (number, open.message.id.clone())).collect::<Vec<_>>()
        };
        self.consumers.iter().flat_map(of).collect()
    }

    /// What each consumer has done, in the order of its lines.
    pub(crate) fn done(&self) -> BTreeMap<(usize, Line), Vec<String>> {
        let of = |(number, consumer): (&usize, &Consumer)| {
            let number = *number;
            let done = consumer.done.iter();
            done.map(move |(line, ids)| ((number, line.clone()), ids.clone())).collect::<Vec<_>>()
        };
        self.consumers.iter().flat_map(of).collect()
    }

    /// The line of a message.
    pub(crate) fn line(&self, id: &str) -> Option<Line> {
        self.messages.iter().find(|message| message.id == id).map(Message::line)
    }

    /// What is stored.
    pub(crate) fn stored(&self) -> BTreeSet<String> {
        let stored = self.messages.iter().filter(|message| !message.pruned);
        stored.map(|message| message.id.clone()).collect()
    }

    pub(crate) fn unfinished(&self) -> u64 {
        let open = self.consumers.values().flat_map(|consumer| consumer.lines.values());
        open.map(|open| open.len() as u64).sum()
    }
}

impl Consumer {
    fn add(&mut self, message: Message) {
        let open = Open { due: message.due, message, failed: 0, dead: false };
        self.lines.entry(open.message.line()).or_default().push(open);
    }
}
