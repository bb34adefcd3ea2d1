//! One open request of a client: its windows, its input, and the ways to end it early.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use super::wire::{STDERR, STDOUT};
use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;
use crate::base::sys;

/// A request that takes input or sends output while it runs.
#[derive(Debug)]
pub struct Channel {
    pub id: u32,
    /// Tells whether the client may send input.
    pub takes_input: bool,
    pub input: Input,
    pub stdout: Window,
    pub stderr: Window,
    /// The process group of the command while it runs, otherwise 0.
    pub group: AtomicI32,
    stop: watch::Sender<Option<Stop>>,
    /// The channel by which the command was started, if this one was attached to it later.
    leader: OnceLock<Arc<Channel>>,
}

/// The reason for which a channel has to end early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Send SIGTERM now, and SIGKILL after this time.
    Cancel(Duration),
    /// The client broke the protocol; the text says how.
    Broken(String),
}

/// The time in which a canceled command may end before it is killed. A client may give another.
pub const CANCEL_GRACE: Duration = Duration::from_millis(200);

impl Channel {
    /// Makes a channel. `window` is the size of the output windows in bytes.
    pub fn new(id: u32, window: usize, takes_input: bool) -> Self {
        Self {
            id,
            takes_input,
            input: Input::default(),
            stdout: Window::new(window),
            stderr: Window::new(window),
            group: AtomicI32::new(0),
            stop: watch::Sender::new(None),
            leader: OnceLock::new(),
        }
    }

    /// From now on, what ends or signals this channel ends or signals the command of `leader`.
    pub fn follow(&self, leader: &Arc<Self>) {
        // It is attached once.
        let _ = self.leader.set(leader.clone());
    }

    fn leader(&self) -> &Self {
        self.leader.get().map_or(self, |leader| leader)
    }

    /// Returns the window of an output stream. Input and unknown streams have none.
    pub fn window(&self, stream: u8) -> Option<&Window> {
        match stream {
            STDOUT => Some(&self.stdout),
            STDERR => Some(&self.stderr),
            _ => None,
        }
    }

    /// Asks the task that runs the request to end it.
    pub fn stop(&self, stop: Stop) {
        self.leader().stop.send_replace(Some(stop));
    }

    /// Ends the channel because its client broke the protocol.
    pub fn break_off(&self, error: &Error) {
        self.stop(Stop::Broken(error.to_string()));
    }

    /// Waits until the channel has to end.
    pub async fn stopped(&self) -> Stop {
        let mut receiver = self.leader().stop.subscribe();
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

    /// Signals the command's process group. Returns false when no command runs.
    pub fn signal(&self, signal: i32) -> bool {
        let group = self.leader().group.load(Relaxed);
        group > 0 && sys::kill(-group, signal).is_ok()
    }
}

/// The open requests of one client. There are a few, and never more than a few hundred.
#[derive(Debug, Default)]
pub struct Channels(Mutex<Vec<Arc<Channel>>>);

impl Channels {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Channel>>> {
        self.0.lock()
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

/// The size in bytes of an output window when the client does not ask for another.
pub const DEFAULT_WINDOW: usize = 1 << 20;
const MIN_WINDOW: u64 = 64 << 10;
const MAX_WINDOW: u64 = 16 << 20;

/// Counts the bytes of a stream that may be sent before the receiver must acknowledge some. Only
/// one sender at a time may wait for room.
#[derive(Debug)]
pub struct Window {
    left: AtomicUsize,
    size: usize,
    granted: Notify,
}

impl Window {
    /// Makes a window. `size` is in bytes, and all of it may be sent at once.
    pub fn new(size: usize) -> Self {
        Self {
            left: AtomicUsize::new(size),
            size,
            granted: Notify::new(),
        }
    }

    /// Waits until at least one byte may be sent, and returns how many may. Fails with `Gone` when
    /// the session ends.
    pub async fn room(&self, closed: &Closed) -> Result<usize> {
        self.room_for(1, closed).await
    }

