//! Reading a cache: map, journal, objects. Writes nothing.
//!
//! # What is believed
//! 1. The map, sector by sector; a damaged sector is reported and its 15 blocks count as empty.
//! 2. Over it the journal. Every block says up to which number all blocks were durable when it
//!    was written; the largest such number seen divides the journal: batches before it are
//!    believed as they are, and one that is missing there is damage, reported; those after it are
//!    the *tail*, of which a crash may have kept any part. The tail ends at its first gap.
//! 3. A beginning of the tail is *sound* when the bytes of each entry in it are there, or it
//!    empties the block again; the longest such beginning is believed as it is. Batches of the tail
//!    may have been acknowledged: the next one is written while they are made durable, and its
//!    blocks do not say yet that they are. All that was durable is sound: no block is written
//!    again before the batch that empties it is durable.
//! 4. The rest is believed except what its data contradicts. What it says *last* of a block counts.
//!    When that is an entry whose bytes do not verify, the entry failed: the block counts as
//!    empty (its former content was given up before it was written: rule R3), unless it was only
//!    a change of flags, which then did not happen. And where the tail last empties a block that
//!    held an older dirty version of a page whose newer version failed, the older version stands.
//!    An older clean one does not: base may be newer, and the same batch may say that no write to
//!    its region is under way.
//! 5. Of several entries for one page the highest version counts; entries of unknown objects count
//!    no more. Both kinds of leftover are cleared by the checkpoint that opens the cache.
//!
//! 6. Where a settled batch or the table of objects is damaged, no clean page counts: what is gone
//!    may have said that base is newer. Dirty pages count; whoever uses them is told of the damage.
//!
//! So an acknowledged commit is always read back whole. A read that fails is tried again, and what
//! cannot be read is not taken for what is not there.
//!
//! Recovery is repeatable: [`super::Store::mark_open`] syncs first (so what verified once verifies
//! again), then writes what was decided in place while the journal still stands, then declares
//! the journal void in one superblock write. A crash before that reads the same again.

use super::bounds::in_a_file;
use super::checksum;
use super::journal::{BLOCK_BYTES, Batch, Block, ObjectChange, decode};
use super::layout::{JOURNAL_OFFSET, UNIT};
use super::map::{self, ENTRIES, SECTOR_BYTES, Sector};
use super::objects::{Objects, SavedObject};
use super::superblock::Superblock;
use crate::device::{AlignedBuf, Device};
use crate::mutant::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use thermocline_core::ledger::{Intent, MapChange, MapEntry};
use thermocline_core::{BlockId, ObjectId, PageId, hash};
use twox_hash::XxHash3_64;

/// Bytes read at once.
pub(crate) const CHUNK: usize = 1 << 20;
/// Entries among which duplicates are looked for at once.
const PART: usize = 1 << 15;
/// Marks an entry that lost against another, while duplicates are being looked for.
const LOSER: u64 = u64::MAX;

/// What a start finds on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the store was closed.
    pub clean_stop: bool,
    /// Whether nothing was committed since it was closed, be it that a crash came before: then what
    /// it knows of files is exact.
    pub as_closed: bool,
    /// Wall clock of the newest batch, ns since 1970; 0 when there never was one.
    pub last_commit_ns: i64,
    /// What each block holds: one block per page, sorted by block.
    pub entries: Vec<(BlockId, MapEntry)>,
    /// Objects, sorted by id.
    pub objects: Vec<SavedObject>,
    /// Regions of which base may be newer than clean copies.
    pub intents: Vec<Intent>,
    /// A version higher than any in use.
    pub next_version: u64,
    /// What could not be read or believed.
    pub lost: Vec<Lost>,
    /// Batches read from the journal.
    pub journal_batches: u64,
}

