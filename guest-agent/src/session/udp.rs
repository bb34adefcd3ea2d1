//! Datagrams to and from a service in the guest, on a channel of a session.

use std::io;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::Notify;

use super::carrying::{begin, end, until_stopped};
use super::datagrams::{DATAGRAM_MAX, Queue, Splitter};
use super::state::{Origin, Session};
use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;
use crate::link::channel::Channel;
use crate::link::wire::STDOUT;
use crate::processes::feed;

const CHUNK: usize = 64 * 1024;

/// Datagrams between the task that receives them and the one that sends them on.
#[derive(Debug, Default)]
struct Arrived {
    queue: Mutex<Queue>,
    news: Notify,
}

impl Arrived {
    /// Waits for a datagram.
    async fn some(&self) {
        while self.queue.lock().is_empty() {
            self.news.notified().await;
        }
    }
}

/// Serves a connected socket: first the reply, then the datagrams of both directions, and the event
/// `end` once the client has sent its last.
pub async fn serve(session: &Arc<Session>, origin: &Origin, socket: UdpSocket, channel: &Arc<Channel>) -> Result<()> {
    begin(session, origin, channel).await;
    let arrived = Arrived::default();
    let mut bytes = 0;
    let exchange = async {
        tokio::select! {
            result = send(session, channel, &socket) => result,
            error = receive(&socket, &arrived) => Err(Error::io("the socket", error)),
            // The session has ended.
            gone = deliver(session, channel, &arrived, &mut bytes) => Err(gone),
        }
    };
    let result = until_stopped(session, channel, exchange).await;
    drop(socket);
    feed::abandon(channel, Some(&session.out)).await;
    end(session, channel, bytes, result).await;
    Ok(())
}

/// Sends what comes from the client, until its last datagram.
async fn send(session: &Session, channel: &Channel, socket: &UdpSocket) -> Result<()> {
    let mut splitter = Splitter::default();
    while let Some(piece) = channel.input.take(CHUNK).await {
        splitter.push(&piece);
        while let Some(datagram) = splitter.next()? {
            // A datagram that cannot be sent is lost, as on a network.
            let _ = socket.send(&datagram).await;
        }
        feed::give_back(channel, Some(&session.out), piece.len()).await;
    }
    Ok(())
}

/// Takes what comes for the client, also when it reads slowly. Returns why no more can come.
async fn receive(socket: &UdpSocket, arrived: &Arrived) -> io::Error {
    // One byte more than there may be: IPv6 carries a little more.
    let mut buffer = vec![0; DATAGRAM_MAX + 1];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(count) if count <= DATAGRAM_MAX => {
                arrived.queue.lock().push(&buffer[..count]);
                arrived.news.notify_one();
            }
            Ok(_) => {}
            Err(error) if is_told_by_network(&error) => {}
            Err(error) => return error,
        }
        // A flood must not keep the only thread from all other work.
        tokio::task::yield_now().await;
    }
}

/// Tells whether an error is about a datagram that was sent, and not about the socket (udp(7)). A
/// service that is not there now may be there for the next one.
fn is_told_by_network(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EACCES
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EMSGSIZE
                | libc::EINTR
        )
    )
}

/// Sends the client what has arrived. Returns once the session is gone.
async fn deliver(session: &Session, channel: &Channel, arrived: &Arrived, bytes: &mut u64) -> Error {
    loop {
        arrived.some().await;
        let room = match channel.stdout.room(&session.closed).await {
            Ok(room) => room,
            Err(gone) => return gone,
        };
        let fill = |buffer: &mut [u8]| {
            let limit = room.min(buffer.len());
            arrived.queue.lock().take_into(&mut buffer[..limit])
        };
        match session.out.fill(STDOUT, channel.id, fill).await {
            Ok(count) => {
                channel.stdout.spend(count);
                *bytes += count as u64;
            }
            Err(gone) => return gone,
        }
        tokio::task::yield_now().await;
    }
}
