//! The requests that describe files or change them without carrying their contents.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::metadata;
use crate::base::error::{Error, Result, about};
use crate::base::params::{Mode, Place, Raw, yes};
use crate::base::{base64, blocking, sys};
use crate::users::passwd;

const LIST_LIMIT: u64 = 1000;
/// The size in bytes after which a listing ends. It leaves half a frame for the last entry.
const LIST_BYTES: usize = 512 * 1024;

/// The requests of this family.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
// A variant has the name of its method.
#[allow(clippy::enum_variant_names)]
pub enum Request {
    FileStat {
        path: Place,
        #[serde(default = "yes")]
        follow: bool,
        #[serde(default)]
        metadata: bool,
    },
    FileList {
        path: Place,
        #[serde(default)]
        after: Raw,
        limit: Option<u64>,
        #[serde(default)]
        metadata: bool,
    },
    FileRename {
        from: Place,
        to: Place,
        #[serde(default = "yes")]
        overwrite: bool,
    },
    FileRemove {
        path: Place,
        #[serde(default)]
        recursive: bool,
        #[serde(default)]
        missing_ok: bool,
    },
    FileMkdir {
        path: Place,
        mode: Option<Mode>,
        #[serde(default)]
        parents: bool,
        #[serde(default)]
        exist_ok: bool,
    },
    FileSymlink {
        path: Place,
        target: Raw,
        mtime_ns: Option<i64>,
    },
    FileLink {
        from: Place,
        to: Place,
        #[serde(default = "yes")]
        overwrite: bool,
        #[serde(default)]
        follow: bool,
    },
    FileSetTime {
        path: Place,
        mtime_ns: i64,
    },
    FileChmod {
        path: Place,
        mode: Mode,
    },
    FileChown {
        path: Place,
        user: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Done {},
    Status(Status),
    Listing(Listing),
}

/// The description of a file. A symlink has a target, and a file in a listing has a name, as text
/// or as base64.
#[derive(Debug, Serialize)]
pub struct Status {
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    allocated: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<u64>,
    /// A text that is the same for all names of one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_b64: Option<String>,
    /// The notes of clients about it, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_b64: Option<String>,
}

/// A part of a directory.
#[derive(Debug, Serialize)]
pub struct Listing {
    entries: Vec<Status>,
    /// The last name of this part, if another part follows.
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_b64: Option<String>,
}

/// Carries out a request on a thread that may block.
pub async fn call(request: Request) -> Result<Answer> {
    blocking::run(move || carry_out(request)).await
}

fn carry_out(request: Request) -> Result<Answer> {
    match request {
        Request::FileStat { path, follow, metadata } => {
            return stat(&path.0, follow, metadata).map(Answer::Status);
        }
        Request::FileList {
            path,
            after,
            limit,
            metadata,
        } => {
            let limit = limit.unwrap_or(LIST_LIMIT).clamp(1, LIST_LIMIT);
            return list(&path.0, &OsString::from(after), limit as usize, metadata).map(Answer::Listing);
        }
        Request::FileRename {
            from: Place(from),
            to: Place(to),
            overwrite,
        } => sys::rename(&from, &to, overwrite).map_err(|error| about_rename(error, &from, &to))?,
        Request::FileRemove {
            path,
            recursive,
            missing_ok,
        } => remove(&path.0, recursive, missing_ok)?,
        Request::FileMkdir {
            path,
            mode,
            parents,
            exist_ok,
        } => mkdir(&path.0, mode.unwrap_or(Mode(0o755)), parents, exist_ok)?,
        Request::FileSymlink { path, target, mtime_ns } => {
            let made = std::os::unix::fs::symlink(OsString::from(target), &path.0);
            let result = made.and_then(|()| mtime_ns.map_or(Ok(()), |time| sys::set_mtime_of(&path.0, time)));
            result.map_err(|error| about(&path.0, error))?;
        }
        Request::FileLink {
            from: Place(from),
            to: Place(to),
            overwrite,
            follow,
        } => link(&from, &to, overwrite, follow).map_err(|error| about_rename(error, &from, &to))?,
        Request::FileSetTime { path, mtime_ns } => {
            sys::set_mtime_of(&path.0, mtime_ns).map_err(|error| about(&path.0, error))?;
        }
        Request::FileChmod { path, mode } => {
            let result = fs::set_permissions(&path.0, fs::Permissions::from_mode(mode.0));
            result.map_err(|error| about(&path.0, error))?;
        }
        Request::FileChown { path, user } => {
            let owner = passwd::require_user(&user)?;
            let result = std::os::unix::fs::chown(&path.0, Some(owner.uid), Some(owner.gid));
            result.map_err(|error| about(&path.0, error))?;
        }
    }
    Ok(Answer::Done {})
}

/// Makes `to` a hard link to the file `from`; a file that is there is replaced at once.
fn link(from: &Path, to: &Path, overwrite: bool, follow: bool) -> io::Result<()> {
    match sys::link(from, to, follow) {
        Err(error) if overwrite && error.kind() == ErrorKind::AlreadyExists => {}
        result => return result,
    }
    let beside = to.with_file_name(format!(".quicksand-{}", sys::random_hex::<6>()?));
    sys::link(from, &beside, follow)?;
    let renamed = sys::rename(&beside, to, true);
    // Renaming does nothing where both are the same file already.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => renamed.and(Err(error)),
        _ => renamed,
    }
}

