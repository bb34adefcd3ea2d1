//! Handshakes, tokens, and clients that break the rules.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Agent, Frame, NONCE, STDOUT, is_alive, wait_for};
use serde_json::{Value, json};

#[test]
fn the_first_token_counts_and_everything_but_ping_needs_it() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pong = client.call("ping", json!({}))["result"].take();
    assert_eq!(pong["pong"], true);
    let later = client.call("ping", json!({}))["result"].take();
    assert!(later["uptime_ns"].as_u64() > pong["uptime_ns"].as_u64());
    assert_eq!(client.refusal("info", json!({})), "unauthorized");
    assert_eq!(client.hello("secret")["result"]["protocol"], 1);
    let mut other = agent.connect();
    assert_eq!(other.hello("wrong")["error"]["code"], "unauthorized");
    assert_eq!(other.refusal("execute", json!({"command": "true"})), "unauthorized");
    client.result("rotate_token", json!({"token": "newer"}));
    assert_eq!(other.hello("newer")["result"]["protocol"], 1);
    assert_eq!(client.result("execute", json!({"command": "true"}))["exit_code"], 0);
}

#[test]
fn hello_says_who_answers() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let result = client.hello("secret")["result"].clone();
    assert_eq!(result["instance"].as_str().unwrap().len(), 32);
    for key in ["init_s", "root_s", "network_s", "serving_s"] {
        assert!(result["boot"][key].is_f64(), "{key}");
    }
    assert_eq!(client.hello("secret")["result"]["instance"], result["instance"]);
}

#[test]
fn a_second_hello_ends_the_channels_and_starts_anew() {
    let agent = Agent::start();
    let mut client = agent.session();
    let id = client.send("execute_stream", json!({"command": "yes $$", "window": 65536}));
    let line = client.read_until(id, "\n");
    let pid: i64 = line.lines().next().unwrap().parse().unwrap();
    assert_eq!(client.hello("secret")["result"]["protocol"], 1);
    wait_for("the end of the old command", || (!is_alive(pid)).then_some(()));
    assert_eq!(
        client.result("execute", json!({"command": "echo hi"}))["stdout"],
        "hi\n"
    );
}

#[test]
fn a_wrong_hello_ends_the_earlier_session_and_is_answered_after_the_marker() {
    let agent = Agent::start();
    for (params, parameter) in [
        (json!({"nonce": NONCE}), "token"),
        (json!({"nonce": NONCE, "token": 7}), "token"),
        (json!({"nonce": NONCE, "token": "secret", "unix_ns": 1.5}), "unix_ns"),
        (json!({"nonce": NONCE, "token": "secret", "protocol": "1"}), "protocol"),
        (json!({"nonce": NONCE, "token": "secret", "protocol": 2}), "protocol"),
    ] {
        let mut client = agent.session();
        let running = client.send("execute_stream", json!({"command": "echo $$; exec sleep 60"}));
        let pid: i64 = client.read_until(running, "\n").trim().parse().unwrap();
        let reply = client.hello_with(params.clone());
        assert_eq!(
            (&reply["error"]["code"], &reply["error"]["parameter"]),
            (&json!("bad_request"), &json!(parameter)),
            "{params}: {reply}"
        );
        wait_for("the end of the old command", || (!is_alive(pid)).then_some(()));
        assert_eq!(client.refusal("info", json!({})), "unauthorized", "{params}");
        assert_eq!(client.hello("secret")["result"]["protocol"], 1);
    }
}

#[test]
fn a_hello_without_a_nonce_ends_the_earlier_session_too() {
    let agent = Agent::start();
    for params in [
        json!({}),
        json!({"token": "secret"}),
        json!({"nonce": "00", "token": 7}),
    ] {
        let mut client = agent.session();
        let error = client.call("hello", params.clone())["error"].take();
        assert_eq!(
            (&error["code"], &error["parameter"]),
            (&json!("bad_request"), &json!("nonce")),
            "{params}: {error}"
        );
        assert_eq!(client.refusal("info", json!({})), "unauthorized", "{params}");
    }
}

#[test]
fn a_client_without_the_token_learns_nothing_of_methods_and_parameters() {
    let agent = Agent::start();
    let mut client = agent.connect();
    for (method, params) in [
        ("no_such_method", json!({})),
        ("execute", json!({"command": 7})),
        ("file_stat", json!({})),
        ("pty_open", json!({"rows": 70000})),
    ] {
        assert_eq!(client.refusal(method, params), "unauthorized", "{method}");
    }
    assert_eq!(client.refusal("authenticate", json!({})), "bad_request");
    assert_eq!(client.refusal("info", json!({})), "unauthorized");
    client.result("authenticate", json!({"token": "secret"}));
    assert_eq!(client.refusal("no_such_method", json!({})), "no_such_method");
}

