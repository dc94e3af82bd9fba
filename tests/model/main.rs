//! What any sequence of steps comes to: a model foretells it that knows of keys and attempts, and of no tables, lanes, groups or
//! transactions.
//!
//! The steps are drawn at random, with a seed that a failure names, and a failure is made as short as it can be.
//!
//! ```text
//! OUTBOX_MODEL_SEED=7 OUTBOX_MODEL_CASES=500 cargo test -p outbox-tests --all-features --test model
//! ```

mod reference;
mod steps;
mod system;

use std::fmt::Write as _;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::reference::Reference;
use crate::steps::Step;
use crate::system::{Database, System};

/// Plays random sequences of steps on a database, so many unless the environment says otherwise.
fn play_many<DB: Database>(cases: u32) {
    fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
        let value = std::env::var(name).ok()?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
    }
    let server = <DB as outbox::testing::TestBackend>::SERVER.map(std::env::var);
    if let Some(Err(_)) = server {
        assert!(std::env::var_os("OUTBOX_REQUIRE_SERVERS").is_none(), "there is no server");
        eprintln!("SKIPPED: no server for {}", DB::NAME);
        return;
    }
    let server = server.and_then(Result::ok);
    let seed = setting("OUTBOX_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..));
    let cases = setting("OUTBOX_MODEL_CASES").unwrap_or(cases);
    // The handlers' panics are wanted, and there are many.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some(system::PANIC) {
            print(panic);
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads can be made");
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 100, ..Config::default() };
    let bytes: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(32).collect();
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let played = runner.run(&steps::sequence(), |steps| {
        let played = runtime.block_on(play::<DB>(server.as_deref(), &steps));
        played.map_err(TestCaseError::fail)
    });
    match played {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => {
            let mut text = String::new();
            for step in steps {
                let _ = write!(text, "\n  {step:?}");
            }
            panic!("OUTBOX_MODEL_SEED={seed} on {}: {why}\nsteps:{text}", DB::NAME)
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Plays one sequence. An error says after which step the database was not as the model says.
async fn play<DB: Database>(server: Option<&str>, steps: &[Step]) -> Result<(), String> {
    let system = System::<DB>::new(server).await;
    let mut reference = Reference::default();
    // At the end everything can be done.
    let end = [Step::Resume(0), Step::Resume(1), Step::Mend, Step::Requeue, Step::Run];
    for (number, step) in steps.iter().chain(&end).enumerate() {
        let taken = system.take(step, &mut reference).await;
        taken.map_err(|why| format!("step {number}, {step:?}: {why}"))?;
    }
    let mut hours = 0;
    while reference.unfinished() > 0 {
        hours += 1;
        for step in [Step::Wait, Step::Run] {
            let taken = system.take(&step, &mut reference).await;
            taken.map_err(|why| format!("{hours} hours after the last step: {why}"))?;
        }
    }
    Ok(())
}

#[test]
fn any_steps_come_to_what_the_model_says_on_sqlite() {
    play_many::<sqlx::Sqlite>(40);
}

#[cfg(feature = "postgres")]
#[test]
fn any_steps_come_to_what_the_model_says_on_postgres() {
    play_many::<sqlx::Postgres>(12);
}

#[cfg(feature = "mysql")]
#[test]
fn any_steps_come_to_what_the_model_says_on_mysql() {
    play_many::<sqlx::MySql>(12);
}
