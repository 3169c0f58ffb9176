//! The locks of the `shuttle` scheduler with the interface of `std::sync`.
//!
//! There is no time under the scheduler, so a wait that may time out does so at once: whoever
//! waits with a limit has to look again whether it was woken or not.

use shuttle::sync as controlled;
pub(crate) use shuttle::sync::RwLock;
pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// As `std::sync::Mutex`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(controlled::Mutex<T>);

/// As `std::sync::MutexGuard`.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    held: controlled::MutexGuard<'a, T>,
    of: &'a controlled::Mutex<T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

/// The guard around `taken`, poisoned if that is.
fn guard<'a, T: ?Sized>(
    of: &'a controlled::Mutex<T>,
    taken: LockResult<controlled::MutexGuard<'a, T>>,
) -> LockResult<MutexGuard<'a, T>> {
    match taken {
        Ok(held) => Ok(MutexGuard { held, of }),
        Err(poisoned) => {
            let held = poisoned.into_inner();
            Err(PoisonError::new(MutexGuard { held, of }))
        }
    }
}

impl<T> Mutex<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(controlled::Mutex::new(value))
    }

    pub(super) fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(super) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        guard(&self.0, self.0.lock())
    }

    pub(super) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Ok(MutexGuard { held, of: &self.0 }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                guard(&self.0, Err(poisoned)).map_err(Into::into)
            }
        }
    }
}

/// As `std::sync::Condvar`.
#[derive(Debug, Default)]
pub(crate) struct Condvar(controlled::Condvar);

impl Condvar {
    pub(super) const fn new() -> Self {
        Self(controlled::Condvar::new())
    }

    pub(super) fn wait<'a, T>(&self, waiting: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { held, of } = waiting;
        guard(of, self.0.wait(held))
    }

    pub(super) fn wait_timeout<'a, T>(
        &self,
        waiting: MutexGuard<'a, T>,
        _most: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let MutexGuard { held, of } = waiting;
        drop(held);
        shuttle::thread::yield_now();
        match guard(of, of.lock()) {
            Ok(guard) => Ok((guard, ())),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), ()))),
        }
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }
}
