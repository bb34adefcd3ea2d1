//! File contents as request bodies and response bodies.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::body::{Chunks, QUEUE, Reply};
use crate::agent::Agent;
use crate::base64;
use crate::blocking::{self, OffRuntime};
use crate::error::{Error, Result};
use crate::file_reader::FileReader;
use crate::file_writer::FileWriter;
use crate::methods::ChannelAnswer;
use crate::params::Params;

const CHUNK: usize = 64 * 1024;
const NUMBERS: [&str; 4] = ["offset", "length", "mode", "mtime_ns"];
const FLAGS: [&str; 3] = ["parents", "append", "exclusive"];

/// Sends the contents of a file as they are.
pub async fn read(State(_): State<Arc<Agent>>, RawQuery(query): RawQuery) -> Result<impl IntoResponse> {
    let request = parse_query(query)?.take()?;
    let reader = OffRuntime::new(blocking::run(move || FileReader::open(request)).await?);
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(send(reader, sender));
    let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, Body::new(Chunks(receiver))))
}

/// After the first byte, an error can only break the connection off.
async fn send(mut reader: OffRuntime<FileReader>, sender: mpsc::Sender<Result<Bytes>>) {
    loop {
        let result = blocking::run(move || {
            let mut chunk = vec![0; CHUNK];
            let count = reader.read(&mut chunk)?;
            chunk.truncate(count);
            Ok((reader, chunk))
        });
        let chunk = match result.await {
            Ok((back, chunk)) => {
                reader = back;
                chunk
            }
            Err(error) => {
                // It makes no difference whether the client still receives the error.
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        if chunk.is_empty() || sender.send(Ok(chunk.into())).await.is_err() {
            return;
        }
    }
}

/// Replaces a file by the body. A body that breaks off leaves the old file as it was.
pub async fn write(
    State(_): State<Arc<Agent>>,
    RawQuery(query): RawQuery,
    mut body: Body,
) -> Result<Reply<ChannelAnswer>> {
    let request = parse_query(query)?.take()?;
    let mut writer = OffRuntime::new(blocking::run(move || FileWriter::open(&request)).await?);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::BadRequest(format!("body: {error}")))?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        writer = blocking::run(move || {
            writer.write(&bytes)?;
            Ok(writer)
        })
        .await?;
    }
    let bytes = blocking::run(move || writer.commit()).await?;
    Ok(Reply(ChannelAnswer::Written { bytes }))
}

/// Reads the parameters from the query. A query is text, so numbers and flags are recognised by
/// their names.
fn parse_query(query: Option<String>) -> Result<Params> {
    let mut params = Map::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = text(percent_decode(key)?, key)?;
        let bytes = percent_decode(value)?;
        // What is not UTF-8 can only be a name; the parameters take its bytes by this name.
        if std::str::from_utf8(&bytes).is_err() {
            params.insert(format!("{key}_b64"), base64::encode(&bytes).into());
            continue;
        }
        let value = text(bytes, value)?;
        let value = if NUMBERS.contains(&key.as_str()) {
            parse_number(&value).map(Value::from)
        } else if FLAGS.contains(&key.as_str()) {
            parse_flag(&value).map(Value::from)
        } else {
            Some(Value::from(value))
        };
        let value = value.ok_or_else(|| Error::BadRequest(format!("query: bad value of {key:?}")))?;
        params.insert(key, value);
    }
    Ok(Params(params))
}

/// Parses a decimal number, or an octal one such as `0o644`, as modes are usually written.
fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0o") {
        Some(octal) => u64::from_str_radix(octal, 8).ok(),
        None => text.parse().ok(),
    }
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "" | "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn text(bytes: Vec<u8>, coded: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Error::BadRequest(format!("query: {coded:?} is not UTF-8")))
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
    use serde_json::json;

    #[test]
    fn a_query_is_decoded_and_typed() {
        let params = |query: &str| parse_query(Some(query.into())).unwrap();
        let typed = json!({"path": "/tmp/a b+", "mode": 0o640, "append": true});
        assert_eq!(json!(params("path=/tmp/a%20b%2B&mode=0o640&append").0), typed);
        assert!(parse_query(Some("path=%f".into())).is_err());
        assert!(parse_query(Some("mode=rw".into())).is_err());
        let coded = json!({"path_b64": base64::encode(b"/tmp/\xff\xc3\xa9")});
        assert_eq!(json!(params("path=/tmp/%ff%C3%A9").0), coded);
        assert!(parse_query(Some("%ff=x".into())).is_err());
    }
}
