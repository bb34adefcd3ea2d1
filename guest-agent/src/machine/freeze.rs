//! Freezes the root file system while the host saves the disk.
//!
//! One thread does everything: it freezes, waits until it is asked to thaw, and thaws when the time
//! is over at the latest. It depends on nothing that may itself be waiting to write, so neither on
//! the runtime nor on the threads for files. If the agent is killed in between, its guard thaws.
//! The guard is a process because the kernel does not thaw by itself, and a thread of the agent
//! that waits to write would keep the agent from ending and from being started again.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::base::closed::Closed;
use crate::base::error::{Error, Result};
use crate::base::log::note;
use crate::base::mutex::Mutex;
use crate::base::{oom, spawn, sys};
use crate::kernel::disk::{self, Mounted};

/// The time for which the file system stays frozen at most. A client may give another.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(2);
/// The time by which the guard thaws later than the thread. It is longer than freezing a busy file
/// system takes, so that the thread is first.
const GUARD_MARGIN: Duration = Duration::from_secs(5);

/// A file system that can be frozen. Tests have one of their own.
trait Freezable: Send + 'static {
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

/// Makes the kernel expedite RCU grace periods until this is dropped. Freezing waits for three of
/// them, and all writers wait meanwhile. That takes 36 ms or more, and 5 ms when expedited.
struct Expedited(Option<fs::File>);

impl Expedited {
    fn begin() -> Self {
        let switch = fs::OpenOptions::new().write(true).open("/sys/kernel/rcu_expedited");
        // A kernel without this switch freezes all the same.
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

/// Takes the answer to a thaw, which is the time for which the file system was frozen.
type Asker = oneshot::Sender<Result<Duration>>;

/// The one freeze of the root file system. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct Freezer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Thawed,
    /// The thread is freezing or has frozen. It thaws when it is asked to and when `release` is
    /// dropped.
    Held {
        owner: Option<Closed>,
        release: mpsc::Sender<Asker>,
    },
    /// The thread was told to thaw and has not done so yet.
    LetGo,
    /// The time is over, and the owner has not been told yet.
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
        self.0.lock()
    }

    /// Freezes the root file system for `limit` at most, as `owner`, which is the end of a session.
    /// Fails with `Frozen` when it is frozen already, with `Unsupported` when it cannot be, and
    /// with `Gone` when the session has ended.
    pub async fn freeze_root(&self, limit: Duration, owner: Option<&Closed>) -> Result<()> {
        self.freeze(Root::open()?, limit, owner).await
    }

    /// Returns once the file system is frozen. It thaws when `limit` is over.
    async fn freeze(&self, root: impl Freezable, limit: Duration, owner: Option<&Closed>) -> Result<()> {
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
        // This is checked under the lock, so that a session that ends later finds what it holds.
        if owner.is_some_and(Closed::is_set) {
            return Err(Error::Gone);
        }
        let (release, released) = mpsc::channel();
        let owner = owner.cloned();
        *state = State::Held { owner, release };
        Ok(released)
    }

    /// Thaws the file system that `asker` froze, and returns how long it was frozen. Fails with
    /// `NotFrozen` when the asker froze nothing, or when it was thawed before.
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
            // A thread that has stopped listening drops the question.
            let _ = release.send(thawed);
            *state = State::LetGo;
        }
        has_thawed.await.unwrap_or(Err(Error::NotFrozen(LAPSED)))
    }

    /// Thaws the file system if the session that has ended froze it. Never waits.
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
            // A client that has left needs no answer.
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

    /// Notes that the thread has thawed. Without a request for that, the freeze has lapsed.
    fn note_thawed(&self) {
        let mut state = self.state();
        *state = match std::mem::take(&mut *state) {
            State::Held { owner, .. } => State::Lapsed { owner },
            _ => State::Thawed,
        };
    }
}

const LAPSED: &str = " any more: its time was over";

/// Syncs first, which shortens the time for which writers wait.
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

/// The process that thaws the root when the agent was killed. Dropping this ends it.
#[derive(Debug)]
struct Guard(libc::pid_t);

impl Guard {
    /// Starts the guard. It runs from the agent's own image, so it needs no file that might be
    /// frozen.
    fn start(thaws_after: Duration) -> io::Result<Self> {
        let argv = ["@quicksand-thaw", "thaw", &thaws_after.as_millis().to_string()];
        spawn::spawn_detached("/proc/self/exe", &argv, &[]).map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = sys::kill(self.0, libc::SIGKILL);
        spawn::wait(self.0);
    }
}

