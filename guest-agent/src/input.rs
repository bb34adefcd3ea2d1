//! Bytes on their way from a client to a consumer in the guest, bounded by the input window.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use crate::error::{Error, Result};

pub const WINDOW: usize = 256 * 1024;
/// Acknowledge in portions, so that single keystrokes do not double the traffic.
const CREDIT_STEP: usize = 32 * 1024;

#[derive(Debug, Default)]
pub struct Input {
    state: Mutex<State>,
    arrived: Notify,
    drained: Notify,
    /// Keeps pieces that come by JSON in the order of their requests.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BytesMut,
    /// Bytes from data frames that were not acknowledged yet.
    unacknowledged: usize,
    /// Part of `unacknowledged` that the consumer has taken.
    consumed: usize,
    ended: bool,
    /// Nobody reads any more: everything is dropped and acknowledged.
    abandoned: bool,
}

impl Input {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a data frame; empty means the end. Fails when the sender exceeds
    /// its window. Returns the credit to send at once.
    pub fn push_frame(&self, bytes: &[u8]) -> Result<usize> {
        let mut state = self.state();
        if state.abandoned {
            return Ok(bytes.len());
        }
        if bytes.is_empty() {
            state.ended = true;
        } else if state.unacknowledged + bytes.len() > WINDOW {
            return Err(Error::TooLarge {
                what: "unacknowledged input",
                limit: WINDOW,
            });
        } else if !state.ended {
            state.unacknowledged += bytes.len();
            state.waiting.extend_from_slice(bytes);
        }
        drop(state);
        self.arrived.notify_one();
        Ok(0)
    }

    /// Takes input that came in a request, waiting for room.
    pub async fn push(&self, mut bytes: &[u8], end: bool) {
        let _turn = self.turn.lock().await;
        while !bytes.is_empty() {
            let taken = {
                let mut state = self.state();
                if state.ended || state.abandoned {
                    return;
                }
                let room = WINDOW.saturating_sub(state.waiting.len());
                let taken = room.min(bytes.len());
                state.waiting.extend_from_slice(&bytes[..taken]);
                taken
            };
            bytes = &bytes[taken..];
            self.arrived.notify_one();
            if taken == 0 {
                self.drained.notified().await;
            }
        }
        if end {
            self.state().ended = true;
            self.arrived.notify_one();
        }
    }

    /// The next bytes, at most `limit`; `None` after the last one.
    pub async fn take(&self, limit: usize) -> Option<Bytes> {
        loop {
            {
                let mut state = self.state();
                if !state.waiting.is_empty() {
                    let count = state.waiting.len().min(limit);
                    return Some(state.waiting.split_to(count).freeze());
                }
                if state.ended || state.abandoned {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Notes that `count` bytes reached their consumer; returns the credit to send.
    pub fn consumed(&self, count: usize) -> usize {
        let mut state = self.state();
        state.consumed = (state.consumed + count).min(state.unacknowledged);
        let credit = if state.consumed >= CREDIT_STEP {
            std::mem::take(&mut state.consumed)
        } else {
            0
        };
        state.unacknowledged -= credit;
        drop(state);
        self.drained.notify_one();
        credit
    }

    /// The consumer is gone. Returns the credit for what it did not take.
    pub fn abandon(&self) -> usize {
        let mut state = self.state();
        state.abandoned = true;
        state.waiting = BytesMut::new();
        state.consumed = 0;
        let credit = std::mem::take(&mut state.unacknowledged);
        drop(state);
        self.drained.notify_one();
        self.arrived.notify_one();
        credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sender_beyond_its_window_is_cut_off() {
        let input = Input::default();
        assert_eq!(input.push_frame(&vec![0; WINDOW]).unwrap(), 0);
        assert!(input.push_frame(b"x").is_err());
        let taken = input.take(usize::MAX).await.unwrap().len();
        assert_eq!(input.consumed(taken), WINDOW);
        assert!(input.push_frame(b"x").is_ok());
    }

    #[tokio::test]
    async fn the_end_comes_after_the_last_byte() {
        let input = Input::default();
        input.push(b"abc", true).await;
        assert_eq!(input.take(2).await.as_deref(), Some(&b"ab"[..]));
        assert_eq!(input.take(2).await.as_deref(), Some(&b"c"[..]));
        assert_eq!(input.take(2).await, None);
    }

    #[tokio::test]
    async fn an_abandoned_input_acknowledges_everything() {
        let input = Input::default();
        input.push_frame(b"abc").unwrap();
        assert_eq!(input.abandon(), 3);
        assert_eq!(input.push_frame(b"de").unwrap(), 2);
        assert_eq!(input.take(9).await, None);
    }
}
