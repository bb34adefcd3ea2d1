//! Terminals over HTTP: output as events, input as request bodies.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::body::{Events, Name, QUEUE, Reply, readable, whole};
use super::query::parse_query;
use crate::base::error::{Error, Result};
use crate::link::events::StreamEvent;
use crate::processes::feed;
use crate::processes::output::sse;
use crate::processes::pty::{Attachment, Next, replayed};
use crate::processes::scrollback::Role;
use crate::requests::agent::Agent;
use crate::requests::methods::ChannelAnswer;

const CHUNK: usize = 32 * 1024;
const INPUT_LIMIT: usize = 1 << 20;

/// The parameters of a client that watches a terminal.
#[derive(Deserialize)]
struct Watching {
    /// The number of bytes of earlier output that are repeated.
    replay: Option<u64>,
}

/// Streams the output of a terminal, beginning with the last `replay` bytes. Fails with `NotFound`
/// when there is no such terminal.
pub async fn output(State(agent): State<Arc<Agent>>, session: Name, RawQuery(query): RawQuery) -> Result<Events> {
    let session = readable(session)?;
    let pty = agent.ptys.find(&session)?;
    let Watching { replay } = parse_query(query)?.take()?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(deliver(Attachment::new(&pty, replayed(replay), Role::Client), sender));
    Ok(Events(receiver))
}

/// Ends when the program has ended or the client is gone.
async fn deliver(attachment: Attachment, sender: mpsc::Sender<Bytes>) {
    let mut changes = attachment.pty.output.changes();
    let mut buffer = vec![0; CHUNK];
    loop {
        let (event, is_last) = match attachment.next() {
            Next::Lagged => (StreamEvent::Lagged {}, false),
            Next::Exit(exit) => {
                let event = StreamEvent::Exit {
                    exit_code: exit.exit_code,
                    signal: exit.signal,
                    timed_out: false,
                };
                (event, true)
            }
            Next::Output => {
                // Room is reserved first, because bytes that were taken must not be lost.
                let Ok(place) = sender.reserve().await else {
                    return;
                };
                let count = attachment.copy(&mut buffer);
                if count > 0 {
                    // Pieces may end within a character, so all of them are base64.
                    place.send(sse(&StreamEvent::piece(false, Err(buffer[..count].to_vec()))));
                }
                continue;
            }
            Next::Nothing => {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
                continue;
            }
        };
        if sender.send(sse(&event)).await.is_err() || is_last {
            return;
        }
    }
}

/// Writes the body to a terminal. Fails with `NotFound` when there is no such terminal or its
/// program has ended.
pub async fn input(State(agent): State<Arc<Agent>>, session: Name, body: Body) -> Result<Reply<ChannelAnswer>> {
    let session = readable(session)?;
    let pty = agent.ptys.find(&session)?;
    let bytes = whole(body, "the input", INPUT_LIMIT).await?;
    tokio::select! {
        written = feed::write_all(pty.master.fd(), &bytes) => {
            written.map_err(|error| Error::io(format!("PTY session {session:?}"), error))?;
        }
        () = pty.ended() => return Err(Error::NotFound(format!("the program of PTY session {session:?}"))),
    }
    Ok(Reply(ChannelAnswer::Done {}))
}
