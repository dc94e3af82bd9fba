//! What is logged while a test runs.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::util::SubscriberInitExt as _;

/// What the thread logs that made it, one line an event.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Keeps what this thread logs until the second value is dropped.
    #[must_use]
    pub fn capture() -> (Self, impl Sized) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        (log, subscriber.finish().set_default())
    }

    /// The library's lines that contain the text.
    #[must_use]
    pub fn lines(&self, containing: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = String::from_utf8_lossy(&bytes);
        let lines = lines.lines().filter(|line| line.contains("outbox") && line.contains(containing));
        lines.map(ToOwned::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
