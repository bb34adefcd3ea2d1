//! Watches of directories, on the channels of a session.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::carrying::{end, until_stopped};
use super::state::{Origin, Session};
use crate::base::blocking::{self, OffRuntime};
use crate::base::error::{Error, Result};
use crate::base::sys;
use crate::files::watch::{Kind, READ_SIZE, TreeWatch, WatchRequest, record};
use crate::link::channel::Channel;
use crate::link::wire::{self, DATA_HEADER, DATA_LIMIT, STDOUT};
use crate::processes::feed;
use crate::requests::methods::ChannelAnswer;

/// Marks that are answered at a time.
const MARKS_MAX: usize = 64;

/// Watches until the client cancels or the directory is gone: first the reply, then records of what
/// happens, then the event `end`. Each byte of the client's asks for a mark, which comes after all
/// that had happened by then.
pub async fn watch(
    session: &Arc<Session>,
    origin: &Origin,
    wanted: WatchRequest,
    channel: &Arc<Channel>,
) -> Result<()> {
    let watch = OffRuntime::new(blocking::run(move || TreeWatch::open(&wanted)).await?);
    let failed = |error| Error::io("inotify", error);
    let ready = watch.descriptor().map_err(failed)?;
    let ready = sys::watch(ready, Interest::READABLE).map_err(failed)?;
    let watching = ChannelAnswer::Watching {
        channel: channel.id,
        directories: watch.directories(),
    };
    session.answer(origin, watching).await;
    let mut bytes = 0;
    let telling = tell(session, channel, watch, &ready, &mut bytes);
    let result = until_stopped(session, channel, telling).await;
    feed::abandon(channel, Some(&session.out)).await;
    end(session, channel, bytes, result).await;
    Ok(())
}

async fn tell(
    session: &Session,
    channel: &Channel,
    mut watch: OffRuntime<TreeWatch>,
    ready: &AsyncFd<OwnedFd>,
    bytes: &mut u64,
) -> Result<()> {
    let mut may_ask = true;
    let mut is_drained = true;
    loop {
        let mut marks = 0;
        tokio::select! {
            biased;
            asked = channel.input.take(MARKS_MAX), if may_ask => match asked {
                Some(asked) => marks = asked.len(),
                None => may_ask = false,
            },
            () = std::future::ready(()), if !is_drained => {}
            // What comes after this makes it ready anew.
            guard = ready.readable() => guard.map_err(|error| Error::io("inotify", error))?.clear_ready(),
        }
        // A mark follows what waits now, and not what a busy guest goes on doing.
        let mut due = if marks > 0 {
            sys::pending(ready.as_fd())
        } else {
            READ_SIZE
        };
        while due > 0 && !watch.is_over {
            let (back, count) = blocking::run(move || watch.read().map(|count| (watch, count))).await?;
            watch = back;
            send(session, channel, &watch.take(), bytes).await?;
            due = if count == 0 { 0 } else { due.saturating_sub(count) };
        }
        is_drained = sys::pending(ready.as_fd()) == 0;
        if marks > 0 {
            send(session, channel, &record(Kind::Mark, false, b"").repeat(marks), bytes).await?;
            session.out.credit(channel.id, channel.input.consumed(marks)).await?;
        }
        if watch.is_over {
            return Ok(());
        }
    }
}

/// Sends records as the client takes them.
async fn send(session: &Session, channel: &Channel, mut records: &[u8], sent: &mut u64) -> Result<()> {
    while !records.is_empty() {
        let room = channel.stdout.room(&session.closed).await?;
        let (piece, rest) = records.split_at(room.min(DATA_LIMIT).min(records.len()));
        let mut frame = Vec::with_capacity(DATA_HEADER + piece.len());
        frame.extend(wire::encode_data_header(STDOUT, channel.id, piece.len()));
        frame.extend(piece);
        channel.stdout.spend(piece.len());
        session.out.raw(&frame).await?;
        *sent += piece.len() as u64;
        records = rest;
    }
    Ok(())
}
