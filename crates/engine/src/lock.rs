//! Locks that stop the process rather than guess.
//!
//! A thread that panics while it holds a lock leaves what the lock protects half changed. Whoever
//! takes such a lock next cannot know what is true: it may acknowledge a write that is nowhere, or
//! mark a cache clean that is not. So the process ends. What a crash leaves is read back by
//! recovery, which is the best-tested path there is.
//!
//! All locks of the engine are of these types, its threads are those of [`thread`], and what tells
//! whether an object is in use or owed a sync is of [`atomic`]. With the feature `shuttle` they are
//! those of the `shuttle` scheduler, which runs the threads of a test in orders of its own choice
//! (`tests/shuttle.rs`).

#[cfg(feature = "shuttle")]
mod controlled;

#[cfg(feature = "shuttle")]
use controlled as real;
#[cfg(not(feature = "shuttle"))]
use std::io::Write;
#[cfg(not(feature = "shuttle"))]
use std::sync as real;
use std::sync::{LockResult, TryLockError};
use std::time::Duration;

pub use real::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::{sync::atomic, thread};
#[cfg(not(feature = "shuttle"))]
pub use std::{sync::atomic, thread};

/// The guard of a lock, or the end of the process when its last holder panicked.
fn sound<G>(taken: LockResult<G>) -> G {
    taken.unwrap_or_else(|_| die(POISONED))
}

const POISONED: &str = "a thread panicked while it changed shared state";

/// Ends the process as a crash does: nothing is saved, nothing is marked clean.
#[cold]
pub fn die(why: &str) -> ! {
    #[cfg(feature = "shuttle")]
    panic!("{why}");
    #[cfg(not(feature = "shuttle"))]
    {
        // Not `eprintln`: a test's output is kept until its end, which does not come.
        let _ = writeln!(
            std::io::stderr(),
            "thermocline: {why} (see above); ending here, \
             the next start recovers what was acknowledged"
        );
        std::process::abort()
    }
}

/// A mutex that ends the process instead of being poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(real::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(real::Mutex::new(value))
    }

    /// What it protected.
    pub fn into_inner(self) -> T {
        sound(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        sound(self.0.lock())
    }

    /// The lock, unless somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => die(POISONED),
        }
    }
}

/// A readers-writer lock that ends the process instead of being poisoned.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(real::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(real::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        sound(self.0.read())
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        sound(self.0.write())
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(real::Condvar);

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(real::Condvar::new())
    }

    /// Waits until woken, perhaps for nothing.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        sound(self.0.wait(guard))
    }

    /// As [`Condvar::wait`], but no longer than `most`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> MutexGuard<'a, T> {
        sound(self.0.wait_timeout(guard, most)).0
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
