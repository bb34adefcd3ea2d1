//! Moves a command's output from its pipe to a sink, until it ends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::sink::Sink;
use crate::source::{Moved, Source};

/// How long a descendant that holds the pipe may keep the call open.
const GRACE: Duration = Duration::from_millis(50);

/// How long a client that has canceled may withhold credit before the rest is dropped.
const PATIENCE: Duration = Duration::from_secs(1);
const YIELD_FROM: usize = 16 * 1024;

/// The end of a command.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub time: Instant,
    pub canceled: bool,
}

/// `None` while the command runs.
pub type Exited = watch::Receiver<Option<End>>;

/// Returns whether the source has ended: if not, somebody still holds it.
pub async fn pump(source: &Source, sink: &mut Sink, exited: Exited) -> bool {
    let ended = drain(source, sink, exited).await;
    // A sink that is gone has nobody to tell.
    let _ = sink.finish().await;
    ended
}

async fn drain(source: &Source, sink: &mut Sink, exited: Exited) -> bool {
    let mut grace = std::pin::pin!(grace_over(exited.clone()));
    // After the grace: what was in the pipe then, so a flood cannot go on for ever.
    let mut left: Option<usize> = None;
    while left != Some(0) {
        let room = tokio::select! {
            biased;
            () = &mut grace, if left.is_none() => {
                left = Some(source.pending());
                continue;
            }
            room = sink.room() => room.ok(),
            () = patience_over(exited.clone()) => None,
        };
        let Some(room) = room else {
            *sink = Sink::discard();
            continue;
        };
        let limit = match left {
            None => tokio::select! {
                biased;
                () = &mut grace => {
                    left = Some(source.pending());
                    continue;
                }
                () = source.ready() => room,
            },
            Some(count) => room.min(count),
        };
        match sink.pull(source, limit).await {
            Ok(Moved::Bytes(count)) => {
                left = left.map(|left| left.saturating_sub(count));
                // A flood must not keep the only thread from everybody else.
                if count >= YIELD_FROM {
                    tokio::task::yield_now().await;
                }
            }
            Ok(Moved::Empty) => left = left.map(|_| 0),
            Ok(Moved::End) => return true,
            // The bytes in flight are lost with their receiver.
            Err(_) => *sink = Sink::discard(),
        }
    }
    false
}

async fn grace_over(mut exited: Exited) {
    let end = exited.wait_for(Option::is_some).await.ok().and_then(|end| *end);
    // Without an end the command's task is gone: nothing to wait for.
    if let Some(end) = end {
        sleep_until(end.time + GRACE).await;
    }
}

/// A canceled command's output is welcome, but nobody has to take it.
async fn patience_over(mut exited: Exited) {
    let canceled = |end: &Option<End>| end.is_some_and(|end| end.canceled);
    if exited.wait_for(canceled).await.is_err() {
        return std::future::pending().await;
    }
    sleep(PATIENCE).await;
}

/// Keeps reading for a descendant that outlives its call, so that its next
/// write does not kill it.
pub async fn discard(source: Source) {
    let mut sink = Sink::discard();
    loop {
        source.ready().await;
        if matches!(sink.pull(&source, usize::MAX).await, Ok(Moved::End) | Err(_)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}
