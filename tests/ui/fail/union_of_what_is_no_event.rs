use outbox::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Paid(u64),
}

fn main() {}
