//! What whoever serves a base does with its claim, from the opening of its cache to its end. The
//! order counts: the cache's superblock is written before the mark that names its opening, and the
//! cache says that the mark names it only after that.

use super::{Claim, Fence, Leave, Refusal, State};
use crate::engine::Engine;
use crate::error::Error;
use crate::mutant::Mutant;
use crate::store::Store;
use crate::writeback::flush::FlushProgress;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Flushes that base may refuse one after another before that is taken for an answer.
const REFUSED_MAX: u32 = 3;

impl Claim {
    /// Refuses a cache with pages that base does not wait for (rule 4). Clean pages are not
    /// believed where base was served without them since, or went back (rule 7). What a person
    /// should know is returned, to be logged.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`].
    pub fn check_store(&self, store: &mut Store, leave: &Leave) -> Result<Vec<String>, Refusal> {
        // A new cache has nothing to be asked about.
        let Some(found) = store.recovered() else {
            return Ok(Vec::new());
        };
        let after_crash = !found.as_closed;
        let dirty = found.entries.iter().filter(|(_, entry)| entry.dirty);
        let dirty = dirty.count() as u64;
        let stamp = store.stamp();
        let mut notes: Vec<String> = self
            .check_dirty(&stamp, dirty, leave)?
            .into_iter()
            .collect();
        // Without a mark the files themselves tell, after a clean stop.
        let asked = match self.planted {
            Mutant::ServedElsewhere => false,
            Mutant::CleanBelieved => after_crash,
            _ => after_crash || self.state().is_some(),
        };
        // With pages that base waits for it was served with nothing else; or somebody said so.
        if asked && dirty == 0 && !self.is_of_newest(&stamp) {
            notes.push(
                "base was served without this cache since, or is an older copy: the pages in the \
                 cache are given up"
                    .into(),
            );
            store.distrust();
        } else if dirty == 0 && self.state().is_none() {
            self.held().accepted = Some((State::Whole, stamp.format_id, stamp.epoch));
        }
        Ok(notes)
    }

    /// Marks base as served by `engine` from now on; before its first request.
    ///
    /// # Errors
    /// Those of [`Claim::hold`].
    pub fn serve(self: &Arc<Self>, engine: &Engine, mountpoint: &Path) -> Result<(), Refusal> {
        let state = match engine.is_write_back() || engine.dirty_pages() > 0 {
            true => State::Dirty,
            false => State::Serving,
        };
        let stamp = engine.cache_stamp();
        if self.planted == Mutant::EarlyNote {
            stamp.iter().for_each(|stamp| engine.note_marked(stamp));
        }
        self.hold(state, stamp.as_ref(), mountpoint)?;
        debug_assert!(!self.is_ended(), "the mark says who serves");
        let named = stamp.as_ref().is_none_or(|stamp| self.names(stamp));
        debug_assert!(named, "the cache is told only of a mark that names it");
        engine.set_fence(Arc::clone(self) as Arc<dyn Fence>);
        stamp.iter().for_each(|stamp| engine.note_marked(stamp));
        Ok(())
    }

    /// Says that writes of `engine` may stay off base from now on (`dirty`), or that base has
    /// everything again.
    ///
    /// # Errors
    /// Those of [`Claim::switch`].
    pub fn follow(&self, engine: &Engine, dirty: bool) -> Result<(), Refusal> {
        let state = if dirty { State::Dirty } else { State::Serving };
        let stamp = engine.cache_stamp();
        // A tier that was switched on, or another cache, is another opening.
        let named = stamp.as_ref().is_none_or(|stamp| self.names(stamp));
        let named = named || self.planted == Mutant::StaleMark;
        if self.state() == Some(state) && state == State::Serving && named {
            return Ok(());
        }
        self.switch(state, stamp.as_ref())?;
        debug_assert_eq!(
            self.state(),
            Some(state),
            "rule 1: before anything is dirty"
        );
        stamp.iter().for_each(|stamp| engine.note_marked(stamp));
        Ok(())
    }

    /// Says that base has everything again, where `engine` went over to write-through and has
    /// written back what was dirty: whether that was so. Not at the same time as [`Claim::follow`],
    /// nor while write-back is switched on.
    ///
    /// # Errors
    /// Those of [`Claim::switch`].
    pub fn settle(&self, engine: &Engine) -> Result<bool, Refusal> {
        let early = self.planted == Mutant::EarlyWhole && !engine.is_write_back();
        let is_due = self.state() == Some(State::Dirty) && (engine.is_whole() || early);
        if is_due {
            self.follow(engine, false)?;
        }
        Ok(is_due)
    }

    /// Begins another opening of the cache of `engine`, and marks base with it: copies of the
    /// cache, and of base, that were made before are old ones from now on (rules 3, 4 and 7). To be
    /// done now and then: a copy of the present opening cannot be told from what it is a copy of.
    /// Nothing is done where nothing was committed meanwhile. Not at the same time as
    /// [`Claim::follow`].
    ///
    /// # Errors
    /// Those of [`Claim::switch`]; the next time it is tried again.
    pub fn renew(&self, engine: &Engine) -> Result<(), Refusal> {
        engine.next_opening();
        let stamp = engine.cache_stamp();
        match stamp.is_none_or(|stamp| self.names(&stamp)) {
            true => Ok(()),
            false => self.follow(engine, self.state() == Some(State::Dirty)),
        }
    }

    /// Whether base has everything, now that `engine` has stopped, `well` or not.
    #[must_use]
    pub fn is_whole_after(&self, engine: &Engine, well: bool) -> bool {
        let through = self.state() == Some(State::Serving);
        engine.dirty_pages() == 0 && (through || well)
    }
}

impl Engine {
    /// Lets `change` put another cache into the place of the one there is, or have that one made
    /// anew, once base has everything: until then base's mark names the old one; before anything is
    /// dirty again, the new one. `mark` writes the mark, that something may be dirty or that
    /// nothing is; `go_on` is asked while pages are written back.
    ///
    /// # Errors
    /// Those of writing back, of `mark` and of `change`.
    #[doc(hidden)]
    pub fn take_turns<E: From<Error>>(
        &self,
        go_on: impl Fn(FlushProgress) -> bool,
        mark: impl Fn(bool) -> Result<(), E>,
        change: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let back = self.is_write_back();
        self.set_write_back(false);
        // Else base would wait for a cache that is no more, should a crash come then.
        let whole = self.make_whole(go_on).map_err(E::from);
        let cleared = match self.config.planted {
            Mutant::EarlyRenewal => whole,
            _ => whole.and_then(|()| mark(false)),
        };
        let changed = cleared.and_then(|()| change(self));
        let dirty = back || self.dirty_pages() > 0;
        // Also after a failure: who knows what of the mark was written.
        let marked = mark(dirty);
        if marked.is_ok() {
            self.set_write_back(back);
        }
        changed?;
        marked
    }

    /// Writes back everything. Base may refuse some batches, or pages be written meanwhile.
    fn make_whole(&self, go_on: impl Fn(FlushProgress) -> bool) -> Result<(), Error> {
        let mut refused = io::Error::other("pages are written again and again");
        for _ in 0..REFUSED_MAX {
            let mut stopped = false;
            let flushed = self.flush(|progress| {
                stopped = !go_on(progress);
                !stopped
            });
            match flushed {
                Ok(()) if self.dirty_pages() == 0 => return Ok(()),
                Ok(()) if stopped => return Err(Error::Stopped),
                Ok(()) => {}
                Err(error) => refused = error,
            }
        }
        Err(self.not_whole(refused))
    }
}