#[test]
fn old_clients_get_text_in_json() {
    let agent = Agent::start();
    let mut client = agent.connect();
    assert_eq!(
        client.call("authenticate", json!({"token": "secret"}))["result"]["authenticated"],
        true
    );
    let id = client.send("execute_stream", json!({"command": "printf 'a\\377'; exit 4"}));
    assert_eq!(
        client.next_json(),
        json!({"id": id, "stream": "stdout", "data": "a\u{fffd}"})
    );
    assert_eq!(client.next_json(), json!({"id": id, "stream": "exit", "exit_code": 4}));
    let id = client.send("execute_stream", json!({"argv": ["cat"], "stdin": true}));
    client.send("stdin", json!({"id": id, "data": "text", "eof": true}));
    let frames: Vec<Value> = (0..3).map(|_| client.next_json()).collect();
    assert!(
        frames.contains(&json!({"id": id, "stream": "stdout", "data": "text"})),
        "{frames:?}"
    );
    // Clients without a handshake may repeat an id or use a text.
    client.send_json(&json!({"id": "x", "method": "execute", "params": {"command": "echo hi"}}));
    let reply = client.next_json();
    assert_eq!(
        (&reply["id"], &reply["result"]["stdout"]),
        (&json!("x"), &json!("hi\n"))
    );
}

#[test]
fn ids_must_rise() {
    let agent = Agent::start();
    let mut client = agent.session();
    client.result("ping", json!({}));
    for id in [
        json!(1),
        json!(0),
        json!(-1),
        json!(1u64 << 40),
        json!("7"),
        json!(null),
    ] {
        client.send_json(&json!({"id": id, "method": "ping"}));
        let reply = client.next_json();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&id, &json!("bad_request")));
    }
}

#[test]
fn a_broken_frame_ends_the_session_with_a_reason_and_the_server_lives() {
    let agent = Agent::start();
    let mut frames: Vec<Vec<u8>> = [
        "",
        "junk",
        "[]",
        "{\"method\":\"x\u{5c}ud83d\"}",
        "{\"id\":1,\"method\":",
        "{\"id\":1}}",
    ]
    .iter()
    .map(|text| framed(text.as_bytes()))
    .collect();
    frames.push(framed(&[0xff, 0xff]));
    frames.push(vec![0x7f, 0xff, 0xff, 0xff]);
    frames.push(vec![0xff, 0xff, 0xff, 0xff]);
    frames.push(vec![0x80, 0, 0, 1, 0]);
    for frame in frames {
        let mut client = agent.session();
        client.raw(&frame);
        match client.try_next() {
            Some(Frame::Json(value)) => {
                assert_eq!(
                    (&value["event"], &value["error"]["code"]),
                    (&json!("closed"), &json!("bad_request"))
                );
            }
            other => panic!("{other:?} after {:?}", &frame[..frame.len().min(40)]),
        }
        assert!(client.try_next().is_none());
    }
    assert_eq!(agent.session().result("ping", json!({}))["pong"], true);
    assert!(agent.memory_kib() < 32 * 1024);
}

fn framed(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[..], payload].concat()
}

