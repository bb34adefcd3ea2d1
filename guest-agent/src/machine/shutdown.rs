//! Switches the machine off, or asks the init of the distribution to do so.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::base::log::note;
use crate::base::params::Seconds;
use crate::base::{spawn, sys};
use crate::kernel::{disk, mounts};

/// Processes have this time to end before they are killed.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(3);
/// The init of a distribution may take this much longer before the agent switches the machine off
/// itself.
const INIT_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// The parameters of a shutdown.
#[derive(Debug, Deserialize)]
pub struct Ending {
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    grace: Seconds,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    PowerOff,
    Reboot,
}

/// Starts the shutdown on its own thread, so that no other work delays it.
pub fn start(ending: &Ending) {
    let (mode, grace) = (ending.mode, ending.grace.0.unwrap_or(DEFAULT_GRACE));
    std::thread::spawn(move || {
        if ask_init(mode) {
            std::thread::sleep(grace + INIT_LIMIT);
            note("init did not shut down, doing it now");
        }
        finish(mode, grace);
    });
}

/// Ends all processes, makes the disk clean and switches the machine off.
pub fn finish(mode: Mode, grace: Duration) -> ! {
    // On a frozen root, a process that waits to write could not end.
    disk::thaw_left_frozen(Path::new("/"));
    // SAFETY: -1 spares process 1 and the caller.
    let _ = sys::kill(-1, libc::SIGTERM);
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline && others_run() {
        std::thread::sleep(POLL);
    }
    let _ = sys::kill(-1, libc::SIGKILL);
    sys::sync();
    if let Err(error) = mounts::remount_read_only(Path::new("/")) {
        note(&format!("remount: {error}"));
        sys::sync();
    }
    let command = match mode {
        Mode::PowerOff => libc::RB_POWER_OFF,
        Mode::Reboot => libc::RB_AUTOBOOT,
    };
    // SAFETY: no memory is passed.
    unsafe { libc::reboot(command) };
    note(&format!("reboot: {}", std::io::Error::last_os_error()));
    std::process::exit(1)
}

/// Tells whether a process is left that is neither the agent's, nor a kernel thread, nor a zombie.
fn others_run() -> bool {
    let is_other = |pid: u32| pid != 1 && pid != std::process::id() && is_user_process(pid).unwrap_or(false);
    sys::pids().map_or(true, |mut pids| pids.any(is_other))
}

/// Kernel threads and zombies have no command line.
fn is_user_process(pid: u32) -> Option<bool> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(!line.is_empty() && !line.starts_with(b"@"))
}

/// Asks process 1 to shut down, if it is an init. Each init listens to other signals.
fn ask_init(mode: Mode) -> bool {
    let program = fs::read_link("/proc/1/exe").unwrap_or_default();
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or("");
    if name.starts_with("agent") || name.starts_with("quicksand") {
        return false;
    }
    let is_systemd = fs::read_to_string("/proc/1/comm").is_ok_and(|comm| comm.trim() == "systemd");
    let reboots = mode == Mode::Reboot;
    let signal = match (is_systemd, name, reboots) {
        (true, _, false) => libc::SIGRTMIN() + 4,
        (true, _, true) => libc::SIGRTMIN() + 5,
        (_, "busybox", false) => libc::SIGUSR2,
        (_, "busybox", true) => libc::SIGTERM,
        _ => return run_command(if reboots { "reboot" } else { "poweroff" }),
    };
    sys::kill(1, signal).is_ok()
}

/// Runs the command that an unknown init has for a shutdown.
fn run_command(name: &str) -> bool {
    ["/sbin", "/usr/sbin", "/bin", "/usr/bin"]
        .iter()
        .any(|dir| spawn::run_tool(&[&format!("{dir}/{name}")]).is_ok_and(|code| code == 0))
}
