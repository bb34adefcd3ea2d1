//! Terminals that live on when their clients go.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::agent::Agent;
use crate::command::Command;
use crate::error::{Error, Result};
use crate::params::{Params, wrong};
use crate::pump::{self, End};
use crate::scrollback::Scrollback;
use crate::sink::Sink;
use crate::source::Source;
use crate::spawn::{self, Child, Leads};
use crate::{sys, terminal};

/// How long a finished session stays listed.
const KEEP_FINISHED: Duration = Duration::from_secs(60);
const HANGUP_GRACE: Duration = Duration::from_secs(2);
const MAX_SESSIONS: usize = 64;
const DEFAULT_SIZE: (u16, u16) = (80, 24);
pub const DEFAULT_SCROLLBACK: u64 = 256 * 1024;
const MAX_SCROLLBACK: u64 = 16 << 20;

#[derive(Debug, Default)]
pub struct Ptys {
    sessions: Mutex<Vec<Arc<Pty>>>,
    last: AtomicU32,
}

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
    /// Rises with every change that clients want to hear of.
    pub news: watch::Sender<u64>,
    /// A client has taken output, has come or has gone.
    pub advanced: Notify,
}

#[derive(Debug)]
pub struct State {
    cols: u16,
    rows: u16,
    pub output: Scrollback,
    /// False once the process was reaped: its number may be another's then.
    runs: bool,
    /// Set when the last output was read, too.
    pub exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub code: i32,
    pub signal: Option<i32>,
    duration: Duration,
}

impl Exit {
    pub fn event(&self, channel: u32) -> Value {
        json!({
            "event": "exit",
            "channel": channel,
            "exit_code": self.code,
            "signal": self.signal,
            "timed_out": false,
            "canceled": false,
            "duration_s": self.duration.as_secs_f64(),
        })
    }
}

impl Ptys {
    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Pty>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn require(&self, params: &Params) -> Result<Arc<Pty>> {
        self.find(params.str("session")?)
    }

    pub fn find(&self, id: &str) -> Result<Arc<Pty>> {
        let sessions = self.sessions();
        let found = sessions.iter().find(|pty| pty.id == id);
        found
            .cloned()
            .ok_or_else(|| Error::NotFound(format!("PTY session {id:?}")))
    }

    pub fn list(&self) -> Value {
        let sessions: Vec<Value> = self.sessions().iter().map(|pty| pty.describe()).collect();
        json!({"sessions": sessions})
    }
}

/// Starts a program on a new terminal.
pub async fn open(agent: &Arc<Agent>, params: &Params) -> Result<Arc<Pty>> {
    let command = Command::for_terminal(params, &agent.me)?;
    let scrollback = params.opt_u64("scrollback")?.unwrap_or(DEFAULT_SCROLLBACK);
    if scrollback > MAX_SCROLLBACK {
        return Err(wrong("scrollback", "must be at most 16 MiB"));
    }
    let (cols, rows) = requested_size(params)?.unwrap_or(DEFAULT_SIZE);
    if agent.ptys.sessions().len() >= MAX_SESSIONS {
        return Err(Error::Busy("too many PTY sessions"));
    }
    let failed = |error| Error::io("terminal", error);
    let (master, slave) = terminal::open(cols, rows, &command.user).map_err(failed)?;
    let master = Source::pty(master).map_err(failed)?;
    let slave = Arc::new(slave);
    let argv = command.argv.clone();
    let child = command
        .spawn([slave.clone(), slave.clone(), slave.clone()], Leads::Terminal)
        .await?;
    let number = agent.ptys.last.fetch_add(1, Relaxed) + 1;
    let pty = Arc::new(Pty {
        id: format!("p{number}"),
        name: params.opt_str("name")?.map(str::to_owned),
        argv,
        pid: child.pid,
        created_unix_ns: sys::unix_ns(),
        created: Instant::now(),
        master,
        state: Mutex::new(State {
            cols,
            rows,
            output: Scrollback::new(scrollback as usize),
            runs: true,
            exit: None,
        }),
        news: watch::Sender::new(0),
        advanced: Notify::new(),
    });
    agent.ptys.sessions().push(pty.clone());
    tokio::spawn(live(agent.clone(), pty.clone(), child, slave));
    Ok(pty)
}

