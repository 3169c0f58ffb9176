//! The DRAM pool: which pages are in frames, and which frame goes next (LRU).
//!
//! # States of a frame
//! *Free* → *filled* (holds one page, always the newest bytes) → *free*. Under write-through a
//! filled frame is always clean, so any frame can be evicted at any time.
//!
//! # Invariants
//! 1. A page is in at most one frame; the map holds exactly the filled frames.
//! 2. The recency list holds exactly the filled frames.
//!
//! Memory beside the page itself: 80 bytes a frame, plus 5 to 10 for the map.

use crate::hash;
use crate::hint::HintSet;
use crate::list::{Links, List};
use crate::page::{FrameId, ObjectId, PageId};
use hashbrown::HashTable;

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    page: PageId,
    hints: HintSet,
}

/// A page that left the pool, with the hints of the request that last brought or wrote it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evicted {
    /// The frame it was in.
    pub frame: FrameId,
    /// The page.
    pub page: PageId,
    /// Hints of its last request that reached the tier.
    pub hints: HintSet,
}

/// See the module text.
#[derive(Debug)]
pub struct Pool {
    frames: Vec<Frame>,
    map: HashTable<u32>,
    free: Vec<u32>,
    links: Links,
    recency: List,
}

impl Pool {
    /// A pool of `capacity` free frames; 0 is a pool that holds nothing.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            frames: vec![Frame::default(); capacity as usize],
            map: HashTable::new(),
            free: (0..capacity).rev().collect(),
            links: Links::new(capacity),
            recency: List::default(),
        }
    }

    /// Number of frames.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Frames that hold a page.
    #[must_use]
    pub fn filled(&self) -> u32 {
        self.recency.len()
    }

    /// The frame of `page`.
    #[must_use]
    pub fn find(&self, page: PageId) -> Option<FrameId> {
        let found = self.map.find(hash::of_page(page), |&f| {
            self.frames[f as usize].page == page
        });
        found.map(|&f| FrameId(f))
    }

    /// The page in `frame`, when it is filled.
    #[must_use]
    pub fn page(&self, frame: FrameId) -> Option<PageId> {
        let page = self.frames[frame.at()].page;
        (self.find(page) == Some(frame)).then_some(page)
    }

    /// The page in `frame` was used.
    pub fn touch(&mut self, frame: FrameId) {
        if self.page(frame).is_some() {
            self.recency.move_to_front(&mut self.links, frame.0);
        }
    }

    /// The frame that leaves when room is needed: none while there are free ones.
    #[must_use]
    pub fn victim(&self) -> Option<Evicted> {
        if !self.free.is_empty() {
            return None;
        }
        let frame = FrameId(self.recency.back()?);
        let Frame { page, hints } = self.frames[frame.at()];
        Some(Evicted { frame, page, hints })
    }

    /// Puts `page`, which has no frame, into a free one.
    pub fn fill(&mut self, page: PageId, hints: HintSet) -> Option<FrameId> {
        debug_assert!(self.find(page).is_none(), "a page has at most one frame");
        let frame = FrameId(self.free.pop()?);
        self.frames[frame.at()] = Frame { page, hints };
        let frames = &self.frames;
        let rehash = |&f: &u32| hash::of_page(frames[f as usize].page);
        self.map.insert_unique(hash::of_page(page), frame.0, rehash);
        self.recency.push_front(&mut self.links, frame.0);
        Some(frame)
    }

    /// Takes the page out of the filled `frame`.
    pub fn remove(&mut self, frame: FrameId) -> PageId {
        let page = self.frames[frame.at()].page;
        let entry = self.map.find_entry(hash::of_page(page), |&f| f == frame.0);
        debug_assert!(entry.is_ok(), "a filled frame is in the map");
        if let Ok(entry) = entry {
            entry.remove();
        }
        self.recency.remove(&mut self.links, frame.0);
        self.free.push(frame.0);
        page
    }

    /// Filled frames with pages `first..=last` of `object`. O(pages) or O(frames).
    #[must_use]
    pub fn in_range(&self, object: ObjectId, first: u64, last: u64) -> Vec<FrameId> {
        if last - first < u64::from(self.capacity()) {
            let pages = (first..=last).map(|index| PageId { object, index });
            return pages.filter_map(|page| self.find(page)).collect();
        }
        let filled = self.recency.iter_from_back(&self.links).map(FrameId);
        filled
            .filter(|frame| {
                let page = self.frames[frame.at()].page;
                page.object == object && (first..=last).contains(&page.index)
            })
            .collect()
    }

    /// Panics unless the numbered invariants hold. O(frames).
    pub fn assert_invariants(&self) {
        assert_eq!(
            self.map.len(),
            self.recency.len() as usize,
            "invariants 1 and 2"
        );
        assert_eq!(
            self.free.len() + self.map.len(),
            self.frames.len(),
            "invariant 1"
        );
        for id in self.recency.iter_from_back(&self.links) {
            assert!(self.page(FrameId(id)).is_some(), "invariant 2");
        }
    }
}
