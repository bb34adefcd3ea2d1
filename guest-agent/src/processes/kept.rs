//! Commands that one client can leave and another one can go on with. Their output goes to the client
//! that is attached, and is dropped while there is none. Their ends are remembered for a while.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::{sleep, timeout};

use super::outcome::Outcome;
use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;
use crate::base::sys;
use crate::link::channel::Channel;
use crate::link::outbox::Outbox;
use crate::link::source::{Moved, Source};

/// For this long a client that was away can learn how a command ended.
const KEEP_FINISHED: Duration = Duration::from_secs(60);
const MAX_FINISHED: usize = 256;
/// The agent may notice the end of one client this long after the next one has come.
const HANDOVER: Duration = Duration::from_secs(2);

/// The commands of one agent. All clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct KeptCommands(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    listed: Mutex<Vec<Arc<Kept>>>,
    last_number: AtomicU32,
}

/// The client that is attached to a command.
#[derive(Clone, Debug)]
pub struct Client {
    pub out: Arc<Outbox>,
    pub channel: Arc<Channel>,
}

/// The place of the client that is attached: the command's input pipe, until it is closed.
pub type Seat = OwnedMutexGuard<Option<AsyncFd<OwnedFd>>>;

/// A command that clients can leave.
#[derive(Debug)]
pub struct Kept {
    pub id: String,
    pub pid: i32,
    /// The channel by which it was started. Those of later clients follow it.
    pub first: Arc<Channel>,
    seat: Arc<tokio::sync::Mutex<Option<AsyncFd<OwnedFd>>>>,
    client: watch::Sender<Option<Client>>,
    outcome: watch::Sender<Option<Outcome>>,
}

impl KeptCommands {
    /// Lists a command that runs, to which no client is attached yet. An input that cannot be fed
    /// is closed.
    pub fn add(&self, pid: i32, first: &Arc<Channel>, stdin: Option<OwnedFd>) -> Arc<Kept> {
        let number = self.0.last_number.fetch_add(1, Relaxed) + 1;
        let kept = Arc::new(Kept {
            id: format!("c{number}"),
            pid,
            first: first.clone(),
            seat: Arc::new(tokio::sync::Mutex::new(stdin.and_then(|pipe| watched(pipe).ok()))),
            client: watch::Sender::new(None),
            outcome: watch::Sender::new(None),
        });
        self.0.listed.lock().push(kept.clone());
        kept
    }

    /// Fails with `NotFound`.
    pub fn find(&self, id: &str) -> Result<Arc<Kept>> {
        let listed = self.0.listed.lock();
        let found = listed.iter().find(|kept| kept.id == id);
        found.cloned().ok_or_else(|| Error::NotFound(format!("command {id:?}")))
    }

    /// Notes how a command ended, when all its output was delivered or dropped.
    pub fn finish(&self, kept: &Kept, outcome: Outcome) {
        // A client that is attached closes it itself.
        if let Ok(mut stdin) = kept.seat.try_lock() {
            *stdin = None;
        }
        kept.outcome.send_replace(Some(outcome));
        let mut listed = self.0.listed.lock();
        let finished = |kept: &Arc<Kept>| kept.outcome.borrow().is_some();
        if listed.iter().filter(|kept| finished(kept)).count() > MAX_FINISHED
            && let Some(oldest) = listed.iter().position(finished)
        {
            listed.remove(oldest);
        }
        drop(listed);
        let (all, id) = (self.clone(), kept.id.clone());
        tokio::spawn(async move {
            sleep(KEEP_FINISHED).await;
            all.0.listed.lock().retain(|other| other.id != id);
        });
    }
}

fn watched(pipe: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::set_nonblocking(pipe.as_fd())?;
    sys::watch(pipe, Interest::WRITABLE)
}

impl Kept {
    /// Takes the place of a client. Fails with `Busy` when another one stays in it.
    pub async fn seat(&self) -> Result<Seat> {
        timeout(HANDOVER, self.seat.clone().lock_owned())
            .await
            .map_err(|_| Error::Busy("another client is attached to the command"))
    }

    /// Begins to send the output to the client in the seat.
    pub fn attach(&self, client: Client) {
        self.client.send_replace(Some(client));
    }

    /// Drops the output from now on, unless another client is attached by now.
    pub fn leave(&self, channel: &Arc<Channel>) {
        self.client.send_if_modified(|current| {
            let is_attached = current
                .as_ref()
                .is_some_and(|client| Arc::ptr_eq(&client.channel, channel));
            if is_attached {
                *current = None;
            }
            is_attached
        });
    }

    /// Waits for the end.
    pub async fn ended(&self) -> Outcome {
        let mut changes = self.outcome.subscribe();
        let ended = changes
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|found| found.clone());
        match ended {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }

    /// Waits until the client takes more of a stream, and returns how many bytes; `None` when
    /// nobody is attached.
    pub async fn room(&self, stream: u8) -> Option<usize> {
        let mut changes = self.client.subscribe();
        loop {
            let Client { out, channel } = changes.borrow_and_update().clone()?;
            let window = channel.window(stream)?;
            tokio::select! {
                room = window.room(&out.closed) => match room {
                    Ok(room) => return Some(room),
                    Err(_) => self.leave(&channel),
                },
                _ = changes.changed() => {}
            }
        }
    }

    /// Moves at most `limit` of the bytes that wait in `source` to the client; `None` when nobody is
    /// attached. Bytes on their way to a client that is gone are lost.
    pub async fn forward(&self, source: &Source, stream: u8, limit: usize) -> Option<Moved> {
        let Client { out, channel } = self.client.borrow().clone()?;
        let window = channel.window(stream)?;
        // The room may have been that of the client before.
        let limit = limit.min(window.left());
        if limit == 0 {
            return Some(Moved::Bytes(0));
        }
        match out.forward(source, stream, channel.id, limit).await {
            Ok(moved) => {
                if let Moved::Bytes(count) = moved {
                    window.spend(count);
                }
                Some(moved)
            }
            Err(_) => {
                self.leave(&channel);
                Some(Moved::Bytes(0))
            }
        }
    }
}