/// Something of a cache that could not be read or believed. Offsets in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A damaged sector of the map: what these blocks held is unknown.
    MapSector {
        /// Where it lies.
        offset: u64,
        /// The blocks it described.
        blocks: Range<u32>,
    },
    /// A block of the journal that had been durable is not there: changes are unknown.
    Journal {
        /// Where it lies.
        offset: u64,
        /// Its sequence number.
        sequence: u64,
    },
    /// The object area is damaged; `older`: the one before it was taken instead.
    Objects {
        /// Where it lies.
        offset: u64,
        /// Whether the table of the checkpoint before could be read.
        older: bool,
    },
    /// Dirty pages of an object nothing is known of.
    Orphans {
        /// The object.
        object: ObjectId,
        /// How many.
        pages: u64,
    },
    /// An entry for a page that no file has: none can be so long.
    Impossible {
        /// The block.
        block: BlockId,
        /// What it should hold.
        entry: MapEntry,
    },
    /// An entry of the newest batches whose bytes are not there. Expected after a crash, when the
    /// batch was not yet acknowledged; damage otherwise: the two cannot be told apart.
    Unverified {
        /// The block.
        block: BlockId,
        /// What it should hold.
        entry: MapEntry,
    },
}

impl Lost {
    /// Whether it can only be damage, not the normal work of a crash.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Unverified { .. })
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MapSector { offset, blocks } => write!(
                f,
                "map sector at byte {offset} is damaged: contents of blocks {}..{} unknown",
                blocks.start, blocks.end
            ),
            Self::Journal { offset, sequence } => write!(
                f,
                "journal block {sequence} at byte {offset} is damaged: some changes are unknown"
            ),
            Self::Objects { offset, older } => write!(
                f,
                "object table at byte {offset} is damaged{}",
                if *older { "; an older one is used" } else { "" }
            ),
            Self::Orphans { object, pages } => {
                write!(f, "{pages} dirty pages of unknown object {}", object.0)
            }
            Self::Impossible { block, entry } => write!(
                f,
                "block {} is said to hold page {} of object {}: no file is that long",
                block.0, entry.page.index, entry.page.object.0
            ),
            Self::Unverified { block, entry } => write!(
                f,
                "block {} does not hold version {} of page {} of object {}",
                block.0, entry.version, entry.page.index, entry.page.object.0
            ),
        }
    }
}

/// All that was read, with what the store needs to go on.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) recovered: Recovered,
    pub(crate) objects: Objects,
    /// What the checkpoint that opens the store writes into the map.
    pub(crate) pending: BTreeMap<u32, Option<MapEntry>>,
    /// Sectors that are damaged and may be written anew.
    pub(crate) forgiven: BTreeSet<u32>,
    /// Sectors that could not be read when they were needed, which is reported. They count as
    /// damaged, even if they can be read later.
    pub(crate) unread: BTreeSet<u32>,
    /// A sequence number higher than any in use.
    pub(crate) next_sequence: u64,
    /// Blocks beyond the last that sectors name.
    pub(crate) out_of_range: u64,
    /// Entries that lost against a higher version.
    pub(crate) duplicates: u64,
    /// The bug that it was read with, in tests of the testers.
    pub(crate) planted: Mutant,
}

