//! The requests of a session: those with channels here, all others in `methods`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::channel::{CANCEL_GRACE, Channel, Stop};
use crate::command::Command;
use crate::error::{Error, Result};
use crate::exec::{self, Ties};
use crate::feed::Stdin;
use crate::params::{Params, wrong};
use crate::session::{Request, Session};
use crate::signals;
use crate::sink::Sink;
use crate::wire::{STDERR, STDOUT};
use crate::{freeze, methods, pty_client, transfer, window, wire};

/// The channel of a request that has one.
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
    let window = window::requested(&request.params)?;
    session.open(request, window, takes_input).map(Some)
}

/// `Ok(None)` when the method has sent its reply itself.
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
        method @ ("freeze" | "thaw") => freeze::call(&session.agent, method, params, Some(&session.closed)).await,
        method => methods::call(&session.agent, method, params).await,
    };
    result.map(Some)
}

async fn run_on_channel(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<Option<Value>> {
    match request.method.as_str() {
        "execute" => execute(session, &request.params, channel).await.map(Some),
        "execute_stream" => execute_stream(session, request, channel).await.map(|()| None),
        "file_read" => transfer::read_to_client(session, request, channel).await.map(|()| None),
        "file_write" => transfer::write_from_client(session, &request.params, channel)
            .await
            .map(Some),
        "pty_open" => pty_client::open(session, request, channel).await.map(|()| None),
        _ => pty_client::attach(session, request, channel).await.map(|()| None),
    }
}

async fn execute(session: &Session, params: &Params, channel: &Channel) -> Result<Value> {
    let command = Command::from_params(params, &session.agent.me)?;
    let ties = Ties {
        channel,
        closed: Some(&session.closed),
    };
    exec::collect(&session.agent, command, params.opt_str("stdin")?, ties).await
}

async fn execute_stream(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<()> {
    let params = &request.params;
    let command = Command::from_params(params, &session.agent.me)?;
    let detach = params.flag("detach", false)?;
    let running = exec::start(&session.agent, command, channel.takes_input).await?;
    // Old clients expect nothing but the stream.
    if session.framed {
        let started = json!({"channel": channel.id, "pid": running.pid()});
        session.reply(request, Ok(started), wire::JSON_LIMIT).await;
    }
    let stdin = if channel.takes_input {
        Stdin::Channel(channel, session.framed.then(|| session.out.clone()))
    } else {
        Stdin::None
    };
    let [mut stdout, mut stderr] = [STDOUT, STDERR].map(|stream| {
        if session.framed {
            Sink::frames(&session.out, channel, stream)
        } else {
            Sink::text(&session.out, &request.id, stream)
        }
    });
    let ties = Ties {
        channel,
        closed: (!detach).then_some(&session.closed),
    };
    let outcome = exec::run(running, stdin, [&mut stdout, &mut stderr], ties).await;
    let event = if session.framed {
        outcome.exit_event(channel.id)
    } else {
        json!({"id": request.id, "stream": "exit", "exit_code": outcome.exit_code})
    };
    session.event(&event).await;
    Ok(())
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

/// The attachment ends like a canceled one: the program knows nothing of it.
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
