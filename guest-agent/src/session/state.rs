//! The agent's knowledge of one client: its rights, its channels, and the way to answer it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::waiting::Waiting;
use crate::base::closed::Closed;
use crate::base::error::{Error, Refusal, Result};
use crate::base::log::note;
use crate::base::params::{Params, wrong};
use crate::base::sys;
use crate::link::channel::{Channel, Channels};
use crate::link::events::Event;
use crate::link::outbox::Outbox;
use crate::link::port::Link;
use crate::link::wire::{self, STDIN};
use crate::requests::agent::Agent;
use crate::requests::methods::{Answer, ChannelAnswer, ChannelRequest, Hello, Marked, Request};

/// The number of requests that run at a time. More wait in the link.
const MAX_REQUESTS: usize = 1024;
const MAX_CHANNELS: usize = 256;
/// The agent may notice the end of one client this long after the next one has come.
const FRESH_FOR: Duration = Duration::from_millis(200);
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// The handshake sets the clock when it differs by more than this.
const CLOCK_TOLERANCE_NS: i64 = 50_000_000;

/// One client on one link.
#[derive(Debug)]
pub struct Session {
    pub agent: Arc<Agent>,
    pub out: Arc<Outbox>,
    pub closed: Closed,
    pub channels: Channels,
    /// Tells whether the client said `hello`, and so understands data frames.
    pub framed: bool,
    pub waiting: Waiting,
    started: Instant,
    authenticated: AtomicBool,
    last_id: AtomicU32,
    places: Arc<Semaphore>,
}

/// A request as it was read.
#[derive(Debug)]
pub struct Call {
    pub origin: Origin,
    /// The method and its parameters, or why the frame cannot be understood.
    pub asked: Result<Asked>,
}

/// A method and its parameters, which are not decoded before the client is known.
#[derive(Debug)]
pub struct Asked {
    pub method: String,
    pub params: Params,
}

/// The request that a reply answers.
#[derive(Debug)]
pub struct Origin {
    pub id: Value,
    /// The number of its channel, or 0 when the id of a client without handshake is not a number.
    pub number: u32,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Value,
    method: String,
    params: Option<Params>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Reply<'a> {
    Result { id: &'a Value, result: &'a Answer },
    Error { id: &'a Value, error: Refusal },
}

impl Call {
    /// Parses a frame. A frame with an id is a request, which fails alone when it cannot be
    /// understood. A frame without one fails here. That ends the session, because the next frames
    /// cannot be trusted either.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (id, asked) = match open(bytes) {
            Ok(Envelope { id, method, params }) => {
                let params = params.unwrap_or_default();
                (id, Ok(Asked { method, params }))
            }
            Err(error) => match find_id(bytes) {
                Some(id) => (id, Err(error)),
                None => return Err(error),
            },
        };
        let number = id.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        Ok(Self {
            origin: Origin { id, number },
            asked,
        })
    }
}

fn open(bytes: &[u8]) -> Result<Envelope> {
    // An array would pass as the values of the fields in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Error::BadRequest("not a request: not an object".into()));
    }
    serde_json::from_slice(bytes).map_err(|error| Error::BadRequest(format!("not a request: {error}")))
}

/// Finds the id of a request that is not understood as a whole. The other values are skipped
/// unread, so their texts, numbers and depths may make no sense.
fn find_id(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    let fields: HashMap<String, &RawValue> = serde_json::from_str(&text).ok()?;
    serde_json::from_str(fields.get("id")?.get()).ok()
}

impl Session {
    /// Begins a session. `framed` tells whether the client said `hello`.
    pub fn new(agent: &Arc<Agent>, link: &Arc<Link>, framed: bool) -> Arc<Self> {
        let closed = Closed::default();
        Arc::new(Self {
            agent: agent.clone(),
            out: Arc::new(Outbox::new(link.clone(), closed.clone())),
            closed,
            channels: Channels::default(),
            framed,
            waiting: Waiting::default(),
            started: Instant::now(),
            authenticated: AtomicBool::new(false),
            last_id: AtomicU32::new(0),
            places: Arc::new(Semaphore::new(MAX_REQUESTS)),
        })
    }

    /// Ends the session. The tasks that wait for its end go on, and the file system that it froze
    /// is thawed.
    pub fn end(&self) {
        self.closed.set();
        self.agent.freezer.release(&self.closed);
    }

    /// Tells whether the client has only just come.
    pub fn is_fresh(&self) -> bool {
        self.framed && self.started.elapsed() < FRESH_FOR
    }

    /// Answers a `hello`: with 4 bytes of magic and the nonce, so that the client finds the
    /// beginning, and then with the reply. Whatever else is wrong, the reply follows the nonce.
    pub async fn greet(&self, origin: &Origin, mut params: Params) {
        let mut bytes = Vec::new();
        let nonce = params.take().and_then(|Marked { nonce }| parse_nonce(&nonce));
        let result = match nonce {
            Ok(nonce) => {
                bytes.extend_from_slice(b"QSND");
                bytes.extend_from_slice(&nonce);
                self.shake_hands(origin, params)
            }
            Err(error) => Err(error),
        };
        bytes.extend_from_slice(&encode_reply(origin, result, wire::JSON_LIMIT));
        // If the client is gone already, the next read notices it.
        let _ = self.out.raw(&bytes).await;
    }