#[test]
fn a_request_that_cannot_be_understood_fails_alone_by_its_id() {
    let agent = Agent::start();
    let mut client = agent.session();
    let running = client.send(
        "execute_stream",
        json!({"command": "read line; echo $line", "stdin": true}),
    );
    client.wait_reply(running);
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    let params = [
        br#"{"command": "echo \ud83d"}"#.to_vec(),
        br#"{"argv": ["printf", "x\udcffy"]}"#.to_vec(),
        br#"{"command": "true", "env": {"\ud83d": "a"}}"#.to_vec(),
        b"{\"command\": \"\xff\"}".to_vec(),
        br#"{"timeout": 1e999}"#.to_vec(),
        b"[]".to_vec(),
        deep.into_bytes(),
    ];
    let mut requests: Vec<Vec<u8>> = params
        .iter()
        .map(|params| [br#", "method": "execute", "params": "#, &params[..]].concat())
        .collect();
    requests.push(b"".to_vec());
    requests.push(br#", "method": 7"#.to_vec());
    requests.push(br#", "method": "\ud83d""#.to_vec());
    requests.push(br#", "method": "hello", "params": {"token": "\ud83d"}"#.to_vec());
    for (number, request) in requests.iter().enumerate() {
        let id = running as usize + 1 + number;
        let frame = [format!("{{\"id\": {id}").as_bytes(), request, b"}"].concat();
        client.raw(&framed(&frame));
        let reply = client.wait_reply(id as u32);
        assert_eq!(
            reply["error"]["code"],
            "bad_request",
            "{reply} to {}",
            String::from_utf8_lossy(&frame[..frame.len().min(80)])
        );
    }
    client.data(0, running, b"still here\n");
    assert_eq!(client.collect_rest(running), b"still here\n");
}

#[test]
fn a_wrong_parameter_fails_its_request_alone_and_is_named() {
    let agent = Agent::start();
    let mut client = agent.session();
    for (method, params, parameter) in [
        ("file_stat", json!({}), "path"),
        ("file_stat", json!({"path": 7}), "path"),
        ("file_stat", json!({"path": "relative"}), "path"),
        ("file_stat", json!({"path_b64": "?"}), "path"),
        ("file_stat", json!({"path": "/", "follow": "yes"}), "follow"),
        ("file_chmod", json!({"path": "/", "mode": 0o10000}), "mode"),
        ("file_set_time", json!({"path": "/", "mtime_ns": 0.5}), "mtime_ns"),
        ("execute", json!({"command": ["true"]}), "command"),
        ("execute", json!({"argv": [null]}), "argv"),
        ("execute", json!({"command": "true", "env": {"A": 1}}), "env"),
        ("execute", json!({"command": "true", "timeout": -1}), "timeout"),
        ("execute_stream", json!({"command": "true", "window": -1}), "window"),
        ("execute_stream", json!({"command": "true", "stdin": "text"}), "stdin"),
        ("pty_open", json!({"cols": 80, "rows": 70000}), "rows"),
        ("kill", json!({"pid": 7, "signal": "NONE"}), "signal"),
        ("shutdown", json!({"mode": "sleep"}), "mode"),
    ] {
        let id = client.send(method, params.clone());
        let error = client.wait_reply(id)["error"].take();
        assert_eq!(
            (&error["code"], &error["parameter"]),
            (&json!("bad_request"), &json!(parameter)),
            "{method} {params}: {error}"
        );
    }
    // A parameter that nobody knows, or that is null, is as good as absent.
    client.result("file_stat", json!({"path": "/", "follow": null, "other": [1]}));
}

#[test]
fn an_error_of_the_system_has_its_number() {
    let agent = Agent::start();
    let mut client = agent.session();
    let mut error = |method, params| {
        let id = client.send(method, params);
        let error = client.wait_reply(id)["error"].take();
        ["code", "errno", "parameter"].map(|key| error[key].clone())
    };
    assert_eq!(
        error("file_stat", json!({"path": "/nowhere"})),
        [json!("not_found"), json!(2), Value::Null]
    );
    assert_eq!(
        error("file_list", json!({"path": "/etc/passwd"})),
        [json!("bad_request"), json!(20), Value::Null]
    );
    for (params, expected) in [
        (
            json!({"argv": ["/nowhere"]}),
            [json!("not_found"), json!(2), json!("argv")],
        ),
        (
            json!({"argv": ["/etc"]}),
            [json!("forbidden"), json!(13), json!("argv")],
        ),
        (
            json!({"command": "true", "shell": "/nowhere"}),
            [json!("not_found"), json!(2), json!("shell")],
        ),
        (
            json!({"command": "true", "cwd": "/nowhere"}),
            [json!("not_found"), json!(2), json!("cwd")],
        ),
        (json!({"argv": []}), [json!("bad_request"), Value::Null, json!("argv")]),
    ] {
        assert_eq!(error("execute", params.clone()), expected, "{params}");
    }
    assert_eq!(
        error("no_such_method", json!({})),
        [json!("no_such_method"), Value::Null, Value::Null]
    );
}

#[test]
fn odd_but_whole_frames_are_survived() {
    let agent = Agent::start();
    let mut client = agent.session();
    client.credit(STDOUT, 12345, 99);
    client.data(7, 12345, b"for nobody");
    assert_eq!(client.refusal("no_such_method", json!({})), "no_such_method");
    assert_eq!(client.refusal("execute", json!({"command": 7})), "bad_request");
    assert_eq!(
        client.refusal("execute", json!({"command": "true", "window": 1})),
        "bad_request"
    );
    let id = client.send("execute_stream", json!({"command": "sleep 60"}));
    client.credit(STDOUT, id, u32::MAX as usize);
    client.data(0, id, b"input that nobody asked for");
    assert_eq!(client.collect(id).exit["error"]["code"], "bad_request");
}

#[test]
fn a_thousand_requests_at_once_are_all_answered() {
    let agent = Agent::start();
    let mut client = agent.session();
    for _ in 0..900 {
        client.send("ping", json!({}));
    }
    for _ in 0..900 {
        assert_eq!(client.next_json()["result"]["pong"], true);
    }
}

#[test]
fn the_machine_is_left_alone_outside_a_guest() {
    let agent = Agent::start();
    let mut client = agent.session();
    for (method, params) in [
        ("shutdown", json!({})),
        ("set_time", json!({"unix_ns": 1})),
        ("create_user", json!({"name": "somebody"})),
        ("delete_user", json!({"name": "somebody"})),
        ("reseed", json!({"entropy_b64": "AAAA"})),
        ("set_identity", json!({"hostname": "elsewhere"})),
        ("renew", json!({"unix_ns": 1, "entropy_b64": "AAAA"})),
        ("grow_root", json!({})),
        ("mount_share", json!({"share": "x", "target": "/mnt", "options": []})),
        ("shares", json!({})),
        ("freeze", json!({})),
        ("thaw", json!({})),
    ] {
        assert_eq!(client.refusal(method, params), "unavailable", "{method}");
    }
    assert_eq!(client.refusal("kill", json!({"pid": 1, "signal": "TERM"})), "forbidden");
    assert!(client.result("info", json!({}))["memory"]["total"].as_u64().unwrap() > 0);
    assert!(client.result("volatile", json!({}))["paths"].is_array());
    assert!(client.result("processes", json!({}))["total"].as_u64().unwrap() > 0);
}
