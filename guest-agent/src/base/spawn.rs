//! Starts programs as fast as posix_spawn, but with everything that the agent needs between fork
//! and exec.
//!
//! The child shares the agent's memory until it execs (`CLONE_VM | CLONE_VFORK`), so no page table
//! is copied. It must only make plain system calls: no allocation, no locks, and no libc function
//! that looks after other threads. That is why the credentials are set by raw system calls.

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_char, c_int, pid_t};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{oom, sys};

const STACK_SIZE: usize = 64 * 1024;

/// The ids that a program runs with.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Writes them as arguments of a program: the user, the group, and all groups.
    pub fn to_words(&self) -> Vec<String> {
        let ids = [self.uid, self.gid].into_iter().chain(self.groups.iter().copied());
        ids.map(|id| id.to_string()).collect()
    }

    /// Reads what `to_words` writes.
    pub fn parse(words: &[String]) -> Option<Self> {
        let ids: Option<Vec<u32>> = words.iter().map(|word| word.parse().ok()).collect();
        match ids?.as_slice() {
            [uid, gid, groups @ ..] => Some(Self {
                uid: *uid,
                gid: *gid,
                groups: groups.to_vec(),
            }),
            _ => None,
        }
    }
}

/// Everything that is needed to start a program.
#[derive(Debug)]
pub struct Launch {
    /// Paths that are tried in order, as a search of `PATH` does.
    pub candidates: Vec<CString>,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    /// `None` keeps those of the agent.
    pub credentials: Option<Credentials>,
}

/// A child leads a process group, or a session on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    Group,
    Terminal,
}

/// The step at which a child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Clone,
    Terminal,
    Stdio,
    User,
    Cwd,
    Exec,
}

/// The step at which a program could not be started, and the system's error.
#[derive(Debug)]
pub struct SpawnError {
    pub step: Step,
    pub source: io::Error,
}

/// A child that has not been reaped, so that its pid and its group are still its own.
#[derive(Debug)]
pub struct Child {
    pub pid: pid_t,
    pidfd: AsyncFd<OwnedFd>,
}

impl Child {
    /// Waits until the process has ended. It stays a zombie until `reap`.
    pub async fn exited(&self) {
        if self.pidfd.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn signal_group(&self, signal: c_int) {
        // The group may have ended already; then there is nobody to signal.
        let _ = sys::kill(-self.pid, signal);
    }

    /// Returns the wait status. To be called after `exited`.
    pub fn reap(self) -> c_int {
        wait(self.pid)
    }
}

/// Everything that the child reads, and the error that it leaves behind.
struct Plan {
    leads: Leads,
    stdio: [RawFd; 3],
    candidates: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: *const c_char,
    credentials: Option<Credentials>,
    file_limit: Option<libc::rlimit>,
    failed: Option<(Step, c_int)>,
}

impl Plan {
    /// Makes a plan that points into `launch`, which must outlive it.
    fn new(launch: &Launch, stdio: [RawFd; 3], leads: Leads) -> Self {
        Self {
            leads,
            stdio,
            candidates: launch.candidates.iter().map(|path| path.as_ptr()).collect(),
            argv: pointers(&launch.argv),
            env: pointers(&launch.env),
            cwd: launch.cwd.as_ptr(),
            credentials: launch.credentials.clone(),
            file_limit: sys::inherited_file_limit(),
            failed: None,
        }
    }
}

/// Starts a program. The descriptors of `stdio` must be above 2, or the copies would overwrite each
/// other. Returns when the child has execed or failed.
pub fn spawn(launch: &Launch, stdio: [RawFd; 3], leads: Leads) -> Result<Child, SpawnError> {
    let mut plan = Plan::new(launch, stdio, leads);
    let clone_error = |source| SpawnError {
        step: Step::Clone,
        source,
    };
    let (pid, pidfd) = clone_child(&mut plan).map_err(clone_error)?;
    if let Some((step, errno)) = plan.failed {
        wait(pid);
        return Err(SpawnError {
            step,
            source: io::Error::from_raw_os_error(errno),
        });
    }
    match sys::watch(pidfd, Interest::READABLE) {
        Ok(pidfd) => Ok(Child { pid, pidfd }),
        Err(error) => {
            let _ = sys::kill(pid, libc::SIGKILL);
            wait(pid);
            Err(clone_error(error))
        }
    }
}

/// Waits for a child that has ended or is about to, and reaps it. Returns the wait status.
pub fn wait(pid: pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: one int is stored.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    status
}

/// Returns an array with a null pointer at its end, as exec wants it.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

fn clone_child(plan: &mut Plan) -> io::Result<(pid_t, OwnedFd)> {
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_SIZE / size_of::<u128>());
    let top = stack.as_mut_ptr().wrapping_add(stack.capacity());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: c_int = -1;
    let lifted = oom::lift()?;
    let mut old_mask = empty_signal_set();
    // A signal handler that ran in the child would run on the agent's memory.
    // SAFETY: both sets are valid; the old mask is restored below.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &full_signal_set(), &mut old_mask) };
    // SAFETY: the stack is unused and outlives the child's use of it, because
    // CLONE_VFORK suspends this thread until the child execs or exits; `plan`
    // is valid for the same reason.
    let pid = unsafe {
        libc::clone(
            run_child,
            top.cast::<c_void>(),
            flags,
            ptr::from_mut(plan).cast::<c_void>(),
            &raw mut pidfd,
        )
    };
    let result = sys::check(pid);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old_mask, ptr::null_mut()) };
    drop(lifted);
    Ok((result?, sys::own(pidfd)?))
}

extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passes a Plan and is suspended while we run.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    let step = prepare_and_exec(plan);
    plan.failed = Some((step, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)));
    // SAFETY: ends only this process and runs no exit handlers.
    unsafe { libc::_exit(127) }
}

/// Prepares the child and executes the program. Returns only on failure, with the step that failed
/// and errno set.
fn prepare_and_exec(plan: &Plan) -> Step {
    // SAFETY: all of these are plain system calls on values of the plan, which
    // the suspended parent keeps alive.
    unsafe {
        match plan.leads {
            Leads::Group => {
                libc::setpgid(0, 0);
            }
            Leads::Terminal => {
                libc::setsid();
                if libc::ioctl(plan.stdio[0], libc::TIOCSCTTY as _, 0) < 0 {
                    return Step::Terminal;
                }
            }
        }
        for (target, fd) in plan.stdio.iter().enumerate() {
            if libc::dup2(*fd, target as c_int) < 0 {
                return Step::Stdio;
            }
        }
        libc::umask(0o022);
        if let Some(limit) = &plan.file_limit {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        if let Some(credentials) = &plan.credentials
            && !set_credentials(credentials, Ids::All)
        {
            return Step::User;
        }
        if libc::chdir(plan.cwd) < 0 {
            return Step::Cwd;
        }
        // Rust's runtime ignores this signal. All others have their default actions.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &empty_signal_set(), ptr::null_mut());
        exec(plan);
    }
    Step::Exec
}

/// The ids that a change of credentials concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    All,
    /// Those by which the kernel decides what the thread may do.
    Effective,
}

/// Sets the credentials by raw system calls, because libc's wrappers would change the agent's
/// threads, too.
unsafe fn set_credentials(credentials: &Credentials, which: Ids) -> bool {
    let Credentials { uid, gid, groups } = credentials;
    // Such an id stays as it is (setresuid(2)).
    const UNCHANGED: u32 = u32::MAX;
    let other = |id: u32| if which == Ids::All { id } else { UNCHANGED };
    // SAFETY: pointer and length describe `groups`.
    unsafe {
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
            && libc::syscall(libc::SYS_setresgid, other(*gid), *gid, other(*gid)) == 0
            && libc::syscall(libc::SYS_setresuid, other(*uid), *uid, other(*uid)) == 0
    }
}

