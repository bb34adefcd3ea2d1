//! The reading end of a command's output: a pipe or the master of a PTY.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys;

/// What one attempt to read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Bytes(usize),
    /// Nothing now.
    Empty,
    /// Nothing ever again.
    End,
}

#[derive(Debug)]
pub struct Source {
    fd: AsyncFd<OwnedFd>,
    is_pipe: bool,
}

impl Source {
    pub fn pipe(fd: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(fd.as_fd())?;
        Ok(Self {
            fd: sys::watch(fd, Interest::READABLE)?,
            is_pipe: true,
        })
    }

    /// `fd` is non-blocking already, and is written to as well.
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

    pub fn pending(&self) -> usize {
        sys::pending(self.fd.as_fd())
    }

    /// Returns when a read is worth trying.
    pub async fn ready(&self) {
        match self.fd.readable().await {
            Ok(mut guard) => guard.retain_ready(),
            // The runtime shuts down: nothing will ever be ready.
            Err(_) => std::future::pending().await,
        }
    }

    /// Reads without waiting. To be called after `ready`, by one reader.
    pub fn read(&self, buffer: &mut [u8]) -> Moved {
        let result = self
            .fd
            .try_io(Interest::READABLE, |fd| retry(|| sys::read(fd.as_fd(), buffer)));
        match result {
            Ok(0) => Moved::End,
            Ok(count) => Moved::Bytes(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Moved::Empty,
            // A PTY without a slave says EIO.
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
