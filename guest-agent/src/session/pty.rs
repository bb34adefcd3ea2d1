//! Clients of a session that are attached to a terminal.

use std::sync::Arc;

use super::state::{Origin, Session};
use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::link::channel::Channel;
use crate::link::events::Event;
use crate::link::wire::STDOUT;
use crate::processes::command::Program;
use crate::processes::feed;
use crate::processes::pty::{self, Attachment, NewTerminal, Next, Size};
use crate::processes::scrollback::Role;
use crate::requests::methods::{self, ChannelAnswer};

/// Opens a terminal and serves it on the channel. Fails as `Ptys::open` does.
pub async fn open(
    session: &Arc<Session>,
    origin: &Origin,
    (program, terminal, size): (Program, NewTerminal, Size),
    channel: &Arc<Channel>,
) -> Result<()> {
    let agent = &session.agent;
    let pty = agent.ptys.open(program, terminal, size, &agent.commands.me).await?;
    let attachment = Attachment::new(&pty, 0, Role::Client);
    let opened = ChannelAnswer::Opened {
        session: pty.id.clone(),
        channel: Some(channel.id),
        pid: pty.pid,
    };
    session.answer(origin, opened).await;
    serve(session, channel, attachment).await;
    Ok(())
}

/// Serves an existing terminal on the channel. Fails with `NotFound` when there is none.
pub async fn attach(
    session: &Arc<Session>,
    origin: &Origin,
    wanted: &methods::Attachment,
    size: Size,
    channel: &Arc<Channel>,
) -> Result<()> {
    let pty = session.agent.ptys.find(&wanted.session)?;
    let role = if wanted.watch { Role::Watcher } else { Role::Client };
    let attachment = Attachment::new(&pty, pty::replayed(wanted.replay), role);
    // A finished terminal can no longer be resized, but its output can still be shown.
    if let (Some(size), None, Role::Client) = (size.0, pty.exit(), role) {
        pty.resize(size)?;
    }
    let attached = ChannelAnswer::Attached(pty.describe_attachment(channel.id, attachment.replay));
    session.answer(origin, attached).await;
    serve(session, channel, attachment).await;
    Ok(())
}

/// Ends with the program, when the client detaches, or with the session.
async fn serve(session: &Session, channel: &Channel, attachment: Attachment) {
    let pty = attachment.pty.clone();
    if !channel.takes_input {
        // When the session is gone, nobody needs to be told.
        let _ = deliver(session, channel, attachment).await;
        return;
    }
    let done = Closed::default();
    let output = async {
        // When the session is gone, nobody needs to be told.
        let _ = deliver(session, channel, attachment).await;
        done.set();
    };
    let input = async {
        let ended = async {
            tokio::select! {
                () = done.wait() => {}
                () = pty.ended() => {}
            }
        };
        let out = session.framed.then_some(&*session.out);
        feed::copy(channel, out, pty.master.fd(), std::pin::pin!(ended)).await;
        feed::abandon(channel, out).await;
    };
    tokio::join!(output, input);
}

async fn deliver(session: &Session, channel: &Channel, attachment: Attachment) -> Result<()> {
    let mut changes = attachment.pty.output.changes();
    loop {
        match attachment.next() {
            Next::Lagged => {
                session.out.json(&Event::Lagged { channel: channel.id }).await?;
            }
            Next::Output => {
                let room = tokio::select! {
                    room = channel.stdout.room(&session.closed) => room?,
                    _ = channel.stopped() => return Ok(()),
                };
                let fill = |buffer: &mut [u8]| {
                    let limit = room.min(buffer.len());
                    attachment.copy(&mut buffer[..limit])
                };
                let count = session.out.fill(STDOUT, channel.id, fill).await?;
                channel.stdout.spend(count);
            }
            Next::Exit(exit) => return session.out.json(&exit.exit_event(channel.id)).await,
            Next::Nothing => tokio::select! {
                changed = changes.changed() => changed.map_err(|_| Error::Gone)?,
                _ = channel.stopped() => return Ok(()),
                () = session.closed.wait() => return Err(Error::Gone),
            },
        }
    }
}
