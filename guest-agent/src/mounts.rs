//! Mounts file systems and moves to another root.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use crate::log::note;
use crate::sys;

const PLAIN: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// Calls mount(2). `flags` are its flags and `data` are the options of the file system.
pub fn mount(source: &str, target: &Path, fstype: &str, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let source = sys::c_string(source.as_bytes())?;
    let target = sys::c_path(target)?;
    let fstype = sys::c_string(fstype.as_bytes())?;
    let data = sys::c_string(data.as_bytes())?;
    // SAFETY: all four strings end with NUL.
    sys::check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            fstype.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })
    .map(|_| ())
}

/// A file system that is being configured (fsopen(2)), and attached only when it is ready.
#[derive(Debug)]
pub struct Context(OwnedFd);

// linux/mount.h
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const SET_FLAG: libc::c_uint = 0;
const SET_STRING: libc::c_uint = 1;
const CREATE: libc::c_uint = 6;
const ATTR_RDONLY: libc::c_uint = 1;
const ATTR_NOSUID: libc::c_uint = 2;
const ATTR_NODEV: libc::c_uint = 4;
const MOVE_FROM_EMPTY_PATH: libc::c_uint = 4;

impl Context {
    pub fn open(fstype: &str) -> io::Result<Self> {
        let fstype = sys::c_string(fstype.as_bytes())?;
        // SAFETY: the name ends with NUL.
        let fd = unsafe { libc::syscall(libc::SYS_fsopen, fstype.as_ptr(), FSOPEN_CLOEXEC) };
        sys::own(fd as libc::c_int).map(Self)
    }

    /// Mounts it, without a place yet. `options` are names, or names and values with a `=`.
    pub fn mount(&self, source: &[u8], options: &[String], read_only: bool) -> io::Result<OwnedFd> {
        self.set("source", Some(source))?;
        for option in options {
            match option.split_once('=') {
                Some((name, value)) => self.set(name, Some(value.as_bytes()))?,
                None => self.set(option, None)?,
            }
        }
        let mut attributes = ATTR_NOSUID | ATTR_NODEV;
        if read_only {
            self.set("ro", None)?;
            attributes |= ATTR_RDONLY;
        }
        self.configure(CREATE, ptr::null(), ptr::null())?;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::syscall(libc::SYS_fsmount, self.0.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) };
        sys::own(fd as libc::c_int)
    }

    fn set(&self, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        let name = sys::c_string(name.as_bytes())?;
        let value = value.map(sys::c_string).transpose()?;
        match value {
            Some(value) => self.configure(SET_STRING, name.as_ptr(), value.as_ptr()),
            None => self.configure(SET_FLAG, name.as_ptr(), ptr::null()),
        }
    }

    fn configure(
        &self,
        command: libc::c_uint,
        name: *const libc::c_char,
        value: *const libc::c_char,
    ) -> io::Result<()> {
        // SAFETY: both strings end with NUL, or are null where the command takes none.
        let result = unsafe { libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, name, value, 0) };
        sys::check(result as libc::c_int).map(|_| ())
    }

    /// What the file system says about its last failure, if it says something.
    pub fn complaint(&self) -> Option<String> {
        let mut text = [0; 512];
        let length = sys::read(self.0.as_fd(), &mut text).ok()?;
        // It begins with its kind, such as `e ` for an error.
        let said = String::from_utf8_lossy(text[..length].get(2..)?).trim().to_owned();
        (!said.is_empty()).then_some(said)
    }
}

/// Puts what `Context::mount` has mounted in its place.
pub fn attach(mounted: &OwnedFd, target: &Path) -> io::Result<()> {
    let target = sys::c_path(target)?;
    // SAFETY: both paths end with NUL.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mounted.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_FROM_EMPTY_PATH,
        )
    };
    sys::check(result as libc::c_int).map(|_| ())
}

/// Mounts what every step of the boot needs. It is fine if something is mounted already.
pub fn mount_kernel_filesystems() {
    try_mount("proc", "/proc", "proc", PLAIN, "");
    try_mount("sysfs", "/sys", "sysfs", PLAIN, "");
    try_mount("devtmpfs", "/dev", "devtmpfs", libc::MS_NOSUID, "mode=0755");
}

/// Mounts what programs expect of a running system. To be called inside the final root.
pub fn mount_user_filesystems(with_cgroups: bool) {
    let quiet = libc::MS_NOSUID | libc::MS_NODEV;
    try_mount(
        "devpts",
        "/dev/pts",
        "devpts",
        libc::MS_NOSUID | libc::MS_NOEXEC,
        "gid=5,mode=620,ptmxmode=666",
    );
    try_mount("tmpfs", "/dev/shm", "tmpfs", quiet, "mode=1777");
    try_mount("tmpfs", "/run", "tmpfs", quiet, "mode=0755,size=20%");
    if with_cgroups {
        try_mount("cgroup2", "/sys/fs/cgroup", "cgroup2", PLAIN, "");
    }
    make_links();
}

/// Makes the names of a process's own streams, which devtmpfs lacks.
fn make_links() {
    for (name, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        // The link may exist already, or /dev may be one that the agent cannot change. Both are
        // fine.
        let _ = std::os::unix::fs::symlink(target, name);
    }
}

fn try_mount(source: &str, target: &str, fstype: &str, flags: libc::c_ulong, data: &str) {
    // On a read-only root the directory has to exist already. If it does not, mount reports it.
    let _ = fs::create_dir_all(target);
    match mount(source, Path::new(target), fstype, flags, data) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
        Err(error) => note(&format!("mount {target}: {error}")),
    }
}

/// Makes `root` the root directory and moves the kernel's file systems there.
pub fn switch_root(root: &Path) -> io::Result<()> {
    for name in ["dev", "proc", "sys"] {
        let target = root.join(name);
        let _ = fs::create_dir(&target);
        if let Err(error) = mount(&format!("/{name}"), &target, "", libc::MS_MOVE, "") {
            note(&format!("move /{name}: {error}"));
        }
    }
    std::env::set_current_dir(root)?;
    mount(".", Path::new("/"), "", libc::MS_MOVE, "")?;
    let here = CString::from(c".");
    // SAFETY: the path ends with NUL.
    sys::check(unsafe { libc::chroot(here.as_ptr()) })?;
    std::env::set_current_dir("/")
}

/// Marks a file system as clean before power-off, since the root cannot be unmounted.
pub fn remount_read_only(target: &Path) -> io::Result<()> {
    let target = sys::c_path(target)?;
    let flags = libc::MS_REMOUNT | libc::MS_RDONLY;
    // SAFETY: the path ends with NUL; nothing else is read for a remount.
    sys::check(unsafe { libc::mount(ptr::null(), target.as_ptr(), ptr::null(), flags, ptr::null()) }).map(|_| ())
}
