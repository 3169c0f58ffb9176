//! What a file may hold: the bytes that reads must give now, and those that a crash may leave.
//!
//! Both are kept for each sector, the unit that disks write wholly or not at all. A page is never
//! torn within a sector, so a tier whose pages are one sector long is held to whole pages.
//!
//! # What is promised
//! 1. A read gives what was written last; after a request that failed, that or what was before,
//!    and the same from then on once it was read.
//! 2. After a crash each sector holds what it held at the last acknowledged sync, or any version
//!    written since. Length likewise.
//! 3. A sync that failed acknowledges nothing, and no later sync does so for the sectors that were
//!    not written again, with success (a kernel may have thrown them away), nor for a length that
//!    was not set again.
//! 4. What was read after a crash is durable: another crash does not change it.
//!
//! # Invariants
//! 1. A sector has at least one version that may be read, and one that may survive.
//! 2. Every version that may be read may survive.

use crate::image::SECTOR;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

type Sector = Arc<[u8; SECTOR]>;

/// A promise was broken: what was found where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

/// One sector; see the module text.
#[derive(Clone, Debug)]
struct Cell {
    /// One of these is durable.
    durable: Vec<Sector>,
    /// Versions since the last acknowledged sync.
    pending: Vec<Sector>,
    /// What a read may give now.
    live: Vec<Sector>,
    /// A sync failed after the last write that ended well.
    suspect: bool,
}

impl Cell {
    fn holding(bytes: [u8; SECTOR]) -> Self {
        let sector = Arc::new(bytes);
        Self {
            durable: vec![sector.clone()],
            pending: Vec::new(),
            live: vec![sector],
            suspect: false,
        }
    }

    /// What a crash may leave.
    fn survivors(&self) -> impl Iterator<Item = &Sector> {
        self.durable.iter().chain(&self.pending)
    }

    fn add_pending(&mut self, sector: &Sector) {
        if !self.pending.iter().any(|known| known == sector) {
            self.pending.push(sector.clone());
        }
    }

    /// Every version that may be there is changed by `change`, now or after a crash.
    fn change_all(&mut self, change: impl Fn(&mut [u8; SECTOR])) -> Vec<Sector> {
        let changed = |from: &Sector| {
            let mut bytes = **from;
            change(&mut bytes);
            Arc::new(bytes)
        };
        let survivors: Vec<Sector> = self.survivors().map(changed).collect();
        survivors.iter().for_each(|sector| self.add_pending(sector));
        let mut live: Vec<Sector> = self.live.iter().map(changed).collect();
        live.dedup();
        live
    }

    fn end_change(&mut self, new: Vec<Sector>, well: bool) {
        match well {
            true => self.live = new,
            false => self.live.extend(new),
        }
        self.suspect &= !well;
        self.assert_invariants();
    }

    fn sync(&mut self, well: bool) {
        match (well, self.suspect) {
            (false, _) => self.suspect |= !self.pending.is_empty(),
            (true, false) => {
                self.durable = self.live.clone();
                self.pending.clear();
            }
            (true, true) => {}
        }
        self.assert_invariants();
    }

    fn assert_invariants(&self) {
        debug_assert!(
            !self.live.is_empty() && !self.durable.is_empty(),
            "invariant 1"
        );
        let may_survive = |live| self.survivors().any(|sector| sector == live);
        debug_assert!(self.live.iter().all(may_survive), "invariant 2");
    }
}

/// One file; see the module text.
#[derive(Clone, Debug)]
pub struct FileModel {
    cells: Vec<Cell>,
    length: u64,
    /// Lengths that a crash may leave.
    lengths: BTreeSet<u64>,
    /// A sync failed after the length was last set with success.
    length_suspect: bool,
    /// The change under way sets the length.
    sets_length: bool,
    /// Bytes that a tier may write at a time where a request wrote some of them.
    page: u64,
    /// The change under way: the new versions of each sector, by number.
    under_way: Vec<(usize, Vec<Sector>)>,
}

