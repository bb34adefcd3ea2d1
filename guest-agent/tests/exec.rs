//! Commands over a session on a Unix socket.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Agent, Frame, STDERR, STDIN, STDOUT, is_alive, read_number, wait_for};
use serde_json::json;

#[test]
fn output_errors_and_codes_arrive_before_the_exit() {
    let agent = Agent::start();
    let mut client = agent.session();
    let all = client.run(json!({"command": "echo out; echo err >&2; exit 3"}));
    assert_eq!(
        (all.stdout.as_slice(), all.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(all.exit["exit_code"], 3);
    assert!(all.reply["result"]["pid"].as_i64().unwrap() > 1);
    let killed = client.run(json!({"command": "kill -9 $$"}));
    assert_eq!(
        (&killed.exit["exit_code"], &killed.exit["signal"]),
        (&json!(137), &json!(9))
    );
    let reply = client.result("execute", json!({"argv": ["cat"], "stdin": "text"}));
    assert_eq!((&reply["stdout"], &reply["truncated"]), (&json!("text"), &json!(false)));
}

#[test]
fn what_is_missing_is_named() {
    let agent = Agent::start();
    let mut client = agent.session();
    for (params, name) in [
        (json!({"command": "x", "shell": "/no/shell"}), "/no/shell"),
        (json!({"command": "x", "cwd": "/no/dir"}), "/no/dir"),
        (json!({"command": "x", "user": "no-such-user"}), "no-such-user"),
        (json!({"argv": ["no-such-program"]}), "no-such-program"),
    ] {
        let reply = client.run(params).reply;
        assert_eq!(reply["error"]["code"], "not_found", "{reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains(name), "{reply}");
    }
}

#[test]
fn the_environment_is_sane_and_nothing_leaks_into_it() {
    let agent = Agent::start();
    let mut client = agent.session();
    let all =
        client.run(json!({"command": "env; ulimit -Sn >/dev/null; ls /proc/self/fd; umask", "env": {"EXTRA": "1"}}));
    let text = String::from_utf8(all.stdout).unwrap();
    for line in ["EXTRA=1", "LANG=C.UTF-8", "PWD=/", "0022"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    assert!(!text.contains("CARGO"), "{text}");
    // 3 is the directory that ls reads.
    let fds: Vec<&str> = text.lines().filter(|line| line.len() == 1).collect();
    assert_eq!(fds, ["0", "1", "2", "3"]);
    let status = client.run(json!({"command": "grep -E '^Sig(Blk|Ign)' /proc/self/status"}));
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.lines().all(|line| line.ends_with("0000000000000000")),
        "{status}"
    );
}

#[test]
fn commands_run_at_once() {
    let agent = Agent::start();
    let mut client = agent.session();
    let started = Instant::now();
    let ids: Vec<u32> = (0..3)
        .map(|_| client.send("execute", json!({"command": "sleep 0.5"})))
        .collect();
    for _ in &ids {
        assert_eq!(client.next_json()["result"]["exit_code"], 0);
    }
    assert!(
        started.elapsed() < Duration::from_millis(1200),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn without_credit_a_flood_stops_and_nobody_else_does() {
    let agent = Agent::start();
    let mut client = agent.session();
    let window = 64 * 1024;
    let id = client.send("execute_stream", json!({"command": "yes", "window": window}));
    let mut received = 0;
    while received < window {
        if let Frame::Data { channel, bytes, .. } = client.next() {
            assert_eq!(channel, id);
            received += bytes.len();
        }
    }
    assert_eq!(received, window);
    // Another command is served on the same session, and nothing of the flood arrives.
    let ping = client.send("execute", json!({"command": "echo hi"}));
    let reply = client.next_json();
    assert_eq!(
        (&reply["id"], &reply["result"]["stdout"]),
        (&json!(ping), &json!("hi\n"))
    );
    client.credit(STDOUT, id, 1000);
    match client.next() {
        Frame::Data { bytes, .. } => assert_eq!(bytes.len(), 1000),
        frame => panic!("{frame:?}"),
    }
    client.send("cancel", json!({"id": id}));
    let all = client.collect(id);
    assert_eq!(all.exit["canceled"], true);
    assert!(agent.memory_kib() < 32 * 1024);
}

#[test]
fn a_gigabyte_keeps_memory_flat_and_comes_whole() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "execute_stream",
        json!({"command": "head -c 300000000 /dev/zero | tr '\\0' x"}),
    );
    let mut received = 0;
    loop {
        match client.next() {
            Frame::Data { stream, channel, bytes } => {
                assert!(bytes.iter().all(|byte| *byte == b'x'));
                received += bytes.len();
                client.credit(stream, channel, bytes.len());
            }
            Frame::Json(value) if value["event"] == "exit" => break,
            Frame::Json(value) => assert_eq!(value["id"], id),
        }
    }
    assert_eq!(received, 300_000_000);
    assert!(agent.memory_kib() < 32 * 1024, "{}", agent.memory_kib());
}

#[test]
fn a_timeout_kills_the_whole_group_and_delivers_what_there_was() {
    let agent = Agent::start();
    let mut client = agent.session();
    let file = agent.dir.join("pid");
    let command = format!(
        "echo before; (trap '' TERM; sleep 60) & echo $! >{}; wait",
        file.display()
    );
    let started = Instant::now();
    let all = client.run(json!({"command": command, "timeout": 0.3}));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(all.stdout, b"before\n");
    assert_eq!(
        (&all.exit["timed_out"], &all.exit["exit_code"]),
        (&json!(true), &json!(124))
    );
    let grandchild = read_number(&file);
    wait_for("the end of the grandchild", || (!is_alive(grandchild)).then_some(()));
}

#[test]
fn a_background_job_does_not_hold_the_call_and_lives_on() {
    let agent = Agent::start();
    let mut client = agent.session();
    let file = agent.dir.join("alive");
    let command = format!(
        "(sleep 0.4; echo late; echo late; echo 1 >{}) & echo started",
        file.display()
    );
    let started = Instant::now();
    let all = client.run(json!({"command": command}));
    assert!(
        started.elapsed() < Duration::from_millis(350),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(all.stdout, b"started\n");
    assert_eq!(read_number(&file), 1);
    let flood = client.run(json!({"command": "yes & echo $!"}));
    let flood: String = String::from_utf8(flood.stdout)
        .unwrap()
        .lines()
        .filter(|l| *l != "y")
        .collect();
    client.result("kill", json!({"pid": flood.parse::<u64>().unwrap(), "signal": "KILL"}));
}

#[test]
fn bytes_stay_bytes_and_text_is_repaired() {
    let agent = Agent::start();
    let mut client = agent.session();
    let command = "printf '\\377\\000\\303'; printf '\\251'";
    assert_eq!(client.run(json!({"command": command})).stdout, b"\xff\0\xc3\xa9");
    let reply = client.result("execute", json!({"command": command}));
    assert_eq!(reply["stdout"], "\u{fffd}\0é");
    let long = client.result("execute", json!({"command": "head -c 3000000 /dev/zero"}));
    assert_eq!(
        (long["stdout"].as_str().unwrap().len(), &long["truncated"]),
        (1 << 20, &json!(true))
    );
}

#[test]
fn ten_megabytes_go_in_and_come_back() {
    let agent = Agent::start();
    let mut client = agent.session();
    let sent: Vec<u8> = (0..10_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let id = client.send("execute_stream", json!({"argv": ["cat"], "stdin": true}));
    let mut room = 256 * 1024;
    let mut position = 0;
    let mut received = Vec::new();
    loop {
        while room > 0 && position < sent.len() {
            let count = room.min(60_000).min(sent.len() - position);
            client.data(STDIN, id, &sent[position..position + count]);
            position += count;
            room -= count;
            if position == sent.len() {
                client.data(STDIN, id, b"");
            }
        }
        match client.next() {
            Frame::Data {
                stream: STDOUT, bytes, ..
            } => {
                client.credit(STDOUT, id, bytes.len());
                received.extend(bytes);
            }
            Frame::Data { stream, bytes, .. } => {
                assert_eq!(stream, common::CREDIT | STDIN);
                room += u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
            }
            Frame::Json(value) if value["event"] == "exit" => break,
            Frame::Json(_) => {}
        }
    }
    assert!(received == sent);
}

#[test]
fn input_beyond_the_window_ends_the_channel_only() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("execute_stream", json!({"command": "sleep 60", "stdin": true}));
    for _ in 0..6 {
        client.data(STDIN, id, &vec![b'x'; 100_000]);
    }
    let all = client.collect(id);
    assert_eq!(all.exit["error"]["code"], "bad_request", "{:?}", all.exit);
    assert_eq!(client.result("ping", json!({}))["pong"], true);
}

#[test]
fn signals_and_cancel_reach_the_group() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "execute_stream",
        json!({"command": "trap 'echo got; exit 5' USR1; echo up; sleep 60 & wait"}),
    );
    client.read_until(id, "up");
    assert_eq!(
        client.result("signal", json!({"id": id, "signal": "USR1"}))["delivered"],
        true
    );
    let all = client.collect_rest(id);
    assert!(all.ends_with(b"got\n"));
    assert_eq!(
        client.result("signal", json!({"id": id, "signal": 15}))["delivered"],
        false
    );
    assert_eq!(client.refusal("cancel", json!({"id": 999_999})), "not_found");
}

#[test]
fn an_exclusive_command_runs_alone() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send(
        "execute_stream",
        json!({"command": "echo up; sleep 60", "exclusive": true}),
    );
    client.read_until(id, "up");
    assert_eq!(client.refusal("execute", json!({"command": "true"})), "busy");
    client.result("cancel", json!({"id": id}));
    wait_for("its end", || {
        (client.call("execute", json!({"command": "true"})).get("result")).map(|_| ())
    });
}

#[test]
fn a_disconnect_ends_what_is_not_detached() {
    let agent = Agent::start();
    let (doomed, kept) = (agent.dir.join("doomed"), agent.dir.join("kept"));
    let mut client = agent.session();
    for (file, detach) in [(&doomed, false), (&kept, true)] {
        let command = format!("echo $$ >{}; while :; do echo output; sleep 0.05; done", file.display());
        client.send("execute_stream", json!({"command": command, "detach": detach}));
    }
    let (doomed, kept) = (read_number(&doomed), read_number(&kept));
    drop(client);
    wait_for("its end", || (!is_alive(doomed)).then_some(()));
    assert!(is_alive(kept));
    agent
        .session()
        .result("kill", json!({"pid": kept, "signal": "KILL", "group": true}));
}

#[test]
fn a_later_client_goes_on_with_a_kept_command() {
    let agent = Agent::start();
    let mut client = agent.session();
    let script = "echo first; read line; echo got $line >&2; read line; exit 7";
    let id = client.send(
        "execute_stream",
        json!({"command": script, "keep": true, "stdin": true}),
    );
    let reply = client.wait_reply(id);
    let command = reply["result"]["command"].as_str().unwrap().to_owned();
    let pid = reply["result"]["pid"].as_i64().unwrap();
    assert!(matches!(client.next(), Frame::Data { stream: STDOUT, bytes, .. } if bytes == b"first\n"));
    let mut other = agent.session();
    let refused = other.send("command_attach", json!({"command": command}));
    assert_eq!(other.wait_reply(refused)["error"]["code"], "busy");

    drop(client);
    let id = other.send("command_attach", json!({"command": command, "stdin": true}));
    assert_eq!(other.wait_reply(id)["result"]["pid"], pid);
    other.data(STDIN, id, b"word\n");
    assert!(matches!(other.next(), Frame::Data { stream: STDERR, channel, bytes }
        if bytes == b"got word\n" && channel == id));
    drop(other);
    let mut last = agent.session();
    let id = last.send("command_attach", json!({"command": command, "stdin": true}));
    last.wait_reply(id);
    // The end of the input.
    last.data(STDIN, id, b"");
    let exit = last.next_json();
    assert_eq!(
        (&exit["event"], &exit["channel"], &exit["exit_code"]),
        (&json!("exit"), &json!(id), &json!(7))
    );
}

#[test]
fn a_kept_command_ends_without_a_client_and_its_end_is_remembered() {
    let agent = Agent::start();
    let mut client = agent.session();
    let flood = "head -c 5000000 /dev/zero; echo done; exit 3";
    let id = client.send(
        "execute_stream",
        json!({"command": flood, "keep": true, "window": 65536}),
    );
    let reply = client.wait_reply(id);
    let command = reply["result"]["command"].as_str().unwrap().to_owned();
    let pid = reply["result"]["pid"].as_i64().unwrap();
    // No credit is given, so that it waits.
    client.next();
    drop(client);

    wait_for("its end", || (!is_alive(pid)).then_some(()));
    for _ in 0..2 {
        let mut other = agent.session();
        let id = other.send("command_attach", json!({"command": command}));
        other.wait_reply(id);
        // What the agent had not read when the command ended comes before its end.
        assert_eq!(other.collect_exit(id)["exit_code"], 3);
    }
    let mut other = agent.session();
    let id = other.send("command_attach", json!({"command": "c99"}));
    assert_eq!(other.wait_reply(id)["error"]["code"], "not_found");
}

#[test]
fn a_kept_command_is_signaled_and_canceled_through_a_later_channel() {
    let agent = Agent::start();
    let mut client = agent.session();
    let script = "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done";
    let id = client.send("execute_stream", json!({"command": script, "keep": true}));
    let command = client.wait_reply(id)["result"]["command"].as_str().unwrap().to_owned();
    client.next();
    drop(client);

    let mut other = agent.session();
    let id = other.send("command_attach", json!({"command": command}));
    other.wait_reply(id);
    assert_eq!(
        other.result("signal", json!({"id": id, "signal": "USR1"}))["delivered"],
        true
    );
    // The whole group has the signal: the shell may also say that it has ended `sleep`.
    let said = wait_for("the trap", || match other.next() {
        Frame::Data {
            stream: STDOUT, bytes, ..
        } => Some(bytes),
        _ => None,
    });
    assert_eq!(said, b"usr1\n");
    other.send("cancel", json!({"id": id}));
    let exit = wait_for("the exit", || match other.next() {
        Frame::Json(event) if event["event"] == "exit" => Some(event),
        _ => None,
    });
    assert_eq!((&exit["canceled"], &exit["channel"]), (&json!(true), &json!(id)));
}
