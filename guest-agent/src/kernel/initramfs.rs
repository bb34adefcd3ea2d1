//! The initramfs: the kernel modules that it carries, and deleting it after the root was switched.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

use crate::base::log::note;
use crate::base::sys;

const MODULES: &str = "/quicksand/modules";

/// Loads the modules that the initramfs lists: one path on each line, in the order of their
/// dependencies, with the module's options behind it. Returns whether there is such a list.
pub fn load_modules() -> bool {
    let Ok(list) = fs::read_to_string(MODULES) else {
        return false;
    };
    for line in list.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (path, options) = line.split_once(' ').unwrap_or((line, ""));
        match load_module(Path::new(path), options) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                note(&format!("module {path}: built in or loaded already"));
            }
            Err(error) => note(&format!("module {path}: {error}, skipped")),
        }
    }
    true
}

/// Has the kernel decompress a module, which newer ones can (Linux, MODULE_INIT_COMPRESSED_FILE).
const COMPRESSED: libc::c_int = 4;

/// Loads a module from a file.
pub fn load_module(path: &Path, options: &str) -> io::Result<()> {
    let is_plain = path.extension().is_none_or(|end| end == "ko");
    let flags = if is_plain { 0 } else { COMPRESSED };
    let file = sys::open(&sys::c_path(path)?, libc::O_RDONLY)?;
    let options = sys::c_string(options.as_bytes())?;
    // SAFETY: the options end with NUL.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), options.as_ptr(), flags) };
    sys::check(result as libc::c_int).map(|_| ())
}

const RAMFS_MAGIC: i64 = 0x8584_58f6;
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Frees the memory of the initramfs whose root directory is `root`. Does nothing unless it is a
/// file system in memory, so that no mistake can ever empty a disk.
pub fn delete(root: File) -> io::Result<()> {
    // SAFETY: both structs are plain data, for which zero is a valid value.
    let (mut fs, mut here): (libc::statfs, libc::stat) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: one statfs is stored.
    sys::check(unsafe { libc::fstatfs(root.as_raw_fd(), &mut fs) })?;
    if !matches!(fs.f_type, RAMFS_MAGIC | TMPFS_MAGIC) {
        return Ok(());
    }
    // SAFETY: one stat is stored.
    sys::check(unsafe { libc::fstat(root.as_raw_fd(), &mut here) })?;
    empty(root.into(), here.st_dev)
}

/// Removes what lies in `dir`, except for what is mounted there.
fn empty(dir: OwnedFd, device: libc::dev_t) -> io::Result<()> {
    for name in names(&dir)? {
        // SAFETY: stat is plain data, for which zero is a valid value.
        let mut entry: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the name ends with NUL; one stat is stored.
        let result = unsafe { libc::fstatat(dir.as_raw_fd(), name.as_ptr(), &mut entry, libc::AT_SYMLINK_NOFOLLOW) };
        if result < 0 || entry.st_dev != device {
            continue;
        }
        let is_dir = entry.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if is_dir {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
            // SAFETY: the name ends with NUL.
            let inner = unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags) };
            empty(sys::own(inner)?, device)?;
        }
        // Mount points cannot be removed, so failures are expected.
        // SAFETY: the name ends with NUL.
        unsafe {
            libc::unlinkat(
                dir.as_raw_fd(),
                name.as_ptr(),
                if is_dir { libc::AT_REMOVEDIR } else { 0 },
            )
        };
    }
    Ok(())
}

fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let copy = dir.as_fd().try_clone_to_owned()?;
    // SAFETY: the stream takes over the copy.
    let stream = unsafe { libc::fdopendir(copy.into_raw_fd()) };
    if stream.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    loop {
        // SAFETY: the stream is open and used by this thread only.
        let entry = unsafe { libc::readdir(stream) };
        if entry.is_null() {
            break;
        }
        // SAFETY: the kernel ends the name with NUL; it lives until the next readdir.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    // SAFETY: the stream is open; this ends it.
    unsafe { libc::closedir(stream) };
    Ok(names)
}
