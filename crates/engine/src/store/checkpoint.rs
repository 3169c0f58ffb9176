//! Checkpoints: what the journal says is written in place, and the journal starts anew.
//!
//! Order: the journal's changes are taken → sync (so that these are durable) → map sectors and the
//! other object area →
//! sync → superblock with the new start of the journal → sync. A crash before the superblock is
//! durable reads the journal again over a map that says part of the same: every change gives
//! the whole entry of a block, so applying it twice is applying it once.
//!
//! Batches may be appended while a checkpoint runs; they stay in the journal.

use super::layout::UNIT;
use super::map::{self, ENTRIES, SECTOR_BYTES};
use super::objects::SavedObject;
use super::open::{Ours, clear};
use super::recover::read_exact;
use super::superblock::{SUPERBLOCK_BYTES, Superblock};
use super::{Phase, State, Store};
use crate::device::AlignedBuf;
use crate::error::Error;
use crate::lock::MutexGuard;
use crate::mutant::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use thermocline_core::ledger::MapEntry;
use twox_hash::XxHash3_64;

/// Sectors in the unit the map is written in.
const SECTORS: u32 = (UNIT / SECTOR_BYTES as u64) as u32;
/// Blocks described by such a unit.
const GROUP: u32 = SECTORS * ENTRIES as u32;
/// Another opening begins when the journal has so few blocks, or after so many tries.
const FEW_BLOCKS: u64 = 64;
const ROUNDS: u32 = 4;
/// Most units written at once: 1 MiB.
const RUN: u32 = 256;

/// Why a checkpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Open,
    Running,
    /// Base's mark names the present opening.
    Marked,
    Close {
        /// The map calls no page dirty.
        all_clean: bool,
    },
}

/// What a checkpoint writes, taken at one moment.
struct Snapshot {
    changes: BTreeMap<u32, Option<MapEntry>>,
    forgiven: BTreeSet<u32>,
    /// The other object area, when it has to be written.
    objects: Option<Vec<u8>>,
    /// As it will be.
    superblock: Superblock,
}

impl State {
    fn snapshot(&mut self, purpose: Purpose) -> Snapshot {
        let mut superblock = Superblock {
            clean: matches!(purpose, Purpose::Close { .. }),
            as_closed: self.as_closed && !matches!(purpose, Purpose::Close { .. }),
            all_clean: purpose == Purpose::Close { all_clean: true },
            generation: self.superblock.generation + 1,
            epoch: self.superblock.epoch + u64::from(purpose == Purpose::Open),
            journal_first: self.next,
            next_version: self.next_version,
            time_ns: self.time_ns,
            marked: match purpose {
                Purpose::Marked => self.superblock.epoch,
                _ => self.superblock.marked,
            },
            ..self.superblock.clone()
        };
        let objects = self.objects_changed.then(|| {
            let bytes = self.objects.encode(superblock.format_id);
            superblock.objects_area = 1 - superblock.objects_area;
            superblock.objects_length = bytes.len() as u32;
            superblock.objects_checksum = XxHash3_64::oneshot(&bytes);
            bytes
        });
        self.objects_changed = false;
        debug_assert!(superblock.generation > self.superblock.generation);
        assert!(
            superblock.marked <= superblock.epoch,
            "no mark names an opening to come"
        );
        debug_assert!(superblock.journal_first >= self.superblock.journal_first);
        let area = superblock.layout.object_bytes();
        debug_assert!(
            u64::from(superblock.objects_length) <= area,
            "see check_room"
        );
        Snapshot {
            changes: std::mem::take(&mut self.pending),
            forgiven: std::mem::take(&mut self.forgiven),
            objects,
            superblock,
        }
    }
}