impl FileModel {
    /// A file that durably holds `bytes`, behind a tier with pages of `page` bytes.
    #[must_use]
    pub fn holding(bytes: &[u8], page: u64) -> Self {
        let sector = |part: &[u8]| {
            let mut whole = [0; SECTOR];
            whole[..part.len()].copy_from_slice(part);
            Cell::holding(whole)
        };
        let length = bytes.len() as u64;
        Self {
            cells: bytes.chunks(SECTOR).map(sector).collect(),
            length,
            lengths: BTreeSet::from([length]),
            length_suspect: false,
            sets_length: false,
            page,
            under_way: Vec::new(),
        }
    }

    /// Length in bytes, as it is read now.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    fn reach(&mut self, end: u64) {
        let sectors = end.div_ceil(SECTOR as u64) as usize;
        if self.cells.len() < sectors {
            self.cells
                .resize_with(sectors, || Cell::holding([0; SECTOR]));
        }
    }

    /// A write of `data` at `offset` begins.
    pub fn begin_write(&mut self, offset: u64, data: &[u8]) {
        assert!(self.under_way.is_empty() && !data.is_empty());
        let end = offset + data.len() as u64;
        self.reach(end);
        let before = self.lengths.clone();
        // Room is set aside from the start of a page.
        for (at, _) in sectors(offset - offset % self.page..offset) {
            let to = (offset.min(((at + 1) * SECTOR) as u64)).max(self.length);
            self.lengths.insert(to);
        }
        for (at, inside) in sectors(offset..end) {
            let start = (at * SECTOR + inside.start) as u64;
            let part = &data[(start - offset) as usize..][..inside.len()];
            let new =
                self.cells[at].change_live(|bytes| bytes[inside.clone()].copy_from_slice(part));
            self.under_way.push((at, new));
            // A sector survives with all that was in it.
            let sector_end = ((at + 1) * SECTOR) as u64;
            let to = (start + part.len() as u64).max(self.length.min(sector_end));
            // So does a page, within the length the file has.
            let page_end = to.next_multiple_of(self.page).min(self.length.max(to));
            for to in [to, page_end] {
                self.lengths
                    .extend(before.iter().map(|length| to.max(*length)));
            }
        }
    }

    /// The file is about to be cut or extended to `length`.
    pub fn begin_truncate(&mut self, length: u64) {
        let end = (self.cells.len() * SECTOR) as u64;
        self.begin_zeros(length..end.max(length));
        self.reach(length);
        self.lengths.insert(length);
        self.sets_length = true;
    }

    /// A hole is about to be punched.
    pub fn begin_punch(&mut self, offset: u64, length: u64) {
        // Past the end that is shown nothing happens, whatever a cut that was given up left there.
        let end = self.length;
        self.begin_zeros(offset.min(end)..end.min(offset.saturating_add(length)));
    }

    fn begin_zeros(&mut self, range: Range<u64>) {
        assert!(self.under_way.is_empty(), "one change at a time");
        for (at, inside) in sectors(range) {
            let new = self.cells[at].change_all(|bytes| bytes[inside.clone()].fill(0));
            self.under_way.push((at, new));
        }
    }

    /// The change under way ended, well or not; the file is now `length` bytes long.
    ///
    /// # Errors
    /// That length is impossible.
    pub fn end_change(&mut self, well: bool, length: u64) -> Result<(), Broken> {
        for (at, new) in std::mem::take(&mut self.under_way) {
            self.cells[at].end_change(new, well);
        }
        self.length = length;
        self.length_suspect &= !(std::mem::take(&mut self.sets_length) && well);
        match self.lengths.contains(&length) {
            true => Ok(()),
            false => Err(Broken(format!("length {length}, not {:?}", self.lengths))),
        }
    }

    /// A sync ended, well or not.
    pub fn end_sync(&mut self, well: bool) {
        assert!(self.under_way.is_empty(), "one change at a time");
        self.length_suspect |= !well && self.lengths.len() > 1;
        let suspect = self.length_suspect || self.cells.iter().any(|cell| cell.suspect);
        self.cells.iter_mut().for_each(|cell| cell.sync(well));
        if well && !suspect {
            self.lengths = BTreeSet::from([self.length]);
        }
    }

    /// A sync ended well, and the change under way came in its midst: it was not waited for.
    pub fn end_sync_before(&mut self) {
        let change = std::mem::take(&mut self.under_way);
        self.end_sync(true);
        for (at, new) in &change {
            new.iter()
                .for_each(|sector| self.cells[*at].add_pending(sector));
        }
        self.under_way = change;
    }

    /// Compares what a read of the running engine gave at `offset`; from now on reads must give
    /// the same.
    ///
    /// # Errors
    /// The first sector that is not what was written last.
    pub fn check_read(&mut self, offset: u64, wanted: usize, found: &[u8]) -> Result<(), Broken> {
        let left = self.length.saturating_sub(offset);
        let expected = left.min(wanted as u64);
        if found.len() as u64 != expected {
            let got = found.len();
            return Err(Broken(format!("{got} bytes at {offset}, not {expected}")));
        }
        for (at, inside) in sectors(offset..offset + expected) {
            let from = (at * SECTOR + inside.start) as u64 - offset;
            let part = &found[from as usize..][..inside.len()];
            let cell = &mut self.cells[at];
            let fits = |sector: &Sector| sector[inside.clone()] == *part;
            if !cell.live.iter().any(fits) {
                return Err(self.describe("read", at, inside.start, part));
            }
            cell.live.retain(fits);
        }
        Ok(())
    }

    /// Compares the whole file as it is found after a crash.
    ///
    /// # Errors
    /// A length, or the first sector, that no crash may leave.
    pub fn check_crash(&self, found: &[u8]) -> Result<(), Broken> {
        let length = found.len() as u64;
        if !self.lengths.contains(&length) {
            let message = format!("length {length} after a crash, not {:?}", self.lengths);
            return Err(Broken(message));
        }
        for (at, part) in found.chunks(SECTOR).enumerate() {
            let fits = |sector: &Sector| sector[..part.len()] == *part;
            if !self.cells[at].survivors().any(fits) {
                return Err(self.describe("crash", at, 0, part));
            }
        }
        Ok(())
    }

    /// How many sectors of `found` no crash may leave: what a start that gave up dirty pages shows.
    ///
    /// # Errors
    /// A length that no crash may leave.
    pub fn broken_after_crash(&self, found: &[u8]) -> Result<u64, Broken> {
        let length = found.len() as u64;
        if !self.lengths.contains(&length) {
            let message = format!("length {length}, not {:?}", self.lengths);
            return Err(Broken(message));
        }
        let broken = |(at, part): &(usize, &[u8])| {
            let fits = |sector: &Sector| sector[..part.len()] == **part;
            !self.cells[*at].survivors().any(fits)
        };
        Ok(found.chunks(SECTOR).enumerate().filter(broken).count() as u64)
    }

    fn describe(&self, when: &str, at: usize, from: usize, found: &[u8]) -> Broken {
        let cell = &self.cells[at];
        let show = |sectors: &[Sector]| {
            let all: Vec<String> = sectors.iter().map(|s| name_of(&s[from..])).collect();
            all.join(" ")
        };
        let newest = cell.survivors().last().map_or(0, |newest| {
            let pairs = newest[from..].iter().zip(found);
            pairs.take_while(|(a, b)| a == b).count()
        });
        Broken(format!(
            "{when}: sector {at} from byte {from} holds {} (the newest up to byte {}); \
             last read as [{}], durable [{}], since [{}]",
            name_of(found),
            from + newest,
            show(&cell.live),
            show(&cell.durable),
            show(&cell.pending),
        ))
    }
}

