//! A cascade (Bender et al., "Don't Thrash: How to Cache Your Hash on Flash", VLDB 2012): a
//! quotient filter in memory; when it is full its fingerprints are merged into a sorted run on the
//! SSD, and a run that has outgrown its level into the next, four times as large. A look-up reads
//! a page of each run; the first fingerprint of every page is kept in memory.

use super::{Aligned, PAGE, Scratch};
use crate::Outcome;

const FANOUT: u64 = 4;
/// Bytes of a fingerprint on the SSD, and how many a page has.
const WIDTH: usize = 5;
const PER_PAGE: usize = PAGE / WIDTH;
/// Pages read or written at once by a merge.
const BATCH: usize = 256;

#[derive(Default)]
struct Level {
    /// First fingerprint of each page.
    fences: Vec<u64>,
    len: u64,
    scratch: Option<Scratch>,
    /// Runs it has had: two files take turns.
    turn: usize,
}

/// See the module text.
pub(crate) struct Cascade {
    path: String,
    bits: u8,
    filter: qfilter::Filter,
    /// Fingerprints the filter in memory takes.
    room: u64,
    levels: Vec<Level>,
    page: Aligned,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) written: u64,
}

impl Cascade {
    /// With files beside `path` and fingerprints of `bits` bits; its filter has `memory` bytes at
    /// most.
    pub(crate) fn create(path: &str, bits: u8, memory: u64) -> Outcome<Self> {
        let mut room = 1 << 12;
        let sized = |room: u64| qfilter::Filter::with_fingerprint_size(room, bits);
        while sized(room * 2)?.memory_usage() as u64 <= memory {
            room *= 2;
        }
        let filter = sized(room)?;
        Ok(Self {
            path: path.into(),
            bits,
            room: filter.capacity(),
            filter,
            levels: Vec::new(),
            page: Aligned::zeroed(PAGE),
            reads: 0,
            writes: 0,
            written: 0,
        })
    }

    /// Bytes of memory: the filter and the fences.
    pub(crate) fn memory(&self) -> u64 {
        let fences = self.levels.iter().map(|level| level.fences.len() as u64);
        self.filter.memory_usage() as u64 + fences.sum::<u64>() * WIDTH as u64
    }

    pub(crate) fn insert(&mut self, hash: u64) -> Outcome<()> {
        if self.filter.len() >= self.room {
            self.spill()?;
        }
        let inserted = self.filter.insert_fingerprint(false, hash);
        inserted.map_err(|error| format!("{error:?}"))?;
        Ok(())
    }

