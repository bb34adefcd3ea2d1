//! Protects the agent from being killed when memory runs out, but nothing else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::log::note;

const PATH: &str = "/proc/self/oom_score_adj";
const NEVER: &[u8] = b"-1000";
const AS_ANY: &[u8] = b"0";

/// This process's score, if the process is protected. It stays open, because opening it costs the
/// kernel a name and an inode in /proc, and each child would pay for that again.
static SCORE: OnceLock<Mutex<File>> = OnceLock::new();

/// Protects this process. Children are not protected.
pub fn protect() {
    let result = OpenOptions::new().write(true).open(PATH).and_then(|file| {
        file.write_all_at(NEVER, 0)?;
        Ok(file)
    });
    match result {
        Ok(file) => {
            let _ = SCORE.set(Mutex::new(file));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => note(&format!("{PATH}: {error}")),
    }
}

/// While this exists, the process is not protected. A child inherits the protection, so it is
/// lifted while a child is made.
pub struct Lifted<'a>(MutexGuard<'a, File>);

/// Lifts the protection until the result is dropped. Returns `None` in a process that is not
/// protected.
pub fn lift() -> io::Result<Option<Lifted<'static>>> {
    let Some(score) = SCORE.get() else {
        return Ok(None);
    };
    let file = score.lock().unwrap_or_else(PoisonError::into_inner);
    file.write_all_at(AS_ANY, 0)?;
    Ok(Some(Lifted(file)))
}

impl Drop for Lifted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.write_all_at(NEVER, 0) {
            note(&format!("{PATH}: {error}"));
        }
    }
}
