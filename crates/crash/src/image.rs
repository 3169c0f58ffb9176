//! The bytes of one file: what is read now, what would surely survive, what might.
//!
//! # States of a change
//! *Pending* (read back at once, survives a power cut or not) → *durable* (a sync ended well), or
//! → *forgotten* (a sync failed and the lot fell against it: it is still read back, as from a page
//! cache, but no later sync writes it).
//!
//! # Invariants
//! 1. Without pending and forgotten changes, `current` and `durable` are equal.
//! 2. Pending changes are in the order they were made.
//! 3. A pending sector holds whole sectors as they were read after the change, and the disk gets
//!    them whole even past the length it knows, so that no power cut makes a sector that never was.

use crate::draw::Draw;

/// Bytes that a disk writes wholly or not at all.
pub const SECTOR: usize = 512;

/// One sector as it was after some write.
type Sector = [u8; SECTOR];

#[derive(Clone, Debug)]
enum Change {
    /// One sector of a write. `end`: the length that the file has at least if it survives.
    Sector {
        index: u64,
        bytes: Box<Sector>,
        end: u64,
    },
    SetLen(u64),
    Extend(u64),
    Punch {
        offset: u64,
        length: u64,
    },
}

/// The sectors of a file and its length, which are made durable each by itself: a sector may be on
/// the disk before the length that reaches so far.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// Past `length` only what was written there while the file was read as longer.
    bytes: Vec<u8>,
    length: usize,
}

impl Disk {
    /// What is found there: nothing past the length.
    fn contents(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn set_len(&mut self, length: usize) {
        self.bytes.resize(length, 0);
        self.length = length;
    }

    fn extend(&mut self, length: usize) {
        self.bytes.resize(self.bytes.len().max(length), 0);
        self.length = self.length.max(length);
    }
}

/// The bytes of one file. See the module text.
#[derive(Clone, Debug, Default)]
pub struct Image {
    current: Disk,
    durable: Disk,
    pending: Vec<Change>,
    /// Whether a failed sync ever forgot a change.
    forgot: bool,
    /// Writes that were given up and may still arrive: where, and what. No sync covers them.
    late: Vec<(u64, Vec<u8>)>,
}

impl Image {
    /// The bytes as they are read now.
    #[must_use]
    pub fn current(&self) -> &[u8] {
        self.current.contents()
    }

