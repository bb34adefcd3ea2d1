//! Response bodies that are produced while they are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;

/// Chunks on their way to the connection: a few, so that a slow client slows
/// its source down.
pub const QUEUE: usize = 4;

#[derive(Debug)]
pub struct Chunks<E = Infallible>(pub mpsc::Receiver<Result<Bytes, E>>);

impl<E> http_body::Body for Chunks<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        self.0
            .poll_recv(context)
            .map(|chunk| chunk.map(|result| result.map(Frame::data)))
    }
}

/// Server-sent events.
#[derive(Debug)]
pub struct Events(pub mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
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
