//! Runs a command: its pipes, its time limit and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::command::Command;
use super::feed::{Feed, Stdin};
use super::gate::{Gate, Slot};
use super::outcome::Outcome;
use super::output::{self, End, Sink, pump};
use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::base::spawn::{self, Child, Leads};
use crate::base::sys;
use crate::link::channel::{Channel, Stop};
use crate::link::source::Source;
use crate::users::passwd::{self, User};

/// The size in bytes of the output pipe. A large one means fewer switches between the command and
/// the agent when there is one CPU.
const PIPE_SIZE: usize = 1 << 20;
const TIMEOUT_GRACE: Duration = Duration::from_millis(200);
const HANGUP_GRACE: Duration = Duration::from_secs(2);
const TIMEOUT_CODE: i32 = 124;

/// The means that all commands of an agent share.
#[derive(Debug)]
pub struct Commands {
    /// The user that the agent runs as.
    pub me: User,
    gate: Gate,
    null: Arc<OwnedFd>,
}

impl Commands {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            me: passwd::me(),
            gate: Gate::default(),
            null: Arc::new(spawn::open_null()?),
        })
    }
}

/// A command that runs, and the agent's ends of its pipes.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<OwnedFd>,
    stdout: Source,
    stderr: Source,
    started: Instant,
    deadline: Option<Instant>,
    /// The place among the running commands, given back at the end.
    _slot: Slot,
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.child.pid
    }

    /// Takes the end of the input pipe, which is the caller's to feed and to close from then on.
    pub fn take_stdin(&mut self) -> Option<OwnedFd> {
        self.stdin.take()
    }
}

/// Starts a command. Fails with `Busy` when the command may not run beside others, and as
/// `Command::spawn` does.
pub async fn start(commands: &Commands, command: Command, with_stdin: bool) -> Result<Running> {
    let slot = commands.gate.enter(command.exclusive)?;
    let failed = |error| Error::io("pipe", error);
    let (stdout, stdout_end) = sys::pipe().map_err(failed)?;
    let (stderr, stderr_end) = sys::pipe().map_err(failed)?;
    sys::enlarge_pipe(stdout.as_fd(), PIPE_SIZE);
    let (stdin_end, stdin) = if with_stdin {
        let (read_end, write_end) = sys::pipe().map_err(failed)?;
        (Arc::new(read_end), Some(write_end))
    } else {
        (commands.null.clone(), None)
    };
    let timeout = command.timeout;
    let stdio = [stdin_end, Arc::new(stdout_end), Arc::new(stderr_end)];
    // Everything that can fail is done before the child runs.
    let stdout = Source::pipe(stdout).map_err(failed)?;
    let stderr = Source::pipe(stderr).map_err(failed)?;
    let child = command.spawn(stdio, Leads::Group).await?;
    let started = Instant::now();
    Ok(Running {
        child,
        stdin,
        stdout,
        stderr,
        started,
        deadline: timeout.map(|timeout| started + timeout),
        _slot: slot,
    })
}

/// The events outside a command that may end it.
pub struct Ties<'a> {
    channel: &'a Channel,
    /// The end of the session, or `None` when the command outlives it.
    closed: Option<&'a Closed>,
}

impl<'a> Ties<'a> {
    pub fn new(channel: &'a Channel, closed: Option<&'a Closed>) -> Self {
        Self { channel, closed }
    }
}

/// Runs the command to its end. When this returns, the last byte of output has been delivered.
pub async fn run(running: Running, stdin: Stdin<'_>, sinks: [&mut Sink; 2], ties: Ties<'_>) -> Outcome {
    let Running {
        child,
        stdin: pipe,
        stdout,
        stderr,
        started,
        deadline,
        _slot,
    } = running;
    ties.channel.group.store(child.pid, Relaxed);
    let (exit_time, exited) = watch::channel(None);
    let (open_pipes, _) = watch::channel(2u8);
    let [out_sink, err_sink] = sinks;
    let stdout_pump = async {
        let ended = pump(&stdout, out_sink, exited.clone()).await;
        open_pipes.send_modify(|count| *count -= 1);
        ended
    };
    let stderr_pump = async {
        let ended = pump(&stderr, err_sink, exited.clone()).await;
        open_pipes.send_modify(|count| *count -= 1);
        ended
    };
    let feed = async {
        if let Some(pipe) = pipe {
            Feed::new(stdin, pipe).run(exited.clone()).await;
        }
    };
    let life = async {
        let outcome = live(child, started, deadline, &ties, &open_pipes).await;
        exit_time.send_replace(Some(End {
            time: Instant::now(),
            canceled: outcome.canceled,
        }));
        outcome
    };
    let (stdout_ended, stderr_ended, (), outcome) = tokio::join!(stdout_pump, stderr_pump, feed, life);
    for (source, ended) in [(stdout, stdout_ended), (stderr, stderr_ended)] {
        if !ended {
            tokio::spawn(output::discard(source));
        }
    }
    outcome
}

