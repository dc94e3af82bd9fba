use outbox::OutboxEvent;

#[derive(OutboxEvent)]
union OrderPaid {
    order_id: u64,
}

fn main() {}
