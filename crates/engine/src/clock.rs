//! What time it is: asked of a clock that is handed in, so that a test can hand in its own.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clocks of a machine, and how time passes on it.
pub trait Clock: Debug + Send + Sync {
    /// Time since some moment in the past; never less than an earlier answer.
    fn now(&self) -> Duration;

    /// Nanoseconds since 1970, by the wall clock: may jump.
    fn wall_ns(&self) -> i64;

    /// Returns when `time` has passed.
    fn pass(&self, time: Duration);
}

/// A clock as it is handed in: by default the machine's own.
#[derive(Clone, Debug)]
pub struct SharedClock(Arc<dyn Clock>);

impl SharedClock {
    /// Hands `clock` in.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }
}

impl Default for SharedClock {
    fn default() -> Self {
        Self(Arc::new(SystemClock))
    }
}

impl Deref for SharedClock {
    type Target = dyn Clock;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// A clock is no part of what was configured: settings that differ in their clocks alone are equal.
impl PartialEq for SharedClock {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The machine's clocks.
#[derive(Debug)]
struct SystemClock;

/// Time since the machine was started, also what it slept: a lease runs out meanwhile.
fn since_boot() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    debug_assert!(time.tv_sec >= 0 && time.tv_nsec >= 0, "it counts up");
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        since_boot()
    }

    fn wall_ns(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as i64)
    }

    fn pass(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
