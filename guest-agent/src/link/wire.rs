//! Encodes and decodes frames: bytes in, frames out, without any descriptor. The format is
//! described in docs/internals/agent-protocol.md.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// The largest JSON of a frame in bytes.
pub const JSON_LIMIT: usize = 1 << 20;
/// The largest reply of `execute` in bytes: two streams of 1 MiB, which JSON may make six times as
/// large.
pub const EXECUTE_LIMIT: usize = 16 << 20;
/// The largest number of bytes of a stream in one frame.
pub const DATA_LIMIT: usize = 256 * 1024;
/// The size in bytes of the header of a data frame: frame word, stream and channel.
pub const DATA_HEADER: usize = 9;

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;

const KIND_DATA: u32 = 1 << 31;
const CREDIT: u8 = 0x80;
/// The size in bytes of stream and channel, which count towards the length of a frame.
const DATA_PREFIX: usize = 5;

/// A frame from the host.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Json(Bytes),
    Data { stream: u8, channel: u32, bytes: Bytes },
    Credit { stream: u8, channel: u32, count: u32 },
}

/// The ways in which a frame breaks the protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("a JSON frame of {0} bytes exceeds {JSON_LIMIT}")]
    JsonTooLong(usize),
    #[error("a data frame of {0} bytes exceeds {limit}", limit = DATA_LIMIT + DATA_PREFIX)]
    DataTooLong(usize),
    #[error("a data frame of {0} bytes has no room for stream and channel")]
    DataTooShort(usize),
    #[error("a credit frame must carry 4 bytes, not {0}")]
    CreditSize(usize),
}

/// Decodes frames. It holds at most one incomplete frame, so at most `JSON_LIMIT` and the bytes of
/// one read.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Returns the buffer to which the bytes that were read are appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the next whole frame, or `None` when more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let Some(word) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let word = u32::from_be_bytes(*word);
        let is_data = word & KIND_DATA != 0;
        let length = (word & !KIND_DATA) as usize;
        check_length(is_data, length)?;
        if self.buffer.len() < 4 + length {
            self.buffer.reserve(4 + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(4);
        let payload = self.buffer.split_to(length).freeze();
        if is_data {
            decode_data(payload).map(Some)
        } else {
            Ok(Some(Frame::Json(payload)))
        }
    }
}

fn check_length(is_data: bool, length: usize) -> Result<(), WireError> {
    match (is_data, length) {
        (false, n) if n > JSON_LIMIT => Err(WireError::JsonTooLong(n)),
        (true, n) if n > DATA_LIMIT + DATA_PREFIX => Err(WireError::DataTooLong(n)),
        (true, n) if n < DATA_PREFIX => Err(WireError::DataTooShort(n)),
        _ => Ok(()),
    }
}

fn decode_data(mut payload: Bytes) -> Result<Frame, WireError> {
    let stream = payload.get_u8();
    let channel = payload.get_u32();
    if stream & CREDIT == 0 {
        return Ok(Frame::Data {
            stream,
            channel,
            bytes: payload,
        });
    }
    if payload.len() != 4 {
        return Err(WireError::CreditSize(payload.len()));
    }
    Ok(Frame::Credit {
        stream: stream & !CREDIT,
        channel,
        count: payload.get_u32(),
    })
}

/// Encodes a frame with a JSON value. Returns `None` when the JSON exceeds `limit` bytes.
pub fn encode_json(value: &impl Serialize, limit: usize) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, value).ok()?;
    let length = frame.len() - 4;
    if length > limit {
        return None;
    }
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Some(frame)
}

/// Returns the header of a data frame with `length` bytes of a stream.
pub fn encode_data_header(stream: u8, channel: u32, length: usize) -> [u8; DATA_HEADER] {
    let mut header = [0; DATA_HEADER];
    let word = KIND_DATA | (length + DATA_PREFIX) as u32;
    header[..4].copy_from_slice(&word.to_be_bytes());
    header[4] = stream;
    header[5..].copy_from_slice(&channel.to_be_bytes());
    header
}

/// Returns a frame that acknowledges `count` bytes of a stream.
pub fn encode_credit(stream: u8, channel: u32, count: u32) -> [u8; DATA_HEADER + 4] {
    let mut frame = [0; DATA_HEADER + 4];
    frame[..DATA_HEADER].copy_from_slice(&encode_data_header(stream | CREDIT, channel, 4));
    frame[DATA_HEADER..].copy_from_slice(&count.to_be_bytes());
    frame
}

/// The largest handshake in bytes. Its largest part is the token.
const OPENING_LIMIT: usize = 32 * 1024;

/// Finds the first frame of a new client on a port. Returns its payload and leaves the bytes after
/// it in `buffer`. Without such a frame, drops the bytes that cannot become one.
///
/// A port is one endless stream of bytes. A client that died may have left half a frame, which
/// stands before the first frame of the next client. The news that the client changed may come
/// before these bytes, between them or after them. So a session on a port starts with the first
/// bytes that are a frame which may open a session.
pub fn find_opening(buffer: &mut BytesMut) -> Option<Bytes> {
    let mut keep_from = None;
    for start in 0..buffer.len() {
        match examine_opening(&buffer[start..]) {
            Candidate::Opening(length) => {
                buffer.advance(start + 4);
                return Some(buffer.split_to(length).freeze());
            }
            Candidate::Incomplete => {
                keep_from.get_or_insert(start);
            }
            Candidate::No => {}
        }
    }
    buffer.advance(keep_from.unwrap_or(buffer.len()));
    None
}

enum Candidate {
    Opening(usize),
    Incomplete,
    No,
}

