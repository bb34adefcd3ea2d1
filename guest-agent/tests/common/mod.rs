//! A plain blocking client of the agent, and an agent to talk to.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const CREDIT: u8 = 0x80;
const DATA: u32 = 1 << 31;
const PATIENCE: Duration = Duration::from_secs(20);
pub const NONCE: &str = "00112233445566778899aabbccddeeff";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A server with a directory of its own. Dropping it ends the server and removes the directory.
pub struct Agent {
    process: Child,
    pub dir: PathBuf,
}

impl Agent {
    pub fn start() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("quicksand-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_quicksand-agent"))
            .args(["serve", "--unix"])
            .arg(dir.join("socket"))
            .spawn()
            .unwrap();
        Self { process, dir }
    }

    pub fn connect(&self) -> Client {
        let path = self.dir.join("socket");
        let stream = wait_for("the socket", || UnixStream::connect(&path).ok());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, last_id: 0 }
    }

    pub fn session(&self) -> Client {
        let mut client = self.connect();
        let reply = client.hello("secret");
        assert_eq!(reply["result"]["protocol"], 1, "{reply}");
        client
    }

    /// The ids of the processes that the agent has started and not reaped.
    pub fn children(&self) -> Vec<String> {
        let id = self.process.id();
        let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Whether it has a file open.
    pub fn has_open(&self, path: &Path) -> bool {
        let opened = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        opened
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .any(|found| found == path)
    }

    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Retries until there is a result.
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Debug)]
pub enum Frame {
    Json(Value),
    Data { stream: u8, channel: u32, bytes: Vec<u8> },
}

pub struct Client {
    pub stream: UnixStream,
    last_id: u32,
}

/// Everything that arrived on one channel.
#[derive(Debug, Default)]
pub struct Collected {
    pub reply: Value,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Value,
}

impl Client {
    pub fn hello(&mut self, token: &str) -> Value {
        self.hello_with(json!({"nonce": NONCE, "token": token, "protocol": 1}))
    }

    /// Says `hello` and waits for the reply after the marker. The nonce must be `NONCE`.
    pub fn hello_with(&mut self, params: Value) -> Value {
        let id = self.send("hello", params);
        let mut marker = b"QSND".to_vec();
        marker.extend((0..16).map(|n| n * 0x11));
        let mut window = vec![0; marker.len()];
        self.stream.read_exact(&mut window).unwrap();
        while window != marker {
            window.remove(0);
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            window.push(byte[0]);
        }
        let reply = self.next_json();
        assert_eq!(reply["id"], id);
        reply
    }

    pub fn send(&mut self, method: &str, params: Value) -> u32 {
        self.last_id += 1;
        let request = json!({"id": self.last_id, "method": method, "params": params});
        self.send_json(&request);
        self.last_id
    }

    pub fn send_json(&mut self, value: &Value) {
        let text = value.to_string();
        self.raw(&(text.len() as u32).to_be_bytes());
        self.raw(text.as_bytes());
    }

