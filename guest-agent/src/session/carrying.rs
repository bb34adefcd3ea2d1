//! The beginning and the end of an exchange between a client and a service in the guest.

use super::state::{Origin, Session};
use crate::base::error::{Error, Result};
use crate::link::channel::{Channel, Stop};
use crate::link::events::Event;
use crate::requests::methods::ChannelAnswer;

/// Tells the client that it is connected.
pub async fn begin(session: &Session, origin: &Origin, channel: &Channel) {
    let connected = ChannelAnswer::Connected { channel: channel.id };
    session.answer(origin, connected).await;
}

/// Waits for the end of an exchange, unless the client or the end of the session breaks it off.
pub async fn until_stopped(
    session: &Session,
    channel: &Channel,
    exchange: impl Future<Output = Result<()>>,
) -> Result<()> {
    tokio::select! {
        result = exchange => result,
        stop = channel.stopped() => Err(stopped(stop)),
        () = session.closed.wait() => Err(Error::Gone),
    }
}

/// Tells the client how its connection has ended. `bytes` were sent to it.
pub async fn end(session: &Session, channel: &Channel, bytes: u64, result: Result<()>) {
    let event = Event::End {
        channel: channel.id,
        bytes,
        error: result.err().map(|error| error.refusal()),
    };
    session.event(&event).await;
}

fn stopped(stop: Stop) -> Error {
    match stop {
        Stop::Cancel(_) => Error::BadRequest("canceled".into()),
        Stop::Broken(why) => Error::BadRequest(why),
    }
}
