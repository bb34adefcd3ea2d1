//! Sets the guest's clock right after the guest has stood still, because of a pause or of the sleep
//! of its host. No event tells a guest of that, and its own clocks stand still with it. Only its
//! real-time clock (RTC) goes on, which the hypervisor keeps by the host's time.
//!
//! The RTC counts whole seconds, and lags behind by an unknown part of one. So the agent watches
//! how far the RTC is ahead of the guest's own clock. One look bounds that within a second, and
//! looks at other parts of a second narrow the bounds. When a look does not fit into the bounds,
//! the guest has stood still.

use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::base::log::note;
use crate::base::mutex::Mutex;
use crate::base::sys;

/// The RTC's time in whole seconds since 1970. The agent does not open the device itself, because
/// only one program can have it open.
const RTC: &CStr = c"/sys/class/rtc/rtc0/since_epoch";
/// The time between two looks. A look takes an emulated guest two milliseconds. By the golden ratio
/// each look is at another part of a second, far from the earlier looks.
const EVERY: Duration = Duration::from_millis(1236);
/// The time between two looks while the length of a pause is being measured.
const SOON: Duration = Duration::from_millis(20);
/// The measuring ends after this many looks, as exact as it is then.
const LOOKS_MAX: u32 = 75;
const SECOND_NS: i64 = 1_000_000_000;
/// The host's clock may be faster or slower by one part in this many. Programs adjust it by 500
/// millionths at most (adjtimex(2)).
const DRIFT: i64 = 2000;
/// The clock may be late by this time.
const TOLERANCE_NS: i64 = 50_000_000;
/// A pause is measured as exactly as this.
const EXACT_NS: i64 = 25_000_000;
/// A longer pause is repaired at once, and again when it has been measured.
const LONG_NS: i64 = 2 * SECOND_NS;

/// One look at the clocks, in nanoseconds but for the RTC.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The guest's own clock before and after the RTC was read.
    before: i64,
    after: i64,
    rtc_s: i64,
    /// The time that the guest's programs see.
    unix: i64,
}

/// The least and the largest number of nanoseconds by which the RTC is ahead of the guest's own
/// clock.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i64,
    high: i64,
}

impl Bounds {
    fn of(look: Look) -> Self {
        Self {
            low: look.rtc_s * SECOND_NS - look.after,
            high: (look.rtc_s + 1) * SECOND_NS - look.before,
        }
    }

    /// Returns the bounds that agree with both. Returns `None` if the two cannot both be true.
    fn and(self, other: Self) -> Option<Self> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(Self { low, high })
    }

    fn widened(self, by: i64) -> Self {
        Self {
            low: self.low - by,
            high: self.high + by,
        }
    }

    fn middle(self) -> i64 {
        self.low.midpoint(self.high)
    }
}

/// The knowledge about the RTC.
#[derive(Debug, Default)]
pub struct Watch {
    /// The lead of the RTC, and the time of the last look by the guest's own clock.
    known: Option<(Bounds, i64)>,
    pause: Option<Pause>,
}

/// A pause whose length is being measured.
#[derive(Debug)]
struct Pause {
    /// The lead of the RTC when the clock was right.
    right: i64,
    /// The time by which the clock has been put forward already.
    repaired: i64,
    looks: u32,
}

impl Watch {
    /// Notes that a client has set the clock.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns by how much the clock is to be put forward.
    fn take(&mut self, look: Look) -> Option<i64> {
        let seen = Bounds::of(look);
        let Some((known, at)) = self.known else {
            self.known = Some((seen, look.before));
            return None;
        };
        let expected = known.widened((look.before - at).max(0) / DRIFT);
        let now = expected.and(seen);
        if now.is_none() && self.pause.is_none() {
            self.pause = Some(Pause {
                right: known.middle(),
                repaired: 0,
                looks: 0,
            });
        }
        let now = now.unwrap_or(seen);
        self.known = Some((now, look.before));
        self.measure(now, look)
    }

    fn measure(&mut self, now: Bounds, look: Look) -> Option<i64> {
        let pause = self.pause.as_mut()?;
        pause.looks += 1;
        let is_measured = now.high - now.low <= EXACT_NS || pause.looks >= LOOKS_MAX;
        let late = now.middle() - pause.right - pause.repaired;
        let ahead = (now.middle() + look.before - look.unix).abs();
        // Somebody has set the RTC by the clock, if it has the clock's time now.
        let is_set = pause.repaired == 0 && ahead <= if is_measured { TOLERANCE_NS } else { LONG_NS };
        let is_worth_it = late.abs() > if is_measured { TOLERANCE_NS } else { LONG_NS };
        pause.repaired += if is_worth_it && !is_set { late } else { 0 };
        if is_measured {
            self.pause = None;
        }
        (is_worth_it && !is_set).then_some(late)
    }
}

