//! The first two blocks of a cache file: what it is and whether it was closed cleanly.
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
//! | 16..20 | slots |
//! | 20..24 | state: 0 open, 1 clean |
//! | 24..32 | generation |
//! | 32..40 | length of the cache in bytes |
//! | 40..56 | base: file system id, inode of the base directory |
//! | 56..64 | length of the saved map |
//! | 64..72 | checksum of the saved map |
//! | 72..74 | length of the base path, then the path (at most 3,900 bytes, for people) |
//! | 4088..4096 | xxh3-64 of bytes 0..4088 |

use twox_hash::XxHash3_64;

/// Bytes of one copy.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// Version this program writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"THERMOCL";
const CHECKSUM_AT: usize = SUPERBLOCK_BYTES - 8;
const PATH_AT: usize = 74;
const PATH_MAX: usize = 3_900;

/// Which base directory a cache belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseIdentity {
    /// File system id (`statfs`).
    pub file_system: u64,
    /// Inode number of the base directory.
    pub inode: u64,
    /// Where it was mounted from, for people; not compared.
    pub path: String,
}

impl BaseIdentity {
    /// Whether both are the same directory.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        (self.file_system, self.inode) == (other.file_system, other.inode)
    }
}

/// Contents of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) page_size: u32,
    pub(crate) slots: u32,
    pub(crate) clean: bool,
    pub(crate) generation: u64,
    pub(crate) length: u64,
    pub(crate) base: BaseIdentity,
    pub(crate) map_length: u64,
    pub(crate) map_checksum: u64,
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
        put(12, &self.page_size.to_le_bytes());
        put(16, &self.slots.to_le_bytes());
        put(20, &u32::from(self.clean).to_le_bytes());
        put(24, &self.generation.to_le_bytes());
        put(32, &self.length.to_le_bytes());
        put(40, &self.base.file_system.to_le_bytes());
        put(48, &self.base.inode.to_le_bytes());
        put(56, &self.map_length.to_le_bytes());
        put(64, &self.map_checksum.to_le_bytes());
        let path = self.base.path.as_bytes();
        let path = &path[..path.len().min(PATH_MAX)];
        put(72, &(path.len() as u16).to_le_bytes());
        put(PATH_AT, path);
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
        if version != FORMAT_VERSION {
            return Err(Invalid::Version(version));
        }
        let path_length = usize::from(u16::from_le_bytes([block[72], block[73]]));
        let path = block
            .get(PATH_AT..PATH_AT + path_length.min(PATH_MAX))
            .unwrap_or_default();
        let found = Self {
            page_size: u32_at(block, 12),
            slots: u32_at(block, 16),
            clean: u32_at(block, 20) == 1,
            generation: u64_at(block, 24),
            length: u64_at(block, 32),
            base: BaseIdentity {
                file_system: u64_at(block, 40),
                inode: u64_at(block, 48),
                path: String::from_utf8_lossy(path).into_owned(),
            },
            map_length: u64_at(block, 56),
            map_checksum: u64_at(block, 64),
        };
        found.check()
    }

    fn check(self) -> Result<Self, Invalid> {
        if !self.page_size.is_power_of_two() || self.page_size < 512 {
            return Err(Invalid::Field("page size"));
        }
        // Below 2^63 + 2^13.
        let slots = u64::from(self.page_size) * u64::from(self.slots);
        let map_at = 2 * SUPERBLOCK_BYTES as u64 + slots;
        if self.slots == 0 || map_at >= self.length {
            return Err(Invalid::Field("number of slots"));
        }
        if self.map_length > self.length - map_at {
            return Err(Invalid::Field("map length"));
        }
        if self.generation == u64::MAX {
            return Err(Invalid::Field("generation"));
        }
        Ok(self)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            page_size: 8192,
            slots: 1000,
            clean: true,
            generation: 7,
            length: 9_000_000,
            base: BaseIdentity {
                file_system: 3,
                inode: 4,
                path: "/srv/pg".into(),
            },
            map_length: 24_000,
            map_checksum: 99,
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(Superblock::decode(&sample().encode()), Ok(sample()));
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
        let mut block = sample().encode();
        block[8] = 9;
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Superblock::decode(&block), Err(Invalid::Version(9)));
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
        let map_at = 2 * 4096 + 8192 * 1000;
        let slots = Err(Invalid::Field("number of slots"));
        assert_eq!(changed(32, map_at), slots, "no room for a map");
        assert_eq!(changed(32, 8192 * 1000), slots, "no room for superblocks");
        let map = Err(Invalid::Field("map length"));
        assert_eq!(changed(32, map_at + 23_999), map);
        assert!(changed(32, map_at + 24_000).is_ok());
        assert_eq!(changed(56, u64::MAX), map);
        let generation = Err(Invalid::Field("generation"));
        assert_eq!(
            changed(24, u64::MAX),
            generation,
            "no later one is possible"
        );
    }
}
