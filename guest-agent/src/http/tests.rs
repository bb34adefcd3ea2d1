//! Tests of the router without a socket.

use super::*;
use crate::machine::boot_times::BootTimes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use tower::ServiceExt;

fn router(token: Option<&str>) -> Router {
    app(Arc::new(Agent::new(token, BootTimes::default(), false).unwrap()))
}

async fn ask(app: &Router, method: &str, path: &str, token: Option<&str>, body: impl Into<Body>) -> (u16, Vec<u8>) {
    let mut request = extract::Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = app.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    (
        status,
        response.into_body().collect().await.unwrap().to_bytes().to_vec(),
    )
}

async fn post_json(app: &Router, path: &str, body: Value) -> (u16, Value) {
    let (status, bytes) = ask(app, "POST", path, Some("t"), body.to_string()).await;
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn without_a_token_only_ping_answers() {
    let app = router(None);
    assert_eq!(ask(&app, "GET", "/ping", None, "").await.0, 200);
    assert_eq!(ask(&app, "POST", "/execute", Some("t"), "{}").await.0, 503);
    let authenticate = ask(&app, "POST", "/authenticate", None, r#"{"token":"t"}"#).await;
    assert_eq!(authenticate.0, 503);
}

#[tokio::test]
async fn the_token_is_required_everywhere() {
    let app = router(Some("t"));
    for (method, path) in [
        ("POST", "/execute"),
        ("GET", "/files?path=/etc/passwd"),
        ("GET", "/pty/p1"),
        ("POST", "/info"),
    ] {
        for token in [None, Some("wrong")] {
            assert_eq!(ask(&app, method, path, token, "{}").await.0, 401, "{path}");
        }
    }
    assert_eq!(
        ask(&app, "POST", "/authenticate", None, r#"{"token":"t"}"#).await.0,
        200
    );
    assert_eq!(
        ask(&app, "POST", "/authenticate", None, r#"{"token":"x"}"#).await.0,
        401
    );
}

#[tokio::test]
async fn a_command_gives_its_output_and_code() {
    let app = router(Some("t"));
    let (status, reply) = post_json(&app, "/execute", json!({"command": "cat; exit 3", "stdin": "hi"})).await;
    assert_eq!(status, 200);
    assert_eq!((&reply["stdout"], &reply["exit_code"]), (&json!("hi"), &json!(3)));
    let (status, reply) = post_json(&app, "/execute", json!({"command": "x", "cwd": "/nowhere"})).await;
    assert_eq!((status, &reply["code"]), (404, &json!("not_found")));
    assert!(reply["detail"].as_str().unwrap().contains("/nowhere"));
}

#[tokio::test]
async fn a_stream_is_events_with_bytes_that_are_no_text_in_base64() {
    let app = router(Some("t"));
    let body = json!({"command": "printf 'a\\377b'; kill -9 $$"}).to_string();
    let (status, bytes) = ask(&app, "POST", "/execute_stream", Some("t"), body).await;
    assert_eq!(status, 200);
    let text = String::from_utf8(bytes).unwrap();
    let events: Vec<Value> = text
        .split("\n\n")
        .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok())
        .collect();
    assert_eq!(events[0]["stream"], "start");
    assert_eq!(events[1]["data_b64"], "Yf9i");
    let exit = json!({"stream": "exit", "exit_code": 137, "signal": 9, "timed_out": false});
    assert_eq!(events.last(), Some(&exit));
}

#[tokio::test]
async fn a_terminal_takes_input_and_gives_events() {
    let app = router(Some("t"));
    let (status, opened) = post_json(&app, "/pty_open", json!({"command": "read line; echo got $line"})).await;
    assert_eq!(status, 200);
    let path = format!("/pty/{}", opened["session"].as_str().unwrap());
    let input = ask(&app, "POST", &format!("{path}/input"), Some("t"), "it\n").await;
    assert_eq!(input.0, 200);
    let (_, events) = ask(&app, "GET", &path, Some("t"), "").await;
    let text = String::from_utf8(events).unwrap();
    let output: Vec<u8> = text
        .split("\n\n")
        .filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok())
        .filter_map(|event| crate::base::base64::decode(event["data_b64"].as_str()?))
        .flatten()
        .collect();
    assert!(String::from_utf8_lossy(&output).contains("got it"));
    assert!(text.contains("\"exit_code\":0"));
    assert_eq!(ask(&app, "GET", "/pty/p99", Some("t"), "").await.0, 404);
}

#[tokio::test]
async fn files_travel_as_raw_bytes() {
    let app = router(Some("t"));
    let path = std::env::temp_dir().join(format!("quicksand-http-{}", std::process::id()));
    let uri = format!("/files?path={}&mode=0o600", path.display());
    let contents: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    assert_eq!(ask(&app, "PUT", &uri, Some("t"), contents.clone()).await.0, 200);
    assert_eq!(ask(&app, "GET", &uri, Some("t"), "").await, (200, contents));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ask(&app, "GET", &uri, Some("t"), "").await.0, 404);
}

#[tokio::test]
async fn bytes_that_are_no_text_name_files_commands_and_input() {
    let app = router(Some("t"));
    let path = std::env::temp_dir().join(format!("quicksand-bytes-{}", std::process::id()));
    let name = format!("{}-%ff%C3%A9", path.display());
    let uri = format!("/files?path={name}");
    assert_eq!(ask(&app, "PUT", &uri, Some("t"), "old").await.0, 200);
    let raw = [path.as_os_str().as_encoded_bytes(), b"-\xff\xc3\xa9"].concat();
    let coded = crate::base::base64::encode;
    let params = json!({"argv_b64": [coded(b"tee"), coded(&raw)], "stdin_b64": coded(b"\xfe")});
    let (status, reply) = post_json(&app, "/execute", params).await;
    assert_eq!((status, &reply["exit_code"]), (200, &json!(0)), "{reply}");
    assert_eq!(ask(&app, "GET", &uri, Some("t"), "").await, (200, b"\xfe".to_vec()));
    std::fs::remove_file(std::ffi::OsStr::from_bytes(&raw)).unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_form() {
    let app = router(Some("t"));
    assert_eq!(ask(&app, "POST", "/execute", Some("t"), "{").await.0, 400);
    assert_eq!(ask(&app, "POST", "/nonsense", Some("t"), "").await.0, 404);
    assert_eq!(
        ask(&app, "POST", "/execute", Some("t"), vec![b' '; body::PARAMS_LIMIT + 1])
            .await
            .0,
        413
    );
    let (status, reply) = post_json(&app, "/shutdown", json!({})).await;
    assert_eq!((status, &reply["code"]), (503, &json!("unavailable")));
    for body in [
        r#"{"command": "\ud83d"}"#,
        r#"{"command": "true", "env": {"\udcff": ""}}"#,
    ] {
        let (status, reply) = ask(&app, "POST", "/execute", Some("t"), body).await;
        assert_eq!(status, 400);
        assert_eq!(serde_json::from_slice::<Value>(&reply).unwrap()["code"], "bad_request");
    }
    for (method, path) in [("POST", "/%ff"), ("GET", "/pty/%ff"), ("POST", "/pty/%ff/input")] {
        let (status, reply) = ask(&app, method, path, Some("t"), "").await;
        assert_eq!(status, 400);
        assert_eq!(serde_json::from_slice::<Value>(&reply).unwrap()["code"], "bad_request");
    }
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(ask(&app, "POST", "/info", Some("t"), deep).await.0, 400);
}
