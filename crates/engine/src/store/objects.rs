//! The object area: files with pages on flash, and write intents, as of a checkpoint.
//!
//! Two areas, written in turn; the superblock says which counts, how long it is and its checksum.
//! Layout (little-endian): format id u64, number of objects u32, of intents u32; then the
//! objects; then per intent object u32, region u64. An object: id u32, device u64, inode u64,
//! generation u64, length u64, mtime ns i64, ctime ns i64, fate u8 (bits: 1 it was being unlinked,
//! 2 it was being cut, 128 no sync of it was ever acknowledged), length it is cut to u64, name
//! length u16, name.
//! What is past the bounds of [`super::bounds`] is damage: the whole table then counts as damaged.

use super::bounds::{LENGTH_MAX, intent_fits, kept_name, name_stays_below, object_fits};
use super::superblock::{u32_at, u64_at};
use crate::files::object::{Identity, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use thermocline_core::ObjectId;
use thermocline_core::ledger::Intent;

/// Bytes before the objects.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of one object without its name.
pub(crate) const OBJECT_BYTES: usize = 63;
/// Bytes of one intent.
pub(crate) const INTENT_BYTES: usize = 12;
/// Set in the fate of a file that was being removed.
const UNLINKED: u8 = 1;
/// Set in the fate of a file that was being cut.
const CUT: u8 = 2;
/// Set in the fate of a file that no sync was acknowledged of.
const UNPROMISED: u8 = 0x80;

/// What was under way with an object's file (rule R6): recovery does it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It was being removed: if it is gone, its pages count no more.
    pub unlinked: bool,
    /// It was being cut to this many bytes: pages past them count no more.
    pub cut: Option<u64>,
}

/// One object with pages on flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedObject {
    /// Its id in the entries.
    pub id: ObjectId,
    /// Which file it was.
    pub identity: Identity,
    /// The file's state when this was written.
    pub stamp: Stamp,
    /// Its name then, to look for it there first; kept as `super::bounds::kept_name` says.
    pub name: String,
    /// What was under way with it.
    pub fate: Fate,
    /// Whether a sync of it was ever acknowledged: when not, and the file is gone, nothing is owed.
    pub promised: bool,
}

/// Bytes of the record of a file called `name`.
pub(crate) fn record_bytes(name: &str) -> u64 {
    (OBJECT_BYTES + kept_name(name).len()) as u64
}

impl SavedObject {
    /// Bytes it takes in the object area.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        record_bytes(&self.name)
    }

    /// Whether it is inside the bounds of what is decoded.
    pub(crate) fn is_possible(&self) -> bool {
        let cut = self.fate.cut.unwrap_or(0);
        object_fits(self.id) && self.stamp.length <= LENGTH_MAX && cut <= LENGTH_MAX
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            self.is_possible(),
            "object {} is past the bounds",
            self.id.0
        );
        let name = kept_name(&self.name).as_bytes();
        let flags = [
            (UNLINKED, self.fate.unlinked),
            (CUT, self.fate.cut.is_some()),
            (UNPROMISED, !self.promised),
        ];
        let set = flags.iter().filter(|(_, set)| *set);
        let flags = set.fold(0u8, |flags, (flag, _)| flags | flag);
        out.extend(self.id.0.to_le_bytes());
        for word in [
            self.identity.device,
            self.identity.inode,
            self.identity.generation,
            self.stamp.length,
            self.stamp.mtime_ns as u64,
            self.stamp.ctime_ns as u64,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.push(flags);
        out.extend(self.fate.cut.unwrap_or(0).to_le_bytes());
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(name);
    }

    /// The object at `*at`, which moves past it.
    pub(crate) fn decode(bytes: &[u8], at: &mut usize) -> Option<Self> {
        let fixed = bytes.get(*at..*at + OBJECT_BYTES)?;
        let name_length = usize::from(u16::from_le_bytes([fixed[61], fixed[62]]));
        let name_at = *at + OBJECT_BYTES;
        let name = bytes.get(name_at..name_at + name_length)?;
        let flags = fixed[52];
        if flags & !(UNLINKED | CUT | UNPROMISED) != 0 {
            return None;
        }
        let fate = Fate {
            unlinked: flags & UNLINKED != 0,
            cut: (flags & CUT != 0).then(|| u64_at(fixed, 53)),
        };
        if !name_stays_below(name) {
            return None;
        }
        *at = name_at + name_length;
        debug_assert!(*at <= bytes.len());
        let object = Self {
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
            fate,
            promised: flags & UNPROMISED == 0,
        };
        object.is_possible().then_some(object)
    }
}

/// Objects and intents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) table: BTreeMap<ObjectId, SavedObject>,
    pub(crate) intents: BTreeSet<Intent>,
    /// Bytes of the table as written.
    table_bytes: u64,
}

