//! Terminals that live on when their clients leave.

use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::command::{Command, Program};
use super::outcome::Outcome;
use super::output::{self, End, Sink};
use super::scrollback::{Role, TerminalOutput};
use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;
use crate::base::params::wrong;
use crate::base::spawn::{Child, Leads};
use crate::base::sys;
use crate::link::source::Source;
use crate::users::passwd::User;

/// A finished terminal stays listed for this time.
const KEEP_FINISHED: Duration = Duration::from_secs(60);
const HANGUP_GRACE: Duration = Duration::from_secs(2);
const MAX_PTYS: usize = 64;
const DEFAULT_SIZE: (u16, u16) = (80, 24);
/// The number of bytes of output that are kept for clients that attach. The client that opens the
/// terminal may give another.
const DEFAULT_SCROLLBACK: u64 = 256 * 1024;
const MAX_SCROLLBACK: u64 = 16 << 20;
/// The number of bytes that are told of the command line of a program in the foreground.
const FOREGROUND_MAX: u64 = 1024;

/// The terminals of one agent. All clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Ptys(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    listed: Mutex<Vec<Arc<Pty>>>,
    last_number: AtomicU32,
}

/// A terminal and the program on it.
#[derive(Debug)]
pub struct Pty {
    pub id: String,
    name: Option<String>,
    argv: Vec<String>,
    pub pid: i32,
    created_unix_ns: i64,
    created: Instant,
    pub master: Source,
    state: Mutex<State>,
    pub output: Arc<TerminalOutput>,
}

#[derive(Debug)]
struct State {
    cols: u16,
    rows: u16,
    /// False after the process was reaped, because its number may then belong to another.
    runs: bool,
    /// Set when the program has ended and its last output was read.
    exit: Option<Outcome>,
}

/// The parameters of a new terminal.
#[derive(Debug, Deserialize)]
pub struct NewTerminal {
    /// The number of bytes of output that are kept.
    scrollback: Option<u64>,
    name: Option<String>,
}

/// The columns and rows of a terminal, if a client gives them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "GivenSize")]
pub struct Size(pub Option<(u16, u16)>);

#[derive(Debug, Deserialize)]
struct GivenSize {
    cols: Option<u16>,
    rows: Option<u16>,
}

impl TryFrom<GivenSize> for Size {
    type Error = Error;

    fn try_from(given: GivenSize) -> Result<Self> {
        match (given.cols, given.rows) {
            (None, None) => Ok(Self(None)),
            (Some(cols), Some(rows)) if cols > 0 && rows > 0 => Ok(Self(Some((cols, rows)))),
            _ => Err(wrong("cols", "and rows must both be positive")),
        }
    }
}

/// The reply to `pty_list`.
#[derive(Debug, Serialize)]
pub struct Terminals {
    sessions: Vec<Terminal>,
}

#[derive(Debug, Serialize)]
struct Terminal {
    session: String,
    name: Option<String>,
    pid: i32,
    argv: Vec<String>,
    cols: u16,
    rows: u16,
    /// The number of attached clients.
    attached: usize,
    created_unix: f64,
    alive: bool,
    exit_code: Option<i32>,
    /// The command line of the program in the foreground; empty if it cannot be read.
    foreground: Vec<String>,
    /// The directory of that program; `None` if it cannot be read.
    cwd: Option<String>,
}

/// The reply to `pty_attach`.
#[derive(Debug, Serialize)]
pub struct Attached {
    channel: u32,
    pid: i32,
    alive: bool,
    cols: u16,
    rows: u16,
    replay: u64,
}

impl Ptys {
    /// Fails with `NotFound`.
    pub fn find(&self, id: &str) -> Result<Arc<Pty>> {
        let listed = self.0.listed.lock();
        let found = listed.iter().find(|pty| pty.id == id);
        found
            .cloned()
            .ok_or_else(|| Error::NotFound(format!("PTY session {id:?}")))
    }

    /// Returns the reply to `pty_list`.
    pub fn list(&self) -> Terminals {
        let sessions = self.0.listed.lock().iter().map(|pty| pty.describe()).collect();
        Terminals { sessions }
    }

