//! What query plans say: the slots that the PostgreSQL extension publishes (`pg/thermocline.c`).
//!
//! The bytes come from another process and are believed as little as a page of the database:
//! every number is bounded here, and what makes no sense is no hint. The layout is that of
//! docs/postgresql.md, "The file".
//!
//! [`Plans`] is the shared table of hStorage-DB §4.3: for every object the ⟨level, count⟩ of the
//! running queries that read it at random, with gl_low and gl_high over all of them. It is made
//! anew from the slots of live processes instead of being kept up to date by each query, so that
//! a process that was killed leaves nothing behind.
//!
//! # Invariants
//! 1. Every level is at most [`LEVEL_MAX`], and gl_low ≤ gl_high where there is a level.

use std::collections::HashMap;

use thermocline_core::hint::{HintSet, PlanAccess, PlanLevel, PlanOperator, hint_type};

use super::stream::Access;

/// Bytes of the header and of each slot.
pub const SLOT_BYTES: usize = 512;
/// Slots that are looked at; a server has one for each connection it allows and a few more.
pub const SLOTS_MAX: u32 = 16_384;
/// The highest level there is.
pub const LEVEL_MAX: u8 = 30;

const MAGIC: &[u8; 8] = b"TCHINTS1";
const ENTRIES_AT: usize = 24;
const ENTRY_BYTES: usize = 12;
const ENTRIES_MAX: usize = 40;
const STARTED_AT: usize = SLOT_BYTES - 4;
/// The highest process number that Linux gives out.
const PID_MAX: u32 = 1 << 22;

const _: () = assert!(ENTRIES_AT + ENTRIES_MAX * ENTRY_BYTES <= STARTED_AT);

/// A table or index of a PostgreSQL server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation {
    /// OID of the database; 0 for a catalog that all share.
    pub database: u32,
    /// Its file's number (`relfilenode`).
    pub node: u32,
}

impl Relation {
    /// The relation whose pages the file at `path` has: any segment of the main fork.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let (directory, name) = path.rsplit_once('/')?;
        let (stem, segment) = name.split_once('.').unwrap_or((name, "0"));
        // Temporary tables' files begin with the number of the process.
        let node = match stem.strip_prefix('t') {
            Some(rest) => rest.split_once('_')?.1,
            None => stem,
        };
        segment.parse::<u32>().ok()?;
        let (parent, last) = directory.rsplit_once('/').unwrap_or(("", directory));
        let above = parent.rsplit('/').next().unwrap_or("");
        let database = match last {
            "global" => 0,
            last if above == "base" || above.starts_with("PG_") => last.parse().ok()?,
            _ => return None,
        };
        let node = node.parse().ok()?;
        Some(Self { database, node })
    }
}

/// How the statements of one process read one relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which.
    pub relation: Relation,
    /// The lowest level at which it is read at random; `None` where it is not.
    pub level: Option<u8>,
    /// Whether it is read from beginning to end.
    pub sequential: bool,
    /// The operator at that level, else the one that reads it in order.
    pub operator: PlanOperator,
}

/// What one process publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number, from 1.
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub start: u64,
    /// The process whose statement it works for, where it is a parallel worker; else 0.
    pub leader: u32,
    /// l_low and l_high: of all random operators of its statements.
    pub levels: Option<(u8, u8)>,
    /// One for each relation.
    pub entries: Vec<Entry>,
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// The slots that a file with this header has; `None` when it is not one of ours.
#[must_use]
pub fn slots(header: &[u8]) -> Option<u32> {
    let ours = header.starts_with(MAGIC) && le32(header, 12) as usize == SLOT_BYTES;
    Some(le32(header, 8)).filter(|slots| ours && (1..=SLOTS_MAX).contains(slots))
}

impl Slot {
    /// The slot in `bytes`, which were read upwards; `None` where it is free, is just being
    /// written, or makes no sense.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SLOT_BYTES || le32(bytes, 0) != le32(bytes, STARTED_AT) {
            return None;
        }
        let (pid, leader) = (le32(bytes, 4), le32(bytes, 16));
        let (low, high, count) = (bytes[20], bytes[21], usize::from(bytes[22]));
        if !(1..=PID_MAX).contains(&pid) || leader > PID_MAX || count > ENTRIES_MAX {
            return None;
        }
        let entries = bytes[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count);
        let entries: Vec<Entry> = entries.filter_map(Entry::decode).collect();
        let levels = (low <= high && high <= LEVEL_MAX).then_some((low, high));
        let inside = |entry: &Entry| {
            let within = |level| levels.is_some_and(|(low, high)| (low..=high).contains(&level));
            entry.level.is_none_or(within)
        };
        entries.iter().all(inside).then_some(Self {
            pid,
            start: u64::from(le32(bytes, 8)) | (u64::from(le32(bytes, 12)) << 32),
            leader,
            levels,
            entries,
        })
    }

    /// What it says of `relation`.
    #[must_use]
    pub fn entry(&self, relation: Relation) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.relation == relation)
    }
}

