//! The guest agent of quicksand: process 1 of a sandbox, and the server for its commands.

mod accounts;
mod address;
mod agent;
mod base64;
mod blocking;
mod boot_times;
mod channel;
mod ciphers;
mod closed;
mod cmdline;
mod command;
mod datagrams;
mod defaults;
mod disk;
mod drivers;
mod environment;
mod error;
mod events;
mod exec;
mod feed;
mod file_reader;
mod file_system;
mod file_writer;
mod files;
mod freeze;
mod host_time;
mod hostchanges;
mod hostfiles;
mod http;
mod identity;
mod info;
mod init;
mod initramfs;
mod kept;
mod link;
mod log;
mod login;
mod machine;
mod metadata;
mod methods;
mod modprobe;
mod modules;
mod mountinfo;
mod mounts;
mod names;
mod network;
mod oom;
mod outbox;
mod outcome;
mod output;
mod params;
mod passwd;
mod processes;
mod pty;
mod root_device;
mod scrollback;
mod serial;
mod server;
mod session;
mod sftp;
mod shares;
mod shutdown;
mod signals;
mod source;
mod sparse_writer;
mod spawn;
mod supervise;
mod sys;
mod token;
mod tree_watch;
mod uevents;
mod unix_socket;
mod utf8;
mod volatile;
mod watched;
mod wire;

use std::process::ExitCode;

use boot_times::BootTimes;

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
