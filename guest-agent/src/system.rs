//! Methods that concern the machine as a whole; only in a guest that is ours.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::accounts::Accounts;
use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::shutdown::{self, Mode};
use crate::{blocking, disk, identity, others, sys};

const ROOT: &str = "/";

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
        "set_time" => identity::set_time(params),
        "reseed" => identity::reseed(params, &agent.known),
        // Making keys takes a while.
        "set_identity" => {
            let (agent, params) = (agent.clone(), params.clone());
            blocking::run(move || identity::set_identity(&params, &agent.known)).await
        }
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
        // Not on a thread for files: it would stand still with the others.
        "pause_others" | "resume_others" => others::call(&agent.others, method, params),
        "grow_root" => blocking::run(grow_root).await,
        "shutdown" => {
            let mode = Mode::from_params(params)?;
            shutdown::start(mode, params.opt_seconds("grace")?.unwrap_or(shutdown::DEFAULT_GRACE));
            Ok(json!({}))
        }
        _ => Err(Error::Method(method.to_owned())),
    }
}

/// Harmless anywhere, but slow.
pub async fn sync() -> Result<Value> {
    blocking::run(|| {
        sys::sync();
        Ok(json!({}))
    })
    .await
}

fn grow_root() -> Result<Value> {
    let device = disk::root_device().map_err(|error| Error::io("root device", error))?;
    let (before, after) =
        disk::grow(&device, Path::new(ROOT)).map_err(|error| Error::io(device.display().to_string(), error))?;
    Ok(json!({"before": before, "after": after}))
}
