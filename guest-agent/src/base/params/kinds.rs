//! The kinds of values that parameters have, beside those of the language.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// Returns the default of fields that are true unless a client says otherwise.
pub fn yes() -> bool {
    true
}

/// Text, or any bytes in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Vec<u8>);

impl From<Raw> for OsString {
    fn from(raw: Raw) -> Self {
        Self::from_vec(raw.0)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Bytes)
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Raw;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Raw, E> {
        Ok(Raw(text.as_bytes().to_vec()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> std::result::Result<Raw, E> {
        Ok(Raw(text.into_bytes()))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> std::result::Result<Raw, E> {
        Ok(Raw(bytes))
    }
}

/// An absolute path.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Place(pub PathBuf);

impl TryFrom<Raw> for Place {
    type Error = &'static str;

    fn try_from(raw: Raw) -> std::result::Result<Self, &'static str> {
        let path = PathBuf::from(OsString::from(raw));
        path.is_absolute()
            .then_some(Self(path))
            .ok_or("must be an absolute path")
    }
}

/// Permission bits without the file type.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u32")]
pub struct Mode(pub u32);

impl TryFrom<u32> for Mode {
    type Error = &'static str;

    fn try_from(mode: u32) -> std::result::Result<Self, &'static str> {
        (mode <= 0o7777).then_some(Self(mode)).ok_or("must be permission bits")
    }
}

/// A time in seconds, at most a year. 0 counts as absent, and so does what is rounded to 0 ns.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "f64")]
pub struct Seconds(pub Option<Duration>);

impl TryFrom<f64> for Seconds {
    type Error = &'static str;

    fn try_from(seconds: f64) -> std::result::Result<Self, &'static str> {
        if !(0.0..=31_536_000.0).contains(&seconds) {
            return Err("must be seconds, at most a year");
        }
        let time = Duration::from_secs_f64(seconds);
        Ok(Self(Some(time).filter(|time| !time.is_zero())))
    }
}

/// A time in seconds for which the guest may stand still: more than 0, at most 10.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub struct Moment(pub Duration);

impl TryFrom<f64> for Moment {
    type Error = &'static str;

    fn try_from(seconds: f64) -> std::result::Result<Self, &'static str> {
        let is_short = seconds > 0.0 && seconds <= 10.0;
        is_short
            .then(|| Self(Duration::from_secs_f64(seconds)))
            .ok_or("must be more than 0 and at most 10")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_time_that_is_rounded_to_nothing_is_no_limit() {
        let seconds = |value: Value| Seconds::deserialize(value).map(|seconds| seconds.0);
        for none in [json!(0), json!(-0.0), json!(1e-10), json!(4e-10), json!(5e-324)] {
            assert_eq!(seconds(none.clone()).unwrap(), None, "{none}");
        }
        assert_eq!(seconds(json!(1e-9)).unwrap(), Some(Duration::from_nanos(1)));
        assert_eq!(
            seconds(json!(31_536_000)).unwrap(),
            Some(Duration::from_secs(31_536_000))
        );
        assert!(seconds(json!(31_536_001)).is_err());
        assert!(seconds(json!(-1e-10)).is_err());
    }

    #[test]
    fn the_time_for_which_a_guest_stands_still_is_bounded() {
        let moment = |value: Value| Moment::deserialize(value).map(|moment| moment.0);
        assert_eq!(moment(json!(0.25)).unwrap(), Duration::from_millis(250));
        assert_eq!(moment(json!(10)).unwrap(), Duration::from_secs(10));
        for bad in [json!(0), json!(-1), json!(10.1), json!("1"), json!(1e300), json!(null)] {
            assert!(moment(bad).is_err());
        }
    }
}
