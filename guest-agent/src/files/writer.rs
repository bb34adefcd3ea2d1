//! Writes a file for a client: the old file is replaced as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::metadata::{self, Metadata};
use super::tree::{follow_links, make_parents};
use crate::base::error::{Error, Result, about};
use crate::base::params::{Mode, Place, wrong};
use crate::base::sys;
use crate::users::passwd;

/// File systems whose files are knobs of the kernel. Nothing can be renamed there, so they are
/// written in place.
const KNOB_FILESYSTEMS: [i64; 7] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x6265_6570, // configfs
    0x7363_6673, // securityfs
];

/// The parameters of a request that writes a file.
#[derive(Debug, Deserialize)]
pub struct WriteRequest {
    path: Place,
    mode: Option<Mode>,
    user: Option<String>,
    #[serde(default)]
    parents: bool,
    #[serde(default)]
    append: bool,
    #[serde(default)]
    exclusive: bool,
    /// Tells whether the contents come without their holes.
    #[serde(default)]
    pub sparse: bool,
    /// The time of the last change that the file gets, in nanoseconds since 1970.
    mtime_ns: Option<i64>,
    /// Writes into the file that is there, which keeps its names and its watchers.
    #[serde(default)]
    in_place: bool,
    /// The notes about the file, in place of all that it has.
    metadata: Option<Metadata>,
}

/// A write in progress. Dropping it before `commit` leaves the old file as it was.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    target: PathBuf,
    /// The file that `commit` renames to `target`, or `None` when writing in place.
    temporary: Option<PathBuf>,
    exclusive: bool,
    mtime_ns: Option<i64>,
    pub bytes: u64,
}

impl FileWriter {
    /// Fails with `Exists` when the file exists and must not, and with `BadRequest` when it is not
    /// a regular file.
    pub fn open(request: &WriteRequest) -> Result<Self> {
        let path = &request.path.0;
        if request.sparse && (request.append || request.in_place) {
            return Err(wrong("sparse", "goes neither with append nor with in_place"));
        }
        let owner = request.user.as_deref().map(passwd::require_user).transpose()?;
        let owner = owner.map(|user| (user.uid, user.gid));
        let target = follow_links(path).map_err(|error| about(path, error))?;
        if request.parents {
            make_parents(&target)?;
        }
        let old = fs::metadata(&target).ok();
        if let Some(old) = &old {
            if request.exclusive {
                return Err(Error::Exists(path.display().to_string()));
            }
            if !old.is_file() {
                return Err(Error::BadRequest(format!("{}: not a regular file", path.display())));
            }
        }
        if request.append || request.in_place || is_knob(&target) {
            return Self::open_in_place(request, target, owner);
        }
        let mut writer = Self::open_beside(target, request.exclusive)?;
        writer.mtime_ns = request.mtime_ns;
        let kept = old.as_ref();
        let owner = owner.or(kept.map(|old| (old.uid(), old.gid())));
        let mode = request
            .mode
            .map(|mode| mode.0)
            .or(kept.map(|old| old.mode() & 0o7777))
            .unwrap_or(0o644);
        writer.set_attributes(owner, Some(mode))?;
        writer.note(request)?;
        Ok(writer)
    }

