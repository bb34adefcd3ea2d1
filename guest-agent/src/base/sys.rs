//! Safe wrappers around system calls that the standard library lacks. They fail with the error of
//! the system.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, StatFs, Timespec, Timestamps, UTIME_OMIT};
use rustix::pipe::{PipeFlags, SpliceFlags};
use rustix::rand::GetRandomFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Turns the negative result of a system call into the error of errno.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
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
    Ok(rustix::io::read(fd, buffer)?)
}

/// Reads into the spare capacity of `buffer`, which need not be zeroed. Returns the number of
/// bytes.
pub fn read_spare(fd: BorrowedFd<'_>, buffer: &mut bytes::BytesMut) -> io::Result<usize> {
    let (filled, _) = rustix::io::read(fd, buffer.spare_capacity_mut())?;
    let count = filled.len();
    // SAFETY: the kernel has just initialised `count` bytes of the spare capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// Returns the number of bytes that were written.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, bytes)?)
}

/// Moves up to `count` bytes of a pipe without copying them. Returns how many.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(rustix::pipe::splice(from, None, to, None, count, flags)?)
}

/// Returns the number of bytes that can be read at once. An error counts as none.
pub fn pending(fd: BorrowedFd<'_>) -> usize {
    rustix::io::ioctl_fionread(fd).map_or(0, |count| count as usize)
}

/// Makes a pipe: (read end, write end). Both are closed on exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Sets the size of a pipe in bytes. Failures are ignored, because an unprivileged user may have
/// reached the limit of pipe memory.
pub fn enlarge_pipe(fd: BorrowedFd<'_>, size: usize) {
    let _ = rustix::pipe::fcntl_setpipe_size(fd, size);
}

pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Opens a file that is closed on exec. `flags` are those of open(2).
pub fn open(path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
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

/// Returns the events of poll(2) that are set now, without waiting.
pub fn poll_now(fd: BorrowedFd<'_>) -> io::Result<PollFlags> {
    let mut entry = [PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut entry, Some(&at_once))?;
    Ok(entry[0].revents())
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

/// Returns the processor's time that this thread has used.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the ids of all processes. Fails when /proc cannot be read.
pub fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// Sends a signal. `target` is that of kill(2): a negative number is a process group.
pub fn kill(target: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::kill(target, signal) }).map(|_| ())
}

/// Returns the time of one of the clocks of clock_gettime(2).
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
    let length = bytes.len();
    // Up to 256 bytes come whole.
    let count = rustix::rand::getrandom(bytes, GetRandomFlags::empty())?;
    if count == length {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns `LENGTH` random bytes as hex digits.
pub fn random_hex<const LENGTH: usize>() -> io::Result<String> {
    let mut bytes = [0; LENGTH];
    random(&mut bytes)?;
    Ok(hex(&bytes))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// Writes all file systems to their disks.
pub fn sync() {
    rustix::fs::sync();
}

/// Writes the file system that `fd` lies on to its disk.
pub fn syncfs(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fd)?)
}

pub fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub fn egid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Renames a file. If `replace` is false and the target exists, fails with EEXIST.
pub fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return std::fs::rename(from, to);
    }
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Makes a hard link. A link at the end of `from` is followed if `follow` says so.
pub fn link(from: &Path, to: &Path, follow: bool) -> io::Result<()> {
    let flags = if follow {
        AtFlags::SYMLINK_FOLLOW
    } else {
        AtFlags::empty()
    };
    Ok(rustix::fs::linkat(CWD, from, CWD, to, flags)?)
}

/// Returns times for utimensat(2). The time of the last access stays, and the time of the last
/// change is `mtime_ns`, in nanoseconds since 1970.
fn times(mtime_ns: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime_ns.div_euclid(1_000_000_000),
            tv_nsec: mtime_ns.rem_euclid(1_000_000_000),
        },
    }
}

/// Sets the time of the last change of an open file.
pub fn set_mtime(fd: BorrowedFd<'_>, mtime_ns: i64) -> io::Result<()> {
    Ok(rustix::fs::futimens(fd, &times(mtime_ns))?)
}

/// Sets the time of the last change of a file, of a directory, or of a link itself.
pub fn set_mtime_of(path: &Path, mtime_ns: i64) -> io::Result<()> {
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times(mtime_ns),
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

pub fn statfs(path: &Path) -> io::Result<StatFs> {
    Ok(rustix::fs::statfs(path)?)
}

/// The number of files that programs may open if they ask for it. systemd gives as many
/// (systemd-system.conf(5), DefaultLimitNOFILE); the kernel gives 4096.
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

/// Returns the limit of open files for children, if the agent's own was raised.
pub fn inherited_file_limit() -> Option<libc::rlimit> {
    INHERITED_FILE_LIMIT.get().copied()
}

/// Sets the name that `ps` and `top` show. Otherwise it would be that of the link in /proc that was
/// executed.
pub fn set_process_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Registers a non-blocking descriptor with the runtime.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always gives the same descriptor and keeps it open.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