/// Reads a cache. `progress` is told bytes of map read.
///
/// # Errors
/// When the journal or the object areas cannot be read at all; unreadable parts of the map are
/// reported as lost, except when the device hangs.
pub(crate) fn read(
    device: &dyn Device,
    superblock: &Superblock,
    planted: Mutant,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Reading> {
    let mut reading = read_head(device, superblock, planted)?;
    let mut done = 0;
    while done < superblock.layout.map_bytes() {
        done = read_map(device, superblock, done, CHUNK, &mut reading)?;
        progress(done);
    }
    settle(superblock, &mut reading, &|| true);
    Ok(reading)
}

/// Reads all but the map: what is known before it, of objects and from the journal.
pub(crate) fn read_head(
    device: &dyn Device,
    superblock: &Superblock,
    planted: Mutant,
) -> io::Result<Reading> {
    let mut reading = Reading {
        planted,
        ..Reading::default()
    };
    reading.recovered.clean_stop = superblock.clean;
    reading.recovered.last_commit_ns = superblock.time_ns;
    reading.recovered.next_version = superblock.next_version.max(1);
    read_objects(device, superblock, &mut reading)?;
    let ring = Ring::read(device, superblock, planted)?;
    reading.next_sequence = ring.next();
    let (batches, settled) = ring.batches(superblock, &mut reading.recovered.lost);
    reading.recovered.journal_batches = batches.len() as u64;
    reading.recovered.as_closed = superblock.clean || superblock.as_closed && batches.is_empty();
    apply(device, superblock, batches, settled, &mut reading)?;
    debug_assert!(reading.next_sequence >= superblock.journal_first);
    reading.recovered.objects = reading.objects.table.values().cloned().collect();
    reading.recovered.intents = reading.objects.intents.iter().copied().collect();
    Ok(reading)
}

/// The map was read: leaves what counts of its entries. False when it was not done to its end,
/// because it need not go on.
pub(crate) fn settle(
    superblock: &Superblock,
    reading: &mut Reading,
    goes_on: &dyn Fn() -> bool,
) -> bool {
    let blocks = superblock.layout.blocks;
    debug_assert!(
        reading.pending.range(blocks..).next().is_none(),
        "every block has its place in the map"
    );
    drop_impossible(superblock.layout.page_size, reading);
    drop_orphans(reading);
    if !drop_duplicates(reading, goes_on) {
        return false;
    }
    drop_unsure(reading);
    let entries = &reading.recovered.entries;
    debug_assert!(entries.len() <= blocks as usize);
    debug_assert!(entries.is_sorted_by_key(|&(block, _)| block));
    true
}

/// Reads all of `buf`, or fails.
pub(crate) fn read_exact(device: &dyn Device, buf: &mut [u8], offset: u64) -> io::Result<()> {
    match device.read_at(buf, offset)? {
        read if read == buf.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// As [`read_exact`], a few times where it fails; false when it still does.
fn read_again(device: &dyn Device, buf: &mut [u8], offset: u64) -> io::Result<bool> {
    match super::again(|| read_exact(device, buf, offset)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(e),
        Err(_) => Ok(false),
    }
}

fn read_objects(device: &dyn Device, from: &Superblock, out: &mut Reading) -> io::Result<()> {
    let length = from.objects_length as usize;
    if length == 0 {
        return Ok(());
    }
    // `None`: it cannot be read.
    let area = |area: u32| -> io::Result<Option<AlignedBuf>> {
        let mut bytes = AlignedBuf::new(from.layout.object_bytes() as usize);
        let offset = from.layout.objects_offset(area);
        Ok(read_again(device, &mut bytes, offset)?.then_some(bytes))
    };
    let offset = from.layout.objects_offset(from.objects_area);
    let whole = area(from.objects_area)?.and_then(|bytes| {
        let bytes = &bytes[..length];
        let right = XxHash3_64::oneshot(bytes) == from.objects_checksum;
        right
            .then(|| Objects::decode(bytes, from.format_id))
            .flatten()
    });
    if let Some(objects) = whole {
        out.objects = objects;
        return Ok(());
    }
    let older = area(1 - from.objects_area)?;
    let older = older.and_then(|bytes| Objects::decode(&bytes, from.format_id));
    out.recovered.lost.push(Lost::Objects {
        offset,
        older: older.is_some(),
    });
    out.objects = older.unwrap_or_default();
    Ok(())
}

/// The journal as read: block `first + i` at index `i`, when it is there.
struct Ring {
    first: u64,
    blocks: Vec<Option<Block>>,
}

impl Ring {
    fn read(device: &dyn Device, from: &Superblock, planted: Mutant) -> io::Result<Self> {
        let units = from.layout.journal_units as usize;
        let mut blocks = vec![None; units];
        let mut chunk = AlignedBuf::new(CHUNK.min(units * BLOCK_BYTES));
        let mut at = 0;
        while at < units {
            let count = (units - at).min(chunk.len() / BLOCK_BYTES);
            let bytes = &mut chunk[..count * BLOCK_BYTES];
            read_exact(device, bytes, JOURNAL_OFFSET + at as u64 * UNIT)?;
            for (i, bytes) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                let Some(block) = Block::decode(bytes, planted) else {
                    continue;
                };
                let ours = (block.format_id, block.epoch) == (from.format_id, from.epoch);
                let place = block.sequence % units as u64 == (at + i) as u64;
                let index = block.sequence.checked_sub(from.journal_first);
                if let Some(index) = index.filter(|&i| ours && place && i < units as u64) {
                    blocks[index as usize] = Some(block);
                }
            }
            at += count;
        }
        Ok(Self {
            first: from.journal_first,
            blocks,
        })
    }

    /// A number higher than that of any block.
    fn next(&self) -> u64 {
        let last = self.blocks.iter().rposition(Option::is_some);
        self.first + last.map_or(0, |at| at as u64 + 1)
    }

    /// Index of the first block that is not known to have been durable.
    fn settled(&self) -> usize {
        let durable = self.blocks.iter().flatten().map(|b| b.durable).max();
        let index = durable.unwrap_or(0).saturating_sub(self.first);
        (index as usize).min(self.blocks.len())
    }

    /// Batches in order, and how many of them are settled: known to have been durable.
    fn batches(self, from: &Superblock, lost: &mut Vec<Lost>) -> (Vec<Batch>, usize) {
        let settled = self.settled();
        for block in self.blocks.iter().flatten() {
            let opening = (block.format_id, block.epoch);
            assert_eq!(
                opening,
                (from.format_id, from.epoch),
                "invariant 5: blocks of this opening alone"
            );
        }
        let mut batches = Vec::new();
        let mut known = 0;
        let mut at = 0;
        while at < self.blocks.len() {
            let batch = self.batch(at, from.layout.blocks);
            if let Some((batch, parts)) = batch {
                batches.push(batch);
                at += parts;
                known += usize::from(at <= settled);
                continue;
            }
            if at >= settled {
                break;
            }
            if self.is_damage(at) {
                let sequence = self.first + at as u64;
                lost.push(Lost::Journal {
                    offset: from.layout.journal_block(sequence),
                    sequence,
                });
            }
            at += 1;
        }
        debug_assert!(known <= batches.len());
        (batches, known)
    }

    /// Whether the block at index `at`, which starts no batch that counts, is itself at fault:
    /// not there, or start of a batch that is whole and says nonsense.
    fn is_damage(&self, at: usize) -> bool {
        match &self.blocks[at] {
            None => true,
            Some(block) => block.part == 0 && self.payload(at).is_some(),
        }
    }

    /// The batch that starts at index `at`, and its number of blocks.
    fn batch(&self, at: usize, blocks: u32) -> Option<(Batch, usize)> {
        let (payload, first) = self.payload(at)?;
        let batch = decode(&payload, blocks, first.time_ns)?;
        Some((batch, first.parts as usize))
    }

    fn payload(&self, at: usize) -> Option<(Vec<u8>, &Block)> {
        let first = self.blocks[at].as_ref().filter(|b| b.part == 0)?;
        let parts = self.blocks.get(at..at.checked_add(first.parts as usize)?)?;
        let mut payload = Vec::new();
        for (part, block) in parts.iter().enumerate() {
            let block = block.as_ref()?;
            if (block.part as usize, block.parts) != (part, first.parts) {
                return None;
            }
            // Blocks of two versions of one batch, of which neither was acknowledged.
            if block.time_ns != first.time_ns {
                return None;
            }
            payload.extend(&block.payload);
        }
        Some((payload, first))
    }
}

/// Applies the journal to `out`: objects and intents at once, entries into `pending`.
fn apply(
    device: &dyn Device,
    from: &Superblock,
    batches: Vec<Batch>,
    settled: usize,
    out: &mut Reading,
) -> io::Result<()> {
    let failures = failures(device, from, &batches, settled, out.planted)?;
    let sound = match out.planted {
        Mutant::TailAsOne => settled,
        _ => sound(&batches, &failures),
    };
    let mut tail = BTreeMap::new();
    for (number, batch) in batches.iter().enumerate() {
        out.recovered.last_commit_ns = batch.time_ns;
        apply_objects(batch, &mut out.objects);
        for change in &batch.changes {
            match *change {
                MapChange::Intend { intent, on: true } => {
                    out.objects.intents.insert(intent);
                }
                MapChange::Intend { intent, on: false } => {
                    out.objects.intents.remove(&intent);
                }
                MapChange::Set { block, entry } => {
                    let version = entry.map_or(0, |e| e.version + 1);
                    out.recovered.next_version = out.recovered.next_version.max(version);
                    if number < sound {
                        out.pending.insert(block.0, entry);
                    } else {
                        tail.insert(block.0, (entry, failures.contains(&(number, block.0))));
                    }
                }
            }
        }
    }
    apply_tail(device, from, tail, out)
}

/// Entries of the batches from `settled` on whose bytes are not there: number of the batch, block.
fn failures(
    device: &dyn Device,
    from: &Superblock,
    batches: &[Batch],
    settled: usize,
    planted: Mutant,
) -> io::Result<BTreeSet<(usize, u32)>> {
    let mut failures = BTreeSet::new();
    if planted == Mutant::UnverifiedTail {
        return Ok(failures);
    }
    let mut page = AlignedBuf::new(from.layout.page_size as usize);
    for (number, batch) in batches.iter().enumerate().skip(settled) {
        for (block, entry) in last_words(batch) {
            if let Some(entry) = entry
                && !holds(device, from, BlockId(block), &entry, &mut page)?
            {
                failures.insert((number, block));
            }
        }
    }
    Ok(failures)
}

/// What a batch says last of each block: a batch counts wholly or not at all.
fn last_words(batch: &Batch) -> BTreeMap<u32, Option<MapEntry>> {
    let words = batch.changes.iter().filter_map(|change| match *change {
        MapChange::Set { block, entry } => Some((block.0, entry)),
        MapChange::Intend { .. } => None,
    });
    words.collect()
}

/// How many of the batches are sound: rule 3 of the module text.
fn sound(batches: &[Batch], failures: &BTreeSet<(usize, u32)>) -> usize {
    let empties = |batch: &Batch, of: u32| {
        let mut changes = batch.changes.iter();
        changes.any(|change| match change {
            MapChange::Set { block, entry } => block.0 == of && entry.is_none(),
            MapChange::Intend { .. } => false,
        })
    };
    let mut sound = batches.len();
    // From the last one back: what ends before a block is emptied has it with bytes that fail.
    for &(number, block) in failures.iter().rev() {
        let later = batches[..sound].iter().skip(number + 1);
        if number < sound && !later.into_iter().any(|batch| empties(batch, block)) {
            sound = number;
        }
    }
    sound
}

/// Objects of a batch.
fn apply_objects(batch: &Batch, objects: &mut Objects) {
    for change in &batch.objects {
        match change {
            ObjectChange::Put(object) => objects.put(object.clone()),
            ObjectChange::Gone(id) => objects.remove(*id),
        }
    }
}

/// Rule 4 of the module text. `tail`: what it says last of each block, and whether the bytes of
/// that entry are not there.
fn apply_tail(
    device: &dyn Device,
    from: &Superblock,
    tail: BTreeMap<u32, (Option<MapEntry>, bool)>,
    out: &mut Reading,
) -> io::Result<()> {
    let mut failed: BTreeMap<PageId, u64> = BTreeMap::new();
    let words = tail.values().filter(|word| word.1);
    for entry in words.filter_map(|word| word.0) {
        let version = failed.entry(entry.page).or_default();
        *version = entry.version.max(*version);
    }
    for (&block, &(entry, fails)) in &tail {
        let mut before = || match out.pending.get(&block) {
            Some(&entry) => Ok(entry),
            None => stored(device, from, block, &mut out.unread),
        };
        let decided = match entry {
            Some(e) if fails => {
                out.recovered.lost.push(Lost::Unverified {
                    block: BlockId(block),
                    entry: e,
                });
                before()?.filter(|b| (b.page, b.version) == (e.page, e.version))
            }
            Some(entry) => Some(entry),
            None => {
                before()?.filter(|b| b.dirty && failed.get(&b.page).is_some_and(|&v| v > b.version))
            }
        };
        debug_assert!(decided.is_none_or(|d| d.version < LOSER));
        out.pending.insert(block, decided);
    }
    let damage = out.unread.iter().map(|&number| map_sector(from, number));
    out.recovered.lost.extend(damage);
    Ok(())
}

/// Whether the bytes of `entry` may be in `block`. Hanging is an error. What cannot be read is
/// believed: it may be all there is of an acknowledged write, and whoever reads it is told.
fn holds(
    device: &dyn Device,
    from: &Superblock,
    block: BlockId,
    entry: &MapEntry,
    page: &mut [u8],
) -> io::Result<bool> {
    let read = read_again(device, page, from.layout.block_offset(block))?;
    Ok(!read || checksum(entry.page, page) == entry.checksum)
}

/// What the map in place says of one block; nothing where its sector is damaged, which is reported
/// when the map is read. A sector that cannot be read is added to `unread`. Hanging is an error.
fn stored(
    device: &dyn Device,
    from: &Superblock,
    block: u32,
    unread: &mut BTreeSet<u32>,
) -> io::Result<Option<MapEntry>> {
    debug_assert!(block < from.layout.blocks, "see journal::decode");
    let number = block / ENTRIES as u32;
    debug_assert!(number < from.layout.map_sectors());
    let offset = from.layout.sector_offset(number);
    let unit = offset / UNIT * UNIT;
    let mut bytes = AlignedBuf::new(UNIT as usize);
    if !read_again(device, &mut bytes, unit)? {
        unread.insert(number);
        return Ok(None);
    }
    let at = (offset - unit) as usize;
    let sector = map::decode(&bytes[at..at + SECTOR_BYTES], from.format_id, number);
    Ok(sector.and_then(|sector| sector[block as usize % ENTRIES]))
}

/// Reads about `most` bytes of the map from byte `done` of it on, and lays `pending` over them; how
/// many are done then.
pub(crate) fn read_map(
    device: &dyn Device,
    from: &Superblock,
    done: u64,
    most: usize,
    out: &mut Reading,
) -> io::Result<u64> {
    let total = from.layout.map_bytes();
    debug_assert!(done < total && done.is_multiple_of(UNIT) && most >= UNIT as usize);
    let mut bytes = AlignedBuf::new(most.min((total - done) as usize));
    read_or_damage(device, &mut bytes, from.layout.map_offset + done)?;
    let first = (done / SECTOR_BYTES as u64) as u32;
    // Moved out so that `out` can be written while it is read.
    let pending = std::mem::take(&mut out.pending);
    let mut over = pending.range(first * ENTRIES as u32..).peekable();
    for (i, bytes) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
        let number = first + i as u32;
        if number >= from.layout.map_sectors() {
            break;
        }
        let sector = read_sector(bytes, from, number, out);
        for (at, found) in sector.into_iter().enumerate() {
            let block = number * ENTRIES as u32 + at as u32;
            let newer = over.next_if(|&(&b, _)| b == block).map(|(_, &entry)| entry);
            let Some(entry) = newer.unwrap_or(found) else {
                continue;
            };
            let next = &mut out.recovered.next_version;
            *next = (*next).max(entry.version + 1);
            out.recovered.entries.push((BlockId(block), entry));
        }
    }
    out.pending = pending;
    Ok(done + bytes.len() as u64)
}

/// The blocks that a sector describes.
fn blocks_of(from: &Superblock, number: u32) -> Range<u32> {
    let first = number * ENTRIES as u32;
    debug_assert!(first < from.layout.blocks);
    first..from.layout.blocks.min(first.saturating_add(ENTRIES as u32))
}

fn map_sector(from: &Superblock, number: u32) -> Lost {
    let (offset, blocks) = (from.layout.sector_offset(number), blocks_of(from, number));
    Lost::MapSector { offset, blocks }
}

/// A sector as it counts, with blocks there are.
fn read_sector(bytes: &[u8], from: &Superblock, number: u32, out: &mut Reading) -> Sector {
    debug_assert_eq!(bytes.len(), SECTOR_BYTES);
    let sector = map::decode(bytes, from.format_id, number);
    let Some(mut sector) = sector.filter(|_| !out.unread.contains(&number)) else {
        out.forgiven.insert(number);
        if !out.unread.contains(&number) {
            out.recovered.lost.push(map_sector(from, number));
        }
        return Sector::default();
    };
    for entry in &mut sector[blocks_of(from, number).len()..] {
        out.out_of_range += u64::from(entry.take().is_some());
    }
    sector
}

/// Reads a piece of the map; units that cannot be read become bytes that decode as damage.
fn read_or_damage(device: &dyn Device, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    if read_exact(device, bytes, offset).is_ok() {
        return Ok(());
    }
    for (i, unit) in bytes.chunks_mut(UNIT as usize).enumerate() {
        match read_exact(device, unit, offset + i as u64 * UNIT) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
            Err(_) => unit.fill(0xFF),
        }
    }
    Ok(())
}

