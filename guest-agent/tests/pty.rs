//! Terminals over sessions on a Unix socket.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Agent, Frame, STDIN, is_alive, wait_for};
use serde_json::json;

#[test]
fn a_terminal_is_one_and_knows_its_size() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "pty_open",
        json!({"command": "stty size; tty; echo $TERM; cat", "cols": 100, "rows": 30}),
    );
    let session = client.wait_reply(id)["result"]["session"].clone();
    let text = client.read_until(id, "xterm-256color");
    assert!(text.contains("30 100"), "{text}");
    client.result("pty_resize", json!({"session": session, "cols": 90, "rows": 20}));
    let list = client.result("pty_list", json!({}));
    let entry = &list["sessions"][0];
    assert_eq!(
        (&entry["cols"], &entry["rows"], &entry["attached"]),
        (&json!(90), &json!(20), &json!(1))
    );
    client.data(STDIN, id, b"echoed\n");
    client.read_until(id, "echoed\r\nechoed");
    client.data(STDIN, id, b"\x04");
    let all = client.collect_exit(id);
    assert_eq!((&all["exit_code"], &all["event"]), (&json!(0), &json!("exit")));
}

#[test]
fn a_login_shell_starts_without_a_command() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("pty_open", json!({"shell": "/bin/sh", "env": {"PS1": "ready> "}}));
    client.wait_reply(id);
    client.data(STDIN, id, b"echo $0 $((40+2)); tty\n");
    let text = client.read_until(id, "/dev/pts/");
    assert!(text.contains("-sh 42"), "{text}");
    client.data(STDIN, id, b"exit 3\n");
    assert_eq!(client.collect_exit(id)["exit_code"], 3);
}

#[test]
fn a_session_of_ssh_is_told_its_terminal_and_others_are_not() {
    let agent = Agent::start();
    let mut client = agent.session();
    let script = r#"[ "$SSH_TTY" = "$(tty)" ] && echo told; echo "<${SSH_TTY-}>""#;
    let params = json!({"command": script, "env": {"SSH_CONNECTION": "127.0.0.1 0 127.0.0.1 22"}});
    let id = client.send("pty_open", params);
    client.read_until(id, "told\r\n</dev/pts/");
    let id = client.send("pty_open", json!({"command": script}));
    client.read_until(id, "<>");
}

#[test]
fn a_terminal_outlives_its_client_and_repeats_its_output() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "pty_open",
        json!({"command": "echo first; cat; exit 3", "name": "main"}),
    );
    let session = client.wait_reply(id)["result"]["session"].clone();
    client.read_until(id, "first");
    client.result("pty_detach", json!({"id": id}));
    wait_for("the detach", || {
        (client.result("pty_list", json!({}))["sessions"][0]["attached"] == 0).then_some(())
    });
    drop(client);
    let mut client = agent.session();
    let id = client.send("pty_attach", json!({"session": session, "cols": 70, "rows": 20}));
    let reply = client.wait_reply(id);
    assert_eq!(
        (&reply["result"]["alive"], &reply["result"]["cols"]),
        (&json!(true), &json!(70))
    );
    client.read_until(id, "first");
    client.data(STDIN, id, b"\x04");
    assert_eq!(client.collect_exit(id)["exit_code"], 3);
    // The terminal stays listed for a while, with its output and its exit code.
    let id = client.send("pty_attach", json!({"session": session, "replay": 7}));
    let all = client.collect(id);
    assert_eq!(all.reply["result"]["replay"], 7);
    assert_eq!(
        (all.stdout.as_slice(), &all.exit["exit_code"]),
        (&b"first\r\n"[..], &json!(3))
    );
    let entry = &client.result("pty_list", json!({}))["sessions"][0];
    assert_eq!(
        (&entry["name"], &entry["alive"], &entry["exit_code"]),
        (&json!("main"), &json!(false), &json!(3))
    );
}

