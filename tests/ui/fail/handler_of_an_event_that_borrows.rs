use outbox::{OutboxEvent, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
struct NoteAdded<'a> {
    note_id: &'a str,
}

#[outbox_handler]
async fn note(_: NoteAdded<'static>) {}

fn main() {}
