//! The requests of a session. Those that need its channels are carried out here, all others in
//! `methods`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::state::{Request, Session};
use super::{exec, files, pty};
use crate::channel::{self, CANCEL_GRACE, Channel, Stop};
use crate::error::{Error, Result};
use crate::params::{Params, wrong};
use crate::{machine, methods, signals};

/// Opens the channel of a request, if it needs one. Fails when the parameters are wrong, when too
/// many channels are open, or when the request needs a handshake first.
pub fn open_channel(session: &Session, request: &Request) -> Result<Option<Arc<Channel>>> {
    let takes_input = match request.method.as_str() {
        "execute_stream" => request.params.flag("stdin", false)?,
        "file_write" | "pty_open" | "pty_attach" => true,
        "execute" | "file_read" => false,
        _ => return Ok(None),
    };
    if !session.framed && !matches!(request.method.as_str(), "execute" | "execute_stream") {
        return Err(Error::BadRequest(format!("{} needs a hello first", request.method)));
    }
    let window = channel::requested_window(&request.params)?;
    session.open_channel(request, window, takes_input).map(Some)
}

/// Carries out a request. Returns `Ok(None)` when the method has sent its reply itself.
pub async fn run(session: &Arc<Session>, request: &Request, channel: Option<&Arc<Channel>>) -> Result<Option<Value>> {
    if let Some(channel) = channel {
        let result = run_on_channel(session, request, channel).await;
        session.channels.remove(channel);
        return result;
    }
    let params = &request.params;
    let result = match request.method.as_str() {
        "stdin" => push_input(session, params).await,
        "signal" => signal(session, params),
        "cancel" => cancel(session, params),
        "pty_detach" => pty_detach(session, params),
        method @ ("freeze" | "thaw") => {
            machine::freeze_or_thaw(&session.agent, method, params, Some(&session.closed)).await
        }
        method => methods::call(&session.agent, method, params).await,
    };
    result.map(Some)
}

async fn run_on_channel(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<Option<Value>> {
    match request.method.as_str() {
        "execute" => exec::execute(session, &request.params, channel).await.map(Some),
        "execute_stream" => exec::execute_stream(session, request, channel).await.map(|()| None),
        "file_read" => files::read_to_client(session, request, channel).await.map(|()| None),
        "file_write" => files::write_from_client(session, &request.params, channel)
            .await
            .map(Some),
        "pty_open" => pty::open(session, request, channel).await.map(|()| None),
        _ => pty::attach(session, request, channel).await.map(|()| None),
    }
}

async fn push_input(session: &Session, params: &Params) -> Result<Value> {
    let channel = require_channel(session, params)?;
    if !channel.takes_input {
        return Err(Error::BadRequest(format!("channel {} takes no input", channel.id)));
    }
    let data = params.opt_bytes("data")?.unwrap_or_default();
    channel.input.push(&data, params.flag("eof", false)?).await;
    Ok(json!({}))
}

fn signal(session: &Session, params: &Params) -> Result<Value> {
    let signal = signals::requested(params)?;
    let id = params.u32("id")?;
    let delivered = match session.channels.find(id) {
        Some(channel) => channel.signal(signal),
        None if session.is_past(id) => false,
        None => return Err(no_channel(id)),
    };
    Ok(json!({"delivered": delivered}))
}

fn cancel(session: &Session, params: &Params) -> Result<Value> {
    let id = params.u32("id")?;
    match session.channels.find(id) {
        Some(channel) => channel.stop(Stop::Cancel(params.opt_seconds("grace")?.unwrap_or(CANCEL_GRACE))),
        None if session.is_past(id) => {}
        None => return Err(no_channel(id)),
    }
    Ok(json!({}))
}

/// Ends the attachment like a canceled request. The program does not notice.
fn pty_detach(session: &Session, params: &Params) -> Result<Value> {
    let channel = require_channel(session, params)?;
    channel.stop(Stop::Cancel(CANCEL_GRACE));
    Ok(json!({}))
}

fn require_channel(session: &Session, params: &Params) -> Result<Arc<Channel>> {
    let id = params.u32("id")?;
    if id == 0 {
        return Err(wrong("id", "must be a channel"));
    }
    session.channels.find(id).ok_or_else(|| no_channel(id))
}

fn no_channel(id: u32) -> Error {
    Error::NotFound(format!("channel {id}"))
}
