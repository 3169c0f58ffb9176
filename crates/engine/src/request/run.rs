//! Runs of pages that are read from base with one I/O, over what lies between and is not absent.
//!
//! With several streams at work each read of a disk is a seek, so a scan of which every eighth page
//! is on flash must not become eight reads. A run therefore goes on over pages that are *at hand*
//! (in the pool, in the write buffer, on flash) as long as reading them in vain costs base less
//! than another read ([`Costs::bridge_pages`](thermocline_core::Costs::bridge_pages)), and ends
//! with an absent page. Nothing is read that was not asked for.
//!
//! Pages at hand are *passed over*: their reads are not started before base is read, nobody is kept
//! from writing them meanwhile, and what base gave for them is not believed for that. When the
//! run's bytes are there, each page's turn comes in ascending order, under one hold of the engine's
//! lock: an absent page ends; one passed over is started now and ends at once, with the bytes of
//! its frame or of the write buffer, or with those of base if they are the very bytes of its slot:
//! the page is clean and their checksum is the slot's. Otherwise its slot is read, as if alone. A
//! page that has left, mostly to make room for those before it, is an absent one whose bytes are at
//! hand, if it was clean and nobody began to change it meanwhile (`Ahead::watch`). Any other,
//! being written or changed, is left to be read by itself when the run has ended.
//!
//! Such a page counts as read from flash, whichever device its bytes came from, and the policy sees
//! a hit on its slot: it is told the same, in the same order, as if each page had been read alone.
//! The request counts as served by base. The device's health hears only of reads that the device
//! did.
//!
//! While reads of a run are started nobody is waited for: a writer that holds a page between may be
//! waiting for one of them. Where base fails, what is not needed may be what it cannot give: each
//! piece that is needed is read again alone.
//!
//! # Invariants
//! 1. What base gave for a page passed over is served only if it is what the page's slot holds at
//!    that moment, or if the page has no slot and did not change since. For a dirty page it is
//!    never served.

use super::read::{Reading, stored};
use super::{Part, RUN_BYTES_MAX, with_scratch};
use crate::lock::MutexGuard;
use crate::mutant::Mutant;
use crate::state::{Inner, page_of};
use crate::store::{Stored, checksum};
use std::io;
use std::ops::Range;
use thermocline_core::{ReadStart, SlotId};
use thermocline_trace::Served;

/// Pages read from base at once. The first and the last are absent.
#[derive(Debug)]
pub(crate) struct BaseRun {
    pub(crate) pages: Range<u64>,
    /// Pages among them that are passed over, ascending; the reads of all others are started.
    over: Vec<u64>,
    /// Those of them that are clean are watched for changes under this number.
    watch: Option<u64>,
}

impl BaseRun {
    fn plain(pages: Range<u64>) -> Self {
        Self {
            pages,
            over: Vec::new(),
            watch: None,
        }
    }

    /// The pages whose reads are started, as far as they follow one another.
    fn pieces(&self) -> Vec<Range<u64>> {
        let mut from = self.pages.start;
        let mut pieces = Vec::new();
        for &page in &self.over {
            if from < page {
                pieces.push(from..page);
            }
            from = page + 1;
        }
        assert!(from < self.pages.end, "the last page is absent");
        pieces.push(from..self.pages.end);
        pieces
    }
}

/// A page that was passed over: what base gave for it.
struct Given<'a> {
    bytes: &'a mut [u8],
    /// Their checksum.
    sum: u64,
    /// Whether they are the page's, if it has left.
    same: bool,
}

/// What became of a page passed over.
enum Turn {
    Served,
    /// Its read is started, and its slot is to be read.
    Slot(SlotId, Stored),
    /// Nothing is started.
    Later,
}

