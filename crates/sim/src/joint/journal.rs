//! Bytes of the map's journal and of its checkpoints, as docs/flash-format.md lays them out.
//!
//! Counted, not written: a batch takes whole 4-KiB blocks; when half of the journal is in use the
//! 4-KiB units of the map that changed since the last checkpoint are written.

use std::collections::BTreeSet;
use thermocline_core::ledger::MapChange;

/// Bytes of a block of the journal, and of a unit of the map.
const UNIT: u64 = 4096;
/// Bytes of records in a block.
const PAYLOAD: u64 = 4032;
/// Bytes of a record that names a block's page, that empties a block, that turns an intent.
const SET: u64 = 33;
const EMPTY: u64 = 5;
const INTENT: u64 = 13;
/// Blocks whose entries lie in one unit of the map: 8 sectors of 15.
const ENTRIES: u32 = 120;
/// Bytes of the journal for each block of the device, and the least.
const PER_BLOCK: u64 = 40;
const LEAST: u64 = 16 * UNIT;

/// See the module text.
#[derive(Debug)]
pub(super) struct Journal {
    half: u64,
    used: u64,
    changed: BTreeSet<u32>,
}

/// Bytes that one batch made necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) journal: u64,
    pub(super) checkpoint: u64,
}

impl Journal {
    /// The journal of a device of `blocks` blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            half: (u64::from(blocks) * PER_BLOCK).max(LEAST) / 2,
            used: 0,
            changed: BTreeSet::new(),
        }
    }

    /// Takes in a batch.
    pub(super) fn batch(&mut self, changes: &[MapChange]) -> Written {
        if changes.is_empty() {
            return Written::default();
        }
        let mut payload = 0;
        for change in changes {
            payload += match change {
                MapChange::Set { entry: Some(_), .. } => SET,
                MapChange::Set { entry: None, .. } => EMPTY,
                MapChange::Intend { .. } => INTENT,
            };
            if let MapChange::Set { block, .. } = change {
                self.changed.insert(block.0 / ENTRIES);
            }
        }
        let journal = payload.div_ceil(PAYLOAD) * UNIT;
        self.used += journal;
        let full = self.used > self.half;
        let checkpoint = match full {
            true => (std::mem::take(&mut self.changed).len() as u64 + 1) * UNIT,
            false => 0,
        };
        self.used = if full { 0 } else { self.used };
        Written {
            journal,
            checkpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::BlockId;

    #[test]
    fn batches_take_whole_blocks_and_a_checkpoint_what_changed() {
        let mut journal = Journal::new(1);
        let set = |block: u32| MapChange::Set {
            block: BlockId(block),
            entry: Some(Default::default()),
        };
        assert_eq!(journal.batch(&[]), Written::default());
        assert_eq!(journal.batch(&[set(0)]).journal, UNIT);
        let many: Vec<_> = (0..123).map(set).collect();
        assert_eq!(journal.batch(&many).journal, 2 * UNIT);
        // Half of 16 blocks are in use after five more batches; the next makes room.
        for _ in 0..5 {
            assert_eq!(journal.batch(&[set(700)]).checkpoint, 0);
        }
        let two_units_one_more_and_the_superblock = 4 * UNIT;
        let checkpoint = journal.batch(&[set(700)]).checkpoint;
        assert_eq!(checkpoint, two_units_one_more_and_the_superblock);
        assert_eq!(journal.batch(&[set(0)]).checkpoint, 0);
    }
}
