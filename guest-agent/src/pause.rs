//! Keeps every program but the agent from running for a moment.
//!
//! The host lets a machine that waits for a revert go through the first steps after it, so that an
//! emulator has translated their code. Until the revert, no program of the user may make progress.
//! So one thread for each processor takes all of its time, at a real-time priority below the
//! agent's own. To programs this looks like a busy host. They could notice a signal, or the freezer
//! of control groups.

use std::fs;
use std::hint;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::log::note;
use crate::sys::check;

/// The agent's priority is above that of the threads that only take time, and below that of the
/// kernel's own threads.
const OF_AGENT: i32 = 2;
const OF_SPINNER: i32 = 1;
/// The number of microseconds of each second for which real-time threads may run. -1 means all of
/// them (sched(7)).
const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// A thread spins for this many rounds before it looks at the clock again.
const ROUNDS: usize = 1000;

/// All programs but the agent. All clones control the same pause.
#[derive(Clone, Debug, Default)]
pub struct Programs(Arc<Mutex<Option<Pause>>>);

#[derive(Debug)]
struct Pause {
    over: Arc<AtomicBool>,
    /// The contents of `RT_RUNTIME` before the pause.
    rt_runtime: Option<String>,
}

impl Programs {
    /// Stops all programs before this returns, and lets them go on after `limit` at the latest.
    pub fn pause(&self, limit: Duration) -> io::Result<()> {
        self.resume();
        let over = Arc::new(AtomicBool::new(false));
        *self.state() = Some(Pause {
            over: over.clone(),
            rt_runtime: lift_rt_limit(),
        });
        let result = set_priority_of_all(Some(OF_AGENT)).and_then(|()| self.take_processors(&over, limit));
        if result.is_err() {
            self.resume();
        }
        result
    }

    /// Lets the programs go on. Does nothing if they are running.
    pub fn resume(&self) {
        let paused = self.state().take();
        if let Some(pause) = paused {
            pause.end();
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<Pause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_processors(&self, over: &Arc<AtomicBool>, limit: Duration) -> io::Result<()> {
        let (ready, is_ready) = mpsc::channel();
        for cpu in processors()? {
            let (programs, over, ready) = (self.clone(), over.clone(), ready.clone());
            thread::Builder::new().name("take-time".into()).spawn(move || {
                let result = run_on(cpu).and_then(|()| set_priority(Some(OF_SPINNER)));
                let is_set = result.is_ok();
                // The caller may have given up.
                let _ = ready.send(result);
                drop(ready);
                if is_set {
                    spin(&over, limit);
                    programs.lapse(&over);
                }
            })?;
        }
        drop(ready);
        is_ready.into_iter().collect()
    }

    /// Ends the pause that `over` belongs to, because its time is over. Another pause stays.
    fn lapse(&self, over: &Arc<AtomicBool>) {
        let paused = self.state().take_if(|pause| Arc::ptr_eq(&pause.over, over));
        if let Some(pause) = paused {
            pause.end();
            note("nobody let the programs go on: done");
        }
    }
}

impl Pause {
    fn end(self) {
        self.over.store(true, Relaxed);
        let restored = self.rt_runtime.map_or(Ok(()), |value| fs::write(RT_RUNTIME, value));
        if let Err(error) = restored.and_then(|()| set_priority_of_all(None)) {
            note(&format!("letting the programs go on: {error}"));
        }
    }
}

/// Lets real-time threads use all of the time. If the kernel has no such limit, or /proc is
/// read-only, the other programs keep a twentieth of the time.
fn lift_rt_limit() -> Option<String> {
    let before = fs::read_to_string(RT_RUNTIME).ok()?;
    fs::write(RT_RUNTIME, "-1").ok()?;
    Some(before)
}

fn spin(over: &AtomicBool, limit: Duration) {
    let begun = Instant::now();
    while !over.load(Relaxed) && begun.elapsed() < limit {
        for _ in 0..ROUNDS {
            hint::spin_loop();
        }
    }
}

/// Makes this thread a real-time one (SCHED_FIFO) of the given priority, or an ordinary one.
pub fn set_priority(real_time: Option<i32>) -> io::Result<()> {
    set_priority_of(0, real_time)
}

/// Sets the priority of every thread of this process. A new thread inherits the priority of the one
/// that starts it.
pub fn set_priority_of_all(real_time: Option<i32>) -> io::Result<()> {
    for task in fs::read_dir("/proc/self/task")? {
        let Some(id) = task?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match set_priority_of(id, real_time) {
            // The thread has ended in between.
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

/// Returns the numbers of the processors that this process may run on.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_given_back_when_the_time_is_over_or_before() {
        let over = AtomicBool::new(false);
        spin(&over, Duration::from_millis(1));
        over.store(true, Relaxed);
        spin(&over, Duration::from_secs(3600));
    }

    #[test]
    fn only_its_own_time_ends_a_pause() {
        let programs = Programs::default();
        let over = Arc::new(AtomicBool::new(false));
        *programs.state() = Some(Pause {
            over: over.clone(),
            rt_runtime: None,
        });
        programs.lapse(&Arc::new(AtomicBool::new(false)));
        assert!(programs.state().is_some());
        programs.lapse(&over);
        assert!(programs.state().is_none());
        assert!(over.load(Relaxed));
    }
}
