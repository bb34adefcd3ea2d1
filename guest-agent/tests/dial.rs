//! Connections to services in the guest, listening there, and the SFTP server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use common::{Agent, Client, Frame, STDIN, STDOUT, wait_for};
use serde_json::{Value, json};

const WINDOW: usize = 65536;
const SECOND: Duration = Duration::from_secs(1);

/// A server that gets one connection.
fn server(work: impl FnOnce(TcpStream) + Send + 'static) -> (u16, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, thread::spawn(move || work(listener.accept().unwrap().0)))
}

/// Everything that comes on a channel until its event `end`, giving credit for all of it.
fn until_end(client: &mut Client, channel: u32) -> (Vec<u8>, bool, Value) {
    let (mut bytes, mut eof) = (Vec::new(), false);
    loop {
        match client.next() {
            Frame::Data {
                stream,
                channel: on,
                bytes: piece,
            } if (stream, on) == (STDOUT, channel) => {
                client.credit(STDOUT, channel, piece.len());
                bytes.extend(piece);
            }
            Frame::Json(event) if event["channel"] == channel && event["event"] == "eof" => eof = true,
            Frame::Json(event) if event["channel"] == channel && event["event"] == "end" => return (bytes, eof, event),
            _ => {}
        }
    }
}

#[test]
fn both_directions_end_on_their_own() {
    let (port, served) = server(|mut peer| {
        peer.write_all(b"hello").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        peer.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "still there");
    });
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": port}));
    assert_eq!(client.wait_reply(id)["result"]["channel"], id);
    let mut got = Vec::new();
    loop {
        match client.next() {
            Frame::Data { bytes, .. } => got.extend(bytes),
            Frame::Json(event) if event["event"] == "eof" => break,
            Frame::Json(_) => {}
        }
    }
    assert_eq!(got, b"hello");
    client.data(STDIN, id, b"still there");
    client.data(STDIN, id, b"");
    let (_, _, end) = until_end(&mut client, id);
    assert_eq!((&end["bytes"], &end["error"]), (&json!(5), &Value::Null));
    served.join().unwrap();
}

#[test]
fn much_is_carried_both_ways_and_memory_stays_flat() {
    const SIZE: usize = 24 << 20;
    let (port, served) = server(|mut peer| {
        let mut back = peer.try_clone().unwrap();
        let echo = thread::spawn(move || std::io::copy(&mut peer, &mut back).unwrap());
        assert_eq!(echo.join().unwrap(), SIZE as u64);
    });
    let agent = Agent::start();
    let mut client = agent.session();
    let before = agent.memory_kib();
    let id = client.send("dial", json!({"port": port, "window": WINDOW}));
    client.wait_reply(id);
    let (mut sent, mut credit, mut got) = (0, 256 << 10, 0);
    while got < SIZE {
        while credit > 0 && sent < SIZE {
            let count = credit.min(SIZE - sent).min(32 << 10);
            client.data(STDIN, id, &vec![(sent >> 15) as u8; count]);
            (sent, credit) = (sent + count, credit - count);
        }
        match client.next() {
            Frame::Data {
                stream: STDOUT, bytes, ..
            } => {
                got += bytes.len();
                client.credit(STDOUT, id, bytes.len());
            }
            Frame::Data { bytes, .. } => credit += u32::from_be_bytes(bytes.try_into().unwrap()) as usize,
            Frame::Json(_) => {}
        }
    }
    client.data(STDIN, id, b"");
    let (_, eof, end) = until_end(&mut client, id);
    assert!(eof);
    assert_eq!(end["bytes"], SIZE);
    assert!(agent.memory_kib() < before + (8 << 10));
    served.join().unwrap();
}

