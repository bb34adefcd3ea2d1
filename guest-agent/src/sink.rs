//! Where the output of a command goes.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::base64;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::outbox::Outbox;
use crate::pty::Pty;
use crate::source::{Moved, Source};
use crate::text::Utf8Carry;
use crate::wire::{STDERR, STDOUT};

const CHUNK: usize = 64 * 1024;
/// What `execute` keeps of each stream.
pub const COLLECT_LIMIT: usize = 1 << 20;

#[derive(Debug)]
pub enum Sink {
    /// Data frames with flow control.
    Frames {
        out: Arc<Outbox>,
        channel: Arc<Channel>,
        stream: u8,
    },
    /// JSON frames of text, for sessions without a handshake.
    Text {
        out: Arc<Outbox>,
        id: Value,
        name: &'static str,
        carry: Utf8Carry,
        buffer: Vec<u8>,
    },
    /// Server-sent events.
    Events {
        sender: mpsc::Sender<Bytes>,
        name: &'static str,
        carry: Utf8Carry,
        buffer: Vec<u8>,
    },
    /// The first part is kept.
    Collect {
        kept: Vec<u8>,
        truncated: bool,
        buffer: Vec<u8>,
    },
    /// The scrollback of a terminal, from which its clients are served.
    Terminal {
        pty: Arc<Pty>,
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
            name: stream_name(stream),
            carry: Utf8Carry::default(),
            buffer: Vec::new(),
        }
    }

    pub fn events(sender: &mpsc::Sender<Bytes>, stream: u8) -> Self {
        Self::Events {
            sender: sender.clone(),
            name: stream_name(stream),
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

    pub fn terminal(pty: &Arc<Pty>) -> Self {
        Self::Terminal {
            pty: pty.clone(),
            buffer: Vec::new(),
        }
    }

    pub fn discard() -> Self {
        Self::Discard { buffer: Vec::new() }
    }

    /// Waits until the receiver takes more; says how much.
    pub async fn room(&self) -> Result<usize> {
        match self {
            Self::Frames { out, channel, stream } => match channel.window(*stream) {
                Some(window) => window.room(&out.closed).await,
                None => Err(Error::Gone),
            },
            Self::Terminal { pty, .. } => {
                while !pty.state().output.takes_more() {
                    pty.advanced.notified().await;
                }
                Ok(CHUNK)
            }
            _ => Ok(CHUNK),
        }
    }

    /// Moves at most `limit` bytes that wait in `source`.
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
                name,
                carry,
                buffer,
            } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved {
                    let text = carry.lossy(&buffer[..count]);
                    send_text(out, id, name, text).await?;
                }
                Ok(moved)
            }
            Self::Events {
                sender,
                name,
                carry,
                buffer,
            } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved
                    && let Some(event) = stream_event(name, carry, &buffer[..count])
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
            Self::Terminal { pty, buffer } => {
                let moved = read(source, buffer, limit);
                if let Moved::Bytes(count) = moved {
                    pty.state().output.push(&buffer[..count]);
                    pty.tell_news();
                }
                Ok(moved)
            }
            Self::Discard { buffer } => Ok(read(source, buffer, limit)),
        }
    }

    /// Sends what was held back, after the last byte.
    pub async fn finish(&mut self) -> Result<()> {
        match self {
            Self::Text {
                out, id, name, carry, ..
            } => {
                let text = carry.finish_lossy();
                send_text(out, id, name, text).await
            }
            Self::Events {
                sender, name, carry, ..
            } => {
                let rest = carry.finish();
                if rest.is_empty() {
                    return Ok(());
                }
                let event = sse(&json!({"stream": name, "data_b64": base64::encode(&rest)}));
                sender.send(event).await.map_err(|_| Error::Gone)
            }
            _ => Ok(()),
        }
    }

    /// What a `Collect` sink has kept: (text, truncated).
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

fn stream_name(stream: u8) -> &'static str {
    if stream == STDERR {
        "stderr"
    } else {
        debug_assert_eq!(stream, STDOUT);
        "stdout"
    }
}

fn read(source: &Source, buffer: &mut Vec<u8>, limit: usize) -> Moved {
    // As large as needed: most commands print a line or nothing.
    let size = source.pending().clamp(1, limit.min(CHUNK));
    if buffer.len() < size {
        *buffer = vec![0; size];
    }
    source.read(&mut buffer[..size])
}

async fn send_text(out: &Outbox, id: &Value, name: &str, text: String) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    out.json(&json!({"id": id, "stream": name, "data": text})).await
}

fn stream_event(name: &str, carry: &mut Utf8Carry, bytes: &[u8]) -> Option<Bytes> {
    let event = match carry.exact(bytes) {
        Ok(text) if text.is_empty() => return None,
        Ok(text) => json!({"stream": name, "data": text}),
        Err(bytes) => json!({"stream": name, "data_b64": base64::encode(&bytes)}),
    };
    Some(sse(&event))
}

/// One server-sent event: JSON never contains a line break.
pub fn sse(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