/// Makes an error of both paths, because most errors do not tell which of them is at fault.
fn about_rename(error: io::Error, from: &Path, to: &Path) -> Error {
    match error.raw_os_error() {
        Some(libc::EEXIST) => Error::Exists(to.display().to_string()),
        _ => Error::io(format!("{} to {}", from.display(), to.display()), error),
    }
}

fn stat(path: &Path, follow: bool, with_metadata: bool) -> Result<Status> {
    let meta = if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    let meta = meta.map_err(|error| about(path, error))?;
    let mut status = describe(&meta, path);
    status.metadata = with_metadata.then(|| metadata::read(path, follow));
    Ok(status)
}

fn describe(meta: &Metadata, path: &Path) -> Status {
    let target = meta.is_symlink().then(|| fs::read_link(path).ok()).flatten();
    let (target, target_b64) = target.map_or((None, None), |target| text_or_base64(target.as_os_str()));
    let has_names = meta.nlink() > 1 && !meta.is_dir();
    Status {
        kind: kind(meta),
        size: meta.len(),
        allocated: allocated(meta),
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        mtime_ns: meta
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(meta.mtime_nsec()),
        links: has_names.then(|| meta.nlink()),
        identity: has_names.then(|| format!("{:x}:{:x}", meta.dev(), meta.ino())),
        target,
        target_b64,
        metadata: None,
        name: None,
        name_b64: None,
    }
}

/// Returns the bytes that a file occupies on the disk. stat(2) counts them in units of 512.
pub fn allocated(meta: &Metadata) -> u64 {
    meta.blocks().saturating_mul(512)
}

/// Returns the value as text if it is UTF-8, and otherwise as base64.
pub fn text_or_base64(value: &OsStr) -> (Option<String>, Option<String>) {
    match value.to_str() {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(base64::encode(value.as_bytes()))),
    }
}

fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "dir",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_block_device() => "block",
        () => "char",
    }
}

fn list(path: &Path, after: &OsStr, limit: usize, with_metadata: bool) -> Result<Listing> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| about(path, error))? {
        let name = entry.map_err(|error| about(path, error))?.file_name();
        if name.as_os_str() > after {
            names.push(name);
        }
    }
    names.sort_unstable();
    let mut entries = Vec::new();
    let mut bytes = 0;
    let mut listed = 0;
    for name in &names {
        if listed == limit || bytes > LIST_BYTES {
            break;
        }
        listed += 1;
        let path = path.join(name);
        // A file that vanishes during the listing is left out without an error.
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        let mut entry = describe(&meta, &path);
        entry.metadata = with_metadata.then(|| metadata::read(&path, false));
        (entry.name, entry.name_b64) = text_or_base64(name);
        bytes += serde_json::to_string(&entry).map_or(LIST_BYTES, |text| text.len());
        entries.push(entry);
    }
    let last = (listed < names.len()).then(|| names[listed - 1].as_os_str());
    let (next, next_b64) = last.map_or((None, None), text_or_base64);
    Ok(Listing {
        entries,
        next,
        next_b64,
    })
}

fn remove(path: &Path, recursive: bool, missing_ok: bool) -> Result<()> {
    let result = fs::symlink_metadata(path).and_then(|meta| match (meta.is_dir(), recursive) {
        (false, _) => fs::remove_file(path),
        (true, false) => fs::remove_dir(path),
        (true, true) => fs::remove_dir_all(path),
    });
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound && missing_ok => Ok(()),
        result => result.map_err(|error| about(path, error)),
    }
}

fn mkdir(path: &Path, mode: Mode, parents: bool, exist_ok: bool) -> Result<()> {
    if parents {
        make_parents(path)?;
    }
    match fs::DirBuilder::new().mode(mode.0).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && exist_ok && path.is_dir() => Ok(()),
        Err(error) => Err(about(path, error)),
        // The client asked for this mode, so the umask of the agent must not change it.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode.0)).map_err(|error| about(path, error)),
    }
}

/// Creates the missing directories above `path`.
pub fn make_parents(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(|error| about(parent, error)),
        None => Ok(()),
    }
}

