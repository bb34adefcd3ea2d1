//! The requests and answers of the agent, which are the same over every transport.
//!
//! They come in families. A new request is a variant of its family's `Request` and an arm of that
//! family's `call`. If its answer has a form of its own, that is a variant of the family's `Answer`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::agent::{Agent, Greeting};
use super::machine;
use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::base::params::{Params, Raw, Seconds, wrong};
use crate::base::{blocking, sys};
use crate::files::reader::ReadRequest;
use crate::files::tree;
use crate::files::volatile::{self, Volatile};
use crate::files::watch::WatchRequest;
use crate::files::writer::WriteRequest;
use crate::link::channel::{Opening, WindowSize};
use crate::machine::info::{self, Info};
use crate::processes::command::Program;
use crate::processes::exec::Collected;
use crate::processes::proc::{self, Processes};
use crate::processes::pty::{Attached, NewTerminal, Size, Terminals};
use crate::processes::signals::Signal;
use crate::shares::mounting;
use crate::sockets::address::Address;
use crate::users::login::{self, Login};

/// A request of any family. Each transport has channels of its own, and carries out itself what
/// concerns them.
#[derive(Debug)]
pub enum Request {
    Channel(ChannelRequest),
    Common(CommonRequest),
}

/// A request that is the same over every transport.
#[derive(Debug)]
pub enum CommonRequest {
    Plain(PlainRequest),
    File(tree::Request),
    Machine(machine::Request),
    Share(mounting::Request),
}

/// The result of a request of any family.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Channel(ChannelAnswer),
    Plain(PlainAnswer),
    File(tree::Answer),
    Machine(machine::Answer),
    Share(mounting::Answer),
}

impl Request {
    /// Finds the variant that has the name of the method. Fails with `Method` when there is none,
    /// and with `Param` when a parameter is wrong.
    pub fn decode(method: &str, mut params: Params) -> Result<Self> {
        if let Some(request) = params.decode(method)? {
            return Ok(Self::Channel(request));
        }
        let common = if let Some(request) = params.decode(method)? {
            CommonRequest::Plain(request)
        } else if let Some(request) = params.decode(method)? {
            CommonRequest::File(request)
        } else if let Some(request) = params.decode(method)? {
            CommonRequest::Machine(request)
        } else if let Some(request) = params.decode(method)? {
            CommonRequest::Share(request)
        } else {
            return Err(Error::Method(method.to_owned()));
        };
        Ok(Self::Common(common))
    }
}

/// Carries out a request of a client that the transport has authenticated. `owner` is the end of
/// the client's session, if it has one.
pub async fn call(agent: &Arc<Agent>, request: CommonRequest, owner: Option<&Closed>) -> Result<Answer> {
    match request {
        CommonRequest::Plain(request) => call_plain(agent, request).await.map(Answer::Plain),
        CommonRequest::File(request) => tree::call(request).await.map(Answer::File),
        CommonRequest::Machine(request) => machine::call(agent, request, owner).await.map(Answer::Machine),
        CommonRequest::Share(request) => machine::call_share(agent, request).await.map(Answer::Share),
    }
}

/// The requests that authenticate a session, open a channel, or name one. `Hello` is none of them,
/// because it begins a session even if it is wrong.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
// There are few at a time, and each lives for a moment.
#[allow(clippy::large_enum_variant)]
pub enum ChannelRequest {
    Authenticate {
        token: String,
    },
    Execute(Program, Input, Opening),
    ExecuteStream(Program, Streaming, Opening),
    /// Goes on with a command that an earlier client has left.
    CommandAttach(CommandAttachment, Opening),
    Stdin(Typed),
    Signal {
        id: u32,
        signal: Signal,
    },
    Cancel {
        id: u32,
        #[serde(default)]
        grace: Seconds,
    },
    PtyOpen(Program, NewTerminal, Size, Opening),
    PtyAttach(Attachment, Size, Opening),
    PtyDetach {
        id: u32,
    },
    FileRead(ReadRequest, Opening),
    FileWrite(WriteRequest, Opening),
    /// Connects to an address in the guest.
    Dial(Address, Opening),
    /// Listens at an address in the guest.
    Listen(Address),
    /// Takes a connection that has come to a listener.
    Accept {
        connection: u32,
        #[serde(default)]
        window: WindowSize,
    },
    /// Tells what happens in a directory.
    Watch(WatchRequest, Opening),
    /// Starts the SFTP server of a user.
    Sftp(SftpUser, Opening),
}

/// The user whose files are served.
#[derive(Debug, Deserialize)]
pub struct SftpUser {
    pub user: Option<String>,
}

/// The parameter of a `hello` by which the client finds the answer.
#[derive(Debug, Deserialize)]
pub struct Marked {
    /// 32 hex digits.
    pub nonce: String,
}

/// The other parameters of a `hello`, which is the handshake of a session.
#[derive(Debug, Deserialize)]
pub struct Hello {
    pub token: String,
    pub protocol: Option<u64>,
    pub unix_ns: Option<i64>,
}

/// The whole input of a command.
#[derive(Debug, Deserialize)]
pub struct Input {
    pub stdin: Option<Raw>,
}

/// The ties between a client and a command that runs.
#[derive(Debug, Deserialize)]
pub struct Streaming {
    /// Tells whether the command takes input.
    #[serde(default)]
    pub stdin: bool,
    /// Tells whether the command outlives the session.
    #[serde(default)]
    pub detach: bool,
    /// Tells whether the command outlives the session, and later ones can attach to it.
    #[serde(default)]
    pub keep: bool,
}

