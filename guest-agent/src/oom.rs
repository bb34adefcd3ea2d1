//! What the kernel ends when memory runs out: anything but the agent.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::log::note;

const PATH: &str = "/proc/self/oom_score_adj";
const NEVER: &[u8] = b"-1000";
const AS_ANY: &[u8] = b"0";

/// Of this process, which is protected. Opening it costs the kernel a name and an
/// inode in /proc, for each command if each child did it for itself.
static SCORE: OnceLock<Mutex<File>> = OnceLock::new();

/// Protects this process; what it starts is as any other.
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

/// A child takes the protection over, so there is none while one is made.
pub struct Lifted<'a>(MutexGuard<'a, File>);

/// `None` in a process that is not protected.
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
