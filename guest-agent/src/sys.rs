//! Safe wrappers around system calls that the standard library lacks. They fail with the error of
//! the system.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Turns the negative result of a system call into the error that errno says.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Fails with `InvalidInput` when the path contains a NUL byte.
pub fn c_path(path: &Path) -> io::Result<CString> {
    c_string(path.as_os_str().as_bytes())
}

/// Fails with `InvalidInput` when there is a NUL byte.
pub fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "contains a NUL byte"))
}

/// Takes ownership of the descriptor that a system call has just returned.
pub fn own(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the caller passes a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the number of bytes, which is 0 at the end.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `buffer`.
    check_size(unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// Reads into the spare capacity of `buffer`, which need not be zeroed. Returns the number of
/// bytes.
pub fn read_spare(fd: BorrowedFd<'_>, buffer: &mut bytes::BytesMut) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    // SAFETY: pointer and length describe the spare capacity.
    let count = check_size(unsafe { libc::read(fd.as_raw_fd(), spare.as_mut_ptr().cast(), spare.len()) })?;
    // SAFETY: the kernel has just initialised `count` bytes of it.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// `whence` is that of lseek(2). Returns the new position.
pub fn seek(fd: BorrowedFd<'_>, offset: u64, whence: libc::c_int) -> io::Result<u64> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: no memory is involved.
    let result = unsafe { libc::lseek64(fd.as_raw_fd(), offset, whence) };
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns the number of bytes that were written.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `bytes`.
    check_size(unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Moves up to `count` bytes of a pipe without copying them. Returns how many.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    let null = std::ptr::null_mut();
    // SAFETY: both offsets are null, as pipes and streams want it.
    check_size(unsafe { libc::splice(from.as_raw_fd(), null, to.as_raw_fd(), null, count, flags) })
}

/// How many bytes can be read at once. An error counts as none.
pub fn pending(fd: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD stores one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &mut count) };
    if result < 0 { 0 } else { count.max(0) as usize }
}

/// Makes a pipe: (read end, write end). Both are closed on exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: pipe2 stores two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((own(fds[0])?, own(fds[1])?))
}

/// Sets the size of a pipe in bytes. Failures are ignored, because an unprivileged user may have
/// reached the limit of pipe memory.
pub fn enlarge_pipe(fd: BorrowedFd<'_>, size: usize) {
    // SAFETY: F_SETPIPE_SZ takes an int.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, size as libc::c_int) };
}

pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: F_GETFL takes no argument.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: F_SETFL takes an int.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Opens a file that is closed on exec. `flags` are those of open(2).
pub fn open(path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: `path` ends with NUL; mode is only read with O_CREAT.
    own(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) })
}

/// Opens each of the descriptors 0 to 2 that is closed, with the first of `paths` that can be
/// opened, and lets children inherit it. Otherwise a pipe might get one of these numbers.
pub fn open_missing_streams(paths: &[&CStr]) {
    for target in 0..=2 {
        // SAFETY: F_GETFD takes no argument.
        if unsafe { libc::fcntl(target, libc::F_GETFD) } >= 0 {
            continue;
        }
        let opened = paths
            .iter()
            .find_map(|path| open(path, libc::O_RDWR | libc::O_NOCTTY).ok());
        if let Some(fd) = opened {
            become_stream(fd, target);
        }
    }
}

/// Makes `fd` the standard stream `target`, which children inherit.
fn become_stream(fd: OwnedFd, target: RawFd) {
    if fd.as_raw_fd() == target {
        // SAFETY: F_SETFD takes an int; the descriptor stays open for good.
        unsafe { libc::fcntl(fd.into_raw_fd(), libc::F_SETFD, 0) };
    } else {
        // SAFETY: both are descriptors; `fd` is closed when it is dropped.
        unsafe { libc::dup2(fd.as_raw_fd(), target) };
    }
}

/// The events of poll(2) that are set now, without waiting.
pub fn poll_now(fd: BorrowedFd<'_>) -> io::Result<libc::c_short> {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN | libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry is passed.
    check(unsafe { libc::poll(&mut entry, 1, 0) })?;
    Ok(entry.revents)
}

/// Makes an ioctl whose argument the kernel reads or writes.
pub fn ioctl<T>(fd: BorrowedFd<'_>, request: u64, argument: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: callers pass the type that belongs to the request.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::c_ulong as _, argument as *mut T) })
}

/// Makes an ioctl whose argument is a number.
pub fn ioctl_number(fd: BorrowedFd<'_>, request: u64, argument: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::c_ulong as _, argument) })
}

/// `target` is that of kill(2): a negative number is a process group.
pub fn kill(target: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::kill(target, signal) }).map(|_| ())
}

/// The time of one of the clocks of clock_gettime(2).
pub fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one timespec is stored.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}

