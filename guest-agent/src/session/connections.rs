//! Connections to services in the guest, on the channels of a session.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::carrying::{begin, end, until_stopped};
use super::state::{Origin, Session};
use super::udp;
use crate::base::error::{Error, Result};
use crate::base::sys;
use crate::link::channel::Channel;
use crate::link::events::Event;
use crate::link::wire::{DATA_LIMIT, STDOUT};
use crate::processes::exec::Ties;
use crate::processes::feed;
use crate::sockets::address::{Address, Connected, Socket};
use crate::sockets::unix;

const CHUNK: usize = 64 * 1024;

/// Connects to an address and serves the connection on the channel.
pub async fn dial(session: &Arc<Session>, origin: &Origin, address: Address, channel: &Arc<Channel>) -> Result<()> {
    let target = address.target(&session.agent.commands.me)?;
    let ties = Ties::new(channel, Some(&session.closed));
    let connected = tokio::select! {
        connected = target.connect(&session.agent.commands, ties) => connected?,
        _ = channel.stopped() => return Err(Error::BadRequest("canceled".into())),
        () = session.closed.wait() => return Err(Error::Gone),
    };
    match connected {
        Connected::Stream(socket) => serve(session, origin, socket, channel).await,
        Connected::Datagrams(socket) => udp::serve(session, origin, socket, channel).await,
    }
}

/// Serves a connected socket: first the reply, then the bytes of both directions, then the event
/// `end`. When the peer has sent its last byte, and the client may still send, the event `eof`
/// tells of that.
pub async fn serve(session: &Arc<Session>, origin: &Origin, socket: Socket, channel: &Arc<Channel>) -> Result<()> {
    let what = |error| Error::io("the connection", error);
    let socket = socket.into_fd().and_then(watch).map_err(what)?;
    begin(session, origin, channel).await;
    let mut bytes = 0;
    let exchange = async { exchange(session, channel, &socket, &mut bytes).await.map_err(what) };
    let result = until_stopped(session, channel, exchange).await;
    if result.is_err() {
        // The peer must not take what came so far for everything.
        unix::reset_at_close(socket.get_ref().as_fd());
    }
    drop(socket);
    feed::abandon(channel, Some(&session.out)).await;
    end(session, channel, bytes, result).await;
    Ok(())
}

fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::set_nonblocking(fd.as_fd())?;
    sys::watch(fd, Interest::READABLE | Interest::WRITABLE)
}

/// Moves bytes until both directions have ended, or one has failed.
async fn exchange(session: &Session, channel: &Channel, socket: &AsyncFd<OwnedFd>, bytes: &mut u64) -> io::Result<()> {
    let to_peer = async {
        while let Some(piece) = channel.input.take(CHUNK).await {
            feed::write_all(socket, &piece).await?;
            feed::give_back(channel, Some(&session.out), piece.len()).await;
        }
        // The peer may have closed its side already.
        let _ = rustix::net::shutdown(socket.get_ref(), rustix::net::Shutdown::Write);
        Ok(())
    };
    let to_client = async {
        deliver(session, channel, socket, bytes).await?;
        session.event(&Event::Eof { channel: channel.id }).await;
        Ok(())
    };
    tokio::try_join!(to_peer, to_client).map(|_| ())
}

/// Sends what comes from the peer until its last byte.
async fn deliver(session: &Session, channel: &Channel, socket: &AsyncFd<OwnedFd>, bytes: &mut u64) -> io::Result<()> {
    // When the session is gone, the caller ends this.
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    loop {
        let room = channel
            .stdout
            .room(&session.closed)
            .await
            .map_err(gone)?
            .min(DATA_LIMIT);
        let mut guard = socket.readable().await?;
        let mut received = Ok(0);
        let fill = |buffer: &mut [u8]| {
            match guard.try_io(|fd| sys::read(fd.as_fd(), &mut buffer[..room])) {
                Ok(result) => received = result,
                Err(_would_block) => received = Err(io::ErrorKind::WouldBlock.into()),
            }
            *received.as_ref().unwrap_or(&0)
        };
        let count = session.out.fill(STDOUT, channel.id, fill).await.map_err(gone)?;
        match received {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error),
        }
        channel.stdout.spend(count);
        *bytes += count as u64;
        // A flood must not keep the only thread from all other work.
        tokio::task::yield_now().await;
    }
}
