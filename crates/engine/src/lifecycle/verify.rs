//! Copies in doubt are compared with base, in the background.
//!
//! After a crash the clean pages of regions that base was being written in are held in doubt
//! (`core/hierarchy/doubt.rs`). Whoever reads such a page from base compares it on the way
//! (`request/read.rs`); the others are read here, in base order and in runs, of open files,
//! and never more than half of the time. Nothing is compared before [`Engine::adopt`] has ended.
//!
//! The rule: a copy is believed only when base gave the same bytes to a reader who holds the page,
//! so no write or cut of it came between ([`thermocline_core::Hierarchy::settle_doubt`]).

use crate::device::AlignedBuf;
use crate::engine::Engine;
use crate::files::object::Object;
use crate::state::Inner;
use crate::store::checksum;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use thermocline_core::{ObjectId, PageId};

/// Bytes of base read in one I/O at most.
const RUN_BYTES_MAX: usize = 256 << 10;
/// Files passed over in one look because they are not open.
const CLOSED_MAX: usize = 256;
/// How long the verifier rests when it found nothing to compare.
const REST: Duration = Duration::from_millis(500);
/// How long it rests at least.
const PAUSE: Duration = Duration::from_millis(1);

/// A page's copy in doubt, and its checksum.
type Doubt = (PageId, u64);

impl Engine {
    /// Compares one run of copies with base; false when none was settled.
    pub(crate) fn verify_some(&self) -> bool {
        let Some((object, run)) = self.next_run() else {
            return false;
        };
        let size = self.page_size();
        assert!(!run.is_empty(), "a run has pages");
        let mut bytes = AlignedBuf::new(run.len() * size);
        let read = object
            .base
            .read_at(&mut bytes, run[0].0.index * size as u64);
        if let Ok(read) = read {
            bytes[read..].fill(0);
        }
        let same = |((page, sum), bytes): (&Doubt, &[u8])| {
            let same = checksum(*page, bytes) == *sum;
            read.is_ok().then_some(same)
        };
        let same: Vec<Option<bool>> = run.iter().zip(bytes.chunks_exact(size)).map(same).collect();
        let mut inner = self.inner();
        for ((page, _), same) in run.iter().zip(same) {
            self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.end_verify(*page, same, out);
            });
        }
        read.is_ok()
    }

    /// Copies in doubt of adjacent pages of an open object, each held as by a reader.
    fn next_run(&self) -> Option<(Arc<Object>, Vec<Doubt>)> {
        let mut inner = self.inner();
        if inner.commits.held || inner.hierarchy.doubts() == 0 {
            return None;
        }
        let most = (RUN_BYTES_MAX / self.page_size()).max(1);
        let object = self.next_doubtful(&mut inner)?;
        let mut run: Vec<Doubt> = Vec::new();
        for page in inner.hierarchy.next_doubts(inner.verify_from, most) {
            let next = run.last().map(|(last, _)| (last.object, last.index + 1));
            let adjacent = next.is_none_or(|next| next == (page.object, page.index));
            let sum = inner.hierarchy.doubt_of(page).filter(|_| adjacent);
            let Some(sum) = sum.filter(|_| inner.hierarchy.start_verify(page)) else {
                break;
            };
            run.push((page, sum));
        }
        // A page in use settles itself, or is come back to.
        let passed = run.last().map_or(inner.verify_from, |(page, _)| *page);
        inner.verify_from = PageId::new(passed.object, passed.index.saturating_add(1));
        (!run.is_empty()).then_some((object, run))
    }

    /// Moves [`Inner::verify_from`] to a page in doubt of an object that is open.
    fn next_doubtful(&self, inner: &mut Inner) -> Option<Arc<Object>> {
        for _ in 0..CLOSED_MAX {
            let next = inner.hierarchy.next_doubts(inner.verify_from, 1);
            let Some(page) = next.first() else {
                // Round again, the next time.
                inner.verify_from = PageId::default();
                return None;
            };
            inner.verify_from = *page;
            let object = self.object(page.object).ok();
            if let Some(object) = object.filter(|object| self.is_paged(object)) {
                return Some(object);
            }
            let after = ObjectId(page.object.0.saturating_add(1));
            inner.verify_from = PageId::new(after, 0);
        }
        None
    }

    /// Pages that are on flash and can be read from there, and those in doubt, at the start.
    #[doc(hidden)]
    #[must_use]
    pub fn found_at_start(&self) -> (u32, u32) {
        let restored = self.restored_pages.load(Ordering::Relaxed);
        let doubted = self.doubted_pages.load(Ordering::Relaxed);
        (restored, doubted)
    }
}

/// The life of the thread that compares copies in doubt: until there are none, or the engine stops.
pub(crate) fn run_verifier(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        let started = Instant::now();
        let rest = match engine.verify_some() {
            true => started.elapsed().clamp(PAUSE, REST),
            false => REST,
        };
        let inner = engine.inner();
        if inner.stopping || inner.hierarchy.doubts() == 0 {
            return;
        }
        if engine.signals.verifier.wait_timeout(inner, rest).stopping {
            return;
        }
    }
}
