//! The real clock, and sleeping until a point on it.

use std::cell::Cell;

/// Nanoseconds on `CLOCK_MONOTONIC`.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of ours, which the call fills in.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(result, 0, "every system has a monotonic clock");
    debug_assert!(time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec));
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Sleeps until [`now`] is at least `at`; returns at once when it already is. Returns how many
/// nanoseconds too long it slept: what the system took to wake the thread. Uses no CPU. The
/// first call of a thread sets its timer slack to 1 ns (the default would add up to 50 µs).
pub(super) fn sleep_until(at: u64) -> u64 {
    if now() >= at {
        return 0;
    }
    tighten_timer_slack();
    sleep(at);
    let woke = now();
    debug_assert!(woke >= at, "nobody wakes early");
    woke.saturating_sub(at)
}

fn sleep(at: u64) {
    let time = libc::timespec {
        tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (at % 1_000_000_000) as i64,
    };
    loop {
        // SAFETY: the request is a timespec of ours; a remainder is not wanted (absolute time).
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const time,
                std::ptr::null_mut(),
            )
        };
        if result != libc::EINTR {
            debug_assert_eq!(result, 0, "the time is well formed");
            return;
        }
    }
}

fn tighten_timer_slack() {
    thread_local! {
        static TIGHT: Cell<bool> = const { Cell::new(false) };
    }
    if !TIGHT.replace(true) {
        // SAFETY: changes a number of this thread. Failure only makes sleeps less exact.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_wakes_early() {
        for wait in [0, 1000, 3_000_000] {
            let until = now() + wait;
            let late = sleep_until(until);
            assert!(now() >= until + late);
        }
        assert_eq!(sleep_until(0), 0, "a time that has passed is not slept for");
    }
}