#[test]
fn refusals_say_what_the_system_said() {
    let agent = Agent::start();
    let mut client = agent.session();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = client.call("dial", json!({"port": free}))["error"].take();
    assert_eq!(
        (&refused["code"], &refused["errno"]),
        (&json!("io"), &json!(libc::ECONNREFUSED))
    );
    let missing = client.call("dial", json!({"path": "/no/such/socket"}))["error"].take();
    assert_eq!(
        (&missing["code"], &missing["errno"]),
        (&json!("not_found"), &json!(libc::ENOENT))
    );
    assert_eq!(client.refusal("dial", json!({})), "bad_request");
    assert_eq!(client.refusal("dial", json!({"host": "-x", "port": 1})), "bad_request");
    assert_eq!(
        client.refusal("dial", json!({"host": "no-such-name.invalid", "port": 1})),
        "not_found"
    );
    assert_eq!(
        client.refusal("dial", json!({"path": "/x", "user": "nobody-here"})),
        "not_found"
    );
}

#[test]
fn a_connection_that_is_reset_is_told_as_such() {
    let (port, served) = server(|peer| {
        let mut byte = [0];
        (&peer).read_exact(&mut byte).unwrap();
        // What is not read at the end is answered with a reset.
        let enough = || (peer.peek(&mut [0; 4]).ok() == Some(4)).then_some(());
        wait_for("more to read", enough);
    });
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": port}));
    client.wait_reply(id);
    client.data(STDIN, id, b"x");
    client.data(STDIN, id, b"more");
    let (_, eof, end) = until_end(&mut client, id);
    assert!(!eof);
    assert_eq!(end["error"]["errno"], libc::ECONNRESET);
    served.join().unwrap();
}

#[test]
fn cancelling_and_the_end_of_the_session_reset_the_peer() {
    for by_cancel in [true, false] {
        let (port, served) = server(|mut peer| {
            peer.set_read_timeout(Some(20 * SECOND)).unwrap();
            let error = peer.read(&mut [0]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        });
        let agent = Agent::start();
        let mut client = agent.session();
        let id = client.send("dial", json!({"port": port}));
        client.wait_reply(id);
        if by_cancel {
            client.send("cancel", json!({"id": id}));
            let (_, _, end) = until_end(&mut client, id);
            assert_eq!(end["error"]["code"], "bad_request");
        } else {
            drop(client);
        }
        served.join().unwrap();
    }
}

#[test]
fn a_unix_socket_is_dialled_by_its_path() {
    let agent = Agent::start();
    let path = agent.dir.join("service");
    let listener = UnixListener::bind(&path).unwrap();
    let served = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"hi").unwrap();
    });
    let mut client = agent.session();
    let id = client.send("dial", json!({"path": path}));
    client.wait_reply(id);
    client.data(STDIN, id, b"");
    assert_eq!(until_end(&mut client, id).0, b"hi");
    served.join().unwrap();
}

/// Waits for the next connection to a listener.
fn accepted(client: &mut Client, listener: u32) -> u32 {
    loop {
        if let Frame::Json(event) = client.next()
            && event["event"] == "accepted"
        {
            assert_eq!(event["channel"], listener);
            return event["connection"].as_u64().unwrap() as u32;
        }
    }
}

