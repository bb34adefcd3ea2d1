//! File contents as request bodies and response bodies.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::body::{Chunks, QUEUE, Reply};
use super::query::parse_query;
use crate::base::blocking::{self, OffRuntime};
use crate::base::error::{Error, Result};
use crate::files::reader::FileReader;
use crate::files::writer::FileWriter;
use crate::requests::agent::Agent;
use crate::requests::methods::ChannelAnswer;

const CHUNK: usize = 64 * 1024;

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
            // Closed before the client hears of the end, as in a session.
            Ok(((count > 0).then_some(reader), chunk))
        });
        let chunk = match result.await {
            Ok((Some(back), chunk)) => {
                reader = back;
                chunk
            }
            Ok((None, _)) => return,
            Err(error) => {
                // It makes no difference whether the client still receives the error.
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        if sender.send(Ok(chunk.into())).await.is_err() {
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
