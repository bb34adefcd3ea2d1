//! Methods with one request and one reply, the same over every transport.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::params::{Params, wrong};
use crate::{blocking, files, freeze, info, processes, pty, signals, sys, system, volatile};

pub async fn call(agent: &Arc<Agent>, method: &str, params: &Params) -> Result<Value> {
    match method {
        "ping" => Ok(json!({"pong": true, "pid": std::process::id()})),
        // The transport has checked the token by now.
        "authenticate" => Ok(json!({"authenticated": true})),
        "rotate_token" => {
            agent.token.replace(params.str("token")?)?;
            Ok(json!({}))
        }
        "kill" => kill(params),
        "pty_list" => Ok(agent.ptys.list()),
        "pty_resize" => {
            let size = pty::requested_size(params)?.ok_or_else(|| wrong("cols", "and rows are required"))?;
            agent.ptys.require(params)?.resize(size)?;
            Ok(json!({}))
        }
        "pty_signal" => {
            let signal = signals::requested(params)?;
            let delivered = agent.ptys.require(params)?.signal(signal)?;
            Ok(json!({"delivered": delivered}))
        }
        "pty_close" => {
            agent.ptys.require(params)?.close();
            Ok(json!({}))
        }
        // The table of a process may be locked for long.
        "info" => blocking::run(info::info).await,
        "processes" => {
            let limit = params.opt_u64("limit")?.unwrap_or(processes::DEFAULT_LIMIT);
            blocking::run(move || Ok(processes::list(limit))).await
        }
        "volatile" => blocking::run(|| Ok(volatile::list())).await,
        "sync" => system::sync().await,
        // Of a client without a session: nothing but its time ends this one.
        "freeze" | "thaw" => freeze::call(agent, method, params, None).await,
        "create_user" | "delete_user" | "set_time" | "reseed" | "set_identity" | "trim" | "drop_caches"
        | "grow_root" | "pause_others" | "resume_others" | "shutdown" => system::call(agent, method, params).await,
        method if method.starts_with("file_") => files::call(method, params).await,
        _ => Err(Error::Method(method.to_owned())),
    }
}

/// Any process but the agent's own and those that a slip would name: 0 and 1.
fn kill(params: &Params) -> Result<Value> {
    let pid = i32::try_from(params.u64("pid")?).unwrap_or(0);
    if pid <= 1 || pid as u32 == std::process::id() {
        return Err(Error::Forbidden(format!("process {pid} is not to be signaled")));
    }
    let signal = signals::requested(params)?;
    let target = if params.flag("group", false)? { -pid } else { pid };
    sys::kill(target, signal).map_err(|error| Error::io(format!("process {pid}"), error))?;
    Ok(json!({}))
}
