//! File contents on the channels of a session.

use std::sync::Arc;

use super::state::{Origin, Session};
use crate::base::blocking::{self, OffRuntime};
use crate::base::error::{Error, Result};
use crate::files::reader::{Extents, FileReader, RECORD_HEADER, ReadRequest};
use crate::files::sparse::SparseWriter;
use crate::files::writer::{FileWriter, WriteRequest};
use crate::link::channel::{Channel, Stop};
use crate::link::events::Event;
use crate::link::wire::{self, DATA_HEADER, DATA_LIMIT, STDOUT};
use crate::requests::methods::ChannelAnswer;

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
    /// Returns the number of bytes that must fit into the window before the next part can be read.
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
pub async fn read_to_client(
    session: &Arc<Session>,
    origin: &Origin,
    wanted: ReadRequest,
    channel: &Arc<Channel>,
) -> Result<()> {
    let sparse = wanted.sparse;
    let reader = blocking::run(move || FileReader::open(wanted)).await?;
    let opened = ChannelAnswer::Reading {
        channel: channel.id,
        size: reader.size,
        mode: reader.mode,
        sparse,
    };
    let contents = if sparse {
        Contents::WithoutHoles(OffRuntime::new(Extents::new(reader)))
    } else {
        Contents::Whole(OffRuntime::new(reader))
    };
    session.answer(origin, opened).await;
    let mut bytes = 0;
    let result = send(session, channel, contents, &mut bytes).await;
    let event = Event::End {
        channel: channel.id,
        bytes,
        error: result.err().map(|error| error.refusal()),
    };
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
            // A file that has ended is closed before the client hears of that: it may unmount the
            // file's file system next.
            Ok(((count > 0).then_some(contents), frame, count))
        })
        .await?;
        let Some(back) = back else { return Ok(()) };
        (contents, frame) = (back, full);
        frame[..DATA_HEADER].copy_from_slice(&wire::encode_data_header(STDOUT, channel.id, count));
        channel.stdout.spend(count);
        session.out.raw(&frame[..DATA_HEADER + count]).await?;
        *sent += count as u64;
    }
}

/// Writes a file from the input of the channel. The reply comes last. If the writing ends early,
/// the writer is dropped and the unfinished file with it.
pub async fn write_from_client(
    session: &Arc<Session>,
    wanted: WriteRequest,
    channel: &Arc<Channel>,
) -> Result<ChannelAnswer> {
    let result = receive(session, wanted, channel).await;
    // Input that is still on its way must not wait for credit.
    let credit = channel.input.abandon();
    let _ = session.out.credit(channel.id, credit).await;
    result.map(|bytes| ChannelAnswer::Written { bytes })
}

async fn receive(session: &Session, wanted: WriteRequest, channel: &Channel) -> Result<u64> {
    let open = move || FileWriter::open(&wanted).map(|writer| Receiver::new(writer, wanted.sparse));
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
    blocking::run(move || writer.commit()).await
}

fn stopped(stop: Stop) -> Error {
    match stop {
        Stop::Cancel(_) => Error::BadRequest("canceled".into()),
        Stop::Broken(why) => Error::BadRequest(why),
    }
}
