//! Standard base64, for bytes that travel in JSON.

use ::base64::Engine;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The agent's texts have padding. The texts of clients may lack it.
const CODING: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Encodes with padding and without line breaks.
pub fn encode(bytes: &[u8]) -> String {
    CODING.encode(bytes)
}

/// Returns `None` when the text is not base64. Missing padding is tolerated.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    CODING.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_round_trip_and_padding_may_be_missing() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(plain.as_bytes()), coded);
            for text in [coded, coded.trim_end_matches('=')] {
                assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
            }
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
    }

    #[test]
    fn junk_is_refused() {
        for junk in ["A", "!!!!", "Zg===", "Z g="] {
            assert_eq!(decode(junk), None, "{junk}");
        }
    }
}