/// Waits for the process to end, and ends it when it has to. Afterwards its group needs no more
/// attention.
async fn live(
    child: Child,
    started: Instant,
    mut deadline: Option<Instant>,
    ties: &Ties<'_>,
    open_pipes: &watch::Sender<u8>,
) -> Outcome {
    let mut kill_at: Option<Instant> = None;
    let mut stop: Option<Stop> = None;
    let mut timed_out = false;
    let mut hung_up = false;
    loop {
        tokio::select! {
            () = child.exited() => break,
            () = at(deadline) => {
                deadline = None;
                timed_out = true;
                child.signal_group(libc::SIGTERM);
                kill_at = sooner(kill_at, TIMEOUT_GRACE);
            }
            why = ties.channel.stopped(), if stop.is_none() => {
                child.signal_group(libc::SIGTERM);
                kill_at = sooner(kill_at, match &why {
                    Stop::Cancel(grace) => *grace,
                    Stop::Broken(_) => TIMEOUT_GRACE,
                });
                stop = Some(why);
            }
            () = wait_closed(ties.closed), if !hung_up => {
                hung_up = true;
                child.signal_group(libc::SIGHUP);
                kill_at = sooner(kill_at, HANGUP_GRACE);
            }
            () = at(kill_at) => {
                kill_at = None;
                child.signal_group(libc::SIGKILL);
            }
        }
    }
    if kill_at.is_some() {
        end_group(&child, kill_at, open_pipes).await;
    }
    ties.channel.group.store(0, Relaxed);
    let mut outcome = Outcome::of_itself(child.reap(), started.elapsed());
    if timed_out {
        outcome.timed_out = true;
        outcome.exit_code = TIMEOUT_CODE;
    }
    match stop {
        Some(Stop::Cancel(_)) => outcome.canceled = true,
        Some(Stop::Broken(why)) => outcome.broken = Some(why),
        None => {}
    }
    outcome
}

/// Kills the rest of the group. The leader is a zombie, so the group's number is still its own. The
/// other processes get the rest of the grace unless they have closed the output already.
async fn end_group(child: &Child, kill_at: Option<Instant>, open_pipes: &watch::Sender<u8>) {
    let mut pipes = open_pipes.subscribe();
    tokio::select! {
        () = at(kill_at) => {}
        _ = pipes.wait_for(|count| *count == 0) => {}
    }
    child.signal_group(libc::SIGKILL);
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn wait_closed(closed: Option<&Closed>) {
    match closed {
        Some(closed) => closed.wait().await,
        None => std::future::pending().await,
    }
}

fn sooner(planned: Option<Instant>, grace: Duration) -> Option<Instant> {
    let time = Instant::now() + grace;
    Some(planned.map_or(time, |planned| planned.min(time)))
}

/// The reply to `execute`. Bytes that are not UTF-8 are replaced.
#[derive(Debug, Serialize)]
pub struct Collected {
    pub stdout: String,
    stderr: String,
    pub exit_code: i32,
    signal: Option<i32>,
    timed_out: bool,
    /// Tells whether the end of a stream was dropped.
    truncated: bool,
}

/// Runs a command and collects its output, for the method `execute`. Fails as `start` does.
pub async fn collect(
    commands: &Commands,
    command: Command,
    input: Option<Vec<u8>>,
    ties: Ties<'_>,
) -> Result<Collected> {
    let running = start(commands, command, input.is_some()).await?;
    let stdin = input.as_deref().map_or(Stdin::None, Stdin::Bytes);
    let (mut stdout, mut stderr) = (Sink::collect(), Sink::collect());
    let outcome = run(running, stdin, [&mut stdout, &mut stderr], ties).await;
    let (stdout, stdout_cut) = stdout.collected();
    let (stderr, stderr_cut) = stderr.collected();
    Ok(Collected {
        stdout,
        stderr,
        exit_code: outcome.exit_code,
        signal: outcome.signal,
        timed_out: outcome.timed_out,
        truncated: stdout_cut || stderr_cut,
    })
}
