use outbox::Outbox;

#[outbox::test]
async fn publishes<DB: outbox::Backend>(_: Outbox<DB>) {}

fn main() {}
