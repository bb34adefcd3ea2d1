//! Mounting, and moving to another root.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;
use std::ptr;

use crate::log::note;
use crate::sys;

const PLAIN: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

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

/// What every step of the boot needs. Mounted already is fine.
pub fn mount_kernel_filesystems() {
    try_mount("proc", "/proc", "proc", PLAIN, "");
    try_mount("sysfs", "/sys", "sysfs", PLAIN, "");
    try_mount("devtmpfs", "/dev", "devtmpfs", libc::MS_NOSUID, "mode=0755");
}

/// What programs expect of a running system; inside the final root.
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

/// devtmpfs lacks the names that stand for a process's own streams.
fn make_links() {
    for (name, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        // There already, or a /dev that we may not change: both are fine.
        let _ = std::os::unix::fs::symlink(target, name);
    }
}

fn try_mount(source: &str, target: &str, fstype: &str, flags: libc::c_ulong, data: &str) {
    // On a read-only root the directory must exist already; mount says so.
    let _ = fs::create_dir_all(target);
    match mount(source, Path::new(target), fstype, flags, data) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
        Err(error) => note(&format!("mount {target}: {error}")),
    }
}

/// Makes `root` the root directory and takes the kernel file systems along.
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

/// Before power-off: what cannot be unmounted is at least made clean.
pub fn remount_read_only(target: &Path) -> io::Result<()> {
    let target = sys::c_path(target)?;
    let flags = libc::MS_REMOUNT | libc::MS_RDONLY;
    // SAFETY: the path ends with NUL; nothing else is read for a remount.
    sys::check(unsafe { libc::mount(ptr::null(), target.as_ptr(), ptr::null(), flags, ptr::null()) }).map(|_| ())
}
