//! The agent's methods over HTTP, for clients that can reach a port of the guest.
//!
//! Others may reach it, too: the number of connections is limited, and all but `ping` needs the
//! token, which cannot be set from here.

mod body;
mod exec;
mod files;
mod listener;
mod pty;
mod query;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use crate::base::error::{Error, Result};
use crate::link::channel::{CANCEL_GRACE, Channel, Stop};
use crate::requests::agent::Agent;
use crate::requests::methods::{self, Answer, ChannelAnswer, ChannelRequest, CommonRequest, PlainRequest, Request};
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

async fn nothing_here(request: extract::Request) -> Error {
    Error::Method(request.uri().path().to_owned())
}

async fn require_token(State(agent): State<Arc<Agent>>, request: extract::Request, next: Next) -> Response {
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

async fn ping(State(agent): State<Arc<Agent>>) -> Result<Reply<Answer>> {
    let ping = CommonRequest::Plain(PlainRequest::Ping);
    methods::call(&agent, ping, None).await.map(Reply)
}

/// Only compares the token. A client of this port must not be able to set it.
async fn authenticate(State(agent): State<Arc<Agent>>, body: Body) -> Result<Reply<ChannelAnswer>> {
    let Token { token } = body::params(body).await?.take()?;
    agent.token.check(Some(&token))?;
    Ok(Reply(ChannelAnswer::Authenticated { authenticated: true }))
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

async fn call(State(agent): State<Arc<Agent>>, method: Name, body: Body) -> Result<Reply<Answer>> {
    let method = body::readable(method)?;
    let answer = match Request::decode(&method, body::params(body).await?)? {
        Request::Common(request) => methods::call(&agent, request, None).await?,
        Request::Channel(request) => Answer::Channel(call_on(&agent, &method, request).await?),
    };
    Ok(Reply(answer))
}

/// Carries out a request that concerns a channel, which is a command here.
async fn call_on(agent: &Arc<Agent>, method: &str, request: ChannelRequest) -> Result<ChannelAnswer> {
    match request {
        ChannelRequest::Stdin(typed) => {
            let channel = require_command(agent, typed.id)?;
            if !channel.takes_input {
                return Err(Error::BadRequest(format!("command {} takes no input", channel.id)));
            }
            channel.input.push(&typed.data.0, typed.eof).await;
            Ok(ChannelAnswer::Done {})
        }
        ChannelRequest::Signal { id, signal } => {
            let delivered = require_command(agent, id)?.signal(signal.0);
            Ok(ChannelAnswer::Delivered { delivered })
        }
        ChannelRequest::Cancel { id, grace } => {
            require_command(agent, id)?.stop(Stop::Cancel(grace.0.unwrap_or(CANCEL_GRACE)));
            Ok(ChannelAnswer::Done {})
        }
        ChannelRequest::PtyOpen(program, terminal, size, _) => {
            let agent = agent.clone();
            // The task goes on when the client leaves, so that the child is reaped.
            let open = async move { agent.ptys.open(program, terminal, size, &agent.commands.me).await };
            let pty = tokio::spawn(open)
                .await
                .map_err(|error| Error::failed("pty_open", error))??;
            Ok(ChannelAnswer::Opened {
                session: pty.id.clone(),
                channel: None,
                pid: pty.pid,
            })
        }
        _ => Err(Error::Method(method.to_owned())),
    }
}

fn require_command(agent: &Agent, id: u32) -> Result<Arc<Channel>> {
    agent
        .http_channels
        .find(id)
        .ok_or_else(|| Error::NotFound(format!("command {id}")))
}

#[cfg(test)]
mod tests;
