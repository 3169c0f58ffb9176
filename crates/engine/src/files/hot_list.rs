//! The list of what is hot on flash: which pages of which files, the most worthy first.
//!
//! A mount writes it beside base now and then, so that a cache that was lost can be warmed again
//! ([`crate::Engine::warm`]). Files have names, not numbers: those are the cache's own. What the
//! list says is a wish, never bytes: whoever follows it reads base.
//!
//! # Format
//! Numbers are little-endian; a *varint* is a LEB128 of at most ten bytes.
//! ```text
//!      0   8  "tc-hot" 13 10
//!      8   4  version, 1
//!     12   4  bytes of a page
//!     16   4  files
//!     20   4  parts
//!     24   8  pages listed
//!     32      the files' names: u16 length, UTF-8; ascending
//!             the parts
//!   last   8  XXH3-64 of everything before
//! ```
//! A *part* is the pages of one worth of one file: worth (u8, 0 to 21), file (varint), ranges
//! (varint), then each range as its distance from the end of the one before (varint) and its length
//! less one (varint). Parts descend by worth, and ascend by file within one.
//!
//! Pages have the worth of their *stretch*, 1 MiB of a file at a multiple of that: 0 if none of the
//! listed ones in it was read lately, else 1 more than the logarithm of how often all of them
//! were. A stretch is what base gives for one request: in the order of their own worth pages lie
//! apart and cost a request each, and the hottest are those that the database brings first anyway.
//!
//! # Rules
//! 1. A list is read whole or not at all: magic, version, checksum, every bound and the order hold,
//!    or [`HotListError`] says which does not. No input makes it panic, or take more memory than
//!    its own length and four bytes for each three of the part with the names.
//! 2. A list has at most [`BYTES_MAX`] bytes and names at most [`PAGES_MAX`] pages, the most worthy
//!    ones; it has the names of their files alone, in at most [`NAMES_MAX`] bytes. A name is a
//!    relative path without `.` and `..`, of at most [`NAME_MAX`] bytes.
//! 3. A file with a list is replaced in one step, and durably ([`HotList::save`]).

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// Bytes of a list at most.
pub(crate) const BYTES_MAX: usize = 16 << 20;
/// Pages in a list at most: 32 GiB of 8-KiB pages.
pub(crate) const PAGES_MAX: usize = 4 << 20;
/// Bytes of the names at most, with their lengths.
const NAMES_MAX: usize = BYTES_MAX / 2;
/// Bytes of a name at most: those of a path.
pub(crate) const NAME_MAX: usize = 4096;
/// The greatest worth: 2^21 above what the pages of a stretch, 2048 at most, are read together.
pub(crate) const WORTH_MAX: u8 = 21;
/// Bytes of a stretch.
const STRETCH: u64 = 1 << 20;

const MAGIC: &[u8; 8] = b"tc-hot\r\n";
const VERSION: u32 = 1;
const HEADER: usize = 32;
const TAIL: usize = 8;
const VARINT_MAX: usize = 10;
const PART_HEADER_MAX: usize = 1 + 2 * VARINT_MAX;

/// Why bytes are no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotListError(&'static str);

impl fmt::Display for HotListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a list of hot pages: {}", self.0)
    }
}

impl std::error::Error for HotListError {}

impl From<HotListError> for io::Error {
    fn from(error: HotListError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// A list of hot pages; see the module text.
#[derive(Clone, PartialEq, Eq)]
pub struct HotList {
    /// As in a file.
    bytes: Vec<u8>,
    /// Where each name begins.
    names: Vec<u32>,
    /// Where the first part begins.
    parts: usize,
}

impl fmt::Debug for HotList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, pages) = (self.names.len(), self.pages());
        write!(f, "HotList {{ {files} files, {pages} pages }}")
    }
}

/// The pages of one worth of one file.
#[derive(Clone, Copy, Debug)]
pub struct HotPart<'a> {
    /// The file, relative to base.
    pub name: &'a str,
    /// How worthy they are, 0 to 21.
    pub worth: u8,
    ranges: &'a [u8],
}

