//! Holding the root file system still while the host saves the disk.
//!
//! One thread does it all: it freezes, waits to be let go, and thaws, at the
//! latest when the time is over. It depends on nothing that may itself be
//! waiting to write: neither on the runtime nor on the threads for files.
//! Should the agent be killed meanwhile, its guard thaws.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::closed::Closed;
use crate::disk::Mounted;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::log::note;
use crate::params::{Params, wrong};

const DEFAULT_LIMIT: Duration = Duration::from_secs(2);
const MAX_SECONDS: f64 = 10.0;
/// More than it takes to freeze a busy file system: the thread is to come first.
const GUARD_MARGIN: Duration = Duration::from_secs(5);

/// `owner` is the end of the session that asks; without one only the time ends
/// the freeze by itself.
pub async fn call(agent: &Agent, method: &str, params: &Params, owner: Option<&Closed>) -> Result<Value> {
    agent.require_machine()?;
    if method == "freeze" {
        let limit = requested_limit(params)?;
        agent.freezer.freeze(Root::open()?, limit, owner).await?;
        Ok(json!({}))
    } else {
        let frozen = agent.freezer.thaw(owner).await?;
        Ok(json!({"frozen_s": frozen.as_secs_f64()}))
    }
}

fn requested_limit(params: &Params) -> Result<Duration> {
    let Some(value) = params.value("seconds") else {
        return Ok(DEFAULT_LIMIT);
    };
    let seconds = value
        .as_f64()
        .filter(|seconds| *seconds > 0.0 && *seconds <= MAX_SECONDS);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| wrong("seconds", "must be more than 0 and at most 10"))
}

/// A file system that can be held still.
pub trait Freezable: Send + 'static {
    fn sync(&self) -> io::Result<()>;
    fn freeze(&mut self, limit: Duration) -> io::Result<()>;
    fn thaw(&self) -> io::Result<()>;
}

struct Root {
    mounted: Mounted,
    guard: Option<Guard>,
}

impl Root {
    fn open() -> Result<Self> {
        let mounted = Mounted::open(Path::new("/")).map_err(|error| Error::io("/", error))?;
        Ok(Self { mounted, guard: None })
    }
}

impl Freezable for Root {
    fn sync(&self) -> io::Result<()> {
        self.mounted.sync()
    }

    fn freeze(&mut self, limit: Duration) -> io::Result<()> {
        self.guard = Some(Guard::start(limit + GUARD_MARGIN)?);
        let _expedited = Expedited::begin();
        self.mounted.freeze()
    }

    fn thaw(&self) -> io::Result<()> {
        self.mounted.thaw()
    }
}

/// Has the kernel not wait for RCU grace periods to pass by themselves. Freezing
/// takes three, with all writers held up from the first: 36 ms and more, else 5.
struct Expedited(Option<fs::File>);

impl Expedited {
    fn begin() -> Self {
        let switch = fs::OpenOptions::new().write(true).open("/sys/kernel/rcu_expedited");
        // A kernel without it freezes all the same.
        let mut switch = switch.ok();
        if let Some(file) = &mut switch
            && file.write_all(b"1").is_err()
        {
            switch = None;
        }
        Self(switch)
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            file.write_all_at(b"0", 0).ok();
        }
    }
}

/// Whoever thaws learns how long it was frozen.
type Asker = oneshot::Sender<Result<Duration>>;

#[derive(Clone, Debug, Default)]
pub struct Freezer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Thawed,
    /// Its thread freezes, or has frozen. It thaws when asked to, and when
    /// `release` is dropped.
    Held {
        owner: Option<Closed>,
        release: mpsc::Sender<Asker>,
    },
    /// Its thread was let go and will thaw.
    LetGo,
    /// Its time is over, and its owner does not know that yet.
    Lapsed { owner: Option<Closed> },
}

impl State {
    fn belongs_to(&self, asker: Option<&Closed>) -> bool {
        match self {
            Self::Held { owner, .. } | Self::Lapsed { owner } => match (owner, asker) {
                (Some(owner), Some(asker)) => owner.is(asker),
                (None, None) => true,
                _ => false,
            },
            Self::Thawed | Self::LetGo => false,
        }
    }
}

