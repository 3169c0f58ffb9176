//! The bytes of the DRAM pool, readable without the engine's lock.
//!
//! Which page is in which frame is decided by [`thermocline_core::pool::Pool`]; this is the
//! executor's side of it: 64 shards, each a map from page to bytes behind a reader-writer lock.
//! A hit takes one shard's read lock, counts itself and is done.
//!
//! Order of recency matters only as fast as frames are refilled, so a page that was moved to the
//! front within the last quarter of a pool's worth of fills is left where it is (InnoDB's rule for
//! young pages). An older page's hit goes on its shard's list of pending pages, and the policy
//! hears of those in batches. The order is therefore that of LRU to within a quarter of the pool;
//! while everything hits, no order is kept at all. Counts per page are read and written without
//! a lock and may lose a few of several simultaneous hits; the pool's total is exact.
//!
//! # Invariants
//! 1. Frames change (fill, overwrite, evict) only under the engine's lock, and agree with the
//!    core's pool whenever that lock is free.
//!
//! A shard's lock is never held while the engine's lock is asked for.

use crate::lock::{Mutex, MutexGuard, RwLock};
use hashbrown::HashTable;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use thermocline_core::{FrameId, PageId, hash};

const SHARDS: usize = 64;
/// Pending pages of a shard that make a batch.
const BATCH: usize = 32;

struct Entry {
    page: PageId,
    frame: FrameId,
    /// Hits since the policy last heard of this page.
    hits: AtomicU32,
    /// Fills of the pool when the page was last filled or reported.
    moved: AtomicU32,
    bytes: Box<[u8]>,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard {
    map: RwLock<HashTable<Entry>>,
    hits: AtomicU64,
    pending: Mutex<Vec<PageId>>,
}

/// See the module text.
pub(crate) struct Frames {
    shards: Box<[Shard]>,
    page_size: usize,
    /// Fills so far, wrapping.
    fills: AtomicU32,
    /// Fills during which a page stays young.
    young: u32,
    spare: Mutex<Vec<Box<[u8]>>>,
}

/// A hit was served; perhaps a batch of hits is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// Nothing else to do.
    Served,
    /// The shard with this number has a full batch.
    BatchDue(usize),
}

