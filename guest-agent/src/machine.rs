//! Methods that concern the machine as a whole. They are refused in a guest that the agent does not
//! own.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::accounts::Accounts;
use crate::agent::Agent;
use crate::closed::Closed;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::shutdown::{self, Mode};
use crate::{blocking, disk, freeze, identity, pause, shares, sys};

const ROOT: &str = "/";

/// Carries out a method. Fails with `NotOwner` outside a sandbox, and with `Method` when there is
/// no such method.
pub async fn call(agent: &Arc<Agent>, method: &str, params: &Params) -> Result<Value> {
    agent.require_machine()?;
    match method {
        "create_user" => {
            let (name, sudo) = (params.str("name")?.to_owned(), params.flag("sudo", false)?);
            blocking::run(move || Accounts::lock(Path::new(ROOT))?.create(&name, sudo)).await
        }
        "delete_user" => {
            let (name, remove_home) = (params.str("name")?.to_owned(), params.flag("remove_home", true)?);
            blocking::run(move || Accounts::lock(Path::new(ROOT))?.delete(&name, remove_home)).await
        }
        "set_time" => set_time(agent, params),
        "reseed" => identity::reseed(params, &agent.prepared),
        "set_identity" => set_identity(agent, params).await,
        "renew" => renew(agent, params).await,
        "trim" => {
            let work = || disk::trim(Path::new(ROOT)).map(|bytes| json!({"trimmed": bytes}));
            blocking::run(move || work().map_err(|error| Error::io(ROOT, error))).await
        }
        "drop_caches" => {
            blocking::run(|| {
                disk::drop_caches()
                    .map(|()| json!({}))
                    .map_err(|error| Error::io("drop_caches", error))
            })
            .await
        }
        // This does not run on a thread for files, which would stand still like the other programs.
        "pause_others" | "resume_others" => pause::call(&agent.programs, method, params),
        "grow_root" => blocking::run(grow_root).await,
        // Each of them may wait for the host.
        "load_share_client" => blocking::run(shares::load_client).await,
        "mount_share" => {
            let (params, under_way) = (params.clone(), agent.mounts_under_way.clone());
            let mounted = blocking::run(move || shares::mount(&params, &under_way)).await;
            agent.host_changes.begin();
            mounted
        }
        "unmount_share" => {
            let params = params.clone();
            blocking::run(move || shares::unmount(&params)).await
        }
        "shares" => {
            let under_way = agent.mounts_under_way.clone();
            blocking::run(move || Ok(shares::list(&under_way))).await
        }
        "detach_shares" => {
            let params = params.clone();
            blocking::run(move || shares::detach_named(&params)).await
        }
        "sync_shares" => blocking::run(shares::sync_all).await,
        "shutdown" => {
            let mode = Mode::from_params(params)?;
            shutdown::start(mode, params.opt_seconds("grace")?.unwrap_or(shutdown::DEFAULT_GRACE));
            Ok(json!({}))
        }
        _ => Err(Error::Method(method.to_owned())),
    }
}

/// Carries out `set_identity`. Generating keys takes a while, so that this is done on a thread. The
/// rest is not: starting one would be most of the code that a clone has to emulate for it.
async fn set_identity(agent: &Arc<Agent>, params: &Params) -> Result<Value> {
    if !identity::makes_keys(params)? {
        return identity::set_identity(params, &agent.prepared);
    }
    let (agent, params) = (agent.clone(), params.clone());
    blocking::run(move || identity::set_identity(&params, &agent.prepared)).await
}

/// Sets the clock to the parameter `unix_ns`, in nanoseconds.
fn set_time(agent: &Agent, params: &Params) -> Result<Value> {
    let unix_ns = params.i64("unix_ns")?;
    let before = sys::unix_ns();
    agent.set_clock_ns(unix_ns).map_err(|error| Error::io("clock", error))?;
    Ok(json!({"before_ns": before, "after_ns": sys::unix_ns()}))
}

/// Carries out `set_time`, `reseed`, `set_identity` and `rotate_token` in this order: one request
/// for all that a guest needs which continues from a checkpoint. The reply has the clock at its
/// end, by which the host knows how late the time arrived.
async fn renew(agent: &Arc<Agent>, params: &Params) -> Result<Value> {
    set_time(agent, params)?;
    identity::reseed(params, &agent.prepared)?;
    let mut changed = set_identity(agent, params).await?;
    if let Some(token) = params.opt_str("token")? {
        agent.token.replace(token)?;
    }
    changed["unix_ns"] = sys::unix_ns().into();
    Ok(changed)
}

/// Carries out `freeze` or `thaw`. `owner` is the end of the session that asks; when it ends, the
/// file system is thawed. Without an owner only the time limit thaws it.
pub async fn freeze_or_thaw(agent: &Agent, method: &str, params: &Params, owner: Option<&Closed>) -> Result<Value> {
    agent.require_machine()?;
    if method == "freeze" {
        let limit = freeze::requested_limit(params)?;
        agent.freezer.freeze_root(limit, owner).await?;
        Ok(json!({}))
    } else {
        let frozen = agent.freezer.thaw(owner).await?;
        Ok(json!({"frozen_s": frozen.as_secs_f64()}))
    }
}

fn grow_root() -> Result<Value> {
    let device = disk::root_device().map_err(|error| Error::io("root device", error))?;
    let (before, after) =
        disk::grow(&device, Path::new(ROOT)).map_err(|error| Error::io(device.display().to_string(), error))?;
    Ok(json!({"before": before, "after": after}))
}