#[test]
fn connections_to_a_listener_are_taken_by_their_numbers() {
    let agent = Agent::start();
    let mut client = agent.session();
    let listener = client.send("listen", json!({"port": 0}));
    let port = client.wait_reply(listener)["result"]["port"].as_u64().unwrap() as u16;
    for text in ["one", "two"] {
        let peer = thread::spawn(move || {
            let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
            peer.write_all(text.as_bytes()).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            let mut heard = String::new();
            peer.read_to_string(&mut heard).unwrap();
            heard
        });
        let connection = accepted(&mut client, listener);
        let id = client.send("accept", json!({"connection": connection}));
        client.wait_reply(id);
        client.data(STDIN, id, b"heard");
        client.data(STDIN, id, b"");
        assert_eq!(until_end(&mut client, id).0, text.as_bytes());
        assert_eq!(peer.join().unwrap(), "heard");
        assert_eq!(client.refusal("accept", json!({"connection": connection})), "not_found");
    }
    client.send("cancel", json!({"id": listener}));
    until_end(&mut client, listener);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn only_loopback_is_listened_at() {
    let agent = Agent::start();
    let mut client = agent.session();
    for host in ["0.0.0.0", "::", "10.0.2.15"] {
        assert_eq!(client.refusal("listen", json!({"host": host, "port": 0})), "forbidden");
    }
}

#[test]
fn the_file_of_a_unix_listener_goes_with_its_session() {
    let agent = Agent::start();
    let path = agent.dir.join("mine");
    let mut client = agent.session();
    let listener = client.send("listen", json!({"path": path}));
    client.wait_reply(listener);
    assert!(path.exists());
    assert_eq!(client.refusal("listen", json!({"path": path})), "io");
    drop(client);
    wait_for("the end of the socket", || (!path.exists()).then_some(()));
}

#[test]
fn what_has_taken_the_place_of_a_unix_listener_stays() {
    let agent = Agent::start();
    let path = agent.dir.join("mine");
    let mut client = agent.session();
    let listener = client.send("listen", json!({"path": path}));
    client.wait_reply(listener);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    client.send("cancel", json!({"id": listener}));
    let (_, _, end) = until_end(&mut client, listener);
    assert_eq!(end["error"], Value::Null);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");
}

#[test]
fn a_connection_that_is_canceled_within_a_frame_leaves_the_session_whole() {
    let (port, served) = server(|mut peer| {
        // Until it is reset.
        while peer.write(&[0; 65536]).is_ok() {}
    });
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": port}));
    client.wait_reply(id);
    // The client reads nothing, so a frame is in the link by half.
    let (mut last, mut times) = (0, 0);
    let is_full = || {
        let unread = client.unread();
        times = if unread > 0 && unread == last { times + 1 } else { 0 };
        last = unread;
        (times == 10).then_some(())
    };
    wait_for("the link to be full", is_full);
    client.send("cancel", json!({"id": id}));
    served.join().unwrap();
    let (_, _, end) = until_end(&mut client, id);
    assert_eq!(end["error"]["code"], "bad_request");
    assert_eq!(client.result("ping", json!({}))["pong"], true);
}

#[test]
fn connections_that_nobody_takes_are_bounded() {
    let agent = Agent::start();
    let mut client = agent.session();
    let listener = client.send("listen", json!({"port": 0}));
    let port = client.wait_reply(listener)["result"]["port"].as_u64().unwrap() as u16;
    let peers: Vec<_> = (0..80)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    let numbers: Vec<_> = (0..64).map(|_| accepted(&mut client, listener)).collect();
    // The next one is accepted when there is room for it.
    let id = client.send("accept", json!({"connection": numbers[0]}));
    assert_eq!(accepted(&mut client, listener), 65);
    client.send("cancel", json!({"id": id}));
    drop(peers);
}

#[test]
fn a_user_is_described_as_a_session_of_theirs_begins() {
    let agent = Agent::start();
    let mut client = agent.session();
    let me = client.result("find_user", json!({}));
    let home = me["home"].as_str().unwrap();
    assert!(home.starts_with('/') && me["shell"].as_str().unwrap().starts_with('/'));
    assert_eq!(client.result("find_user", json!({"user": me["name"]})), me);
    assert_eq!(client.refusal("find_user", json!({"user": "nobody-here"})), "not_found");
}

#[test]
fn the_sftp_server_is_this_program_in_another_role() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("sftp", json!({}));
    client.data(STDIN, id, &[0, 0, 0, 5, 1, 0, 0, 0, 3]);
    client.data(STDIN, id, b"");
    let collected = client.collect(id);
    assert_eq!(collected.stdout[4..9], [2, 0, 0, 0, 3]);
    assert_eq!(collected.exit["exit_code"], 0);
    assert_eq!(client.refusal("sftp", json!({"user": "nobody-here"})), "not_found");
}

/// A datagram as it stands in a channel's stream.
fn framed(datagram: &[u8]) -> Vec<u8> {
    [&(datagram.len() as u16).to_be_bytes()[..], datagram].concat()
}

/// What a client has got on its only channel.
#[derive(Default)]
struct Got {
    stream: Vec<u8>,
    owed: usize,
}

