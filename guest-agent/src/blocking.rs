//! File system calls may hang (a mounted share, a slow disk): they run on threads.

use crate::error::{Error, Result};

pub async fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Failed {
            what: "file thread",
            why: error.to_string(),
        }),
    }
}
