//! The bytes of the DRAM pool, readable without the engine's lock.
//!
//! Which page is in which frame is decided by [`thermocline_core::pool::Pool`]; this is the
//! executor's side of it: 64 shards, each a map from page to bytes behind a reader-writer lock.
//! A hit takes one shard's read lock, counts itself on the page and is done. The policy hears of
//! hits in batches: a page's first hit since the last batch puts it on its shard's list of
//! pending pages, later ones only count.
//!
//! # Invariants
//! 1. Frames change (fill, overwrite, evict) only under the engine's lock, and agree with the
//!    core's pool whenever that lock is free.
//! 2. A shard's lock is never held while the engine's lock is asked for.

use hashbrown::HashTable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use thermocline_core::{FrameId, PageId, hash};

const SHARDS: usize = 64;
/// Pending pages of a shard that make a batch.
const BATCH: usize = 32;

struct Entry {
    page: PageId,
    frame: FrameId,
    hits: AtomicU32,
    bytes: Box<[u8]>,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard {
    map: RwLock<HashTable<Entry>>,
    pending: Mutex<Vec<PageId>>,
}

/// See the module text.
pub struct Frames {
    shards: Box<[Shard]>,
    page_size: usize,
    spare: Mutex<Vec<Box<[u8]>>>,
}

/// A hit was served; perhaps a batch of hits is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Nothing else to do.
    Served,
    /// The shard with this number has a full batch.
    BatchDue(usize),
}

impl Frames {
    /// No frames filled; memory is taken as frames fill.
    #[must_use]
    pub fn new(page_size: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self {
            shards,
            page_size,
            spare: Mutex::default(),
        }
    }

    fn shard_of(hash: u64) -> usize {
        // The top bits: the table below uses the low ones.
        (hash >> 58) as usize
    }

    /// Lends the bytes of `page` to `use_bytes`, if the page is in a frame.
    pub fn read(&self, page: PageId, use_bytes: impl FnOnce(&[u8])) -> Option<Hit> {
        let hash = hash::of_page(page);
        let number = Self::shard_of(hash);
        let shard = &self.shards[number];
        let map = shard.map.read().unwrap_or_else(PoisonError::into_inner);
        let entry = map.find(hash, |e| e.page == page)?;
        use_bytes(&entry.bytes);
        let first = entry.hits.fetch_add(1, Ordering::Relaxed) == 0;
        drop(map);
        if !first {
            return Some(Hit::Served);
        }
        let mut pending = lock(&shard.pending);
        pending.push(page);
        Some(if pending.len() >= BATCH {
            Hit::BatchDue(number)
        } else {
            Hit::Served
        })
    }

    /// Takes the batch of one shard: frame, page and hits of every pending page.
    pub fn take_batch(&self, number: usize, out: &mut Vec<(FrameId, PageId, u32)>) {
        let shard = &self.shards[number];
        let pages = std::mem::take(&mut *lock(&shard.pending));
        let map = shard.map.read().unwrap_or_else(PoisonError::into_inner);
        for page in pages {
            let found = map.find(hash::of_page(page), |e| e.page == page);
            if let Some(entry) = found {
                out.push((entry.frame, page, entry.hits.swap(0, Ordering::Relaxed)));
            }
        }
    }

    /// Puts `bytes` (one page) into `frame` as `page`, over the page's old bytes if it is there.
    pub fn fill(&self, frame: FrameId, page: PageId, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), self.page_size);
        let hash = hash::of_page(page);
        let shard = &self.shards[Self::shard_of(hash)];
        let mut map = shard.map.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = map.find_mut(hash, |e| e.page == page) {
            debug_assert_eq!(entry.frame, frame, "invariant 1");
            entry.bytes.copy_from_slice(bytes);
            return;
        }
        let mut own = lock(&self.spare).pop().unwrap_or_else(|| self.new_frame());
        own.copy_from_slice(bytes);
        let entry = Entry {
            page,
            frame,
            hits: AtomicU32::new(0),
            bytes: own,
        };
        map.insert_unique(hash, entry, |e| hash::of_page(e.page));
    }

    fn new_frame(&self) -> Box<[u8]> {
        vec![0; self.page_size].into_boxed_slice()
    }

    /// Takes `page` out of `frame`.
    pub fn evict(&self, frame: FrameId, page: PageId) {
        let hash = hash::of_page(page);
        let shard = &self.shards[Self::shard_of(hash)];
        let mut map = shard.map.write().unwrap_or_else(PoisonError::into_inner);
        let found = map.find_entry(hash, |e| e.page == page && e.frame == frame);
        debug_assert!(found.is_ok(), "invariant 1");
        if let Ok(found) = found {
            let (entry, _) = found.remove();
            drop(map);
            lock(&self.spare).push(entry.bytes);
        }
    }

    /// Number of shards, for draining all batches.
    #[must_use]
    pub const fn shards() -> usize {
        SHARDS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::ObjectId;

    #[test]
    fn hits_are_counted_and_batched() {
        let frames = Frames::new(4);
        let page = PageId::new(ObjectId(1), 5);
        assert_eq!(frames.read(page, |_| panic!("not there")), None);
        frames.fill(FrameId(0), page, &[1; 4]);
        for _ in 0..3 {
            assert_eq!(
                frames.read(page, |b| assert_eq!(b, [1; 4])),
                Some(Hit::Served)
            );
        }
        frames.fill(FrameId(0), page, &[2; 4]);
        assert_eq!(
            frames.read(page, |b| assert_eq!(b, [2; 4])),
            Some(Hit::Served)
        );
        let mut batch = Vec::new();
        (0..Frames::shards()).for_each(|n| frames.take_batch(n, &mut batch));
        assert_eq!(batch, [(FrameId(0), page, 4)]);
        frames.evict(FrameId(0), page);
        assert_eq!(frames.read(page, |_| {}), None);
    }

    #[test]
    fn a_full_batch_is_announced() {
        let frames = Frames::new(1);
        let pages: Vec<PageId> = (0..64 * BATCH as u64)
            .map(|i| PageId::new(ObjectId(0), i))
            .collect();
        for (frame, &page) in pages.iter().enumerate() {
            frames.fill(FrameId(frame as u32), page, &[0]);
        }
        let hits = pages.iter().filter_map(|&page| frames.read(page, |_| {}));
        let due = hits.filter(|hit| matches!(hit, Hit::BatchDue(_))).count();
        assert!(due > 0, "2048 pages in 64 shards fill some batch of 32");
    }
}
