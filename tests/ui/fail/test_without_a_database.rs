#[outbox::test]
async fn publishes() {}

fn main() {}
