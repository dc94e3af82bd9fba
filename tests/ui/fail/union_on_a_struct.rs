use outbox::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(union)]
struct AnyOrder {
    order_id: u64,
}

fn main() {}
