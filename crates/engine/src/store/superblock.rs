//! The first two units of a cache: what it is, where its parts lie, how it was left.
//!
//! Two copies, 4096 bytes each, at offsets 0 and 4096; writes alternate between them, so one is
//! whole whatever a torn write does to the other. The valid copy with the higher generation
//! counts. Layout (little-endian; see docs/flash-format.md for the picture):
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `THERMOCL` |
//! | 8..12 | format version |
//! | 12..16 | page size |
//! | 16..20 | blocks |
//! | 20..24 | state: 0 open, 1 clean, 2 open since a clean stop, and nothing committed since |
//! | 24..32 | generation |
//! | 32..40 | length of the cache in bytes |
//! | 40..56 | base: file system id, inode of the base directory |
//! | 56..64 | format id: another one each time the cache is made |
//! | 64..72 | epoch: counts openings; journal blocks of others are not believed |
//! | 72..80 | offset of the map |
//! | 80..88 | journal, one object area: units of 4 KiB (u32 each) |
//! | 88..96 | first sequence number of the journal that counts |
//! | 96..104 | object area that counts (u32), bytes in it (u32) |
//! | 104..112 | checksum of those bytes |
//! | 112..120 | next version |
//! | 120..128 | time of the newest batch, ns since 1970 |
//! | 128..130 | length of the base path, then the path (at most 3,900 bytes, for people) |
//! | 4040..4056 | id of the base, as in its mark; 0 unknown |
//! | 4056..4060 | after a clean stop: 1, the map calls no page dirty; 0, it may |
//! | 4064..4072 | newest opening that base's mark is known to have named; 0 unknown |
//! | 4088..4096 | xxh3-64 of bytes 0..4088 |

use super::layout::Layout;
use super::map::VERSION_END;
use twox_hash::XxHash3_64;

/// Bytes of one copy.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// Version this program writes.
pub(crate) const FORMAT_VERSION: u32 = 4;
/// The oldest one it reads: what was added since is zero there, and means what was so then.
pub(crate) const OLDEST_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"THERMOCL";
const CHECKSUM_AT: usize = SUPERBLOCK_BYTES - 8;
const PATH_AT: usize = 130;
const PATH_MAX: usize = 3_900;
const BASE_ID_AT: usize = 4040;
const ALL_CLEAN_AT: usize = BASE_ID_AT + 16;
const MARKED_AT: usize = ALL_CLEAN_AT + 8;

const _: () = assert!(PATH_AT + PATH_MAX <= BASE_ID_AT && MARKED_AT + 8 <= CHECKSUM_AT);

/// Which base directory a cache belongs to.
///
/// From [`crate::claim::Claim::identity`]. A cache of one base is refused for another:
///
/// ```
/// use thermocline::{BaseIdentity, Error, Store, StoreOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("cache");
/// let of = |inode| StoreOptions {
///     size: Some(4 << 20),
///     base: BaseIdentity { file_system: 1, inode, ..BaseIdentity::default() },
///     ..StoreOptions::default()
/// };
/// drop(Store::open(&path, &of(2))?);
/// assert!(matches!(Store::open(&path, &of(3)), Err(Error::OtherBase { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseIdentity {
    /// Device number of its file system: another one after each mount, on some.
    pub file_system: u64,
    /// Inode number of the base directory.
    pub inode: u64,
    /// Where it was mounted from, for people; not compared.
    pub path: String,
    /// The id in its mark (see [`crate::claim`]); 0 unknown.
    pub id: u128,
}

impl BaseIdentity {
    /// Whether both are the same directory: by their ids where both have one, else by device and
    /// inode.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        match self.id == 0 || other.id == 0 {
            true => (self.file_system, self.inode) == (other.file_system, other.inode),
            false => self.id == other.id,
        }
    }

    /// What to call it where another one is at `path`: this may have been there before.
    pub(crate) fn beside(&self, path: &str) -> String {
        match self.path == path {
            true => format!(
                "that was at {path} before (inode {} on device {})",
                self.inode, self.file_system
            ),
            false => self.path.clone(),
        }
    }
}

/// Contents of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) layout: Layout,
    pub(crate) clean: bool,
    /// It was clean, and since it was opened no batch was made: what it knows of files is as exact.
    pub(crate) as_closed: bool,
    /// Known only after a clean stop: the map calls no page dirty.
    pub(crate) all_clean: bool,
    pub(crate) generation: u64,
    pub(crate) base: BaseIdentity,
    pub(crate) format_id: u64,
    pub(crate) epoch: u64,
    pub(crate) journal_first: u64,
    pub(crate) objects_area: u32,
    pub(crate) objects_length: u32,
    pub(crate) objects_checksum: u64,
    pub(crate) next_version: u64,
    pub(crate) time_ns: i64,
    /// The newest opening that base's mark is known to have named, durably; 0 unknown. A base that
    /// names an older one went back.
    pub(crate) marked: u64,
}

