//! Typed access to the parameters of a request. Every error names the parameter.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::base64;
use crate::error::{Error, Result};

/// The parameters of a request. One that is null counts as absent. The methods that begin with
/// `opt_` return `None` for it; the others fail unless they have a default.
#[derive(Clone, Debug, Default)]
pub struct Params(Map<String, Value>);

impl Params {
    /// Fails unless the value is an object or null.
    pub fn new(value: Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self(map)),
            Value::Null => Ok(Self::default()),
            _ => Err(wrong("params", "must be an object")),
        }
    }

    /// A null parameter is an absent one.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The raw value, if there is one.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }

    /// A string.
    pub fn opt_str(&self, name: &str) -> Result<Option<&str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "must be a string")),
        }
    }

    pub fn str(&self, name: &str) -> Result<&str> {
        self.opt_str(name)?.ok_or_else(|| wrong(name, "is required"))
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(wrong(name, "must be true or false")),
        }
    }

    /// A whole number that is not negative. `opt_u32` and `opt_u16` also fail when it is too large.
    pub fn opt_u64(&self, name: &str) -> Result<Option<u64>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| wrong(name, "must be a whole number, not negative")),
        }
    }

    pub fn u64(&self, name: &str) -> Result<u64> {
        self.opt_u64(name)?.ok_or_else(|| wrong(name, "is required"))
    }

    pub fn opt_u32(&self, name: &str) -> Result<Option<u32>> {
        self.opt_u64(name)?
            .map(|n| u32::try_from(n).map_err(|_| wrong(name, "is too large")))
            .transpose()
    }

    pub fn u32(&self, name: &str) -> Result<u32> {
        self.opt_u32(name)?.ok_or_else(|| wrong(name, "is required"))
    }

    pub fn opt_u16(&self, name: &str) -> Result<Option<u16>> {
        self.opt_u64(name)?
            .map(|n| u16::try_from(n).map_err(|_| wrong(name, "is too large")))
            .transpose()
    }

    pub fn i64(&self, name: &str) -> Result<i64> {
        self.opt_i64(name)?.ok_or_else(|| wrong(name, "is required"))
    }

    pub fn opt_i64(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_i64()
                .map(Some)
                .ok_or_else(|| wrong(name, "must be a whole number")),
        }
    }

    /// Permission bits without the file type.
    pub fn opt_mode(&self, name: &str) -> Result<Option<u32>> {
        match self.opt_u64(name)? {
            Some(mode) if mode > 0o7777 => Err(wrong(name, "must be permission bits")),
            mode => Ok(mode.map(|mode| mode as u32)),
        }
    }

    /// A time in seconds, at most a year. 0 counts as absent.
    pub fn opt_seconds(&self, name: &str) -> Result<Option<Duration>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(seconds) if (0.0..=31_536_000.0).contains(&seconds) => {
                Ok(Some(Duration::from_secs_f64(seconds)).filter(|time| !time.is_zero()))
            }
            _ => Err(wrong(name, "must be seconds, at most a year")),
        }
    }

    /// A list of strings.
    pub fn opt_strings(&self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let list = value.as_array().and_then(|list| {
            list.iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        list.map(Some).ok_or_else(|| wrong(name, "must be a list of strings"))
    }

    /// The keys and values of an object of strings. An absent one counts as empty.
    pub fn string_map(&self, name: &str) -> Result<Vec<(&str, &str)>> {
        let Some(value) = self.get(name) else {
            return Ok(Vec::new());
        };
        value
            .as_object()
            .and_then(|map| {
                map.iter()
                    .map(|(key, value)| value.as_str().map(|value| (key.as_str(), value)))
                    .collect()
            })
            .ok_or_else(|| wrong(name, "must be an object of strings"))
    }

    /// The bytes of `name`, which is text, or of `name_b64`, which is base64.
    pub fn opt_bytes(&self, name: &str) -> Result<Option<Vec<u8>>> {
        if let Some(text) = self.opt_str(name)? {
            return Ok(Some(text.as_bytes().to_vec()));
        }
        let coded = format!("{name}_b64");
        match self.opt_str(&coded)? {
            None => Ok(None),
            Some(text) => base64::decode(text)
                .map(Some)
                .ok_or_else(|| wrong(&coded, "is not base64")),
        }
    }

    /// Like `opt_bytes`, for what the system takes as bytes.
    pub fn opt_os(&self, name: &str) -> Result<Option<OsString>> {
        Ok(self.opt_bytes(name)?.map(OsString::from_vec))
    }

    /// The list of strings `name`, or the list `name_b64`, whose items are base64.
    pub fn opt_os_list(&self, name: &str) -> Result<Option<Vec<OsString>>> {
        if let Some(texts) = self.opt_strings(name)? {
            return Ok(Some(texts.into_iter().map(OsString::from).collect()));
        }
        let coded = self.opt_coded(&format!("{name}_b64"))?;
        Ok(coded.map(|items| items.into_iter().map(OsString::from_vec).collect()))
    }

    /// A list of strings that are base64, decoded.
    pub fn opt_coded(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(texts) = self.opt_strings(name)? else {
            return Ok(None);
        };
        let items = texts.iter().map(|text| base64::decode(text)).collect::<Option<_>>();
        items
            .map(Some)
            .ok_or_else(|| wrong(name, "has an item that is not base64"))
    }

    /// An absolute path, as text in `name` or as base64 in `name_b64`.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let path = PathBuf::from(self.opt_os(name)?.ok_or_else(|| wrong(name, "is required"))?);
        if path.is_absolute() {
            Ok(path)
        } else {
            Err(wrong(name, "must be an absolute path"))
        }
    }
}

/// The error for a parameter that is wrong. `want` completes the sentence that begins with its
/// name.
pub fn wrong(name: &str, want: &'static str) -> Error {
    Error::Param {
        name: name.to_owned(),
        want,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use serde_json::json;

    fn params(value: Value) -> Params {
        Params::new(value).unwrap()
    }

    #[test]
    fn errors_name_the_parameter() {
        let error = params(json!({"window": "big"})).opt_u64("window").unwrap_err();
        assert!(error.to_string().contains("window"));
        assert_eq!(error.code(), Code::BadRequest);
        assert!(params(json!({})).str("command").is_err());
    }

    #[test]
    fn null_is_absent_and_zero_seconds_is_no_limit() {
        let p = params(json!({"a": null, "t": 0, "u": 0.5}));
        assert_eq!(p.opt_str("a").unwrap(), None);
        assert_eq!(p.opt_seconds("t").unwrap(), None);
        assert_eq!(p.opt_seconds("u").unwrap(), Some(Duration::from_millis(500)));
        assert!(params(json!({"t": -1})).opt_seconds("t").is_err());
    }

    #[test]
    fn a_path_may_be_any_bytes_but_absolute() {
        let p = params(json!({"path_b64": base64::encode(b"/tmp/\xff")}));
        assert_eq!(p.path("path").unwrap().into_os_string().into_vec(), b"/tmp/\xff");
        assert!(params(json!({"path": "etc"})).path("path").is_err());
    }

    #[test]
    fn a_list_may_be_of_any_bytes() {
        let p = params(json!({"argv_b64": [base64::encode(b"x\xff"), base64::encode(b"")]}));
        let words = p.opt_os_list("argv").unwrap().unwrap();
        assert_eq!(words, [OsString::from_vec(b"x\xff".to_vec()), OsString::new()]);
        assert!(params(json!({"argv_b64": ["?"]})).opt_os_list("argv").is_err());
        assert_eq!(p.opt_os_list("other").unwrap(), None);
    }
}
