//! A client that is attached to a terminal.

use std::sync::Arc;

use serde_json::json;

use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::feed;
use crate::pty::{self, Exit, Pty};
use crate::session::{Request, Session};
use crate::wire::{self, STDOUT};

pub async fn open(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<()> {
    let pty = pty::open(&session.agent, &request.params).await?;
    let attachment = Attachment::new(&pty, 0);
    let opened = json!({"session": pty.id, "channel": channel.id, "pid": pty.pid});
    session.reply(request, Ok(opened), wire::JSON_LIMIT).await;
    serve(session, channel, attachment).await;
    Ok(())
}

pub async fn attach(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<()> {
    let params = &request.params;
    let pty = session.agent.ptys.require(params)?;
    let size = pty::requested_size(params)?;
    let attachment = Attachment::new(&pty, pty::requested_replay(params)?);
    // A size that a finished terminal cannot take any more is no reason to hide its output.
    if let (Some(size), None) = (size, pty.exit()) {
        pty.resize(size)?;
    }
    let attached = pty.describe_attachment(channel.id);
    session.reply(request, Ok(attached), wire::JSON_LIMIT).await;
    serve(session, channel, attachment).await;
    Ok(())
}

/// A place among the readers of a terminal, given back when dropped.
#[derive(Debug)]
pub struct Attachment {
    pub pty: Arc<Pty>,
    pub key: u64,
}

/// What an attached client has to be told next.
#[derive(Debug)]
pub enum Next {
    Lagged,
    Output,
    Nothing,
    Exit(Exit),
}

impl Attachment {
    pub fn new(pty: &Arc<Pty>, replay: usize) -> Self {
        let key = pty.state().output.add_reader(replay);
        pty.advanced.notify_one();
        Self { pty: pty.clone(), key }
    }

    pub fn next(&self) -> Next {
        let mut state = self.pty.state();
        if state.output.take_lagged(self.key) {
            Next::Lagged
        } else if state.output.has_news(self.key) {
            Next::Output
        } else if let Some(exit) = state.exit {
            Next::Exit(exit)
        } else {
            Next::Nothing
        }
    }

    pub fn copy(&self, buffer: &mut [u8]) -> usize {
        let count = self.pty.state().output.copy(self.key, buffer);
        self.pty.advanced.notify_one();
        count
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.pty.state().output.remove_reader(self.key);
        self.pty.advanced.notify_one();
    }
}

/// Ends with the program, with a detach, or with the session.
async fn serve(session: &Session, channel: &Channel, attachment: Attachment) {
    let pty = attachment.pty.clone();
    let done = crate::closed::Closed::default();
    let output = async {
        // A session that is gone needs no farewell.
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
    let mut news = attachment.pty.news.subscribe();
    loop {
        match attachment.next() {
            Next::Lagged => {
                let event = json!({"event": "lagged", "channel": channel.id});
                session.out.json(&event).await?;
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
            Next::Exit(exit) => return session.out.json(&exit.event(channel.id)).await,
            Next::Nothing => tokio::select! {
                changed = news.changed() => changed.map_err(|_| Error::Gone)?,
                _ = channel.stopped() => return Ok(()),
                () = session.closed.wait() => return Err(Error::Gone),
            },
        }
    }
}
