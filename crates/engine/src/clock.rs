//! The wall clock. With the feature `mutants` the crash tester sets its own, one a thread.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
