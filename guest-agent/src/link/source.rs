//! The reading end of a command's output: a pipe, or the master of a terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::base::sys;

/// The result of one attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Bytes(usize),
    /// There is nothing at the moment.
    Empty,
    /// Nothing will ever come again.
    End,
}

/// A non-blocking descriptor that the runtime watches.
#[derive(Debug)]
pub struct Source {
    fd: AsyncFd<OwnedFd>,
    is_pipe: bool,
}

impl Source {
    /// Makes a source of the reading end of a pipe, which becomes non-blocking.
    pub fn pipe(fd: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(fd.as_fd())?;
        Ok(Self {
            fd: sys::watch(fd, Interest::READABLE)?,
            is_pipe: true,
        })
    }

    /// Makes a source of the master of a terminal. It must be non-blocking, and it can also be
    /// written to.
    pub fn pty(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            fd: sys::watch(fd, Interest::READABLE | Interest::WRITABLE)?,
            is_pipe: false,
        })
    }

    pub fn fd(&self) -> &AsyncFd<OwnedFd> {
        &self.fd
    }

    pub fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// Returns the number of bytes that wait to be read.
    pub fn pending(&self) -> usize {
        sys::pending(self.fd.as_fd())
    }

    /// Waits until a read is worth trying.
    pub async fn ready(&self) {
        match self.fd.readable().await {
            Ok(mut guard) => guard.retain_ready(),
            // The runtime is shutting down, so nothing will ever be ready.
            Err(_) => std::future::pending().await,
        }
    }

    /// Reads without waiting. To be called after `ready`, by one reader at a time.
    pub fn read(&self, buffer: &mut [u8]) -> Moved {
        let result = self
            .fd
            .try_io(Interest::READABLE, |fd| retry(|| sys::read(fd.as_fd(), buffer)));
        match result {
            Ok(0) => Moved::End,
            Ok(count) => Moved::Bytes(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Moved::Empty,
            // Reading a terminal without a slave fails with EIO.
            Err(_) => Moved::End,
        }
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
