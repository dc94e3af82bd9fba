use outbox::OutboxEvent;

#[derive(OutboxEvent)]
#[outbox(union)]
enum AnyOrder {}

fn main() {}