    /// Starts a program on a new terminal. `me` is the user that the agent runs as. Fails with
    /// `Busy` when there are too many terminals, and as `Command::spawn` does.
    pub async fn open(&self, program: Program, wanted: NewTerminal, size: Size, me: &User) -> Result<Arc<Pty>> {
        let mut command = Command::for_terminal(program, me)?;
        let NewTerminal { scrollback, name } = wanted;
        let scrollback = scrollback.unwrap_or(DEFAULT_SCROLLBACK);
        if scrollback > MAX_SCROLLBACK {
            return Err(wrong("scrollback", "must be at most 16 MiB"));
        }
        let (cols, rows) = size.0.unwrap_or(DEFAULT_SIZE);
        if self.0.listed.lock().len() >= MAX_PTYS {
            return Err(Error::TooMany("too many PTY sessions"));
        }
        let failed = |error| Error::io("terminal", error);
        let (master, slave) = open_terminal(cols, rows, &command.user).map_err(failed)?;
        command.tell_terminal(&name_of(master.as_fd()).map_err(failed)?);
        let master = Source::pty(master).map_err(failed)?;
        let slave = Arc::new(slave);
        // For people to read, so bytes that are not UTF-8 may be lost.
        let argv = command.argv.iter().map(|word| word.to_string_lossy().into_owned());
        let argv = argv.collect();
        // Nothing may fail once the child runs, or nobody would reap it.
        let child = command
            .spawn([slave.clone(), slave.clone(), slave.clone()], Leads::Terminal)
            .await?;
        let number = self.0.last_number.fetch_add(1, Relaxed) + 1;
        let pty = Arc::new(Pty {
            id: format!("p{number}"),
            name,
            argv,
            pid: child.pid,
            created_unix_ns: sys::unix_ns(),
            created: Instant::now(),
            master,
            state: Mutex::new(State {
                cols,
                rows,
                runs: true,
                exit: None,
            }),
            output: Arc::new(TerminalOutput::new(scrollback as usize)),
        });
        self.0.listed.lock().push(pty.clone());
        tokio::spawn(live(self.clone(), pty.clone(), child, slave));
        Ok(pty)
    }
}

/// Reads the terminal until its program has ended, and keeps the result for a while.
async fn live(ptys: Ptys, pty: Arc<Pty>, child: Child, slave: Arc<OwnedFd>) {
    let (exit_time, exited) = watch::channel(None);
    let wait = async {
        child.exited().await;
        // As long as the slave is open, a program that has closed its terminal can open it again.
        drop(slave);
        pty.state.lock().runs = false;
        let status = child.reap();
        exit_time.send_replace(Some(End {
            time: Instant::now(),
            canceled: false,
        }));
        status
    };
    let mut sink = Sink::terminal(&pty.output);
    let (_, status) = tokio::join!(output::pump(&pty.master, &mut sink, exited), wait);
    pty.state.lock().exit = Some(Outcome::of_itself(status, pty.created.elapsed()));
    pty.output.tell_change();
    sleep(KEEP_FINISHED).await;
    ptys.0.listed.lock().retain(|other| !Arc::ptr_eq(other, &pty));
}

impl Pty {
    pub fn exit(&self) -> Option<Outcome> {
        self.state.lock().exit.clone()
    }

    /// Waits until the program has ended and its output was read.
    pub async fn ended(&self) {
        let mut changes = self.output.changes();
        while self.exit().is_none() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn describe(&self) -> Terminal {
        let (foreground, cwd) = self.foreground();
        let state = self.state.lock();
        Terminal {
            session: self.id.clone(),
            name: self.name.clone(),
            pid: self.pid,
            argv: self.argv.clone(),
            cols: state.cols,
            rows: state.rows,
            attached: self.output.readers(),
            created_unix: self.created_unix_ns as f64 / 1e9,
            alive: state.exit.is_none(),
            exit_code: state.exit.as_ref().map(|exit| exit.exit_code),
            foreground,
            cwd,
        }
    }

    /// Returns the command line and the directory of the program in the foreground, as far as they
    /// can be read.
    fn foreground(&self) -> (Vec<String>, Option<String>) {
        if !self.state.lock().runs {
            return (Vec::new(), None);
        }
        let leader = foreground_group(self.master.fd().get_ref().as_fd()).unwrap_or(self.pid);
        // It may end at any moment, which is no failure.
        let mut words = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{leader}/cmdline")) {
            let _ = file.take(FOREGROUND_MAX).read_to_end(&mut words);
        }
        let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        let cwd = std::fs::read_link(format!("/proc/{leader}/cwd"));
        (
            words.collect(),
            cwd.ok().map(|path| path.to_string_lossy().into_owned()),
        )
    }

    /// Returns the reply to a client that attaches. `replay` is the number of bytes that are
    /// repeated to it.
    pub fn describe_attachment(&self, channel: u32, replay: u64) -> Attached {
        let state = self.state.lock();
        Attached {
            channel,
            pid: self.pid,
            alive: state.exit.is_none(),
            cols: state.cols,
            rows: state.rows,
            replay,
        }
    }

    /// Fails as the system call does.
    pub fn resize(&self, (cols, rows): (u16, u16)) -> Result<()> {
        set_size(self.master.fd().get_ref().as_fd(), cols, rows).map_err(|error| Error::io("terminal", error))?;
        let mut state = self.state.lock();
        (state.cols, state.rows) = (cols, rows);
        Ok(())
    }

    /// Sends a signal to the foreground, which is the shell itself or its current job. Returns
    /// whether it was there.
    pub fn signal(&self, signal: i32) -> Result<bool> {
        if !self.state.lock().runs {
            return Ok(false);
        }
        let group = foreground_group(self.master.fd().get_ref().as_fd()).unwrap_or(self.pid);
        Ok(sys::kill(-group, signal).is_ok())
    }

