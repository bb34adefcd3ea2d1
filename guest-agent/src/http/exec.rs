//! Commands over HTTP. A client that closes its connection ends its command.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::body::{Events, QUEUE, Reply, params};
use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::link::channel::{Channel, DEFAULT_WINDOW};
use crate::link::events::StreamEvent;
use crate::link::wire::{STDERR, STDOUT};
use crate::processes::command::{Command, Program};
use crate::processes::exec::{self, Collected, Running, Ties};
use crate::processes::feed::Stdin;
use crate::processes::output::{Sink, sse};
use crate::requests::agent::Agent;
use crate::requests::methods::{Input, Streaming};

/// Sets the flag when the handler is dropped, which happens when the connection closes.
struct HangUp(Closed);

impl Drop for HangUp {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs a command and replies with its output.
pub async fn execute(State(agent): State<Arc<Agent>>, body: Body) -> Result<Reply<Collected>> {
    let mut params = params(body).await?;
    let (program, input) = (params.take()?, params.take()?);
    let closed = Closed::default();
    let _hang_up = HangUp(closed.clone());
    // The command has a task of its own, which outlives the handler and reaps the process.
    let task = tokio::spawn(async move { run_collected(&agent, program, input, &closed).await });
    let reply = task.await.map_err(|error| Error::failed("execute", error))?;
    reply.map(Reply)
}

async fn run_collected(agent: &Arc<Agent>, program: Program, input: Input, closed: &Closed) -> Result<Collected> {
    let command = Command::new(program, &agent.commands.me)?;
    let channel = Channel::new(agent.next_http_id(), DEFAULT_WINDOW, false);
    let ties = Ties::new(&channel, Some(closed));
    exec::collect(&agent.commands, command, input.stdin.map(|input| input.0), ties).await
}

/// Runs a command and streams its output. Replies with an error only if the command cannot be
/// started.
pub async fn execute_stream(State(agent): State<Arc<Agent>>, body: Body) -> Result<Events> {
    let mut params = params(body).await?;
    let command = Command::new(params.take()?, &agent.commands.me)?;
    let Streaming {
        stdin: takes_input,
        detach,
        ..
    } = params.take()?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (started, has_started) = oneshot::channel();
    let channel = Arc::new(Channel::new(agent.next_http_id(), DEFAULT_WINDOW, takes_input));
    // Everything happens in one task, so that a client that leaves early leaves no zombie.
    tokio::spawn(async move {
        match exec::start(&agent.commands, command, takes_input).await {
            Ok(running) => {
                agent.http_channels.insert(channel.clone());
                // If the client has left, the stream notices it.
                let _ = started.send(Ok(()));
                run_streamed(running, &channel, sender, detach).await;
                agent.http_channels.remove(&channel);
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
    has_started.await.map_err(|_| Error::Gone)??;
    Ok(Events(receiver))
}

async fn run_streamed(running: Running, channel: &Channel, sender: mpsc::Sender<Bytes>, detach: bool) {
    let start = sse(&StreamEvent::Start {
        id: channel.id,
        pid: running.pid(),
    });
    // The queue is still empty. If the client is gone, that is noticed below.
    let _ = sender.send(start).await;
    let stdin = if channel.takes_input {
        Stdin::Channel(channel, None)
    } else {
        Stdin::None
    };
    let (mut stdout, mut stderr) = (Sink::events(&sender, STDOUT), Sink::events(&sender, STDERR));
    let closed = Closed::default();
    let ties = Ties::new(channel, (!detach).then_some(&closed));
    let run = exec::run(running, stdin, [&mut stdout, &mut stderr], ties);
    let mut run = std::pin::pin!(run);
    let outcome = tokio::select! {
        outcome = &mut run => outcome,
        () = sender.closed() => {
            closed.set();
            run.await
        }
    };
    let exit = sse(&StreamEvent::Exit {
        exit_code: outcome.exit_code,
        signal: outcome.signal,
        timed_out: outcome.timed_out,
    });
    // Possibly nobody is left to receive it.
    let _ = sender.send(exit).await;
}
