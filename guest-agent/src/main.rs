//! The guest agent of quicksand: process 1 of a sandbox, and the server for its commands.

mod base;
mod boot;
mod files;
mod http;
mod kernel;
mod link;
mod machine;
mod processes;
mod requests;
mod session;
mod sftp;
mod shares;
mod sockets;
mod users;

use std::process::ExitCode;

use crate::base::sys;
use crate::boot::{init, server, supervise};
use crate::kernel::modprobe;
use crate::machine::boot_times::BootTimes;
use crate::machine::freeze;

fn main() -> ExitCode {
    let started_s = sys::uptime_s();
    // Otherwise a pipe might get one of their numbers.
    sys::open_missing_streams(&[c"/dev/null"]);
    let args: Vec<String> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let role = args.get(1).map(String::as_str);
    let boot = || BootTimes::from_arg(args.get(2).map_or("", String::as_str));
    match role {
        // The kernel passes on words of its command line that it does not know, so the arguments of
        // process 1 mean nothing.
        _ if std::process::id() == 1 => init::run(started_s),
        Some("server") => server::run_in_guest(boot()),
        Some("supervise") => supervise::run_beside_init(boot()),
        Some("thaw") => {
            freeze::run_guard(args.get(2).map_or("", String::as_str));
            ExitCode::SUCCESS
        }
        // The kernel calls it as modprobe (kernel/module/kmod.c).
        Some("-q") => {
            modprobe::load(args.last().map_or("", String::as_str)).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Some("sftp") => sftp::run(&args[2..]),
        Some("serve") => server::run_by_hand(&args[2..]),
        Some("--version") => {
            println!("quicksand-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{}", server::USAGE);
            ExitCode::from(2)
        }
    }
}