    /// Changes that a power cut may undo.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// As it is read now, durably.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self {
            current: self.current.clone(),
            durable: self.current.clone(),
            ..Self::default()
        }
    }

    /// Whether a failed sync ever gave up a change, which is still read back.
    #[must_use]
    pub fn forgot(&self) -> bool {
        self.forgot
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.write_some(offset, data, |_| true);
    }

    /// A write that fails half-way: each sector is written or not, as the lots fall.
    pub fn write_torn(&mut self, offset: u64, data: &[u8], draw: &mut Draw) {
        self.write_some(offset, data, |_| draw.chance(1, 2));
    }

    /// A write that nobody waits for any more and that has not happened yet.
    pub fn write_late(&mut self, offset: u64, data: &[u8]) {
        let whole = |at: u64| at.is_multiple_of(SECTOR as u64);
        assert!(
            whole(offset) && whole(data.len() as u64),
            "late writes are of whole sectors"
        );
        self.late.push((offset, data.to_vec()));
    }

    /// Whether writes may still arrive.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.late.is_empty()
    }

    /// One of the late writes arrives, or all of them; a write may also be lost on its way.
    pub fn arrive(&mut self, all: bool, draw: &mut Draw) {
        while !self.late.is_empty() {
            let at = draw.below(self.late.len() as u64) as usize;
            let (offset, data) = self.late.swap_remove(at);
            match draw.below(4) {
                0 => {}
                1 => self.write_torn(offset, &data, draw),
                _ => self.write(offset, &data),
            }
            if !all {
                break;
            }
        }
    }

    fn write_some(&mut self, offset: u64, data: &[u8], mut keep: impl FnMut(u64) -> bool) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let index = at / SECTOR as u64;
            let to = end.min((index + 1) * SECTOR as u64);
            if keep(index) {
                let part = &data[(at - offset) as usize..(to - offset) as usize];
                self.write_in_sector(index, at, part);
            }
            at = to;
        }
        self.assert_invariants();
    }

    fn write_in_sector(&mut self, index: u64, at: u64, part: &[u8]) {
        let end = at + part.len() as u64;
        debug_assert!(end <= (index + 1) * SECTOR as u64, "within one sector");
        if self.current.length < end as usize {
            self.current.set_len(end as usize);
        }
        self.current.bytes[at as usize..end as usize].copy_from_slice(part);
        let from = index as usize * SECTOR;
        let until = self.current.length.min(from + SECTOR);
        let mut bytes = Box::new([0; SECTOR]);
        bytes[..until - from].copy_from_slice(&self.current()[from..until]);
        let end = until as u64;
        self.pending.push(Change::Sector { index, bytes, end });
    }

    /// Cuts or extends to `length`.
    pub fn set_len(&mut self, length: u64) {
        let change = Change::SetLen(length);
        change.apply(&mut self.current);
        self.pending.push(change);
        self.rewrite_part(length);
    }

    /// Makes the file `length` bytes long at least.
    pub fn extend(&mut self, length: u64) {
        let change = Change::Extend(length);
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Makes zeros of a range; the length stays.
    pub fn punch(&mut self, offset: u64, length: u64) {
        // Nothing happens past the end that is shown, also where a cut that shows it is given up.
        let shown = self.current.length as u64;
        let end = offset.saturating_add(length).min(shown);
        let length = end.saturating_sub(offset);
        let change = Change::Punch { offset, length };
        change.apply(&mut self.current);
        self.pending.push(change);
        self.rewrite_part(offset);
        self.rewrite_part(end);
    }

    /// A sector that is cut or punched in part, at `at`, is written as it is read: the system makes
    /// the zeros in its page cache.
    fn rewrite_part(&mut self, at: u64) {
        let index = at / SECTOR as u64;
        let from = index as usize * SECTOR;
        let until = self.current.length.min(from.saturating_add(SECTOR));
        if !at.is_multiple_of(SECTOR as u64) && from < until {
            let mut bytes = Box::new([0; SECTOR]);
            bytes[..until - from].copy_from_slice(&self.current()[from..until]);
            // The length is another matter.
            let end = 0;
            self.pending.push(Change::Sector { index, bytes, end });
        }
    }

    /// Makes the first `covered` pending changes durable: those made before the sync began.
    pub fn sync(&mut self, covered: usize) {
        for change in self.pending.drain(..covered.min(self.pending.len())) {
            change.apply(&mut self.durable);
        }
        self.assert_invariants();
    }

    /// A sync that fails: each change became durable or is forgotten for good, as the lots fall.
    pub fn fail_sync(&mut self, draw: &mut Draw) {
        self.durable = self.survivors(draw);
        self.forgot |= !self.pending.is_empty();
        self.pending.clear();
    }

    /// What is found after a power cut now.
    #[must_use]
    pub fn crash(&self, draw: &mut Draw) -> Self {
        let mut survived = self.survivors(draw);
        for (offset, data) in &self.late {
            let kept = draw.one(&[0, 4, 8]);
            for (sector, from) in data.chunks(SECTOR).zip((*offset..).step_by(SECTOR)) {
                if draw.chance(kept, 8) {
                    let mut bytes = Box::new([0; SECTOR]);
                    bytes.copy_from_slice(sector);
                    let (index, end) = (from / SECTOR as u64, 0);
                    Change::Sector { index, bytes, end }.apply(&mut survived);
                }
            }
        }
        // What lies past the end reads as zeros should the file grow.
        survived.bytes.truncate(survived.length);
        Self {
            current: survived.clone(),
            durable: survived,
            ..Self::default()
        }
    }

    /// The durable bytes with a subset of the pending changes. How many survive is a lot too:
    /// none and all are tried as often as some.
    fn survivors(&self, draw: &mut Draw) -> Disk {
        let eighths = draw.one(&[0, 1, 4, 7, 8]);
        let mut disk = self.durable.clone();
        for change in &self.pending {
            if draw.chance(eighths, 8) {
                change.apply(&mut disk);
            }
        }
        disk
    }

    fn assert_invariants(&self) {
        if self.pending.is_empty() && !self.forgot {
            debug_assert!(self.current() == self.durable.contents(), "invariant 1");
        }
    }
}

