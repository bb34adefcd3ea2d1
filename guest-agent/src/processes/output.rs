//! The output of a command or a terminal, moved from its source to its receiver.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::kept::Kept;
use super::scrollback::TerminalOutput;
use super::utf8::Utf8Carry;
use crate::base::error::{Error, Result};
use crate::link::channel::Channel;
use crate::link::events::{OldEvent, StreamEvent};
use crate::link::outbox::Outbox;
use crate::link::source::{Moved, Source};
use crate::link::wire::STDERR;

const CHUNK: usize = 64 * 1024;
/// The number of bytes that `execute` keeps of each stream.
pub const COLLECT_LIMIT: usize = 1 << 20;

/// A receiver of output. Each of them fails with `Gone` when its client is gone.
#[derive(Debug)]
pub enum Sink {
    /// Sends data frames with flow control.
    Frames {
        out: Arc<Outbox>,
        channel: Arc<Channel>,
        stream: u8,
    },
    /// Sends JSON frames with text, for sessions without a handshake.
    Text {
        out: Arc<Outbox>,
        id: Value,
        stream: u8,
        carry: Utf8Carry,
        buffer: Vec<u8>,
    },
    /// Sends server-sent events.
    Events {
        sender: mpsc::Sender<Bytes>,
        stream: u8,
        carry: Utf8Carry,
        buffer: Vec<u8>,
    },
    /// Keeps the first part.
    Collect {
        kept: Vec<u8>,
        truncated: bool,
        buffer: Vec<u8>,
    },
    /// Fills the scrollback of a terminal, which serves the terminal's clients.
    Terminal {
        output: Arc<TerminalOutput>,
        buffer: Vec<u8>,
    },
    /// Sends data frames to whoever is attached to a command, and drops what comes without one.
    Kept {
        kept: Arc<Kept>,
        stream: u8,
        buffer: Vec<u8>,
    },
    Discard {
        buffer: Vec<u8>,
    },
}

impl Sink {
    pub fn frames(out: &Arc<Outbox>, channel: &Arc<Channel>, stream: u8) -> Self {
        Self::Frames {
            out: out.clone(),
            channel: channel.clone(),
            stream,
        }
    }

    pub fn text(out: &Arc<Outbox>, id: &Value, stream: u8) -> Self {
        Self::Text {
            out: out.clone(),
            id: id.clone(),
            stream,
            carry: Utf8Carry::default(),
            buffer: Vec::new(),
        }
    }

    pub fn events(sender: &mpsc::Sender<Bytes>, stream: u8) -> Self {
        Self::Events {
            sender: sender.clone(),
            stream,
            carry: Utf8Carry::default(),
            buffer: Vec::new(),
        }
    }

    pub fn collect() -> Self {
        Self::Collect {
            kept: Vec::new(),
            truncated: false,
            buffer: Vec::new(),
        }
    }

    pub fn terminal(output: &Arc<TerminalOutput>) -> Self {
        Self::Terminal {
            output: output.clone(),
            buffer: Vec::new(),
        }
    }

    pub fn kept(kept: &Arc<Kept>, stream: u8) -> Self {
        Self::Kept {
            kept: kept.clone(),
            stream,
            buffer: Vec::new(),
        }
    }

    pub fn discard() -> Self {
        Self::Discard { buffer: Vec::new() }
    }

    /// Waits until the receiver takes more, and returns how many bytes.
    pub async fn room(&self) -> Result<usize> {
        match self {
            Self::Frames { out, channel, stream } => match channel.window(*stream) {
                Some(window) => window.room(&out.closed).await,
                None => Err(Error::Gone),
            },
            Self::Terminal { output, .. } => {
                output.wait_for_room().await;
                Ok(CHUNK)
            }
            Self::Kept { kept, stream, .. } => Ok(kept.room(*stream).await.unwrap_or(CHUNK)),
            _ => Ok(CHUNK),
        }
    }