    /// Waits until at least `least` bytes may be sent, and returns how many may. `least` must not
    /// exceed the smallest window. Fails with `Gone` when the session ends.
    pub async fn room_for(&self, least: usize, closed: &Closed) -> Result<usize> {
        loop {
            if closed.is_set() {
                return Err(Error::Gone);
            }
            let left = self.left.load(Relaxed);
            if left >= least {
                return Ok(left);
            }
            tokio::select! {
                () = self.granted.notified() => {}
                () = closed.wait() => {}
            }
        }
    }

    /// The number of bytes that may be sent now.
    pub fn left(&self) -> usize {
        self.left.load(Relaxed)
    }

    /// Notes that `count` bytes were sent.
    pub fn spend(&self, count: usize) {
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_sub(count), Relaxed);
    }

    /// Notes that the receiver acknowledged `count` bytes. Acknowledging more than was sent gains
    /// nothing.
    pub fn grant(&self, count: usize) {
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_add(count).min(self.size), Relaxed);
        self.granted.notify_one();
    }
}

/// The parameters of a request that concern its channel.
#[derive(Debug, Deserialize)]
pub struct Opening {
    #[serde(default)]
    pub window: WindowSize,
}

/// The size of the output windows in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u64")]
pub struct WindowSize(pub usize);

impl Default for WindowSize {
    fn default() -> Self {
        Self(DEFAULT_WINDOW)
    }
}

impl TryFrom<u64> for WindowSize {
    type Error = &'static str;

    fn try_from(size: u64) -> std::result::Result<Self, &'static str> {
        (MIN_WINDOW..=MAX_WINDOW)
            .contains(&size)
            .then_some(Self(size as usize))
            .ok_or("must be 64 KiB to 16 MiB")
    }
}

/// A client may send this many bytes of input before the agent acknowledges some.
pub const INPUT_WINDOW: usize = 256 * 1024;
/// Acknowledgements cover at least this many bytes, so that single keystrokes do not double the
/// traffic.
const CREDIT_STEP: usize = 32 * 1024;

/// Bytes on their way from a client to a consumer in the guest. The input window bounds them.
#[derive(Debug, Default)]
pub struct Input {
    state: Mutex<InputState>,
    arrived: Notify,
    drained: Notify,
    /// This lock keeps pieces of input in the order of the JSON requests that brought them.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct InputState {
    waiting: BytesMut,
    /// Bytes from data frames that were not acknowledged yet.
    unacknowledged: usize,
    /// The part of `unacknowledged` that the consumer has taken.
    consumed: usize,
    ended: bool,
    /// The consumer has ended, so all input is dropped and acknowledged.
    abandoned: bool,
}

impl Input {
    /// Takes the bytes of a data frame. A frame without bytes ends the input. Returns the credit in
    /// bytes to send at once. Fails with `TooLarge` when the client exceeds its window.
    pub fn push_frame(&self, bytes: &[u8]) -> Result<usize> {
        let mut state = self.state.lock();
        if state.abandoned {
            return Ok(bytes.len());
        }
        if bytes.is_empty() {
            state.ended = true;
        } else if state.unacknowledged + bytes.len() > INPUT_WINDOW {
            return Err(Error::TooLarge {
                what: "unacknowledged input",
                limit: INPUT_WINDOW,
            });
        } else if !state.ended {
            state.unacknowledged += bytes.len();
            state.waiting.extend_from_slice(bytes);
        }
        drop(state);
        self.arrived.notify_one();
        Ok(0)
    }