impl Change {
    fn apply(&self, disk: &mut Disk) {
        match self {
            Self::Sector {
                index,
                bytes: sector,
                end,
            } => {
                let from = *index as usize * SECTOR;
                let until = disk.bytes.len().max(from + SECTOR);
                disk.bytes.resize(until, 0);
                disk.bytes[from..from + SECTOR].copy_from_slice(&sector[..]);
                disk.length = disk.length.max(*end as usize);
            }
            Self::SetLen(length) => disk.set_len(*length as usize),
            Self::Extend(length) => disk.extend(*length as usize),
            Self::Punch { offset, length } => {
                let clip = |at: u64| (at as usize).min(disk.bytes.len());
                let range = clip(*offset)..clip(offset.saturating_add(*length));
                disk.bytes[range].fill(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All first bytes of the sectors that crashes of `image` leave behind.
    fn outcomes(image: &Image) -> BTreeSet<Vec<u8>> {
        let crashed = |seed| image.crash(&mut Draw::new(seed));
        let firsts = |i: Image| i.current().iter().step_by(SECTOR).copied().collect();
        (0..400).map(|seed| firsts(crashed(seed))).collect()
    }

    #[test]
    fn synced_bytes_survive_every_crash() {
        let mut image = Image::default();
        image.write(100, &[7; 2000]);
        image.set_len(3000);
        image.punch(600, 100);
        image.sync(usize::MAX);
        let expected = image.current().to_vec();
        for seed in 0..100 {
            assert_eq!(image.crash(&mut Draw::new(seed)).current(), expected);
        }
    }

    #[test]
    fn each_sector_keeps_any_one_of_its_versions() {
        let mut image = Image::default();
        image.write(0, &[1; 2 * SECTOR]);
        image.sync(usize::MAX);
        image.write(0, &[2; 2 * SECTOR]);
        image.write(0, &[3; SECTOR]);
        let mut expected = BTreeSet::new();
        for first in 1..=3 {
            for second in 1..=2 {
                expected.insert(vec![first, second]);
            }
        }
        assert_eq!(outcomes(&image), expected);
    }

    #[test]
    fn lengths_and_holes_survive_as_a_whole_or_not() {
        let mut image = Image::default();
        image.write(0, &[1; 3 * SECTOR]);
        image.sync(usize::MAX);
        image.set_len(SECTOR as u64);
        let cut = BTreeSet::from([vec![1], vec![1, 1, 1]]);
        assert_eq!(outcomes(&image), cut);
        let mut image = image.crash(&mut Draw::new(1));
        image.set_len(2 * SECTOR as u64);
        image.write(0, &[1; 2 * SECTOR]);
        image.sync(usize::MAX);
        image.punch(0, 2 * SECTOR as u64);
        assert_eq!(outcomes(&image), BTreeSet::from([vec![0, 0], vec![1, 1]]));
    }

    #[test]
    fn a_failed_sync_forgets_for_good() {
        let mut lost = 0;
        for seed in 0..50 {
            let mut image = Image::default();
            image.write(0, &[1; SECTOR]);
            image.sync(usize::MAX);
            image.write(0, &[2; SECTOR]);
            image.fail_sync(&mut Draw::new(seed));
            image.sync(usize::MAX);
            assert_eq!(
                image.current()[0],
                2,
                "the page cache shows it all the same"
            );
            lost += u32::from(image.crash(&mut Draw::new(0)).current()[0] == 1);
        }
        assert!(
            (5..45).contains(&lost),
            "{lost} of 50 writes were forgotten"
        );
    }

    #[test]
    fn a_part_of_a_sector_survives_with_all_that_was_in_it() {
        let mut image = Image::default();
        image.write(0, &[1; SECTOR]);
        image.sync(usize::MAX);
        image.write(0, &[2; 100]);
        image.write(300, &[3; 100]);
        for seed in 0..100 {
            let found = image.crash(&mut Draw::new(seed));
            let pair = (found.current()[0], found.current()[300]);
            assert!(
                [(1, 1), (2, 1), (2, 3)].contains(&pair),
                "{pair:?} never was"
            );
        }
    }

    #[test]
    fn a_sector_on_the_disk_before_its_length_is_whole_when_the_length_follows() {
        let mut image = Image::default();
        image.write(0, &[1; 100]);
        image.sync(usize::MAX);
        image.write(0, &[2; SECTOR]);
        image.punch(100, 300);
        image.write(2 * SECTOR as u64, &[3; SECTOR]);
        let mut met = 0;
        for seed in 0..400 {
            let found = image.crash(&mut Draw::new(seed));
            let found = found.current();
            if found.len() > SECTOR && found[0] == 2 {
                assert_eq!(found[SECTOR - 1], 2, "what was read as zeros never");
                met += 1;
            }
            assert!([100, SECTOR, 3 * SECTOR].contains(&found.len()));
        }
        assert!(met > 0, "the lots fall so");
    }

    #[test]
    fn a_file_that_was_cut_grows_with_zeros() {
        let mut image = Image::default();
        image.write(0, &[1; SECTOR]);
        image.sync(usize::MAX);
        image.write(0, &[2; SECTOR]);
        image.set_len(100);
        image.set_len(2 * SECTOR as u64);
        image.sync(usize::MAX);
        let found = image.crash(&mut Draw::new(1));
        let expected = [vec![2; 100], vec![0; 2 * SECTOR - 100]].concat();
        assert_eq!(found.current(), expected);
    }
}
