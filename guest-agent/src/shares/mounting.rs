//! Mounts directories of the host, by SMB from the server at `SERVER`, or by 9p from QEMU.
//!
//! A checkpoint holds SMB mounts whose server is gone after a revert. They are detached by force,
//! because no program may wait for that server, and because data that they had not written must not
//! be written a second time.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount as unmount_now};
use serde::{Deserialize, Serialize};

use super::ciphers;
use crate::base::error::{Error, Result, about};
use crate::base::log::note;
use crate::base::mutex::Mutex;
use crate::base::params::{Place, wrong};
use crate::base::sys;
use crate::kernel::mountinfo::{self, Mount};
use crate::kernel::{modprobe, mounts, network};

/// The requests about shares.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    LoadShareClient,
    MountShare(Mounting),
    UnmountShare {
        target: Place,
        #[serde(default)]
        force: bool,
    },
    Shares,
    DetachShares {
        #[serde(default)]
        shares: Vec<String>,
    },
    SyncShares,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Done {},
    /// The names of the shares that are mounted, of those that are being mounted, and of those to
    /// which the kernel keeps a connection, whether they are mounted or were. The last are missing
    /// if the kernel does not tell.
    Shares {
        shares: Vec<String>,
        mounting: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        connected: Option<Vec<String>>,
    },
}

/// The parameters of a mount.
#[derive(Debug, Deserialize)]
pub struct Mounting {
    #[serde(rename = "type", default)]
    kind: Kind,
    share: String,
    target: Place,
    /// The options of mount.cifs(8), or of the kernel's 9p client.
    options: Vec<String>,
    #[serde(default)]
    read_only: bool,
}

/// The protocol of a mount.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
enum Kind {
    #[default]
    #[serde(rename = "cifs")]
    Smb,
    /// The server is QEMU, and the share's name is the tag of a device.
    #[serde(rename = "9p")]
    NineP,
}

/// Carries out a request. It may wait for the host.
pub fn carry_out(request: Request, under_way: &UnderWay) -> Result<Answer> {
    match request {
        Request::LoadShareClient => load_client()?,
        Request::MountShare(mounting) => mount(&mounting, under_way)?,
        Request::UnmountShare { target, force } => unmount(target.0, force)?,
        Request::Shares => return Ok(list(under_way)),
        Request::DetachShares { shares } => detach_named(&shares)?,
        Request::SyncShares => sync_all()?,
    }
    Ok(Answer::Done {})
}

const SERVER: &[u8] = b"//10.0.2.100/";
/// The list of the kernel's client's connections.
const CLIENT: &str = "/proc/fs/cifs/DebugData";
/// The tags of our 9p devices begin with this.
const TAG: &[u8] = b"quicksand9p";
/// A detached mount may stay in the list for this time.
const DETACH_LIMIT: Duration = Duration::from_secs(5);
/// The agent waits this long at a time for the list of mounts to change.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Loads the kernel's client and its algorithms, so that the first mount need not wait for them.
/// Without a client, mounts are refused later. A mount loads missing algorithms itself.
fn load_client() -> Result<()> {
    load_smb("cifs")?;
    load_smb("nls_utf8")?;
    for name in ciphers::OF_SMB {
        if let Err(error) = ciphers::assemble_hash(name) {
            note(&format!("{name} is not there beforehand: {error}"));
        }
    }
    Ok(())
}

/// The names of the shares that the kernel is mounting. The kernel may wait for a server that is
/// gone, and then every later mount waits, too, even if the client that asked was killed.
#[derive(Clone, Debug, Default)]
pub struct UnderWay(Arc<Mutex<Vec<String>>>);

impl UnderWay {
    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock()
    }

    fn enter(&self, share: &str) -> Entry {
        self.names().push(share.to_owned());
        Entry(self.clone(), share.to_owned())
    }
}

/// One mount that is under way, until it is dropped.
#[derive(Debug)]
struct Entry(UnderWay, String);

impl Drop for Entry {
    fn drop(&mut self) {
        let mut names = self.0.names();
        if let Some(at) = names.iter().position(|name| *name == self.1) {
            names.swap_remove(at);
        }
    }
}

/// Mounts a share. It takes the place of an earlier share at the target, so that no program ever
/// finds the empty directory below.
fn mount(wanted: &Mounting, under_way: &UnderWay) -> Result<()> {
    let Mounting {
        kind,
        share,
        target: Place(target),
        options,
        read_only,
    } = wanted;
    let _entry = under_way.enter(share);
    let source = kind.source(share)?;
    check_target(target)?;
    match kind {
        Kind::Smb => keep_users_out()?,
        Kind::NineP => load_ninep()?,
    }
    let at_target = |error| about(target, error);
    let replaces = ours().iter().any(|mount| mount.point == *target);
    if !replaces {
        // Not there: a look would wait for a server that is gone.
        make_directory(target).map_err(at_target)?;
    }
    let context = mounts::Context::open(kind.fstype()).map_err(at_target)?;
    let mounted = context.mount(&source, options, *read_only).map_err(|error| Error::Io {
        what: context.complaint().unwrap_or_else(|| target.display().to_string()),
        source: error,
    })?;
    if replaces {
        detach(std::slice::from_ref(target))?;
    }
    mounts::attach(&mounted, target).map_err(at_target)
}

