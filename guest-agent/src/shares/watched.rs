//! Finds the files that the programs of this guest watch (inotify(7)), which /proc tells of every
//! program.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::base::sys;

/// The number of watches of one file system. With more of them, no program is told of changes
/// there.
pub const MOST: usize = 2048;
/// The limits of one look: processes, their descriptors, and bytes about one descriptor.
const MOST_PROCESSES: usize = 4096;
const MOST_DESCRIPTORS: usize = 65536;
const MOST_BYTES: u64 = 4 << 20;
const INOTIFY: &str = "anon_inode:inotify";

/// Returns the numbers of the watched inodes of each device in `devices`. There may be one more
/// than `MOST`.
pub fn find(devices: &[u64]) -> HashMap<u64, BTreeSet<u64>> {
    let mut found: HashMap<u64, BTreeSet<u64>> = devices.iter().map(|device| (*device, BTreeSet::new())).collect();
    let mut left = MOST_DESCRIPTORS;
    for pid in sys::pids().into_iter().flatten().take(MOST_PROCESSES) {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in descriptors.flatten().take(left) {
            left -= 1;
            let is_inotify = fs::read_link(entry.path()).is_ok_and(|target| target == Path::new(INOTIFY));
            if is_inotify {
                let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy());
                let mut text = Vec::new();
                // A program may have ended meanwhile.
                let _ = File::open(info).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
                collect(&text, &mut found);
            }
        }
    }
    found
}

fn collect(text: &[u8], found: &mut HashMap<u64, BTreeSet<u64>>) {
    for (device, inode) in text.split(|byte| *byte == b'\n').filter_map(parse) {
        if let Some(inodes) = found.get_mut(&device)
            && inodes.len() <= MOST
        {
            inodes.insert(inode);
        }
    }
}

/// Parses a line such as `inotify wd:1 ino:2a sdev:800001 mask:800afce …`, whose numbers are
/// hexadecimal (proc_pid_fdinfo(5)). The device is in the kernel's form, with twenty bits for the
/// minor number.
fn parse(line: &[u8]) -> Option<(u64, u64)> {
    let rest = std::str::from_utf8(line).ok()?.strip_prefix("inotify ")?;
    let number = |name: &str| {
        let word = rest.split(' ').find_map(|word| word.strip_prefix(name))?;
        u64::from_str_radix(word, 16).ok()
    };
    let device = u32::try_from(number("sdev:")?).ok()?;
    Some((libc::makedev(device >> 20, device & 0xf_ffff), number("ino:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_found_by_their_file_system() {
        let text = b"pos:\t0\nflags:\t02004000\nmnt_id:\t15\nino:\t1057\n\
            inotify wd:2 ino:7ef82a sdev:800001 mask:800afff ignored_mask:0 fhandle-bytes:8 f_handle:2a\n\
            inotify wd:1 ino:ffffffffffffffff sdev:2d mask:2 ignored_mask:0\n\
            inotify wd:3 ino:5 sdev:2d mask:2 ignored_mask:0\n";
        let mut found = HashMap::from([(libc::makedev(0, 45), BTreeSet::new())]);
        collect(text, &mut found);
        assert_eq!(found[&libc::makedev(0, 45)], BTreeSet::from([5, u64::MAX]));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn what_is_no_watch_is_passed_by() {
        for line in [
            "inotify wd:1 ino:x sdev:2d",
            "inotify wd:1 ino:2",
            "inotify ino:2 sdev:fffffffff",
            "eventfd-count: 0",
            "",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(parse(b"inotify \xff ino:1 sdev:1"), None);
    }

    #[test]
    fn no_more_is_kept_than_tells_that_it_is_too_much() {
        let text: String = (0..5000)
            .map(|number| format!("inotify wd:1 ino:{number:x} sdev:2d\n"))
            .collect();
        let mut found = HashMap::from([(45, BTreeSet::new())]);
        collect(text.as_bytes(), &mut found);
        assert_eq!(found[&45].len(), MOST + 1);
    }
}
