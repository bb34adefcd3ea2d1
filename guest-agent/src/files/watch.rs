//! Watches a directory, or all directories below it, too, by inotify(7).
//!
//! The watch knows each directory by its parent and its name, so that a directory that is renamed
//! takes those below it along. The events in a new directory before it is watched cannot be
//! told; so what is found in it is told as created, and a file with contents as written, too.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use serde::Deserialize;

use crate::base::error::{Error, Result, about};
use crate::base::params::Place;
use crate::base::sys;

/// The directories of one watch. The kernel's own limit for a user is this or more.
const DIRECTORIES_MAX: usize = 8192;
/// The number of entries that are told of a directory that has come with contents.
const FOUND_MAX: usize = 4096;
/// The bytes of events that are read at a time; the largest event has 272.
pub const READ_SIZE: usize = 4096;
/// The bytes of a name in a record: twice what a path in a system call may have.
const NAME_MAX: usize = 8192;
const EVENT_HEADER: usize = 16;

const NETWORK_FILESYSTEMS: [u32; 9] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x517b,      // smbfs
    0x6573_5546, // FUSE
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x7375_7245, // Coda
];

const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The parameters of a request that watches a directory.
#[derive(Debug, Deserialize)]
pub struct WatchRequest {
    path: Place,
    #[serde(default)]
    recursive: bool,
    /// Refuses a directory on a network file system, whose other hosts' changes nobody tells.
    #[serde(default)]
    local: bool,
}

/// The first byte after the length in a record; see docs/internals/agent-protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Create = 1,
    Write = 2,
    Remove = 3,
    Rename = 4,
    Chmod = 5,
    Lost = 6,
    Mark = 7,
}

/// A directory that is watched.
#[derive(Debug)]
struct Node {
    parent: Option<i32>,
    name: OsString,
}

/// A directory that has left its place; the next events tell where to.
#[derive(Debug)]
struct Leaving {
    cookie: u32,
    parent: i32,
    name: OsString,
}

struct Event<'a> {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: &'a OsStr,
}

#[derive(Debug)]
pub struct TreeWatch {
    fd: OwnedFd,
    path: PathBuf,
    device: u64,
    recursive: bool,
    top: i32,
    nodes: HashMap<i32, Node>,
    leaving: Option<Leaving>,
    /// Records that were not taken yet.
    told: Vec<u8>,
    /// The directory itself is gone, so nothing more comes.
    pub is_over: bool,
}

