//! The frames that the agent sends beside its replies.

use serde::Serialize;
use serde_json::Value;

use crate::base::base64;
use crate::base::error::Refusal;

/// An event of a session.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The agent has started, so every earlier session is gone.
    Started,
    /// The session ends, because its client broke the protocol.
    Closed { error: Refusal },
    /// A command or the program on a terminal has ended.
    Exit {
        channel: u32,
        exit_code: i32,
        signal: Option<i32>,
        timed_out: bool,
        canceled: bool,
        duration_s: f64,
        /// The client's breach of the protocol, if it ended the command.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Refusal>,
    },
    /// The peer of a connection has sent its last byte; the client may still send.
    Eof { channel: u32 },
    /// Somebody in the guest has connected to a socket of the client, which takes the connection by
    /// its number. `port` is that of the peer, if it has one.
    Accepted {
        channel: u32,
        connection: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// The contents of a file, a connection or a listener have ended. `bytes` were sent.
    End {
        channel: u32,
        bytes: u64,
        error: Option<Refusal>,
    },
    /// Output of a terminal was left out, because the client was too slow.
    Lagged { channel: u32 },
}

/// An event on a stream of HTTP. A piece of output is text, or base64 if it is not UTF-8.
#[derive(Debug, Serialize)]
#[serde(tag = "stream", rename_all = "snake_case")]
pub enum StreamEvent {
    Start {
        id: u32,
        pid: i32,
    },
    Stdout {
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        data_b64: Option<String>,
    },
    Stderr {
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        data_b64: Option<String>,
    },
    Lagged {},
    Exit {
        exit_code: i32,
        signal: Option<i32>,
        timed_out: bool,
    },
}

impl StreamEvent {
    /// Makes the event for a piece of standard output, or of standard error.
    pub fn piece(is_stderr: bool, piece: Result<String, Vec<u8>>) -> Self {
        let (data, data_b64) = match piece {
            Ok(text) => (Some(text), None),
            Err(bytes) => (None, Some(base64::encode(&bytes))),
        };
        if is_stderr {
            Self::Stderr { data, data_b64 }
        } else {
            Self::Stdout { data, data_b64 }
        }
    }
}

/// A frame for a client without a handshake. `id` is that of its request.
#[derive(Debug, Serialize)]
#[serde(tag = "stream", rename_all = "snake_case")]
pub enum OldEvent<'a> {
    Stdout { id: &'a Value, data: String },
    Stderr { id: &'a Value, data: String },
    Exit { id: &'a Value, exit_code: i32 },
}
