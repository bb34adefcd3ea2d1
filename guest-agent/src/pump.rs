//! Moves a command's output from its pipe to a sink, until it ends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::sink::Sink;
use crate::source::{Moved, Source};

/// How long a descendant that holds the pipe may keep the call open.
const GRACE: Duration = Duration::from_millis(50);

const YIELD_FROM: usize = 16 * 1024;

/// When the command ended; `None` while it runs.
pub type Exited = watch::Receiver<Option<Instant>>;

/// Returns whether the source has ended: if not, somebody still holds it.
pub async fn pump(source: &Source, sink: &mut Sink, exited: Exited) -> bool {
    let ended = drain(source, sink, exited).await;
    // A sink that is gone has nobody to tell.
    let _ = sink.finish().await;
    ended
}

async fn drain(source: &Source, sink: &mut Sink, exited: Exited) -> bool {
    let mut grace = std::pin::pin!(grace_over(exited));
    // After the grace: what was in the pipe then, so a flood cannot go on for ever.
    let mut left: Option<usize> = None;
    loop {
        let Ok(room) = sink.room().await else {
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
            Some(0) => return false,
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
}

async fn grace_over(mut exited: Exited) {
    let time = match exited.wait_for(Option::is_some).await {
        Ok(time) => time.unwrap_or_else(Instant::now),
        // The command's task is gone: nothing to wait for.
        Err(_) => return,
    };
    sleep_until(time + GRACE).await;
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
