//! The way from a session to its host.
//!
//! There is no queue: a sender takes the lock, moves the bytes from their source directly into one
//! frame, and releases the lock. The lock is fair, so channels take turns, and a host that does not
//! read blocks the sources themselves. A sender may be dropped at any moment: the next one completes
//! its frame.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::{Mutex, MutexGuard};

use super::port::Link;
use super::source::{Moved, Source};
use super::wire::{self, DATA_HEADER, DATA_LIMIT};
use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::base::log::note;
use crate::base::sys;

/// From this many bytes on, moving pages is faster than copying them.
const SPLICE_MIN: usize = 16 * 1024;

/// Sends the frames of one session. Every method fails with `Gone` when the host is gone, and then
/// ends the session.
#[derive(Debug)]
pub struct Outbox {
    link: Arc<Link>,
    pub closed: Closed,
    turn: Mutex<Turn>,
}

/// The things of the sender whose turn it is.
#[derive(Debug, Default)]
struct Turn {
    /// Room for a whole data frame, allocated for the first one.
    frame: Vec<u8>,
    /// The end of a frame whose sender was dropped in the midst of it.
    rest: Vec<u8>,
}

/// Bytes on their way. When their sender is dropped, the end of a frame that has begun is left to
/// the next one.
struct Unsent<'a> {
    bytes: &'a [u8],
    has_begun: bool,
    rest: &'a mut Vec<u8>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            self.rest.extend_from_slice(self.bytes);
        }
    }
}

impl Outbox {
    pub fn new(link: Arc<Link>, closed: Closed) -> Self {
        Self {
            link,
            closed,
            turn: Mutex::default(),
        }
    }

    /// Waits for the turn, and completes the frame of a sender that was dropped.
    async fn turn(&self) -> Result<MutexGuard<'_, Turn>> {
        let mut turn = self.turn.lock().await;
        if !turn.rest.is_empty() {
            let end = mem::take(&mut turn.rest);
            self.send(&end, true, &mut turn.rest).await?;
        }
        Ok(turn)
    }

    /// Sends frames that are encoded already.
    pub async fn raw(&self, bytes: &[u8]) -> Result<()> {
        let mut turn = self.turn().await?;
        self.send(bytes, false, &mut turn.rest).await
    }

    /// Sends a JSON frame. Fails with `TooLarge` when it exceeds the limit.
    pub async fn json(&self, value: &impl Serialize) -> Result<()> {
        let frame = wire::encode_json(value, wire::JSON_LIMIT).ok_or(Error::TooLarge {
            what: "the reply",
            limit: wire::JSON_LIMIT,
        })?;
        self.raw(&frame).await
    }

    /// Acknowledges `count` bytes of input on a channel.
    pub async fn credit(&self, channel: u32, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.raw(&wire::encode_credit(wire::STDIN, channel, count as u32)).await
    }

    /// Sends at most `limit` of the bytes that wait in `source` as one frame.
    pub async fn forward(&self, source: &Source, stream: u8, channel: u32, limit: usize) -> Result<Moved> {
        let mut turn = self.turn().await?;
        let limit = limit.min(DATA_LIMIT);
        let pending = source.pending().min(limit);
        // Never splice to a port: virtio_console puts every piece of the pipe on its queue of 128,
        // and when there are more pieces it reports the bytes as sent and loses them.
        if source.is_pipe() && !self.link.is_port() && pending >= SPLICE_MIN {
            self.splice(&mut turn, source, stream, channel, pending).await?;
            return Ok(Moved::Bytes(pending));
        }
        self.prepare(&mut turn.frame);
        let moved = source.read(&mut turn.frame[DATA_HEADER..DATA_HEADER + limit]);
        if let Moved::Bytes(count) = moved {
            self.finish(&mut turn, stream, channel, count).await?;
        }
        Ok(moved)
    }

    /// Sends one frame, which `fill` fills. `fill` returns the number of bytes, and so does this.
    pub async fn fill(&self, stream: u8, channel: u32, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<usize> {
        let mut turn = self.turn().await?;
        self.prepare(&mut turn.frame);
        let count = fill(&mut turn.frame[DATA_HEADER..]);
        // An empty frame would mean the end of the stream.
        if count == 0 {
            return Ok(0);
        }
        self.finish(&mut turn, stream, channel, count).await?;
        Ok(count)
    }

    fn prepare(&self, frame: &mut Vec<u8>) {
        if frame.is_empty() {
            *frame = self.link.take_room();
        }
        if frame.is_empty() {
            // The kernel provides these pages when they are first touched.
            *frame = vec![0; DATA_HEADER + DATA_LIMIT];
        }
    }

    async fn finish(&self, turn: &mut Turn, stream: u8, channel: u32, count: usize) -> Result<()> {
        let Turn { frame, rest } = turn;
        frame[..DATA_HEADER].copy_from_slice(&wire::encode_data_header(stream, channel, count));
        self.send(&frame[..DATA_HEADER + count], false, rest).await
    }

    /// Sends one frame whose bytes never enter this process. The caller must not be dropped.
    async fn splice(&self, turn: &mut Turn, source: &Source, stream: u8, channel: u32, count: usize) -> Result<()> {
        let Turn { frame, rest } = turn;
        let header = wire::encode_data_header(stream, channel, count);
        self.send(&header, false, rest).await?;
        let result = self.link.splice_all(source.fd().get_ref(), count, &self.closed).await;
        let Err((error, missing)) = result else {
            return Ok(());
        };
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(self.fail());
        }
        // The link cannot splice, but the frame still has to be completed.
        self.prepare(frame);
        let mut filled = 0;
        while filled < missing {
            match sys::read(source.fd().get_ref().as_fd(), &mut frame[filled..missing]) {
                Ok(count) if count > 0 => filled += count,
                _ => return Err(self.fail()),
            }
        }
        self.send(&frame[..missing], true, rest).await
    }

    async fn send(&self, bytes: &[u8], has_begun: bool, rest: &mut Vec<u8>) -> Result<()> {
        let mut unsent = Unsent { bytes, has_begun, rest };
        while !unsent.bytes.is_empty() {
            match self.link.write(unsent.bytes, &self.closed).await {
                Ok(count) => {
                    unsent.bytes = &unsent.bytes[count..];
                    unsent.has_begun = true;
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        note(&format!("link: {error}"));
                    }
                    return Err(self.fail());
                }
            }
        }
        Ok(())
    }

    /// Ends the session, because no frame can follow half a frame.
    fn fail(&self) -> Error {
        self.closed.set();
        Error::Gone
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let frame = mem::take(&mut self.turn.get_mut().frame);
        if !frame.is_empty() {
            self.link.leave_room(frame);
        }
    }
}
