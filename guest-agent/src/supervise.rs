//! Keeping a server alive: as process 1, or as a small process beside a distribution's init.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use libc::pid_t;

use crate::agent::BootTimes;
use crate::log::note;
use crate::shutdown::{self, Mode};
use crate::{oom, spawn, sys};

/// systemd leaves processes whose name starts like this until last.
const SERVER_NAME: &str = "@quicksand-agent";
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Starts the server as a process of its own; `None` when even that fails.
pub fn start_server(boot: &BootTimes) -> Option<pid_t> {
    start("server", boot)
}

/// Starts the process that starts the server.
pub fn start_supervisor(boot: &BootTimes) -> Option<pid_t> {
    start("supervise", boot)
}

/// The program runs anew from its own image, which needs no file to be left.
fn start(role: &str, boot: &BootTimes) -> Option<pid_t> {
    let argv = [SERVER_NAME, role, &encode_boot(boot)];
    spawn::spawn_detached("/proc/self/exe", &argv, &[])
        .map_err(|error| note(&format!("{role}: {error}")))
        .ok()
}

/// In nanoseconds: fractions would cost their parser.
pub fn encode_boot(boot: &BootTimes) -> String {
    [boot.init_s, boot.root_s, boot.network_s]
        .map(|seconds| ((seconds * 1e9) as u64).to_string())
        .join("/")
}

pub fn decode_boot(text: &str) -> BootTimes {
    let mut times = text.split('/').map(|time| time.parse().unwrap_or(0u64) as f64 / 1e9);
    let mut next = || times.next().unwrap_or(0.0);
    BootTimes {
        init_s: next(),
        root_s: next(),
        network_s: next(),
    }
}

/// Process 1 without a distribution: reaps, restarts the server, and obeys the
/// signals that `poweroff` and `reboot` send.
pub fn run_as_init(mut server: Option<pid_t>, boot: &BootTimes) -> ! {
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

/// The process between a distribution's init and the server.
pub fn run_beside_init(boot: &BootTimes) -> ! {
    oom::protect();
    sys::set_process_name(c"quicksand-agent");
    let signals = block_signals(&[libc::SIGCHLD]);
    let mut server = start_server(boot);
    loop {
        server = keep(server, "server", boot);
        wait_signal(&signals);
    }
}

/// When there is no init to become: only the reaping is left.
pub fn reap_forever() -> ! {
    let signals = block_signals(&[libc::SIGCHLD]);
    loop {
        reap(None);
        wait_signal(&signals);
    }
}

/// Reaps whatever has ended; a server that did is started again.
fn keep(server: Option<pid_t>, role: &str, boot: &BootTimes) -> Option<pid_t> {
    let lost = match server {
        Some(pid) => reap(Some(pid)),
        None => Some(0),
    };
    let Some(status) = lost else { return server };
    note(&format!("{role} ended with status {status:#x}, starting it again"));
    std::thread::sleep(RESTART_PAUSE);
    start(role, boot)
}

/// Returns the status of `wanted` when it was among the ended.
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

/// A blocked signal stays pending, so none is lost between two calls. The
/// timeout brings a server back that could not be started.
fn wait_signal(signals: &libc::sigset_t) -> c_int {
    let timeout = libc::timespec { tv_sec: 60, tv_nsec: 0 };
    // SAFETY: the set and the timeout are valid; no details are asked for.
    unsafe { libc::sigtimedwait(signals, ptr::null_mut(), &timeout) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_times_survive_the_command_line() {
        let boot = BootTimes {
            init_s: 0.25,
            root_s: 0.5,
            network_s: 1.0,
        };
        let back = decode_boot(&encode_boot(&boot));
        assert_eq!((back.init_s, back.root_s, back.network_s), (0.25, 0.5, 1.0));
        assert_eq!(decode_boot("junk").root_s, 0.0);
    }
}
