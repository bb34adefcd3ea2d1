//! Carries out the requests of a session that need its channels. `requests::methods` does all others.

use std::sync::Arc;

use super::state::{Origin, Session};
use super::{connections, exec, files, kept, listening, pty, watching};
use crate::base::error::{Error, Result};
use crate::base::params::wrong;
use crate::link::channel::{CANCEL_GRACE, Channel, Stop, WindowSize};
use crate::link::wire;
use crate::processes::signals::Signal;
use crate::requests::methods::{self, Answer, ChannelAnswer, ChannelRequest, Request, Typed};

/// A request, and its channel if it has one.
type Opened = (Request, Option<Arc<Channel>>);

/// Opens the channel of a request, if it needs one. Fails when too many channels are open, or when
/// the request needs a handshake first.
pub fn open_channel(session: &Session, origin: &Origin, request: Request) -> Result<Opened> {
    let Request::Channel(asked) = &request else {
        return Ok((request, None));
    };
    let (window, takes_input, needs_hello) = match asked {
        ChannelRequest::Execute(_, _, opening) => (opening.window, false, None),
        ChannelRequest::ExecuteStream(_, streaming, opening) => {
            (opening.window, streaming.stdin, streaming.keep.then_some("keep"))
        }
        ChannelRequest::CommandAttach(wanted, opening) => (opening.window, wanted.stdin, Some("command_attach")),
        ChannelRequest::FileRead(_, opening) => (opening.window, false, Some("file_read")),
        ChannelRequest::FileWrite(_, opening) => (opening.window, true, Some("file_write")),
        ChannelRequest::PtyOpen(_, _, _, opening) => (opening.window, true, Some("pty_open")),
        ChannelRequest::PtyAttach(wanted, _, opening) => (opening.window, !wanted.watch, Some("pty_attach")),
        ChannelRequest::Dial(_, opening) => (opening.window, true, Some("dial")),
        ChannelRequest::Accept { window, .. } => (*window, true, Some("accept")),
        ChannelRequest::Listen(_) => (WindowSize::default(), false, Some("listen")),
        ChannelRequest::Watch(_, opening) => (opening.window, true, Some("watch")),
        ChannelRequest::Sftp(_, opening) => (opening.window, true, Some("sftp")),
        _ => return Ok((request, None)),
    };
    if let (Some(method), false) = (needs_hello, session.framed) {
        return Err(Error::BadRequest(format!("{method} needs a hello first")));
    }
    let channel = session.open_channel(origin.number, window.0, takes_input)?;
    Ok((request, Some(channel)))
}

/// Carries out a request and replies to it.
pub async fn run(session: &Arc<Session>, origin: &Origin, (request, channel): Opened) {
    let mut limit = wire::JSON_LIMIT;
    let result = match (request, channel) {
        (Request::Common(request), _) => methods::call(&session.agent, request, Some(&session.closed))
            .await
            .map(Some),
        (Request::Channel(request), None) => call(session, request).await.map(Answer::Channel).map(Some),
        (Request::Channel(request), Some(channel)) => {
            if matches!(request, ChannelRequest::Execute(..)) {
                limit = wire::EXECUTE_LIMIT;
            }
            let result = call_on(session, origin, request, &channel).await;
            session.channels.remove(&channel);
            result.map(|answer| answer.map(Answer::Channel))
        }
    };
    if let Some(result) = result.transpose() {
        session.reply(origin, result, limit).await;
    }
}

/// Carries out a request on its channel. Returns `Ok(None)` when the reply has been sent already.
async fn call_on(
    session: &Arc<Session>,
    origin: &Origin,
    request: ChannelRequest,
    channel: &Arc<Channel>,
) -> Result<Option<ChannelAnswer>> {
    match request {
        ChannelRequest::Execute(program, input, _) => {
            return exec::execute(session, program, input, channel).await.map(Some);
        }
        ChannelRequest::FileWrite(wanted, _) => {
            return files::write_from_client(session, wanted, channel).await.map(Some);
        }
        ChannelRequest::ExecuteStream(program, streaming, _) => {
            exec::execute_stream(session, origin, program, &streaming, channel).await?;
        }
        ChannelRequest::CommandAttach(wanted, _) => kept::resume(session, origin, &wanted, channel).await?,
        ChannelRequest::FileRead(wanted, _) => files::read_to_client(session, origin, wanted, channel).await?,
        ChannelRequest::PtyOpen(program, terminal, size, _) => {
            pty::open(session, origin, (program, terminal, size), channel).await?;
        }
        ChannelRequest::PtyAttach(wanted, size, _) => pty::attach(session, origin, &wanted, size, channel).await?,
        ChannelRequest::Dial(address, _) => connections::dial(session, origin, address, channel).await?,
        ChannelRequest::Accept { connection, .. } => {
            let socket = session.waiting.take(connection)?;
            connections::serve(session, origin, socket, channel).await?;
        }
        ChannelRequest::Listen(address) => listening::listen(session, origin, address, channel).await?,
        ChannelRequest::Watch(wanted, _) => watching::watch(session, origin, wanted, channel).await?,
        ChannelRequest::Sftp(wanted, _) => exec::sftp(session, origin, &wanted, channel).await?,
        request => return call(session, request).await.map(Some),
    }
    Ok(None)
}

/// Carries out a request that has no channel of its own.
async fn call(session: &Session, request: ChannelRequest) -> Result<ChannelAnswer> {
    match request {
        // The token was checked when the request was admitted.
        ChannelRequest::Authenticate { .. } => Ok(ChannelAnswer::Authenticated { authenticated: true }),
        ChannelRequest::Stdin(typed) => push_input(session, &typed).await,
        ChannelRequest::Signal { id, signal } => send_signal(session, id, signal),
        ChannelRequest::Cancel { id, grace } => {
            match session.channels.find(id) {
                Some(channel) => channel.stop(Stop::Cancel(grace.0.unwrap_or(CANCEL_GRACE))),
                None if session.is_past(id) => {}
                None => return Err(no_channel(id)),
            }
            Ok(ChannelAnswer::Done {})
        }
        // The attachment ends like a canceled request. The program does not notice.
        ChannelRequest::PtyDetach { id } => {
            require_channel(session, id)?.stop(Stop::Cancel(CANCEL_GRACE));
            Ok(ChannelAnswer::Done {})
        }
        _ => Err(Error::BadRequest("the request needs a channel".into())),
    }
}

async fn push_input(session: &Session, typed: &Typed) -> Result<ChannelAnswer> {
    let channel = require_channel(session, typed.id)?;
    if !channel.takes_input {
        return Err(Error::BadRequest(format!("channel {} takes no input", channel.id)));
    }
    channel.input.push(&typed.data.0, typed.eof).await;
    Ok(ChannelAnswer::Done {})
}

fn send_signal(session: &Session, id: u32, signal: Signal) -> Result<ChannelAnswer> {
    let delivered = match session.channels.find(id) {
        Some(channel) => channel.signal(signal.0),
        None if session.is_past(id) => false,
        None => return Err(no_channel(id)),
    };
    Ok(ChannelAnswer::Delivered { delivered })
}

fn require_channel(session: &Session, id: u32) -> Result<Arc<Channel>> {
    if id == 0 {
        return Err(wrong("id", "must be a channel"));
    }
    session.channels.find(id).ok_or_else(|| no_channel(id))
}

fn no_channel(id: u32) -> Error {
    Error::NotFound(format!("channel {id}"))
}
