//! One byte stream to the host: a virtio port or a Unix socket, with the same system calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bytes::BytesMut;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::closed::Closed;
use crate::sys;

const READ_SIZE: usize = 64 * 1024;

#[derive(Debug)]
pub struct Link {
    fd: AsyncFd<OwnedFd>,
    /// A port outlives its peers; a socket does not.
    port: bool,
}

impl Link {
    /// `fd` must be non-blocking.
    pub fn new(fd: OwnedFd, port: bool) -> io::Result<Self> {
        Ok(Self {
            fd: sys::watch(fd, Interest::READABLE | Interest::WRITABLE)?,
            port,
        })
    }

    pub fn is_port(&self) -> bool {
        self.port
    }

    /// 0 means that the host side is gone.
    pub async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            let mut guard = self.fd.readable().await?;
            // A port whose peer has hung up may have a new peer by now, whose
            // bytes are not this session's. Tokio keeps the flag for ever.
            if self.port && guard.ready().is_read_closed() {
                return Ok(0);
            }
            buffer.reserve(READ_SIZE);
            match sys::read_spare(self.fd.as_fd(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Writes everything, or fails when the peer or the session is gone.
    pub async fn write_all(&self, mut bytes: &[u8], closed: &Closed) -> io::Result<()> {
        while !bytes.is_empty() {
            if closed.is_set() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match sys::write(self.fd.as_fd(), bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(closed).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves `count` bytes from a pipe that holds at least as many. The error
    /// comes with the number of bytes that are still missing.
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
            match sys::splice(pipe.as_fd(), self.fd.as_fd(), count) {
                Ok(0) => return Err((io::ErrorKind::UnexpectedEof.into(), count)),
                Ok(moved) => count -= moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(closed)
                        .await
                        .map_err(|error| (error, count))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((error, count)),
            }
        }
        Ok(())
    }

    async fn wait_writable(&self, closed: &Closed) -> io::Result<()> {
        let mut guard = tokio::select! {
            guard = self.fd.writable() => guard?,
            () = closed.wait() => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        if guard.ready().is_write_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // The write before this call would have blocked, but the readiness may
        // be newer than that: only a second refusal clears it.
        if sys::poll_now(self.fd.as_fd())? & libc::POLLOUT == 0 {
            guard.clear_ready();
        }
        Ok(())
    }
}