    fn shake_hands(&self, origin: &Origin, mut params: Params) -> Result<Answer> {
        self.note_id(origin)?;
        let hello: Hello = params.take()?;
        match hello.protocol {
            None | Some(1) => {}
            Some(_) => return Err(wrong("protocol", "must be 1")),
        }
        self.authenticate(&hello.token)?;
        if let Some(unix_ns) = hello.unix_ns {
            self.adjust_clock(unix_ns);
        }
        Ok(Answer::Channel(ChannelAnswer::Greeting(self.agent.greeting())))
    }

    fn adjust_clock(&self, unix_ns: i64) {
        let is_off = sys::unix_ns().abs_diff(unix_ns) > CLOCK_TOLERANCE_NS as u64;
        if is_off && self.agent.owns_machine {
            // A guest that forbids it can still be served.
            if let Err(error) = self.agent.set_clock_ns(unix_ns) {
                note(&format!("clock: {error}"));
            }
        }
    }

    /// Waits until one more request may run. Never returns `None` while the session exists.
    pub async fn request_place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().acquire_owned().await.ok()
    }

    /// Decodes a request. Checks first that its number rises, that it was understood and that the
    /// client may make it. Fails with `Unauthorized` when the client has not presented the token,
    /// so that it learns nothing of methods and parameters.
    pub fn admit(&self, origin: &Origin, asked: Result<Asked>) -> Result<Request> {
        self.note_id(origin)?;
        let Asked { method, params } = asked?;
        if !self.authenticated.load(Relaxed) && !matches!(method.as_str(), "ping" | "authenticate") {
            return Err(Error::Unauthorized);
        }
        let request = Request::decode(&method, params)?;
        if let Request::Channel(ChannelRequest::Authenticate { token }) = &request {
            self.authenticate(token)?;
        }
        Ok(request)
    }

    /// Numbers must rise, so that a late event cannot be taken for one of a new request.
    fn note_id(&self, origin: &Origin) -> Result<()> {
        if !self.framed {
            return Ok(());
        }
        if origin.number == 0 || origin.number <= self.last_id.load(Relaxed) {
            return Err(wrong("id", "must be 1 to 2^32-1 and rise"));
        }
        self.last_id.store(origin.number, Relaxed);
        Ok(())
    }

    fn authenticate(&self, token: &str) -> Result<()> {
        self.agent.token.check_or_set(token)?;
        self.authenticated.store(true, Relaxed);
        Ok(())
    }

    /// Tells whether a request with this number was made in this session.
    pub fn is_past(&self, id: u32) -> bool {
        self.framed && id > 0 && id <= self.last_id.load(Relaxed)
    }

    /// Opens the channel of a request. `window` is in bytes. Fails with `TooMany` when too many are
    /// open.
    pub fn open_channel(&self, number: u32, window: usize, takes_input: bool) -> Result<Arc<Channel>> {
        if self.channels.count() >= MAX_CHANNELS {
            return Err(Error::TooMany("too many open channels"));
        }
        let channel = Arc::new(Channel::new(number, window, takes_input));
        self.channels.insert(channel.clone());
        Ok(channel)
    }

    /// Takes input for a channel. If the channel has ended, the input is late but not wrong.
    pub fn take_input(self: &Arc<Self>, stream: u8, channel: u32, bytes: &[u8]) {
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

    /// Takes an acknowledgement of `count` bytes of output.
    pub fn take_credit(&self, stream: u8, channel: u32, count: u32) {
        if let Some(window) = self.channels.find(channel).as_deref().and_then(|c| c.window(stream)) {
            window.grant(count as usize);
        }
    }

    /// Sends the reply to a request. A reply of more than `limit` bytes is replaced by an error.
    pub async fn reply(&self, origin: &Origin, result: Result<Answer>, limit: usize) {
        let frame = encode_reply(origin, result, limit);
        // A client that is gone needs no reply.
        let _ = self.out.raw(&frame).await;
    }

    /// Sends the reply to a request whose channel goes on after it.
    pub async fn answer(&self, origin: &Origin, answer: ChannelAnswer) {
        self.reply(origin, Ok(Answer::Channel(answer)), wire::JSON_LIMIT).await;
    }

    /// Sends an event, unless the client is gone.
    pub async fn event(&self, event: &impl Serialize) {
        // A client that is gone needs no event.
        let _ = self.out.json(event).await;
    }

    /// Tells the client why its session ends.
    pub async fn farewell(&self, error: &Error) {
        // The wait below must not delay this.
        self.agent.freezer.release(&self.closed);
        let event = Event::Closed { error: error.refusal() };
        // A client that does not read must not keep the link occupied.
        let _ = tokio::time::timeout(FAREWELL_LIMIT, self.out.json(&event)).await;
    }
}

fn encode_reply(origin: &Origin, result: Result<Answer>, limit: usize) -> Vec<u8> {
    let id = &origin.id;
    let encoded = match &result {
        Ok(result) => wire::encode_json(&Reply::Result { id, result }, limit),
        Err(error) => refuse(id, error, limit),
    };
    let too_large = || {
        let what = "the reply";
        refuse(&origin.number.into(), &Error::TooLarge { what, limit }, limit)
    };
    encoded.or_else(too_large).unwrap_or_default()
}

fn refuse(id: &Value, error: &Error, limit: usize) -> Option<Vec<u8>> {
    let error = error.refusal();
    wire::encode_json(&Reply::Error { id, error }, limit)
}

/// Parses a nonce: 16 bytes as 32 hex digits.
fn parse_nonce(text: &str) -> Result<[u8; 16]> {
    let value = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    value
        .filter(|_| is_hex)
        .map(u128::to_be_bytes)
        .ok_or_else(|| wrong("nonce", "must be 32 hex digits"))
}
