//! The kernel's list of mounts.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub const PATH: &str = "/proc/self/mountinfo";

#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub device: u64,
    /// The directory of the file system that is mounted there.
    pub root: PathBuf,
    pub fstype: OsString,
    pub source: OsString,
    pub writable: bool,
}

/// Reads the present mounts, in the order in which they were made. Without /proc there are none.
pub fn read() -> Vec<Mount> {
    parse(&fs::read(PATH).unwrap_or_default())
}

pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

/// Parses a line such as `36 35 0:30 / /tmp rw,nosuid shared:9 - tmpfs tmpfs rw,size=1024k`. The
/// number of words before the `-` varies.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [_, _, device, root, point, options, rest @ ..] = words.as_slice() else {
        return None;
    };
    let dash = rest.iter().position(|word| *word == b"-")?;
    let [fstype, source, super_options, ..] = &rest[dash + 1..] else {
        return None;
    };
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let is_writable = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"rw");
    Some(Mount {
        point: unescape(point).into(),
        device: libc::makedev(major.parse().ok()?, minor.parse().ok()?),
        root: unescape(root).into(),
        fstype: unescape(fstype),
        source: unescape(source),
        writable: is_writable(options) && is_writable(super_options),
    })
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescape(word: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let digits = tail.first_chunk::<3>().filter(|_| *first == b'\\');
        match digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => bytes.push(*first),
        }
    }
    OsString::from_vec(bytes)
}
