//! One client on one link: reads frames, answers the handshake, starts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::agent::{Agent, Channels};
use crate::channel::Channel;
use crate::closed::Closed;
use crate::error::{Error, Result};
use crate::link::{Link, Received};
use crate::outbox::Outbox;
use crate::params::{Params, wrong};
use crate::sys;
use crate::wire::{self, Decoder, Frame, STDIN};
use crate::{opening, requests};

/// Requests that run at once; more wait in the link.
const MAX_REQUESTS: usize = 1024;
const MAX_CHANNELS: usize = 256;
/// How late the end of one client may be noticed after the next has come.
const FRESH_FOR: Duration = Duration::from_millis(200);
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// A clock that is this far off is stepped by the handshake.
const CLOCK_TOLERANCE_NS: i64 = 50_000_000;

#[derive(Debug)]
pub struct Session {
    pub agent: Arc<Agent>,
    pub out: Arc<Outbox>,
    pub closed: Closed,
    pub channels: Channels,
    /// Whether the client said `hello`, and so understands data frames.
    pub framed: bool,
    started: Instant,
    authenticated: AtomicBool,
    last_id: AtomicU32,
    slots: Arc<Semaphore>,
}

/// A request that was read but not carried out.
#[derive(Debug)]
pub struct Request {
    pub id: Value,
    /// The number of its channel; 0 when an old client's id is none.
    pub number: u32,
    pub method: String,
    pub params: Params,
}

/// Serves the link until the client is gone, or has broken the rules on a
/// connection of its own.
pub async fn serve(agent: &Arc<Agent>, link: Arc<Link>) {
    let mut decoder = Decoder::default();
    let mut session = Session::new(agent, &link, false);
    // A port may begin with what another client has left.
    let mut seeking = link.is_port();
    loop {
        let result = if seeking {
            opening::find(decoder.buffer()).map(Frame::Json).map(Ok)
        } else {
            decoder
                .next_frame()
                .map_err(|error| Error::BadRequest(error.to_string()))
                .transpose()
        };
        let broken = match result {
            Some(Ok(frame)) => {
                seeking = false;
                session.handle(frame, &link).await
            }
            Some(Err(error)) => Err(error),
            None => match link.read(decoder.buffer()).await {
                Ok(Received::Bytes) => Ok(None),
                // The echo of the client before this one, whose end came late.
                Ok(Received::Reconnected) if session.is_fresh() => Ok(None),
                Ok(_) | Err(_) => break,
            },
        };
        match broken {
            Ok(None) => {}
            Ok(Some(fresh)) => session = fresh,
            Err(error) => {
                session.farewell(&error).await;
                session.end();
                if !link.is_port() {
                    break;
                }
                session = Session::new(agent, &link, false);
                seeking = true;
            }
        }
    }
    session.end();
}

/// What cannot be read as a request ends the session: nothing after it can be
/// trusted to be one.
fn parse(bytes: &[u8]) -> Result<Request> {
    let not_json = |error| Error::BadRequest(format!("not a request: {error}"));
    let mut frame: Map<String, Value> = serde_json::from_slice(bytes).map_err(not_json)?;
    let id = frame.remove("id").unwrap_or(Value::Null);
    Ok(Request {
        number: id.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
        id,
        method: match frame.remove("method") {
            Some(Value::String(method)) => method,
            _ => return Err(wrong("method", "is required")),
        },
        params: Params::new(frame.remove("params").unwrap_or(Value::Null))?,
    })
}

impl Session {
    fn new(agent: &Arc<Agent>, link: &Arc<Link>, framed: bool) -> Arc<Self> {
        let closed = Closed::default();
        Arc::new(Self {
            agent: agent.clone(),
            out: Arc::new(Outbox::new(link.clone(), closed.clone())),
            closed,
            channels: Channels::default(),
            framed,
            started: Instant::now(),
            authenticated: AtomicBool::new(false),
            last_id: AtomicU32::new(0),
            slots: Arc::new(Semaphore::new(MAX_REQUESTS)),
        })
    }

    /// What waits for it goes on, and what it holds is let go.
    fn end(&self) {
        self.closed.set();
        self.agent.freezer.release(&self.closed);
    }

    /// Returns the session that a `hello` has started.
    async fn handle(self: &Arc<Self>, frame: Frame, link: &Arc<Link>) -> Result<Option<Arc<Self>>> {
        match frame {
            Frame::Json(bytes) => {
                let request = parse(&bytes)?;
                if request.method == "hello" {
                    self.end();
                    let session = Self::new(&self.agent, link, true);
                    session.greet(request).await;
                    return Ok(Some(session));
                }
                self.accept(request).await;
            }
            Frame::Data { stream, channel, bytes } => self.input(stream, channel, &bytes),
            Frame::Credit { stream, channel, count } => self.credit(stream, channel, count),
        }
        Ok(None)
    }

    /// Whether its client has only just come.
    fn is_fresh(&self) -> bool {
        self.framed && self.started.elapsed() < FRESH_FOR
    }

    async fn greet(&self, request: Request) {
        let mut opening = b"QSND".to_vec();
        let result = nonce(&request.params).and_then(|nonce| {
            opening.extend_from_slice(&nonce);
            self.shake_hands(&request)
        });
        let reply = self.encode_reply(&request, result, wire::JSON_LIMIT);
        if opening.len() > 4 {
            opening.extend_from_slice(&reply);
            // A client that is gone already is noticed by the next read.
            let _ = self.out.raw(&opening).await;
        } else {
            let _ = self.out.raw(&reply).await;
        }
    }