/// Gives this thread, and no other, the ids of a user for the rest of its life. The user may then
/// signal it, so it must not belong to the agent.
pub fn become_user(credentials: &Credentials) -> io::Result<()> {
    take_on(credentials, Ids::All)
}

/// Gives this thread, and no other, the rights of a user for the rest of its life. Its real and its
/// saved ids stay the agent's: by those the kernel decides who may signal and trace a thread, and
/// who may signal a thread may kill its process (kill(2), ptrace(2)).
pub fn act_as(credentials: &Credentials) -> io::Result<()> {
    take_on(credentials, Ids::Effective)
}

fn take_on(credentials: &Credentials, which: Ids) -> io::Result<()> {
    // SAFETY: only this thread's credentials change.
    if unsafe { set_credentials(credentials, which) } {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tries the candidates like execvp: a candidate that must not be executed does not hide a later
/// one.
unsafe fn exec(plan: &Plan) {
    let mut forbidden = false;
    for path in &plan.candidates {
        // SAFETY: path, argv and env are terminated and alive; errno is ours.
        unsafe {
            libc::execve(*path, plan.argv.as_ptr(), plan.env.as_ptr());
            match *libc::__errno_location() {
                libc::EACCES => forbidden = true,
                libc::ENOENT | libc::ENOTDIR => {}
                _ => return,
            }
        }
    }
    if forbidden {
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = libc::EACCES };
    }
}

fn empty_signal_set() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data, and sigemptyset initialises it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

fn full_signal_set() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data, and sigfillset initialises it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        set
    }
}

/// Converts a wait status into (exit code, signal) as a shell shows them. A program that was killed
/// has the exit code 128 plus the signal.
pub fn decode_status(status: c_int) -> (i32, Option<i32>) {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        (128 + signal, Some(signal))
    } else {
        (libc::WEXITSTATUS(status), None)
    }
}

/// Runs a program of the guest with the agent's streams and returns its exit code. Blocks the
/// thread until the program has ended.
pub fn run_tool(argv: &[&str]) -> io::Result<i32> {
    let env = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"];
    let pid = spawn_detached(argv.first().unwrap_or(&""), argv, &env)?;
    Ok(decode_status(wait(pid)).0)
}

/// Starts a program in a group of its own with the agent's streams. Returns its pid; the caller has
/// to reap it.
pub fn spawn_detached(program: &str, argv: &[&str], env: &[&str]) -> io::Result<pid_t> {
    let strings = |list: &[&str]| -> io::Result<Vec<CString>> {
        list.iter().map(|text| sys::c_string(text.as_bytes())).collect()
    };
    let launch = Launch {
        candidates: strings(&[program])?,
        argv: strings(argv)?,
        env: strings(env)?,
        cwd: c"/".to_owned(),
        credentials: None,
    };
    let mut plan = Plan::new(&launch, [0, 1, 2], Leads::Group);
    let (pid, _pidfd) = clone_child(&mut plan)?;
    match plan.failed {
        Some((_, errno)) => {
            wait(pid);
            Err(io::Error::from_raw_os_error(errno))
        }
        None => Ok(pid),
    }
}

/// Opens `/dev/null`.
pub fn open_null() -> io::Result<OwnedFd> {
    let fd = sys::open(c"/dev/null", libc::O_RDWR)?;
    debug_assert!(std::os::fd::AsRawFd::as_raw_fd(&fd.as_fd()) > 2);
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        assert_eq!(decode_status(0), (0, None));
        assert_eq!(decode_status(3 << 8), (3, None));
        assert_eq!(decode_status(libc::SIGKILL), (137, Some(9)));
        assert_eq!(decode_status(libc::SIGSEGV | 0x80), (139, Some(11)));
    }
}