/// Reads the terminal until its program has ended, then keeps the result for a while.
async fn live(agent: Arc<Agent>, pty: Arc<Pty>, child: Child, slave: Arc<OwnedFd>) {
    let (exit_time, exited) = watch::channel(None);
    let wait = async {
        child.exited().await;
        // Until now a program that closed its terminal could open it again.
        drop(slave);
        pty.state().runs = false;
        let (code, signal) = spawn::decode_status(child.reap());
        exit_time.send_replace(Some(End {
            time: Instant::now(),
            canceled: false,
        }));
        (code, signal)
    };
    let mut sink = Sink::terminal(&pty);
    let (_, (code, signal)) = tokio::join!(pump::pump(&pty.master, &mut sink, exited), wait);
    pty.state().exit = Some(Exit {
        code,
        signal,
        duration: pty.created.elapsed(),
    });
    pty.tell_news();
    sleep(KEEP_FINISHED).await;
    agent.ptys.sessions().retain(|other| !Arc::ptr_eq(other, &pty));
}

impl Pty {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell_news(&self) {
        self.news.send_modify(|version| *version = version.wrapping_add(1));
    }

    pub fn exit(&self) -> Option<Exit> {
        self.state().exit
    }

    /// Returns when the program has ended and its output was read.
    pub async fn ended(&self) {
        let mut news = self.news.subscribe();
        while self.exit().is_none() {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    fn describe(&self) -> Value {
        let state = self.state();
        json!({
            "session": self.id,
            "name": self.name,
            "pid": self.pid,
            "argv": self.argv,
            "cols": state.cols,
            "rows": state.rows,
            "attached": state.output.readers(),
            "created_unix": self.created_unix_ns as f64 / 1e9,
            "alive": state.exit.is_none(),
            "exit_code": state.exit.map(|exit| exit.code),
        })
    }

    pub fn describe_attachment(&self, channel: u32) -> Value {
        let state = self.state();
        json!({
            "channel": channel,
            "pid": self.pid,
            "alive": state.exit.is_none(),
            "cols": state.cols,
            "rows": state.rows,
        })
    }

    pub fn resize(&self, (cols, rows): (u16, u16)) -> Result<()> {
        terminal::resize(self.master.fd().get_ref().as_fd(), cols, rows)
            .map_err(|error| Error::io("terminal", error))?;
        let mut state = self.state();
        (state.cols, state.rows) = (cols, rows);
        Ok(())
    }

    /// To what runs in the foreground: the shell itself, or its current job.
    pub fn signal(&self, signal: i32) -> Result<bool> {
        if !self.state().runs {
            return Ok(false);
        }
        let group = terminal::foreground(self.master.fd().get_ref().as_fd()).unwrap_or(self.pid);
        Ok(sys::kill(-group, signal).is_ok())
    }

    fn signal_all(&self, signal: i32) {
        // What has ended meanwhile needs no signal.
        let _ = self.signal(signal);
        if self.state().runs {
            let _ = sys::kill(-self.pid, signal);
        }
    }

    /// The end comes in the background: a program may take its time.
    pub fn close(self: Arc<Self>) {
        self.signal_all(libc::SIGHUP);
        // A stopped job would not even hear it.
        self.signal_all(libc::SIGCONT);
        tokio::spawn(async move {
            tokio::select! {
                () = self.ended() => {}
                () = sleep(HANGUP_GRACE) => self.signal_all(libc::SIGKILL),
            }
        });
    }
}

/// The parameters `cols` and `rows`; both or neither.
pub fn requested_size(params: &Params) -> Result<Option<(u16, u16)>> {
    match (params.opt_u16("cols")?, params.opt_u16("rows")?) {
        (None, None) => Ok(None),
        (Some(cols), Some(rows)) if cols > 0 && rows > 0 => Ok(Some((cols, rows))),
        _ => Err(wrong("cols", "and rows must both be positive")),
    }
}

/// The part of the terminal's output that a new client wants repeated.
pub fn requested_replay(params: &Params) -> Result<usize> {
    let replay = params.opt_u64("replay")?.unwrap_or(DEFAULT_SCROLLBACK);
    Ok(replay.min(MAX_SCROLLBACK) as usize)
}
