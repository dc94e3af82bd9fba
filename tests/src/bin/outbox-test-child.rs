//! A process that does as it is ordered until it is done or killed. Its argument is `Orders` as JSON.

use std::io::Read as _;

use outbox_tests::child::{self, Orders};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let orders = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("needs its orders as an argument"))?;
    let orders: Orders = serde_json::from_str(&orders)?;
    std::thread::spawn(|| {
        // Nobody writes: this ends when the test's process does.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    child::run(orders).await
}
