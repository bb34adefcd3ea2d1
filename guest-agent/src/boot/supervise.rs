//! Keeps a server running: as process 1, or as a small process beside the init of a distribution.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use libc::pid_t;

use crate::base::log::note;
use crate::base::{oom, spawn, sys};
use crate::machine::boot_times::BootTimes;
use crate::machine::shutdown::{self, Mode};

/// systemd ends processes whose name starts with `@` last.
const SERVER_NAME: &str = "@quicksand-agent";
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Starts the server as a process of its own. Returns `None` when that fails.
pub fn start_server(boot: BootTimes) -> Option<pid_t> {
    start("server", boot)
}

/// Starts the process that starts the server. Returns `None` when that fails.
pub fn start_supervisor(boot: BootTimes) -> Option<pid_t> {
    start("supervise", boot)
}

/// Starts the agent's own program in a role. It runs from its own image, so the file need not exist
/// any more.
fn start(role: &str, boot: BootTimes) -> Option<pid_t> {
    let argv = [SERVER_NAME, role, &boot.to_arg()];
    spawn::spawn_detached("/proc/self/exe", &argv, &[])
        .map_err(|error| note(&format!("{role}: {error}")))
        .ok()
}

/// Runs as process 1 without a distribution: reaps processes, restarts the server, and obeys the
/// signals that `poweroff` and `reboot` send.
pub fn run_as_init(mut server: Option<pid_t>, boot: BootTimes) -> ! {
    let signals = block_signals(&[
        libc::SIGCHLD,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGPWR,
    ]);
    loop {
        server = keep(server, "server", boot);
        match wait_signal(&signals) {
            libc::SIGTERM | libc::SIGINT => shutdown::finish(Mode::Reboot, shutdown::DEFAULT_GRACE),
            libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGPWR => shutdown::finish(Mode::PowerOff, shutdown::DEFAULT_GRACE),
            _ => {}
        }
    }
}

/// Runs between the init of a distribution and the server.
pub fn run_beside_init(boot: BootTimes) -> ! {
    oom::protect();
    sys::set_process_name(c"quicksand-agent");
    let signals = block_signals(&[libc::SIGCHLD]);
    let mut server = start_server(boot);
    loop {
        server = keep(server, "server", boot);
        wait_signal(&signals);
    }
}

/// Runs as process 1 when the init could not be executed. It only reaps processes.
pub fn reap_forever() -> ! {
    let signals = block_signals(&[libc::SIGCHLD]);
    loop {
        reap(None);
        wait_signal(&signals);
    }
}

/// Reaps the processes that have ended, and starts the server again if it is one of them.
fn keep(server: Option<pid_t>, role: &str, boot: BootTimes) -> Option<pid_t> {
    let lost = match server {
        Some(pid) => reap(Some(pid)),
        None => Some(0),
    };
    let Some(status) = lost else { return server };
    note(&format!("{role} ended with status {status:#x}, starting it again"));
    std::thread::sleep(RESTART_PAUSE);
    start(role, boot)
}

/// Reaps all processes that have ended. Returns the status of `wanted` if it is one of them.
fn reap(wanted: Option<pid_t>) -> Option<c_int> {
    let mut found = None;
    loop {
        let mut status = 0;
        // SAFETY: one int is stored.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if pid <= 0 {
            return found;
        }
        if Some(pid) == wanted {
            found = Some(status);
        }
    }
}

fn block_signals(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: sigset_t is plain data that sigemptyset initialises.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut());
        set
    }
}

/// Waits for a signal. A blocked signal stays pending, so none is lost between two calls. The
/// timeout lets the caller retry a server that could not be started.
fn wait_signal(signals: &libc::sigset_t) -> c_int {
    let timeout = libc::timespec { tv_sec: 60, tv_nsec: 0 };
    // SAFETY: the set and the timeout are valid; no details are asked for.
    unsafe { libc::sigtimedwait(signals, ptr::null_mut(), &timeout) }
}