    /// Moves at most `limit` of the bytes that wait in `source`.
    pub async fn pull(&mut self, source: &Source, limit: usize) -> Result<Moved> {
        match self {
            Self::Frames { out, channel, stream } => {
                let moved = out.forward(source, *stream, channel.id, limit).await?;
                if let (Moved::Bytes(count), Some(window)) = (moved, channel.window(*stream)) {
                    window.spend(count);
                }
                Ok(moved)
            }
            Self::Text {
                out,
                id,
                stream,
                carry,
                buffer,
            } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved {
                    let text = carry.lossy(&buffer[..count]);
                    send_text(out, id, *stream, text).await?;
                }
                Ok(moved)
            }
            Self::Events {
                sender,
                stream,
                carry,
                buffer,
            } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved
                    && let Some(event) = stream_event(*stream, carry.exact(&buffer[..count]))
                {
                    sender.send(event).await.map_err(|_| Error::Gone)?;
                }
                Ok(moved)
            }
            Self::Collect {
                kept,
                truncated,
                buffer,
            } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved {
                    let taken = count.min(COLLECT_LIMIT - kept.len());
                    kept.extend_from_slice(&buffer[..taken]);
                    *truncated |= taken < count;
                }
                Ok(moved)
            }
            Self::Terminal { output, buffer } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved {
                    output.push(&buffer[..count]);
                }
                Ok(moved)
            }
            Self::Kept { kept, stream, buffer } => match kept.forward(source, *stream, limit).await {
                Some(moved) => Ok(moved),
                None => Ok(read(source, buffer, limit)),
            },
            Self::Discard { buffer } => Ok(read(source, buffer, limit)),
        }
    }

    /// Sends the bytes that were held back. To be called after the last byte.
    pub async fn finish(&mut self) -> Result<()> {
        match self {
            Self::Text {
                out, id, stream, carry, ..
            } => {
                let text = carry.finish_lossy();
                send_text(out, id, *stream, text).await
            }
            Self::Events {
                sender, stream, carry, ..
            } => match stream_event(*stream, Err(carry.finish())) {
                Some(event) => sender.send(event).await.map_err(|_| Error::Gone),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Returns the text that a `Collect` sink has kept, and whether it dropped some.
    pub fn collected(self) -> (String, bool) {
        match self {
            Self::Collect { kept, truncated, .. } => {
                let text = String::from_utf8(kept)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                (text, truncated)
            }
            _ => (String::new(), false),
        }
    }
}

fn read(source: &Source, buffer: &mut Vec<u8>, limit: usize) -> Moved {
    // The buffer is only as large as needed, because most commands print a line or nothing.
    let size = source.pending().clamp(1, limit.min(CHUNK));
    if buffer.len() < size {
        *buffer = vec![0; size];
    }
    source.read(&mut buffer[..size])
}

async fn send_text(out: &Outbox, id: &Value, stream: u8, data: String) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let event = if stream == STDERR {
        OldEvent::Stderr { id, data }
    } else {
        OldEvent::Stdout { id, data }
    };
    out.json(&event).await
}

/// Returns the event for a piece of output, unless the piece is empty.
fn stream_event(stream: u8, piece: std::result::Result<String, Vec<u8>>) -> Option<Bytes> {
    let is_empty = piece.as_ref().map_or_else(Vec::is_empty, String::is_empty);
    (!is_empty).then(|| sse(&StreamEvent::piece(stream == STDERR, piece)))
}

/// Encodes one server-sent event. JSON never contains a line break, so it fits on one line.
pub fn sse(event: &StreamEvent) -> Bytes {
    let text = serde_json::to_string(event).unwrap_or_default();
    Bytes::from(format!("data: {text}\n\n"))
}

/// After a command has exited, its descendants may hold the pipe open for this long.
const GRACE: Duration = Duration::from_millis(50);

/// After a client has canceled, it may withhold credit for this long before the rest is dropped.
const PATIENCE: Duration = Duration::from_secs(1);
const YIELD_FROM: usize = 16 * 1024;

/// The time of a command's end, and whether its client had canceled it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub time: Instant,
    pub canceled: bool,
}

/// Holds `None` while the command runs.
pub type Exited = watch::Receiver<Option<End>>;

/// Moves everything from the source to the sink. Returns whether the source has ended; if it has
/// not, a descendant of the command still holds it.
pub async fn pump(source: &Source, sink: &mut Sink, exited: Exited) -> bool {
    let ended = drain(source, sink, exited).await;
    // If the receiver is gone, nobody needs to be told.
    let _ = sink.finish().await;
    ended
}

async fn drain(source: &Source, sink: &mut Sink, exited: Exited) -> bool {
    let mut grace = std::pin::pin!(grace_over(exited.clone()));
    // After the grace, only what is in the pipe at that time is read, so that a flood cannot go on
    // forever.
    let mut left: Option<usize> = None;
    while left != Some(0) {
        let room = tokio::select! {
            biased;
            () = &mut grace, if left.is_none() => {
                left = Some(source.pending());
                continue;
            }
            room = sink.room() => room.ok(),
            () = patience_over(exited.clone()) => None,
        };
        let Some(room) = room else {
            *sink = Sink::discard();
            continue;
        };
        let limit = match left {
            None => tokio::select! {
                biased;
                () = &mut grace => {
                    left = Some(source.pending());
                    continue;
                }
                () = source.ready() => room,
            },
            Some(count) => room.min(count),
        };
        match sink.pull(source, limit).await {
            Ok(Moved::Bytes(count)) => {
                left = left.map(|left| left.saturating_sub(count));
                // A flood must not keep the only thread from all other work.
                if count >= YIELD_FROM {
                    tokio::task::yield_now().await;
                }
            }
            Ok(Moved::Empty) => left = left.map(|_| 0),
            Ok(Moved::End) => return true,
            // The receiver is gone, and the bytes on their way to it are lost.
            Err(_) => *sink = Sink::discard(),
        }
    }
    false
}

async fn grace_over(mut exited: Exited) {
    let end = exited.wait_for(Option::is_some).await.ok().and_then(|end| *end);
    // If there is no end, the command's task is gone and there is nothing to wait for.
    if let Some(end) = end {
        sleep_until(end.time + GRACE).await;
    }
}

/// Waits until a canceled command's output may be dropped. It is still sent before, but the client
/// need not take it.
async fn patience_over(mut exited: Exited) {
    let canceled = |end: &Option<End>| end.is_some_and(|end| end.canceled);
    if exited.wait_for(canceled).await.is_err() {
        return std::future::pending().await;
    }
    sleep(PATIENCE).await;
}

/// Reads and drops the output of a descendant that outlives the call, so that its next write does
/// not kill it.
pub async fn discard(source: Source) {
    let mut sink = Sink::discard();
    loop {
        source.ready().await;
        if matches!(sink.pull(&source, usize::MAX).await, Ok(Moved::End) | Err(_)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}