impl Freezer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once it is frozen, and then for `limit` at most.
    pub async fn freeze(&self, root: impl Freezable, limit: Duration, owner: Option<&Closed>) -> Result<()> {
        let released = self.begin(owner)?;
        let (started, has_started) = oneshot::channel();
        let freezer = self.clone();
        let thread = thread::Builder::new().name("freeze".into());
        thread
            .spawn(move || freezer.hold(root, limit, &released, started))
            .map_err(|error| {
                *self.state() = State::Thawed;
                Error::io("thread", error)
            })?;
        has_started.await.map_err(|_| Error::Gone)?
    }

    fn begin(&self, owner: Option<&Closed>) -> Result<mpsc::Receiver<Asker>> {
        let mut state = self.state();
        if matches!(*state, State::Held { .. } | State::LetGo) {
            return Err(Error::Frozen);
        }
        // Looked at under the lock: a session that ends later finds what it holds.
        if owner.is_some_and(Closed::is_set) {
            return Err(Error::Gone);
        }
        let (release, released) = mpsc::channel();
        let owner = owner.cloned();
        *state = State::Held { owner, release };
        Ok(released)
    }

    /// How long it was frozen. Refused when it was not, or not until now.
    pub async fn thaw(&self, asker: Option<&Closed>) -> Result<Duration> {
        let (thawed, has_thawed) = oneshot::channel();
        {
            let mut state = self.state();
            if !state.belongs_to(asker) {
                return Err(Error::NotFrozen(" by this client"));
            }
            let State::Held { release, .. } = &*state else {
                *state = State::Thawed;
                return Err(Error::NotFrozen(LAPSED));
            };
            // A thread that does not listen any more drops the question.
            let _ = release.send(thawed);
            *state = State::LetGo;
        }
        has_thawed.await.unwrap_or(Err(Error::NotFrozen(LAPSED)))
    }

    /// Lets go what the session held that has ended. Never waits.
    pub fn release(&self, owner: &Closed) {
        let mut state = self.state();
        if state.belongs_to(Some(owner)) {
            *state = match *state {
                State::Held { .. } => State::LetGo,
                _ => State::Thawed,
            };
        }
    }

    fn hold(
        &self,
        mut root: impl Freezable,
        limit: Duration,
        released: &mpsc::Receiver<Asker>,
        started: oneshot::Sender<Result<()>>,
    ) {
        if let Err(error) = freeze(&mut root, limit, released) {
            *self.state() = State::Thawed;
            // A client that has left is not told.
            let _ = started.send(Err(error));
            return;
        }
        let since = Instant::now();
        let _ = started.send(Ok(()));
        let asked = released.recv_timeout(limit);
        let result = root.thaw();
        let frozen = since.elapsed();
        self.note_thawed();
        if let Err(error) = &result {
            note(&format!("thawing the root: {error}"));
        }
        match asked {
            Ok(asker) => drop(asker.send(result.map(|()| frozen).map_err(explain))),
            Err(RecvTimeoutError::Timeout) => {
                note(&format!("nobody thawed the root: done after {} ms", frozen.as_millis()))
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
    }

    /// One that was not let go has lapsed.
    fn note_thawed(&self) {
        let mut state = self.state();
        *state = match std::mem::take(&mut *state) {
            State::Held { owner, .. } => State::Lapsed { owner },
            _ => State::Thawed,
        };
    }
}

const LAPSED: &str = " any more: its time was over";

/// The sync before it keeps short the time for which writers wait.
fn freeze(root: &mut impl Freezable, limit: Duration, released: &mpsc::Receiver<Asker>) -> Result<()> {
    root.sync().map_err(explain)?;
    match released.try_recv() {
        Err(TryRecvError::Empty) => root.freeze(limit).map_err(explain),
        _ => Err(Error::NotFrozen(": it was let go before")),
    }
}

fn explain(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Error::Frozen,
        Some(libc::EINVAL) => Error::NotFrozen(" any more: something in the guest has thawed it"),
        Some(libc::EOPNOTSUPP) => Error::Unsupported("the root file system cannot be frozen"),
        _ => Error::io("/", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    const LONG: Duration = Duration::from_secs(10);

    /// Counts instead of freezing.
    #[derive(Clone, Debug, Default)]
    struct Fake {
        frozen: Arc<Mutex<usize>>,
        /// What the next freeze fails with.
        errno: Arc<AtomicI32>,
        /// The sync lasts for as long as this is locked.
        gate: Arc<Mutex<()>>,
    }

    impl Fake {
        fn is_frozen(&self) -> bool {
            *self.frozen.lock().unwrap() > 0
        }

        async fn wait_thawed(&self) {
            let deadline = Instant::now() + LONG;
            while self.is_frozen() {
                assert!(Instant::now() < deadline, "it stays frozen");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    impl Freezable for Fake {
        fn sync(&self) -> io::Result<()> {
            drop(self.gate.lock().unwrap());
            Ok(())
        }

        fn freeze(&mut self, _: Duration) -> io::Result<()> {
            match self.errno.load(SeqCst) {
                0 => *self.frozen.lock().unwrap() += 1,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
            Ok(())
        }

        fn thaw(&self) -> io::Result<()> {
            let mut frozen = self.frozen.lock().unwrap();
            if *frozen == 0 {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            *frozen -= 1;
            Ok(())
        }
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
        result.unwrap_err().code()
    }

    #[tokio::test]
    async fn it_is_frozen_once_until_its_owner_thaws() {
        let (root, freezer) = (Fake::default(), Freezer::default());
        let (mine, other) = (Closed::default(), Closed::default());
        assert_eq!(code(freezer.thaw(Some(&mine)).await), "not_frozen");
        freezer.freeze(root.clone(), LONG, Some(&mine)).await.unwrap();
        assert!(root.is_frozen());
        assert_eq!(code(freezer.freeze(root.clone(), LONG, Some(&mine)).await), "frozen");
        for stranger in [Some(&other), None] {
            assert_eq!(code(freezer.thaw(stranger).await), "not_frozen");
        }
        assert!(root.is_frozen());
        assert!(freezer.thaw(Some(&mine)).await.unwrap() < LONG);
        assert!(!root.is_frozen());
        assert_eq!(code(freezer.thaw(Some(&mine)).await), "not_frozen");
        freezer.freeze(root.clone(), LONG, None).await.unwrap();
        freezer.thaw(None).await.unwrap();
    }

    #[tokio::test]
    async fn when_the_time_is_over_it_thaws_and_the_owner_hears_of_it() {
        let (root, freezer, mine) = (Fake::default(), Freezer::default(), Closed::default());
        let limit = Duration::from_millis(1);
        freezer.freeze(root.clone(), limit, Some(&mine)).await.unwrap();
        root.wait_thawed().await;
        let refusal = freezer.thaw(Some(&mine)).await.unwrap_err();
        assert_eq!(refusal.code(), "not_frozen");
        assert!(refusal.to_string().contains("time"), "{refusal}");
        freezer.freeze(root.clone(), limit, Some(&mine)).await.unwrap();
        root.wait_thawed().await;
        // One that has lapsed is in nobody's way.
        let freeze = || freezer.freeze(root.clone(), LONG, None);
        while freeze().await.is_err() {}
        freezer.thaw(None).await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_its_session_thaws_and_that_of_another_does_not() {
        let (root, freezer) = (Fake::default(), Freezer::default());
        let (mine, other) = (Closed::default(), Closed::default());
        freezer.freeze(root.clone(), LONG, Some(&mine)).await.unwrap();
        freezer.release(&other);
        assert!(root.is_frozen());
        mine.set();
        freezer.release(&mine);
        root.wait_thawed().await;
        assert_eq!(
            code(freezer.freeze(root.clone(), LONG, Some(&mine)).await),
            "unavailable"
        );
    }

    #[tokio::test]
    async fn a_session_that_ends_during_the_sync_freezes_nothing() {
        let (root, freezer, mine) = (Fake::default(), Freezer::default(), Closed::default());
        let gate = root.gate.clone();
        let (entered, go_on) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        // Held by a thread, because a lock must not be held over an await.
        let keeper = thread::spawn(move || {
            let _held = gate.lock().unwrap();
            entered.send(()).unwrap();
            wait.recv().unwrap();
        });
        go_on.recv().unwrap();
        let end = async {
            while !freezer.state().belongs_to(Some(&mine)) {
                tokio::task::yield_now().await;
            }
            freezer.release(&mine);
            go.send(()).unwrap();
        };
        let (result, ()) = tokio::join!(freezer.freeze(root.clone(), LONG, Some(&mine)), end);
        keeper.join().unwrap();
        assert_eq!(code(result), "not_frozen");
        assert!(!root.is_frozen());
    }

    #[tokio::test]
    async fn what_cannot_be_frozen_or_was_thawed_by_others_is_told() {
        let (root, freezer) = (Fake::default(), Freezer::default());
        for (errno, expected) in [
            (libc::EOPNOTSUPP, "unsupported"),
            (libc::EBUSY, "frozen"),
            (libc::EIO, "io"),
            (libc::EPERM, "forbidden"),
        ] {
            root.errno.store(errno, SeqCst);
            assert_eq!(code(freezer.freeze(root.clone(), LONG, None).await), expected);
        }
        root.errno.store(0, SeqCst);
        freezer.freeze(root.clone(), LONG, None).await.unwrap();
        root.thaw().unwrap();
        assert_eq!(code(freezer.thaw(None).await), "not_frozen");
    }

    #[test]
    fn the_time_is_bounded() {
        let limit = |value: Value| requested_limit(&Params::new(json!({"seconds": value})).unwrap());
        assert_eq!(limit(Value::Null).unwrap(), DEFAULT_LIMIT);
        assert_eq!(limit(json!(0.25)).unwrap(), Duration::from_millis(250));
        assert_eq!(limit(json!(10)).unwrap(), LONG);
        for bad in [json!(0), json!(-1), json!(10.1), json!("1"), json!(1e300)] {
            assert_eq!(code(limit(bad)), "bad_request");
        }
    }
}
