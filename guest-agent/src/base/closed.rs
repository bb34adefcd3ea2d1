//! A flag that tells the end of a session or of a connection, and can be awaited.

use std::sync::Arc;

use tokio::sync::watch;

/// All clones are the same flag. It starts unset and is never unset again.
#[derive(Clone, Debug)]
pub struct Closed(Arc<watch::Sender<bool>>);

impl Default for Closed {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Closed {
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Tells whether both are the same flag.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits until the flag is set.
    pub async fn wait(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as `self`, so only the flag ends the wait.
        let _ = receiver.wait_for(|closed| *closed).await;
    }
}
