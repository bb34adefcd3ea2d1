//! Which thread runs where, and before which others (sched(7)).

use std::fs;
use std::io;
use std::mem;

use crate::sys::check;

/// Of this thread: a real-time one (SCHED_FIFO), or as any other program's.
pub fn set_priority(real_time: Option<i32>) -> io::Result<()> {
    set_priority_of(0, real_time)
}

/// Of all threads of this process that there are; those to come take over that of
/// the one that starts them.
pub fn set_priority_of_all(real_time: Option<i32>) -> io::Result<()> {
    for task in fs::read_dir("/proc/self/task")? {
        let Some(id) = task?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match set_priority_of(id, real_time) {
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => result?,
        }
    }
    Ok(())
}

fn set_priority_of(thread: libc::pid_t, real_time: Option<i32>) -> io::Result<()> {
    let policy = real_time.map_or(libc::SCHED_OTHER, |_| libc::SCHED_FIFO);
    // SAFETY: all zero is a valid value of this plain struct.
    let mut parameters: libc::sched_param = unsafe { mem::zeroed() };
    parameters.sched_priority = real_time.unwrap_or(0);
    // SAFETY: one sched_param is read.
    check(unsafe { libc::sched_setscheduler(thread, policy, &parameters) })?;
    Ok(())
}

/// The processors that this process may run on.
pub fn processors() -> io::Result<Vec<usize>> {
    // SAFETY: all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: one set is stored.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    // SAFETY: the numbers are below the set's size.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect())
}

/// Keeps this thread on one processor.
pub fn run_on(cpu: usize) -> io::Result<()> {
    // SAFETY: all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `processors` gave the number, which is below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: one set is read.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) })?;
    Ok(())
}
