//! Listening for other processes' commits. Where nothing can be heard, polling brings what they publish.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Engine, unpanicked};

/// After a reason to look, how long the next ones are gathered: many processes that publish make one look.
const GATHER: Duration = Duration::from_millis(5);

/// How long it may be silent until it is found out whether there is nothing to hear or nobody who hears.
const SILENCE: Duration = Duration::from_mins(1);

/// How long a word of our own may take to come back.
const ANSWER: Duration = Duration::from_secs(5);

/// The first pause before listening anew; it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_mins(1));

impl<DB: Backend> Engine<DB> {
    /// Rings whenever another process has said that there may be work, and whenever something may have been missed.
    pub(crate) async fn listen(self: Arc<Self>) {
        let mut troubles = Troubles { pause: PAUSES.0, heard: false, said: false };
        while let Some(Err(error)) =
            self.dispatch.stop.run_until_cancelled(unpanicked(self.attend(&mut troubles))).await
        {
            // A connection that had heard is a loss, and most likely the next one hears.
            if !std::mem::take(&mut troubles.heard) && !troubles.said {
                troubles.said = true;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(
                    error = %error,
                    cause,
                    poll = ?self.dispatch.config.poll_interval,
                    "cannot hear other processes: what they publish is found by polling. Behind a pooler set \
                     `listen_url` to the server itself; `notify: false` gives it up"
                );
            } else {
                tracing::debug!(error = %error, "does not hear other processes, and tries again");
            }
            let pause = troubles.pause.mul_f64(0.5 + 0.5 * fastrand::f64());
            troubles.pause = (troubles.pause * 2).min(PAUSES.1);
            self.dispatch.stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Listens on one connection as long as it hears. `Ok` where there is no means to.
    async fn attend(&self, troubles: &mut Troubles) -> Result<()> {
        let outbox = &self.dispatch.outbox;
        let Some(pool) = self.dispatch.connections.listener(outbox) else { return Ok(()) };
        let failed = |error| Error::database(DB::kind(&error), "listen for other processes", error);
        let listening = DB::listen(&pool, outbox.sql(), &outbox.config().tables).await;
        let Some(mut ear) = listening.map_err(failed)? else { return Ok(()) };
        // For what was committed while nobody listened.
        outbox.wake().ring();
        let mut asked = DB::TELLS;
        if asked {
            self.test_ears().await?;
        } else {
            troubles.over();
        }
        loop {
            let patience = if asked { ANSWER } else { SILENCE };
            match timeout(patience, DB::hear(&mut ear)).await {
                Ok(heard) => {
                    let look = heard.map_err(failed)?;
                    asked = false;
                    troubles.over();
                    if look {
                        outbox.wake().ring();
                        tokio::time::sleep(GATHER).await;
                        let mut more = false;
                        while let Some(heard) = DB::hear(&mut ear).now_or_never() {
                            more |= heard.map_err(failed)?;
                        }
                        if more {
                            outbox.wake().ring();
                        }
                    }
                }
                Err(_) if !DB::TELLS => {}
                Err(_) if asked => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "what is said to those who listen does not reach this process",
                    ));
                }
                Err(_) => {
                    self.test_ears().await?;
                    asked = true;
                }
            }
        }
    }

    /// On another connection: a pooler may have taken the one that listens for its own while it speaks.
    async fn test_ears(&self) -> Result<()> {
        let outbox = &self.dispatch.outbox;
        let mut session = self.dispatch.connections.reserve().await?;
        let said = async {
            session.enter(outbox.sql()).await?;
            DB::test_ears(&mut session, outbox.sql(), &outbox.config().tables).await?;
            session.leave().await
        };
        said.await.map_err(|error| Error::database(DB::kind(&error), "listen for other processes", error))
    }
}

/// What has gone wrong since it was last heard.
struct Troubles {
    pause: Duration,
    heard: bool,
    said: bool,
}

impl Troubles {
    fn over(&mut self) {
        if std::mem::take(&mut self.said) {
            tracing::info!("hears other processes again");
        }
        self.pause = PAUSES.0;
        self.heard = true;
    }
}
