//! The map is read after the start, a piece at a time, while the store is in use.
//!
//! Only after a clean stop that left no page dirty ([`MapLoad::may_wait`], [`may_wait`]): then
//! nobody waits for what the map says, and what it says of a page that nobody changes stays right.
//! Meanwhile the journal takes batches as ever. None of them names a block: nobody knows which are
//! free.
//!
//! # States
//! *Unread* ([`Unread`]) → *read* ([`Store::read_some`] says so) → *in use* ([`Store::end_read`]:
//! what the map has of leftovers and damage was cleared in place, durably). A crash before that
//! finds the same leftovers again, for no object that has some gets into the table before.

use super::checkpoint::Purpose;
use super::layout::UNIT;
use super::recover::{self, CHUNK, Lost, Reading};
use super::superblock::Superblock;
use super::{Fate, Store};
use crate::error::Error;
use std::io;
use thermocline_core::BlockId;
use thermocline_core::ledger::MapEntry;

/// Bytes of a map from which on a start does not wait for it: about half a second of reading and
/// building tables.
const WAIT_BELOW: u64 = 64 << 20;

/// When the map is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapLoad {
    /// Before the start, or after it where it is long and nobody waits for what it says.
    #[default]
    BySize,
    /// Before the start.
    Before,
    /// After the start where nobody waits for what it says, however short it is, and in the
    /// smallest pieces: for tests.
    After,
}

impl MapLoad {
    pub(super) fn may_wait(self, superblock: &Superblock) -> bool {
        let long = match self {
            Self::BySize => superblock.layout.map_bytes() >= WAIT_BELOW,
            Self::Before => false,
            Self::After => true,
        };
        long && superblock.clean && superblock.all_clean
    }
}

/// Whether what was read before the map leaves nothing for which it would be needed: no journal to
/// lay over it, nothing damaged, and nothing to end that a stop interrupted.
pub(super) fn may_wait(head: &Reading) -> bool {
    let found = &head.recovered;
    let ended = |fate: &Fate| *fate == Fate::default();
    found.journal_batches == 0
        && found.lost.is_empty()
        && head.pending.is_empty()
        && found.objects.iter().all(|object| ended(&object.fate))
}

/// A map that was not read, or not to its end.
#[derive(Debug)]
pub(crate) struct Unread {
    /// As it was found.
    superblock: Superblock,
    reading: Reading,
    done: u64,
    piece: usize,
}

/// A map that was read.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) entries: Vec<(BlockId, MapEntry)>,
    pub(crate) next_version: u64,
    pub(crate) lost: Vec<Lost>,
}

impl Unread {
    pub(super) fn new(superblock: &Superblock, head: &Reading, load: MapLoad) -> Self {
        let mut reading = Reading {
            planted: head.planted,
            objects: head.objects.clone(),
            ..Reading::default()
        };
        reading.recovered.next_version = head.recovered.next_version;
        Self {
            superblock: superblock.clone(),
            reading,
            done: 0,
            piece: match load {
                MapLoad::After => UNIT as usize,
                _ => CHUNK,
            },
        }
    }

    /// Bytes read, and bytes in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.done, self.superblock.layout.map_bytes())
    }
}

impl Store {
    /// Whether the map has not been read.
    #[doc(hidden)]
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// What is still to be read, once.
    pub(crate) fn take_unread(&mut self) -> Option<Unread> {
        self.unread.take()
    }

    /// Reads the map now, as far as that was put off: what was found has its entries then.
    ///
    /// # Errors
    /// Those of the device; a dirty page in a map that has none.
    pub(crate) fn read_now(&mut self) -> Result<(), Error> {
        let Some(mut unread) = self.take_unread() else {
            return Ok(());
        };
        let read = || -> io::Result<Loaded> {
            while !self.read_some(&mut unread)? {}
            self.take_in(unread, &|| true)
        };
        let loaded = read().map_err(|source| self.io_error(source))?;
        if let Some(found) = &mut self.recovered {
            found.entries = loaded.entries;
            found.next_version = found.next_version.max(loaded.next_version);
            found.lost.extend(loaded.lost);
        }
        Ok(())
    }

    /// Reads one piece; true when that was the last.
    ///
    /// # Errors
    /// When the device hangs; what cannot be read is reported as lost.
    pub(crate) fn read_some(&self, unread: &mut Unread) -> io::Result<bool> {
        let Unread {
            superblock,
            reading,
            done,
            piece,
        } = unread;
        *done = recover::read_map(&*self.device, superblock, *done, *piece, reading)?;
        Ok(*done >= superblock.layout.map_bytes())
    }

    /// The map was read: clears what it has of leftovers and damage, and makes that durable.
    ///
    /// # Errors
    /// As [`Store::checkpoint`]; a dirty page in a map that has none;
    /// [`io::ErrorKind::Interrupted`] when it need not go on.
    pub(crate) fn end_read(
        &self,
        unread: Unread,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Loaded> {
        let _one = self.one_checkpoint();
        self.state().usable()?;
        let loaded = self.take_in(unread, goes_on)?;
        let state = self.state();
        let clear = state.pending.is_empty() && state.forgiven.is_empty();
        drop(state);
        if !clear {
            self.write_back(Purpose::Running)?;
        }
        Ok(loaded)
    }

    fn take_in(&self, unread: Unread, goes_on: &dyn Fn() -> bool) -> io::Result<Loaded> {
        let Unread {
            superblock,
            mut reading,
            ..
        } = unread;
        if reading.recovered.entries.iter().any(|(_, e)| e.dirty) {
            let text = "the map calls a page dirty, and was left without any";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if !recover::settle(&superblock, &mut reading, goes_on) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut state = self.state();
        for (block, entry) in reading.pending {
            debug_assert_eq!(entry, None, "leftovers are cleared");
            state.pending.entry(block).or_insert(entry);
        }
        state.forgiven.append(&mut reading.forgiven);
        let found = reading.recovered;
        state.next_version = state.next_version.max(found.next_version);
        Ok(Loaded {
            entries: found.entries,
            next_version: found.next_version,
            lost: found.lost,
        })
    }
}
