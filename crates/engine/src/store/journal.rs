//! The journal: a ring of 4-KiB blocks that holds the changes of the map since the last
//! checkpoint, in batches.
//!
//! Block with sequence number `s` lies at place `s mod n`. A batch takes one block or several in
//! a row and counts only when all are there. Layout of a block (little-endian):
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `TCJB` |
//! | 4..8 | bytes of payload |
//! | 8..16 | format id |
//! | 16..24 | epoch |
//! | 24..32 | sequence number |
//! | 32..40 | all blocks with lower numbers were durable when this one was written up to this |
//! | 40..48 | time, ns since 1970 |
//! | 48..52 | which block of the batch, from 0 |
//! | 52..56 | blocks in the batch |
//! | 56..4088 | payload |
//! | 4088..4096 | xxh3-64 of bytes 0..4088 |
//!
//! Payload, over all blocks of a batch: records, each a tag u8 and its fields. 1: block u32 and
//! entry (28 bytes as in the map); 2: block u32, now empty; 3 and 4: intent object u32, region
//! u64, on and off; 5: object as in the object area; 6: object id u32, gone. A batch with a record
//! past the bounds of [`super::bounds`] is damage.

use super::bounds::{intent_fits, object_fits};
use super::layout::UNIT;
use super::map;
use super::objects::SavedObject;
use super::superblock::{u32_at, u64_at};
use crate::mutant::Mutant;
use thermocline_core::ledger::{Intent, MapChange};
use thermocline_core::{BlockId, ObjectId};
use twox_hash::XxHash3_64;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = UNIT as usize;
/// Bytes of payload in a block.
pub(crate) const PAYLOAD_BYTES: usize = CHECKSUM_AT - PAYLOAD_AT;

const MAGIC: [u8; 4] = *b"TCJB";
const PAYLOAD_AT: usize = 56;
const CHECKSUM_AT: usize = BLOCK_BYTES - 8;

/// One change of the object table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// The object is now this, known before or not.
    Put(SavedObject),
    /// The object is forgotten: entries that still name it count no more.
    Gone(ObjectId),
}

impl ObjectChange {
    /// Bytes of the record that it makes; 0 where it takes one away.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Put(object) => object.bytes(),
            Self::Gone(_) => 0,
        }
    }
}

/// Changes that become durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Of the map, in order.
    pub changes: Vec<MapChange>,
    /// Of the object table, in order; before the changes of the map.
    pub objects: Vec<ObjectChange>,
    /// Wall clock, ns since 1970.
    pub time_ns: i64,
}

impl Batch {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.objects.is_empty()
    }
}

/// A block that is whole and of this cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) format_id: u64,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    /// Blocks before this number were durable when this one was written.
    pub(crate) durable: u64,
    pub(crate) time_ns: i64,
    pub(crate) part: u32,
    pub(crate) parts: u32,
    pub(crate) payload: Vec<u8>,
}

impl Block {
    /// Writes the block into `out`, 4096 bytes.
    pub(crate) fn encode(&self, out: &mut [u8]) {
        debug_assert_eq!(out.len(), BLOCK_BYTES);
        debug_assert!(self.payload.len() <= PAYLOAD_BYTES && self.part < self.parts);
        out.fill(0);
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &(self.payload.len() as u32).to_le_bytes());
        put(8, &self.format_id.to_le_bytes());
        put(16, &self.epoch.to_le_bytes());
        put(24, &self.sequence.to_le_bytes());
        put(32, &self.durable.to_le_bytes());
        put(40, &self.time_ns.to_le_bytes());
        put(48, &self.part.to_le_bytes());
        put(52, &self.parts.to_le_bytes());
        put(PAYLOAD_AT, &self.payload);
        let checksum = XxHash3_64::oneshot(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        debug_assert_eq!(Self::decode(out, Mutant::None).as_ref(), Some(self));
    }

    /// Reads a block; `None` when it is not one.
    pub(crate) fn decode(bytes: &[u8], planted: Mutant) -> Option<Self> {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES);
        let sum = || XxHash3_64::oneshot(&bytes[..CHECKSUM_AT]);
        let checked = planted != Mutant::UncheckedJournal;
        if bytes[..4] != MAGIC || (checked && u64_at(bytes, CHECKSUM_AT) != sum()) {
            return None;
        }
        let length = u32_at(bytes, 4) as usize;
        let (part, parts) = (u32_at(bytes, 48), u32_at(bytes, 52));
        let sequence = u64_at(bytes, 24);
        if length > PAYLOAD_BYTES || part >= parts || u64::from(part) > sequence {
            return None;
        }
        Some(Self {
            format_id: u64_at(bytes, 8),
            epoch: u64_at(bytes, 16),
            sequence,
            durable: u64_at(bytes, 32),
            time_ns: u64_at(bytes, 40) as i64,
            part,
            parts,
            payload: bytes[PAYLOAD_AT..PAYLOAD_AT + length].to_vec(),
        })
    }
}

/// Appends one record.
pub(crate) fn encode_object(change: &ObjectChange, out: &mut Vec<u8>) {
    match change {
        ObjectChange::Put(object) => {
            out.push(5);
            object.encode(out);
        }
        ObjectChange::Gone(id) => {
            out.push(6);
            out.extend(id.0.to_le_bytes());
        }
    }
}