impl Reading<'_> {
    /// Starts base reads of pages after `index`, whose read was started, as long as they are absent
    /// too, or at hand with others behind them that are absent and near enough.
    pub(crate) fn extend_run(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        index: u64,
        last: u64,
    ) -> BaseRun {
        let most = (RUN_BYTES_MAX / self.engine.page_size()).max(1) as u64;
        let widest = self.engine.config.bridge_pages();
        let mut run = BaseRun::plain(index..index + 1);
        let mut at = index + 1;
        while at <= last && at - index < most {
            let page = page_of(self.object, at);
            if inner.hierarchy.is_absent(page) {
                let start = inner.hierarchy.start_read(page);
                if start != ReadStart::Base {
                    debug_assert_eq!(start, ReadStart::Busy, "an absent page is read from base");
                    break;
                }
                run.over.extend(run.pages.end..at);
                run.pages.end = at + 1;
            } else if at - run.pages.end >= widest || !inner.hierarchy.is_at_hand(page) {
                break;
            }
            at += 1;
        }
        if !run.over.is_empty() {
            let clean = |index: &u64| !inner.hierarchy.is_dirty(page_of(self.object, *index));
            let clean = run.over.iter().copied().filter(clean).collect();
            run.watch = Some(inner.ahead.watch(self.object.id, clean));
        }
        run
    }

    /// Reads the pages of `run` from base with one I/O; those that are left are to be read alone.
    pub(crate) fn serve_base(&mut self, run: &BaseRun, buf: &mut [u8]) -> io::Result<Vec<u64>> {
        let size = self.engine.page_size();
        let (start, end) = (run.pages.start, run.pages.end);
        debug_assert!(start < end, "a run has pages");
        let (first, last) = (self.part(start), self.part(end - 1));
        let total = (end - start) as usize * size;
        let wanted = first.outside.start..last.outside.end;
        debug_assert!(
            wanted.len() <= total,
            "no page gives more bytes than it has"
        );
        debug_assert!(wanted.end <= buf.len());
        if wanted.len() == total {
            return self.run_into(run, &mut buf[wanted]);
        }
        with_scratch(total, |pages| {
            let left = self.run_into(run, pages)?;
            let from = first.inside.start;
            debug_assert!(from < size && from + wanted.len() <= pages.len());
            buf[wanted.clone()].copy_from_slice(&pages[from..from + wanted.len()]);
            Ok(left)
        })
    }

    fn run_into(&mut self, run: &BaseRun, pages: &mut [u8]) -> io::Result<Vec<u64>> {
        let (engine, size) = (self.engine, self.engine.page_size());
        debug_assert_eq!(pages.len() % size, 0, "runs are whole pages");
        self.note(Served::Base);
        if run.over.is_empty() {
            self.base_into_run(run.pages.clone(), pages)?;
        } else if self.base_at(run.pages.start, pages).is_err() {
            return self.piece_by_piece(run, pages);
        }
        let object = self.object;
        let sum = |&page: &u64| {
            let from = (page - run.pages.start) as usize * size;
            (
                page,
                checksum(page_of(object, page), &pages[from..from + size]),
            )
        };
        let sums: Vec<(u64, u64)> = run.over.iter().map(sum).collect();
        let mut over = sums.into_iter().peekable();
        let (mut on_flash, mut left) = (Vec::new(), Vec::new());
        let mut inner = engine.inner();
        let same = run.watch.map(|number| inner.ahead.unchanged(number));
        let same = same.unwrap_or_default();
        for (index, bytes) in run.pages.clone().zip(pages.chunks_exact_mut(size)) {
            let Some((_, sum)) = over.next_if(|(page, _)| *page == index) else {
                self.finish(&mut inner, page_of(object, index), ReadStart::Base, bytes);
                continue;
            };
            let same = same.binary_search(&index).is_ok();
            match self.take_turn(&mut inner, index, Given { bytes, sum, same }) {
                Turn::Served => {}
                Turn::Slot(slot, stored) => on_flash.push((index, (slot, stored))),
                Turn::Later => left.push(index),
            }
        }
        let waits = inner.hierarchy.policy().is_synchronous() && !self.ahead;
        drop(inner);
        self.slots_between(run, &on_flash, pages)?;
        if waits {
            self.wait_for_flash(run.pieces().into_iter().flatten());
        }
        Ok(left)
    }

    /// Page `index` was passed over, and base gave `given` for it.
    fn take_turn(&mut self, inner: &mut Inner, index: u64, given: Given<'_>) -> Turn {
        let Given { bytes, sum, same } = given;
        let engine = self.engine;
        let page = page_of(self.object, index);
        let whole = Part {
            page,
            inside: 0..bytes.len(),
            outside: 0..bytes.len(),
        };
        match inner.hierarchy.start_read(page) {
            ReadStart::Frame(_) => {
                engine.hit_under_lock(inner, page, |frame| bytes.copy_from_slice(frame));
            }
            ReadStart::Buffer(slot) => self.serve_buffer(inner, slot, &whole, bytes),
            ReadStart::Slot(slot) => {
                let believed = engine.config.planted == Mutant::BaseBelieved;
                if inner.hierarchy.sum_on_base(slot) != Some(sum) && !believed {
                    return Turn::Slot(slot, stored(inner, slot, page));
                }
                let clean = !inner.hierarchy.is_dirty(page);
                assert!(clean || believed, "invariant 1: {page:?} is newer on flash");
                let hints = engine.complete(&self.request.hints, self.object, Some(bytes));
                engine.decide(inner, bytes, |hierarchy, out| {
                    hierarchy.finish_bridged(page, &hints, slot, out);
                });
            }
            ReadStart::Base if same => {
                let clean = !inner.hierarchy.is_dirty(page);
                assert!(clean, "invariant 1: {page:?} did not change");
                self.finish(inner, page, ReadStart::Base, bytes);
            }
            ReadStart::Base => {
                engine.decide(inner, &[], |hierarchy, out| {
                    hierarchy.abandon_read(page, out)
                });
                return Turn::Later;
            }
            ReadStart::Busy => return Turn::Later,
        }
        Turn::Served
    }

    /// Reads pages of `run` that were passed over from their slots into `pages`, those of the run.
    fn slots_between(
        &mut self,
        run: &BaseRun,
        on_flash: &[(u64, (SlotId, Stored))],
        pages: &mut [u8],
    ) -> io::Result<()> {
        let size = self.engine.page_size();
        let mut result = Ok(());
        // Each read that was started is ended, also when one before it failed.
        for together in on_flash.chunk_by(|a, b| a.0 + 1 == b.0) {
            let slots: Vec<(SlotId, Stored)> = together.iter().map(|(_, slot)| *slot).collect();
            let from = (together[0].0 - run.pages.start) as usize * size;
            let read = self.slots_into(&slots, &mut pages[from..from + slots.len() * size]);
            result = result.and(read);
        }
        result
    }

    /// Base does not give all of `run`: each piece of it alone.
    fn piece_by_piece(&mut self, run: &BaseRun, pages: &mut [u8]) -> io::Result<Vec<u64>> {
        let size = self.engine.page_size();
        if let Some(number) = run.watch {
            self.engine.inner().ahead.unchanged(number);
        }
        let mut result = Ok(());
        // Each read that was started is ended, also when one before it failed.
        for piece in run.pieces() {
            let from = (piece.start - run.pages.start) as usize * size;
            let to = from + (piece.end - piece.start) as usize * size;
            let read = self.run_into(&BaseRun::plain(piece), &mut pages[from..to]);
            result = result.and(read.map(|_| ()));
        }
        result.map(|()| run.over.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_what_was_started() {
        let run = BaseRun {
            pages: 3..12,
            over: vec![4, 7, 8, 10],
            watch: None,
        };
        assert_eq!(run.pieces(), [3..4, 5..7, 9..10, 11..12]);
        let whole = 3..5;
        assert_eq!(BaseRun::plain(whole.clone()).pieces(), vec![whole]);
    }
}
