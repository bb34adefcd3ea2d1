//! Watches of directories and metadata of files, over a session.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;

use common::{Agent, Client, Frame, STDIN, STDOUT};
use serde_json::json;

const LOST: u8 = 6;
const MARK: u8 = 7;

/// Reads records until a mark, giving credit. Returns them as (kind, name).
fn until_mark(client: &mut Client, channel: u32) -> Vec<(u8, String)> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut found = Vec::new();
    loop {
        while bytes.len() >= 4 {
            let end = 4 + usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            if bytes.len() < end {
                break;
            }
            let name = String::from_utf8_lossy(&bytes[4..end]).into_owned();
            let kind = bytes[2];
            bytes.drain(..end);
            if kind == MARK {
                return found;
            }
            found.push((kind, name));
        }
        if let Frame::Data {
            stream: STDOUT,
            channel: of,
            bytes: piece,
        } = client.next()
            && of == channel
        {
            client.credit(STDOUT, channel, piece.len());
            bytes.extend(piece);
        }
    }
}

#[test]
fn a_mark_follows_what_has_happened_and_the_end_comes_with_the_directory() {
    let agent = Agent::start();
    let mut client = agent.session();
    let dir = agent.dir.join("watched");
    fs::create_dir(&dir).unwrap();
    let id = client.send("watch", json!({"path": dir, "window": 65536}));
    assert_eq!(client.wait_reply(id)["result"]["directories"], 1);
    fs::write(dir.join("file"), "x").unwrap();
    client.data(STDIN, id, b"\0");
    assert_eq!(
        until_mark(&mut client, id),
        [(1, "file".to_owned()), (2, "file".to_owned())]
    );
    fs::remove_dir_all(&dir).unwrap();
    let end = loop {
        if let Frame::Json(event) = client.next() {
            break event;
        }
    };
    assert_eq!((&end["event"], &end["error"]), (&json!("end"), &json!(null)));
    assert_eq!(client.refusal("watch", json!({"path": dir})), "not_found");
}

#[test]
fn a_client_that_does_not_read_fills_no_memory_and_learns_that_events_were_lost() {
    let agent = Agent::start();
    let mut client = agent.session();
    let dir = agent.dir.join("watched");
    fs::create_dir(&dir).unwrap();
    let id = client.send("watch", json!({"path": dir, "window": 65536}));
    client.wait_reply(id);
    let before = agent.memory_kib();
    for number in 0..60_000 {
        let path = dir.join(format!("{number}"));
        fs::write(&path, "").unwrap();
        fs::remove_file(&path).unwrap();
    }
    assert!(agent.memory_kib() < before + 8 * 1024);
    client.data(STDIN, id, b"\0");
    let told = until_mark(&mut client, id);
    assert!(told.iter().any(|(kind, _)| *kind == LOST));
}
