//! The kernel's announcements of devices that appear and disappear.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::base::sys;

/// A socket that receives the announcements.
#[derive(Debug)]
pub struct Uevents {
    socket: AsyncFd<OwnedFd>,
}

impl Uevents {
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            socket: sys::watch(open_socket()?, Interest::READABLE)?,
        })
    }

    /// Waits until some device of a subsystem has changed.
    pub async fn changed(&mut self, subsystem: &str) {
        let mut is_news = false;
        while !is_news {
            let Ok(mut guard) = self.socket.readable().await else {
                return std::future::pending().await;
            };
            let mut event = [0; 2048];
            loop {
                match sys::read(self.socket.as_fd(), &mut event) {
                    Ok(length) => is_news |= is_of(subsystem, event.get(..length).unwrap_or(&[])),
                    // Announcements were lost, and they may have been the wanted ones.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => is_news = true,
                    Err(_) => break,
                }
            }
            guard.clear_ready();
        }
    }
}

/// Tells whether an announcement concerns a subsystem. It is a sequence of strings that end with
/// NUL, of which one is `SUBSYSTEM=…`.
fn is_of(subsystem: &str, event: &[u8]) -> bool {
    event
        .split(|byte| *byte == 0)
        .any(|field| field.strip_prefix(b"SUBSYSTEM=") == Some(subsystem.as_bytes()))
}

/// Opens a non-blocking socket that receives the kernel's announcements.
pub fn open_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let socket = sys::own(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) })?;
    // SAFETY: sockaddr_nl is plain data, for which zero is a valid value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = 1;
    // SAFETY: pointer and length describe `address`.
    sys::check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_nl>() as u32,
        )
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_the_subsystem_that_it_names() {
        let event = b"add@/devices/x/virtio-ports/vport1p1\0ACTION=add\0SUBSYSTEM=virtio-ports\0SEQNUM=7\0";
        assert!(is_of("virtio-ports", event));
        assert!(!is_of("virtio", event));
        assert!(!is_of(
            "virtio-ports",
            b"change@/devices/virtio-ports\0SUBSYSTEM=acpi\0"
        ));
        assert!(!is_of("virtio-ports", b""));
    }
}
