//! Finds the device of the root file system.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::file_system::{self, FileSystem};

const BLOCK: &str = "/sys/class/block";
const DEV: &str = "/dev";
const WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// A root file system that can be mounted.
#[derive(Debug)]
pub struct Root {
    pub device: PathBuf,
    /// `None` if it is of no kind that is known here.
    pub kind: Option<&'static str>,
}

/// Waits for the device that the word `root=` names: by its path, or by `UUID=`, `LABEL=`,
/// `PARTUUID=` or `PARTLABEL=`. On a disk with partitions, the root is the largest of them with a
/// known file system. The error says which devices there are instead.
pub fn wait_for(wanted: &str) -> Result<Root, String> {
    let started = Instant::now();
    loop {
        if let Some(root) = find(wanted) {
            return Ok(root);
        }
        if started.elapsed() > WAIT {
            return Err(format!(
                "root device {wanted} did not appear in {} s; there are: {}",
                WAIT.as_secs(),
                names().join(" ")
            ));
        }
        std::thread::sleep(POLL);
    }
}

fn find(wanted: &str) -> Option<Root> {
    let found = match wanted.split_once('=') {
        None => Some(PathBuf::from(wanted)).filter(|path| path.exists()),
        Some(("UUID", uuid)) => by_content(|found| found.uuid.eq_ignore_ascii_case(uuid)),
        Some(("LABEL", label)) => by_content(|found| found.label == label),
        Some(("PARTUUID", uuid)) => by_uevent("PARTUUID", uuid),
        Some(("PARTLABEL", label)) => by_uevent("PARTNAME", label),
        Some(_) => None,
    }?;
    let kind = kind_of(&found);
    if kind.is_none()
        && let Some(root) = largest_partition(&found)
    {
        return Some(root);
    }
    Some(Root { device: found, kind })
}

fn kind_of(device: &Path) -> Option<&'static str> {
    content(device).map(|found| found.kind)
}

fn content(device: &Path) -> Option<FileSystem> {
    File::open(device)
        .and_then(|file| file_system::probe(&file))
        .ok()
        .flatten()
}

fn by_content(is_wanted: impl Fn(&FileSystem) -> bool) -> Option<PathBuf> {
    let devices = names().into_iter().map(|name| Path::new(DEV).join(name));
    devices
        .into_iter()
        .find(|device| content(device).as_ref().is_some_and(&is_wanted))
}

fn by_uevent(key: &str, value: &str) -> Option<PathBuf> {
    names()
        .into_iter()
        .find(|name| fs::read_to_string(format!("{BLOCK}/{name}/uevent")).is_ok_and(|text| has(&text, key, value)))
        .map(|name| Path::new(DEV).join(name))
}

/// Tells whether an announcement of a device has this field.
fn has(uevent: &str, key: &str, value: &str) -> bool {
    uevent
        .lines()
        .filter_map(|line| line.split_once('='))
        .any(|(name, found)| name == key && found.eq_ignore_ascii_case(value))
}

fn largest_partition(disk: &Path) -> Option<Root> {
    let disk = Path::new(BLOCK).join(disk.file_name()?);
    let mut found = Vec::new();
    for entry in fs::read_dir(&disk).ok()?.flatten() {
        let is_partition = entry.path().join("partition").exists();
        let device = Path::new(DEV).join(entry.file_name());
        if is_partition && let Some(kind) = kind_of(&device) {
            found.push((
                sectors(&entry.path()).ok()?,
                Root {
                    device,
                    kind: Some(kind),
                },
            ));
        }
    }
    found.into_iter().max_by_key(|(size, _)| *size).map(|(_, root)| root)
}

fn sectors(block: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(block.join("size"))?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The block devices and partitions, by name.
fn names() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(BLOCK)
        .map(|found| {
            found
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_by_whole_fields() {
        let text = "MAJOR=254\nDEVNAME=vda1\nPARTN=1\nPARTNAME=root\nPARTUUID=ab-CD\n";
        assert!(has(text, "PARTUUID", "AB-cd"));
        assert!(has(text, "PARTNAME", "root"));
        assert!(!has(text, "PARTNAME", "roo"));
        assert!(!has(text, "NAME", "root"));
    }

    #[test]
    fn a_file_that_exists_is_the_root_whatever_it_holds() {
        let root = find("/dev/null").unwrap();
        assert_eq!((root.device, root.kind), (PathBuf::from("/dev/null"), None));
        assert!(find("/dev/there is none").is_none());
        assert!(find("UUID=nobody has that").is_none());
        assert!(find("what=ever").is_none());
    }
}
