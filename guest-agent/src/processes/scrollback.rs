//! Keeps the output of a terminal once for all of its clients.

use std::collections::VecDeque;

use tokio::sync::{Notify, watch};

use crate::base::mutex::Mutex;

/// One client may be this many bytes behind while others read on.
const LAG_LIMIT: u64 = 1 << 20;
/// When this many bytes wait for a single client, the terminal is no longer read.
const BACKLOG_LIMIT: u64 = 64 * 1024;
/// A watcher may be this many bytes behind; then it goes on with the last ones.
const WATCH_LIMIT: u64 = 64 * 1024;
const WATCH_REST: u64 = 16 * 1024;

/// The part that a reader plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Is counted, and can hold the terminal back.
    Client,
    /// Only looks on: nobody notices it.
    Watcher,
}

#[derive(Debug)]
struct Scrollback {
    kept: VecDeque<u8>,
    capacity: usize,
    /// The number of bytes since the beginning, which is the position after the last one kept.
    head: u64,
    readers: Vec<Reader>,
    last_key: u64,
}

#[derive(Debug)]
struct Reader {
    key: u64,
    /// The position of the next byte to send.
    position: u64,
    lagged: bool,
    role: Role,
}

impl Scrollback {
    fn new(capacity: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            capacity,
            head: 0,
            readers: Vec::new(),
            last_key: 0,
        }
    }

    /// Adds a reader that first gets the last `replay` bytes, or fewer if fewer are kept. Returns
    /// the reader's key and the number of bytes.
    fn add_reader(&mut self, replay: usize, role: Role) -> (u64, u64) {
        self.last_key += 1;
        let replay = replay.min(self.kept.len()) as u64;
        self.readers.push(Reader {
            key: self.last_key,
            position: self.head - replay,
            lagged: false,
            role,
        });
        (self.last_key, replay)
    }

    fn remove_reader(&mut self, key: u64) {
        self.readers.retain(|reader| reader.key != key);
        self.trim();
    }

    /// Returns the number of clients.
    fn readers(&self) -> usize {
        self.clients().count()
    }

    fn clients(&self) -> impl Iterator<Item = &Reader> {
        self.readers.iter().filter(|reader| reader.role == Role::Client)
    }

    /// Tells whether the terminal may be read. Only a single client that is behind holds it back.
    fn takes_more(&self) -> bool {
        let mut clients = self.clients();
        match (clients.next(), clients.next()) {
            (Some(only), None) => self.head - only.position < BACKLOG_LIMIT,
            _ => true,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        self.head += bytes.len() as u64;
        let shared = self.readers() > 1;
        for reader in &mut self.readers {
            let (limit, rest) = match reader.role {
                Role::Watcher => (WATCH_LIMIT, WATCH_REST),
                Role::Client if shared => (LAG_LIMIT, 0),
                Role::Client => continue,
            };
            if self.head - reader.position > limit {
                reader.position = self.head - rest;
                reader.lagged = true;
            }
        }
        self.trim();
    }

    /// Drops the bytes that no reader needs, now or later.
    fn trim(&mut self) {
        let behind = self.readers.iter().map(|reader| self.head - reader.position).max();
        let wanted = self.capacity.max(behind.unwrap_or(0) as usize);
        let excess = self.kept.len().saturating_sub(wanted);
        self.kept.drain(..excess);
    }

    /// Tells whether bytes were skipped for this reader since the last call.
    fn take_lagged(&mut self, key: u64) -> bool {
        self.reader(key)
            .is_some_and(|reader| std::mem::take(&mut reader.lagged))
    }

    fn reader(&mut self, key: u64) -> Option<&mut Reader> {
        self.readers.iter_mut().find(|reader| reader.key == key)
    }

    fn has_news(&mut self, key: u64) -> bool {
        let head = self.head;
        self.reader(key).is_some_and(|reader| reader.position < head)
    }

    /// Copies the reader's next bytes and moves its position. Returns the number of bytes.
    fn copy(&mut self, key: u64, buffer: &mut [u8]) -> usize {
        let Some(reader) = self.readers.iter_mut().find(|reader| reader.key == key) else {
            return 0;
        };
        let behind = (self.head - reader.position) as usize;
        let count = behind.min(buffer.len());
        let start = self.kept.len() - behind;
        let (front, back) = self.kept.as_slices();
        let from_front = front.len().saturating_sub(start).min(count);
        if from_front > 0 {
            buffer[..from_front].copy_from_slice(&front[start..start + from_front]);
        }
        let start = (start + from_front).saturating_sub(front.len());
        buffer[from_front..count].copy_from_slice(&back[start..start + count - from_front]);
        reader.position += count as u64;
        count
    }
}

/// A scrollback that can be waited for: readers wait for output, and the pump that fills it waits
/// for readers.
#[derive(Debug)]
pub struct TerminalOutput {
    kept: Mutex<Scrollback>,
    /// Counts the changes that readers wait for.
    changes: watch::Sender<u64>,
    /// Notified when a reader has taken output, has come or has gone.
    advanced: Notify,
}