/// Entries whose page would lie past the end of every file.
fn drop_impossible(page_size: u32, out: &mut Reading) {
    let (lost, pending) = (&mut out.recovered.lost, &mut out.pending);
    out.recovered.entries.retain(|&(block, entry)| {
        let possible = in_a_file(entry.page, page_size);
        if !possible {
            pending.insert(block.0, None);
            lost.push(Lost::Impossible { block, entry });
        }
        possible
    });
}

/// Rule 6 of the module text.
fn drop_unsure(out: &mut Reading) {
    let is_unsure = |lost: &Lost| matches!(lost, Lost::Journal { .. } | Lost::Objects { .. });
    if !out.recovered.lost.iter().any(is_unsure) {
        return;
    }
    let pending = &mut out.pending;
    out.recovered.entries.retain(|(block, entry)| {
        if !entry.dirty {
            pending.insert(block.0, None);
        }
        entry.dirty
    });
    let entries = &out.recovered.entries;
    debug_assert!(entries.iter().all(|(_, entry)| entry.dirty), "rule 6");
}

/// Takes out entries of objects that are not in the table.
fn drop_orphans(out: &mut Reading) {
    let mut dirty: BTreeMap<ObjectId, u64> = BTreeMap::new();
    let (table, pending) = (&out.objects.table, &mut out.pending);
    // Asked for every page: ids are small and dense.
    let last = table.keys().max().map_or(0, |id| id.0 as usize + 1);
    let mut known = vec![false; last];
    table.keys().for_each(|id| known[id.0 as usize] = true);
    out.recovered.entries.retain(|(block, entry)| {
        let known = known.get(entry.page.object.0 as usize) == Some(&true);
        if !known {
            pending.insert(block.0, None);
            if entry.dirty {
                *dirty.entry(entry.page.object).or_default() += 1;
            }
        }
        known
    });
    let orphans = dirty.into_iter();
    let lost = orphans.map(|(object, pages)| Lost::Orphans { object, pages });
    out.recovered.lost.extend(lost);
}