    /// The number of bytes that wait to be read.
    pub fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.stream).unwrap()
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn data(&mut self, stream: u8, channel: u32, bytes: &[u8]) {
        let mut frame = (DATA | (bytes.len() + 5) as u32).to_be_bytes().to_vec();
        frame.push(stream);
        frame.extend(channel.to_be_bytes());
        frame.extend(bytes);
        self.raw(&frame);
    }

    pub fn credit(&mut self, stream: u8, channel: u32, count: usize) {
        self.data(CREDIT | stream, channel, &(count as u32).to_be_bytes());
    }

    /// `None` when the agent has closed the connection.
    pub fn try_next(&mut self) -> Option<Frame> {
        let mut word = [0; 4];
        self.stream.read_exact(&mut word).ok()?;
        let word = u32::from_be_bytes(word);
        let mut payload = vec![0; (word & !DATA) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        if word & DATA == 0 {
            return Some(Frame::Json(serde_json::from_slice(&payload).unwrap()));
        }
        Some(Frame::Data {
            stream: payload[0],
            channel: u32::from_be_bytes(payload[1..5].try_into().unwrap()),
            bytes: payload[5..].to_vec(),
        })
    }

    pub fn next(&mut self) -> Frame {
        self.try_next().expect("a frame within the time limit")
    }

    pub fn next_json(&mut self) -> Value {
        match self.next() {
            Frame::Json(value) => value,
            frame => panic!("expected JSON, got {frame:?}"),
        }
    }

    /// Waits for the reply to a request. Frames of other channels are dropped.
    pub fn wait_reply(&mut self, id: u32) -> Value {
        loop {
            if let Frame::Json(value) = self.next()
                && value["id"] == id
            {
                return value;
            }
        }
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.wait_reply(id)
    }

    /// Makes a call that must succeed and returns its result.
    pub fn result(&mut self, method: &str, params: Value) -> Value {
        let reply = self.call(method, params);
        assert!(reply.get("error").is_none(), "{method}: {reply}");
        reply["result"].clone()
    }

    /// Makes a call that must fail and returns its error code.
    pub fn refusal(&mut self, method: &str, params: Value) -> String {
        let reply = self.call(method, params);
        reply["error"]["code"]
            .as_str()
            .unwrap_or_else(|| panic!("{method}: {reply}"))
            .to_owned()
    }

    /// Reads a channel to its `exit` or `end`, or to an error, giving credit.
    pub fn collect(&mut self, id: u32) -> Collected {
        let mut all = Collected::default();
        loop {
            match self.next() {
                Frame::Data { stream, channel, bytes } if channel == id => {
                    if stream & CREDIT != 0 {
                        continue;
                    }
                    assert!(all.reply.is_object(), "data before the reply");
                    assert!(!bytes.is_empty());
                    let target = if stream == STDOUT {
                        &mut all.stdout
                    } else {
                        &mut all.stderr
                    };
                    target.extend(&bytes);
                    self.credit(stream, id, bytes.len());
                }
                Frame::Json(value) if value["id"] == id => {
                    all.reply = value;
                    if all.reply.get("error").is_some() {
                        return all;
                    }
                }
                Frame::Json(value) if value["channel"] == id && value["event"] != "lagged" => {
                    all.exit = value;
                    return all;
                }
                _ => {}
            }
        }
    }

    pub fn run(&mut self, params: Value) -> Collected {
        let id = self.send("execute_stream", params);
        self.collect(id)
    }

    /// Waits for the output of a channel whose reply has arrived already.
    pub fn collect_rest(&mut self, id: u32) -> Vec<u8> {
        let mut output = Vec::new();
        loop {
            match self.next() {
                Frame::Data {
                    stream: STDOUT,
                    channel,
                    bytes,
                } if channel == id => {
                    self.credit(STDOUT, id, bytes.len());
                    output.extend(bytes);
                }
                Frame::Json(value) if value["channel"] == id => return output,
                _ => {}
            }
        }
    }

    /// Waits for the exit event of a channel whose reply has arrived already.
    pub fn collect_exit(&mut self, id: u32) -> Value {
        loop {
            match self.next() {
                Frame::Data { stream, channel, bytes } if channel == id && stream & CREDIT == 0 => {
                    self.credit(stream, id, bytes.len());
                }
                Frame::Json(value) if value["channel"] == id => return value,
                _ => {}
            }
        }
    }

    /// Reads a channel until its output contains `text`.
    pub fn read_until(&mut self, id: u32, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            if let Frame::Data { stream, channel, bytes } = self.next()
                && (stream, channel) == (STDOUT, id)
            {
                self.credit(STDOUT, id, bytes.len());
                seen.extend(bytes);
                let seen = String::from_utf8_lossy(&seen);
                if seen.contains(text) {
                    return seen.into_owned();
                }
            }
        }
    }
}

pub fn is_alive(pid: i64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

pub fn read_number(path: &Path) -> i64 {
    wait_for("the file", || std::fs::read_to_string(path).ok()?.trim().parse().ok())
}