impl Entry {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (level, access) = (bytes[8], bytes[9]);
        let (sequential, random) = (access & 1 != 0, access & 2 != 0);
        let sound = (sequential || random) && access < 8 && random == (level <= LEVEL_MAX);
        sound.then(|| Self {
            relation: Relation {
                database: le32(bytes, 0),
                node: le32(bytes, 4),
            },
            level: random.then_some(level),
            sequential,
            operator: PlanOperator::from_value(bytes[10].into()),
        })
    }
}

/// What all running statements say of one relation.
#[derive(Clone, Debug, Default)]
struct Together {
    /// How many processes read it at random at each level (§4.3, the list of ⟨level, count⟩).
    counts: [u32; LEVEL_MAX as usize + 1],
    best: Option<Entry>,
}

/// The table of rule 5.
#[derive(Clone, Debug, Default)]
pub struct Plans {
    relations: HashMap<Relation, Together>,
    /// gl_low and gl_high.
    levels: Option<(u8, u8)>,
}

impl Plans {
    /// Adds what one live process publishes.
    pub fn add(&mut self, slot: &Slot) {
        if let Some((low, high)) = slot.levels {
            assert!(low <= high && high <= LEVEL_MAX, "invariant 1");
            let (least, most) = self.levels.unwrap_or((low, high));
            self.levels = Some((least.min(low), most.max(high)));
        }
        for entry in &slot.entries {
            let together = self.relations.entry(entry.relation).or_default();
            let best = together.best.get_or_insert(*entry);
            best.sequential |= entry.sequential;
            if let Some(level) = entry.level {
                together.counts[usize::from(level)] += 1;
                if best.level.is_none_or(|known| level < known) {
                    (best.level, best.operator) = (entry.level, entry.operator);
                }
            }
        }
    }

    /// The processes that read `relation` at random at `level`.
    #[must_use]
    pub fn count(&self, relation: Relation, level: u8) -> u32 {
        let together = self.relations.get(&relation);
        let counts = together.map(|together| together.counts.get(usize::from(level)));
        counts.flatten().copied().unwrap_or(0)
    }

    /// What all of them say of `relation`: its lowest level and every kind of access.
    #[must_use]
    pub fn all(&self, relation: Relation) -> Option<&Entry> {
        self.relations.get(&relation)?.best.as_ref()
    }

    /// `hints` of a read, with what is known of it: from the reader's own `entry`, and for the
    /// level from whoever reads the relation at the lowest one (rule 5). `detected` decides where
    /// the reader's plan reads it both ways. `range` is C_prio, n2 − n1.
    #[must_use]
    pub fn hint(&self, hints: HintSet, entry: &Entry, detected: Access, range: u8) -> HintSet {
        let (access, operator) = match (entry.level, entry.sequential, detected) {
            (None, ..) => (PlanAccess::Sequential, entry.operator),
            (Some(_), true, Access::Sequential) => (PlanAccess::Sequential, PlanOperator::SeqScan),
            (Some(_), ..) => (PlanAccess::Random, entry.operator),
        };
        let hints = hints
            .with(hint_type::PLAN_ACCESS, access.value())
            .with(hint_type::PLAN_OPERATOR, operator.value());
        let Some(own) = entry.level.filter(|_| access == PlanAccess::Random) else {
            return hints;
        };
        let level = match self.all(entry.relation).and_then(|all| all.level) {
            Some(best) => best.min(own),
            None => own,
        };
        let (low, high) = self.levels.unwrap_or((own, own));
        let steps = steps(level, (low.min(level), high.max(level)), range);
        hints.with(hint_type::PLAN_LEVEL, PlanLevel::of_steps(steps).value())
    }
}

/// Function (1) of hStorage-DB §4.2.2, less n1: how many priorities below the best a random read
/// at `level` is, where all are from `low` to `high` and there are `range` (n2 − n1) to go down.
#[must_use]
pub fn steps(level: u8, (low, high): (u8, u8), range: u8) -> u8 {
    assert!(low <= level && level <= high, "{level} of {low} to {high}");
    let (above, gap) = (u16::from(level - low), u16::from(high - low));
    let steps = match u16::from(range) {
        range if range >= gap => above,
        range => range * above / gap,
    };
    steps as u8
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
