//! A byte stream to the host: a virtio port or a Unix socket, which take the same system calls.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::event::PollFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::base::closed::Closed;
use crate::base::mutex::Mutex;
use crate::base::sys;

const READ_SIZE: usize = 64 * 1024;
/// A host that reconnects is gone for less than this time.
const BLIP: Duration = Duration::from_millis(2);

/// A non-blocking descriptor that may be read and written at the same time.
#[derive(Debug)]
pub struct Link {
    /// Replaced after a hang-up, because the runtime never forgets one.
    fd: Mutex<Arc<AsyncFd<OwnedFd>>>,
    /// A port outlives its peers; a socket does not.
    port: bool,
    /// Memory for a data frame, which one session leaves to the next. To unmap it, and to map it
    /// anew, is most of what a guest does that continues from a checkpoint under emulation.
    room: Mutex<Vec<u8>>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes,
    /// The host was gone and is back.
    Reconnected,
    /// The host is gone.
    Gone,
}

impl Link {
    /// Makes a link. `fd` must be non-blocking.
    pub fn new(fd: OwnedFd, port: bool) -> io::Result<Self> {
        Ok(Self {
            fd: Mutex::new(Arc::new(watch(fd)?)),
            port,
            room: Mutex::default(),
        })
    }

    pub fn is_port(&self) -> bool {
        self.port
    }

    fn fd(&self) -> Arc<AsyncFd<OwnedFd>> {
        self.fd.lock().clone()
    }

    /// Returns the memory that a session has left here, or none.
    pub fn take_room(&self) -> Vec<u8> {
        mem::take(&mut self.room.lock())
    }

    /// Leaves memory to the next session.
    pub fn leave_room(&self, room: Vec<u8>) {
        *self.room.lock() = room;
    }

    /// Waits for bytes and appends them to `buffer`, or returns what has happened to the host.
    pub async fn read(&self, buffer: &mut BytesMut) -> io::Result<Received> {
        loop {
            let fd = self.fd();
            let mut guard = fd.readable().await?;
            if self.port && guard.ready().is_read_closed() {
                let is_back = self.settle().await?;
                return Ok(if is_back { Received::Reconnected } else { Received::Gone });
            }
            buffer.reserve(READ_SIZE);
            match sys::read_spare(fd.as_fd(), buffer) {
                Ok(0) if !self.port => return Ok(Received::Gone),
                // On a port, the read finds out before the hang-up is reported.
                Ok(0) => guard.clear_ready(),
                Ok(_) => return Ok(Received::Bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Called after a hang-up of a port. Returns whether a host is connected again.
    async fn settle(&self) -> io::Result<bool> {
        let fd = self.fd();
        let is_gone = || sys::poll_now(fd.as_fd()).map(|events| events.contains(PollFlags::HUP));
        if is_gone()? {
            sleep(BLIP).await;
            if is_gone()? {
                return Ok(false);
            }
        }
        let fresh = watch(fd.get_ref().try_clone()?)?;
        *self.fd.lock() = Arc::new(fresh);
        Ok(true)
    }

    /// Waits until some of the bytes are written, and returns how many. Fails with `BrokenPipe` when
    /// the peer or the session is gone.
    pub async fn write(&self, bytes: &[u8], closed: &Closed) -> io::Result<usize> {
        loop {
            if closed.is_set() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match sys::write(self.fd().as_fd(), bytes) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(closed).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves `count` bytes from a pipe that holds at least as many. The error comes with the number
    /// of bytes that are still missing.
    pub async fn splice_all(
        &self,
        pipe: &OwnedFd,
        mut count: usize,
        closed: &Closed,
    ) -> Result<(), (io::Error, usize)> {
        while count > 0 {
            if closed.is_set() {
                return Err((io::ErrorKind::BrokenPipe.into(), count));
            }
            match sys::splice(pipe.as_fd(), self.fd().as_fd(), count) {
                Ok(0) => return Err((io::ErrorKind::UnexpectedEof.into(), count)),
                Ok(moved) => count -= moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(closed).await.map_err(|error| (error, count))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((error, count)),
            }
        }
        Ok(())
    }

    async fn wait_writable(&self, closed: &Closed) -> io::Result<()> {
        let fd = self.fd();
        let mut guard = tokio::select! {
            guard = fd.writable() => guard?,
            () = closed.wait() => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        if guard.ready().is_write_closed() {
            let is_back = self.port && self.settle().await?;
            return if is_back {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            };
        }
        // The write before this call would have blocked, but the readiness may be newer than that,
        // so it is only cleared if the descriptor is still not writable.
        if !sys::poll_now(fd.as_fd())?.contains(PollFlags::OUT) {
            guard.clear_ready();
        }
        Ok(())
    }
}

fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    sys::watch(fd, Interest::READABLE | Interest::WRITABLE)
}