#[test]
fn one_client_holds_a_flood_back_and_gets_every_byte() {
    let agent = Agent::start();
    let mut client = agent.session();
    let command = "stty raw; i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done";
    let id = client.send("pty_open", json!({"command": command, "window": 65536}));
    let all = client.collect(id);
    let expected: String = (0..30000).map(|i| format!("line {i}\n")).collect();
    assert!(
        all.stdout == expected.as_bytes(),
        "{} of {}",
        all.stdout.len(),
        expected.len()
    );
}

#[test]
fn of_several_clients_the_slow_one_is_told_that_it_lags() {
    let agent = Agent::start();
    let mut client = agent.session();
    let slow = client.send(
        "pty_open",
        json!({"command": "stty raw; echo up; head -c 4000000 /dev/zero; echo done; cat", "window": 65536}),
    );
    let session = client.wait_reply(slow)["result"]["session"].clone();
    let mut other = agent.session();
    let fast = other.send("pty_attach", json!({"session": session}));
    other.read_until(fast, "done");
    let mut lagged = false;
    let mut credited = false;
    loop {
        match client.next() {
            Frame::Json(value) if value["event"] == "lagged" => lagged = true,
            Frame::Data { channel, bytes, .. } => {
                client.credit(1, channel, bytes.len());
                credited = true;
            }
            Frame::Json(value) => assert_eq!(value["id"], slow),
        }
        if lagged && credited {
            break;
        }
    }
    client.result("pty_close", json!({"session": session}));
}

#[test]
fn signals_reach_the_foreground_and_close_ends_it() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "pty_open",
        json!({"command": "trap 'echo got' INT; echo $$ up; while :; do sleep 0.05; done"}),
    );
    let session = client.wait_reply(id)["result"]["session"].clone();
    let pid: i64 = client
        .read_until(id, "up")
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        client.result("pty_signal", json!({"session": session, "signal": "INT"}))["delivered"],
        true
    );
    client.read_until(id, "got");
    client.result("pty_close", json!({"session": session}));
    assert_eq!(client.collect_exit(id)["signal"], 1);
    assert!(!is_alive(pid));
    assert_eq!(client.refusal("pty_attach", json!({"session": "p99"})), "not_found");
}

#[test]
fn a_terminal_that_is_refused_starts_no_program() {
    let agent = Agent::start();
    let mut client = agent.session();
    for wrong in [json!({"name": 5}), json!({"cols": 80}), json!({"scrollback": 1 << 30})] {
        let mut params = json!({"command": "cat"});
        params
            .as_object_mut()
            .unwrap()
            .append(&mut wrong.as_object().unwrap().clone());
        assert_eq!(client.refusal("pty_open", params), "bad_request");
    }
    assert_eq!(client.result("pty_list", json!({}))["sessions"], json!([]));
    assert!(agent.children().is_empty());
}

#[test]
fn who_watches_a_terminal_sees_it_and_changes_nothing() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "pty_open",
        json!({"command": "echo first; cd /tmp; exec cat", "cols": 100, "rows": 30}),
    );
    let session = client.wait_reply(id)["result"]["session"].clone();
    client.read_until(id, "first");
    let mut other = agent.session();
    let watch = other.send(
        "pty_attach",
        json!({"session": session, "cols": 10, "rows": 5, "watch": true}),
    );
    let reply = other.wait_reply(watch);
    assert_eq!(
        (&reply["result"]["cols"], &reply["result"]["rows"]),
        (&json!(100), &json!(30))
    );
    other.read_until(watch, "first");
    wait_for("the program", || {
        let list = client.result("pty_list", json!({}));
        let entry = &list["sessions"][0];
        assert_eq!(entry["attached"], 1);
        (entry["foreground"] == json!(["cat"]) && entry["cwd"] == "/tmp").then_some(())
    });
    client.data(STDIN, id, b"seen\n");
    other.read_until(watch, "seen");
    other.result("pty_detach", json!({"id": watch}));
    client.data(STDIN, id, b"\x04");
    assert_eq!(client.collect_exit(id)["exit_code"], 0);
}