/// Appends one record.
pub(crate) fn encode_change(change: &MapChange, out: &mut Vec<u8>) {
    match *change {
        MapChange::Set { block, entry } => {
            out.push(if entry.is_some() { 1 } else { 2 });
            out.extend(block.0.to_le_bytes());
            if let Some(entry) = entry {
                out.extend(map::pack(&entry));
            }
        }
        MapChange::Intend { intent, on } => {
            out.push(if on { 3 } else { 4 });
            out.extend(intent.object.0.to_le_bytes());
            out.extend(intent.region.to_le_bytes());
        }
    }
}

/// The batch that these records say; `None` when they are none, or name a block past `blocks`.
pub(crate) fn decode(bytes: &[u8], blocks: u32, time_ns: i64) -> Option<Batch> {
    let mut batch = Batch {
        time_ns,
        ..Batch::default()
    };
    let mut at = 0;
    while at < bytes.len() {
        let tag = bytes[at];
        at += 1;
        match tag {
            5 => {
                let object = SavedObject::decode(bytes, &mut at)?;
                batch.objects.push(ObjectChange::Put(object));
            }
            6 => {
                let id = ObjectId(u32_at(take(bytes, &mut at, 4)?, 0));
                if !object_fits(id) {
                    return None;
                }
                batch.objects.push(ObjectChange::Gone(id));
            }
            _ => batch
                .changes
                .push(decode_change(tag, bytes, &mut at, blocks)?),
        }
    }
    Some(batch)
}

fn decode_change(tag: u8, bytes: &[u8], at: &mut usize, blocks: u32) -> Option<MapChange> {
    let change = match tag {
        1 | 2 => {
            let block = BlockId(u32_at(take(bytes, at, 4)?, 0));
            if block.0 >= blocks {
                return None;
            }
            let entry = match tag {
                1 => Some(map::unpack(take(bytes, at, map::PACKED_BYTES)?)?),
                _ => None,
            };
            MapChange::Set { block, entry }
        }
        3 | 4 => {
            let fields = take(bytes, at, 12)?;
            let intent = Intent {
                object: ObjectId(u32_at(fields, 0)),
                region: u64_at(fields, 4),
            };
            if !intent_fits(&intent) {
                return None;
            }
            MapChange::Intend {
                intent,
                on: tag == 3,
            }
        }
        _ => return None,
    };
    Some(change)
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> Option<&'a [u8]> {
    let taken = bytes.get(*at..*at + length)?;
    *at += length;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::object::{Identity, Stamp};
    use crate::store::Fate;
    use proptest::prelude::*;
    use thermocline_core::PageId;
    use thermocline_core::ledger::MapEntry;

    fn encode(batch: &Batch) -> Vec<u8> {
        let mut out = Vec::new();
        batch
            .objects
            .iter()
            .for_each(|o| encode_object(o, &mut out));
        batch
            .changes
            .iter()
            .for_each(|c| encode_change(c, &mut out));
        out
    }

    fn sample() -> Batch {
        let object = SavedObject {
            id: ObjectId(3),
            identity: Identity::default(),
            stamp: Stamp::default(),
            name: "orders".into(),
            fate: Fate {
                unlinked: false,
                cut: Some(5),
            },
            promised: true,
        };
        let intent = Intent {
            object: ObjectId(3),
            region: 8,
        };
        let entry = MapEntry {
            page: PageId::new(ObjectId(3), (1 << 54) - 1),
            checksum: 77,
            version: 5,
            dirty: true,
        };
        let set = |block, entry| MapChange::Set {
            block: BlockId(block),
            entry,
        };
        Batch {
            changes: vec![
                set(9, Some(entry)),
                MapChange::Intend { intent, on: true },
                set(8, None),
                MapChange::Intend { intent, on: false },
            ],
            objects: vec![ObjectChange::Put(object), ObjectChange::Gone(ObjectId(1))],
            time_ns: 9,
        }
    }

    fn block() -> Block {
        Block {
            format_id: 1,
            epoch: 2,
            sequence: 3,
            durable: 2,
            time_ns: -4,
            part: 1,
            parts: 2,
            payload: encode(&sample()),
        }
    }

    #[test]
    fn round_trip() {
        let bytes = encode(&sample());
        assert_eq!(decode(&bytes, 10, 9), Some(sample()));
        assert_eq!(decode(&bytes, 9, 9), None, "there is no block 9");
        let mut out = vec![0xFF; BLOCK_BYTES];
        block().encode(&mut out);
        assert_eq!(Block::decode(&out, Mutant::None), Some(block()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut out = vec![0; BLOCK_BYTES];
        block().encode(&mut out);
        for at in 0..BLOCK_BYTES {
            out[at] ^= 1 << (at % 8);
            assert_eq!(Block::decode(&out, Mutant::None), None, "byte {at}");
            out[at] ^= 1 << (at % 8);
        }
    }

    proptest! {
        #[test]
        fn records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, 100, 0);
        }

        #[test]
        fn records_that_look_right_never_panic(
            tags in proptest::collection::vec((1u8..8, any::<u8>()), 1..20),
        ) {
            let bytes: Vec<u8> =
                tags.iter().flat_map(|&(tag, fill)| [tag, fill, 0, 0, 0, fill]).collect();
            let _ = decode(&bytes, 100, 0);
        }

        #[test]
        fn sealed_blocks_never_panic(bytes in proptest::collection::vec(any::<u8>(), 56)) {
            let mut block = vec![0; BLOCK_BYTES];
            block[..56].copy_from_slice(&bytes);
            block[..4].copy_from_slice(&MAGIC);
            let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
            block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
            let _ = Block::decode(&block, Mutant::None);
        }
    }
}