    fn signal_all(&self, signal: i32) {
        // A program that has ended needs no signal.
        let _ = self.signal(signal);
        if self.state.lock().runs {
            let _ = sys::kill(-self.pid, signal);
        }
    }

    /// Hangs up the terminal. The program is killed if it does not end in time. This does not wait
    /// for its end.
    pub fn close(self: Arc<Self>) {
        self.signal_all(libc::SIGHUP);
        // A stopped job would not react to the first signal.
        self.signal_all(libc::SIGCONT);
        tokio::spawn(async move {
            tokio::select! {
                () = self.ended() => {}
                () = sleep(HANGUP_GRACE) => self.signal_all(libc::SIGKILL),
            }
        });
    }
}

/// A reader of a terminal's output. Dropping it ends the reading.
#[derive(Debug)]
pub struct Attachment {
    pub pty: Arc<Pty>,
    key: u64,
    /// The number of bytes at the beginning that were written before the reader came.
    pub replay: u64,
}

/// The next event for a reader.
#[derive(Debug)]
pub enum Next {
    Lagged,
    Output,
    Nothing,
    Exit(Outcome),
}

impl Attachment {
    /// Adds a reader that first gets the last `replay` bytes of output, or fewer if there are
    /// fewer.
    pub fn new(pty: &Arc<Pty>, replay: usize, role: Role) -> Self {
        let (key, replay) = pty.output.add_reader(replay, role);
        Self {
            pty: pty.clone(),
            key,
            replay,
        }
    }

    pub fn next(&self) -> Next {
        // The exit is read first: once there is one, no output follows that the lines below could
        // miss.
        let exit = self.pty.exit();
        let output = &self.pty.output;
        if output.take_lagged(self.key) {
            Next::Lagged
        } else if output.has_news(self.key) {
            Next::Output
        } else {
            exit.map_or(Next::Nothing, Next::Exit)
        }
    }

    /// Copies the next output into `buffer`. Returns the number of bytes.
    pub fn copy(&self, buffer: &mut [u8]) -> usize {
        self.pty.output.copy(self.key, buffer)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.pty.output.remove_reader(self.key);
    }
}

/// Returns the number of bytes of earlier output for a client that asks for `replay`.
pub fn replayed(replay: Option<u64>) -> usize {
    replay.unwrap_or(DEFAULT_SCROLLBACK).min(MAX_SCROLLBACK) as usize
}

/// Opens a terminal: a non-blocking master, and its slave.
fn open_terminal(cols: u16, rows: u16, user: &User) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let master = sys::open(c"/dev/ptmx", flags | libc::O_NONBLOCK)?;
    let mut unlocked: libc::c_int = 0;
    sys::ioctl(master.as_fd(), libc::TIOCSPTLCK, &mut unlocked)?;
    let peer_flags = (flags | libc::O_CLOEXEC) as libc::c_ulong;
    // The slave is opened through the master, which works whatever is mounted on /dev/pts.
    let slave = sys::own(sys::ioctl_number(master.as_fd(), libc::TIOCGPTPEER, peer_flags)?)?;
    set_size(master.as_fd(), cols, rows)?;
    make_utf8(slave.as_fd());
    give_to(slave.as_fd(), user);
    Ok((master, slave))
}

/// Returns the name of the slave as programs know it (ptsname(3)).
fn name_of(master: BorrowedFd<'_>) -> io::Result<String> {
    let mut number: libc::c_uint = 0;
    sys::ioctl(master, libc::TIOCGPTN, &mut number)?;
    Ok(format!("/dev/pts/{number}"))
}

fn set_size(master: BorrowedFd<'_>, cols: u16, rows: u16) -> io::Result<()> {
    let mut size = libc::winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    sys::ioctl(master, libc::TIOCSWINSZ, &mut size).map(|_| ())
}

/// Returns the number of the foreground process group.
fn foreground_group(master: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: no memory is passed.
    let group = unsafe { libc::tcgetpgrp(master.as_raw_fd()) };
    (group > 0).then_some(group)
}

/// Makes backspace remove a character instead of a byte. Failures are ignored.
fn make_utf8(slave: BorrowedFd<'_>) {
    // SAFETY: termios is plain data, for which zero is a valid value.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: one termios is stored, then read.
    unsafe {
        if libc::tcgetattr(slave.as_raw_fd(), &mut modes) == 0 {
            modes.c_iflag |= libc::IUTF8;
            libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, &modes);
        }
    }
}

/// Lets the user open the terminal again. Failures are ignored, because an unprivileged agent
/// cannot give files away.
fn give_to(slave: BorrowedFd<'_>, user: &User) {
    let _ = fchown(slave, Some(user.uid), None);
    if let Ok(file) = slave.try_clone_to_owned().map(File::from) {
        let _ = file.set_permissions(Permissions::from_mode(0o620));
    }
}