/// The next datagram, giving credit as the engine does: a part of the window at a time.
fn next_datagram(client: &mut Client, got: &mut Got) -> Vec<u8> {
    let Got { stream, owed } = got;
    loop {
        if let Some(length) = stream.first_chunk::<2>() {
            let size = 2 + usize::from(u16::from_be_bytes(*length));
            if stream.len() >= size {
                return stream.drain(..size).skip(2).collect();
            }
        }
        if let Frame::Data {
            stream: STDOUT,
            channel,
            bytes,
        } = client.next()
        {
            *owed += bytes.len();
            stream.extend(bytes);
            if *owed >= WINDOW / 4 {
                client.credit(STDOUT, channel, std::mem::take(owed));
            }
        }
    }
}

#[test]
fn datagrams_are_carried_whole_and_one_by_one() {
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let echo = thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        loop {
            let (count, from) = service.recv_from(&mut buffer).unwrap();
            if &buffer[..count] == b"end" {
                return;
            }
            service.send_to(&buffer[..count], from).unwrap();
        }
    });
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": port, "protocol": "udp", "window": WINDOW}));
    assert_eq!(client.wait_reply(id)["result"]["channel"], id);
    let mut got = Got::default();
    for datagram in [&b"one"[..], b"", &[7; 65507], b"last"] {
        let bytes = framed(datagram);
        // A frame may end within a datagram.
        let (first, second) = bytes.split_at(1);
        client.data(STDIN, id, first);
        client.data(STDIN, id, second);
        assert_eq!(next_datagram(&mut client, &mut got), datagram);
    }
    client.data(STDIN, id, &framed(b"end"));
    client.data(STDIN, id, b"");
    let (_, eof, end) = until_end(&mut client, id);
    assert!(!eof);
    assert_eq!(
        (&end["bytes"], &end["error"]),
        (&json!(3 + 65507 + 4 + 4 * 2), &Value::Null)
    );
    echo.join().unwrap();
}

#[test]
fn a_service_that_comes_late_gets_the_next_datagrams() {
    let place = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": place.port(), "protocol": "udp"}));
    client.wait_reply(id);
    client.data(STDIN, id, &framed(b"lost"));
    // Once this is answered, the datagram was sent, and refused by the kernel.
    client.result("ping", json!({}));
    let service = UdpSocket::bind(place).unwrap();
    service.set_read_timeout(Some(SECOND / 10)).unwrap();
    let arrives = || {
        client.data(STDIN, id, &framed(b"found"));
        let mut buffer = [0; 16];
        let count = service.recv(&mut buffer).ok()?;
        (&buffer[..count] == b"found").then_some(())
    };
    wait_for("a datagram", arrives);
}

#[test]
fn a_client_that_reads_nothing_gets_the_latest_datagrams_and_memory_stays_flat() {
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": port, "protocol": "udp", "window": WINDOW}));
    client.wait_reply(id);
    client.data(STDIN, id, &framed(b"hello"));
    let (_, from) = service.recv_from(&mut [0; 16]).unwrap();
    let before = agent.memory_kib();
    for number in 0..4000_u32 {
        let datagram = [&number.to_be_bytes()[..], &[0; 8192]].concat();
        // The kernel's own queue is full at times.
        let _ = service.send_to(&datagram, from);
    }
    let mut got = Got::default();
    let mut count = 0;
    loop {
        // The kernel drops it as long as others wait there.
        let _ = service.send_to(b"last", from);
        if next_datagram(&mut client, &mut got) == b"last" {
            break;
        }
        count += 1;
    }
    assert!(count < 4000);
    assert!(agent.memory_kib() < before + (8 << 10));
}

#[test]
fn what_can_be_no_datagram_ends_the_channel() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("dial", json!({"port": 9, "protocol": "udp"}));
    client.wait_reply(id);
    client.data(STDIN, id, &[0xff, 0xff]);
    let (_, _, end) = until_end(&mut client, id);
    assert_eq!(end["error"]["code"], "too_large");
    assert_eq!(
        client.refusal("dial", json!({"path": "/x", "protocol": "udp"})),
        "bad_request"
    );
    assert_eq!(
        client.refusal("listen", json!({"port": 0, "protocol": "udp"})),
        "bad_request"
    );
}
