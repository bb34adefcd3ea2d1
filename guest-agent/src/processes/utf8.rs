//! Decodes a stream of bytes as UTF-8, although a character may be split between two reads.

/// Holds back up to 3 bytes that begin a character.
#[derive(Debug, Default)]
pub struct Utf8Carry {
    held: Vec<u8>,
}

impl Utf8Carry {
    /// Returns the text, with invalid bytes replaced.
    pub fn lossy(&mut self, bytes: &[u8]) -> String {
        match self.exact(bytes) {
            Ok(text) => text,
            Err(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// Returns the text, or the bytes as they are when some are invalid. In both cases the
    /// beginning of a character at the end is held back.
    pub fn exact(&mut self, bytes: &[u8]) -> Result<String, Vec<u8>> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        self.held = all.split_off(all.len() - cut_length(&all));
        String::from_utf8(all).map_err(|error| error.into_bytes())
    }

    /// Returns the bytes that were held back. To be called after the last read.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Returns the text that was held back, with invalid bytes replaced.
    pub fn finish_lossy(&mut self) -> String {
        String::from_utf8_lossy(&self.finish()).into_owned()
    }
}

/// Returns the number of bytes at the end that begin a character without ending it.
fn cut_length(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let tail = &bytes[bytes.len() - back..];
        if tail[0] & 0b1100_0000 == 0b1000_0000 {
            continue;
        }
        let is_cut = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        return if is_cut { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_cut_in_any_place_comes_whole() {
        let text = "aé€😀b";
        for step in 1..text.len() {
            let mut carry = Utf8Carry::default();
            let mut result = String::new();
            for chunk in text.as_bytes().chunks(step) {
                result += &carry.exact(chunk).unwrap();
            }
            assert_eq!(result, text);
            assert!(carry.finish().is_empty());
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_or_kept_but_never_lost() {
        let mut carry = Utf8Carry::default();
        assert_eq!(carry.lossy(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(carry.exact(b"a\xffb"), Err(b"a\xffb".to_vec()));
        assert_eq!(carry.lossy(b"\xe2\x82"), "");
        assert_eq!(carry.lossy(b"x"), "\u{fffd}x");
        assert_eq!(carry.lossy(b"\xe2"), "");
        assert_eq!(carry.finish_lossy(), "\u{fffd}");
    }
}
