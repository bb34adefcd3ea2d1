//! The process that serves sessions.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::cmdline::Cmdline;
use crate::base::log::note;
use crate::base::{oom, sys};
use crate::http;
use crate::machine::boot_times::BootTimes;
use crate::machine::host_time;
use crate::requests::agent::Agent;
use crate::session::serial;

/// The text that the program prints when its arguments are wrong.
pub const USAGE: &str = "usage: quicksand-agent serve --unix PATH [--http ADDR:PORT] [--token TOKEN] [--own-machine]
       As process 1 it boots a sandbox and serves its virtio-serial ports.";

/// The number of threads for file system calls, which may block. Idle ones end after 10 s.
const MAX_FILE_THREADS: usize = 16;
const HTTP_PAUSE: Duration = Duration::from_secs(5);

/// Serves every virtio port of a sandbox, and HTTP if the command line names a port.
pub fn run_in_guest(boot: BootTimes) -> ExitCode {
    oom::protect();
    sys::set_process_name(c"quicksand-agent");
    let cmdline = Cmdline::read();
    finish(run(async {
        let agent = Arc::new(Agent::new(cmdline.token.as_deref(), boot, true)?);
        if let Some(port) = cmdline.http_port {
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            tokio::spawn(serve_http(agent.clone(), address));
        }
        tokio::spawn(host_time::keep(agent.time.clone()));
        // An agent before this one may have mounted shares.
        agent.host_changes.begin();
        serial::serve_ports(agent).await;
        Ok(())
    }))
}

#[derive(Debug, Default)]
struct Options {
    unix: PathBuf,
    http: Option<SocketAddr>,
    token: Option<String>,
    own_machine: bool,
}

/// Serves a Unix socket on a developer's machine.
pub fn run_by_hand(args: &[String]) -> ExitCode {
    match parse_options(args) {
        Ok(options) => {
            reset_signals();
            finish(run(serve(options)))
        }
        Err(reason) => {
            eprintln!("quicksand-agent: {reason}\n{}", USAGE);
            ExitCode::from(2)
        }
    }
}

async fn serve(options: Options) -> io::Result<()> {
    let now = sys::uptime_s();
    let boot = BootTimes {
        init_s: now,
        root_s: now,
        network_s: now,
    };
    let agent = Arc::new(Agent::new(options.token.as_deref(), boot, options.own_machine)?);
    if let Some(address) = options.http {
        tokio::spawn(serve_http(agent.clone(), address));
    }
    serial::serve_socket(agent, &options.unix).await
}

/// Serves HTTP. The address may be taken or appear later, so binding it is tried again.
async fn serve_http(agent: Arc<Agent>, address: SocketAddr) {
    while let Err(error) = http::serve(agent.clone(), address).await {
        note(&format!("http {address}: {error}"));
        sleep(HTTP_PAUSE).await;
    }
}

fn parse_options(args: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--unix" => options.unix = value()?.into(),
            "--http" => {
                let text = value()?;
                let address = text.parse().map_err(|_| format!("{text:?} is not ADDR:PORT"))?;
                options.http = Some(address);
            }
            "--token" => options.token = Some(value()?),
            "--own-machine" => options.own_machine = true,
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    if options.unix.as_os_str().is_empty() {
        return Err("--unix is required".into());
    }
    Ok(options)
}

fn run(serve: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    sys::raise_file_limit();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_FILE_THREADS)
        .build()?
        .block_on(serve)
}

/// Resets the signals that the parent may have ignored, so that the agent's commands do not inherit
/// that.
fn reset_signals() {
    for signal in (1..=64).filter(|signal| *signal != libc::SIGPIPE) {
        // The kernel's struct sigaction is the default when it is all zero. libc's wrapper would
        // refuse the two signals that it keeps for itself.
        let default = [0u64; 4];
        // SAFETY: 32 bytes are read, nothing is stored; the mask has 8 bytes.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8) };
    }
}

fn finish(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&error.to_string());
            ExitCode::FAILURE
        }
    }
}