/// Follows the links at the end of a path, even when the last target does not exist. Fails with
/// ELOOP when there are too many.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // The kernel follows as many.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;
    use crate::base::params::Params;
    use serde_json::{Value, json};

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("quicksand-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    async fn run(method: &str, params: Value) -> Result<Value> {
        let request = serde_json::from_value::<Params>(params)
            .unwrap()
            .decode(method)?
            .unwrap();
        Ok(json!(call(request).await?))
    }

    #[tokio::test]
    async fn listing_goes_by_bytes_in_portions_and_keeps_odd_names() {
        let dir = scratch("list");
        for name in [&b"b"[..], b"a", b"\xff"] {
            fs::write(dir.join(OsStr::from_bytes(name)), "x").unwrap();
        }
        let first = run("file_list", json!({"path": dir, "limit": 2})).await.unwrap();
        assert_eq!(first["next"], "b");
        assert_eq!(first["entries"][0]["name"], "a");
        let rest = run("file_list", json!({"path": dir, "after": "b"})).await.unwrap();
        assert_eq!(rest["entries"][0]["name_b64"], "/w==");
        assert_eq!(rest["next"], Value::Null);
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn removing_a_link_leaves_its_target() {
        let dir = scratch("remove");
        fs::create_dir(dir.join("real")).unwrap();
        fs::write(dir.join("real/file"), "x").unwrap();
        let link = dir.join("link");
        run("file_symlink", json!({"path": link, "target": "real"}))
            .await
            .unwrap();
        run("file_remove", json!({"path": link, "recursive": true}))
            .await
            .unwrap();
        assert!(dir.join("real/file").exists());
        let full = run("file_remove", json!({"path": dir.join("real")})).await;
        assert_eq!(full.unwrap_err().code(), Code::Exists);
        assert!(
            run("file_remove", json!({"path": link, "missing_ok": true}))
                .await
                .is_ok()
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn hard_links_are_made_told_and_replace_only_files() {
        let dir = scratch("links");
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        let alone = run("file_stat", json!({"path": a})).await.unwrap();
        assert_eq!(alone.get("links"), None);
        let refused = run("file_link", json!({"from": a, "to": b, "overwrite": false})).await;
        assert_eq!(refused.unwrap_err().code(), Code::Exists);
        // The second time, both are the same file already.
        for _ in 0..2 {
            run("file_link", json!({"from": a, "to": b})).await.unwrap();
        }
        assert_eq!(fs::read(&b).unwrap(), b"a");
        let [first, second] = [&a, &b].map(|path| json!({"path": path}));
        let (first, second) = (
            run("file_stat", first).await.unwrap(),
            run("file_stat", second).await.unwrap(),
        );
        assert_eq!((&first["links"], &first["identity"]), (&json!(2), &second["identity"]));
        fs::create_dir(dir.join("d")).unwrap();
        assert!(run("file_link", json!({"from": a, "to": dir.join("d")})).await.is_err());
        let link = dir.join("link");
        run("file_symlink", json!({"path": link, "target": "a"})).await.unwrap();
        for (follow, is_symlink) in [(true, false), (false, true)] {
            let to = dir.join(format!("to-{follow}"));
            run("file_link", json!({"from": link, "to": to, "follow": follow}))
                .await
                .unwrap();
            assert_eq!(fs::symlink_metadata(to).unwrap().is_symlink(), is_symlink);
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 6, "nothing else is left");
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn times_are_set_to_the_nanosecond_and_of_links_themselves() {
        let dir = scratch("times");
        let link = dir.join("link");
        fs::write(dir.join("file"), "x").unwrap();
        for (mtime_ns, seconds, rest) in [
            (1_234_567_890_123_456_789i64, 1_234_567_890, 123_456_789),
            (-1, -1, 999_999_999),
        ] {
            let _ = fs::remove_file(&link);
            run(
                "file_symlink",
                json!({"path": link, "target": "file", "mtime_ns": mtime_ns}),
            )
            .await
            .unwrap();
            run("file_set_time", json!({"path": dir, "mtime_ns": mtime_ns}))
                .await
                .unwrap();
            for path in [&link, &dir] {
                let meta = fs::symlink_metadata(path).unwrap();
                assert_eq!((meta.mtime(), meta.mtime_nsec()), (seconds, rest));
            }
            assert!(fs::metadata(&link).unwrap().mtime() > 1_500_000_000);
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn renaming_may_refuse_to_replace() {
        let dir = scratch("rename");
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        let refused = run("file_rename", json!({"from": a, "to": b, "overwrite": false})).await;
        assert_eq!(refused.unwrap_err().code(), Code::Exists);
        run("file_rename", json!({"from": a, "to": b})).await.unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"a");
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn directories_get_the_mode_that_was_asked_for() {
        let dir = scratch("mkdir");
        let path = dir.join("x/y");
        assert!(run("file_mkdir", json!({"path": path})).await.is_err());
        run("file_mkdir", json!({"path": path, "parents": true, "mode": 0o777}))
            .await
            .unwrap();
        let stat = run("file_stat", json!({"path": path})).await.unwrap();
        assert_eq!((&stat["type"], &stat["mode"]), (&json!("dir"), &json!(0o777)));
        assert!(run("file_mkdir", json!({"path": path})).await.is_err());
        assert!(run("file_mkdir", json!({"path": path, "exist_ok": true})).await.is_ok());
        fs::remove_dir_all(dir).unwrap();
    }
}
