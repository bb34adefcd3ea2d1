//! A lock that also opens after a thread has panicked while it held it. The agent's own program does
//! not go on after a panic, so only tests can see that.

use std::sync::{self, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
