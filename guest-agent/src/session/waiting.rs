//! Connections from the guest that wait until their client takes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;
use crate::sockets::address::Socket;

/// The number of connections of a session that may wait for their client. More wait in the kernel.
const WAITING_MAX: usize = 64;

/// The connections of a session that wait for their client.
#[derive(Debug, Default)]
pub struct Waiting {
    sockets: Mutex<HashMap<u32, Socket>>,
    last: AtomicU32,
    taken: tokio::sync::Notify,
}

impl Waiting {
    fn len(&self) -> usize {
        self.sockets.lock().len()
    }

    pub fn put(&self, socket: Socket) -> u32 {
        let number = self.last.fetch_add(1, Relaxed).wrapping_add(1);
        let mut sockets = self.sockets.lock();
        sockets.insert(number, socket);
        number
    }

    /// Takes a connection out. Fails with `NotFound` when there is none of this number.
    pub fn take(&self, number: u32) -> Result<Socket> {
        let mut sockets = self.sockets.lock();
        let socket = sockets.remove(&number);
        drop(sockets);
        self.taken.notify_one();
        socket.ok_or_else(|| Error::NotFound(format!("connection {number}")))
    }

    pub async fn room(&self) {
        while self.len() >= WAITING_MAX {
            self.taken.notified().await;
        }
    }
}
