//! Work that ends as it should, whatever becomes of who waits for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

/// Runs like the future, and where this is dropped before it has ended, in a task of its own to its end.
///
/// For what must not stop half-way, as a `BEGIN` that was sent and not answered: the connection would go back to its pool
/// inside a transaction that nobody ends. A task from the start would cost each of them a wake-up of another thread.
pub(crate) struct Finish<R: Send + 'static>(Option<BoxFuture<'static, R>>);

impl<R: Send + 'static> Finish<R> {
    pub(crate) fn new(work: impl Future<Output = R> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<R: Send + 'static> Future for Finish<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let work = self.0.as_mut().expect("a future that has ended is not polled again");
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<R: Send + 'static> Drop for Finish<R> {
    fn drop(&mut self) {
        // Where the runtime is gone, so are its connections.
        if let (Some(work), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_is_dropped_goes_on_to_its_end() {
        let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (may, did) = (go.clone(), done.clone());
        let mut work = Finish::new(async move {
            may.notified().await;
            did.notify_one();
        });
        tokio::time::timeout(Duration::ZERO, &mut work).await.expect_err("it waits");
        drop(work);
        go.notify_one();
        done.notified().await;
    }

    #[tokio::test]
    async fn what_has_ended_is_not_begun_again() {
        assert_eq!(Finish::new(async { 7 }).await, 7);
    }
}
