//! Runs file system calls on threads, because they may hang: on a mounted share, a slow disk or a
//! frozen root.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::thread::{self, ThreadId};

use tokio::runtime::Handle;

use super::error::{Error, Result};

/// Runs `work` on a thread that may block. Fails as `work` does, and with `Failed` when it panics.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| Error::failed("file thread", error))?
}

/// An open file of a request. A request that is broken off drops its file on the runtime's thread,
/// which must not hang. So another thread cleans up and closes the file.
#[derive(Debug)]
pub struct OffRuntime<T: Send + 'static> {
    value: ManuallyDrop<T>,
    runtime: ThreadId,
}

impl<T: Send + 'static> OffRuntime<T> {
    /// Must be called on the runtime's thread.
    pub fn new(value: T) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            runtime: thread::current().id(),
        }
    }
}

impl<T: Send + 'static> Drop for OffRuntime<T> {
    fn drop(&mut self) {
        // SAFETY: this is the end of `self`, so nothing uses the value after it.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        match Handle::try_current() {
            Ok(runtime) if thread::current().id() == self.runtime => {
                runtime.spawn_blocking(move || drop(value));
            }
            _ => drop(value),
        }
    }
}

impl<T: Send + 'static> Deref for OffRuntime<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + 'static> DerefMut for OffRuntime<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Tell(mpsc::Sender<ThreadId>);

    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[tokio::test]
    async fn a_file_is_closed_by_another_thread_than_the_runtimes() {
        let (sender, receiver) = mpsc::channel();
        let here = thread::current().id();
        drop(OffRuntime::new(Tell(sender.clone())));
        let dropped_here = run(move || Ok(receiver.recv().unwrap() == here)).await.unwrap();
        assert!(!dropped_here);
        let (sender, receiver) = mpsc::channel();
        let file = OffRuntime::new(Tell(sender));
        let is_there = move || {
            drop(file);
            Ok(receiver.try_recv() == Ok(thread::current().id()))
        };
        assert!(run(is_there).await.unwrap());
    }
}
