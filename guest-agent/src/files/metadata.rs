//! The notes of clients about files: extended attributes (xattr(7)) of one namespace.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::Deserialize;

use crate::base::error::{Error, Result};

/// The names of the attributes begin with this, and their keys are the rest.
const PREFIX: &str = "user.e2b.";
/// The kernel's limit for a name is 255 bytes (XATTR_NAME_MAX).
const KEY_MAX: usize = 255 - PREFIX.len();
/// The number of bytes of all keys and values of a file, as on ext4, where they share a block.
const TOTAL_MAX: usize = 4096;
/// A program in the guest may have given a file as many names as the kernel lists (XATTR_LIST_MAX).
const NAMES_MAX: usize = 64 * 1024;

/// The notes of one file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Metadata(pub BTreeMap<String, String>);

impl TryFrom<BTreeMap<String, String>> for Metadata {
    type Error = &'static str;

    fn try_from(values: BTreeMap<String, String>) -> std::result::Result<Self, &'static str> {
        let is_key = |key: &String| (1..=KEY_MAX).contains(&key.len()) && !key.contains('\0');
        let total: usize = values.iter().map(|(key, value)| key.len() + value.len()).sum();
        if !values.keys().all(is_key) {
            Err("must have keys of 1 to 246 bytes without NUL")
        } else if total > TOTAL_MAX {
            Err("must have at most 4096 bytes")
        } else {
            Ok(Self(values))
        }
    }
}

/// Returns the notes of a file; those that are not UTF-8 or beyond the limits are left out. A file
/// system without extended attributes has none.
pub fn read(path: &Path, follow: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut names = vec![0; NAMES_MAX];
    let listed = if follow {
        rustix::fs::listxattr(path, &mut names[..])
    } else {
        rustix::fs::llistxattr(path, &mut names[..])
    };
    let mut left = TOTAL_MAX;
    for key in keys(&names[..listed.unwrap_or(0)]) {
        let name = format!("{PREFIX}{key}");
        let mut value = vec![0; TOTAL_MAX];
        let size = if follow {
            rustix::fs::getxattr(path, &*name, &mut value[..])
        } else {
            rustix::fs::lgetxattr(path, &*name, &mut value[..])
        };
        let Ok(size) = size else { continue };
        value.truncate(size);
        if let Ok(value) = String::from_utf8(value)
            && key.len() + value.len() <= left
        {
            left -= key.len() + value.len();
            found.insert(key.to_owned(), value);
        }
    }
    found
}

/// Gives an open file these notes and no others. Fails with `Unsupported` when its file system has
/// none, and as `Error::io` else.
pub fn replace(fd: BorrowedFd<'_>, wanted: &Metadata, what: &str) -> Result<()> {
    let failed = |error: Errno| match error {
        Errno::OPNOTSUPP => Error::Unsupported("the file system of this file keeps no metadata"),
        error => Error::io(what, io::Error::from(error)),
    };
    let mut names = vec![0; NAMES_MAX];
    let listed = rustix::fs::flistxattr(fd, &mut names[..]).unwrap_or(0);
    for key in keys(&names[..listed]).filter(|key| !wanted.0.contains_key(*key)) {
        rustix::fs::fremovexattr(fd, format!("{PREFIX}{key}")).map_err(failed)?;
    }
    for (key, value) in &wanted.0 {
        let name = format!("{PREFIX}{key}");
        rustix::fs::fsetxattr(fd, name, value.as_bytes(), XattrFlags::empty()).map_err(failed)?;
    }
    Ok(())
}

fn keys(names: &[u8]) -> impl Iterator<Item = &str> {
    names
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok()?.strip_prefix(PREFIX))
        .filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    fn notes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    #[test]
    fn notes_are_replaced_as_a_whole_and_others_stay() {
        let path = std::env::temp_dir().join(format!("quicksand-notes-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let first = Metadata(notes(&[("a", "1"), ("b", "")]));
        if let Err(Error::Unsupported(_)) = replace(file.as_fd(), &first, "file") {
            fs::remove_file(&path).unwrap();
            return;
        }
        rustix::fs::fsetxattr(&file, "user.other", b"x", XattrFlags::empty()).unwrap();
        rustix::fs::fsetxattr(&file, "user.e2b.odd", b"\xff", XattrFlags::empty()).unwrap();
        assert_eq!(read(&path, true), first.0);
        replace(file.as_fd(), &Metadata(notes(&[("b", "2")])), "file").unwrap();
        assert_eq!(read(&path, false), notes(&[("b", "2")]));
        assert!(rustix::fs::getxattr(&path, "user.other", &mut [0; 8][..]).is_ok());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_a_note_is_refused() {
        for (key, value) in [("", "x".to_owned()), ("k", "x".repeat(4096)), ("a\0b", String::new())] {
            assert!(Metadata::try_from(notes(&[(key, &value)])).is_err());
        }
        assert!(Metadata::try_from(notes(&[(&"k".repeat(247), "")])).is_err());
        assert!(Metadata::try_from(notes(&[(&"k".repeat(246), "")])).is_ok());
    }
}
