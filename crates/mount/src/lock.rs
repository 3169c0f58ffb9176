//! Locks that nobody reads after a panic.
//!
//! A panic while a lock was held leaves behind it what may be half changed. Whoever meets such a
//! lock ends the process: recovery after a crash is the path that is tested.

use std::io::{self, Write};
use std::panic::Location;
use std::sync::{
    Condvar, LockResult, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::Duration;

/// Locks `mutex`.
#[track_caller]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    sound(mutex.lock())
}

/// The same if nobody has it.
#[track_caller]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(sound(Err(guard))),
    }
}

/// Waits for `signal`, with `guard` given up meanwhile.
#[track_caller]
pub(crate) fn wait<'a, T>(signal: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    sound(signal.wait(guard))
}

/// Waits for `signal` no longer than `most`, with `guard` given up meanwhile.
#[track_caller]
pub(crate) fn wait_for<'a, T>(
    signal: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Duration,
) -> MutexGuard<'a, T> {
    sound(signal.wait_timeout(guard, most)).0
}

/// Locks `lock` for reading.
#[track_caller]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    sound(lock.read())
}

/// Locks `lock` for writing.
#[track_caller]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    sound(lock.write())
}

/// Ends the process as a crash does, and says why.
#[cold]
pub(crate) fn end_process(why: &str) -> ! {
    // Not `eprintln`: a test's output is kept until its end, which does not come.
    let _ = writeln!(io::stderr(), "thermocline: {why}; the process ends");
    std::process::abort()
}

#[track_caller]
fn sound<G>(locked: LockResult<G>) -> G {
    let Ok(guard) = locked else {
        let at = Location::caller();
        let kind = std::any::type_name::<G>();
        end_process(&format!("{at}: a panic broke the lock {kind}"));
    };
    guard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::sync::Arc;

    const CHILD: &str = "THERMOCLINE_TEST_POISON";

    fn poison(kind: &str) {
        let (mutex, both) = (Arc::new(Mutex::new(1)), Arc::new(RwLock::new(1)));
        let (m, b) = (Arc::clone(&mutex), Arc::clone(&both));
        let broken = std::thread::spawn(move || {
            let _guards = (lock(&m), write(&b));
            panic!("while both are held");
        });
        assert!(broken.join().is_err());
        let value = match kind {
            "lock" => *lock(&mutex),
            "read" => *read(&both),
            _ => *write(&both),
        };
        println!("went on with {value}");
    }

    #[test]
    fn a_poisoned_lock_ends_the_process() {
        if let Ok(kind) = std::env::var(CHILD) {
            return poison(&kind);
        }
        for kind in ["lock", "read", "write"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "lock::tests::a_poisoned_lock_ends_the_process"])
                .env(CHILD, kind)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stderr);
            assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{kind}: {said}");
            assert!(
                said.contains("lock.rs") && said.contains("the process ends"),
                "{said}"
            );
        }
    }
}
