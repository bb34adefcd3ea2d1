//! Feeds the standard input of a command or a terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::output::Exited;
use crate::base::sys;
use crate::link::channel::Channel;
use crate::link::outbox::Outbox;

const CHUNK: usize = 64 * 1024;

/// The source of the input.
#[derive(Debug)]
pub enum Stdin<'a> {
    None,
    Bytes(&'a [u8]),
    /// The client of a channel. Credits go back through the outbox, if there is one.
    Channel(&'a Channel, Option<Arc<Outbox>>),
}

/// The input of one command and the pipe that it goes to.
#[derive(Debug)]
pub struct Feed<'a> {
    stdin: Stdin<'a>,
    pipe: OwnedFd,
}

impl<'a> Feed<'a> {
    /// Makes a feed. `pipe` is the end to write to.
    pub fn new(stdin: Stdin<'a>, pipe: OwnedFd) -> Self {
        Self { stdin, pipe }
    }

    /// Ends when the input ends, when the command closes its end of the pipe, or when it exits.
    pub async fn run(self, mut exited: Exited) {
        let Self { stdin, pipe } = self;
        let pipe = sys::set_nonblocking(pipe.as_fd()).and_then(|()| sys::watch(pipe, Interest::WRITABLE));
        let Ok(pipe) = pipe else { return };
        let mut ended = pin!(async {
            let _ = exited.wait_for(Option::is_some).await;
        });
        match stdin {
            Stdin::None => {}
            Stdin::Bytes(bytes) => tokio::select! {
                _ = write_all(&pipe, bytes) => {}
                () = ended => {}
            },
            Stdin::Channel(channel, out) => {
                copy(channel, out.as_deref(), &pipe, ended.as_mut()).await;
                abandon(channel, out.as_deref()).await;
            }
        }
    }
}

/// Copies a channel's input until `ended`. Only the waits are interrupted then, never the sending
/// of a credit frame.
pub async fn copy(
    channel: &Channel,
    out: Option<&Outbox>,
    pipe: &AsyncFd<OwnedFd>,
    mut ended: Pin<&mut impl Future<Output = ()>>,
) {
    loop {
        let bytes = tokio::select! {
            bytes = channel.input.take(CHUNK) => bytes,
            () = &mut ended => return,
        };
        let Some(bytes) = bytes else { return };
        let written = tokio::select! {
            result = write_all(pipe, &bytes) => result.is_ok(),
            () = &mut ended => false,
        };
        if !written {
            return;
        }
        give_back(channel, out, bytes.len()).await;
    }
}

/// Gives the client credit for `count` bytes of input that were used.
pub async fn give_back(channel: &Channel, out: Option<&Outbox>, count: usize) {
    let credit = channel.input.consumed(count);
    send_credit(channel, out, credit).await;
}

/// Drops all input that is still to come. Its sender is given credit, so that it does not wait.
pub async fn abandon(channel: &Channel, out: Option<&Outbox>) {
    let credit = channel.input.abandon();
    send_credit(channel, out, credit).await;
}

async fn send_credit(channel: &Channel, out: Option<&Outbox>, credit: usize) {
    if let Some(out) = out {
        // When the session is gone, nobody needs the credit.
        let _ = out.credit(channel.id, credit).await;
    }
}

/// Waits until all bytes are written. Fails when the other end is closed.
pub async fn write_all(pipe: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut guard = pipe.writable().await?;
        match guard.try_io(|fd| sys::write(fd.as_fd(), bytes)) {
            Ok(Ok(count)) => bytes = &bytes[count..],
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
    Ok(())
}
