//! Request bodies and response bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{self, Body};
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::base::error::{Code, Error, Refusal, Result};
use crate::base::params::Params;

/// The largest JSON body of a request in bytes.
pub const PARAMS_LIMIT: usize = 1 << 20;

/// The number of chunks that wait for the connection. They are few, so that a slow client slows its
/// source down.
pub const QUEUE: usize = 4;

/// A response body that is produced while it is sent.
#[derive(Debug)]
pub struct Chunks<E = Infallible>(pub mpsc::Receiver<std::result::Result<Bytes, E>>);

impl<E> http_body::Body for Chunks<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, E>>> {
        self.0
            .poll_recv(context)
            .map(|chunk| chunk.map(|result| result.map(Frame::data)))
    }
}

/// A response of server-sent events.
#[derive(Debug)]
pub struct Events(pub mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

impl IntoResponse for Events {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, Body::new(self)).into_response()
    }
}

/// A response with a JSON body.
#[derive(Debug)]
pub struct Reply<T>(pub T);

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        let text = serde_json::to_string(&self.0).unwrap_or_default();
        ([(header::CONTENT_TYPE, "application/json")], text).into_response()
    }
}

/// The body of an error. HTTP clients have always known the message as `detail`.
#[derive(Serialize)]
struct Detail {
    detail: String,
    code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Refusal {
            code,
            message: detail,
            errno,
            parameter,
        } = self.refusal();
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = Detail {
            detail,
            code,
            errno,
            parameter,
        };
        (status, Reply(body)).into_response()
    }
}

/// The variable part of a path.
pub type Name = std::result::Result<Path<String>, PathRejection>;

/// Fails with `BadRequest` for a name that is not UTF-8.
pub fn readable(name: Name) -> Result<String> {
    let Path(name) = name.map_err(|error| Error::BadRequest(format!("path: {}", error.body_text())))?;
    Ok(name)
}

/// Reads the parameters of a method: a JSON object, or an empty body. Fails with `BadRequest` for
/// anything else.
pub async fn params(body: Body) -> Result<Params> {
    let bytes = whole(body, "the body", PARAMS_LIMIT).await?;
    if bytes.is_empty() {
        return Ok(Params::default());
    }
    let params: Option<Params> =
        serde_json::from_slice(&bytes).map_err(|error| Error::BadRequest(format!("body: {error}")))?;
    Ok(params.unwrap_or_default())
}

/// Reads a whole request body. Fails with `TooLarge`, naming it `what`, when it has more than
/// `limit` bytes.
pub async fn whole(body: Body, what: &'static str, limit: usize) -> Result<Bytes> {
    body::to_bytes(body, limit)
        .await
        .map_err(|_| Error::TooLarge { what, limit })
}
