//! What a session knows of one open request: its windows, its input, and how to end it.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::Error;
use crate::input::Input;
use crate::sys;
use crate::window::Window;
use crate::wire::{STDERR, STDOUT};

#[derive(Debug)]
pub struct Channel {
    pub id: u32,
    /// Whether input frames are accepted.
    pub takes_input: bool,
    pub input: Input,
    pub stdout: Window,
    pub stderr: Window,
    /// The process group of its command while that runs; 0 otherwise.
    pub group: AtomicI32,
    stop: watch::Sender<Option<Stop>>,
}

/// Why a channel has to end before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM now, SIGKILL after this long.
    Cancel(Duration),
    /// The client broke the rules; the text says how.
    Broken(String),
}

pub const CANCEL_GRACE: Duration = Duration::from_millis(200);

impl Channel {
    pub fn new(id: u32, window: usize, takes_input: bool) -> Self {
        Self {
            id,
            takes_input,
            input: Input::default(),
            stdout: Window::new(window),
            stderr: Window::new(window),
            group: AtomicI32::new(0),
            stop: watch::Sender::new(None),
        }
    }

    pub fn window(&self, stream: u8) -> Option<&Window> {
        match stream {
            STDOUT => Some(&self.stdout),
            STDERR => Some(&self.stderr),
            _ => None,
        }
    }

    pub fn stop(&self, stop: Stop) {
        self.stop.send_replace(Some(stop));
    }

    pub fn break_off(&self, error: &Error) {
        self.stop(Stop::Broken(error.to_string()));
    }

    /// Returns when the channel has to end.
    pub async fn stopped(&self) -> Stop {
        let mut receiver = self.stop.subscribe();
        let stop = receiver
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|stop| stop.clone());
        match stop {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }

    /// Whether there was a group to signal.
    pub fn signal(&self, signal: i32) -> bool {
        let group = self.group.load(Relaxed);
        group > 0 && sys::kill(-group, signal).is_ok()
    }
}