/// Lists the shares.
fn list(under_way: &UnderWay) -> Answer {
    // First: one that is done in between is in both lists then, and not in none.
    let mounting = under_way.names().clone();
    Answer::Shares {
        shares: ours().iter().map(name_of).collect(),
        mounting,
        connected: fs::read_to_string(CLIENT).ok().map(|text| connected(&text)),
    }
}

/// The names of our shares that the kernel's client lists, such as
/// `1) \\10.0.2.100\QUICKSAND0 Mounts: 1 DevInfo: …` (Linux, fs/smb/client/cifs_debug.c).
fn connected(list: &str) -> Vec<String> {
    let server = String::from_utf8_lossy(SERVER).replace('/', "\\");
    let mut names: Vec<_> = list
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(server.as_str()))
        .filter(|name| *name != "IPC$")
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Unmounts a share. By force it is gone at once, even if programs use it.
fn unmount(target: PathBuf, force: bool) -> Result<()> {
    let mounted = ours().into_iter().any(|mount| mount.point == target);
    if !mounted {
        return Err(Error::NotFound(format!("a share at {}", target.display())));
    }
    if force {
        detach(&[target])?;
    } else {
        unmount_now(&target, UnmountFlags::NOFOLLOW).map_err(|error| about(&target, error.into()))?;
    }
    Ok(())
}

/// Removes the shares of these names, by force.
fn detach_named(names: &[String]) -> Result<()> {
    let found = ours().into_iter().filter(|mount| names.contains(&name_of(mount)));
    detach(&found.map(|mount| mount.point).collect::<Vec<_>>())
}

/// Makes the kernel write to the host the data that it still holds of each share.
fn sync_all() -> Result<()> {
    for mount in ours() {
        let file = File::open(&mount.point).map_err(|error| about(&mount.point, error))?;
        sys::syncfs(file.as_fd()).map_err(|error| about(&mount.point, error))?;
    }
    Ok(())
}

impl Kind {
    fn fstype(self) -> &'static str {
        match self {
            Self::Smb => "cifs",
            Self::NineP => "9p",
        }
    }

    fn prefix(self) -> &'static [u8] {
        match self {
            Self::Smb => SERVER,
            Self::NineP => TAG,
        }
    }

    fn source(self, share: &str) -> Result<Vec<u8>> {
        match self {
            Self::Smb => Ok([SERVER, share.as_bytes()].concat()),
            Self::NineP if share.as_bytes().starts_with(TAG) => Ok(share.into()),
            Self::NineP => Err(wrong("share", "is not the tag of a share")),
        }
    }
}

fn kind_of(mount: &Mount) -> Option<Kind> {
    [Kind::Smb, Kind::NineP]
        .into_iter()
        .find(|kind| mount.fstype == kind.fstype() && mount.source.as_bytes().starts_with(kind.prefix()))
}

fn ours() -> Vec<Mount> {
    mountinfo::read()
        .into_iter()
        .filter(|mount| kind_of(mount).is_some())
        .collect()
}

/// Returns the shares that are mounted by SMB.
pub fn by_smb() -> Vec<Mount> {
    let mut found = ours();
    found.retain(|mount| kind_of(mount) == Some(Kind::Smb));
    found
}

fn name_of(mount: &Mount) -> String {
    let source = String::from_utf8_lossy(mount.source.as_bytes());
    match kind_of(mount) {
        Some(Kind::Smb) => source[SERVER.len()..].to_owned(),
        _ => source.into_owned(),
    }
}

/// Checks the target of a mount. A mount must not hide the system's own directories.
fn check_target(target: &Path) -> Result<()> {
    let is_plain = target
        .components()
        .all(|part| !matches!(part, std::path::Component::ParentDir));
    let hidden = ["/", "/proc", "/sys", "/dev", "/run"];
    if !is_plain || hidden.iter().any(|path| target == Path::new(path)) {
        return Err(wrong("target", "must be a directory of its own, without .."));
    }
    for tree in ["/proc", "/sys", "/dev"] {
        if target.starts_with(tree) {
            return Err(wrong("target", "must not lie in /proc, /sys or /dev"));
        }
    }
    Ok(())
}

fn make_directory(target: &Path) -> io::Result<()> {
    match fs::metadata(target) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        Err(_) => DirBuilder::new().recursive(true).mode(0o755).create(target),
    }
}

/// Several connections of the guest share one stream to the server, so that another user's would
/// get the answers that root's was given. Only root may connect, or nothing is mounted.
fn keep_users_out() -> Result<()> {
    network::keep_users_from(std::net::Ipv4Addr::new(10, 0, 2, 100))
        .map_err(|error| Error::io("rule that only root reaches the share server", error))
}

