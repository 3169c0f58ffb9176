//! What time it is: asked of a clock that is handed in, so that a test can hand in its own.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// What [`SystemClock`] counts from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        START.elapsed()
    }

    fn wall_ns(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_nanos() as i64)
    }

    fn pass(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
