//! Commands that outlive their session and can be attached to by a later one.

use std::pin::pin;
use std::sync::Arc;

use super::state::{Origin, Session};
use crate::base::error::Result;
use crate::link::channel::Channel;
use crate::link::wire::{STDERR, STDOUT};
use crate::processes::command::Command;
use crate::processes::exec::{self, Running, Ties};
use crate::processes::feed::{self, Stdin};
use crate::processes::kept::{Client, Kept, Seat};
use crate::processes::output::Sink;
use crate::requests::agent::Agent;
use crate::requests::methods::{ChannelAnswer, CommandAttachment};

/// Starts a command and serves it on the channel. Fails as `exec::start` does.
pub async fn start(session: &Arc<Session>, origin: &Origin, command: Command, channel: &Arc<Channel>) -> Result<()> {
    let agent = &session.agent;
    let mut running = exec::start(&agent.commands, command, channel.takes_input).await?;
    let stdin = running.take_stdin();
    let kept = agent.kept.add(running.pid(), channel, stdin);
    let seat = kept.seat().await;
    tell(session, origin, channel, &kept).await;
    if let Ok(seat) = seat {
        attach(session, channel, &kept);
        tokio::spawn(live(agent.clone(), kept.clone(), running));
        serve(session, channel, &kept, seat).await;
    } else {
        tokio::spawn(live(agent.clone(), kept, running));
    }
    Ok(())
}

/// Serves a command that was started before on the channel. Fails with `NotFound` when there is
/// none, and with `Busy` when another client is attached to it.
pub async fn resume(
    session: &Arc<Session>,
    origin: &Origin,
    wanted: &CommandAttachment,
    channel: &Arc<Channel>,
) -> Result<()> {
    let kept = session.agent.kept.find(&wanted.command)?;
    let seat = kept.seat().await?;
    channel.follow(&kept.first);
    tell(session, origin, channel, &kept).await;
    attach(session, channel, &kept);
    serve(session, channel, &kept, seat).await;
    Ok(())
}

async fn tell(session: &Session, origin: &Origin, channel: &Channel, kept: &Kept) {
    let started = ChannelAnswer::Started {
        channel: channel.id,
        pid: kept.pid,
        command: Some(kept.id.clone()),
    };
    session.answer(origin, started).await;
}

fn attach(session: &Session, channel: &Arc<Channel>, kept: &Kept) {
    kept.attach(Client {
        out: session.out.clone(),
        channel: channel.clone(),
    });
}

/// Reads the command to its end, whoever is attached.
async fn live(agent: Arc<Agent>, kept: Arc<Kept>, running: Running) {
    let [mut stdout, mut stderr] = [STDOUT, STDERR].map(|stream| Sink::kept(&kept, stream));
    let ties = Ties::new(&kept.first, None);
    let outcome = exec::run(running, Stdin::None, [&mut stdout, &mut stderr], ties).await;
    agent.kept.finish(&kept, outcome);
}

/// Ends with the command or with the session.
async fn serve(session: &Session, channel: &Arc<Channel>, kept: &Kept, mut seat: Seat) {
    let input = async {
        if channel.takes_input {
            if let Some(pipe) = seat.as_ref() {
                feed::copy(channel, Some(&session.out), pipe, pin!(std::future::pending())).await;
            }
            // The input has ended, or the command has closed it.
            *seat = None;
            feed::abandon(channel, Some(&session.out)).await;
        }
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = kept.ended() => Some(outcome),
        () = session.closed.wait() => None,
        () = input => None,
    };
    kept.leave(channel);
    if let Some(outcome) = outcome {
        *seat = None;
        session.event(&outcome.exit_event(channel.id)).await;
        feed::abandon(channel, Some(&session.out)).await;
    }
}
