//! A process that consumes until it is killed, for the suites that kill it. Its argument is a `Plan` as JSON.

use std::io::Read as _;

use outbox_tests::worker::{self, Plan};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let plan = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("needs a plan as its argument"))?;
    let plan: Plan = serde_json::from_str(&plan)?;
    std::thread::spawn(|| {
        // Nobody writes: this ends when the test's process does.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    worker::run(plan).await
}
