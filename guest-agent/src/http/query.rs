//! Parameters in the query of a URL.

use serde_json::Map;

use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::params::Params;

/// Reads the parameters from a query. Fails with `BadRequest` when it is not well formed.
pub fn parse_query(query: Option<String>) -> Result<Params> {
    let mut params = Map::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = String::from_utf8(percent_decode(key)?)
            .map_err(|_| Error::BadRequest(format!("query: {key:?} is not UTF-8")))?;
        match String::from_utf8(percent_decode(value)?) {
            Ok(text) => params.insert(name, text.into()),
            Err(error) => params.insert(format!("{name}_b64"), base64::encode(error.as_bytes()).into()),
        };
    }
    Ok(Params::of_texts(params))
}

fn percent_decode(text: &str) -> Result<Vec<u8>> {
    let bad = || Error::BadRequest(format!("query: {text:?} has a % without two digits"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
                (high << 4 | low) as u8
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::params::{Mode, Place};
    use serde::Deserialize;
    use std::os::unix::ffi::OsStrExt;

    #[derive(Debug, Deserialize)]
    struct Wanted {
        path: Place,
        mode: Option<Mode>,
        mtime_ns: Option<i64>,
        length: Option<u64>,
        #[serde(default)]
        append: bool,
    }

    fn parse(query: &str) -> Result<Wanted> {
        parse_query(Some(query.into()))?.take()
    }

    #[test]
    fn a_number_of_a_query_has_the_range_of_its_field() {
        let parse = |query: &str| parse(&format!("path=/&{query}"));
        let length = |text: &str| parse(&format!("length={text}")).map(|wanted| wanted.length);
        for number in [0, 1 << 63, u64::MAX] {
            assert_eq!(length(&number.to_string()).unwrap(), Some(number));
            assert_eq!(length(&format!("0o{number:o}")).unwrap(), Some(number));
        }
        for bad in ["18446744073709551616", "-1", "1e3", ""] {
            assert!(length(bad).unwrap_err().to_string().contains("\"length\""), "{bad}");
        }
        let mtime_ns = |text: &str| parse(&format!("mtime_ns={text}")).map(|wanted| wanted.mtime_ns);
        for number in [i64::MIN, i64::MAX] {
            assert_eq!(mtime_ns(&number.to_string()).unwrap(), Some(number));
        }
        for bad in ["9223372036854775808", "-9223372036854775809"] {
            assert!(mtime_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_texts_of_a_query_become_what_their_fields_are() {
        let wanted = parse("path=/tmp/a%20b%2B&mode=0o640&append&mtime_ns=-7").unwrap();
        assert_eq!(wanted.path.0.to_str(), Some("/tmp/a b+"));
        assert_eq!(wanted.mode.map(|mode| mode.0), Some(0o640));
        assert_eq!((wanted.append, wanted.mtime_ns), (true, Some(-7)));
        let wanted = parse("path=/tmp/%ff%C3%A9&append=false&mode=420").unwrap();
        assert_eq!(wanted.path.0.as_os_str().as_bytes(), b"/tmp/\xff\xc3\xa9");
        assert_eq!((wanted.append, wanted.mode.map(|mode| mode.0)), (false, Some(0o644)));
        for bad in [
            "path=%f",
            "%ff=x&path=/",
            "path=/&mode=rw",
            "path=/&mode=0o10000",
            "path=/&append=maybe",
            "mode=1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