impl TreeWatch {
    /// Fails with `TooMany` when there are too many directories, and with `Unsupported` for a
    /// network file system if the request says so.
    pub fn open(request: &WatchRequest) -> Result<Self> {
        let path = request.path.0.clone();
        let failed = |error| about(&path, error);
        let device = fs::metadata(&path).map_err(failed)?.dev();
        if request.local && is_on_network(&path).map_err(failed)? {
            return Err(Error::Unsupported("the directory is on a network file system"));
        }
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|error| match error {
            Errno::MFILE => Error::TooMany("the guest's limit of watches (fs.inotify.max_user_instances) is reached"),
            error => Error::io("inotify", error.into()),
        })?;
        let mut watch = Self {
            fd,
            path,
            device,
            recursive: request.recursive,
            top: -1,
            nodes: HashMap::new(),
            leaving: None,
            told: Vec::new(),
            is_over: false,
        };
        let path = watch.path.clone();
        watch.top = watch.add(&path, MASK)?.map_err(|error| about(&path, error))?;
        let node = Node {
            parent: None,
            name: OsString::new(),
        };
        watch.nodes.insert(watch.top, node);
        if watch.recursive {
            let top = watch.top;
            watch.walk(&path, top, false)?;
        }
        Ok(watch)
    }

    /// Returns another descriptor of the same events, to wait for them.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    pub fn directories(&self) -> usize {
        self.nodes.len()
    }

    /// Takes the records of what was read.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.told)
    }

    /// Reads events that wait, if there are any. Returns the number of their bytes. Fails as `open`
    /// when new directories are too many.
    pub fn read(&mut self) -> Result<usize> {
        let mut buffer = [0; READ_SIZE];
        let count = match sys::read(self.fd.as_fd(), &mut buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            result => result.map_err(|error| Error::io("inotify", error))?,
        };
        let mut rest = &buffer[..count];
        while let Some((event, after)) = parse(rest) {
            rest = after;
            self.handle(&event)?;
        }
        Ok(count)
    }

    fn handle(&mut self, event: &Event<'_>) -> Result<()> {
        let Event { watch, mask, .. } = *event;
        if mask & libc::IN_Q_OVERFLOW != 0 {
            self.tell(Kind::Lost, self.top, OsStr::new(""), false);
        } else if mask & libc::IN_IGNORED != 0 {
            self.nodes.remove(&watch);
            self.is_over |= watch == self.top;
        } else if self.nodes.contains_key(&watch) {
            // Of a directory below, its parent tells.
            if let Some(kind) = kind_of(mask)
                && (watch == self.top || !event.name.is_empty())
            {
                self.tell(kind, watch, event.name, mask & libc::IN_ISDIR != 0);
            }
            if mask & libc::IN_MOVE_SELF != 0 {
                self.forget_if_left(watch);
            }
            if self.recursive && mask & libc::IN_ISDIR != 0 && !event.name.is_empty() {
                return self.follow(event);
            }
        }
        Ok(())
    }

    /// Follows a directory that has come or gone.
    fn follow(&mut self, event: &Event<'_>) -> Result<()> {
        let name = event.name.to_owned();
        if event.mask & libc::IN_MOVED_FROM != 0 {
            self.leaving = Some(Leaving {
                cookie: event.cookie,
                parent: event.watch,
                name,
            });
            return Ok(());
        }
        if event.mask & (libc::IN_MOVED_TO | libc::IN_CREATE) == 0 {
            return Ok(());
        }
        let left = self.leaving.take_if(|left| left.cookie == event.cookie);
        let moved = left.and_then(|left| {
            let is_it = |node: &&mut Node| node.parent == Some(left.parent) && node.name == left.name;
            self.nodes.values_mut().find(is_it)
        });
        if let Some(node) = moved {
            node.parent = Some(event.watch);
            node.name = name;
            return Ok(());
        }
        match self.full_path(event.watch, &name) {
            Some(path) => self.enter(&path, event.watch, name, true).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Forgets a directory that was moved out of the tree.
    fn forget_if_left(&mut self, watch: i32) {
        let Some(node) = self.nodes.get(&watch) else { return };
        let has_left = |left: &mut Leaving| node.parent == Some(left.parent) && node.name == left.name;
        if self.leaving.take_if(has_left).is_none() {
            return;
        }
        let below: Vec<i32> = self
            .nodes
            .keys()
            .copied()
            .filter(|id| self.is_below(*id, watch))
            .collect();
        for id in below {
            self.nodes.remove(&id);
            // It is gone already if the directory is.
            let _ = inotify::remove_watch(&self.fd, id);
        }
    }

    fn is_below(&self, mut id: i32, top: i32) -> bool {
        for _ in 0..NAME_MAX {
            if id == top {
                return true;
            }
            match self.nodes.get(&id).and_then(|node| node.parent) {
                Some(parent) => id = parent,
                None => return false,
            }
        }
        false
    }

    /// Watches a directory. `Ok(Err)` means that it cannot be watched, perhaps because it is gone.
    fn add(&self, path: &Path, mask: WatchFlags) -> Result<io::Result<i32>> {
        match inotify::add_watch(&self.fd, path, mask) {
            Err(Errno::NOSPC) => Err(Error::TooMany(
                "the guest's limit of watched directories (fs.inotify.max_user_watches) is reached",
            )),
            result => Ok(result.map_err(io::Error::from)),
        }
    }

    /// Watches a directory below and all in it. With `tells`, what is in it is told.
    fn enter(&mut self, path: &Path, parent: i32, name: OsString, tells: bool) -> Result<()> {
        if let Some(id) = self.enter_one(path, parent, name)? {
            self.walk(path, id, tells)?;
        }
        Ok(())
    }

    fn enter_one(&mut self, path: &Path, parent: i32, name: OsString) -> Result<Option<i32>> {
        if self.nodes.len() >= DIRECTORIES_MAX {
            return Err(too_many());
        }
        let Ok(id) = self.add(path, MASK | WatchFlags::DONT_FOLLOW)? else {
            return Ok(None);
        };
        if id != self.top {
            let parent = Some(parent);
            self.nodes.insert(id, Node { parent, name });
        }
        Ok(Some(id))
    }

    /// Watches the directories below one that is watched, but not those of other file systems.
    fn walk(&mut self, path: &Path, id: i32, tells: bool) -> Result<()> {
        let mut waiting = vec![(path.to_owned(), id)];
        let mut left = FOUND_MAX;
        while let Some((path, id)) = waiting.pop() {
            // It may be gone by now.
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                let name = entry.file_name();
                if tells && left > 0 {
                    left -= 1;
                    self.tell_found(id, &name, &meta, left == 0);
                }
                if !meta.is_dir() || meta.dev() != self.device {
                    continue;
                }
                if waiting.len() >= DIRECTORIES_MAX {
                    return Err(too_many());
                }
                let below = path.join(&name);
                if let Some(id) = self.enter_one(&below, id, name)? {
                    waiting.push((below, id));
                }
            }
        }
        Ok(())
    }

    fn tell_found(&mut self, id: i32, name: &OsStr, meta: &fs::Metadata, is_last: bool) {
        if is_last {
            self.tell(Kind::Lost, self.top, OsStr::new(""), false);
            return;
        }
        self.tell(Kind::Create, id, name, meta.is_dir());
        if meta.is_file() && meta.len() > 0 {
            self.tell(Kind::Write, id, name, false);
        }
    }

    fn tell(&mut self, kind: Kind, id: i32, name: &OsStr, is_dir: bool) {
        match self.relative(id, name) {
            Some(name) => self.told.extend(record(kind, is_dir, &name)),
            None => self.told.extend(record(Kind::Lost, false, b"")),
        }
    }

    /// Returns the path below the top; `None` when it is longer than a record may tell.
    fn relative(&self, id: i32, name: &OsStr) -> Option<Vec<u8>> {
        let mut parts = vec![name];
        let mut length = name.len();
        let mut node = self.nodes.get(&id)?;
        while let Some(parent) = node.parent {
            parts.push(&node.name);
            length += node.name.len() + 1;
            if length > NAME_MAX {
                return None;
            }
            node = self.nodes.get(&parent)?;
        }
        parts.reverse();
        let bytes: Vec<&[u8]> = parts.into_iter().map(OsStr::as_bytes).collect();
        Some(bytes.join(&b'/'))
    }

    fn full_path(&self, id: i32, name: &OsStr) -> Option<PathBuf> {
        let below = self.relative(id, name)?;
        Some(self.path.join(OsStr::from_bytes(&below)))
    }
}