/// Keeps the clock true as long as the agent runs. A client that sets it locks the watch. Without
/// an RTC only clients set the clock.
pub async fn keep(watch: Arc<Mutex<Watch>>) {
    let Ok(rtc) = sys::open(RTC, libc::O_RDONLY).map(File::from) else {
        note("no real-time clock");
        return;
    };
    loop {
        let is_measuring = {
            let mut watch = watch.lock();
            if let Some(late) = look(&rtc).and_then(|look| watch.take(look))
                && let Err(error) = sys::set_clock_ns(sys::unix_ns() + late)
            {
                note(&format!("clock: {error}"));
            }
            watch.pause.is_some()
        };
        sleep(if is_measuring { SOON } else { EVERY }).await;
    }
}

fn look(rtc: &File) -> Option<Look> {
    let mut text = [0; 24];
    let before = own_ns();
    let size = rtc.read_at(&mut text, 0).ok()?;
    let (after, unix) = (own_ns(), sys::unix_ns());
    let rtc_s = str::from_utf8(&text[..size]).ok()?.trim().parse().ok()?;
    Some(Look {
        before,
        after,
        rtc_s,
        unix,
    })
}

fn own_ns() -> i64 {
    sys::clock(libc::CLOCK_BOOTTIME).as_nanos() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const START: i64 = 1_800_000_000 * SECOND_NS;

    /// A guest with its own clock, and an RTC that lags by a part of a second.
    struct Guest {
        watch: Watch,
        own: i64,
        host: i64,
        unix: i64,
        rtc_late: i64,
    }

    impl Guest {
        fn new(rtc_late: i64) -> Self {
            Self {
                watch: Watch::default(),
                own: 5 * SECOND_NS,
                host: START,
                unix: START,
                rtc_late,
            }
        }

        /// Lets the guest run for this time. Returns whether the clock was set meanwhile.
        fn run(&mut self, ms: i64) -> bool {
            let (end, mut is_set) = (self.own + ms * MS, false);
            while self.own < end {
                let every = if self.watch.pause.is_some() { SOON } else { EVERY };
                let step = every.as_nanos() as i64;
                (self.own, self.unix, self.host) = (self.own + step, self.unix + step, self.host + step);
                let late = self.watch.take(Look {
                    before: self.own,
                    after: self.own + MS / 10,
                    rtc_s: (self.host - self.rtc_late).div_euclid(SECOND_NS),
                    unix: self.unix,
                });
                self.unix += late.unwrap_or(0);
                is_set |= late.is_some();
            }
            is_set
        }

        fn late_ms(&self) -> i64 {
            (self.host - self.unix) / MS
        }
    }

    #[test]
    fn a_clock_that_goes_on_is_left_alone_even_if_its_user_has_set_it() {
        for lag in [0, 1, 300, 999] {
            let mut guest = Guest::new(lag * MS);
            guest.run(10_000);
            guest.unix -= 86_400 * SECOND_NS;
            assert!(!guest.run(600_000), "{lag}");
        }
    }

    #[test]
    fn after_a_pause_the_clock_is_right_within_a_second_or_so() {
        for lag in [0, 1, 120, 500, 800, 999] {
            for pause in [300, 900, 1500, 2500, 22_000, 86_400_000] {
                let mut guest = Guest::new(lag * MS);
                guest.run(60_000);
                guest.host += pause * MS;
                // A pause of less than a second shows only in some looks.
                guest.run(if pause > 1000 { 2500 } else { 16_000 });
                assert!(
                    guest.late_ms().abs() <= 60,
                    "{lag} {pause}: {} ms late",
                    guest.late_ms()
                );
                assert!(!guest.run(60_000));
            }
        }
    }

    #[test]
    fn a_long_pause_is_nearly_repaired_at_the_first_look() {
        let mut guest = Guest::new(400 * MS);
        guest.run(20_000);
        guest.host += 22_000 * MS;
        guest.run(1236);
        assert!(guest.late_ms().abs() <= 600, "{} ms late", guest.late_ms());
    }

    #[test]
    fn a_pause_just_after_the_start_is_repaired_as_well_as_is_possible() {
        let mut guest = Guest::new(400 * MS);
        guest.run(1);
        guest.host += 22_000 * MS;
        guest.run(3000);
        assert!(guest.late_ms().abs() <= 600, "{} ms late", guest.late_ms());
    }

    #[test]
    fn a_clock_that_a_client_has_set_is_not_put_forward_again() {
        let mut guest = Guest::new(400 * MS);
        guest.run(20_000);
        guest.host += 22_000 * MS;
        guest.unix = guest.host;
        guest.watch.forget();
        assert!(!guest.run(20_000));
    }

    #[test]
    fn an_rtc_that_is_set_by_the_clock_does_not_set_the_clock() {
        for wrong in [-86_400_000, -700, 0, 450, 86_400_000] {
            let mut guest = Guest::new(400 * MS);
            guest.run(20_000);
            guest.unix += wrong * MS;
            guest.rtc_late = guest.host - guest.unix; // hwclock --systohc
            assert!(!guest.run(60_000), "{wrong}");
        }
    }
}
