//! Terminals over HTTP: output as events, input as request bodies.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use super::Reply;
use super::body::{Events, QUEUE};
use crate::agent::Agent;
use crate::base64;
use crate::error::{Error, Result};
use crate::params::wrong;
use crate::pty::DEFAULT_SCROLLBACK;
use crate::pty_client::{Attachment, Next};
use crate::sink::sse;

const CHUNK: usize = 32 * 1024;
const INPUT_LIMIT: usize = 1 << 20;

pub async fn output(
    State(agent): State<Arc<Agent>>,
    Path(session): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Events> {
    let pty = agent.ptys.find(&session)?;
    let replay = match query.as_deref().and_then(|query| query.strip_prefix("replay=")) {
        Some(text) => text.parse().map_err(|_| wrong("replay", "must be a number of bytes"))?,
        None => DEFAULT_SCROLLBACK as usize,
    };
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(deliver(Attachment::new(&pty, replay), sender));
    Ok(Events(receiver))
}

/// Ends with the program, or when the client is gone.
async fn deliver(attachment: Attachment, sender: mpsc::Sender<Bytes>) {
    let mut news = attachment.pty.news.subscribe();
    let mut buffer = vec![0; CHUNK];
    loop {
        let (event, is_last) = match attachment.next() {
            Next::Lagged => (json!({"stream": "lagged"}), false),
            Next::Exit(exit) => (
                json!({"stream": "exit", "exit_code": exit.code, "signal": exit.signal, "timed_out": false}),
                true,
            ),
            Next::Output => {
                // Room first: bytes that are taken must not be lost.
                let Ok(place) = sender.reserve().await else {
                    return;
                };
                let count = attachment.copy(&mut buffer);
                if count > 0 {
                    place.send(sse(
                        &json!({"stream": "stdout", "data_b64": base64::encode(&buffer[..count])}),
                    ));
                }
                continue;
            }
            Next::Nothing => {
                tokio::select! {
                    changed = news.changed() => if changed.is_err() { return },
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

pub async fn input(State(agent): State<Arc<Agent>>, Path(session): Path<String>, body: Body) -> Result<Reply> {
    let pty = agent.ptys.find(&session)?;
    let bytes = axum::body::to_bytes(body, INPUT_LIMIT)
        .await
        .map_err(|_| Error::TooLarge {
            what: "the input",
            limit: INPUT_LIMIT,
        })?;
    tokio::select! {
        written = crate::feed::write_all(pty.master.fd(), &bytes) => {
            written.map_err(|error| Error::io(format!("PTY session {session:?}"), error))?;
        }
        () = pty.ended() => return Err(Error::NotFound(format!("the program of PTY session {session:?}"))),
    }
    Ok(Reply(json!({})))
}
