//! The attributes of files (draft-ietf-secsh-filexfer-02, section 5).

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::wire::{Answers, Fields, Short};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const MODE: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 1 << 31;

/// The attributes that a client gives. Those that it does not give stay as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    size: Option<u64>,
    owner: Option<(u32, u32)>,
    /// Permission bits without the file type.
    pub mode: Option<u32>,
    /// The times of the last access and of the last change, in seconds since 1970.
    times: Option<(u32, u32)>,
}

/// The file whose attributes are set.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    Open(&'a File),
    Path(&'a Path),
    /// A link itself, not what it leads to.
    Link(&'a Path),
}

impl Attributes {
    pub fn read(fields: &mut Fields<'_>) -> Result<Self, Short> {
        let flags = fields.u32()?;
        let has = |flag| flags & flag != 0;
        let mut found = Self::default();
        if has(SIZE) {
            found.size = Some(fields.u64()?);
        }
        if has(OWNER) {
            found.owner = Some((fields.u32()?, fields.u32()?));
        }
        if has(MODE) {
            found.mode = Some(fields.u32()? & 0o7777);
        }
        if has(TIMES) {
            found.times = Some((fields.u32()?, fields.u32()?));
        }
        if has(EXTENDED) {
            for _ in 0..fields.u32()? {
                fields.string()?;
                fields.string()?;
            }
        }
        Ok(found)
    }

    /// Sets those that are given. The mode comes after the owner, because a change of the owner
    /// takes set-id bits away; the times come last.
    pub fn apply(&self, subject: Subject<'_>) -> io::Result<()> {
        if let Some(size) = self.size {
            match subject {
                Subject::Open(file) => file.set_len(size)?,
                Subject::Path(path) => File::options().write(true).open(path)?.set_len(size)?,
                Subject::Link(_) => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        if let Some((uid, gid)) = self.owner {
            let (uid, gid) = (Some(uid), Some(gid));
            match subject {
                Subject::Open(file) => std::os::unix::fs::fchown(file, uid, gid)?,
                Subject::Path(path) => std::os::unix::fs::chown(path, uid, gid)?,
                Subject::Link(path) => std::os::unix::fs::lchown(path, uid, gid)?,
            }
        }
        if let Some(mode) = self.mode {
            match subject {
                Subject::Open(file) => file.set_permissions(Permissions::from_mode(mode))?,
                Subject::Path(path) => std::fs::set_permissions(path, Permissions::from_mode(mode))?,
                // A link's own mode means nothing and cannot be set.
                Subject::Link(_) => {}
            }
        }
        if let Some((accessed, modified)) = self.times {
            let time = |seconds: u32| Timespec {
                tv_sec: seconds.into(),
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: time(accessed),
                last_modification: time(modified),
            };
            match subject {
                Subject::Open(file) => rustix::fs::futimens(file.as_fd(), &times)?,
                Subject::Path(path) => rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?,
                Subject::Link(path) => rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?,
            }
        }
        Ok(())
    }
}

/// Adds a file's attributes to an answer.
pub fn write(answers: &mut Answers, data: &Metadata) {
    // Times before 1970 and after 2106 cannot be told.
    let time = |seconds: i64| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    answers
        .u32(SIZE | OWNER | MODE | TIMES)
        .u64(data.size())
        .u32(data.uid())
        .u32(data.gid())
        .u32(data.mode())
        .u32(time(data.atime()))
        .u32(time(data.mtime()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_given_is_read_and_extensions_are_passed_over() {
        let mut bytes = (MODE | EXTENDED).to_be_bytes().to_vec();
        bytes.extend(0o100_644_u32.to_be_bytes());
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 0]);
        let read = Attributes::read(&mut Fields::new(&bytes)).unwrap();
        let wanted = Attributes {
            mode: Some(0o644),
            ..Attributes::default()
        };
        assert_eq!(read, wanted);
    }

    #[test]
    fn a_count_of_extensions_that_lies_is_short() {
        let mut bytes = EXTENDED.to_be_bytes().to_vec();
        bytes.extend(u32::MAX.to_be_bytes());
        assert!(Attributes::read(&mut Fields::new(&bytes)).is_err());
    }
}
