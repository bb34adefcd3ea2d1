//! File contents on the channels of a session.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::blocking::{self, OffRuntime};
use crate::channel::{Channel, Stop};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::reading::Reader;
use crate::session::{Request, Session};
use crate::wire::{self, DATA_HEADER, DATA_LIMIT, STDOUT};
use crate::writing::{WriteRequest, Writer};

/// The reply comes first, then the contents, then the event `end`.
pub async fn read_to_client(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<()> {
    let reader = OffRuntime::new(blocking::run(Reader::from_params(&request.params)?).await?);
    let opened = json!({"channel": channel.id, "size": reader.size, "mode": reader.mode});
    session.reply(request, Ok(opened), wire::JSON_LIMIT).await;
    let mut sent = 0;
    let result = send(session, channel, reader, &mut sent).await;
    let error = result.err().map(|error| error.to_json());
    let event = json!({"event": "end", "channel": channel.id, "bytes": sent, "error": error});
    session.event(&event).await;
    Ok(())
}

async fn send(session: &Session, channel: &Channel, mut reader: OffRuntime<Reader>, sent: &mut u64) -> Result<()> {
    let mut frame = vec![0; DATA_HEADER + DATA_LIMIT];
    loop {
        let room = tokio::select! {
            room = channel.stdout.room(&session.closed) => room?.min(DATA_LIMIT),
            stop = channel.stopped() => return Err(stopped(stop)),
        };
        let (back, full, count) = blocking::run(move || {
            let count = reader.read(&mut frame[DATA_HEADER..DATA_HEADER + room])?;
            Ok((reader, frame, count))
        })
        .await?;
        (reader, frame) = (back, full);
        if count == 0 {
            return Ok(());
        }
        frame[..DATA_HEADER].copy_from_slice(&wire::encode_data_header(STDOUT, channel.id, count));
        channel.stdout.spend(count);
        session.out.raw(&frame[..DATA_HEADER + count]).await?;
        *sent += count as u64;
    }
}

/// The reply comes last. Whatever ends this early drops the writer, and with
/// it the unfinished file.
pub async fn write_from_client(session: &Arc<Session>, params: &Params, channel: &Arc<Channel>) -> Result<Value> {
    let result = receive(session, params, channel).await;
    // Input that is still under way must not wait for credit.
    let credit = channel.input.abandon();
    let _ = session.out.credit(channel.id, credit).await;
    result
}

async fn receive(session: &Session, params: &Params, channel: &Channel) -> Result<Value> {
    let request = WriteRequest::from_params(params)?;
    let mut writer = OffRuntime::new(blocking::run(move || Writer::open(&request)).await?);
    loop {
        let bytes = tokio::select! {
            // A broken input ends as well, so its reason is looked at first.
            biased;
            stop = channel.stopped() => return Err(stopped(stop)),
            () = session.closed.wait() => return Err(Error::Gone),
            bytes = channel.input.take(DATA_LIMIT) => bytes,
        };
        let Some(bytes) = bytes else { break };
        let count = bytes.len();
        writer = blocking::run(move || {
            writer.write(&bytes)?;
            Ok(writer)
        })
        .await?;
        session.out.credit(channel.id, channel.input.consumed(count)).await?;
    }
    let bytes = blocking::run(move || writer.commit()).await?;
    Ok(json!({"bytes": bytes}))
}

fn stopped(stop: Stop) -> Error {
    match stop {
        Stop::Cancel(_) => Error::BadRequest("canceled".into()),
        Stop::Broken(why) => Error::BadRequest(why),
    }
}