    pub(crate) fn contains(&mut self, hash: u64) -> Outcome<bool> {
        if self.filter.contains_fingerprint(hash) {
            return Ok(true);
        }
        let wanted = qfilter::truncate_to_fingerprint(hash, self.bits);
        for level in &mut self.levels {
            let at = level.fences.partition_point(|fence| *fence <= wanted);
            let (Some(at), Some(scratch)) = (at.checked_sub(1), &mut level.scratch) else {
                continue;
            };
            scratch.read(self.page.get_mut(), (at * PAGE) as u64)?;
            self.reads += 1;
            let page = self.page.get();
            let end = (level.len as usize - at * PER_PAGE).min(PER_PAGE);
            let (mut low, mut high) = (0, end);
            while low < high {
                let middle = usize::midpoint(low, high);
                match decode(page, middle) < wanted {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            if low < end && decode(page, low) == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is in memory goes to the SSD.
    fn spill(&mut self) -> Outcome<()> {
        let mut target = 0;
        let mut coming = self.filter.len();
        loop {
            if target == self.levels.len() {
                self.levels.push(Level::default());
            }
            coming += self.levels[target].len;
            let most = self.room * FANOUT.pow(u32::try_from(target)? + 1);
            if coming <= most {
                break;
            }
            target += 1;
        }
        // All runs down to the target and the filter become one.
        let mut sources: Vec<Box<dyn Iterator<Item = u64> + '_>> = Vec::new();
        let mut read = 0;
        let turn = self.levels[target].turn + 1;
        for level in &mut self.levels[..=target] {
            if let Some(scratch) = &level.scratch {
                read += level.len.div_ceil((BATCH * PER_PAGE) as u64);
                sources.push(Box::new(Run::new(scratch, level.len)));
            }
        }
        sources.push(Box::new(self.filter.fingerprints()));
        let path = format!("{}.{}", self.path, 2 * target + turn % 2);
        let mut merged = merge(sources, Scratch::create(&path)?)?;
        merged.turn = turn;
        self.reads += read;
        let scratch = merged.scratch.as_ref();
        self.writes += scratch.map_or(0, |scratch| scratch.writes);
        self.written += scratch.map_or(0, |scratch| scratch.written);
        for level in &mut self.levels[..target] {
            *level = Level::default();
        }
        self.levels[target] = merged;
        self.filter.clear();
        Ok(())
    }

    /// Removes the files.
    pub(crate) fn remove(self) {
        for number in 0..2 * self.levels.len() {
            // One of each pair is not there.
            let _ = std::fs::remove_file(format!("{}.{number}", self.path));
        }
    }
}

fn decode(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..WIDTH].copy_from_slice(&page[at * WIDTH..][..WIDTH]);
    u64::from_le_bytes(bytes)
}

/// The fingerprints of a run, in order.
struct Run<'a> {
    scratch: &'a Scratch,
    bytes: Aligned,
    next: u64,
    len: u64,
}

impl<'a> Run<'a> {
    fn new(scratch: &'a Scratch, len: u64) -> Self {
        Self {
            scratch,
            bytes: Aligned::zeroed(BATCH * PAGE),
            next: 0,
            len,
        }
    }
}

impl Iterator for Run<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        use std::os::unix::fs::FileExt;
        if self.next == self.len {
            return None;
        }
        let batch = (BATCH * PER_PAGE) as u64;
        let within = (self.next % batch) as usize;
        if within == 0 {
            let pages = (self.len - self.next).min(batch).div_ceil(PER_PAGE as u64);
            let offset = self.next / PER_PAGE as u64 * PAGE as u64;
            let bytes = &mut self.bytes.get_mut()[..pages as usize * PAGE];
            let read = self.scratch.file.read_exact_at(bytes, offset);
            read.expect("the run is read");
        }
        self.next += 1;
        let page = &self.bytes.get()[within / PER_PAGE * PAGE..][..PAGE];
        Some(decode(page, within % PER_PAGE))
    }
}

/// One sorted run of all, each fingerprint once.
fn merge<'a>(
    mut sources: Vec<Box<dyn Iterator<Item = u64> + 'a>>,
    mut scratch: Scratch,
) -> Outcome<Level> {
    let mut heads: Vec<Option<u64>> = sources.iter_mut().map(Iterator::next).collect();
    let (mut level, mut last) = (Level::default(), None);
    let mut batch = Aligned::zeroed(BATCH * PAGE);
    let mut offset = 0;
    while let Some(least) = heads.iter().flatten().min().copied() {
        for (head, source) in heads.iter_mut().zip(&mut sources) {
            while *head == Some(least) {
                *head = source.next();
            }
        }
        debug_assert!(last.is_none_or(|last| last < least), "runs are sorted");
        last = Some(least);
        let within = level.len as usize % (BATCH * PER_PAGE);
        if within.is_multiple_of(PER_PAGE) {
            level.fences.push(least);
        }
        let place = within / PER_PAGE * PAGE + within % PER_PAGE * WIDTH;
        batch.get_mut()[place..place + WIDTH].copy_from_slice(&least.to_le_bytes()[..WIDTH]);
        level.len += 1;
        if within + 1 == BATCH * PER_PAGE {
            scratch.write(batch.get(), offset)?;
            offset += (BATCH * PAGE) as u64;
        }
    }
    let left = level.len as usize % (BATCH * PER_PAGE);
    if left > 0 {
        scratch.write(&batch.get()[..left.div_ceil(PER_PAGE) * PAGE], offset)?;
    }
    level.scratch = Some(scratch);
    Ok(level)
}