    fn open_in_place(request: &WriteRequest, target: PathBuf, owner: Option<(u32, u32)>) -> Result<Self> {
        let knob = is_knob(&target);
        let file = OpenOptions::new()
            .append(request.append)
            .write(true)
            .create(!knob && !request.exclusive)
            .create_new(request.exclusive)
            .truncate(knob && !request.append)
            .mode(0o644)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&target)
            .map_err(|error| about(&target, error))?;
        let writer = Self {
            file,
            target,
            temporary: None,
            exclusive: false,
            mtime_ns: request.mtime_ns,
            bytes: 0,
        };
        writer.set_attributes(owner, request.mode.map(|mode| mode.0))?;
        writer.note(request)?;
        // Only now can nothing be refused any more. Whoever watches an empty file is told nothing.
        let failed = |error| about(&writer.target, error);
        if !knob && !request.append && writer.file.metadata().map_err(failed)?.len() > 0 {
            writer.file.set_len(0).map_err(failed)?;
        }
        Ok(writer)
    }

    fn open_beside(target: PathBuf, exclusive: bool) -> Result<Self> {
        let suffix = sys::random_hex::<6>().map_err(|error| about(&target, error))?;
        // The target's name may be as long as a name can be, so nothing is appended to it.
        let temporary = target.with_file_name(format!(".quicksand-{suffix}"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)
            .map_err(|error| about(&target, error))?;
        Ok(Self {
            file,
            target,
            temporary: Some(temporary),
            exclusive,
            mtime_ns: None,
            bytes: 0,
        })
    }

    /// Sets owner and mode. The owner comes first, because changing it clears the set-uid bits of
    /// the mode.
    fn set_attributes(&self, owner: Option<(u32, u32)>, mode: Option<u32>) -> Result<()> {
        let own = (
            sys::euid(),
            self.file.metadata().map_err(|error| about(&self.target, error))?.gid(),
        );
        if let Some((uid, gid)) = owner
            && owner != Some(own)
        {
            fchown(&self.file, Some(uid), Some(gid)).map_err(|error| about(&self.target, error))?;
        }
        if let Some(mode) = mode {
            let permissions = fs::Permissions::from_mode(mode);
            self.file
                .set_permissions(permissions)
                .map_err(|error| about(&self.target, error))?;
        }
        Ok(())
    }

    fn note(&self, request: &WriteRequest) -> Result<()> {
        match &request.metadata {
            Some(wanted) => metadata::replace(self.file.as_fd(), wanted, &self.target.display().to_string()),
            None => Ok(()),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| about(&self.target, error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes at a position, which must not lie before the end of the earlier writes. Fails with
    /// `BadRequest` when that leaves a hole in a file that is written in place.
    pub fn write_at(&mut self, bytes: &[u8], position: u64) -> Result<()> {
        if self.temporary.is_none() {
            self.require_no_hole(position)?;
            return self.write(bytes);
        }
        let written = self.file.write_all_at(bytes, position);
        written.map_err(|error| about(&self.target, error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file end there, perhaps with a hole. Fails as `write_at`.
    pub fn end_at(&mut self, size: u64) -> Result<()> {
        if self.temporary.is_none() {
            return self.require_no_hole(size);
        }
        self.file.set_len(size).map_err(|error| about(&self.target, error))
    }

    fn require_no_hole(&self, position: u64) -> Result<()> {
        if position == self.bytes {
            return Ok(());
        }
        let path = self.target.display();
        Err(Error::BadRequest(format!("{path}: cannot have holes")))
    }

    /// Puts the new file in place and returns its size in bytes. The file is as durable as any that
    /// a program in the guest writes. Clients that need more call `sync`.
    pub fn commit(&mut self) -> Result<u64> {
        if let Some(mtime_ns) = self.mtime_ns {
            sys::set_mtime(self.file.as_fd(), mtime_ns).map_err(|error| about(&self.target, error))?;
        }
        if let Some(temporary) = self.temporary.take() {
            let renamed = sys::rename(&temporary, &self.target, !self.exclusive);
            if let Err(error) = renamed {
                self.temporary = Some(temporary);
                return Err(about(&self.target, error));
            }
        }
        Ok(self.bytes)
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The name is all that is left to remove, and nobody else knows it.
            let _ = fs::remove_file(temporary);
        }
        debug_assert!(self.file.as_raw_fd() > 2);
    }
}

fn is_knob(target: &Path) -> bool {
    let parent = target.parent().unwrap_or(target);
    sys::statfs(parent).is_ok_and(|fs| KNOB_FILESYSTEMS.contains(&fs.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;
    use crate::base::params::Params;
    use serde_json::json;

    fn request(path: &Path) -> WriteRequest {
        serde_json::from_value::<Params>(json!({"path": path}))
            .unwrap()
            .take()
            .unwrap()
    }

    #[test]
    fn the_old_file_stays_until_the_commit_and_its_mode_is_kept() {
        let dir = std::env::temp_dir().join(format!("quicksand-writing-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut writer = FileWriter::open(&request(&path)).unwrap();
        writer.write(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(writer);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        let mut writer = FileWriter::open(&request(&path)).unwrap();
        writer.write(b"new").unwrap();
        assert_eq!(writer.commit().unwrap(), 3);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        let exclusive = WriteRequest {
            exclusive: true,
            ..request(&path)
        };
        assert_eq!(FileWriter::open(&exclusive).unwrap_err().code(), Code::Exists);
        let mut appended = FileWriter::open(&WriteRequest {
            append: true,
            ..request(&path)
        })
        .unwrap();
        appended.write(b"er").unwrap();
        appended.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_link_is_written_through() {
        let dir = std::env::temp_dir().join(format!("quicksand-through-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
        let mut writer = FileWriter::open(&request(&dir.join("link"))).unwrap();
        writer.write(b"x").unwrap();
        writer.commit().unwrap();
        assert!(fs::symlink_metadata(dir.join("link")).unwrap().is_symlink());
        assert_eq!(fs::read(dir.join("target")).unwrap(), b"x");
        fs::remove_dir_all(&dir).unwrap();
    }
}
