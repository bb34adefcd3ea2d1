//! The requests that change the machine as a whole. An agent refuses them in a guest that it does
//! not own.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::agent::Agent;
use crate::base::closed::Closed;
use crate::base::error::{Error, Result, about};
use crate::base::params::{Moment, yes};
use crate::base::{blocking, sys};
use crate::kernel::disk;
use crate::machine::accounts::{Account, Accounts};
use crate::machine::identity::{Changed, Identity, Seed};
use crate::machine::shutdown::{self, Ending};
use crate::machine::{freeze, identity};
use crate::shares::mounting;

const ROOT: &str = "/";

/// The requests that change the machine.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    CreateUser {
        name: String,
        #[serde(default)]
        sudo: bool,
    },
    DeleteUser {
        name: String,
        #[serde(default = "yes")]
        remove_home: bool,
    },
    SetTime(Time),
    Reseed(Seed),
    SetIdentity(Identity),
    /// All four at once, for a guest that continues from a checkpoint.
    Renew(Time, Seed, Identity, NewToken),
    Trim,
    DropCaches,
    GrowRoot,
    Freeze {
        seconds: Option<Moment>,
    },
    Thaw,
    Shutdown(Ending),
}

#[derive(Debug, Deserialize)]
pub struct Time {
    /// Nanoseconds since 1970.
    unix_ns: i64,
}

#[derive(Debug, Deserialize)]
pub struct NewToken {
    token: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Done {},
    Account(Account),
    Stepped { before_ns: i64, after_ns: i64 },
    Changed(Changed),
    Trimmed { trimmed: u64 },
    Grown { before: u64, after: u64 },
    Thawed { frozen_s: f64 },
}

/// Carries out a request. `owner` is the end of the session that asks; when it ends, a file system
/// that it froze is thawed. Without an owner only the time limit thaws it. Fails with `NotOwner`
/// outside a sandbox.
pub async fn call(agent: &Arc<Agent>, request: Request, owner: Option<&Closed>) -> Result<Answer> {
    agent.require_machine()?;
    match request {
        Request::CreateUser { name, sudo } => {
            let create = move || Accounts::lock(Path::new(ROOT))?.create(&name, sudo);
            return blocking::run(create).await.map(Answer::Account);
        }
        Request::DeleteUser { name, remove_home } => {
            blocking::run(move || Accounts::lock(Path::new(ROOT))?.delete(&name, remove_home)).await?;
        }
        Request::Trim => {
            let trim = || disk::trim(Path::new(ROOT)).map_err(|error| Error::io(ROOT, error));
            let trimmed = blocking::run(trim).await?;
            return Ok(Answer::Trimmed { trimmed });
        }
        Request::DropCaches => {
            blocking::run(|| disk::drop_caches().map_err(|error| Error::io("drop_caches", error))).await?;
        }
        Request::GrowRoot => return blocking::run(grow_root).await,
        Request::SetTime(time) => return set_time(agent, &time),
        Request::Reseed(seed) => identity::reseed(&seed, &agent.prepared)?,
        Request::SetIdentity(wanted) => return set_identity(agent, wanted).await.map(Answer::Changed),
        Request::Renew(time, seed, wanted, token) => return renew(agent, &time, &seed, wanted, token).await,
        Request::Freeze { seconds } => {
            let limit = seconds.map_or(freeze::DEFAULT_LIMIT, |seconds| seconds.0);
            agent.freezer.freeze_root(limit, owner).await?;
        }
        Request::Thaw => {
            let frozen_s = agent.freezer.thaw(owner).await?.as_secs_f64();
            return Ok(Answer::Thawed { frozen_s });
        }
        Request::Shutdown(ending) => shutdown::start(&ending),
    }
    Ok(Answer::Done {})
}

/// Carries out a request about shares. Each of them may wait for the host, so a thread does it.
pub async fn call_share(agent: &Agent, request: mounting::Request) -> Result<mounting::Answer> {
    agent.require_machine()?;
    let mounts = matches!(request, mounting::Request::MountShare(_));
    let under_way = agent.mounts_under_way.clone();
    let result = blocking::run(move || mounting::carry_out(request, &under_way)).await;
    if mounts {
        agent.host_changes.begin();
    }
    result
}

/// Carries out `set_identity`. A thread generates new keys, because that takes a while. Without new
/// keys there is no thread, because its start would be most of the code that a clone has to emulate
/// here.
async fn set_identity(agent: &Arc<Agent>, wanted: Identity) -> Result<Changed> {
    if !wanted.makes_keys()? {
        return identity::set_identity(&wanted, &agent.prepared);
    }
    let agent = agent.clone();
    blocking::run(move || identity::set_identity(&wanted, &agent.prepared)).await
}

fn set_time(agent: &Agent, time: &Time) -> Result<Answer> {
    let before_ns = sys::unix_ns();
    agent
        .set_clock_ns(time.unix_ns)
        .map_err(|error| Error::io("clock", error))?;
    let after_ns = sys::unix_ns();
    Ok(Answer::Stepped { before_ns, after_ns })
}

/// Carries out `set_time`, `reseed`, `set_identity` and `rotate_token` in this order.
async fn renew(agent: &Arc<Agent>, time: &Time, seed: &Seed, wanted: Identity, token: NewToken) -> Result<Answer> {
    set_time(agent, time)?;
    identity::reseed(seed, &agent.prepared)?;
    let mut changed = set_identity(agent, wanted).await?;
    if let Some(token) = token.token {
        agent.token.replace(&token)?;
    }
    changed.unix_ns = Some(sys::unix_ns());
    Ok(Answer::Changed(changed))
}

fn grow_root() -> Result<Answer> {
    let device = disk::root_device().map_err(|error| Error::io("root device", error))?;
    let (before, after) = disk::grow(&device, Path::new(ROOT)).map_err(|error| about(&device, error))?;
    Ok(Answer::Grown { before, after })
}
