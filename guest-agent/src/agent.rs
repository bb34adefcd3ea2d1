//! What all sessions of one agent share.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};

use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::freeze::Freezer;
use crate::identity::Known;
use crate::others::Others;
use crate::passwd::{self, User};
use crate::pty::Ptys;
use crate::token::Token;
use crate::{spawn, sys};

#[derive(Debug)]
pub struct Agent {
    pub token: Token,
    /// Tells one process of the agent from the next.
    instance: String,
    boot: BootTimes,
    serving_s: OnceLock<f64>,
    /// The user that the agent runs as.
    pub me: User,
    /// False on a developer's machine, whose clock and users are not ours.
    pub owns_machine: bool,
    pub known: Known,
    pub null: Arc<OwnedFd>,
    pub commands: Gate,
    pub ptys: Ptys,
    pub freezer: Freezer,
    pub others: Others,
    /// Commands that HTTP clients address by number.
    pub http_channels: Channels,
    next_http_id: AtomicU32,
}

/// Seconds of guest uptime, handed over by the first process.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootTimes {
    pub init_s: f64,
    pub root_s: f64,
    pub network_s: f64,
}

impl Agent {
    pub fn new(token: Option<&str>, boot: BootTimes, owns_machine: bool) -> io::Result<Self> {
        let users = passwd::read_database("/etc/passwd");
        Ok(Self {
            token: Token::new(token),
            instance: sys::random_hex::<16>()?,
            boot,
            serving_s: OnceLock::new(),
            me: passwd::user_of(sys::euid(), &users),
            owns_machine,
            known: Known::find(),
            null: Arc::new(spawn::open_null()?),
            commands: Gate::default(),
            ptys: Ptys::default(),
            freezer: Freezer::default(),
            others: Others::default(),
            http_channels: Channels::default(),
            next_http_id: AtomicU32::new(1),
        })
    }

    /// The first call sets the time that `hello` reports.
    pub fn note_serving(&self) {
        self.serving_s.get_or_init(sys::uptime_s);
    }

    pub fn next_http_id(&self) -> u32 {
        self.next_http_id.fetch_add(1, Relaxed)
    }

    /// Guards whatever changes the machine as a whole.
    pub fn require_machine(&self) -> Result<()> {
        if self.owns_machine {
            Ok(())
        } else {
            Err(Error::NotOwner)
        }
    }

    pub fn hello(&self) -> Value {
        json!({
            "protocol": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "instance": self.instance,
            "pid": std::process::id(),
            "boot": {
                "init_s": self.boot.init_s,
                "root_s": self.boot.root_s,
                "network_s": self.boot.network_s,
                "serving_s": self.serving_s.get(),
            },
            "capabilities": [
                "exec", "pty", "files", "users", "info", "time", "identity", "disk", "freeze", "shutdown",
            ],
        })
    }
}

/// The kernel makes it when it is first read: whoever does that before a
/// template is taken gives all that start from it the same one.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Open requests: a few, and never more than a few hundred.
#[derive(Debug, Default)]
pub struct Channels(Mutex<Vec<Arc<Channel>>>);

impl Channels {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Channel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, channel: Arc<Channel>) {
        self.list().push(channel);
    }

    pub fn find(&self, id: u32) -> Option<Arc<Channel>> {
        self.list().iter().find(|channel| channel.id == id).cloned()
    }

    pub fn remove(&self, channel: &Arc<Channel>) {
        self.list().retain(|other| !Arc::ptr_eq(other, channel));
    }

    pub fn count(&self) -> usize {
        self.list().len()
    }
}

/// Lets commands run together, or one alone.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    running: usize,
    exclusive: bool,
}

impl Gate {
    pub fn enter(&self, exclusive: bool) -> Result<Slot> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.exclusive {
            return Err(Error::Busy("an exclusive command is running"));
        }
        if exclusive && inside.running > 0 {
            return Err(Error::Busy("another command is running"));
        }
        inside.running += 1;
        inside.exclusive = exclusive;
        drop(inside);
        Ok(Slot(self.clone()))
    }
}

/// A running command's place; leaving is dropping it.
#[derive(Debug)]
pub struct Slot(Gate);

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inside = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        inside.running -= 1;
        inside.exclusive = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_command_runs_alone() {
        let gate = Gate::default();
        let first = gate.enter(false).unwrap();
        let second = gate.enter(false).unwrap();
        assert!(gate.enter(true).is_err());
        drop((first, second));
        let alone = gate.enter(true).unwrap();
        assert_eq!(gate.enter(false).unwrap_err().code(), "busy");
        drop(alone);
        assert!(gate.enter(false).is_ok());
    }
}
