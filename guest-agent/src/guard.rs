//! A process that thaws the root when an agent that froze it was killed.
//!
//! The kernel would not thaw it; and a thread of the agent that waits to write
//! would keep the agent from ending, and so from being started again.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::log::note;
use crate::{disk, oom, spawn, sys};

/// It is not needed any more when this is dropped.
#[derive(Debug)]
pub struct Guard(libc::pid_t);

impl Guard {
    /// Like the server itself, it needs no file to run.
    pub fn start(thaws_after: Duration) -> io::Result<Self> {
        let argv = ["@quicksand-thaw", "thaw", &thaws_after.as_millis().to_string()];
        spawn::spawn_detached("/proc/self/exe", &argv, &[]).map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = sys::kill(self.0, libc::SIGKILL);
        spawn::wait(self.0);
    }
}

/// All that the process does.
pub fn run(after_ms: &str) {
    oom::protect();
    sys::set_process_name(c"quicksand-thaw");
    thread::sleep(Duration::from_millis(after_ms.parse().unwrap_or(0)));
    if disk::thaw_left_frozen(Path::new("/")) {
        note("the agent left the root frozen: thawed");
    }
}
