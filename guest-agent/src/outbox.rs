//! The way from a session to its host.
//!
//! There is no queue: a sender takes the lock, moves the bytes from their source directly into one
//! frame, and releases the lock. The lock is fair, so channels take turns, and a host that does not
//! read blocks the sources themselves.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::Mutex;

use crate::closed::Closed;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::log::note;
use crate::source::{Moved, Source};
use crate::sys;
use crate::wire::{self, DATA_HEADER, DATA_LIMIT};

/// From this many bytes on, moving pages is faster than copying them.
const SPLICE_MIN: usize = 16 * 1024;

/// Sends the frames of one session. Every method fails with `Gone` when the host is gone, and then
/// ends the session.
#[derive(Debug)]
pub struct Outbox {
    link: Arc<Link>,
    pub closed: Closed,
    /// Room for a whole data frame, allocated for the first one.
    frame: Mutex<Vec<u8>>,
}

impl Outbox {
    pub fn new(link: Arc<Link>, closed: Closed) -> Self {
        Self {
            link,
            closed,
            frame: Mutex::new(Vec::new()),
        }
    }

    /// Sends frames that are encoded already.
    pub async fn raw(&self, bytes: &[u8]) -> Result<()> {
        let _turn = self.frame.lock().await;
        self.write(bytes).await
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
        let mut frame = self.frame.lock().await;
        let limit = limit.min(DATA_LIMIT);
        let pending = source.pending().min(limit);
        // Never splice to a port: virtio_console puts every piece of the pipe on its queue of 128,
        // and when there are more pieces it reports the bytes as sent and loses them.
        if source.is_pipe() && !self.link.is_port() && pending >= SPLICE_MIN {
            self.splice(&mut frame, source, stream, channel, pending).await?;
            return Ok(Moved::Bytes(pending));
        }
        self.prepare(&mut frame);
        let moved = source.read(&mut frame[DATA_HEADER..DATA_HEADER + limit]);
        if let Moved::Bytes(count) = moved {
            self.finish(&mut frame, stream, channel, count).await?;
        }
        Ok(moved)
    }

    /// Sends one frame, which `fill` fills. `fill` returns the number of bytes, and so does this.
    pub async fn fill(&self, stream: u8, channel: u32, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<usize> {
        let mut frame = self.frame.lock().await;
        self.prepare(&mut frame);
        let count = fill(&mut frame[DATA_HEADER..]);
        // An empty frame would mean the end of the stream.
        if count == 0 {
            return Ok(0);
        }
        self.finish(&mut frame, stream, channel, count).await?;
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

    async fn finish(&self, frame: &mut [u8], stream: u8, channel: u32, count: usize) -> Result<()> {
        frame[..DATA_HEADER].copy_from_slice(&wire::encode_data_header(stream, channel, count));
        self.write(&frame[..DATA_HEADER + count]).await
    }

    /// Sends one frame whose bytes never enter this process.
    async fn splice(&self, frame: &mut Vec<u8>, source: &Source, stream: u8, channel: u32, count: usize) -> Result<()> {
        self.write(&wire::encode_data_header(stream, channel, count)).await?;
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
        self.write(&frame[..missing]).await
    }

    async fn write(&self, bytes: &[u8]) -> Result<()> {
        match self.link.write_all(bytes, &self.closed).await {
            Ok(()) => Ok(()),
            Err(error) => {
                if error.kind() != io::ErrorKind::BrokenPipe {
                    note(&format!("link: {error}"));
                }
                Err(self.fail())
            }
        }
    }

    /// Ends the session, because no frame can follow half a frame.
    fn fail(&self) -> Error {
        self.closed.set();
        Error::Gone
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let frame = mem::take(self.frame.get_mut());
        if !frame.is_empty() {
            self.link.leave_room(frame);
        }
    }
}