/// Leaves one entry per page, that with the highest version; of equal ones the first. In parts by
/// hash, each of which fits into a processor's cache. False when it was not done to its end.
fn drop_duplicates(out: &mut Reading, goes_on: &dyn Fn() -> bool) -> bool {
    let mut losers = 0;
    let entries = &mut out.recovered.entries;
    let mut parts = by_hash(entries);
    for part in &mut parts {
        if !goes_on() {
            return false;
        }
        part.sort_unstable();
        for run in part.chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() > 1) {
            for (later, &(_, at)) in run.iter().enumerate().skip(1) {
                let at = at as usize;
                let same = |&&(_, other): &&(u32, u32)| {
                    let other = &entries[other as usize].1;
                    other.version != LOSER && other.page == entries[at].1.page
                };
                let Some(&(_, other)) = run[..later].iter().find(same) else {
                    continue;
                };
                let newer = entries[at].1.version > entries[other as usize].1.version;
                let loser = if newer { other as usize } else { at };
                out.pending.insert(entries[loser].0.0, None);
                entries[loser].1.version = LOSER;
                losers += 1;
            }
        }
    }
    out.duplicates += losers;
    if losers > 0 {
        entries.retain(|(_, entry)| entry.version != LOSER);
    }
    true
}

/// Places of entries, each with 32 bits of its page's hash, in parts by other bits of it.
fn by_hash(entries: &[(BlockId, MapEntry)]) -> Vec<Vec<(u32, u32)>> {
    let parts = entries.len().div_ceil(PART).max(1);
    let part = |hash: u64| (((hash >> 32) * parts as u64) >> 32) as usize;
    let hashes = || entries.iter().map(|(_, entry)| hash::of_page(entry.page));
    let mut sizes = vec![0; parts];
    hashes().for_each(|hash| sizes[part(hash)] += 1);
    let mut out: Vec<Vec<(u32, u32)>> = sizes.into_iter().map(Vec::with_capacity).collect();
    for (at, hash) in hashes().enumerate() {
        out[part(hash)].push((hash as u32, at as u32));
    }
    assert_eq!(out.iter().map(Vec::len).sum::<usize>(), entries.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Few pages with many versions, among so many others that there are several parts.
        #[test]
        fn of_several_entries_for_a_page_the_newest_stays(
            versions in proptest::collection::vec((0u64..6, 0u64..4), 0..40),
            others in prop::sample::select(vec![0u64, 3 * PART as u64]),
        ) {
            let entry = |index, version| MapEntry {
                page: PageId::new(ObjectId(1), index),
                version,
                ..MapEntry::default()
            };
            let all = versions.iter().map(|&(page, version)| entry(page, version));
            let all = all.chain((0..others).map(|other| entry(100 + other, 1)));
            let entries: Vec<_> = (0..).map(BlockId).zip(all).collect();
            let mut best: BTreeMap<PageId, (BlockId, MapEntry)> = BTreeMap::new();
            for &(block, entry) in &entries {
                let known = best.get(&entry.page).map(|(_, known)| known.version);
                if known.is_none_or(|version| entry.version > version) {
                    best.insert(entry.page, (block, entry));
                }
            }
            let mut expected: Vec<_> = best.into_values().collect();
            expected.sort_unstable_by_key(|(block, _)| *block);
            let mut reading = Reading::default();
            reading.recovered.entries.clone_from(&entries);
            prop_assert!(drop_duplicates(&mut reading, &|| true));
            prop_assert_eq!(reading.duplicates as usize, entries.len() - expected.len());
            prop_assert_eq!(reading.pending.len(), entries.len() - expected.len());
            prop_assert!(expected.iter().all(|(block, _)| !reading.pending.contains_key(&block.0)));
            prop_assert!(reading.recovered.entries == expected);
        }
    }
}