/// Why a block is not a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// No magic number.
    Magic,
    /// Wrong checksum.
    Checksum,
    /// Right checksum, another version.
    Version(u32),
    /// A field makes no sense.
    Field(&'static str),
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => write!(f, "no magic number"),
            Self::Checksum => write!(f, "wrong checksum"),
            Self::Version(v) => write!(f, "format version {v}"),
            Self::Field(name) => write!(f, "impossible {name}"),
        }
    }
}

impl Superblock {
    /// The block as written.
    pub(crate) fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut block = [0u8; SUPERBLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(12, &self.layout.page_size.to_le_bytes());
        put(16, &self.layout.blocks.to_le_bytes());
        debug_assert!(!(self.clean && self.as_closed), "one state at a time");
        let state = if self.as_closed {
            2
        } else {
            u32::from(self.clean)
        };
        put(20, &state.to_le_bytes());
        put(24, &self.generation.to_le_bytes());
        put(32, &self.layout.length.to_le_bytes());
        put(40, &self.base.file_system.to_le_bytes());
        put(48, &self.base.inode.to_le_bytes());
        put(56, &self.format_id.to_le_bytes());
        put(64, &self.epoch.to_le_bytes());
        put(72, &self.layout.map_offset.to_le_bytes());
        put(80, &self.layout.journal_units.to_le_bytes());
        put(84, &self.layout.object_units.to_le_bytes());
        put(88, &self.journal_first.to_le_bytes());
        put(96, &self.objects_area.to_le_bytes());
        put(100, &self.objects_length.to_le_bytes());
        put(104, &self.objects_checksum.to_le_bytes());
        put(112, &self.next_version.to_le_bytes());
        put(120, &self.time_ns.to_le_bytes());
        let path = self.base.path.as_bytes();
        let path = &path[..path.len().min(PATH_MAX)];
        put(128, &(path.len() as u16).to_le_bytes());
        put(PATH_AT, path);
        put(BASE_ID_AT, &self.base.id.to_le_bytes());
        put(ALL_CLEAN_AT, &u32::from(self.all_clean).to_le_bytes());
        put(MARKED_AT, &self.marked.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        debug_assert_eq!(Self::decode(&block).as_ref(), Ok(&self.as_stored()));
        block
    }

    /// Reads a block of [`SUPERBLOCK_BYTES`].
    pub(crate) fn decode(block: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, Invalid> {
        if block[..8] != MAGIC {
            return Err(Invalid::Magic);
        }
        if u64_at(block, CHECKSUM_AT) != XxHash3_64::oneshot(&block[..CHECKSUM_AT]) {
            return Err(Invalid::Checksum);
        }
        let version = u32_at(block, 8);
        if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(Invalid::Version(version));
        }
        let path_length = usize::from(u16::from_le_bytes([block[128], block[129]]));
        let path = block
            .get(PATH_AT..PATH_AT + path_length.min(PATH_MAX))
            .unwrap_or_default();
        let layout = Layout {
            page_size: u32_at(block, 12),
            journal_units: u32_at(block, 80),
            object_units: u32_at(block, 84),
            blocks: u32_at(block, 16),
            map_offset: u64_at(block, 72),
            length: u64_at(block, 32),
        };
        let found = Self {
            layout,
            clean: u32_at(block, 20) == 1,
            as_closed: u32_at(block, 20) == 2,
            // What older programs wrote is zero there.
            all_clean: u32_at(block, ALL_CLEAN_AT) == 1,
            generation: u64_at(block, 24),
            base: BaseIdentity {
                file_system: u64_at(block, 40),
                inode: u64_at(block, 48),
                path: String::from_utf8_lossy(path).into_owned(),
                id: u128_at(block, BASE_ID_AT),
            },
            format_id: u64_at(block, 56),
            epoch: u64_at(block, 64),
            journal_first: u64_at(block, 88),
            objects_area: u32_at(block, 96),
            objects_length: u32_at(block, 100),
            objects_checksum: u64_at(block, 104),
            next_version: u64_at(block, 112),
            time_ns: u64_at(block, 120) as i64,
            // As is this.
            marked: u64_at(block, MARKED_AT),
        };
        found.check()
    }

    fn check(self) -> Result<Self, Invalid> {
        self.layout.check().map_err(Invalid::Field)?;
        let objects = u64::from(self.objects_length);
        if self.objects_area > 1 || objects > self.layout.object_bytes() {
            return Err(Invalid::Field("object area"));
        }
        // What counts up never comes near its end, so that no addition can overflow.
        for (value, end, name) in [
            (self.generation, 1 << 62, "generation"),
            (self.epoch, 1 << 62, "epoch"),
            (self.journal_first, 1 << 62, "journal start"),
            (self.next_version, VERSION_END + 1, "version"),
        ] {
            if value >= end {
                return Err(Invalid::Field(name));
            }
        }
        match self.marked <= self.epoch {
            true => Ok(self),
            false => Err(Invalid::Field("marked opening")),
        }
    }

    /// As it reads back: a path that is too long is cut.
    fn as_stored(&self) -> Self {
        let bytes = self.base.path.as_bytes();
        let path = String::from_utf8_lossy(&bytes[..bytes.len().min(PATH_MAX)]).into_owned();
        Self {
            base: BaseIdentity {
                path,
                ..self.base.clone()
            },
            ..self.clone()
        }
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0u8; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0u8; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut word = [0u8; 16];
    word.copy_from_slice(&bytes[at..at + 16]);
    u128::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_base_in_the_same_place_is_not_called_by_the_place_alone() {
        let base = sample().base;
        assert_eq!(base.beside("/elsewhere"), base.path);
        let shown = base.beside(&base.path);
        assert!(
            shown.contains(&base.path) && shown.contains("inode 4 on device 3"),
            "{shown}"
        );
    }

    fn sample() -> Superblock {
        Superblock {
            layout: Layout::of_length(9_000_000, 8192).unwrap(),
            clean: true,
            as_closed: false,
            all_clean: true,
            generation: 7,
            base: BaseIdentity {
                file_system: 3,
                inode: 4,
                path: "/srv/pg".into(),
                id: 5 << 100 | 6,
            },
            format_id: 11,
            epoch: 12,
            journal_first: 13,
            objects_area: 1,
            objects_length: 4000,
            objects_checksum: 99,
            next_version: 14,
            time_ns: -15,
            marked: 12,
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(Superblock::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn bases_are_told_apart_by_their_ids_where_both_have_one() {
        let base = sample().base;
        let remounted = BaseIdentity {
            file_system: 99,
            ..base.clone()
        };
        assert!(
            base.same(&remounted),
            "another device number is no other base"
        );
        let other = BaseIdentity {
            id: 1,
            ..base.clone()
        };
        assert!(!base.same(&other), "a device number was given out again");
        let unknown = |identity: &BaseIdentity| BaseIdentity {
            id: 0,
            ..identity.clone()
        };
        assert!(base.same(&unknown(&base)));
        assert!(!base.same(&unknown(&remounted)));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let block = sample().encode();
        for at in 0..SUPERBLOCK_BYTES {
            let mut damaged = block;
            damaged[at] ^= 1 << (at % 8);
            assert!(Superblock::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn another_version_is_named() {
        for version in [0, 1, FORMAT_VERSION + 1] {
            let found = changed(8, u64::from(version) | 8192 << 32);
            assert_eq!(found, Err(Invalid::Version(version)));
        }
    }

    #[test]
    fn version_2_is_read_and_has_no_id_of_its_base() {
        let mut block = sample().encode();
        block[8] = 2;
        block[BASE_ID_AT..BASE_ID_AT + 16].fill(0);
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        let mut expected = sample();
        expected.base.id = 0;
        assert_eq!(Superblock::decode(&block), Ok(expected));
    }

    /// The sample with eight bytes changed and its checksum put right.
    fn changed(at: usize, value: u64) -> Result<Superblock, Invalid> {
        let mut block = sample().encode();
        block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        Superblock::decode(&block)
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let layout = sample().layout;
        let map_end = layout.map_offset + layout.map_bytes();
        let map = Err(Invalid::Field("place of the map"));
        assert_eq!(changed(32, map_end - 1), map, "no room for the map");
        assert!(changed(32, map_end).is_ok());
        assert_eq!(changed(72, layout.map_offset + 1), map);
        let blocks = Err(Invalid::Field("number of blocks"));
        assert_eq!(changed(72, 4096), blocks, "the map lies in the blocks");
        for (at, name) in [(24, "generation"), (64, "epoch"), (88, "journal start")] {
            assert_eq!(changed(at, u64::MAX), Err(Invalid::Field(name)));
        }
        assert_eq!(changed(112, (1 << 48) + 1), Err(Invalid::Field("version")));
        assert_eq!(changed(96, 2), Err(Invalid::Field("object area")));
    }
}