    fn shake_hands(&self, request: &Request) -> Result<Value> {
        self.note_id(request)?;
        match request.params.opt_u64("protocol")? {
            None | Some(1) => {}
            Some(_) => return Err(wrong("protocol", "must be 1")),
        }
        self.agent.token.check_or_set(request.params.str("token")?)?;
        self.authenticated.store(true, Relaxed);
        if let Some(unix_ns) = request.params.opt_i64("unix_ns")? {
            self.adjust_clock(unix_ns);
        }
        Ok(self.agent.hello())
    }

    fn adjust_clock(&self, unix_ns: i64) {
        let is_off = sys::unix_ns().abs_diff(unix_ns) > CLOCK_TOLERANCE_NS as u64;
        if is_off && self.agent.owns_machine {
            // A guest that forbids it still has a session to serve.
            if let Err(error) = sys::set_clock_ns(unix_ns) {
                crate::log::note(&format!("clock: {error}"));
            }
        }
    }

    /// Checks and starts one request. It runs on its own; only opening its
    /// channel happens here, so that input behind it finds its place.
    async fn accept(self: &Arc<Self>, request: Request) {
        let Ok(slot) = self.slots.clone().acquire_owned().await else {
            return;
        };
        let checked = self.note_id(&request).and_then(|()| self.authorize(&request));
        let opened = checked.and_then(|()| requests::open_channel(self, &request));
        let session = self.clone();
        tokio::spawn(async move {
            let limit = reply_limit(&request.method);
            let result = match opened {
                Ok(channel) => requests::run(&session, &request, channel.as_ref()).await,
                Err(error) => Err(error),
            };
            // Streams have replied by themselves.
            if let Some(result) = result.transpose() {
                session.reply(&request, result, limit).await;
            }
            drop(slot);
        });
    }

    /// Numbers rise, so a late event cannot be taken for a new request's.
    fn note_id(&self, request: &Request) -> Result<()> {
        if !self.framed {
            return Ok(());
        }
        if request.number == 0 || request.number <= self.last_id.load(Relaxed) {
            return Err(wrong("id", "must be 1 to 2^32-1 and rise"));
        }
        self.last_id.store(request.number, Relaxed);
        Ok(())
    }

    fn authorize(&self, request: &Request) -> Result<()> {
        match request.method.as_str() {
            "ping" => Ok(()),
            "authenticate" => {
                self.agent.token.check_or_set(request.params.str("token")?)?;
                self.authenticated.store(true, Relaxed);
                Ok(())
            }
            _ if self.authenticated.load(Relaxed) => Ok(()),
            _ => Err(Error::Unauthorized),
        }
    }

    /// Whether a channel of this number has been in this session.
    pub fn is_past(&self, id: u32) -> bool {
        self.framed && id > 0 && id <= self.last_id.load(Relaxed)
    }

    pub fn open(&self, request: &Request, window: usize, takes_input: bool) -> Result<Arc<Channel>> {
        if self.channels.count() >= MAX_CHANNELS {
            return Err(Error::Busy("too many open channels"));
        }
        let channel = Arc::new(Channel::new(request.number, window, takes_input));
        self.channels.insert(channel.clone());
        Ok(channel)
    }

    /// Input for a channel that has ended is late, not wrong.
    fn input(self: &Arc<Self>, stream: u8, channel: u32, bytes: &[u8]) {
        let Some(channel) = self.channels.find(channel) else {
            return;
        };
        if stream != STDIN || !channel.takes_input {
            channel.break_off(&Error::BadRequest(format!("stream {stream} takes no input")));
            return;
        }
        match channel.input.push_frame(bytes) {
            Ok(0) => {}
            Ok(credit) => {
                let out = self.out.clone();
                tokio::spawn(async move { out.credit(channel.id, credit).await });
            }
            Err(error) => {
                channel.break_off(&error);
                channel.input.abandon();
            }
        }
    }

    fn credit(&self, stream: u8, channel: u32, count: u32) {
        if let Some(window) = self.channels.find(channel).as_deref().and_then(|c| c.window(stream)) {
            window.grant(count as usize);
        }
    }

    pub async fn reply(&self, request: &Request, result: Result<Value>, limit: usize) {
        let frame = self.encode_reply(request, result, limit);
        // A client that is gone needs no reply.
        let _ = self.out.raw(&frame).await;
    }

    fn encode_reply(&self, request: &Request, result: Result<Value>, limit: usize) -> Vec<u8> {
        let reply = match result {
            Ok(result) => json!({"id": request.id, "result": result}),
            Err(error) => json!({"id": request.id, "error": error.to_json()}),
        };
        wire::encode_json(&reply, limit).unwrap_or_else(|| {
            let error = Error::TooLarge {
                what: "the reply",
                limit,
            };
            let reply = json!({"id": request.number, "error": error.to_json()});
            wire::encode_json(&reply, limit).unwrap_or_default()
        })
    }

    pub async fn event(&self, event: &Value) {
        // As above: a client that is gone needs no event.
        let _ = self.out.json(event).await;
    }

    async fn farewell(&self, error: &Error) {
        // Not only after the wait below.
        self.agent.freezer.release(&self.closed);
        let event = json!({"event": "closed", "error": error.to_json()});
        // A client that does not read must not keep the link from its end.
        let _ = tokio::time::timeout(FAREWELL_LIMIT, self.out.json(&event)).await;
    }
}

fn reply_limit(method: &str) -> usize {
    if method == "execute" {
        wire::EXECUTE_LIMIT
    } else {
        wire::JSON_LIMIT
    }
}

/// 16 bytes as 32 hex digits.
fn nonce(params: &Params) -> Result<[u8; 16]> {
    let text = params.str("nonce")?;
    let value = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    value
        .filter(|_| is_hex)
        .map(u128::to_be_bytes)
        .ok_or_else(|| wrong("nonce", "must be 32 hex digits"))
}