impl Objects {
    pub(crate) fn put(&mut self, object: SavedObject) {
        self.table_bytes += object.bytes();
        if let Some(before) = self.table.insert(object.id, object) {
            self.table_bytes -= before.bytes();
        }
        debug_assert!(self.table_bytes >= (self.table.len() * OBJECT_BYTES) as u64);
    }

    pub(crate) fn remove(&mut self, id: ObjectId) {
        if let Some(before) = self.table.remove(&id) {
            debug_assert!(self.table_bytes >= before.bytes());
            self.table_bytes -= before.bytes();
        }
    }

    /// Makes `objects` the whole table.
    pub(crate) fn replace(&mut self, objects: Vec<SavedObject>) {
        self.table.clear();
        self.table_bytes = 0;
        for object in objects {
            self.put(object);
        }
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// As bytes.
    pub(crate) fn encode(&self, format_id: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.table_bytes as usize);
        out.extend(format_id.to_le_bytes());
        out.extend((self.table.len() as u32).to_le_bytes());
        out.extend((self.intents.len() as u32).to_le_bytes());
        for object in self.table.values() {
            object.encode(&mut out);
        }
        debug_assert_eq!(out.len() as u64, HEADER_BYTES as u64 + self.table_bytes);
        for intent in &self.intents {
            out.extend(intent.object.0.to_le_bytes());
            out.extend(intent.region.to_le_bytes());
        }
        out
    }

    /// From bytes, which may go on after the last intent; `None` when they are not of this
    /// format or cut short.
    pub(crate) fn decode(bytes: &[u8], format_id: u64) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        if u64_at(header, 0) != format_id {
            return None;
        }
        let mut found = Self::default();
        let mut at = HEADER_BYTES;
        for _ in 0..u32_at(header, 8) {
            found.put(SavedObject::decode(bytes, &mut at)?);
        }
        for _ in 0..u32_at(header, 12) {
            let intent = bytes.get(at..at + INTENT_BYTES)?;
            at += INTENT_BYTES;
            let intent = Intent {
                object: ObjectId(u32_at(intent, 0)),
                region: u64_at(intent, 4),
            };
            if !intent_fits(&intent) {
                return None;
            }
            found.intents.insert(intent);
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Objects {
        let mut objects = Objects::default();
        let fates = [(3, false, None), (4, true, None), (9, true, Some(81))];
        for (id, unlinked, cut) in fates {
            let fate = Fate { unlinked, cut };
            objects.put(SavedObject {
                id: ObjectId(id),
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
                fate,
                promised: id != 3,
            });
        }
        objects
            .intents
            .extend([1, (1 << 54) - 1].map(|region| Intent {
                object: ObjectId(4),
                region,
            }));
        objects
    }

    #[test]
    fn round_trip() {
        let bytes = sample().encode(7);
        assert_eq!(Objects::decode(&bytes, 7), Some(sample()));
        assert_eq!(Objects::decode(&bytes, 8), None, "of another format");
        let none = Objects::default();
        assert_eq!(Objects::decode(&none.encode(7), 7), Some(none));
    }

    #[test]
    fn bytes_are_counted() {
        let mut objects = sample();
        let put = |name: &str| SavedObject {
            name: name.into(),
            ..sample().table[&ObjectId(3)].clone()
        };
        objects.put(put("longer than before, by some"));
        objects.put(put(""));
        objects.remove(ObjectId(9));
        objects.remove(ObjectId(9));
        let written = objects.encode(7).len() - HEADER_BYTES - 2 * INTENT_BYTES;
        assert_eq!(objects.table_bytes(), written as u64);
    }

    #[test]
    fn an_object_past_the_bounds_is_damage() {
        let bytes = sample().encode(7);
        let id_at = HEADER_BYTES;
        let changed = |at: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            Objects::decode(&bytes, 7)
        };
        assert!(changed(id_at, &0x00FF_FFFFu32.to_le_bytes()).is_some());
        assert_eq!(changed(id_at, &0x0100_0000u32.to_le_bytes()), None, "id");
        assert_eq!(changed(id_at + 28, &u64::MAX.to_le_bytes()), None, "length");
        for name in [
            b"/etc/passwd!",
            b"../../passwd",
            b"base/./16384",
            b"base\0/16384!",
        ] {
            assert_eq!(changed(id_at + OBJECT_BYTES, name), None, "{name:?}");
        }
        let region = bytes.len() - 8;
        assert_eq!(changed(region, &u64::MAX.to_le_bytes()), None, "region");
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Objects::decode(&bytes, 7);
            if bytes.len() > 16 {
                bytes[..8].copy_from_slice(&7u64.to_le_bytes());
                bytes[8..16].copy_from_slice(&[2, 0, 0, 0, 1, 0, 0, 0]);
                let _ = Objects::decode(&bytes, 7);
            }
        }

        #[test]
        fn cut_short_is_refused(cut in 1usize..200) {
            let bytes = sample().encode(7);
            prop_assert_eq!(Objects::decode(&bytes[..bytes.len() - cut], 7), None);
        }
    }
}
