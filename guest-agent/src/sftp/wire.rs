//! The encoding of SFTP packets (draft-ietf-secsh-filexfer-02, section 3).

use std::io::{self, Read};

/// The longest packet that is taken, in bytes. OpenSSH's server has the same limit.
pub const PACKET_LIMIT: usize = 256 * 1024;

/// A request as it came, read from the front.
#[derive(Debug)]
pub struct Fields<'a>(&'a [u8]);

/// A packet ends before its fields do.
#[derive(Debug)]
pub struct Short;

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Short> {
        if count > self.0.len() {
            return Err(Short);
        }
        let (front, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(front)
    }

    pub fn byte(&mut self) -> Result<u8, Short> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Result<u32, Short> {
        let bytes = self.take(4)?.try_into().map_err(|_| Short)?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, Short> {
        let bytes = self.take(8)?.try_into().map_err(|_| Short)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Takes a length and so many bytes.
    pub fn string(&mut self) -> Result<&'a [u8], Short> {
        let length = self.u32()? as usize;
        self.take(length)
    }
}

/// Reads the length of a packet and the packet into `buffer`. Returns false at the end of the
/// stream. A packet that is empty or too long is an error, because nothing after it can be found.
pub fn read_packet(input: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        result => result?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if !(1..=PACKET_LIMIT).contains(&length) {
        return Err(io::Error::other(format!("a packet of {length} bytes")));
    }
    buffer.resize(length, 0);
    input.read_exact(buffer)?;
    Ok(true)
}

/// Answers that are still to be written.
#[derive(Debug, Default)]
pub struct Answers {
    pub bytes: Vec<u8>,
    /// Where the packet that is being made begins.
    begun: usize,
}

impl Answers {
    pub fn begin(&mut self, kind: u8) -> &mut Self {
        self.begun = self.bytes.len();
        self.u32(0).byte(kind)
    }

    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn string(&mut self, value: &[u8]) -> &mut Self {
        self.u32(value.len() as u32);
        self.bytes.extend_from_slice(value);
        self
    }

    /// Adds a string of at most `limit` bytes, which `fill` reads. Returns its length. If `fill`
    /// fails, or reads nothing, the packet is taken back.
    pub fn fill(&mut self, limit: usize, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let at = self.bytes.len();
        self.bytes.resize(at + 4 + limit, 0);
        let count = fill(&mut self.bytes[at + 4..]);
        match count {
            Ok(count) if count > 0 => {
                self.bytes.truncate(at + 4 + count);
                self.bytes[at..at + 4].copy_from_slice(&(count as u32).to_be_bytes());
            }
            _ => self.bytes.truncate(self.begun),
        }
        count
    }

    /// Puts the length of the packet before it.
    pub fn end(&mut self) {
        let length = (self.bytes.len() - self.begun - 4) as u32;
        self.bytes[self.begun..self.begun + 4].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_never_read_beyond_the_packet() {
        let mut fields = Fields::new(&[0, 0, 0, 2, b'a', b'b', 9]);
        assert_eq!(fields.string().unwrap(), b"ab");
        assert_eq!(fields.byte().unwrap(), 9);
        assert!(fields.byte().is_err());
        assert!(Fields::new(&[0xff, 0xff, 0xff, 0xff, 1]).string().is_err());
        assert!(Fields::new(&[0; 7]).u64().is_err());
    }

    #[test]
    fn a_packet_that_is_empty_or_too_long_ends_the_stream() {
        let mut buffer = Vec::new();
        assert!(!read_packet(&mut &b""[..], &mut buffer).unwrap());
        assert!(read_packet(&mut &[0, 0, 0, 0][..], &mut buffer).is_err());
        assert!(read_packet(&mut &[0, 4, 0, 1, 0][..], &mut buffer).is_err());
        assert!(read_packet(&mut &[0, 0, 0, 3, 1][..], &mut buffer).is_err());
        assert!(read_packet(&mut &[0, 0, 0, 1, 7][..], &mut buffer).unwrap());
        assert_eq!(buffer, [7]);
    }

    #[test]
    fn data_that_cannot_be_read_leave_no_half_packet() {
        let mut answers = Answers::default();
        answers.begin(1).u32(5).end();
        let whole = answers.bytes.clone();
        assert_eq!(answers.begin(2).u32(6).fill(10, |_| Ok(0)).unwrap(), 0);
        assert_eq!(answers.bytes, whole);
        answers.begin(2).u32(6);
        assert_eq!(
            answers
                .fill(10, |buffer| {
                    buffer[0] = 9;
                    Ok(1)
                })
                .unwrap(),
            1
        );
        answers.end();
        assert_eq!(
            answers.bytes[whole.len()..],
            [0, 0, 0, 10, 2, 0, 0, 0, 6, 0, 0, 0, 1, 9]
        );
    }
}
