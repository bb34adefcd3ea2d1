//! Mounts file systems and moves to another root.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, mount_move, move_mount,
};

use crate::base::log::note;
use crate::base::sys;

const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Calls mount(2). `data` are the options of the file system.
pub fn mount(source: &str, target: &Path, fstype: &str, flags: MountFlags, data: &str) -> io::Result<()> {
    let data = sys::c_string(data.as_bytes())?;
    Ok(rustix::mount::mount(source, target, fstype, flags, data.as_c_str())?)
}

/// A file system that is being configured (fsopen(2)), and attached only when it is ready.
#[derive(Debug)]
pub struct Context(OwnedFd);

impl Context {
    pub fn open(fstype: &str) -> io::Result<Self> {
        Ok(Self(fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC)?))
    }

    /// Mounts the file system without a place in the tree. `options` are names, or names and values
    /// with a `=`.
    pub fn mount(&self, source: &[u8], options: &[String], read_only: bool) -> io::Result<OwnedFd> {
        fsconfig_set_string(&self.0, "source", source)?;
        for option in options {
            match option.split_once('=') {
                Some((name, value)) => fsconfig_set_string(&self.0, name, value)?,
                None => fsconfig_set_flag(&self.0, option.as_str())?,
            }
        }
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if read_only {
            fsconfig_set_flag(&self.0, "ro")?;
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        fsconfig_create(&self.0)?;
        Ok(fsmount(&self.0, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
    }

    /// Returns the file system's own words about its last failure, if it has any.
    pub fn complaint(&self) -> Option<String> {
        let mut text = [0; 512];
        let length = sys::read(self.0.as_fd(), &mut text).ok()?;
        // It begins with its kind, such as `e ` for an error.
        let said = String::from_utf8_lossy(text[..length].get(2..)?).trim().to_owned();
        (!said.is_empty()).then_some(said)
    }
}

/// Puts a result of `Context::mount` in its place.
pub fn attach(mounted: &OwnedFd, target: &Path) -> io::Result<()> {
    Ok(move_mount(
        mounted,
        c"",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?)
}

/// Mounts the file systems that every step of the boot needs. Those that are mounted already stay.
pub fn mount_kernel_filesystems() {
    try_mount("proc", "/proc", "proc", PLAIN, "");
    try_mount("sysfs", "/sys", "sysfs", PLAIN, "");
    try_mount("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID, "mode=0755");
}

/// Mounts the file systems that programs expect of a running system. To be called inside the final
/// root.
pub fn mount_user_filesystems(with_cgroups: bool) {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    try_mount(
        "devpts",
        "/dev/pts",
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
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

fn try_mount(source: &str, target: &str, fstype: &str, flags: MountFlags, data: &str) {
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
        if let Err(error) = mount_move(format!("/{name}"), &target) {
            note(&format!("move /{name}: {error}"));
        }
    }
    std::env::set_current_dir(root)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")
}

/// Marks a file system as clean before power-off, since the root cannot be unmounted.
pub fn remount_read_only(target: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(target, MountFlags::RDONLY, c"")?)
}
