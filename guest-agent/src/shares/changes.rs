//! Tells programs of this guest that the host has changed files in a share.
//!
//! Linux's client of shares raises an event (inotify(7)) only for changes of this guest. While a
//! program watches files of a share, the agent asks the server each second for the changes of the
//! host, and tells the server which files are watched. The two speak by a control code of our own
//! (`changes.py` of the server). For each changed file the agent sets the time of the last write to
//! the value that it has. That raises the event, and the server knows such a write and ignores it.
//! Without watching programs the agent asks nothing.
//!
//! The agent works on a copy of the mount that has no place in the tree, so that it keeps no one
//! from unmounting. It opens the copy once, since programs are told of each open of a directory that
//! they watch, and lets go of it as soon as the list of mounts changes.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{mounting, watched};
use crate::base::log::note;
use crate::base::mutex::Mutex;
use crate::base::sys;
use crate::kernel::mountinfo::{self, Mount};

/// The time between two looks for watches.
const LOOK: Duration = Duration::from_secs(2);
/// Looks take at most one part in this many of a processor's time, however many programs there are.
const REST: u32 = 100;
/// The longest time between two looks. Where the host is busy, the guest's kernel takes time that
/// its processor was not given for time that the look has used.
const LONGEST_LOOK: Duration = Duration::from_secs(6);
/// The time between two questions to a server.
const ASK: Duration = Duration::from_secs(1);

/// The thread of an agent that looks for changes. It exists as long as a share is mounted.
#[derive(Clone, Debug, Default)]
pub struct Watching(Arc<AtomicBool>);

impl Watching {
    /// Starts the thread if it does not run. To be called after a mount.
    pub fn begin(&self) {
        if !self.0.swap(true, SeqCst) {
            let this = self.clone();
            thread::spawn(move || this.run());
        }
    }

    fn run(&self) {
        let mut followed = HashMap::new();
        let mut looked = Instant::now();
        loop {
            let mounts = mounting::by_smb();
            if mounts.is_empty() {
                self.0.store(false, SeqCst);
                // One may have been mounted since the look, whose `begin` did nothing.
                if mounting::by_smb().is_empty() || self.0.swap(true, SeqCst) {
                    return;
                }
                continue;
            }
            let before = std::mem::replace(&mut looked, Instant::now());
            let used = sys::thread_time();
            follow(mounts, &mut followed, before);
            thread::sleep(rest_after(sys::thread_time().saturating_sub(used)));
        }
    }
}

/// The time to the next look, after one that has used so much of a processor's time.
fn rest_after(used: Duration) -> Duration {
    (used * REST).clamp(LOOK, LONGEST_LOOK)
}

/// A mount is known by its place, its source, and its number.
type Key = (std::path::PathBuf, std::ffi::OsString, u64);

/// The watched files of a share, for the thread that asks its server.
#[derive(Debug, Default)]
struct Wanted {
    inodes: BTreeSet<u64>,
    /// The look before the one that has found other inodes, if the server was not told of these yet.
    since: Option<Instant>,
    is_asking: bool,
    /// The kernel or the server does not know the question.
    is_unknown: bool,
}

/// Looks for watches. The look before began at `before`.
fn follow(mounts: Vec<Mount>, followed: &mut HashMap<Key, Arc<Mutex<Wanted>>>, before: Instant) {
    let devices: Vec<u64> = mounts.iter().map(|mount| mount.device).collect();
    let mut found = watched::find(&devices);
    let mut now = HashMap::new();
    for mount in mounts {
        let mut inodes = found.remove(&mount.device).unwrap_or_default();
        if inodes.len() > watched::MOST {
            inodes.clear();
        }
        let key = (mount.point.clone(), mount.source.clone(), mount.device);
        let wanted = followed.remove(&key).unwrap_or_default();
        let mut inside = wanted.lock();
        if inodes != inside.inodes {
            inside.since.get_or_insert(before);
            inside.inodes = inodes;
        }
        if !inside.is_asking && !inside.is_unknown && !inside.inodes.is_empty() {
            inside.is_asking = true;
            let wanted = wanted.clone();
            thread::spawn(move || ask_on(&mount, &wanted));
        }
        drop(inside);
        now.insert(key, wanted);
    }
    for gone in followed.values() {
        gone.lock().inodes.clear();
    }
    *followed = now;
}

