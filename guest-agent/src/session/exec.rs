//! Commands on the channels of a session.

use std::sync::Arc;

use super::kept;
use super::state::{Origin, Session};
use crate::channel::Channel;
use crate::command::{Command, Program};
use crate::error::Result;
use crate::events::OldEvent;
use crate::exec::{self, Ties};
use crate::feed::Stdin;
use crate::methods::{Answer, ChannelAnswer, Input, SftpUser, Streaming};
use crate::output::Sink;
use crate::wire::{self, STDERR, STDOUT};

/// Runs a command and returns its output.
pub async fn execute(session: &Session, program: Program, input: Input, channel: &Channel) -> Result<ChannelAnswer> {
    let command = Command::new(program, &session.agent.me)?;
    let ties = Ties {
        channel,
        closed: Some(&session.closed),
    };
    let input = input.stdin.map(|input| input.0);
    let collected = exec::collect(&session.agent, command, input, ties).await?;
    Ok(ChannelAnswer::Collected(collected))
}

/// Runs a command and sends its output while it runs. A session with frames gets the reply first
/// and the event `exit` last.
pub async fn execute_stream(
    session: &Arc<Session>,
    origin: &Origin,
    program: Program,
    streaming: &Streaming,
    channel: &Arc<Channel>,
) -> Result<()> {
    let command = Command::new(program, &session.agent.me)?;
    if streaming.keep {
        return kept::start(session, origin, command, channel).await;
    }
    stream(session, origin, command, streaming.detach, channel).await
}

/// Starts the SFTP server of a user, which speaks on the channel.
pub async fn sftp(session: &Arc<Session>, origin: &Origin, wanted: &SftpUser, channel: &Arc<Channel>) -> Result<()> {
    let command = Command::of_sftp(wanted.user.as_deref(), &session.agent.me)?;
    stream(session, origin, command, false, channel).await
}

async fn stream(
    session: &Arc<Session>,
    origin: &Origin,
    command: Command,
    detach: bool,
    channel: &Arc<Channel>,
) -> Result<()> {
    let running = exec::start(&session.agent, command, channel.takes_input).await?;
    // Clients without a handshake expect nothing but the stream.
    if session.framed {
        let started = ChannelAnswer::Started {
            channel: channel.id,
            pid: running.pid(),
            command: None,
        };
        session
            .reply(origin, Ok(Answer::Channel(started)), wire::JSON_LIMIT)
            .await;
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
            Sink::text(&session.out, &origin.id, stream)
        }
    });
    let ties = Ties {
        channel,
        closed: (!detach).then_some(&session.closed),
    };
    let outcome = exec::run(running, stdin, [&mut stdout, &mut stderr], ties).await;
    if session.framed {
        session.event(&outcome.exit_event(channel.id)).await;
    } else {
        let (id, exit_code) = (&origin.id, outcome.exit_code);
        session.event(&OldEvent::Exit { id, exit_code }).await;
    }
    Ok(())
}