impl TerminalOutput {
    /// Makes a scrollback. `capacity` is the number of bytes that are kept for later readers.
    pub fn new(capacity: usize) -> Self {
        Self {
            kept: Mutex::new(Scrollback::new(capacity)),
            changes: watch::Sender::new(0),
            advanced: Notify::new(),
        }
    }

    pub fn push(&self, bytes: &[u8]) {
        self.kept.lock().push(bytes);
        self.tell_change();
    }

    /// Waits while the only reader is too far behind.
    pub async fn wait_for_room(&self) {
        while !self.kept.lock().takes_more() {
            self.advanced.notified().await;
        }
    }

    /// Wakes the tasks that wait for output or for the end of the program.
    pub fn tell_change(&self) {
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Returns a counter that changes when there is output and when the program has ended.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds a reader; see `Scrollback::add_reader`.
    pub fn add_reader(&self, replay: usize, role: Role) -> (u64, u64) {
        let added = self.kept.lock().add_reader(replay, role);
        self.advanced.notify_one();
        added
    }

    pub fn remove_reader(&self, key: u64) {
        self.kept.lock().remove_reader(key);
        self.advanced.notify_one();
    }

    /// Returns the number of clients.
    pub fn readers(&self) -> usize {
        self.kept.lock().readers()
    }

    /// Takes the note that bytes were skipped; see `Scrollback::take_lagged`.
    pub fn take_lagged(&self, key: u64) -> bool {
        self.kept.lock().take_lagged(key)
    }

    /// Tells whether there is output that this reader has not taken.
    pub fn has_news(&self, key: u64) -> bool {
        self.kept.lock().has_news(key)
    }

    /// Copies output; see `Scrollback::copy`.
    pub fn copy(&self, key: u64, buffer: &mut [u8]) -> usize {
        let count = self.kept.lock().copy(key, buffer);
        self.advanced.notify_one();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &mut Scrollback, key: u64) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 21];
        let count = output.copy(key, &mut buffer);
        buffer.truncate(count);
        buffer
    }

    #[test]
    fn the_last_bytes_are_replayed_and_new_ones_follow() {
        let mut output = Scrollback::new(4);
        output.push(b"abcdef");
        let (all, whole) = output.add_reader(99, Role::Client);
        let (some, part) = output.add_reader(2, Role::Client);
        assert_eq!((whole, part), (4, 2));
        output.push(b"gh");
        assert_eq!(read(&mut output, all), b"cdefgh");
        assert_eq!(read(&mut output, some), b"efgh");
        assert!(!output.has_news(all));
    }

    #[test]
    fn one_reader_holds_the_terminal_back_and_two_do_not() {
        let mut output = Scrollback::new(10);
        let (first, _) = output.add_reader(0, Role::Client);
        output.push(&vec![0; BACKLOG_LIMIT as usize]);
        assert!(!output.takes_more());
        let (second, _) = output.add_reader(0, Role::Client);
        assert!(output.takes_more());
        output.push(&vec![1; LAG_LIMIT as usize]);
        assert!(output.take_lagged(first));
        assert!(!output.take_lagged(second));
        assert_eq!(read(&mut output, first).len(), 0);
        assert_eq!(read(&mut output, second).len(), LAG_LIMIT as usize);
        output.remove_reader(first);
        output.remove_reader(second);
        assert_eq!(output.kept.len(), 10);
    }

    #[test]
    fn a_watcher_is_not_counted_and_holds_nothing_back() {
        let mut output = Scrollback::new(10);
        let (watcher, _) = output.add_reader(0, Role::Watcher);
        assert_eq!(output.readers(), 0);
        output.push(&vec![0; BACKLOG_LIMIT as usize]);
        assert!(output.takes_more());
        let (client, _) = output.add_reader(0, Role::Client);
        output.push(&vec![1; BACKLOG_LIMIT as usize]);
        assert!(!output.takes_more());
        assert_eq!(output.readers(), 1);
        // It skips what it did not read in time; the client loses nothing.
        assert!(output.take_lagged(watcher));
        assert_eq!(read(&mut output, watcher), vec![1; WATCH_REST as usize]);
        output.push(&vec![2; 2 * LAG_LIMIT as usize]);
        assert!(!output.take_lagged(client));
        assert_eq!(
            output.head - output.reader(client).unwrap().position,
            BACKLOG_LIMIT + 2 * LAG_LIMIT
        );
    }

    #[test]
    fn every_byte_comes_once_and_in_order_around_the_ring() {
        let mut output = Scrollback::new(7);
        let (key, _) = output.add_reader(0, Role::Client);
        let mut seen = Vec::new();
        for byte in 0..100u8 {
            output.push(&[byte, byte]);
            if byte % 3 == 0 {
                let mut small = [0; 5];
                let count = output.copy(key, &mut small);
                seen.extend_from_slice(&small[..count]);
            }
        }
        seen.extend(read(&mut output, key));
        let expected: Vec<u8> = (0..100).flat_map(|byte| [byte, byte]).collect();
        assert_eq!(seen, expected);
    }
}
