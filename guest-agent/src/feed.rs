//! The standard input of a command.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::channel::Channel;
use crate::outbox::Outbox;
use crate::pump::Exited;
use crate::sys;

const CHUNK: usize = 64 * 1024;

/// Where the input comes from.
#[derive(Debug)]
pub enum Stdin<'a> {
    None,
    Bytes(&'a [u8]),
    /// A client's frames; credits go back through the outbox, if there is one.
    Channel(&'a Channel, Option<Arc<Outbox>>),
}

#[derive(Debug)]
pub struct Feed<'a> {
    stdin: Stdin<'a>,
    pipe: OwnedFd,
}

impl<'a> Feed<'a> {
    pub fn new(stdin: Stdin<'a>, pipe: OwnedFd) -> Self {
        Self { stdin, pipe }
    }

    /// Ends with the input, when the command closes its end, or when it exits.
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

/// The end must not interrupt a credit frame, only the waits around it.
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
        let credit = channel.input.consumed(bytes.len());
        send_credit(channel, out, credit).await;
    }
}

/// What comes later goes nowhere; its sender must not wait for it.
pub async fn abandon(channel: &Channel, out: Option<&Outbox>) {
    let credit = channel.input.abandon();
    send_credit(channel, out, credit).await;
}

async fn send_credit(channel: &Channel, out: Option<&Outbox>, credit: usize) {
    if let Some(out) = out {
        // A session that is gone needs no credit.
        let _ = out.credit(channel.id, credit).await;
    }
}

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