impl<'a> HotPart<'a> {
    /// Ranges of page numbers, ascending, not empty, not overlapping.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + 'a {
        let mut cursor = Cursor(self.ranges);
        let mut end = 0;
        std::iter::from_fn(move || {
            let range = cursor.range(end).ok()?;
            end = range.end;
            Some(range)
        })
    }
}

/// A hot page, before it is in a list: its file among the names, its number, how often it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hot {
    pub(crate) file: u32,
    pub(crate) page: u64,
    pub(crate) reads: u8,
}

/// The worth of pages that were read `reads` times together.
fn worth_of(reads: u64) -> u8 {
    let worth = reads.checked_ilog2().map_or(0, |log| log as u8 + 1);
    worth.min(WORTH_MAX)
}

/// The pages with the worth of their stretches, the most worthy first.
fn by_worth(page_size: u32, mut pages: Vec<Hot>) -> Vec<Worthy> {
    pages.sort_unstable_by_key(|hot| (hot.file, hot.page));
    pages.dedup_by_key(|hot| (hot.file, hot.page));
    let stretch = |hot: &Hot| (hot.file, hot.page / (STRETCH / u64::from(page_size)).max(1));
    let mut worthy = Vec::with_capacity(pages.len());
    for together in pages.chunk_by(|a, b| stretch(a) == stretch(b)) {
        let worth = worth_of(together.iter().map(|hot| u64::from(hot.reads)).sum());
        worthy.extend(together.iter().map(|hot| Worthy {
            less: WORTH_MAX - worth,
            file: hot.file,
            page: hot.page,
        }));
    }
    worthy.sort_unstable();
    worthy
}

/// A page on its way into a list, in its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Worthy {
    /// How much less its worth is than the greatest.
    less: u8,
    file: u32,
    page: u64,
}

/// The names of the files of `pages`, as many as [`NAMES_MAX`] has room for; those of the most
/// worthy pages come first into it. Pages of others go; `file` is the place among what is kept.
fn keep_names<'a>(names: &'a [String], pages: &mut Vec<Worthy>) -> Vec<&'a str> {
    let mut kept = vec![false; names.len()];
    let mut room = NAMES_MAX;
    for hot in pages.iter() {
        let (is_kept, length) = (
            &mut kept[hot.file as usize],
            2 + names[hot.file as usize].len(),
        );
        if !*is_kept && length <= room {
            room -= length;
            *is_kept = true;
        }
    }
    let mut next = 0;
    let places: Vec<u32> = (kept.iter().map(|is_kept| {
        next += u32::from(*is_kept);
        next.saturating_sub(1)
    }))
    .collect();
    pages.retain(|hot| kept[hot.file as usize]);
    for hot in pages {
        hot.file = places[hot.file as usize];
    }
    let named = names.iter().zip(kept).filter(|(_, is_kept)| *is_kept);
    named.map(|(name, _)| name.as_str()).collect()
}

/// Whether a list can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let parts = |part: &str| !matches!(part, "" | "." | "..");
    name.len() <= NAME_MAX && !name.contains('\0') && name.split('/').all(parts)
}

