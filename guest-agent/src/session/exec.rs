//! Commands on the channels of a session.

use std::sync::Arc;

use super::kept;
use super::state::{Origin, Session};
use crate::base::error::Result;
use crate::link::channel::Channel;
use crate::link::events::OldEvent;
use crate::link::wire::{STDERR, STDOUT};
use crate::processes::command::{Command, Program};
use crate::processes::exec::{self, Ties};
use crate::processes::feed::Stdin;
use crate::processes::output::Sink;
use crate::requests::methods::{ChannelAnswer, Input, SftpUser, Streaming};

/// Runs a command and returns its output.
pub async fn execute(session: &Session, program: Program, input: Input, channel: &Channel) -> Result<ChannelAnswer> {
    let command = Command::new(program, &session.agent.commands.me)?;
    let ties = Ties::new(channel, Some(&session.closed));
    let input = input.stdin.map(|input| input.0);
    let collected = exec::collect(&session.agent.commands, command, input, ties).await?;
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
    let command = Command::new(program, &session.agent.commands.me)?;
    if streaming.keep {
        return kept::start(session, origin, command, channel).await;
    }
    stream(session, origin, command, streaming.detach, channel).await
}

/// Starts the SFTP server of a user, which speaks on the channel.
pub async fn sftp(session: &Arc<Session>, origin: &Origin, wanted: &SftpUser, channel: &Arc<Channel>) -> Result<()> {
    let command = Command::of_sftp(wanted.user.as_deref(), &session.agent.commands.me)?;
    stream(session, origin, command, false, channel).await
}

async fn stream(
    session: &Arc<Session>,
    origin: &Origin,
    command: Command,
    detach: bool,
    channel: &Arc<Channel>,
) -> Result<()> {
    let running = exec::start(&session.agent.commands, command, channel.takes_input).await?;
    // Clients without a handshake expect nothing but the stream.
    if session.framed {
        let started = ChannelAnswer::Started {
            channel: channel.id,
            pid: running.pid(),
            command: None,
        };
        session.answer(origin, started).await;
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
    let ties = Ties::new(channel, (!detach).then_some(&session.closed));
    let outcome = exec::run(running, stdin, [&mut stdout, &mut stderr], ties).await;
    if session.framed {
        session.event(&outcome.exit_event(channel.id)).await;
    } else {
        let (id, exit_code) = (&origin.id, outcome.exit_code);
        session.event(&OldEvent::Exit { id, exit_code }).await;
    }
    Ok(())
}