/// Asks the server until no file is watched any more, and tells the server so.
fn ask_on(mount: &Mount, wanted: &Mutex<Wanted>) {
    let mut asker = Asker::default();
    let list = File::open(mountinfo::PATH).ok();
    loop {
        let inodes = {
            let mut inside = wanted.lock();
            asker.since = asker.since.or(inside.since.take());
            inside.inodes.clone()
        };
        let is_unknown = match asker.round(mount, &inodes) {
            Ok(()) => false,
            Err(error) => {
                asker.tree = None;
                let is_unknown = matches!(
                    error.raw_os_error(),
                    Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::EPERM)
                );
                if is_unknown {
                    note(&format!("no events of the host in {}: {error}", mount.point.display()));
                }
                is_unknown
            }
        };
        let mut inside = wanted.lock();
        inside.is_unknown |= is_unknown;
        if inside.is_unknown || (inodes.is_empty() && inside.inodes.is_empty()) {
            inside.is_asking = false;
            return;
        }
        drop(inside);
        rest(list.as_ref(), &mut asker);
    }
}

/// Waits until it is time for the next question. Lets go of the mount as soon as the list of mounts
/// changes.
fn rest(list: Option<&File>, asker: &mut Asker) {
    let until = Instant::now() + ASK;
    if list.is_none_or(|list| has_changed_within(list, ASK)) {
        asker.tree = None;
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// Waits for the list of mounts to change.
fn has_changed_within(list: &File, limit: Duration) -> bool {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // An error is as good as a change: what is open is opened anew.
    poll(&mut [PollFd::new(list, PollFlags::PRI)], Some(&limit)) != Ok(0)
}

/// One change of the host.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    /// The path below the root of the share. It is empty for the root.
    path: Vec<u8>,
    /// The time of the last write, in nanoseconds since 1970.
    written_ns: i64,
}

#[derive(Debug, Default)]
struct Asker {
    /// The files that the server was told last, by their inode numbers.
    told: BTreeSet<u64>,
    /// The server knows these files by this number.
    number: u64,
    /// The changes whose files were not found. The kernel remembers for a second that a name was
    /// missing.
    later: Vec<Change>,
    /// Since when the files may have been watched that the server was not told of yet.
    since: Option<Instant>,
    tree: Option<Tree>,
}

impl Asker {
    fn round(&mut self, mount: &Mount, inodes: &BTreeSet<u64>) -> io::Result<()> {
        let tree = match self.tree.take() {
            Some(tree) => tree,
            None => Tree::open(mount)?,
        };
        for change in std::mem::take(&mut self.later) {
            tree.touch(&change);
        }
        if *inodes != self.told || self.number == 0 {
            let since = self.since.take();
            self.number = new_number(since.map_or(Duration::ZERO, |since| since.elapsed()))?;
            self.told.clone_from(inodes);
        }
        let total = inodes.len();
        let mut answer = tree.ask(&question(self.number, total, total, &[]))?;
        if !answer.is_known {
            let all: Vec<u64> = inodes.iter().copied().collect();
            for (part, some) in all.chunks(PART).enumerate() {
                answer = tree.ask(&question(self.number, part * PART, total, some))?;
            }
        }
        self.later = answer
            .changes
            .into_iter()
            .filter(|change| !tree.touch(change))
            .collect();
        self.tree = Some(tree);
        Ok(())
    }
}

/// A random number. Its bits 1 to 8 say for how many tenths of a second the files may have been
/// watched. Bit 0 says that they do: agents that did not have set it.
fn new_number(watched: Duration) -> io::Result<u64> {
    let mut bytes = [0; 8];
    sys::random(&mut bytes)?;
    let tenths = watched.as_millis().div_ceil(100).min(0xff) as u64;
    Ok((u64::from_le_bytes(bytes) | 0x200) & !0x1ff | tenths << 1)
}

/// The number of files in one question, because the client passes on 1024 bytes.
const PART: usize = 100;
const HEAD: usize = 8;

fn question(number: u64, first: usize, total: usize, inodes: &[u64]) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((first as u32).to_le_bytes());
    bytes.extend((total as u32).to_le_bytes());
    bytes.extend(inodes.iter().flat_map(|inode| inode.to_le_bytes()));
    bytes
}

