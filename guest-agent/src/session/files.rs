//! File contents on the channels of a session.

use std::sync::Arc;

use serde_json::{Value, json};

use super::state::{Request, Session};
use crate::blocking::{self, OffRuntime};
use crate::channel::{Channel, Stop};
use crate::error::{Error, Result};
use crate::params::{Params, wrong};

use crate::file_reader::{Extents, FileReader, RECORD_HEADER};
use crate::file_writer::{FileWriter, WriteRequest};
use crate::sparse_writer::SparseWriter;
use crate::wire::{self, DATA_HEADER, DATA_LIMIT, STDOUT};

/// A file to be sent.
enum Contents {
    Whole(OffRuntime<FileReader>),
    WithoutHoles(OffRuntime<Extents>),
}

/// A file that is received.
enum Receiver {
    Whole(FileWriter),
    WithoutHoles(SparseWriter),
}

impl Receiver {
    fn new(writer: FileWriter, is_sparse: bool) -> Self {
        if is_sparse {
            Self::WithoutHoles(SparseWriter::new(writer))
        } else {
            Self::Whole(writer)
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Whole(writer) => writer.write(bytes),
            Self::WithoutHoles(writer) => writer.write(bytes),
        }
    }

    fn commit(&mut self) -> Result<u64> {
        match self {
            Self::Whole(writer) => writer.commit(),
            Self::WithoutHoles(writer) => writer.commit(),
        }
    }
}

impl Contents {
    /// How many bytes must fit into the window before the next part can be read.
    fn least_room(&self) -> usize {
        match self {
            Self::Whole(_) => 1,
            Self::WithoutHoles(_) => RECORD_HEADER + 1,
        }
    }

    /// Fills the buffer from the front. Returns the number of bytes, which is 0 at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Self::Whole(reader) => reader.read(buffer),
            Self::WithoutHoles(extents) => extents.read(buffer),
        }
    }
}

/// Sends a file: first the reply, then the contents, then the event `end`.
pub async fn read_to_client(session: &Arc<Session>, request: &Request, channel: &Arc<Channel>) -> Result<()> {
    let params = &request.params;
    let is_sparse = params.flag("sparse", false)?;
    if is_sparse && ["offset", "length"].iter().any(|name| params.value(name).is_some()) {
        return Err(wrong("sparse", "goes with neither offset nor length"));
    }
    let reader = blocking::run(FileReader::from_params(params)?).await?;
    let opened = json!({
        "channel": channel.id,
        "size": reader.size,
        "mode": reader.mode,
        "sparse": is_sparse,
    });
    let contents = if is_sparse {
        Contents::WithoutHoles(OffRuntime::new(Extents::new(reader)))
    } else {
        Contents::Whole(OffRuntime::new(reader))
    };
    session.reply(request, Ok(opened), wire::JSON_LIMIT).await;
    let mut sent = 0;
    let result = send(session, channel, contents, &mut sent).await;
    let error = result.err().map(|error| error.refusal());
    let event = json!({"event": "end", "channel": channel.id, "bytes": sent, "error": error});
    session.event(&event).await;
    Ok(())
}

async fn send(session: &Session, channel: &Channel, mut contents: Contents, sent: &mut u64) -> Result<()> {
    let mut frame = vec![0; DATA_HEADER + DATA_LIMIT];
    loop {
        let room = tokio::select! {
            room = channel.stdout.room_for(contents.least_room(), &session.closed) => room?.min(DATA_LIMIT),
            stop = channel.stopped() => return Err(stopped(stop)),
        };
        let (back, full, count) = blocking::run(move || {
            let count = contents.read(&mut frame[DATA_HEADER..DATA_HEADER + room])?;
            Ok((contents, frame, count))
        })
        .await?;
        (contents, frame) = (back, full);
        if count == 0 {
            return Ok(());
        }
        frame[..DATA_HEADER].copy_from_slice(&wire::encode_data_header(STDOUT, channel.id, count));
        channel.stdout.spend(count);
        session.out.raw(&frame[..DATA_HEADER + count]).await?;
        *sent += count as u64;
    }
}

/// Writes a file from the input of the channel. The reply comes last. If the writing ends early,
/// the writer is dropped and the unfinished file with it.
pub async fn write_from_client(session: &Arc<Session>, params: &Params, channel: &Arc<Channel>) -> Result<Value> {
    let result = receive(session, params, channel).await;
    // Input that is still on its way must not wait for credit.
    let credit = channel.input.abandon();
    let _ = session.out.credit(channel.id, credit).await;
    result
}

async fn receive(session: &Session, params: &Params, channel: &Channel) -> Result<Value> {
    let request = WriteRequest::from_params(params)?;
    let is_sparse = params.flag("sparse", false)?;
    if is_sparse && request.append {
        return Err(wrong("sparse", "does not go with append"));
    }
    let open = move || FileWriter::open(&request).map(|writer| Receiver::new(writer, is_sparse));
    let mut writer = OffRuntime::new(blocking::run(open).await?);
    loop {
        let bytes = tokio::select! {
            // Breaking the protocol ends the input as well, so its reason is looked at first.
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
