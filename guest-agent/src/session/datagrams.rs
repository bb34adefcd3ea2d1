//! Datagrams in a stream of bytes. Each has its length before it: 2 bytes, big-endian.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::base::error::{Error, Result};

/// The largest datagram that IPv4 carries: 65,535 bytes less its header's 20 and UDP's 8.
pub const DATAGRAM_MAX: usize = 65_507;
/// The size in bytes of the length before a datagram.
const PREFIX: usize = 2;
/// The bytes that wait for a client, with their lengths. The kernel keeps as many beside them.
const QUEUE_MAX: usize = 128 * 1024;

/// Datagrams that wait until their client takes them, as the stream that it gets. When there are too
/// many bytes, the oldest datagrams are dropped, as networks do: what is late is worth less.
#[derive(Debug, Default)]
pub struct Queue {
    bytes: VecDeque<u8>,
    /// The number of bytes at the front that are the end of a datagram whose beginning was taken.
    begun: usize,
}

impl Queue {
    /// Appends a datagram of at most `DATAGRAM_MAX` bytes.
    pub fn push(&mut self, datagram: &[u8]) {
        while self.bytes.len() + PREFIX + datagram.len() > QUEUE_MAX
            && let Some(size) = self.size_at(self.begun)
        {
            self.bytes.drain(self.begun..self.begun + size);
        }
        self.bytes.extend((datagram.len() as u16).to_be_bytes());
        self.bytes.extend(datagram);
    }

    /// Returns the number of bytes of the datagram that begins at `place`, with its length.
    fn size_at(&self, place: usize) -> Option<usize> {
        let length = [*self.bytes.get(place)?, *self.bytes.get(place + 1)?];
        Some(PREFIX + usize::from(u16::from_be_bytes(length)))
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Moves the next bytes of the stream into `buffer`, as many as fit. Returns their number.
    pub fn take_into(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.bytes.len());
        let mut end = self.begun;
        while end < count
            && let Some(size) = self.size_at(end)
        {
            end += size;
        }
        for (target, byte) in buffer.iter_mut().zip(self.bytes.drain(..count)) {
            *target = byte;
        }
        self.begun = end - count;
        count
    }
}

/// Finds the datagrams in pieces of a stream. It holds at most one incomplete datagram beside the
/// last piece.
#[derive(Debug, Default)]
pub struct Splitter {
    waiting: BytesMut,
}

impl Splitter {
    pub fn push(&mut self, piece: &[u8]) {
        self.waiting.extend_from_slice(piece);
    }

    /// Returns the next datagram, or `None` when more bytes are needed. Fails with `TooLarge` when
    /// a datagram is longer than `DATAGRAM_MAX`.
    pub fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(length) = self.waiting.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if length > DATAGRAM_MAX {
            return Err(Error::TooLarge {
                what: "the datagram",
                limit: DATAGRAM_MAX,
            });
        }
        if self.waiting.len() < PREFIX + length {
            return Ok(None);
        }
        self.waiting.advance(PREFIX);
        Ok(Some(self.waiting.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Bytes> {
        let mut splitter = Splitter::default();
        let mut found = Vec::new();
        // Byte by byte, since a stream may be cut anywhere.
        for byte in bytes {
            splitter.push(&[*byte]);
            while let Some(datagram) = splitter.next().unwrap() {
                found.push(datagram);
            }
        }
        found
    }

    #[test]
    fn datagrams_come_out_as_they_went_in() {
        let mut queue = Queue::default();
        for datagram in [&b"one"[..], b"", &[7; 300]] {
            queue.push(datagram);
        }
        let mut buffer = [0; 1000];
        let count = queue.take_into(&mut buffer);
        assert_eq!(count, 3 + 300 + 3 * PREFIX);
        assert_eq!(all(&buffer[..count]), [&b"one"[..], b"", &[7; 300]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_full_queue_drops_the_oldest() {
        let mut queue = Queue::default();
        for number in 0..200_u8 {
            queue.push(&[number; 1000]);
        }
        assert!(queue.bytes.len() <= QUEUE_MAX);
        let mut buffer = vec![0; QUEUE_MAX];
        let count = queue.take_into(&mut buffer);
        let kept: Vec<u8> = all(&buffer[..count]).iter().map(|datagram| datagram[0]).collect();
        assert_eq!(kept, (200 - kept.len() as u8..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_datagram_that_has_begun_is_not_dropped() {
        let mut queue = Queue::default();
        let mut stream = vec![0; QUEUE_MAX];
        queue.push(&vec![1; DATAGRAM_MAX]);
        assert_eq!(queue.take_into(&mut stream[..5]), 5);
        queue.push(&[2; 1000]);
        queue.push(&vec![3; DATAGRAM_MAX]);
        assert!(queue.bytes.len() <= QUEUE_MAX);
        let mut count = 5;
        while !queue.is_empty() {
            let end = stream.len().min(count + 1000);
            count += queue.take_into(&mut stream[count..end]);
        }
        let found = all(&stream[..count]);
        let facts: Vec<_> = found.iter().map(|datagram| (datagram.len(), datagram[0])).collect();
        assert_eq!(facts, [(DATAGRAM_MAX, 1), (DATAGRAM_MAX, 3)]);
    }

    #[test]
    fn what_no_datagram_can_be_is_refused() {
        let mut splitter = Splitter::default();
        splitter.push(&(DATAGRAM_MAX as u16 + 1).to_be_bytes());
        assert!(splitter.next().is_err());
    }
}
