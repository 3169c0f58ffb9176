//! SQLite's five lock levels among the connections of this process.
//!
//! States of one handle: None, Shared, Reserved, Pending, Exclusive. Transitions: up by
//! [`Locks::lock`] (None→Shared→Reserved→Exclusive, or Shared→Exclusive for hot-journal
//! recovery; a refused Exclusive leaves the handle in Pending), down by [`Locks::unlock`] to
//! Shared or None. Other processes are kept out by [`crate::oslock`].
//!
//! Invariants:
//! 1. At most one handle is above Shared (`writer`).
//! 2. `exclusive` implies a writer and `shared == 1` (the writer itself).
//! 3. `pending` implies a writer; while pending no new handle becomes Shared.

/// Lock level of one handle, numbered as in `sqlite3.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    None,
    Shared,
    Reserved,
    Pending,
    Exclusive,
}

impl Level {
    /// The level with SQLite's number; `None` when there is no such level.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        [
            Self::None,
            Self::Shared,
            Self::Reserved,
            Self::Pending,
            Self::Exclusive,
        ]
        .get(usize::try_from(number).ok()?)
        .copied()
    }
}

/// A request refused because of another handle; the level the caller is left with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy(pub(crate) Level);

/// Who holds what on one database file.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    shared: u32,
    writer: Option<u64>,
    pending: bool,
    exclusive: bool,
}

impl Locks {
    /// Raises `handle` from `held` to `wanted`; returns the level reached.
    pub(crate) fn lock(&mut self, handle: u64, held: Level, wanted: Level) -> Result<Level, Busy> {
        self.check();
        if wanted <= held {
            return Ok(held);
        }
        let result = match wanted {
            Level::None => Ok(Level::None),
            Level::Shared => self.share(),
            Level::Reserved => self.reserve(handle, held),
            Level::Pending | Level::Exclusive => self.exclude(handle, held),
        };
        self.check();
        result
    }

    fn share(&mut self) -> Result<Level, Busy> {
        if self.pending || self.exclusive {
            return Err(Busy(Level::None));
        }
        self.shared += 1;
        Ok(Level::Shared)
    }

    fn reserve(&mut self, handle: u64, held: Level) -> Result<Level, Busy> {
        debug_assert_eq!(held, Level::Shared, "SQLite reserves from shared only");
        if self.writer.is_some() {
            return Err(Busy(held));
        }
        self.writer = Some(handle);
        Ok(Level::Reserved)
    }

    fn exclude(&mut self, handle: u64, held: Level) -> Result<Level, Busy> {
        debug_assert!(
            held >= Level::Shared,
            "SQLite excludes from shared or above"
        );
        if self.writer.is_some_and(|writer| writer != handle) {
            return Err(Busy(held));
        }
        self.writer = Some(handle);
        self.pending = true;
        if self.shared > 1 {
            return Err(Busy(Level::Pending));
        }
        self.exclusive = true;
        Ok(Level::Exclusive)
    }

    /// Lowers `handle` from `held` to `wanted` (Shared or None).
    pub(crate) fn unlock(&mut self, handle: u64, held: Level, wanted: Level) -> Level {
        self.check();
        if wanted >= held {
            return held;
        }
        if held > Level::Shared {
            debug_assert_eq!(self.writer, Some(handle));
            (self.writer, self.pending, self.exclusive) = (None, false, false);
        }
        if wanted == Level::None {
            debug_assert!(self.shared > 0);
            self.shared -= 1;
        }
        self.check();
        wanted
    }

    /// Whether any handle of the process is above Shared.
    pub(crate) fn reserved(&self) -> bool {
        self.writer.is_some()
    }

    fn check(&self) {
        debug_assert!(!self.exclusive || (self.writer.is_some() && self.shared == 1));
        debug_assert!(!self.pending || self.writer.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_many_readers() {
        let mut locks = Locks::default();
        assert_eq!(locks.lock(1, Level::None, Level::Shared), Ok(Level::Shared));
        assert_eq!(locks.lock(2, Level::None, Level::Shared), Ok(Level::Shared));
        assert_eq!(
            locks.lock(1, Level::Shared, Level::Reserved),
            Ok(Level::Reserved)
        );
        assert!(locks.reserved());
        assert_eq!(
            locks.lock(2, Level::Shared, Level::Reserved),
            Err(Busy(Level::Shared))
        );
        assert_eq!(
            locks.lock(1, Level::Reserved, Level::Exclusive),
            Err(Busy(Level::Pending))
        );
        assert_eq!(
            locks.lock(3, Level::None, Level::Shared),
            Err(Busy(Level::None))
        );
        assert_eq!(locks.unlock(2, Level::Shared, Level::None), Level::None);
        assert_eq!(
            locks.lock(1, Level::Pending, Level::Exclusive),
            Ok(Level::Exclusive)
        );
        assert_eq!(
            locks.unlock(1, Level::Exclusive, Level::Shared),
            Level::Shared
        );
        assert!(!locks.reserved());
        assert_eq!(locks.lock(3, Level::None, Level::Shared), Ok(Level::Shared));
    }

    #[test]
    fn recovery_goes_from_shared_to_exclusive() {
        let mut locks = Locks::default();
        assert_eq!(locks.lock(7, Level::None, Level::Shared), Ok(Level::Shared));
        assert_eq!(
            locks.lock(7, Level::Shared, Level::Exclusive),
            Ok(Level::Exclusive)
        );
        assert_eq!(locks.unlock(7, Level::Exclusive, Level::None), Level::None);
        assert_eq!(locks.lock(8, Level::None, Level::Shared), Ok(Level::Shared));
    }

    #[test]
    fn numbers_are_those_of_sqlite() {
        assert_eq!(Level::from_number(4), Some(Level::Exclusive));
        assert_eq!(Level::from_number(0), Some(Level::None));
        assert_eq!(Level::from_number(5), None);
        assert_eq!(Level::from_number(-1), None);
    }
}