impl Store {
    pub(super) fn one_checkpoint(&self) -> MutexGuard<'_, ()> {
        self.checkpointing.lock()
    }

    /// Makes an empty cache of a poisoned one, in place: for a device that works again. What it
    /// held counts no more, so nothing of it may be needed, and nobody uses it meanwhile. `ours` is
    /// asked before each part of the map is written, and before the superblock is.
    ///
    /// # Errors
    /// Those of the device and of `ours`; the cache is then what it was, with fewer pages.
    pub(crate) fn renew(&self, ours: &Ours<'_>) -> Result<(), Error> {
        let _one = self.one_checkpoint();
        let layout = self.layout();
        // The superblock comes last: until then the cache is the one it was, with fewer pages.
        clear(&*self.device, layout.map_offset, layout.map_bytes(), ours)
            .and_then(|()| self.device.sync(true))
            .and_then(|()| ours())
            .map_err(|source| self.io_error(source))?;
        let (_log, _sync) = (self.logging.lock(), self.one_sync());
        let mut state = self.state();
        let superblock = Superblock {
            generation: state.superblock.generation + 1,
            ..Superblock::empty(layout, &state.superblock.base, &*self.clock)
        };
        debug_assert_eq!(superblock.layout, layout, "nobody made it longer meanwhile");
        self.put_superblock(&superblock)
            .and_then(|()| self.device.sync(true))
            .map_err(|source| self.io_error(source))?;
        let mut nothing = super::Reading {
            planted: self.planted,
            ..super::Reading::default()
        };
        *state = State::of(superblock, &mut nothing);
        state.phase = Phase::Open;
        Ok(())
    }

    /// Whether nothing more becomes durable since an error.
    #[doc(hidden)]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        matches!(self.state().phase, Phase::Poisoned(_))
    }

    /// Nothing more becomes durable, and the store is not marked clean any more: whoever uses it
    /// has failed, so that what it would say is not to be believed. The next start recovers from
    /// the last commit.
    #[doc(hidden)]
    pub fn poison(&self, why: &str) {
        self.state().poison(&io::Error::other(why.to_owned()));
    }

    /// Says durably that the cache is in use, after what recovery decided was written in place.
    /// Must come before the first [`Store::write_block`] and [`Store::commit`].
    ///
    /// # Errors
    /// Those of the device; the cache then reads as before.
    #[doc(hidden)]
    pub fn mark_open(&self) -> Result<(), Error> {
        debug_assert!(self.recovered.is_none(), "what was found is taken first");
        let _one = self.one_checkpoint();
        // A batch of the opening before would not count once the superblock tells of this one.
        let _log = self.logging.lock();
        {
            let mut state = self.state();
            if state.phase == Phase::Found {
                state.phase = Phase::Open;
            }
        }
        self.write_back(Purpose::Open)
            .map_err(|source| self.io_error(source))
    }

    /// Begins another opening, unless there was no batch since the present one began: once base's
    /// mark names it, copies of the cache that were made before are old ones. Costs two
    /// checkpoints or a few more; commits wait for the last one, which has little to write.
    ///
    /// # Errors
    /// As [`Store::commit`].
    #[doc(hidden)]
    pub fn next_opening(&self) -> io::Result<()> {
        let _one = self.one_checkpoint();
        {
            let state = self.state();
            state.usable()?;
            if state.phase != Phase::Open || state.next == state.began {
                return Ok(());
            }
        }
        for _ in 0..ROUNDS {
            self.write_back(Purpose::Running)?;
            if self.state().used() <= FEW_BLOCKS {
                break;
            }
        }
        // As in `mark_open`: the journal is empty when the superblock tells of another opening.
        let _log = self.logging.lock();
        self.write_back(Purpose::Open)
    }

    /// Writes the changes of the map since the last checkpoint in place and empties the journal.
    /// Costs a read and a write of 4 KiB for every 120 neighbouring blocks with a change (runs up
    /// to 1 MiB at once), and three syncs. Commits go on meanwhile.
    ///
    /// # Errors
    /// As [`Store::commit`].
    #[doc(hidden)]
    pub fn checkpoint(&self) -> io::Result<()> {
        let _one = self.one_checkpoint();
        self.write_back(Purpose::Running)
    }

    /// A checkpoint unless another thread has just made one.
    pub(super) fn checkpoint_if_full(&self) -> io::Result<()> {
        let _one = self.one_checkpoint();
        let full = self.state().past(3);
        match full {
            true => self.write_back(Purpose::Running),
            false => Ok(()),
        }
    }

    /// Writes everything in place, with `objects` as the table, and marks the store clean.
    ///
    /// # Errors
    /// Those of the device, or that the objects do not fit ([`Store::room_for_objects`]); the
    /// store then stays open, and the next start recovers from the last commit.
    #[doc(hidden)]
    pub fn close(&self, objects: Vec<SavedObject>) -> Result<(), Error> {
        self.close_as(objects, false)
    }

    /// As [`Store::close`]; `all_clean` says that the map calls no page dirty, so that the next
    /// start need not wait for it.
    #[doc(hidden)]
    pub fn close_as(&self, objects: Vec<SavedObject>, all_clean: bool) -> Result<(), Error> {
        self.room_for_objects(&objects)?;
        let _one = self.one_checkpoint();
        {
            let mut state = self.state();
            state.usable().map_err(|source| self.save_error(source))?;
            state.objects.replace(objects);
            state.objects_changed = true;
        }
        self.write_back(Purpose::Close { all_clean })
            .map_err(|source| self.save_error(source))
    }

    fn save_error(&self, source: io::Error) -> Error {
        Error::Save {
            path: self.name.clone(),
            source,
        }
    }

    /// A checkpoint. The caller holds `checkpointing`.
    pub(super) fn write_back(&self, purpose: Purpose) -> io::Result<()> {
        let snapshot = {
            let mut state = self.state();
            state.usable()?;
            state.snapshot(purpose)
        };
        let written = (self.sync()).and_then(|()| self.write_snapshot(&snapshot));
        let mut state = self.state();
        written.inspect_err(|e| state.poison(e))?;
        if snapshot.superblock.epoch != state.superblock.epoch {
            state.began = snapshot.superblock.journal_first;
        }
        state.superblock = snapshot.superblock;
        if matches!(purpose, Purpose::Close { .. }) {
            debug_assert!(
                state.pending.is_empty(),
                "nothing is committed while a store closes"
            );
            state.phase = Phase::Clean;
        }
        state.assert_invariants();
        Ok(())
    }

    fn write_snapshot(&self, snapshot: &Snapshot) -> io::Result<()> {
        let superblock = &snapshot.superblock;
        assert!(
            self.state().durable >= superblock.journal_first,
            "invariant 2: what goes into the map is durable in the journal"
        );
        self.write_map(snapshot)?;
        if let Some(objects) = &snapshot.objects {
            let mut bytes = AlignedBuf::new(objects.len().next_multiple_of(UNIT as usize));
            bytes[..objects.len()].copy_from_slice(objects);
            let area = superblock.layout.objects_offset(superblock.objects_area);
            self.write_at(&bytes, area)?;
        }
        if self.planted != Mutant::EarlyTruncation {
            self.sync_device(&self.one_sync(), true)?;
        }
        self.put_superblock(superblock)?;
        self.sync_device(&self.one_sync(), true)
    }

    /// Writes a superblock; durable with the next sync.
    pub(super) fn put_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        debug_assert_eq!(superblock.layout.check(), Ok(()));
        let at = superblock.generation % 2 * SUPERBLOCK_BYTES as u64;
        self.write_at(&superblock.encode(), at)
    }

    /// Writes the changes in place, in runs of neighbouring units.
    fn write_map(&self, snapshot: &Snapshot) -> io::Result<()> {
        let changed = snapshot.changes.keys().map(|block| block / GROUP);
        let damaged = snapshot.forgiven.iter().map(|sector| sector / SECTORS);
        let units: BTreeSet<u32> = changed.chain(damaged).collect();
        let mut run: Option<(u32, u32)> = None;
        for unit in units {
            run = match run {
                Some((from, to)) if unit == to && to - from < RUN => Some((from, to + 1)),
                other => {
                    if let Some((from, to)) = other {
                        self.write_run(snapshot, from, to)?;
                    }
                    Some((unit, unit + 1))
                }
            };
        }
        run.map_or(Ok(()), |(from, to)| self.write_run(snapshot, from, to))
    }

    /// Reads units of the map from unit `from` on. One that cannot be read is zeros if nothing of
    /// it counts any more: writing it anew may mend it.
    fn read_run(&self, snapshot: &Snapshot, from: u32, bytes: &mut [u8]) -> io::Result<()> {
        let offset = snapshot.superblock.layout.sector_offset(from * SECTORS);
        if read_exact(&*self.device, bytes, offset).is_ok() {
            return Ok(());
        }
        for (i, unit) in bytes.chunks_exact_mut(UNIT as usize).enumerate() {
            let first = (from + i as u32) * SECTORS;
            let last = snapshot
                .superblock
                .layout
                .map_sectors()
                .min(first + SECTORS);
            match read_exact(&*self.device, unit, offset + i as u64 * UNIT) {
                Err(_) if (first..last).all(|s| snapshot.forgiven.contains(&s)) => unit.fill(0),
                other => other?,
            }
        }
        Ok(())
    }

    /// Reads units `from..to` of the map, changes them and writes them back.
    fn write_run(&self, snapshot: &Snapshot, from: u32, to: u32) -> io::Result<()> {
        // From the start each time: a read may have given wrong bytes once.
        super::again(|| self.write_run_once(snapshot, from, to))
    }

    fn write_run_once(&self, snapshot: &Snapshot, from: u32, to: u32) -> io::Result<()> {
        debug_assert!(from < to && to - from <= RUN);
        let layout = &snapshot.superblock.layout;
        let offset = layout.sector_offset(from * SECTORS);
        let mut bytes = AlignedBuf::new((to - from) as usize * UNIT as usize);
        self.read_run(snapshot, from, &mut bytes)?;
        for number in snapshot.forgiven.range(from * SECTORS..to * SECTORS) {
            let at = (number - from * SECTORS) as usize * SECTOR_BYTES;
            bytes[at..at + SECTOR_BYTES].fill(0);
        }
        let id = snapshot.superblock.format_id;
        let first = from.saturating_mul(GROUP);
        let mut changes = snapshot
            .changes
            .range(first..=to.saturating_mul(GROUP).saturating_sub(1))
            .peekable();
        while let Some(&(&block, _)) = changes.peek() {
            let number = block / ENTRIES as u32;
            let at = (number - from * SECTORS) as usize * SECTOR_BYTES;
            let bytes = &mut bytes[at..at + SECTOR_BYTES];
            let mut sector = map::decode(bytes, id, number).ok_or_else(|| {
                let text = format!("map sector at byte {} is damaged", offset + at as u64);
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
            let end = number
                .saturating_mul(ENTRIES as u32)
                .saturating_add(ENTRIES as u32);
            while let Some((&block, &entry)) = changes.next_if(|&(&b, _)| b < end) {
                sector[block as usize % ENTRIES] = entry;
            }
            map::encode(&sector, id, number, bytes);
        }
        debug_assert!(changes.peek().is_none(), "every change has its sector");
        debug_assert!(offset + bytes.len() as u64 <= layout.map_offset + layout.map_bytes());
        self.write_at(&bytes, offset)
    }
}
