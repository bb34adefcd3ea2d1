//! Finds the files that lie in memory only, and so are not on the disk that the host saves.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::tree::text_or_base64;
use crate::kernel::mountinfo::{self, Mount};

const MAX_PATHS: usize = 50;
const MAX_ENTRIES: usize = 10_000;
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// The files in these trees belong to the system, which makes them again at each boot.
const SYSTEM_TREES: [&str; 3] = ["/run", "/sys", "/proc"];

/// The reply to `volatile`.
#[derive(Debug, Serialize)]
pub struct Volatile {
    paths: Vec<Held>,
    /// Tells whether there is more.
    truncated: bool,
}

/// A path, as text or as base64, and the size of it and everything below it.
#[derive(Debug, Serialize)]
struct Held {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    bytes: u64,
    entries: u64,
}

/// Lists the entries directly below each mount point that hold data, the largest first.
pub fn list() -> Volatile {
    let mounts = mountinfo::read();
    let mut walk = Walk::new(&mounts);
    for mount in candidates(&mounts) {
        walk.weigh_mount(mount);
    }
    walk.report()
}

fn is_systems(mount: &Mount) -> bool {
    mount.point == Path::new("/dev") || SYSTEM_TREES.iter().any(|tree| mount.point.starts_with(tree))
}

fn in_memory(mount: &Mount) -> bool {
    mount.fstype == "tmpfs" || mount.fstype == "ramfs"
}

/// Chooses the mounts to look at. A file system that is mounted in several places is looked at
/// once, from its root if that is mounted. It is left out if one of the places belongs to the
/// system.
fn candidates(mounts: &[Mount]) -> Vec<&Mount> {
    let systems: HashSet<u64> = mounts
        .iter()
        .filter(|mount| is_systems(mount))
        .map(|mount| mount.device)
        .collect();
    let is_wanted = |mount: &&Mount| in_memory(mount) && mount.writable && !systems.contains(&mount.device);
    let mut found: Vec<&Mount> = mounts.iter().filter(is_wanted).collect();
    found.sort_by_key(|mount| mount.root != Path::new("/"));
    found
}

/// The size of a path and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    bytes: u64,
    /// The number of regular files with data.
    entries: u64,
}

impl Weight {
    fn add_file(&mut self, size: u64) {
        if size > 0 {
            // Files with holes may have any size.
            self.bytes = self.bytes.saturating_add(size);
            self.entries += 1;
        }
    }
}

/// A walk through all file systems that stops at its limits.
#[derive(Debug)]
struct Walk {
    mount_points: HashSet<PathBuf>,
    seen: HashSet<u64>,
    found: Vec<(PathBuf, Weight)>,
    entries_left: usize,
    deadline: Instant,
    truncated: bool,
}

impl Walk {
    fn new(mounts: &[Mount]) -> Self {
        Self {
            mount_points: mounts.iter().map(|mount| mount.point.clone()).collect(),
            seen: HashSet::new(),
            found: Vec::new(),
            entries_left: MAX_ENTRIES,
            deadline: Instant::now() + TIME_LIMIT,
            truncated: false,
        }
    }

    fn weigh_mount(&mut self, mount: &Mount) {
        let Ok(meta) = fs::symlink_metadata(&mount.point) else {
            return;
        };
        // Something else may be mounted over it.
        if meta.dev() != mount.device || !self.seen.insert(mount.device) {
            return;
        }
        if meta.is_file() {
            let mut weight = Weight::default();
            weight.add_file(meta.len());
            self.keep(mount.point.clone(), weight);
            return;
        }
        for entry in entries_of(&mount.point) {
            let mut weight = Weight::default();
            self.weigh(&entry, &mut weight);
            self.keep(entry.path(), weight);
        }
    }

    fn keep(&mut self, path: PathBuf, weight: Weight) {
        if weight.bytes > 0 {
            self.found.push((path, weight));
        }
    }

    /// Adds up the files at and below `first`, until a limit is reached.
    fn weigh(&mut self, first: &DirEntry, weight: &mut Weight) {
        let mut below: Vec<PathBuf> = self.visit(first, weight).into_iter().collect();
        while let Some(dir) = below.pop() {
            for entry in entries_of(&dir) {
                below.extend(self.visit(&entry, weight));
                if self.truncated {
                    return;
                }
            }
        }
    }

    /// Adds a file. Returns a directory, which has to be looked into.
    fn visit(&mut self, entry: &DirEntry, weight: &mut Weight) -> Option<PathBuf> {
        if self.entries_left == 0 || Instant::now() > self.deadline {
            self.truncated = true;
            return None;
        }
        self.entries_left -= 1;
        // On another file system, whose server may be gone, not even the size is asked for.
        let path = entry.path();
        if self.mount_points.contains(&path) {
            return None;
        }
        let kind = entry.file_type().ok()?;
        if kind.is_file() {
            weight.add_file(entry.metadata().ok()?.len());
        }
        kind.is_dir().then_some(path)
    }

    fn report(mut self) -> Volatile {
        self.found.sort_by_key(|(_, weight)| Reverse(weight.bytes));
        let truncated = self.truncated || self.found.len() > MAX_PATHS;
        let paths = self.found.iter().take(MAX_PATHS).map(describe).collect();
        Volatile { paths, truncated }
    }
}

