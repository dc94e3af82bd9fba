//! The signals that end a run.

use crate::error::{Error, ErrorKind, Result};

/// SIGTERM and SIGINT (Ctrl-C).
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listening begins here, so that a signal during the start is not lost.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(
                |cause| {
                    Error::new(ErrorKind::Config, "cannot listen for signals; use `run_until` instead")
                        .with_source(cause)
                },
            )?,
        })
    }

    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = tokio::signal::ctrl_c() => (),
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
