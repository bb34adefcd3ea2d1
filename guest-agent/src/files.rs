//! Methods that describe files or change them without carrying their contents.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::base64;
use crate::error::{Error, Result};
use crate::params::{Params, wrong};
use crate::{blocking, passwd, sys};

const LIST_LIMIT: u64 = 1000;
/// The limit in bytes of one listing: half a frame, because names may double in JSON.
const LIST_BYTES: usize = 512 * 1024;

type Job = Box<dyn FnOnce() -> Result<Value> + Send>;

/// Carries out a method on a thread that may block. Fails with `Method` when there is no such
/// method.
pub async fn call(method: &str, params: &Params) -> Result<Value> {
    let job: Job = match method {
        "file_stat" => {
            let (path, follow) = (params.path("path")?, params.flag("follow", true)?);
            Box::new(move || stat(&path, follow))
        }
        "file_list" => {
            let path = params.path("path")?;
            let after = OsString::from_vec(params.opt_bytes("after")?.unwrap_or_default());
            let limit = params.opt_u64("limit")?.unwrap_or(LIST_LIMIT).clamp(1, LIST_LIMIT);
            Box::new(move || list(&path, &after, limit as usize))
        }
        "file_rename" => {
            let (from, to) = (params.path("from")?, params.path("to")?);
            let overwrite = params.flag("overwrite", true)?;
            Box::new(move || done(sys::rename(&from, &to, overwrite).map_err(|e| about_rename(e, &from, &to))))
        }
        "file_remove" => {
            let path = params.path("path")?;
            let (recursive, missing_ok) = (params.flag("recursive", false)?, params.flag("missing_ok", false)?);
            Box::new(move || remove(&path, recursive, missing_ok))
        }
        "file_mkdir" => mkdir(params)?,
        "file_symlink" => {
            let path = params.path("path")?;
            let target = params
                .opt_bytes("target")?
                .ok_or_else(|| wrong("target", "is required"))?;
            let mtime_ns = params.opt_i64("mtime_ns")?;
            Box::new(move || {
                let made = std::os::unix::fs::symlink(OsStr::from_bytes(&target), &path);
                let result = made.and_then(|()| mtime_ns.map_or(Ok(()), |time| sys::set_mtime_of(&path, time)));
                done(result.map_err(|error| about(&path, error)))
            })
        }
        "file_link" => {
            let (from, to) = (params.path("from")?, params.path("to")?);
            let (overwrite, follow) = (params.flag("overwrite", true)?, params.flag("follow", false)?);
            Box::new(move || done(link(&from, &to, overwrite, follow).map_err(|e| about_rename(e, &from, &to))))
        }
        "file_set_time" => {
            let (path, mtime_ns) = (params.path("path")?, params.i64("mtime_ns")?);
            Box::new(move || done(sys::set_mtime_of(&path, mtime_ns).map_err(|error| about(&path, error))))
        }
        "file_chmod" => {
            let path = params.path("path")?;
            let mode = params.opt_mode("mode")?.ok_or_else(|| wrong("mode", "is required"))?;
            Box::new(move || {
                let result = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
                done(result.map_err(|error| about(&path, error)))
            })
        }
        "file_chown" => {
            let path = params.path("path")?;
            let owner = params.str("user")?.to_owned();
            Box::new(move || {
                let (uid, gid) = passwd::require_owner(&owner)?;
                let result = std::os::unix::fs::chown(&path, Some(uid), Some(gid));
                done(result.map_err(|error| about(&path, error)))
            })
        }
        _ => return Err(Error::Method(method.to_owned())),
    };
    blocking::run(job).await
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

/// An error of a system call on `path`.
pub fn about(path: &Path, error: io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

/// For most errors it is unknown which of the two paths is at fault.
fn about_rename(error: io::Error, from: &Path, to: &Path) -> Error {
    match error.raw_os_error() {
        Some(libc::EEXIST) => Error::Exists(to.display().to_string()),
        _ => Error::io(format!("{} to {}", from.display(), to.display()), error),
    }
}

fn done(result: Result<()>) -> Result<Value> {
    result.map(|()| json!({}))
}

fn stat(path: &Path, follow: bool) -> Result<Value> {
    let meta = if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    let meta = meta.map_err(|error| about(path, error))?;
    Ok(Value::Object(describe(&meta, path)))
}

fn describe(meta: &Metadata, path: &Path) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("type".into(), kind(meta).into());
    entry.insert("size".into(), meta.len().into());
    entry.insert("allocated".into(), allocated(meta).into());
    entry.insert("mode".into(), (meta.mode() & 0o7777).into());
    entry.insert("uid".into(), meta.uid().into());
    entry.insert("gid".into(), meta.gid().into());
    let mtime_ns = meta
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(meta.mtime_nsec());
    entry.insert("mtime_ns".into(), mtime_ns.into());
    if meta.nlink() > 1 && !meta.is_dir() {
        entry.insert("links".into(), meta.nlink().into());
        entry.insert("identity".into(), format!("{:x}:{:x}", meta.dev(), meta.ino()).into());
    }
    if meta.is_symlink()
        && let Ok(target) = fs::read_link(path)
    {
        insert_bytes(&mut entry, "target", target.as_os_str());
    }
    entry
}

/// The bytes that a file occupies on the disk. stat(2) counts them in units of 512.
pub fn allocated(meta: &Metadata) -> u64 {
    meta.blocks().saturating_mul(512)
}

/// Inserts the value as text when it is UTF-8, and otherwise as base64 with `_b64` added to the
/// key.
pub fn insert_bytes(entry: &mut Map<String, Value>, key: &str, value: &OsStr) {
    match value.to_str() {
        Some(text) => entry.insert(key.to_owned(), text.into()),
        None => entry.insert(format!("{key}_b64"), base64::encode(value.as_bytes()).into()),
    };
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

fn list(path: &Path, after: &OsStr, limit: usize) -> Result<Value> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| about(path, error))? {
        let name = entry.map_err(|error| about(path, error))?.file_name();
        if name.as_os_str() > after {
            names.push(name);
        }
    }
    names.sort_unstable();
    let mut reply = Map::new();
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
        insert_bytes(&mut entry, "name", name);
        bytes += 200 + Value::from(entry.clone()).to_string().len();
        entries.push(Value::Object(entry));
    }
    reply.insert("entries".into(), entries.into());
    reply.insert("next".into(), Value::Null);
    if listed < names.len() {
        insert_bytes(&mut reply, "next", &names[listed - 1]);
    }
    Ok(Value::Object(reply))
}

