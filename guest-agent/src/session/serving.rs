//! Serves one client after the other on a link.

use std::sync::Arc;

use super::requests;
use super::state::{Asked, Call, Origin, Session};
use crate::base::error::{Error, Result};
use crate::link::port::{Link, Received};
use crate::link::wire::{self, Decoder, Frame};
use crate::requests::agent::Agent;

/// Serves the link until the client is gone, or until it breaks the protocol on a socket. On a port
/// the next session follows.
pub async fn serve(agent: &Arc<Agent>, link: Arc<Link>) {
    let mut decoder = Decoder::default();
    let mut session = Session::new(agent, &link, false);
    // A port may begin with what an earlier client has left there.
    let mut seeking = link.is_port();
    loop {
        let result = if seeking {
            wire::find_opening(decoder.buffer()).map(Frame::Json).map(Ok)
        } else {
            decoder
                .next_frame()
                .map_err(|error| Error::BadRequest(error.to_string()))
                .transpose()
        };
        let broken = match result {
            Some(Ok(frame)) => {
                seeking = false;
                handle(&session, frame, &link).await
            }
            Some(Err(error)) => Err(error),
            None => match link.read(decoder.buffer()).await {
                Ok(Received::Bytes) => Ok(None),
                // This hang-up is that of the client before this one, noticed late.
                Ok(Received::Reconnected) if session.is_fresh() => Ok(None),
                Ok(_) | Err(_) => break,
            },
        };
        match broken {
            Ok(None) => {}
            Ok(Some(fresh)) => session = fresh,
            Err(error) => {
                session.farewell(&error).await;
                session.end();
                if !link.is_port() {
                    break;
                }
                session = Session::new(agent, &link, false);
                seeking = true;
            }
        }
    }
    session.end();
}

/// Handles one frame. Returns the new session if the frame was a `hello`. An error means that the
/// client broke the protocol.
async fn handle(session: &Arc<Session>, frame: Frame, link: &Arc<Link>) -> Result<Option<Arc<Session>>> {
    match frame {
        Frame::Json(bytes) => {
            let Call { origin, asked } = Call::parse(&bytes)?;
            match asked {
                Ok(Asked { method, params }) if method == "hello" => {
                    session.end();
                    let fresh = Session::new(&session.agent, link, true);
                    fresh.greet(&origin, params).await;
                    return Ok(Some(fresh));
                }
                asked => start(session, origin, asked).await,
            }
        }
        Frame::Data { stream, channel, bytes } => session.take_input(stream, channel, &bytes),
        Frame::Credit { stream, channel, count } => session.take_credit(stream, channel, count),
    }
    Ok(None)
}

/// Checks one request and starts a task for it. Its channel is opened before this returns, so that
/// the input that follows finds it.
async fn start(session: &Arc<Session>, origin: Origin, asked: Result<Asked>) {
    let Some(place) = session.request_place().await else {
        return;
    };
    let opened = session
        .admit(&origin, asked)
        .and_then(|request| requests::open_channel(session, &origin, request));
    let session = session.clone();
    tokio::spawn(async move {
        match opened {
            Ok(opened) => requests::run(&session, &origin, opened).await,
            Err(error) => session.reply(&origin, Err(error), wire::JSON_LIMIT).await,
        }
        drop(place);
    });
}
