//! Keeping every program but the agent from running, for a moment.
//!
//! The host lets a machine that waits for a revert go through the first steps
//! after one, so that an emulator has translated their code; until the revert
//! nothing of the user may get ahead. So one thread for each processor takes all
//! of its time, at a real-time priority below the agent's own. Programs see no
//! more of that than of a busy host: a signal, or the freezer of control groups,
//! they could notice.

use std::fs;
use std::hint;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::log::note;
use crate::params::{Params, wrong};
use crate::scheduling;

const MAX_SECONDS: f64 = 10.0;
/// Above the threads that only take time, below whatever the kernel itself has.
const OF_AGENT: i32 = 2;
const OF_SPINNER: i32 = 1;
/// Microseconds in a second that real-time threads may have; -1: all (sched(7)).
const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// Rounds between two looks at the clock.
const ROUNDS: usize = 1000;

pub fn call(others: &Others, method: &str, params: &Params) -> Result<Value> {
    if method == "pause_others" {
        others
            .pause(requested_limit(params)?)
            .map_err(|error| Error::io("processors", error))?;
    } else {
        others.resume();
    }
    Ok(json!({}))
}

fn requested_limit(params: &Params) -> Result<Duration> {
    let seconds = params.value("seconds").and_then(Value::as_f64);
    seconds
        .filter(|seconds| *seconds > 0.0 && *seconds <= MAX_SECONDS)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| wrong("seconds", "must be more than 0 and at most 10"))
}

/// Those that are not the agent.
#[derive(Clone, Debug, Default)]
pub struct Others(Arc<Mutex<Option<Pause>>>);

#[derive(Debug)]
struct Pause {
    over: Arc<AtomicBool>,
    /// What `RT_RUNTIME` was.
    rt_runtime: Option<String>,
}

impl Others {
    /// They stand still when this returns, for `limit` at most.
    pub fn pause(&self, limit: Duration) -> io::Result<()> {
        self.resume();
        let over = Arc::new(AtomicBool::new(false));
        *self.state() = Some(Pause {
            over: over.clone(),
            rt_runtime: lift_rt_limit(),
        });
        let result = scheduling::set_priority_of_all(Some(OF_AGENT)).and_then(|()| self.take_processors(&over, limit));
        if result.is_err() {
            self.resume();
        }
        result
    }

    /// They run again. Nothing to do if they do.
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
        for cpu in scheduling::processors()? {
            let (others, over, ready) = (self.clone(), over.clone(), ready.clone());
            thread::Builder::new().name("take-time".into()).spawn(move || {
                let result = scheduling::run_on(cpu).and_then(|()| scheduling::set_priority(Some(OF_SPINNER)));
                let is_set = result.is_ok();
                // Whoever asked may have given up.
                let _ = ready.send(result);
                drop(ready);
                if is_set {
                    spin(&over, limit);
                    others.lapse(&over);
                }
            })?;
        }
        drop(ready);
        is_ready.into_iter().collect()
    }

    /// The time of that pause is over; of another one it is not.
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
        if let Err(error) = restored.and_then(|()| scheduling::set_priority_of_all(None)) {
            note(&format!("letting the programs go on: {error}"));
        }
    }
}

/// Without a limit (none in this kernel, or `/proc` is read-only) the others get a
/// twentieth of the time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_must_be_said() {
        for bad in [
            json!({}),
            json!({"seconds": 0}),
            json!({"seconds": 11}),
            json!({"seconds": "1"}),
        ] {
            assert!(requested_limit(&Params::new(bad).unwrap()).is_err());
        }
        let good = Params::new(json!({"seconds": 0.5})).unwrap();
        assert_eq!(requested_limit(&good).unwrap(), Duration::from_millis(500));
    }

    #[test]
    fn a_processor_is_given_back_when_the_time_is_over_or_before() {
        let over = AtomicBool::new(false);
        spin(&over, Duration::from_millis(1));
        over.store(true, Relaxed);
        spin(&over, Duration::from_secs(3600));
    }

    #[test]
    fn only_its_own_time_ends_a_pause() {
        let others = Others::default();
        let over = Arc::new(AtomicBool::new(false));
        *others.state() = Some(Pause {
            over: over.clone(),
            rt_runtime: None,
        });
        others.lapse(&Arc::new(AtomicBool::new(false)));
        assert!(others.state().is_some());
        others.lapse(&over);
        assert!(others.state().is_none());
        assert!(over.load(Relaxed));
    }
}