fn too_many() -> Error {
    Error::TooMany("more than 8192 directories would be watched; watch those that matter, or without recursive")
}

/// Makes a record: the length of the name, the kind, whether it is a directory, and the name.
pub fn record(kind: Kind, is_dir: bool, name: &[u8]) -> Vec<u8> {
    let mut bytes = (name.len() as u16).to_be_bytes().to_vec();
    bytes.extend([kind as u8, u8::from(is_dir)]);
    bytes.extend(name);
    bytes
}

fn kind_of(mask: u32) -> Option<Kind> {
    match mask {
        _ if mask & (libc::IN_CREATE | libc::IN_MOVED_TO) != 0 => Some(Kind::Create),
        _ if mask & libc::IN_MODIFY != 0 => Some(Kind::Write),
        _ if mask & (libc::IN_DELETE | libc::IN_DELETE_SELF) != 0 => Some(Kind::Remove),
        _ if mask & (libc::IN_MOVED_FROM | libc::IN_MOVE_SELF) != 0 => Some(Kind::Rename),
        _ if mask & libc::IN_ATTRIB != 0 => Some(Kind::Chmod),
        _ => None,
    }
}

/// Splits off the first event of those that the kernel has written one after the other.
fn parse(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let number = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let end = EVENT_HEADER + number(12)? as usize;
    let padded = bytes.get(EVENT_HEADER..end)?;
    let name = padded.split(|byte| *byte == 0).next()?;
    let event = Event {
        watch: number(0)?.cast_signed(),
        mask: number(4)?,
        cookie: number(8)?,
        name: OsStr::from_bytes(name),
    };
    Some((event, &bytes[end..]))
}