    /// Takes input that came in a JSON request, and waits for room. Input after the end is dropped.
    pub async fn push(&self, mut bytes: &[u8], end: bool) {
        let _turn = self.turn.lock().await;
        while !bytes.is_empty() {
            let taken = {
                let mut state = self.state.lock();
                if state.ended || state.abandoned {
                    return;
                }
                let room = INPUT_WINDOW.saturating_sub(state.waiting.len());
                let taken = room.min(bytes.len());
                state.waiting.extend_from_slice(&bytes[..taken]);
                taken
            };
            bytes = &bytes[taken..];
            self.arrived.notify_one();
            if taken == 0 {
                self.drained.notified().await;
            }
        }
        if end {
            self.state.lock().ended = true;
            self.arrived.notify_one();
        }
    }

    /// Waits for the next bytes and returns at most `limit` of them, or `None` after the last one.
    pub async fn take(&self, limit: usize) -> Option<Bytes> {
        loop {
            {
                let mut state = self.state.lock();
                if !state.waiting.is_empty() {
                    let count = state.waiting.len().min(limit);
                    return Some(state.waiting.split_to(count).freeze());
                }
                if state.ended || state.abandoned {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Notes that `count` bytes reached their consumer. Returns the credit in bytes to send.
    pub fn consumed(&self, count: usize) -> usize {
        let mut state = self.state.lock();
        state.consumed = (state.consumed + count).min(state.unacknowledged);
        let credit = if state.consumed >= CREDIT_STEP {
            std::mem::take(&mut state.consumed)
        } else {
            0
        };
        state.unacknowledged -= credit;
        drop(state);
        self.drained.notify_one();
        credit
    }

    /// Notes that the consumer has ended. Returns the credit in bytes for the input that it did not
    /// take.
    pub fn abandon(&self) -> usize {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.waiting = BytesMut::new();
        state.consumed = 0;
        let credit = std::mem::take(&mut state.unacknowledged);
        drop(state);
        self.drained.notify_one();
        self.arrived.notify_one();
        credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_window_waits_for_a_grant_and_never_exceeds_its_size() {
        let window = Window::new(10);
        let closed = Closed::default();
        assert_eq!(window.room(&closed).await.unwrap(), 10);
        window.spend(10);
        let (room, ()) = tokio::join!(window.room(&closed), async { window.grant(99) });
        assert_eq!(room.unwrap(), 10);
    }

    #[tokio::test]
    async fn a_little_room_is_not_enough_for_more() {
        let window = Window::new(10);
        let closed = Closed::default();
        window.spend(8);
        let (room, ()) = tokio::join!(window.room_for(5, &closed), async { window.grant(4) });
        assert_eq!(room.unwrap(), 6);
    }

    #[tokio::test]
    async fn the_end_of_the_session_ends_the_wait() {
        let window = Window::new(1);
        let closed = Closed::default();
        window.spend(1);
        let (room, ()) = tokio::join!(window.room(&closed), async { closed.set() });
        assert!(matches!(room, Err(Error::Gone)));
    }

    #[tokio::test]
    async fn a_sender_beyond_its_window_is_cut_off() {
        let input = Input::default();
        assert_eq!(input.push_frame(&vec![0; INPUT_WINDOW]).unwrap(), 0);
        assert!(input.push_frame(b"x").is_err());
        let taken = input.take(usize::MAX).await.unwrap().len();
        assert_eq!(input.consumed(taken), INPUT_WINDOW);
        assert!(input.push_frame(b"x").is_ok());
    }

    #[tokio::test]
    async fn the_end_comes_after_the_last_byte() {
        let input = Input::default();
        input.push(b"abc", true).await;
        assert_eq!(input.take(2).await.as_deref(), Some(&b"ab"[..]));
        assert_eq!(input.take(2).await.as_deref(), Some(&b"c"[..]));
        assert_eq!(input.take(2).await, None);
    }

    #[tokio::test]
    async fn an_abandoned_input_acknowledges_everything() {
        let input = Input::default();
        input.push_frame(b"abc").unwrap();
        assert_eq!(input.abandon(), 3);
        assert_eq!(input.push_frame(b"de").unwrap(), 2);
        assert_eq!(input.take(9).await, None);
    }
}