impl Cell {
    /// The versions that may be read now, changed; they may also survive from now on.
    fn change_live(&mut self, change: impl Fn(&mut [u8; SECTOR])) -> Vec<Sector> {
        let changed = |from: &Sector| {
            let mut bytes = **from;
            change(&mut bytes);
            Arc::new(bytes)
        };
        let mut live: Vec<Sector> = self.live.iter().map(changed).collect();
        live.dedup();
        live.iter().for_each(|sector| self.add_pending(sector));
        live
    }
}

/// The sectors that `range` touches: number, and bytes within.
fn sectors(range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let size = SECTOR as u64;
    let numbers = match range.is_empty() {
        true => 0..0,
        false => range.start / size..range.end.div_ceil(size),
    };
    numbers.map(move |at| {
        let from = range.start.max(at * size) - at * size;
        let to = range.end.min((at + 1) * size) - at * size;
        (at as usize, from as usize..to as usize)
    })
}

/// Bytes as a short word: what [`pattern`] wrote, or their sum.
fn name_of(bytes: &[u8]) -> String {
    match bytes.first_chunk::<8>() {
        Some(word) if bytes.iter().all(|b| *b == 0) => format!("zeros{}", word.len()),
        Some(word) if bytes.len() == SECTOR && word[6..] == [0xA5; 2] => {
            let number = u64::from_le_bytes(*word) & 0xFFFF_FFFF_FFFF;
            format!("w{}.{}", number >> 16, number & 0xFFFF)
        }
        _ => format!(
            "#{:x}",
            bytes
                .iter()
                .fold(7u32, |h, b| h.wrapping_mul(31) ^ u32::from(*b))
        ),
    }
}