fn is_on_network(path: &Path) -> io::Result<bool> {
    // Some of these numbers have their highest bit set, which the type of some systems extends.
    sys::statfs(path).map(|found| NETWORK_FILESYSTEMS.contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("quicksand-{name}-{}", std::process::id()));
            fs::create_dir_all(dir.join("top/a/b")).unwrap();
            Self(dir)
        }

        fn watch(&self) -> TreeWatch {
            TreeWatch::open(&WatchRequest {
                path: Place(self.0.join("top")),
                recursive: true,
                local: true,
            })
            .unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Reads all that waits, as (kind, name).
    fn told(watch: &mut TreeWatch) -> Vec<(u8, String)> {
        while watch.read().unwrap() > 0 {}
        let bytes = watch.take();
        let mut rest = &bytes[..];
        let mut found = Vec::new();
        while let [high, low, kind, _, after @ ..] = rest {
            let (name, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            found.push((*kind, String::from_utf8_lossy(name).into_owned()));
            rest = after;
        }
        found
    }

    fn events(list: &[(Kind, &str)]) -> Vec<(u8, String)> {
        list.iter()
            .map(|(kind, name)| (*kind as u8, (*name).to_owned()))
            .collect()
    }

    #[test]
    fn what_happens_below_is_told_by_its_path() {
        let scratch = Scratch::new("below");
        let mut watch = scratch.watch();
        assert_eq!(watch.directories(), 3);
        let file = scratch.0.join("top/a/b/file");
        fs::write(&file, "x").unwrap();
        fs::remove_file(&file).unwrap();
        let expected = [
            (Kind::Create, "a/b/file"),
            (Kind::Write, "a/b/file"),
            (Kind::Remove, "a/b/file"),
        ];
        assert_eq!(told(&mut watch), events(&expected));
    }

    #[test]
    fn a_new_directory_is_watched_and_what_is_in_it_told() {
        let scratch = Scratch::new("new");
        let mut watch = scratch.watch();
        fs::create_dir_all(scratch.0.join("top/c/d")).unwrap();
        fs::write(scratch.0.join("top/c/d/file"), "x").unwrap();
        let expected = [
            (Kind::Create, "c"),
            (Kind::Create, "c/d"),
            (Kind::Create, "c/d/file"),
            (Kind::Write, "c/d/file"),
        ];
        assert_eq!(told(&mut watch), events(&expected));
        fs::write(scratch.0.join("top/c/d/file"), "").unwrap();
        assert_eq!(told(&mut watch), events(&[(Kind::Write, "c/d/file")]));
    }

    #[test]
    fn a_directory_that_moves_takes_its_watches_along_or_loses_them() {
        let scratch = Scratch::new("moves");
        let mut watch = scratch.watch();
        let top = scratch.0.join("top");
        fs::rename(top.join("a"), top.join("z")).unwrap();
        assert_eq!(told(&mut watch), events(&[(Kind::Rename, "a"), (Kind::Create, "z")]));
        fs::write(top.join("z/b/file"), "").unwrap();
        assert_eq!(told(&mut watch), events(&[(Kind::Create, "z/b/file")]));
        fs::rename(top.join("z"), scratch.0.join("outside")).unwrap();
        assert_eq!(told(&mut watch), events(&[(Kind::Rename, "z")]));
        assert_eq!(watch.directories(), 1);
        fs::write(scratch.0.join("outside/b/more"), "").unwrap();
        assert_eq!(told(&mut watch), []);
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(told(&mut watch), events(&[(Kind::Remove, "")]));
        assert!(watch.is_over);
    }

    #[test]
    fn too_many_directories_are_refused() {
        let scratch = Scratch::new("many");
        for number in 0..=DIRECTORIES_MAX {
            fs::create_dir(scratch.0.join(format!("top/{number}"))).unwrap();
        }
        let request = WatchRequest {
            path: Place(scratch.0.join("top")),
            recursive: true,
            local: false,
        };
        assert!(matches!(TreeWatch::open(&request), Err(Error::TooMany(_))));
    }
}
