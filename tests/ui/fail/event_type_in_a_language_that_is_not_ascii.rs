use outbox::OutboxEvent;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct BestellungGeändert {
    bestellung_id: u64,
}

fn main() {}
