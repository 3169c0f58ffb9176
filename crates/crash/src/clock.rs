//! The clock of a world.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use thermocline::clock::{Clock, SharedClock};

/// What the clocks of worlds show at first, nanoseconds since 1970.
const START_NS: i64 = 1_000_000_000_000_000;

/// A clock that stands still unless time is said to pass, or the machine's own.
#[derive(Debug)]
pub enum WorldClock {
    /// It shows so many nanoseconds since 1970.
    Set(AtomicI64),
    /// For engines with threads, which wait for time.
    Machine(SharedClock),
}

impl Default for WorldClock {
    fn default() -> Self {
        Self::Set(AtomicI64::new(START_NS))
    }
}

impl WorldClock {
    /// The machine's.
    #[must_use]
    pub fn machine() -> Self {
        Self::Machine(SharedClock::default())
    }

    /// Another clock that shows the same now: what happens in a world that might be takes no time
    /// in the one that is.
    #[must_use]
    pub fn split(&self) -> Self {
        match self {
            Self::Set(ns) => Self::Set(AtomicI64::new(ns.load(Ordering::Relaxed))),
            Self::Machine(clock) => Self::Machine(clock.clone()),
        }
    }

    /// As engines and stores are handed it.
    #[must_use]
    pub fn shared(self: &Arc<Self>) -> SharedClock {
        let clock: Arc<Self> = Arc::clone(self);
        SharedClock::new(clock)
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Duration {
        match self {
            Self::Set(ns) => Duration::from_nanos(ns.load(Ordering::Relaxed).unsigned_abs()),
            Self::Machine(clock) => clock.now(),
        }
    }

    fn wall_ns(&self) -> i64 {
        match self {
            Self::Set(ns) => ns.load(Ordering::Relaxed),
            Self::Machine(clock) => clock.wall_ns(),
        }
    }

    fn pass(&self, time: Duration) {
        match self {
            Self::Set(ns) => {
                ns.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
            }
            Self::Machine(clock) => clock.pass(time),
        }
    }
}
