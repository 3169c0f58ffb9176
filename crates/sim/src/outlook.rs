//! The future: when each page is read next, as the tier sees it.

use crate::bits::Bits;
use crate::request::{Kind, PageRequest};
use crate::workload::{Trimmed, Workload};
use thermocline_core::pool::Pool;
use thermocline_core::{HintSet, RequestType};

/// No next read.
pub(crate) const NEVER: u32 = u32::MAX;

/// Of every request of a decoded workload, under a pool of one size, what comes after it.
#[derive(Debug)]
pub(crate) struct Outlook<'a> {
    /// The page's number.
    pub(crate) ids: &'a [u32],
    /// Position of the next read of the page that reaches the tier with the page unchanged or
    /// renewed; [`NEVER`] when there is none.
    pub(crate) next: Vec<u32>,
    /// The same, but [`NEVER`] where a write of the whole page comes before that read: who may
    /// admit on writes need not keep the page until then. None when there are no writes.
    pub(crate) next_unwritten: Option<Vec<u32>>,
    /// Reads served by the pool.
    pub(crate) pool_hits: Bits,
    pub(crate) trims: &'a [Trimmed],
    /// How many pages have a number.
    pub(crate) pages: usize,
}

impl<'a> Outlook<'a> {
    /// Looks at the future of `workload` below a pool of `frames`; `None` when the workload is
    /// not in memory. O(requests).
    pub(crate) fn new(workload: &'a Workload, frames: u32) -> Option<Self> {
        let requests = workload.decoded()?;
        let pool_hits = match frames {
            0 => Bits::default(),
            _ => pool_hits(requests, workload.hint_sets(), frames),
        };
        let mut outlook = Self {
            ids: workload.ids(),
            next: Vec::new(),
            next_unwritten: None,
            pool_hits,
            trims: workload.trims(),
            pages: workload.facts().distinct_pages as usize,
        };
        outlook.next = outlook.look_back(requests, true);
        if workload.facts().writes > 0 {
            outlook.next_unwritten = Some(outlook.look_back(requests, false));
        }
        Some(outlook)
    }

    /// From the end to the beginning, keeps each page's next read; looks for it beyond writes
    /// only if `over_writes`.
    fn look_back(&self, requests: &[PageRequest], over_writes: bool) -> Vec<u32> {
        let mut next = vec![NEVER; requests.len()];
        let mut coming = vec![NEVER; self.pages];
        let mut trims = self.trims.iter().rev();
        for (at, request) in requests.iter().enumerate().rev() {
            if request.kind() == Kind::Trim {
                let trimmed = trims.next();
                debug_assert!(trimmed.is_some_and(|(when, _)| *when as usize == at));
                for &id in trimmed.map_or(&[][..], |(_, gone)| gone) {
                    coming[id as usize] = NEVER;
                }
                continue;
            }
            let id = self.ids[at] as usize;
            match request.kind() {
                // The copy is dropped: nothing before this write helps a read after it.
                Kind::PartWrite => coming[id] = NEVER,
                Kind::Read if !self.pool_hits.get(at as u64) => {
                    next[at] = coming[id];
                    coming[id] = at as u32;
                }
                kind => {
                    next[at] = coming[id];
                    if kind == Kind::Write && !over_writes {
                        coming[id] = NEVER;
                    }
                }
            }
        }
        next
    }
}

/// Which reads a pool of `frames` serves: that does not depend on the tier below it.
fn pool_hits(requests: &[PageRequest], hint_sets: &[HintSet], frames: u32) -> Bits {
    let mut pool = Pool::new(frames);
    let mut hits = Bits::default();
    for (at, request) in (0u64..).zip(requests) {
        let page = request.page();
        let frame = pool.find(page);
        match (request.kind(), frame) {
            (Kind::Trim, _) => {
                for frame in pool.in_range(request.object, request.index, request.trim_last()) {
                    pool.remove(frame);
                }
            }
            (Kind::Read, Some(frame)) => {
                pool.touch(frame);
                hits.set(at);
            }
            (Kind::Read, None) => {
                if let Some(victim) = pool.victim() {
                    pool.remove(victim.frame);
                }
                let hints = &hint_sets[request.hints as usize];
                let prefetched = hints.request() == RequestType::SequentialRead;
                pool.fill(page, *hints, false, prefetched);
            }
            (Kind::Write, Some(frame)) => pool.touch(frame),
            (Kind::PartWrite, Some(frame)) => {
                pool.remove(frame);
            }
            (_, None) => {}
        }
    }
    hits
}
