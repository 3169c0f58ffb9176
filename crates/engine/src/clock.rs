//! The wall clock, and one that only goes forward. With the feature `mutants` the crash tester sets
//! its own for both, one a thread.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What [`Moment`]s count from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A point in time of a clock that only goes forward.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Duration);

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(feature = "mutants")]
        if let Some(ns) = VIRTUAL.with(std::cell::Cell::get) {
            return Self(Duration::from_nanos(ns.unsigned_abs()));
        }
        Self(START.elapsed())
    }

    /// Time that has passed since.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(feature = "mutants")]
thread_local! {
    static VIRTUAL: std::cell::Cell<Option<i64>> = const { std::cell::Cell::new(None) };
}

/// This thread's clock shows `ns` since 1970 from now on, and stands still.
#[cfg(feature = "mutants")]
pub fn set(ns: i64) {
    VIRTUAL.with(|clock| clock.set(Some(ns)));
}

/// Nanoseconds since 1970.
pub fn wall_ns() -> i64 {
    #[cfg(feature = "mutants")]
    if let Some(ns) = VIRTUAL.with(std::cell::Cell::get) {
        return ns;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i64)
}

/// Lets `time` pass: sleeps, or puts a clock that was set forward.
pub fn pass(time: Duration) {
    #[cfg(feature = "mutants")]
    if let Some(ns) = VIRTUAL.with(std::cell::Cell::get) {
        set(ns.saturating_add(time.as_nanos() as i64));
        return;
    }
    std::thread::sleep(time);
}