/// Seconds since the guest booted, including the time when it was suspended.
pub fn uptime_s() -> f64 {
    clock(libc::CLOCK_BOOTTIME).as_secs_f64()
}

/// Nanoseconds since 1970.
pub fn unix_ns() -> i64 {
    clock(libc::CLOCK_REALTIME).as_nanos() as i64
}

/// Sets the clock to nanoseconds since 1970.
pub fn set_clock_ns(unix_ns: i64) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: unix_ns.div_euclid(1_000_000_000),
        tv_nsec: unix_ns.rem_euclid(1_000_000_000),
    };
    // SAFETY: one timespec is read.
    check(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) }).map(|_| ())
}

/// Fills at most 256 bytes with random ones.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe `bytes`; up to 256 bytes come whole.
    let count = check_size(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) })?;
    if count == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// `LENGTH` random bytes as hex digits.
pub fn random_hex<const LENGTH: usize>() -> io::Result<String> {
    let mut bytes = [0; LENGTH];
    random(&mut bytes)?;
    Ok(hex(&bytes))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length describe `name`.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(|_| ())
}

/// Writes all file systems to their disks.
pub fn sync() {
    // SAFETY: no arguments.
    unsafe { libc::sync() }
}

/// Writes the file system that `fd` lies on to its disk.
pub fn syncfs(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::syncfs(fd.as_raw_fd()) }).map(|_| ())
}

pub fn euid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Renames a file. If `replace` is false and the target exists, fails with EEXIST.
pub fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return std::fs::rename(from, to);
    }
    let (from, to) = (c_path(from)?, c_path(to)?);
    // SAFETY: both paths end with NUL.
    check(unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    })
    .map(|_| ())
}

/// Makes a hard link. A link at the end of `from` is followed if `follow` says so.
pub fn link(from: &Path, to: &Path, follow: bool) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    let flags = if follow { libc::AT_SYMLINK_FOLLOW } else { 0 };
    // SAFETY: both paths end with NUL.
    check(unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) }).map(|_| ())
}

/// What utimensat(2) takes: the time of the last access stays, that of the last change is
/// `mtime_ns` nanoseconds after the beginning of 1970.
fn times(mtime_ns: i64) -> [libc::timespec; 2] {
    let kept = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let changed = libc::timespec {
        tv_sec: mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: mtime_ns.rem_euclid(1_000_000_000),
    };
    [kept, changed]
}

/// Sets when an open file was last changed.
pub fn set_mtime(fd: BorrowedFd<'_>, mtime_ns: i64) -> io::Result<()> {
    // SAFETY: the two times live during the call.
    check(unsafe { libc::futimens(fd.as_raw_fd(), times(mtime_ns).as_ptr()) }).map(|_| ())
}

/// Sets when a file, a directory, or a link itself, was last changed.
pub fn set_mtime_of(path: &Path, mtime_ns: i64) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` ends with NUL and the two times live during the call.
    check(unsafe {
        libc::utimensat(
            libc::AT_FDCWD,
            path.as_ptr(),
            times(mtime_ns).as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    })
    .map(|_| ())
}

pub fn statfs(path: &Path) -> io::Result<libc::statfs> {
    let path = c_path(path)?;
    // SAFETY: statfs is plain data, for which zero is a valid value.
    let mut result: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with NUL and one statfs is stored.
    check(unsafe { libc::statfs(path.as_ptr(), &mut result) })?;
    Ok(result)
}

/// How many files programs may open at most, if they ask for it: what systemd gives
/// (systemd-system.conf(5), DefaultLimitNOFILE). The kernel gives 4096.
const FILES_AT_MOST: libc::rlim_t = 524_288;

/// Lets this process and those that it starts raise their limit of open files to
/// [`FILES_AT_MOST`]. The limit itself stays, because some programs rely on it: select(2) knows a
/// thousand.
pub fn allow_many_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one rlimit is stored.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 && limit.rlim_max < FILES_AT_MOST {
        limit.rlim_max = FILES_AT_MOST;
        // SAFETY: one rlimit is read.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// The limit of open files that the process was started with, set when it was raised.
static INHERITED_FILE_LIMIT: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the limit of open files, because many commands at a time need more than the usual
/// thousand descriptors. The commands themselves get the usual limit, because some programs rely on
/// it.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one rlimit is stored.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } < 0 {
        return;
    }
    INHERITED_FILE_LIMIT.get_or_init(|| limit);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: one rlimit is read.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}

/// The limit of open files for children, if the agent's own was raised.
pub fn inherited_file_limit() -> Option<libc::rlimit> {
    INHERITED_FILE_LIMIT.get().copied()
}

/// Sets the name that `ps` and `top` show. Otherwise it would be that of the link in /proc that was
/// executed.
pub fn set_process_name(name: &CStr) {
    // SAFETY: the name ends with NUL and is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Registers a non-blocking descriptor with the runtime.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always gives the same descriptor and keeps it open.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