#[derive(Debug, Default)]
struct Answer {
    /// The server knows the watched files.
    is_known: bool,
    changes: Vec<Change>,
}

/// The time from 1601 to 1970, in units of 100 ns.
const EPOCH: i64 = 116_444_736_000_000_000;

/// Parses an answer of the server. Bytes that make no sense count as an answer without changes.
fn parse(bytes: &[u8]) -> Answer {
    let Some((head, mut rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Answer::default();
    };
    let mut changes = Vec::new();
    while let Some((fixed, tail)) = rest.split_first_chunk::<10>() {
        let (time, length) = (&fixed[..8], &fixed[8..]);
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let Some((path, after)) = tail.split_at_checked(length) else {
            break;
        };
        let ticks = i64::from_le_bytes(time.try_into().unwrap_or_default());
        if let Some(written_ns) = ticks.checked_sub(EPOCH).and_then(|ticks| ticks.checked_mul(100)) {
            let path = path.to_vec();
            changes.push(Change { path, written_ns });
        }
        rest = after;
    }
    Answer {
        is_known: head[0] & 1 != 0,
        changes,
    }
}

// linux/mount.h, linux/openat2.h, linux/stat.h
const OPEN_TREE_CLONE: libc::c_uint = 1;
const ATTR_RDONLY: u64 = 1;
const RESOLVE: u64 = 0x01 | 0x02 | 0x04 | 0x08; // NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
const FORCE_SYNC: libc::c_int = 0x2000;
const DONT_SYNC: libc::c_int = 0x4000;
const STATX_BASIC: libc::c_uint = 0x7ff;

// fs/smb/client/cifs_ioctl.h: CIFS_QUERY_INFO, and that it passes on a control code
const QUERY_INFO: u64 = 0xc018_cf07;
const PASS_FSCTL: u32 = 1;
/// A control code from the range for makers of servers (0xa51), for a handle that may read.
const CHANGES: u32 = 0x0009_6944;
/// The client takes an answer of this size at most.
const ANSWER: usize = 15 << 10;

/// `struct smb_query_info`, followed by the question or by the answer.
#[repr(C)]
struct Query {
    code: u32,
    class: u32,
    additional: u32,
    flags: u32,
    input: u32,
    output: u32,
    buffer: [u8; ANSWER],
}

/// The files of a mount, reached by a copy of it that has no place in the tree.
#[derive(Debug)]
struct Tree {
    place: OwnedFd,
    /// The root, open to be read. Only that takes the control code.
    root: OwnedFd,
}

impl Tree {
    fn open(mount: &Mount) -> io::Result<Self> {
        let path = sys::c_path(&mount.point)?;
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
        // SAFETY: the path ends with NUL.
        let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
        let place = sys::own(fd as libc::c_int)?;
        if statx(place.as_fd(), DONT_SYNC)? != mount.device {
            return Err(io::Error::from_raw_os_error(libc::ESTALE)); // something else is mounted over it
        }
        if !mount.writable {
            make_writable(place.as_fd())?;
        }
        let root = open_at(place.as_fd(), Path::new(""), libc::O_RDONLY | libc::O_DIRECTORY)?;
        Ok(Self { place, root })
    }

    fn ask(&self, question: &[u8]) -> io::Result<Answer> {
        let mut query = Box::new(Query {
            code: CHANGES,
            class: 0,
            additional: 0,
            flags: PASS_FSCTL,
            input: ANSWER as u32,
            output: question.len() as u32,
            buffer: [0; ANSWER],
        });
        query.buffer[..question.len()].copy_from_slice(question);
        sys::ioctl(self.root.as_fd(), QUERY_INFO, query.as_mut())?;
        Ok(parse(&query.buffer[..ANSWER.min(query.input as usize)]))
    }

    /// Raises the event of a file. Returns false if the file is not found yet.
    fn touch(&self, change: &Change) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&change.path));
        let touched = open_at(self.place.as_fd(), path, libc::O_PATH)
            // Programs look at its attributes when they are told of it: the kernel shall ask for them anew.
            .and_then(|file| statx(file.as_fd(), FORCE_SYNC).map(|_| file))
            .and_then(|file| set_written(file.as_fd(), change.written_ns));
        match touched {
            Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)),
            Ok(()) => true,
        }
    }
}

