//! Methods with one request and one reply, which are the same over every transport.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::params::{Params, wrong};
use crate::{blocking, files, info, machine, processes, pty, signals, sys, volatile};

/// Carries out a method for a client that the transport has authenticated. Fails with `Method` when
/// there is no such method.
pub async fn call(agent: &Arc<Agent>, method: &str, params: &Params) -> Result<Value> {
    match method {
        "ping" => Ok(json!({
            "pong": true,
            "pid": std::process::id(),
            "uptime_ns": sys::clock(libc::CLOCK_BOOTTIME).as_nanos() as u64,
        })),
        // The transport has checked the token already.
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
        // The kernel may hold the lock on a process's memory map for long.
        "info" => blocking::run(info::info).await,
        "processes" => {
            let limit = params.opt_u64("limit")?.unwrap_or(processes::DEFAULT_LIMIT);
            blocking::run(move || Ok(processes::list(limit))).await
        }
        "volatile" => blocking::run(|| Ok(volatile::list())).await,
        "sync" => sync().await,
        // This client has no session, so only the time limit ends its freeze.
        "freeze" | "thaw" => machine::freeze_or_thaw(agent, method, params, None).await,
        "create_user" | "delete_user" | "set_time" | "reseed" | "set_identity" | "renew" | "trim" | "drop_caches"
        | "grow_root" | "pause_others" | "resume_others" | "shutdown" | "load_share_client" | "shares"
        | "mount_share" | "unmount_share" | "detach_shares" | "sync_shares" => {
            machine::call(agent, method, params).await
        }
        method if method.starts_with("file_") => files::call(method, params).await,
        _ => Err(Error::Method(method.to_owned())),
    }
}

/// Signals any process but the agent itself and the numbers that a mistake would produce: 0 and 1.
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

/// Writes everything to the disk. This may be done on any machine, but it is slow.
async fn sync() -> Result<Value> {
    blocking::run(|| {
        sys::sync();
        Ok(json!({}))
    })
    .await
}
