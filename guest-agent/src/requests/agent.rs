//! The state that all sessions of one agent share.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::token::Token;
use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;
use crate::base::sys;
use crate::link::channel::Channels;
use crate::machine::boot_times::BootTimes;
use crate::machine::freeze::Freezer;
use crate::machine::host_time::Watch;
use crate::machine::identity::Prepared;
use crate::processes::exec::Commands;
use crate::processes::kept::KeptCommands;
use crate::processes::pty::Ptys;
use crate::shares::changes::Watching;
use crate::shares::mounting::UnderWay;

/// The state of one agent process.
#[derive(Debug)]
pub struct Agent {
    pub token: Token,
    /// A random text that distinguishes this process from earlier and later ones.
    instance: String,
    boot: BootTimes,
    serving_s: OnceLock<f64>,
    /// False on a developer's machine, whose clock and users the agent must not change.
    pub owns_machine: bool,
    pub prepared: Prepared,
    pub commands: Commands,
    pub ptys: Ptys,
    pub kept: KeptCommands,
    pub freezer: Freezer,
    /// A thread that sets the clock holds this lock.
    pub time: Arc<Mutex<Watch>>,
    pub mounts_under_way: UnderWay,
    pub host_changes: Watching,
    /// The running commands of HTTP clients, which name them by number.
    pub http_channels: Channels,
    next_http_id: AtomicU32,
}

impl Agent {
    /// Clients must present `token`. Without one, the first client sets it.
    pub fn new(token: Option<&str>, boot: BootTimes, owns_machine: bool) -> io::Result<Self> {
        Ok(Self {
            token: Token::new(token),
            instance: sys::random_hex::<16>()?,
            boot,
            serving_s: OnceLock::new(),
            owns_machine,
            prepared: Prepared::find(),
            commands: Commands::new()?,
            ptys: Ptys::default(),
            kept: KeptCommands::default(),
            freezer: Freezer::default(),
            time: Arc::default(),
            mounts_under_way: UnderWay::default(),
            host_changes: Watching::default(),
            http_channels: Channels::default(),
            next_http_id: AtomicU32::new(1),
        })
    }

    /// Notes that the agent serves. The first call sets the time that `hello` reports.
    pub fn note_serving(&self) {
        self.serving_s.get_or_init(sys::uptime_s);
    }

    /// Returns a number for a command of an HTTP client, which was not used before.
    pub fn next_http_id(&self) -> u32 {
        self.next_http_id.fetch_add(1, Relaxed)
    }

    /// Fails with `NotOwner` unless the agent may change the machine as a whole.
    pub fn require_machine(&self) -> Result<()> {
        if self.owns_machine {
            Ok(())
        } else {
            Err(Error::NotOwner)
        }
    }

    /// Sets the clock to a time that a client knows, in nanoseconds since 1970.
    pub fn set_clock_ns(&self, unix_ns: i64) -> io::Result<()> {
        let mut watch = self.time.lock();
        sys::set_clock_ns(unix_ns)?;
        watch.forget();
        Ok(())
    }

    /// Returns the reply to `hello`.
    pub fn greeting(&self) -> Greeting {
        Greeting {
            protocol: 1,
            version: env!("CARGO_PKG_VERSION"),
            instance: self.instance.clone(),
            pid: std::process::id(),
            boot: Boot {
                init_s: self.boot.init_s,
                root_s: self.boot.root_s,
                network_s: self.boot.network_s,
                serving_s: self.serving_s.get().copied(),
            },
            capabilities: &[
                "exec",
                "command_bytes",
                "command_attach",
                "pty",
                "pty_watch",
                "files",
                "copies",
                "users",
                "info",
                "time",
                "identity",
                "renew",
                "disk",
                "freeze",
                "shutdown",
                "errors",
                "dial",
                "dial_udp",
                "sftp",
                "watch",
                "metadata",
            ],
        }
    }
}

/// Tells a client which agent answers, and which requests it has.
#[derive(Debug, Serialize)]
pub struct Greeting {
    protocol: u32,
    version: &'static str,
    instance: String,
    pid: u32,
    boot: Boot,
    capabilities: &'static [&'static str],
}

/// Seconds of guest uptime when the boot reached each step.
#[derive(Debug, Serialize)]
struct Boot {
    init_s: f64,
    root_s: f64,
    network_s: f64,
    serving_s: Option<f64>,
}