fn examine_opening(bytes: &[u8]) -> Candidate {
    let Some(word) = bytes.first_chunk::<4>() else {
        return Candidate::Incomplete;
    };
    let length = u32::from_be_bytes(*word) as usize;
    match bytes.get(4) {
        _ if !(2..=OPENING_LIMIT).contains(&length) => Candidate::No,
        Some(first) if *first != b'{' => Candidate::No,
        _ => match bytes.get(4..4 + length) {
            None => Candidate::Incomplete,
            Some(payload) if opens(payload) => Candidate::Opening(length),
            Some(_) => Candidate::No,
        },
    }
}

/// A request that may open a session: it is answered before the client has authenticated.
#[derive(Deserialize)]
struct Opener {
    #[serde(rename = "method")]
    _method: OpeningMethod,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OpeningMethod {
    Hello,
    Authenticate,
    Ping,
}

fn opens(payload: &[u8]) -> bool {
    serde_json::from_slice::<Opener>(payload).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decode_all(bytes: &[u8], step: usize) -> Result<Vec<Frame>, WireError> {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for chunk in bytes.chunks(step) {
            decoder.buffer().extend_from_slice(chunk);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_survive_any_split() {
        let mut bytes = encode_json(&json!({"id": 1}), JSON_LIMIT).unwrap();
        bytes.extend(encode_data_header(STDOUT, 7, 3));
        bytes.extend(b"abc");
        bytes.extend(encode_credit(STDOUT, 7, 65536));
        bytes.extend(encode_data_header(STDIN, 9, 0));
        let whole = decode_all(&bytes, bytes.len()).unwrap();
        assert_eq!(whole.len(), 4);
        assert_eq!(whole[0], Frame::Json(Bytes::from_static(b"{\"id\":1}")));
        assert_eq!(
            whole[2],
            Frame::Credit {
                stream: STDOUT,
                channel: 7,
                count: 65536
            }
        );
        for step in 1..bytes.len() {
            assert_eq!(decode_all(&bytes, step).unwrap(), whole);
        }
    }

    #[test]
    fn what_exceeds_a_limit_is_refused_before_it_is_read() {
        let word = |word: u32| decode_all(&word.to_be_bytes(), 4).unwrap_err();
        assert_eq!(word(0x7fff_ffff), WireError::JsonTooLong(0x7fff_ffff));
        assert_eq!(word(0xffff_ffff), WireError::DataTooLong(0x7fff_ffff));
        assert_eq!(word(0x8000_0004), WireError::DataTooShort(4));
        let mut credit = encode_credit(STDOUT, 1, 1).to_vec();
        credit[3] += 1;
        credit.push(0);
        assert_eq!(decode_all(&credit, 99), Err(WireError::CreditSize(5)));
    }

    #[test]
    fn a_frame_at_the_limit_passes() {
        let mut bytes = encode_data_header(STDIN, 1, DATA_LIMIT).to_vec();
        bytes.resize(DATA_HEADER + DATA_LIMIT, b'x');
        assert_eq!(decode_all(&bytes, 4096).unwrap().len(), 1);
        assert!(encode_json(&"x".repeat(JSON_LIMIT), JSON_LIMIT).is_none());
    }

    /// The junk comes from a linear congruential generator, so it is reproducible without a
    /// dependency.
    #[test]
    fn arbitrary_bytes_never_panic_and_never_buffer_without_bound() {
        let mut seed = 1u64;
        for _ in 0..200 {
            let mut decoder = Decoder::default();
            for _ in 0..64 {
                let junk: Vec<u8> = (0..97)
                    .map(|_| {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        // Small first bytes make plausible lengths likely.
                        if seed >> 61 == 0 {
                            (seed >> 33) as u8
                        } else {
                            (seed >> 56) as u8 & 3
                        }
                    })
                    .collect();
                decoder.buffer().extend_from_slice(&junk);
                loop {
                    match decoder.next_frame() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => {
                            decoder = Decoder::default();
                            break;
                        }
                    }
                }
                assert!(decoder.buffer.len() <= JSON_LIMIT + 97 + 4);
            }
        }
    }

    fn frame(method: &str) -> Vec<u8> {
        encode_json(&json!({"id": 1, "method": method, "params": {}}), JSON_LIMIT).unwrap()
    }

    #[test]
    fn an_opening_frame_is_found_at_once_and_the_rest_is_left() {
        let mut buffer = BytesMut::from(&[frame("hello"), frame("info")].concat()[..]);
        assert!(find_opening(&mut buffer).unwrap().starts_with(b"{"));
        assert_eq!(buffer, frame("info"));
    }

    #[test]
    fn leftovers_of_any_kind_are_skipped() {
        let half_data = [&encode_data_header(0, 1, 9000)[..], b"{half"].concat();
        let half_json = frame("execute")[..20].to_vec();
        let whole = frame("execute");
        for leftover in [
            half_data,
            half_json,
            whole,
            vec![0; 5000],
            vec![0xff; 7],
            frame("hello")[1..].to_vec(),
        ] {
            let mut buffer = BytesMut::from(&leftover[..]);
            assert_eq!(find_opening(&mut buffer), None);
            // The frame comes byte by byte, which is the hardest case.
            let mut found = None;
            for byte in frame("hello") {
                buffer.extend_from_slice(&[byte]);
                found = found.or(find_opening(&mut buffer));
            }
            assert!(found.is_some(), "after {} bytes", leftover.len());
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn junk_does_not_pile_up() {
        let mut buffer = BytesMut::new();
        for _ in 0..2000 {
            buffer.extend_from_slice(&[0, 0, 0x7f, 0xff, b'{', 0, 0, 0x10, 0, b'{']);
            buffer.extend_from_slice(&[b'x'; 1000]);
            assert_eq!(find_opening(&mut buffer), None);
            assert!(buffer.len() <= OPENING_LIMIT + 2000 + DATA_HEADER);
        }
    }
}