impl HotList {
    /// A list of `pages` of files called `names`, which are ascending and can be in a list. What
    /// has no room in it is left out, the least worthy first. O(n log n).
    pub(crate) fn of(page_size: u32, names: &[String], pages: Vec<Hot>) -> Self {
        assert!(names.is_sorted_by(|a, b| a < b) && names.iter().all(|n| is_name(n)));
        let mut pages = by_worth(page_size, pages);
        pages.truncate(PAGES_MAX);
        let names = keep_names(names, &mut pages);
        let mut bytes = vec![0; HEADER];
        let mut offsets = Vec::with_capacity(names.len());
        for name in &names {
            offsets.push(bytes.len() as u32);
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        let start = bytes.len();
        let (mut parts, mut listed) = (0u32, 0u64);
        for part in pages.chunk_by(|a, b| (a.less, a.file) == (b.less, b.file)) {
            let room = (BYTES_MAX - TAIL).saturating_sub(bytes.len());
            let count = encode_part(part, room, &mut bytes);
            parts += u32::from(count > 0);
            listed += count;
            if count < part.len() as u64 {
                break;
            }
        }
        assert!(
            bytes.len() + TAIL <= BYTES_MAX && listed <= PAGES_MAX as u64,
            "rule 2"
        );
        bytes[..8].copy_from_slice(MAGIC);
        let files = names.len() as u32;
        for (at, number) in [(8, VERSION), (12, page_size), (16, files), (20, parts)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&listed.to_le_bytes());
        let sum = XxHash3_64::oneshot(&bytes);
        bytes.extend(sum.to_le_bytes());
        Self {
            bytes,
            names: offsets,
            parts: start,
        }
    }

    /// The list that `bytes` are.
    ///
    /// # Errors
    /// [`HotListError`]: rule 1.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, HotListError> {
        if bytes.len() > BYTES_MAX || bytes.len() < HEADER + TAIL {
            return Err(HotListError("its length"));
        }
        let (body, tail) = bytes.split_at(bytes.len() - TAIL);
        if &body[..8] != MAGIC {
            return Err(HotListError("its first bytes"));
        }
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| body[at + i]));
        if number(8) != VERSION {
            return Err(HotListError("its version"));
        }
        if XxHash3_64::oneshot(body).to_le_bytes() != tail {
            return Err(HotListError("its checksum"));
        }
        let mut cursor = Cursor(&body[HEADER..]);
        let (mut names, mut last) = (Vec::new(), "");
        for _ in 0..number(16) {
            names.push((body.len() - cursor.0.len()) as u32);
            let name = cursor.name()?;
            if name <= last || !is_name(name) {
                return Err(HotListError("a name"));
            }
            last = name;
        }
        let parts = body.len() - cursor.0.len();
        if parts - HEADER > NAMES_MAX {
            return Err(HotListError("the length of its names"));
        }
        let mut listed = 0u64;
        let mut before = None;
        for _ in 0..number(20) {
            let (worth, file) = cursor.part()?;
            let order = (WORTH_MAX.checked_sub(worth), file);
            if order.0.is_none() || file >= names.len() as u64 || before >= Some(order) {
                return Err(HotListError("the order of its parts"));
            }
            before = Some(order);
            let ranges = cursor.varint()?;
            let mut end = 0;
            for _ in 0..ranges {
                let range = cursor.range(end)?;
                listed = listed.saturating_add(range.end - range.start);
                end = range.end;
            }
        }
        let said = u64::from_le_bytes(word(body, 24));
        if !cursor.0.is_empty() || listed != said || listed > PAGES_MAX as u64 {
            return Err(HotListError("its contents"));
        }
        Ok(Self {
            bytes,
            names,
            parts,
        })
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        u32::from_le_bytes([12, 13, 14, 15].map(|at| self.bytes[at]))
    }

    /// Pages listed.
    #[must_use]
    pub fn pages(&self) -> u64 {
        u64::from_le_bytes(word(&self.bytes, 24))
    }

    /// As in a file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its parts, the most worthy first. O(list).
    pub fn parts(&self) -> impl Iterator<Item = HotPart<'_>> {
        let mut cursor = Cursor(&self.bytes[self.parts..self.bytes.len() - TAIL]);
        std::iter::from_fn(move || {
            let (worth, file) = cursor.part().ok()?;
            let count = cursor.varint().ok()?;
            let (start, mut end) = (cursor.0, 0);
            for _ in 0..count {
                end = cursor.range(end).ok()?.end;
            }
            let ranges = &start[..start.len() - cursor.0.len()];
            let at = *self.names.get(file as usize)? as usize;
            let name = Cursor(&self.bytes[at..]).name().ok()?;
            Some(HotPart {
                name,
                worth,
                ranges,
            })
        })
    }

    /// Reads the list in the file at `path`.
    ///
    /// # Errors
    /// Those of the system, and [`HotListError`] as [`io::ErrorKind::InvalidData`].
    pub fn read(path: &Path) -> io::Result<Self> {
        // A pipe would keep whoever opens it waiting.
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = file.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(HotListError("no file").into());
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Self::decode(bytes)?)
    }

    /// Puts the list into the file at `path`, which has the old list or this one whatever happens;
    /// durable when this returns. For its owner's eyes: it has names of files.
    ///
    /// # Errors
    /// Those of the system; the file is as it was.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut new = path.to_path_buf().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let written = file.write_all(&self.bytes).and_then(|()| file.sync_all());
        let put = written.and_then(|()| fs::rename(&new, path));
        if put.is_err() {
            // Should it be gone already that is as well.
            let _gone = fs::remove_file(&new);
        }
        put?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    std::array::from_fn(|i| bytes[at + i])
}

