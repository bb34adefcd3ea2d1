//! Commands on the channels of a session.

use std::sync::Arc;

use serde_json::{Value, json};

use super::state::{Request, Session};
use crate::channel::Channel;
use crate::command::Command;
use crate::error::Result;
use crate::exec::{self, Ties};
use crate::feed::Stdin;
use crate::output::Sink;
use crate::params::Params;
use crate::wire::{self, STDERR, STDOUT};

/// Runs a command and returns its output.
pub async fn execute(session: &Session, params: &Params, channel: &Channel) -> Result<Value> {
    let command = Command::from_params(params, &session.agent.me)?;
    let ties = Ties {
        channel,
        closed: Some(&session.closed),
    };
    exec::collect(&session.agent, command, params.opt_bytes("stdin")?, ties).await
}

/// Runs a command and sends its output while it runs. A session with frames gets the reply first
/// and the event `exit` last.
pub async fn execute_stream(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<()> {
    let params = &request.params;
    let command = Command::from_params(params, &session.agent.me)?;
    let detach = params.flag("detach", false)?;
    let running = exec::start(&session.agent, command, channel.takes_input).await?;
    // Clients without a handshake expect nothing but the stream.
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
