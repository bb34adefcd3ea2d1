//! Finding the first frame of a new client on a port.
//!
//! A port is one endless byte stream: what a client left behind when it died,
//! perhaps half a frame, stands before the first frame of the next client, and
//! the news that they changed may come before, between or after. So a session
//! on a port starts with the first bytes that are a frame which may open one.

use bytes::{Buf, Bytes, BytesMut};
use serde_json::Value;

/// Methods that are answered before a client has authenticated.
const OPENERS: [&str; 3] = ["hello", "authenticate", "ping"];
/// A handshake is small; its token is the largest part.
const OPENING_LIMIT: usize = 32 * 1024;

/// The payload of the first opening frame in `buffer`, which is left with what
/// follows. Otherwise what cannot become one is dropped.
pub fn find(buffer: &mut BytesMut) -> Option<Bytes> {
    let mut keep_from = None;
    for start in 0..buffer.len() {
        match examine(&buffer[start..]) {
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

fn examine(bytes: &[u8]) -> Candidate {
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

fn opens(payload: &[u8]) -> bool {
    serde_json::from_slice::<Value>(payload)
        .ok()
        .and_then(|frame| Some(OPENERS.contains(&frame.get("method")?.as_str()?)))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DATA_HEADER, JSON_LIMIT, encode_data_header, encode_json};
    use serde_json::json;

    fn frame(method: &str) -> Vec<u8> {
        encode_json(&json!({"id": 1, "method": method, "params": {}}), JSON_LIMIT).unwrap()
    }

    #[test]
    fn an_opening_frame_is_found_at_once_and_the_rest_is_left() {
        let mut buffer = BytesMut::from(&[frame("hello"), frame("info")].concat()[..]);
        assert!(find(&mut buffer).unwrap().starts_with(b"{"));
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
            assert_eq!(find(&mut buffer), None);
            // Byte by byte, as badly as it can come.
            let mut found = None;
            for byte in frame("hello") {
                buffer.extend_from_slice(&[byte]);
                found = found.or(find(&mut buffer));
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
            assert_eq!(find(&mut buffer), None);
            assert!(buffer.len() <= OPENING_LIMIT + 2000 + DATA_HEADER);
        }
    }
}
