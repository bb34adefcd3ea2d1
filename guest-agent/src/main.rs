//! The guest agent of quicksand: process 1 of a sandbox, and its command server.

mod accounts;
mod agent;
mod base64;
mod blocking;
mod channel;
mod closed;
mod cmdline;
mod command;
mod disk;
mod error;
mod exec;
mod feed;
mod files;
mod freeze;
mod guard;
mod hostfiles;
mod http;
mod identity;
mod info;
mod init;
mod initramfs;
mod input;
mod link;
mod log;
mod methods;
mod modules;
mod mounts;
mod netif;
mod oom;
mod opening;
mod others;
mod outbox;
mod params;
mod passwd;
mod processes;
mod pty;
mod pty_client;
mod pump;
mod reading;
mod requests;
mod scheduling;
mod scrollback;
mod serial;
mod server;
mod session;
mod shutdown;
mod signals;
mod sink;
mod source;
mod spawn;
mod supervise;
mod sys;
mod system;
mod terminal;
mod text;
mod token;
mod transfer;
mod uevents;
mod volatile;
mod window;
mod wire;
mod writing;

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::process::ExitCode;

const USAGE: &str = "usage: quicksand-agent serve --unix PATH [--http ADDR:PORT] [--token TOKEN] [--own-machine]
       As process 1 it boots a sandbox and serves its virtio-serial ports.";

fn main() -> ExitCode {
    let started_s = sys::uptime_s();
    open_missing_streams();
    let args: Vec<String> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let role = args.get(1).map(String::as_str);
    let boot = || supervise::decode_boot(args.get(2).map_or("", String::as_str));
    match role {
        // The kernel passes words of its command line that it does not know.
        _ if std::process::id() == 1 => init::run(started_s),
        Some("server") => server::run_in_guest(boot()),
        Some("supervise") => supervise::run_beside_init(&boot()),
        Some("thaw") => {
            guard::run(args.get(2).map_or("", String::as_str));
            ExitCode::SUCCESS
        }
        Some("serve") => server::run_by_hand(&args[2..]),
        Some("--version") => {
            println!("quicksand-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Descriptors 0 to 2 are taken, so that no pipe ever gets one of them.
fn open_missing_streams() {
    for target in 0..=2 {
        // SAFETY: F_GETFD takes no argument.
        if unsafe { libc::fcntl(target, libc::F_GETFD) } < 0
            && let Ok(null) = sys::open(c"/dev/null", libc::O_RDWR)
        {
            adopt_stream(null, target);
        }
    }
}

/// Makes `fd` a standard stream that children would inherit.
fn adopt_stream(fd: OwnedFd, target: i32) {
    if fd.as_raw_fd() == target {
        // SAFETY: F_SETFD takes an int; the descriptor stays open for good.
        unsafe { libc::fcntl(fd.into_raw_fd(), libc::F_SETFD, 0) };
    } else {
        // SAFETY: both are descriptors; `fd` is closed when it is dropped.
        unsafe { libc::dup2(fd.as_raw_fd(), target) };
    }
}
