//! File contents over a session on a Unix socket.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use common::{Agent, Frame, STDIN, STDOUT, wait_for};
use serde_json::json;

#[test]
fn a_file_is_read_whole_or_in_part() {
    let agent = Agent::start();
    let mut client = agent.session();
    let path = agent.dir.join("file");
    let contents: Vec<u8> = (0..3_000_000u32).map(|n| (n >> 7) as u8).collect();
    fs::write(&path, &contents).unwrap();
    let id = client.send("file_read", json!({"path": path, "window": 65536}));
    let all = client.collect(id);
    assert_eq!(all.reply["result"]["size"], contents.len());
    assert!(all.stdout == contents);
    assert_eq!(
        (&all.exit["bytes"], &all.exit["error"]),
        (&json!(contents.len()), &json!(null))
    );
    let id = client.send("file_read", json!({"path": path, "offset": 1000, "length": 70_000}));
    assert!(client.collect(id).stdout == contents[1000..71_000]);
    let id = client.send("file_read", json!({"path": "/proc/self/status"}));
    assert!(client.collect(id).stdout.starts_with(b"Name:"));
}

#[test]
fn a_file_is_closed_before_its_end_is_told() {
    let agent = Agent::start();
    let mut client = agent.session();
    let path = agent.dir.join("file");
    fs::write(&path, "contents").unwrap();
    for round in 0..500 {
        let id = client.send("file_read", json!({"path": path, "sparse": round % 2 == 0}));
        client.collect(id);
        assert!(!agent.has_open(&path), "it is open after round {round}");
    }
}

/// The contents that the records of a file describe.
fn unpack(mut records: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    loop {
        let place = u64::from_be_bytes(records[..8].try_into().unwrap()) as usize;
        let length = u32::from_be_bytes(records[8..12].try_into().unwrap()) as usize;
        assert!(place >= file.len());
        file.resize(place, 0);
        file.extend_from_slice(&records[12..12 + length]);
        records = &records[12 + length..];
        if length == 0 {
            assert!(records.is_empty());
            return file;
        }
    }
}

#[test]
fn holes_are_left_out_where_that_is_asked_for() {
    let agent = Agent::start();
    let mut client = agent.session();
    let path = agent.dir.join("file");
    let file = fs::File::create(&path).unwrap();
    let data: Vec<u8> = (0..300_000u32).map(|n| (n >> 3) as u8 | 1).collect();
    for place in [1 << 20, 5 << 20, 9_000_000] {
        file.write_all_at(&data, place).unwrap();
    }
    file.set_len(40 << 20).unwrap();
    let facts = client.result("file_stat", json!({"path": path}));
    assert!(facts["allocated"].as_u64().unwrap() < 2 << 20);
    let id = client.send("file_read", json!({"path": path, "sparse": true, "window": 65536}));
    let all = client.collect(id);
    assert_eq!(all.reply["result"]["sparse"], true);
    assert!(all.stdout.len() < 2 << 20, "{} bytes", all.stdout.len());
    assert!(unpack(&all.stdout) == fs::read(&path).unwrap());
    let id = client.send("file_read", json!({"path": "/proc/self/status", "sparse": true}));
    assert!(unpack(&client.collect(id).stdout).starts_with(b"Name:"));
    for other in ["offset", "length"] {
        let params = json!({"path": path, "sparse": true, other: 0});
        assert_eq!(client.refusal("file_read", params), "bad_request");
    }
}