/// Does the work of the guard process. It waits for `after_ms` milliseconds, then thaws the root if
/// it is frozen.
pub fn run_guard(after_ms: &str) {
    oom::protect();
    sys::set_process_name(c"quicksand-thaw");
    thread::sleep(Duration::from_millis(after_ms.parse().unwrap_or(0)));
    if disk::thaw_left_frozen(Path::new("/")) {
        note("the agent left the root frozen: thawed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    const LONG: Duration = Duration::from_secs(10);

    /// A file system that counts instead of freezing.
    #[derive(Clone, Debug, Default)]
    struct Fake {
        frozen: Arc<Mutex<usize>>,
        /// The error of the next freeze, or 0.
        errno: Arc<AtomicI32>,
        /// The sync lasts for as long as this is locked.
        gate: Arc<Mutex<()>>,
    }

    impl Fake {
        fn is_frozen(&self) -> bool {
            *self.frozen.lock() > 0
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
            drop(self.gate.lock());
            Ok(())
        }

        fn freeze(&mut self, _: Duration) -> io::Result<()> {
            match self.errno.load(SeqCst) {
                0 => *self.frozen.lock() += 1,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
            Ok(())
        }

        fn thaw(&self) -> io::Result<()> {
            let mut frozen = self.frozen.lock();
            if *frozen == 0 {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            *frozen -= 1;
            Ok(())
        }
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
        result.unwrap_err().code()
    }

    #[tokio::test]
    async fn it_is_frozen_once_until_its_owner_thaws() {
        let (root, freezer) = (Fake::default(), Freezer::default());
        let (mine, other) = (Closed::default(), Closed::default());
        assert_eq!(code(freezer.thaw(Some(&mine)).await), Code::NotFrozen);
        freezer.freeze(root.clone(), LONG, Some(&mine)).await.unwrap();
        assert!(root.is_frozen());
        assert_eq!(
            code(freezer.freeze(root.clone(), LONG, Some(&mine)).await),
            Code::Frozen
        );
        for stranger in [Some(&other), None] {
            assert_eq!(code(freezer.thaw(stranger).await), Code::NotFrozen);
        }
        assert!(root.is_frozen());
        assert!(freezer.thaw(Some(&mine)).await.unwrap() < LONG);
        assert!(!root.is_frozen());
        assert_eq!(code(freezer.thaw(Some(&mine)).await), Code::NotFrozen);
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
        assert_eq!(refusal.code(), Code::NotFrozen);
        assert!(refusal.to_string().contains("time"), "{refusal}");
        freezer.freeze(root.clone(), limit, Some(&mine)).await.unwrap();
        root.wait_thawed().await;
        // A freeze that has lapsed does not hinder the next one.
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
        // The thread thaws first and changes the state afterwards.
        let deadline = Instant::now() + LONG;
        while matches!(*freezer.state(), State::LetGo) {
            assert!(Instant::now() < deadline, "it stays frozen");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!root.is_frozen());
        assert_eq!(
            code(freezer.freeze(root.clone(), LONG, Some(&mine)).await),
            Code::Unavailable
        );
    }

    #[tokio::test]
    async fn a_session_that_ends_during_the_sync_freezes_nothing() {
        let (root, freezer, mine) = (Fake::default(), Freezer::default(), Closed::default());
        let gate = root.gate.clone();
        let (entered, go_on) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        // A thread holds the lock, because it must not be held across an await.
        let keeper = thread::spawn(move || {
            let _held = gate.lock();
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
        assert_eq!(code(result), Code::NotFrozen);
        assert!(!root.is_frozen());
    }

    #[tokio::test]
    async fn what_cannot_be_frozen_or_was_thawed_by_others_is_told() {
        let (root, freezer) = (Fake::default(), Freezer::default());
        for (errno, expected) in [
            (libc::EOPNOTSUPP, Code::Unsupported),
            (libc::EBUSY, Code::Frozen),
            (libc::EIO, Code::Io),
            (libc::EPERM, Code::Forbidden),
        ] {
            root.errno.store(errno, SeqCst);
            assert_eq!(code(freezer.freeze(root.clone(), LONG, None).await), expected);
        }
        root.errno.store(0, SeqCst);
        freezer.freeze(root.clone(), LONG, None).await.unwrap();
        root.thaw().unwrap();
        assert_eq!(code(freezer.thaw(None).await), Code::NotFrozen);
    }
}