/// Makes the copy writable. The server of a read-only share refuses every write except those
/// that only raise an event.
fn make_writable(tree: BorrowedFd<'_>) -> io::Result<()> {
    let attributes: [u64; 4] = [0, ATTR_RDONLY, 0, 0];
    // SAFETY: the path ends with NUL, and the attributes live during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    sys::check(result as libc::c_int).map(|_| ())
}

fn open_at(tree: BorrowedFd<'_>, path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let path = sys::c_path(path)?;
    let how: [u64; 3] = [(flags | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64, 0, RESOLVE];
    // SAFETY: the path ends with NUL, and `how` lives during the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            tree.as_raw_fd(),
            path.as_ptr(),
            how.as_ptr(),
            size_of_val(&how),
        )
    };
    sys::own(fd as libc::c_int)
}

/// Looks at an open file, and returns the file system that it lies in.
fn statx(file: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<u64> {
    let mut found = [0u32; 64];
    // SAFETY: the path ends with NUL; struct statx has 256 bytes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            STATX_BASIC,
            found.as_mut_ptr(),
        )
    };
    sys::check(result as libc::c_int)?;
    Ok(libc::makedev(found[34], found[35])) // stx_dev_major, stx_dev_minor
}

/// Sets the time of the last write. A change of that time alone is an IN_MODIFY (`fsnotify_change`
/// in include/linux/fsnotify.h).
fn set_written(file: BorrowedFd<'_>, written_ns: i64) -> io::Result<()> {
    const SECOND: i64 = 1_000_000_000;
    let times = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        libc::timespec {
            tv_sec: written_ns.div_euclid(SECOND),
            tv_nsec: written_ns.rem_euclid(SECOND),
        },
    ];
    // SAFETY: the path ends with NUL and the two times live during the call.
    sys::check(unsafe { libc::utimensat(file.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) })
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_the_server_writes_it() {
        let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0];
        for (path, ticks) in [("a/b", EPOCH + 15), ("", EPOCH - 1)] {
            bytes.extend(ticks.to_le_bytes());
            bytes.extend((path.len() as u16).to_le_bytes());
            bytes.extend(path.as_bytes());
        }
        let answer = parse(&bytes);
        assert!(answer.is_known);
        let told: Vec<(&[u8], i64)> = answer
            .changes
            .iter()
            .map(|one| (&one.path[..], one.written_ns))
            .collect();
        assert_eq!(told, [(&b"a/b"[..], 1500), (&b""[..], -100)]);
        // What is cut off is not there.
        assert_eq!(parse(&bytes[..bytes.len() - 1]).changes.len(), 1);
        assert!(parse(&bytes[..22]).changes.len() == 1 && parse(&bytes[..20]).changes.is_empty());
        assert!(!parse(&[1]).is_known);
    }

    #[test]
    fn a_question_is_no_longer_than_the_client_passes_on() {
        let inodes: Vec<u64> = (0..PART as u64).collect();
        assert!(question(1, 0, PART, &inodes).len() <= 1024);
    }

    #[test]
    fn a_number_says_how_long_the_files_may_have_been_watched() {
        for (watched, tenths) in [(0, 0), (1, 1), (2300, 23), (2301, 24), (3_600_000, 255)] {
            let number = new_number(Duration::from_millis(watched)).unwrap();
            assert_eq!((number & 1, number >> 1 & 0xff), (0, tenths));
            assert!(number > 0x1ff);
        }
    }

    #[test]
    fn a_look_that_was_cheap_is_made_again_soon() {
        assert_eq!(rest_after(Duration::from_millis(3)), LOOK);
        assert_eq!(rest_after(Duration::from_millis(30)), Duration::from_secs(3));
        assert_eq!(rest_after(Duration::from_secs(3)), LONGEST_LOOK);
    }

    #[test]
    fn without_shares_nothing_runs() {
        let watching = Watching::default();
        watching.begin();
        let deadline = Instant::now() + Duration::from_secs(10);
        while watching.0.load(SeqCst) {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
}
