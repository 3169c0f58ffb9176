//! The saved map: which page of which file every slot holds, written at a clean stop.
//!
//! Layout (little-endian): number of objects u32, number of entries u32; then per object id u32,
//! device u64, inode u64, generation u64, length u64, mtime ns i64, ctime ns i64, name length u16,
//! name; then per entry slot u32, object u32, page index u64, checksum u64.

use super::superblock::{u32_at, u64_at};
use crate::object::{Identity, Stamp};
use thermocline_core::{ObjectId, PageId, SlotId};

/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: u64 = 24;
/// Bytes of one object without its name.
const OBJECT_BYTES: usize = 54;

/// One object of a saved map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedObject {
    /// Its id in the entries.
    pub id: ObjectId,
    /// Which file it was.
    pub identity: Identity,
    /// The file's state when the map was saved.
    pub stamp: Stamp,
    /// Its name then, for people.
    pub name: String,
}

/// One slot of a saved map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedEntry {
    /// The slot.
    pub slot: SlotId,
    /// The page in it.
    pub page: PageId,
    /// Checksum of the page (see [`super::checksum`]).
    pub checksum: u64,
}

/// Everything a warm restart needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedMap {
    /// Files with pages on flash.
    pub objects: Vec<SavedObject>,
    /// Pages on flash.
    pub entries: Vec<SavedEntry>,
}

impl SavedMap {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() * ENTRY_BYTES as usize + 4096);
        out.extend((self.objects.len() as u32).to_le_bytes());
        out.extend((self.entries.len() as u32).to_le_bytes());
        for o in &self.objects {
            let name = &o.name.as_bytes()[..o.name.len().min(usize::from(u16::MAX))];
            out.extend(o.id.0.to_le_bytes());
            for word in [o.identity.device, o.identity.inode, o.identity.generation] {
                out.extend(word.to_le_bytes());
            }
            out.extend(o.stamp.length.to_le_bytes());
            out.extend(o.stamp.mtime_ns.to_le_bytes());
            out.extend(o.stamp.ctime_ns.to_le_bytes());
            out.extend((name.len() as u16).to_le_bytes());
            out.extend(name);
        }
        for e in &self.entries {
            out.extend(e.slot.0.to_le_bytes());
            out.extend(e.page.object.0.to_le_bytes());
            out.extend(e.page.index.to_le_bytes());
            out.extend(e.checksum.to_le_bytes());
        }
        out
    }

    /// From bytes; `None` when they are not a map.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let objects = u32_at(bytes.get(..4)?, 0);
        let entries = u32_at(bytes.get(4..8)?, 0) as usize;
        let mut at = 8;
        let mut map = Self::default();
        for _ in 0..objects {
            map.objects.push(decode_object(bytes, &mut at)?);
        }
        let rest = bytes.get(at..)?;
        if rest.len() != entries.checked_mul(ENTRY_BYTES as usize)? {
            return None;
        }
        map.entries = rest
            .chunks_exact(ENTRY_BYTES as usize)
            .map(decode_entry)
            .collect();
        Some(map)
    }
}

fn decode_object(bytes: &[u8], at: &mut usize) -> Option<SavedObject> {
    let fixed = bytes.get(*at..*at + OBJECT_BYTES)?;
    let name_length = usize::from(u16::from_le_bytes([fixed[52], fixed[53]]));
    let name_at = *at + OBJECT_BYTES;
    let name = bytes.get(name_at..name_at + name_length)?;
    *at = name_at + name_length;
    Some(SavedObject {
        id: ObjectId(u32_at(fixed, 0)),
        identity: Identity {
            device: u64_at(fixed, 4),
            inode: u64_at(fixed, 12),
            generation: u64_at(fixed, 20),
        },
        stamp: Stamp {
            length: u64_at(fixed, 28),
            mtime_ns: u64_at(fixed, 36) as i64,
            ctime_ns: u64_at(fixed, 44) as i64,
        },
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

fn decode_entry(bytes: &[u8]) -> SavedEntry {
    debug_assert_eq!(bytes.len() as u64, ENTRY_BYTES);
    SavedEntry {
        slot: SlotId(u32_at(bytes, 0)),
        page: PageId::new(ObjectId(u32_at(bytes, 4)), u64_at(bytes, 8)),
        checksum: u64_at(bytes, 16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> SavedMap {
        let object = SavedObject {
            id: ObjectId(3),
            identity: Identity {
                device: 1,
                inode: 2,
                generation: 3,
            },
            stamp: Stamp {
                length: 81_920,
                mtime_ns: -5,
                ctime_ns: 6,
            },
            name: "base/5/16384".into(),
        };
        let page = PageId::new(ObjectId(3), u64::MAX);
        let entry = SavedEntry {
            slot: SlotId(9),
            page,
            checksum: 77,
        };
        SavedMap {
            objects: vec![object.clone(), object],
            entries: vec![entry; 3],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(SavedMap::decode(&sample().encode()), Some(sample()));
        assert_eq!(
            SavedMap::decode(&SavedMap::default().encode()),
            Some(SavedMap::default())
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = SavedMap::decode(&bytes);
        }

        #[test]
        fn cut_short_is_refused(cut in 1usize..100) {
            let bytes = sample().encode();
            prop_assert_eq!(SavedMap::decode(&bytes[..bytes.len() - cut]), None);
        }
    }
}