/// Detaches mounts. The kernel's work for each may wait for a server that is gone, so each gets a
/// thread. A mount counts as gone when it is no longer listed.
fn detach(targets: &[PathBuf]) -> Result<()> {
    for target in targets {
        let path = target.clone();
        thread::spawn(move || force_off(&path));
    }
    wait_until_gone(targets)
}

fn force_off(path: &Path) {
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    if let Err(error) = unmount_now(path, flags) {
        note(&format!("umount {}: {error}", path.display()));
    }
}

/// Waits until the mounts are no longer listed. The list tells its readers when it changes
/// (proc_pid_mountinfo(5)).
fn wait_until_gone(targets: &[PathBuf]) -> Result<()> {
    let list = File::open(mountinfo::PATH).map_err(|error| Error::io(mountinfo::PATH, error))?;
    let deadline = Instant::now() + DETACH_LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !ours().iter().any(|mount| targets.contains(&mount.point)) {
            return Ok(());
        }
        if left.is_zero() {
            return Err(Error::Busy("a share could not be detached"));
        }
        // A change between the look and the wait is told, too: the file was opened before.
        let limit = left.min(LOOK_AGAIN).as_nanos() as i64;
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: limit,
        };
        // An error is as good as the end of the time: the next look follows.
        let _ = poll(&mut [PollFd::new(&list, PollFlags::PRI)], Some(&limit));
    }
}

fn load_smb(module: &str) -> Result<()> {
    load(module, "this guest has no SMB client (the kernel module cifs)")
}

/// Loads the kernel's client, and the transport, which is a module of its own.
fn load_ninep() -> Result<()> {
    load("9p", "this guest's kernel has no 9p client (the kernel module 9p)")?;
    load(
        "9pnet_virtio",
        "this guest's kernel has no 9p over virtio (the kernel module 9pnet_virtio)",
    )
}

fn load(module: &str, missing: &'static str) -> Result<()> {
    match crate::base::spawn::run_tool(&["/sbin/modprobe", "-q", module]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Error::Unsupported(missing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            modprobe::load(module).map_err(|_| Error::Unsupported(missing))
        }
        Err(error) => Err(Error::io("modprobe", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::params::Params;
    use serde_json::json;

    #[test]
    fn what_the_system_needs_is_not_hidden() {
        for path in ["/", "/proc", "/dev/shm", "/sys/fs", "/run", "/mnt/../proc"] {
            assert!(check_target(Path::new(path)).is_err(), "{path}");
        }
        for path in ["/mnt", "/mnt/data", "/run/user/x", "/root/..data"] {
            assert!(check_target(Path::new(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn only_shares_of_ours_are_listed() {
        let text = b"36 35 0:30 / /a rw - cifs //10.0.2.100/QUICKSAND0 rw\n\
            37 35 0:31 / /b rw - 9p quicksand9p3 rw\n\
            38 35 0:32 / /c rw - 9p somebody's rw\n\
            39 35 0:33 / /d rw - cifs //elsewhere/x rw\n";
        let names: Vec<String> = mountinfo::parse(text)
            .iter()
            .filter(|mount| kind_of(mount).is_some())
            .map(name_of)
            .collect();
        assert_eq!(names, ["QUICKSAND0", "quicksand9p3"]);
        assert!(Kind::NineP.source("somebody's").is_err());
    }

    #[test]
    fn the_client_s_connections_are_those_to_our_server() {
        let list = "1) ConnectionId: 0x1 Hostname: 10.0.2.100\n\tShares:\n\
            \t0) IPC: \\\\10.0.2.100\\IPC$ Mounts: 1 DevInfo: 0x0\n\
            \t1) \\\\10.0.2.100\\QUICKSAND3 Mounts: 1 DevInfo: 0x20020 \n\
            \t2) \\\\10.0.2.100\\QUICKSAND0 Mounts: 2\tDISCONNECTED\n\
            \t3) \\\\elsewhere\\QUICKSAND1 Mounts: 1\n";
        assert_eq!(connected(list), ["QUICKSAND0", "QUICKSAND3"]);
    }

    #[test]
    fn a_mount_is_under_way_until_it_has_ended() {
        let under_way = UnderWay::default();
        let (first, again) = (under_way.enter("QUICKSAND0"), under_way.enter("QUICKSAND0"));
        drop(first);
        assert_eq!(json!(list(&under_way))["mounting"], json!(["QUICKSAND0"]));
        drop(again);
        assert_eq!(json!(list(&under_way))["mounting"], json!([]));
    }

    #[test]
    fn a_mount_that_is_refused_is_not_under_way() {
        let under_way = UnderWay::default();
        let params = json!({"share": "QUICKSAND0", "target": "/proc", "options": []});
        let mounting = serde_json::from_value::<Params>(params).unwrap().take().unwrap();
        assert!(mount(&mounting, &under_way).is_err());
        assert_eq!(json!(list(&under_way))["mounting"], json!([]));
    }

    #[test]
    fn a_file_is_no_place_for_a_mount() {
        let error = make_directory(Path::new("/proc/self/stat")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    }
}