#[test]
fn what_was_read_without_holes_is_written_without_them() {
    let agent = Agent::start();
    let mut client = agent.session();
    let (path, copy) = (agent.dir.join("file"), agent.dir.join("copy"));
    let file = fs::File::create(&path).unwrap();
    file.write_all_at(&[7; 100_000], 3 << 20).unwrap();
    file.set_len(2 << 30).unwrap();
    let id = client.send("file_read", json!({"path": path, "sparse": true}));
    let records = client.collect(id).stdout;
    let params = json!({"path": copy, "sparse": true, "mode": 0o640, "mtime_ns": 1_111_111_111_222_333_444i64});
    let id = client.send("file_write", params);
    for part in records.chunks(40_000) {
        client.data(0, id, part);
    }
    client.data(0, id, b"");
    assert!(client.wait_reply(id).get("error").is_none());
    let (old, new) = (fs::metadata(&path).unwrap(), fs::metadata(&copy).unwrap());
    assert_eq!((new.len(), new.mode() & 0o7777), (2 << 30, 0o640));
    assert_eq!((new.mtime(), new.mtime_nsec()), (1_111_111_111, 222_333_444));
    assert!(new.blocks() <= old.blocks() + 16, "{} blocks", new.blocks());
    let mut data = vec![0; 100_000];
    fs::File::open(&copy)
        .unwrap()
        .read_exact_at(&mut data, 3 << 20)
        .unwrap();
    assert!(data.iter().all(|byte| *byte == 7));
    // What is left out, in disorder or without its end replaces nothing.
    for bad in [
        &records[..records.len() - 1],
        b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x01x",
        b"",
    ] {
        let id = client.send("file_write", json!({"path": copy, "sparse": true}));
        client.data(0, id, bad);
        if !bad.is_empty() {
            client.data(0, id, b"");
        }
        assert_eq!(client.wait_reply(id)["error"]["code"], "bad_request");
    }
    assert_eq!(fs::metadata(&copy).unwrap().len(), 2 << 30);
    assert_eq!(
        client.refusal("file_write", json!({"path": copy, "sparse": true, "append": true})),
        "bad_request"
    );
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let agent = Agent::start();
    let mut client = agent.session();
    for path in ["/dev/zero", "/tmp"] {
        assert_eq!(client.refusal("file_read", json!({"path": path})), "bad_request");
    }
    assert_eq!(client.refusal("file_read", json!({"path": "/no/file"})), "not_found");
    assert_eq!(
        client.refusal("file_write", json!({"path": "/no/dir/file"})),
        "not_found"
    );
}

#[test]
fn a_write_is_seen_only_when_it_is_whole() {
    let agent = Agent::start();
    let mut client = agent.session();
    let path = agent.dir.join("file");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let id = client.send("file_write", json!({"path": path}));
    client.data(STDIN, id, b"new ");
    client.data(STDIN, id, b"contents");
    client.result("ping", json!({}));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    client.data(STDIN, id, b"");
    assert_eq!(client.wait_reply(id)["result"]["bytes"], 12);
    assert_eq!(fs::read(&path).unwrap(), b"new contents");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn a_write_that_breaks_off_leaves_the_old_file_and_no_litter() {
    let agent = Agent::start();
    let path = agent.dir.join("file");
    fs::write(&path, "old").unwrap();
    let count = || fs::read_dir(&agent.dir).unwrap().count();
    let mut client = agent.session();
    let before = count();
    let id = client.send("file_write", json!({"path": path}));
    client.data(STDIN, id, b"half");
    wait_for("the temporary file", || (count() > before).then_some(()));
    drop(client);
    wait_for("its removal", || (count() == before).then_some(()));
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn a_large_write_gets_credit_and_a_failed_one_does_not_hang() {
    let agent = Agent::start();
    let mut client = agent.session();
    let path = agent.dir.join("large");
    let chunk = vec![7u8; 64 * 1024];
    for (path, ok) in [(path.clone(), true), ("/no/dir/file".into(), false)] {
        let id = client.send("file_write", json!({"path": path, "parents": false}));
        let (mut room, mut left) = (256 * 1024usize, 100);
        let reply = loop {
            while room >= chunk.len() && left > 0 {
                client.data(STDIN, id, &chunk);
                room -= chunk.len();
                left -= 1;
                if left == 0 {
                    client.data(STDIN, id, b"");
                }
            }
            match client.next() {
                Frame::Data { bytes, .. } => room += u32::from_be_bytes(bytes.try_into().unwrap()) as usize,
                Frame::Json(value) => break value,
            }
        };
        assert_eq!(reply.get("result").is_some(), ok, "{reply}");
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 6_553_600);
}

#[test]
fn a_read_can_be_canceled() {
    let agent = Agent::start();
    let mut client = agent.session();
    let path = agent.dir.join("file");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let id = client.send("file_read", json!({"path": path, "window": 65536}));
    let mut received = 0;
    while received < 65536 {
        if let Frame::Data {
            stream: STDOUT, bytes, ..
        } = client.next()
        {
            received += bytes.len();
        }
    }
    client.send("cancel", json!({"id": id}));
    let end = loop {
        let value = client.next_json();
        if value["event"] == "end" {
            break value;
        }
    };
    assert_eq!(
        (&end["bytes"], &end["error"]["code"]),
        (&json!(65536), &json!("bad_request"))
    );
}