fn remove(path: &Path, recursive: bool, missing_ok: bool) -> Result<Value> {
    let result = fs::symlink_metadata(path).and_then(|meta| match (meta.is_dir(), recursive) {
        (false, _) => fs::remove_file(path),
        (true, false) => fs::remove_dir(path),
        (true, true) => fs::remove_dir_all(path),
    });
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound && missing_ok => Ok(json!({})),
        result => done(result.map_err(|error| about(path, error))),
    }
}

fn mkdir(params: &Params) -> Result<Job> {
    let path = params.path("path")?;
    let mode = params.opt_mode("mode")?.unwrap_or(0o755);
    let (parents, exist_ok) = (params.flag("parents", false)?, params.flag("exist_ok", false)?);
    Ok(Box::new(move || {
        if parents {
            make_parents(&path)?;
        }
        let result = fs::DirBuilder::new().mode(mode).create(&path);
        match result {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && exist_ok && path.is_dir() => {}
            Err(error) => return Err(about(&path, error)),
            // The client asked for this mode, so the umask of the agent must not change it.
            Ok(()) => fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(|e| about(&path, e))?,
        }
        Ok(json!({}))
    }))
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
    use crate::error::Code;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("quicksand-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    async fn run(method: &str, params: Value) -> Result<Value> {
        call(method, &Params::new(params).unwrap()).await
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