impl Frames {
    /// Room for `capacity` frames, none filled; memory is taken as frames fill.
    #[must_use]
    pub(crate) fn new(page_size: usize, capacity: u32) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            page_size,
            fills: AtomicU32::new(0),
            young: capacity / 4,
            spare: Mutex::default(),
        }
    }

    /// Hits so far.
    #[must_use]
    pub(crate) fn hits(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| shard.hits.load(Ordering::Relaxed))
            .sum()
    }

    fn shard_of(hash: u64) -> usize {
        // The top bits: the table below uses the low ones.
        (hash >> 58) as usize
    }

    /// Lends the bytes of `page` to `use_bytes`, if the page is in a frame.
    pub(crate) fn read(&self, page: PageId, use_bytes: impl FnOnce(&[u8])) -> Option<Hit> {
        let hash = hash::of_page(page);
        let number = Self::shard_of(hash);
        let shard = &self.shards[number];
        let map = shard.map.read();
        let entry = map.find(hash, |e| e.page == page)?;
        debug_assert_eq!(entry.bytes.len(), self.page_size, "invariant 1");
        use_bytes(&entry.bytes);
        shard.hits.fetch_add(1, Ordering::Relaxed);
        entry.hits.store(
            entry.hits.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        let now = self.fills.load(Ordering::Relaxed);
        if now.wrapping_sub(entry.moved.load(Ordering::Relaxed)) <= self.young {
            return Some(Hit::Served);
        }
        entry.moved.store(now, Ordering::Relaxed);
        drop(map);
        let mut pending = lock(&shard.pending);
        pending.push(page);
        Some(if pending.len() >= BATCH {
            Hit::BatchDue(number)
        } else {
            Hit::Served
        })
    }

    /// Lends the bytes of `page` for a copy of the engine's own, which is no hit.
    pub(crate) fn peek(&self, page: PageId, use_bytes: impl FnOnce(&[u8])) -> bool {
        let hash = hash::of_page(page);
        let map = self.shards[Self::shard_of(hash)].map.read();
        let entry = map.find(hash, |e| e.page == page);
        if let Some(entry) = entry {
            debug_assert_eq!(entry.bytes.len(), self.page_size, "invariant 1");
            use_bytes(&entry.bytes);
        }
        entry.is_some()
    }

    /// Takes the batch of one shard: frame, page and hits of every pending page.
    pub(crate) fn take_batch(&self, number: usize, out: &mut Vec<(FrameId, PageId, u32)>) {
        let shard = &self.shards[number];
        debug_assert!(number < SHARDS);
        let pages = std::mem::take(&mut *lock(&shard.pending));
        let map = shard.map.read();
        for page in pages {
            let found = map.find(hash::of_page(page), |e| e.page == page);
            if let Some(entry) = found {
                out.push((entry.frame, page, entry.hits.swap(0, Ordering::Relaxed)));
            }
        }
    }

    /// Puts `bytes` (one page) into `frame` as `page`, over the page's old bytes if it is there.
    pub(crate) fn fill(&self, frame: FrameId, page: PageId, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), self.page_size);
        let hash = hash::of_page(page);
        let shard = &self.shards[Self::shard_of(hash)];
        let mut map = shard.map.write();
        if let Some(entry) = map.find_mut(hash, |e| e.page == page) {
            assert_eq!(entry.frame, frame, "invariant 1: one frame a page");
            entry.bytes.copy_from_slice(bytes);
            return;
        }
        let mut own = lock(&self.spare).pop().unwrap_or_else(|| self.new_frame());
        own.copy_from_slice(bytes);
        let moved = AtomicU32::new(self.fills.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let entry = Entry {
            page,
            frame,
            hits: AtomicU32::new(0),
            moved,
            bytes: own,
        };
        map.insert_unique(hash, entry, |e| hash::of_page(e.page));
    }

    fn new_frame(&self) -> Box<[u8]> {
        vec![0; self.page_size].into_boxed_slice()
    }

    /// Takes `page` out of `frame`.
    pub(crate) fn evict(&self, frame: FrameId, page: PageId) {
        let hash = hash::of_page(page);
        let shard = &self.shards[Self::shard_of(hash)];
        let mut map = shard.map.write();
        let found = map.find_entry(hash, |e| e.page == page && e.frame == frame);
        assert!(found.is_ok(), "invariant 1: what is evicted is there");
        if let Ok(found) = found {
            let (entry, _) = found.remove();
            drop(map);
            lock(&self.spare).push(entry.bytes);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::ObjectId;

    fn page(index: u64) -> PageId {
        PageId::new(ObjectId(1), index)
    }

    fn all_batches(frames: &Frames) -> Vec<(FrameId, PageId, u32)> {
        let mut batch = Vec::new();
        (0..SHARDS).for_each(|n| frames.take_batch(n, &mut batch));
        batch
    }

    #[test]
    fn hits_give_the_newest_bytes_and_are_counted() {
        let frames = Frames::new(4, 8);
        assert_eq!(frames.read(page(5), |_| panic!("not there")), None);
        frames.fill(FrameId(0), page(5), &[1; 4]);
        for _ in 0..3 {
            assert_eq!(
                frames.read(page(5), |b| assert_eq!(b, [1; 4])),
                Some(Hit::Served)
            );
        }
        frames.fill(FrameId(0), page(5), &[2; 4]);
        assert_eq!(
            frames.read(page(5), |b| assert_eq!(b, [2; 4])),
            Some(Hit::Served)
        );
        assert_eq!(frames.hits(), 4);
        frames.evict(FrameId(0), page(5));
        assert_eq!(frames.read(page(5), |_| {}), None);
    }

    #[test]
    fn only_pages_that_are_no_longer_young_are_reported() {
        let frames = Frames::new(1, 8);
        for index in 0..4 {
            frames.fill(FrameId(index as u32), page(index), &[0]);
        }
        // Fills stand at 4: page 0 was filled at 1, page 3 at 4; young is 2 fills.
        for index in [0, 0, 3, 0] {
            assert!(frames.read(page(index), |_| {}).is_some());
        }
        assert_eq!(all_batches(&frames), [(FrameId(0), page(0), 3)]);
        assert_eq!(all_batches(&frames), [], "a reported page is young again");
    }

    #[test]
    fn a_copy_of_the_engines_own_is_no_hit() {
        let frames = Frames::new(1, 0);
        frames.fill(FrameId(0), page(0), &[3]);
        frames.fill(FrameId(1), page(1), &[4]);
        assert!(frames.peek(page(0), |b| assert_eq!(b, [3])));
        assert!(!frames.peek(page(2), |_| panic!("not there")));
        assert_eq!((frames.hits(), all_batches(&frames)), (0, vec![]));
        assert!(frames.read(page(0), |_| {}).is_some());
        assert_eq!(all_batches(&frames), [(FrameId(0), page(0), 1)]);
    }

    #[test]
    fn a_full_batch_is_announced() {
        let frames = Frames::new(1, 0);
        let pages: Vec<PageId> = (0..64 * BATCH as u64).map(page).collect();
        for (frame, &page) in pages.iter().enumerate() {
            frames.fill(FrameId(frame as u32), page, &[0]);
        }
        let hits = pages.iter().filter_map(|&page| frames.read(page, |_| {}));
        let due = hits.filter(|hit| matches!(hit, Hit::BatchDue(_))).count();
        assert!(due > 0, "2048 pages in 64 shards fill some batch of 32");
    }
}
