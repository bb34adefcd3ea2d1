//! Sockets in the guest at which a client listens.
//!
//! Each connection is told by the event `accepted` and waits until the client takes it with
//! `accept`, which serves it like one that the client has dialled.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::time::sleep;

use super::state::{Origin, Session};
use crate::base::blocking;
use crate::base::error::{Error, Result};
use crate::base::log::note;
use crate::link::channel::Channel;
use crate::link::events::Event;
use crate::requests::methods::ChannelAnswer;
use crate::sockets::address::{Address, Socket, Target};
use crate::sockets::unix::{self, SocketFile};

/// A connection that its client does not take in this time is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure such as too many open files, the next attempt comes this much later.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    async fn open(target: Target) -> Result<(Self, Option<u16>)> {
        let what = target.describe();
        let failed = move |error| Error::io(what, error);
        if let Target::Unix { path, user } = target {
            let (made, file) = blocking::run(move || unix::listen(&path, &user).map_err(failed)).await?;
            let listener = UnixListener::from_std(made).map_err(|error| Error::io("listen", error))?;
            return Ok((Self::Unix(listener, file), None));
        }
        let listener = TcpListener::bind(target.loopback()?).await.map_err(failed)?;
        let port = listener.local_addr().ok().map(|address| address.port());
        Ok((Self::Tcp(listener), port))
    }

    /// Returns the next connection, and the port of its peer if it has one.
    async fn accept(&self) -> io::Result<(Socket, Option<u16>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Keystrokes must not wait for the acknowledgement of those before.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), Some(peer.port())))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::Unix(stream.into_std()?), None))
            }
        }
    }

    async fn close(self) {
        if let Self::Unix(listener, file) = self {
            let removed = blocking::run(move || {
                let what = format!("{:?}", file.path());
                file.remove().map_err(|error| Error::io(what, error))
            });
            if let Err(error) = removed.await {
                note(&format!("listen: {error}"));
            }
            drop(listener);
        }
    }
}

/// Listens at an address until the client cancels, or until the session ends: first the reply, then
/// an event for each connection, then the event `end`.
pub async fn listen(session: &Arc<Session>, origin: &Origin, address: Address, channel: &Arc<Channel>) -> Result<()> {
    let (listener, port) = Listener::open(address.target(&session.agent.commands.me)?).await?;
    let listening = ChannelAnswer::Listening {
        channel: channel.id,
        port,
    };
    session.answer(origin, listening).await;
    tokio::select! {
        () = announce(session, channel, &listener) => {}
        _ = channel.stopped() => {}
        () = session.closed.wait() => {}
    }
    listener.close().await;
    let event = Event::End {
        channel: channel.id,
        bytes: 0,
        error: None,
    };
    session.event(&event).await;
    Ok(())
}

/// Accepts connections and tells the client of each.
async fn announce(session: &Arc<Session>, channel: &Channel, listener: &Listener) {
    loop {
        session.waiting.room().await;
        match listener.accept().await {
            Ok((socket, port)) => {
                let connection = session.waiting.put(socket);
                forget_later(session, connection);
                let event = Event::Accepted {
                    channel: channel.id,
                    connection,
                    port,
                };
                session.event(&event).await;
            }
            Err(error) => {
                note(&format!("accept: {error}"));
                sleep(PAUSE).await;
            }
        }
    }
}

/// Closes the connection unless its client takes it in time.
fn forget_later(session: &Arc<Session>, connection: u32) {
    let session = session.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = sleep(PATIENCE) => {}
            () = session.closed.wait() => {}
        }
        // It is gone already if its client has taken it.
        let _ = session.waiting.take(connection);
    });
}