fn describe((path, weight): &(PathBuf, Weight)) -> Held {
    let (path, path_b64) = text_or_base64(path.as_os_str());
    Held {
        path,
        path_b64,
        bytes: weight.bytes,
        entries: weight.entries,
    }
}

/// Lists a directory. A directory that is gone has no entries.
fn entries_of(dir: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    const MOUNTINFO: &[u8] = b"\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:5 / /dev rw,nosuid - tmpfs devtmpfs rw,size=4096k
23 22 0:20 / /dev/shm rw - tmpfs tmpfs rw
24 21 0:21 / /run rw - tmpfs tmpfs rw
25 24 0:22 / /run/user/1000 rw - tmpfs tmpfs rw
26 21 0:21 /resolv.conf /etc/resolv.conf rw - tmpfs tmpfs rw
27 21 0:23 / /mnt/read\\040only ro - tmpfs tmpfs rw
28 21 0:24 / /mnt/sealed rw - tmpfs tmpfs ro
29 21 0:25 /part /mnt/part rw shared:7 master:2 - tmpfs tmpfs rw
30 21 0:25 / /mnt/a\\040b\\134 rw shared:7 master:2 - tmpfs tmpfs rw
31 21 0:26 / /ram rw - ramfs none rw
32 21 0:27 / /runner rw - tmpfs tmpfs rw
broken
";

    #[test]
    fn the_systems_own_and_what_cannot_be_written_is_left_out() {
        let mounts = mountinfo::parse(MOUNTINFO);
        assert_eq!(mounts.len(), 12);
        let points: Vec<_> = candidates(&mounts)
            .iter()
            .map(|mount| mount.point.to_str().unwrap())
            .collect();
        assert_eq!(points, ["/dev/shm", "/mnt/a b\\", "/ram", "/runner", "/mnt/part"]);
    }

    /// Treats a directory as a mount, with further mounts below it.
    fn weigh(dir: &Path, below: &[PathBuf], prepare: impl FnOnce(&mut Walk)) -> Value {
        let mount = |point: &Path| Mount {
            point: point.to_owned(),
            device: fs::metadata(dir).unwrap().dev(),
            root: "/".into(),
            fstype: "tmpfs".into(),
            source: "tmpfs".into(),
            writable: true,
        };
        let mut mounts = vec![mount(dir)];
        mounts.extend(below.iter().map(|point| mount(point)));
        let mut walk = Walk::new(&mounts);
        prepare(&mut walk);
        walk.weigh_mount(&mounts[0]);
        json!(walk.report())
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("quicksand-volatile-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn trees_are_summed_up_and_what_has_no_data_is_not_listed() {
        let dir = scratch("sum");
        let odd = dir.join(OsStr::from_bytes(b"\xff"));
        for sub in ["tree/deep", "empty/dir", "mount"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        for (name, size) in [("tree/a", 3), ("tree/deep/b", 4), ("empty/none", 0), ("mount/far", 99)] {
            fs::write(dir.join(name), vec![0; size]).unwrap();
        }
        fs::write(&odd, "x").unwrap();
        std::os::unix::fs::symlink("tree", dir.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        let found = weigh(&dir, &[dir.join("mount")], |_| {});
        let coded = crate::base::base64::encode(odd.as_os_str().as_bytes());
        assert_eq!(
            found,
            json!({"truncated": false, "paths": [
                {"path": dir.join("tree"), "bytes": 7, "entries": 2},
                {"path_b64": coded, "bytes": 1, "entries": 1},
            ]})
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_look_ends_at_its_bounds_and_says_so() {
        let dir = scratch("bounds");
        fs::create_dir(dir.join("tree")).unwrap();
        for number in 0..60 {
            fs::write(dir.join(format!("{number}")), vec![0; number + 1]).unwrap();
            fs::write(dir.join(format!("tree/{number}")), "x").unwrap();
        }
        let whole = weigh(&dir, &[], |_| {});
        assert_eq!(whole["paths"].as_array().unwrap().len(), MAX_PATHS);
        assert_eq!(whole["paths"][0]["bytes"], 60);
        assert_eq!(whole["truncated"], true);
        let part = weigh(&dir, &[], |walk| walk.entries_left = 5);
        let seen = part["paths"].as_array().unwrap().iter();
        assert!(seen.map(|path| path["entries"].as_u64().unwrap()).sum::<u64>() <= 5);
        assert_eq!(part["truncated"], true);
        let late = weigh(&dir, &[], |walk| walk.deadline = Instant::now());
        assert_eq!(late, json!({"paths": [], "truncated": true}));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_mount_that_another_one_covers_is_not_looked_at() {
        let dir = scratch("covered");
        fs::write(dir.join("file"), "x").unwrap();
        let covered = Mount {
            point: dir.clone(),
            device: 0,
            root: "/".into(),
            fstype: "tmpfs".into(),
            source: "tmpfs".into(),
            writable: true,
        };
        let mut walk = Walk::new(&[]);
        walk.weigh_mount(&covered);
        assert!(walk.found.is_empty());
        fs::remove_dir_all(dir).unwrap();
    }
}
