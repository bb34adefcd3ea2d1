//! How many bytes of a stream may still be sent before the receiver must acknowledge some.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

use crate::closed::Closed;
use crate::error::{Error, Result};
use crate::params::{Params, wrong};

pub const DEFAULT: usize = 1 << 20;
const MIN: u64 = 64 << 10;
const MAX: u64 = 16 << 20;

/// One sender waits for it at a time.
#[derive(Debug)]
pub struct Window {
    left: AtomicUsize,
    size: usize,
    granted: Notify,
}

impl Window {
    pub fn new(size: usize) -> Self {
        Self {
            left: AtomicUsize::new(size),
            size,
            granted: Notify::new(),
        }
    }

    /// Waits until at least one byte may be sent; says how many.
    pub async fn room(&self, closed: &Closed) -> Result<usize> {
        loop {
            if closed.is_set() {
                return Err(Error::Gone);
            }
            let left = self.left.load(Relaxed);
            if left > 0 {
                return Ok(left);
            }
            tokio::select! {
                () = self.granted.notified() => {}
                () = closed.wait() => {}
            }
        }
    }

    pub fn spend(&self, count: usize) {
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_sub(count), Relaxed);
    }

    /// A host that acknowledges more than it got gains nothing.
    pub fn grant(&self, count: usize) {
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_add(count).min(self.size), Relaxed);
        self.granted.notify_one();
    }
}

/// The parameter `window` of a request.
pub fn requested(params: &Params) -> Result<usize> {
    match params.opt_u64("window")? {
        None => Ok(DEFAULT),
        Some(size) if (MIN..=MAX).contains(&size) => Ok(size as usize),
        Some(_) => Err(wrong("window", "must be 64 KiB to 16 MiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_window_waits_for_a_grant_and_never_exceeds_its_size() {
        let window = Window::new(10);
        let closed = Closed::default();
        assert_eq!(window.room(&closed).await.unwrap(), 10);
        window.spend(10);
        let (room, ()) = tokio::join!(window.room(&closed), async { window.grant(99) });
        assert_eq!(room.unwrap(), 10);
    }

    #[tokio::test]
    async fn the_end_of_the_session_ends_the_wait() {
        let window = Window::new(1);
        let closed = Closed::default();
        window.spend(1);
        let (room, ()) = tokio::join!(window.room(&closed), async { closed.set() });
        assert!(matches!(room, Err(Error::Gone)));
    }
}
