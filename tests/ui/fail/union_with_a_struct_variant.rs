use outbox::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Paid { order_id: u64 },
}

fn main() {}