/// Appends as much of `part` as has `room`; the number of its pages.
fn encode_part(part: &[Worthy], room: usize, bytes: &mut Vec<u8>) -> u64 {
    let same = |hot: &Worthy| (hot.less, hot.file) == (part[0].less, part[0].file);
    assert!(part.iter().all(same), "a part is of one file and worth");
    let (mut ranges, mut count, mut pages, mut end) = (Vec::new(), 0u64, 0u64, 0);
    for range in part.chunk_by(|a, b| a.page + 1 == b.page) {
        if ranges.len() + 2 * VARINT_MAX > room.saturating_sub(PART_HEADER_MAX) {
            break;
        }
        put_varint(&mut ranges, range[0].page - end);
        put_varint(&mut ranges, range.len() as u64 - 1);
        end = range[0].page + range.len() as u64;
        (count, pages) = (count + 1, pages + range.len() as u64);
    }
    if count > 0 {
        bytes.push(WORTH_MAX - part[0].less);
        put_varint(bytes, u64::from(part[0].file));
        put_varint(bytes, count);
        bytes.extend(ranges);
    }
    pages
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Result<u8, HotListError> {
        let (first, rest) = self.0.split_first().ok_or(HotListError("its end"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, HotListError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits > u64::MAX >> shift {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(HotListError("a number"))
    }

    fn name(&mut self) -> Result<&'a str, HotListError> {
        let length = u16::from_le_bytes([self.byte()?, self.byte()?]).into();
        let name = self.0.get(..length).ok_or(HotListError("its end"))?;
        self.0 = &self.0[length..];
        std::str::from_utf8(name).map_err(|_| HotListError("a name"))
    }

    fn part(&mut self) -> Result<(u8, u64), HotListError> {
        Ok((self.byte()?, self.varint()?))
    }

    /// The range after one that ends at `end`.
    fn range(&mut self, end: u64) -> Result<Range<u64>, HotListError> {
        let beyond = HotListError("a range");
        let start = end.checked_add(self.varint()?).ok_or(beyond)?;
        let length = self.varint()?.checked_add(1).ok_or(beyond)?;
        Ok(start..start.checked_add(length).ok_or(beyond)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn names(count: u32) -> Vec<String> {
        (0..count).map(|i| format!("base/5/{i:04}")).collect()
    }

    /// What a list says, page by page.
    fn said(list: &HotList) -> Vec<(u8, String, u64)> {
        let pages = |part: HotPart<'_>| {
            let (worth, name) = (part.worth, part.name.to_string());
            let ranges: Vec<_> = part.ranges().collect();
            let pages = ranges.into_iter().flatten();
            pages
                .map(|page| (worth, name.clone(), page))
                .collect::<Vec<_>>()
        };
        list.parts().flat_map(pages).collect()
    }

    /// A list with a checksum that is right.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = XxHash3_64::oneshot(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn a_list_says_what_it_was_made_of(
            pages in prop::collection::vec((0..5u32, any::<u8>(), prop_oneof![0..640u64,
                any::<u64>().prop_map(|page| page >> 1)]), 0..200),
        ) {
            let hot = pages.iter().map(|(file, reads, page)| Hot {
                file: *file,
                page: *page,
                reads: *reads,
            });
            let hot: Vec<Hot> = hot.collect();
            let list = HotList::of(8192, &names(5), hot);
            let all: BTreeSet<_> = pages.iter().map(|(file, _, page)| (*file, *page)).collect();
            let listed = said(&list);
            let places: BTreeSet<_> = listed
                .iter()
                .map(|(_, name, page)| (names(5).binary_search(name).unwrap() as u32, *page))
                .collect();
            prop_assert_eq!(&places, &all);
            prop_assert_eq!(listed.len(), all.len(), "each once");
            prop_assert_eq!(list.pages(), all.len() as u64);
            let order = |(worth, name, page): &(u8, String, u64)| {
                (WORTH_MAX - worth, name.clone(), *page)
            };
            prop_assert!(listed.is_sorted_by_key(order));
            for (worth, name, page) in &listed {
                let same = listed.iter().filter(|(_, n, p)| n == name && p / 128 == page / 128);
                prop_assert!(same.clone().all(|(w, ..)| w == worth), "one stretch, one worth");
            }
            let again = HotList::decode(list.bytes().to_vec()).expect("a list");
            prop_assert!(again == list && again.page_size() == 8192);
        }

        #[test]
        fn random_bytes_are_refused_or_read(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            header in any::<bool>(),
            counts in any::<[u8; 3]>(),
        ) {
            let mut bytes = bytes;
            if header && bytes.len() >= HEADER {
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                bytes[16..24].fill(0);
                bytes[24..32].fill(0);
                (bytes[16], bytes[20], bytes[24]) = (counts[0] % 3, counts[1] % 4, counts[2]);
            }
            if let Ok(list) = HotList::decode(sealed(bytes)) {
                prop_assert_eq!(said(&list).len() as u64, list.pages());
            }
        }

        #[test]
        fn a_damaged_list_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let hot = (0..40).map(|page| Hot { file: page % 3, reads: 1, page: page.into() });
            let mut bytes = HotList::of(8192, &names(3), hot.collect()).bytes;
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(HotList::decode(bytes).is_err());
        }
    }

    fn why(bytes: Vec<u8>) -> &'static str {
        HotList::decode(sealed(bytes)).expect_err("refused").0
    }

    #[test]
    fn every_field_is_bounded() {
        let hot = [(0, 3), (1, 9)].map(|(file, page)| Hot {
            file,
            reads: 2,
            page,
        });
        let list = HotList::of(8192, &names(2), hot.to_vec());
        let good = list.bytes[..list.bytes.len() - TAIL].to_vec();
        assert!(HotList::decode(sealed(good.clone())).is_ok());
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            why(bytes)
        };
        assert_eq!(with(0, 0), "its first bytes");
        assert_eq!(with(8, 2), "its version");
        // What is read then as a part, or as a name, is none.
        assert!([with(16, 1), with(19, 255)].contains(&"its end"));
        assert_eq!(with(23, 255), "its end", "too many parts");
        assert_eq!(with(24, 3), "its contents");
        assert_eq!(with(HEADER, 255), "its end", "a name that is too long");
        assert_eq!(with(HEADER + 2, b'/'), "a name");
        assert_eq!(with(HEADER + 2, 0xff), "a name");
        assert_eq!(with(HEADER + 2, b'z'), "a name", "not ascending");
        assert_eq!(with(list.parts, 22), "the order of its parts");
        assert_eq!(with(list.parts, 1), "the order of its parts");
        assert_eq!(with(list.parts + 1, 7), "the order of its parts");
        // One range of too many pages; too many bytes of names, though the whole is short enough.
        let mut pages = vec![0; HEADER];
        pages[..HEADER].copy_from_slice(&good[..HEADER]);
        pages[16..24].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        pages.extend([1, 0, b'a', 0, 0, 1, 0]);
        let mut most = pages.clone();
        put_varint(&mut most, PAGES_MAX as u64 - 1);
        most[24..32].copy_from_slice(&(PAGES_MAX as u64).to_le_bytes());
        assert!(HotList::decode(sealed(most)).is_ok());
        put_varint(&mut pages, PAGES_MAX as u64);
        pages[24..32].copy_from_slice(&(PAGES_MAX as u64 + 1).to_le_bytes());
        assert_eq!(why(pages), "its contents");
        let mut named = good[..HEADER].to_vec();
        named[16..32].fill(0);
        let count = NAMES_MAX as u32 / 10 + 1;
        named[16..20].copy_from_slice(&count.to_le_bytes());
        for at in 0..count {
            named.extend([8, 0]);
            named.extend(format!("{at:08}").as_bytes());
        }
        assert_eq!(why(named), "the length of its names");
        let mut long = good.clone();
        long.push(0);
        assert_eq!(why(long), "its contents");
        // A range past the last page number there is.
        let mut far = good[..list.parts].to_vec();
        far[20] = 1;
        far.extend([1, 0, 1]);
        far.extend([0xff; 9]);
        far.extend([1, 0xff, 0xff, 1]);
        assert_eq!(why(far), "a range");
        assert_eq!(
            HotList::decode(vec![0; 39]).expect_err("short").0,
            "its length"
        );
        let large = vec![0; BYTES_MAX + 1];
        assert_eq!(HotList::decode(large).expect_err("long").0, "its length");
        for name in ["", "/etc/passwd", "a/../b", "a//b", "./a", "a\0b"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name("base/5/16384.1") && !is_name(&"x".repeat(NAME_MAX + 1)));
    }

    #[test]
    fn what_has_no_room_is_the_least_worthy() {
        // Every page a range of its own, far from the one before: six bytes each.
        let far = |i: u64| Hot {
            file: 0,
            reads: (i % 2) as u8,
            page: i << 28,
        };
        let pages = 4_000_000;
        let list = HotList::of(8192, &names(1), (0..pages).map(far).collect());
        assert!(list.bytes.len() <= BYTES_MAX && list.bytes.len() > BYTES_MAX - 64);
        assert_eq!(
            list.parts().map(|part| part.worth).collect::<Vec<_>>(),
            [1, 0]
        );
        assert!(list.pages() > pages / 2 && list.pages() < pages);
        assert!(HotList::decode(list.bytes.clone()).is_ok());
    }

    #[test]
    fn names_without_room_are_left_out_with_their_pages() {
        // 24 MB of names, of which every second is of a file with a hot page.
        let long = "x".repeat(4000);
        let names: Vec<String> = (0..6000).map(|i| format!("{i:05}{long}")).collect();
        let hot = |file: u32| Hot {
            file,
            page: 7,
            reads: u8::from(file >= 5000),
        };
        let list = HotList::of(8192, &names, (0..6000).step_by(2).map(hot).collect());
        assert!(list.bytes.len() <= BYTES_MAX);
        assert_eq!(HotList::decode(list.bytes.clone()).as_ref(), Ok(&list));
        let parts: Vec<_> = list.parts().map(|part| (part.worth, part.name)).collect();
        let worthy = (5000..6000).step_by(2).map(|at| (1, names[at].as_str()));
        assert_eq!(parts[..500], worthy.collect::<Vec<_>>());
        assert_eq!(parts.len(), NAMES_MAX / (2 + 4005));
        assert!(parts[500..].iter().all(|(worth, _)| *worth == 0));
        assert_eq!(list.names.len(), parts.len(), "no name without a page");
    }

    #[test]
    fn worth_is_a_logarithm() {
        let worth = [0, 1, 2, 3, 4, 255, 128 * 255, u64::MAX].map(worth_of);
        assert_eq!(worth, [0, 1, 2, 2, 3, 8, 15, WORTH_MAX]);
    }

    #[test]
    fn a_saved_list_is_read_again() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("hot");
        let hot = |page| Hot {
            file: 0,
            reads: 1,
            page,
        };
        for page in [3, 4] {
            let list = HotList::of(4096, &names(1), vec![hot(page)]);
            // What a crash left of an older one is in nobody's way.
            fs::write(directory.path().join("hot.new"), "half").expect("written");
            list.save(&path).expect("saved");
            assert_eq!(HotList::read(&path).expect("read"), list);
        }
        assert_eq!(fs::read_dir(directory.path()).expect("list").count(), 1);
        assert!(HotList::read(directory.path()).is_err(), "no file");
        assert!(HotList::read(&directory.path().join("none")).is_err());
        let nowhere = directory.path().join("gone/hot");
        assert!(HotList::of(4096, &[], vec![]).save(&nowhere).is_err());
    }
}
