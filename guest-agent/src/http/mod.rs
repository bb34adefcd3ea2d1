//! The agent's methods over HTTP, for clients that can reach a port of the guest.

mod body;
mod exec;
mod files;
mod listener;
mod pty;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::channel::{CANCEL_GRACE, Channel, Stop};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::{methods, signals};
use body::{Name, Reply};

/// Serves until the process ends. Fails when the address cannot be bound.
pub async fn serve(agent: Arc<Agent>, address: SocketAddr) -> io::Result<()> {
    let listener = listener::Limited::bind(address).await?;
    axum::serve(listener, app(agent)).await
}

/// All routes; see guest-agent/openapi.yaml.
pub fn app(agent: Arc<Agent>) -> Router {
    let open = Router::new()
        .route("/ping", get(ping).post(ping))
        .route("/authenticate", post(authenticate));
    let guarded = Router::new()
        .route("/execute", post(exec::execute))
        .route("/execute_stream", post(exec::execute_stream))
        .route("/files", get(files::read).put(files::write))
        .route("/pty/{session}", get(pty::output))
        .route("/pty/{session}/input", post(pty::input))
        .route("/{method}", post(call))
        .fallback(nothing_here)
        .route_layer(middleware::from_fn_with_state(agent.clone(), require_token));
    open.merge(guarded).layer(DefaultBodyLimit::disable()).with_state(agent)
}

async fn nothing_here(request: Request) -> Error {
    Error::Method(request.uri().path().to_owned())
}

async fn require_token(State(agent): State<Arc<Agent>>, request: Request, next: Next) -> Response {
    match agent.token.check(bearer(request.headers())) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

async fn ping(State(agent): State<Arc<Agent>>) -> Result<Reply> {
    let reply = methods::call(&agent, "ping", &Params::default()).await?;
    Ok(Reply(reply))
}

/// Only compares the token: whoever reaches this port must not be able to set it.
async fn authenticate(State(agent): State<Arc<Agent>>, body: Body) -> Result<Reply> {
    let params = body::params(body).await?;
    agent.token.check(Some(params.str("token")?))?;
    Ok(Reply(json!({"authenticated": true})))
}

async fn call(State(agent): State<Arc<Agent>>, method: Name, body: Body) -> Result<Reply> {
    let method = body::readable(method)?;
    let params = body::params(body).await?;
    let reply = match method.as_str() {
        "stdin" => push_input(&agent, &params).await?,
        "signal" => {
            let delivered = require_command(&agent, &params)?.signal(signals::requested(&params)?);
            json!({"delivered": delivered})
        }
        "cancel" => {
            let grace = params.opt_seconds("grace")?.unwrap_or(CANCEL_GRACE);
            require_command(&agent, &params)?.stop(Stop::Cancel(grace));
            json!({})
        }
        "pty_open" => {
            let agent = agent.clone();
            // The task goes on when the client leaves, so that the child is reaped.
            let task = tokio::spawn(async move { agent.ptys.open(&params, &agent.me).await });
            let pty = task.await.map_err(|error| Error::Failed {
                what: "pty_open",
                why: error.to_string(),
            })??;
            json!({"session": pty.id, "pid": pty.pid})
        }
        method => methods::call(&agent, method, &params).await?,
    };
    Ok(Reply(reply))
}

async fn push_input(agent: &Agent, params: &Params) -> Result<Value> {
    let channel = require_command(agent, params)?;
    if !channel.takes_input {
        return Err(Error::BadRequest(format!("command {} takes no input", channel.id)));
    }
    let data = params.opt_bytes("data")?.unwrap_or_default();
    channel.input.push(&data, params.flag("eof", false)?).await;
    Ok(json!({}))
}

fn require_command(agent: &Agent, params: &Params) -> Result<Arc<Channel>> {
    let id = params.u32("id")?;
    agent
        .http_channels
        .find(id)
        .ok_or_else(|| Error::NotFound(format!("command {id}")))
}

#[cfg(test)]
mod tests;
