//! Protects the agent from being killed when memory runs out, but nothing else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::log::note;
use super::mutex::Mutex;

const PATH: &str = "/proc/self/oom_score_adj";
const NEVER: &[u8] = b"-1000";
const AS_ANY: &[u8] = b"0";

/// This process's protection, if it has one.
static PROTECTION: OnceLock<Protection> = OnceLock::new();

/// Protects this process. Children are not protected.
pub fn protect() {
    let result = OpenOptions::new().write(true).open(PATH).and_then(Protection::new);
    match result {
        Ok(protection) => {
            let _ = PROTECTION.set(protection);
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => note(&format!("{PATH}: {error}")),
    }
}

/// Lifts the protection until the result is dropped. Returns `None` in a process that is not
/// protected.
pub fn lift() -> io::Result<Option<Lifted<'static>>> {
    PROTECTION.get().map(Protection::lift).transpose()
}

struct Protection {
    /// The process's score. It stays open, because opening it costs the kernel a name and an inode
    /// in /proc, and each child would pay for that again.
    score: File,
    /// How many children are being made. The lock is held for a write only, never while a child is
    /// made: a user may stop that one before it execs, and the others must not wait for it.
    lifts: Mutex<usize>,
}

impl Protection {
    fn new(score: File) -> io::Result<Self> {
        score.write_all_at(NEVER, 0)?;
        Ok(Self {
            score,
            lifts: Mutex::new(0),
        })
    }

    fn lift(&self) -> io::Result<Lifted<'_>> {
        let mut lifts = self.lifts.lock();
        if *lifts == 0 {
            self.score.write_all_at(AS_ANY, 0)?;
        }
        *lifts += 1;
        Ok(Lifted(self))
    }
}

/// While this exists, the process is not protected. A child inherits the protection, so it is
/// lifted while a child is made.
pub struct Lifted<'a>(&'a Protection);

impl Drop for Lifted<'_> {
    fn drop(&mut self) {
        let mut lifts = self.0.lifts.lock();
        *lifts -= 1;
        if *lifts == 0
            && let Err(error) = self.0.score.write_all_at(NEVER, 0)
        {
            note(&format!("{PATH}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    #[test]
    fn a_child_that_is_held_up_holds_up_no_other_and_the_last_one_ends_the_lift() {
        // SAFETY: the result is checked, and the descriptor is new.
        let score = unsafe {
            let fd = libc::memfd_create(c"score".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        let protection = Protection::new(score).unwrap();
        let read = || {
            let mut text = [0; 5];
            protection.score.read_exact_at(&mut text, 0).unwrap();
            text
        };
        assert_eq!(read(), *NEVER);

        let held_up = protection.lift().unwrap();
        let next = protection.lift().unwrap();
        assert!(read().starts_with(AS_ANY));
        drop(next);
        assert!(read().starts_with(AS_ANY));
        drop(held_up);
        assert_eq!(read(), *NEVER);
    }
}