/// The parameters of a client that attaches to a command.
#[derive(Debug, Deserialize)]
pub struct CommandAttachment {
    pub command: String,
    /// Tells whether the client sends input.
    #[serde(default)]
    pub stdin: bool,
}

/// A piece of input for a command that runs.
#[derive(Debug, Deserialize)]
pub struct Typed {
    pub id: u32,
    #[serde(default)]
    pub data: Raw,
    #[serde(default)]
    pub eof: bool,
}

/// A terminal to attach to.
#[derive(Debug, Deserialize)]
pub struct Attachment {
    pub session: String,
    /// The number of bytes of earlier output that are repeated.
    pub replay: Option<u64>,
    /// Only looks on: it takes no input, sets no size, holds nothing back and is not counted.
    #[serde(default)]
    pub watch: bool,
}

/// The answers to requests that begin a session, open a channel, or name one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum ChannelAnswer {
    Done {},
    Greeting(Greeting),
    Authenticated {
        authenticated: bool,
    },
    Collected(Collected),
    /// A command that runs now.
    Started {
        channel: u32,
        pid: i32,
        /// The name by which a later session can attach to it.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    Delivered {
        delivered: bool,
    },
    /// A new terminal. Over HTTP it has no channel.
    Opened {
        session: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        channel: Option<u32>,
        pid: i32,
    },
    Attached(Attached),
    /// A file whose contents follow.
    Reading {
        channel: u32,
        size: u64,
        mode: u32,
        sparse: bool,
    },
    Written {
        bytes: u64,
    },
    /// A connection whose bytes follow.
    Connected {
        channel: u32,
    },
    /// A directory whose events follow. `directories` counts it and those below that are watched.
    Watching {
        channel: u32,
        directories: usize,
    },
    /// A listener, and its port if it has one.
    Listening {
        channel: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
}

/// The requests that neither concern files nor change the machine.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlainRequest {
    Ping,
    RotateToken {
        token: String,
    },
    Kill {
        pid: u64,
        signal: Signal,
        #[serde(default)]
        group: bool,
    },
    /// Describes the user who logs in under a name, or without one.
    FindUser {
        user: Option<String>,
    },
    PtyList,
    PtyResize {
        session: String,
        cols: u16,
        rows: u16,
    },
    PtySignal {
        session: String,
        signal: Signal,
    },
    PtyClose {
        session: String,
    },
    Info,
    Processes {
        limit: Option<u64>,
    },
    Volatile,
    Sync,
}

/// The answers to requests that neither concern files nor change the machine.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum PlainAnswer {
    Done {},
    Pong { pong: bool, pid: u32, uptime_ns: u64 },
    Delivered { delivered: bool },
    Login(Login),
    Terminals(Terminals),
    Info(Info),
    Processes(Processes),
    Volatile(Volatile),
}

async fn call_plain(agent: &Arc<Agent>, request: PlainRequest) -> Result<PlainAnswer> {
    match request {
        PlainRequest::Ping => return Ok(pong()),
        PlainRequest::RotateToken { token } => agent.token.replace(&token)?,
        PlainRequest::Kill { pid, signal, group } => kill(pid, signal, group)?,
        PlainRequest::FindUser { user } => {
            return login::describe(user.as_deref(), &agent.commands.me).map(PlainAnswer::Login);
        }
        PlainRequest::PtyList => return Ok(PlainAnswer::Terminals(agent.ptys.list())),
        PlainRequest::PtyResize { session, cols, rows } => {
            if cols == 0 || rows == 0 {
                return Err(wrong("cols", "and rows must both be positive"));
            }
            agent.ptys.find(&session)?.resize((cols, rows))?;
        }
        PlainRequest::PtySignal { session, signal } => {
            let delivered = agent.ptys.find(&session)?.signal(signal.0)?;
            return Ok(PlainAnswer::Delivered { delivered });
        }
        PlainRequest::PtyClose { session } => agent.ptys.find(&session)?.close(),
        // The kernel may hold the lock on a process's memory map for long.
        PlainRequest::Info => return blocking::run(|| info::info().map(PlainAnswer::Info)).await,
        PlainRequest::Processes { limit } => {
            return blocking::run(move || Ok(PlainAnswer::Processes(proc::list(limit)))).await;
        }
        PlainRequest::Volatile => return blocking::run(|| Ok(PlainAnswer::Volatile(volatile::list()))).await,
        // Any machine may be synced, but that is slow.
        PlainRequest::Sync => {
            let sync = || {
                sys::sync();
                Ok(())
            };
            blocking::run(sync).await?;
        }
    }
    Ok(PlainAnswer::Done {})
}

fn pong() -> PlainAnswer {
    PlainAnswer::Pong {
        pong: true,
        pid: std::process::id(),
        uptime_ns: sys::clock(libc::CLOCK_BOOTTIME).as_nanos() as u64,
    }
}

/// Sends a signal to a process. Refuses the agent itself, and 0 and 1, which only a mistake would
/// produce.
fn kill(pid: u64, signal: Signal, group: bool) -> Result<()> {
    let pid = i32::try_from(pid).unwrap_or(0);
    if pid <= 1 || pid as u32 == std::process::id() {
        return Err(Error::Forbidden(format!("process {pid} is not to be signaled")));
    }
    let target = if group { -pid } else { pid };
    sys::kill(target, signal.0).map_err(|error| Error::io(format!("process {pid}"), error))
}