/// Bytes for write number `write`: each sector of them says which write and which sector it is.
#[must_use]
pub fn pattern(write: u64, offset: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| {
        let number = (write << 16 | (at / SECTOR as u64)) & 0xFFFF_FFFF_FFFF;
        let word = (0xA5A5 << 48 | number).to_le_bytes();
        match at % SECTOR as u64 {
            head @ 0..8 => word[head as usize],
            inside => (inside as u8).wrapping_mul(7) ^ (write as u8) | 1,
        }
    };
    (offset..offset + length as u64).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(byte: u8, sectors: usize) -> Vec<u8> {
        vec![byte; sectors * SECTOR]
    }

    fn write(model: &mut FileModel, offset: u64, data: &[u8], well: bool) {
        model.begin_write(offset, data);
        let length = model.length().max(offset + data.len() as u64);
        assert_eq!(model.end_change(well, length), Ok(()));
    }

    #[test]
    fn a_crash_may_lose_what_was_not_synced_and_nothing_else() {
        let mut model = FileModel::holding(&filled(1, 2), SECTOR as u64);
        write(&mut model, 0, &filled(2, 2), true);
        let mixed = [filled(1, 1), filled(2, 1)].concat();
        for found in [&filled(1, 2), &filled(2, 2), &mixed] {
            assert_eq!(model.check_crash(found), Ok(()));
        }
        assert!(model.check_crash(&filled(3, 2)).is_err());
        assert!(
            model.check_crash(&filled(1, 1)).is_err(),
            "no length but the one"
        );
        model.end_sync(true);
        assert!(
            model.check_crash(&mixed).is_err(),
            "acknowledged bytes are lost"
        );
        assert_eq!(model.check_crash(&filled(2, 2)), Ok(()));
    }

    #[test]
    fn a_read_gives_the_newest() {
        let mut model = FileModel::holding(&filled(1, 2), SECTOR as u64);
        write(&mut model, 100, &[9; 10], true);
        assert_eq!(model.check_read(100, 10, &[9; 10]), Ok(()));
        assert!(model.check_read(99, 2, &[1, 1]).is_err());
        assert!(
            model.check_read(1000, 100, &[1; 100]).is_err(),
            "short at the end"
        );
        assert_eq!(model.check_read(1000, 100, &[1; 24]), Ok(()));
    }

    #[test]
    fn a_failed_write_may_be_there_but_not_come_and_go() {
        let mut model = FileModel::holding(&filled(1, 1), SECTOR as u64);
        write(&mut model, 0, &filled(2, 1), false);
        assert_eq!(model.check_read(0, 512, &filled(1, 1)), Ok(()));
        assert!(model.check_read(0, 512, &filled(2, 1)).is_err());
    }

    #[test]
    fn a_sync_after_a_failed_one_acknowledges_only_what_is_written_again() {
        let mut model = FileModel::holding(&filled(1, 2), SECTOR as u64);
        write(&mut model, 0, &filled(2, 2), true);
        model.end_sync(false);
        write(&mut model, 0, &filled(3, 1), true);
        model.end_sync(true);
        assert!(
            model
                .check_crash(&[filled(2, 1), filled(2, 1)].concat())
                .is_err()
        );
        assert_eq!(
            model.check_crash(&[filled(3, 1), filled(1, 1)].concat()),
            Ok(())
        );
    }

    #[test]
    fn cuts_and_holes_hit_whatever_version_is_there() {
        let mut model = FileModel::holding(&filled(1, 2), SECTOR as u64);
        write(&mut model, 0, &filled(2, 2), true);
        model.begin_truncate(600);
        assert_eq!(model.end_change(true, 600), Ok(()));
        for byte in [1, 2] {
            assert_eq!(model.check_crash(&vec![byte; 600]), Ok(()));
            assert_eq!(model.check_crash(&filled(byte, 2)), Ok(()));
        }
        model.begin_truncate(1024);
        assert_eq!(model.end_change(true, 1024), Ok(()));
        let mut cut = filled(1, 2);
        cut[600..].fill(0);
        assert_eq!(model.check_crash(&cut), Ok(()), "the first version, cut");
        model.end_sync(true);
        assert!(
            model.check_crash(&filled(2, 2)).is_err(),
            "what was cut comes back"
        );
        model.begin_punch(0, 100);
        assert_eq!(model.end_change(true, 1024), Ok(()));
        assert_eq!(model.check_read(0, 100, &[0; 100]), Ok(()));
    }

    #[test]
    fn a_write_past_the_end_may_survive_in_part() {
        let mut model = FileModel::holding(&filled(1, 1), SECTOR as u64);
        write(&mut model, 1024, &filled(2, 2), true);
        let mut torn = filled(1, 1);
        for length in [512, 1536, 2048] {
            torn.resize(length, 0);
            assert_eq!(model.check_crash(&torn), Ok(()), "{length} bytes");
        }
        torn.resize(1024, 0);
        assert!(model.check_crash(&torn).is_err(), "no write ended there");
    }

    #[test]
    fn a_write_that_fails_does_not_write_again_what_a_failed_sync_gave_up() {
        let mut model = FileModel::holding(&filled(1, 1), SECTOR as u64);
        write(&mut model, 0, &filled(2, 1), true);
        model.end_sync(false);
        write(&mut model, 0, &filled(3, 1), false);
        model.end_sync(true);
        for byte in 1..=3 {
            assert_eq!(model.check_crash(&filled(byte, 1)), Ok(()));
        }
        write(&mut model, 0, &filled(4, 1), true);
        model.end_sync(true);
        assert_eq!(model.check_crash(&filled(4, 1)), Ok(()));
        assert!(model.check_crash(&filled(1, 1)).is_err(), "written again");
    }

    #[test]
    fn a_length_that_a_failed_sync_gave_up_is_not_acknowledged_later() {
        let mut model = FileModel::holding(&filled(1, 1), SECTOR as u64);
        model.begin_truncate(1024);
        assert_eq!(model.end_change(true, 1024), Ok(()));
        model.end_sync(false);
        model.end_sync(true);
        assert_eq!(model.check_crash(&filled(1, 1)), Ok(()), "given up");
        model.begin_truncate(1024);
        assert_eq!(model.end_change(true, 1024), Ok(()));
        model.end_sync(true);
        assert!(model.check_crash(&filled(1, 1)).is_err(), "set again");
    }
}
