//! The DRAM pool: which pages are in frames, which frames are dirty, and which frame goes next.
//!
//! Who goes next is the business of a [`PoolPolicy`]: [`lru`], [`clock`] or [`gd2l`]. The pool
//! keeps the page of each frame, and under write-back what page cleaners need (thesis §6.2.1):
//! *replacement writes* take the dirty page that would leave next ([`Pool::next_replacement`]),
//! *recovery writes* the one that has been dirty longest ([`Pool::oldest_dirty`]).
//!
//! # States of a frame
//! ```text
//!   free --fill--> clean --set_dirty--> dirty --set_clean--> clean --remove--> free
//!                                         `--remove (its page was deleted)---> free
//! ```
//! A filled frame holds the newest bytes of its page. It may be *busy* besides: its bytes are on
//! their way to a device. Busy frames neither leave nor are chosen for cleaning again.
//!
//! # Invariants
//! 1. A page is in at most one frame; the map holds exactly the filled frames.
//! 2. The policy orders exactly the filled frames.
//! 3. Dirty and busy frames are filled.
//! 4. Exactly the dirty frames are listed, in the order in which they became dirty.
//! 5. A victim is neither dirty nor busy.
//! 6. `objects` lists exactly the filled frames, by the object of their page.
//!
//! Memory beside the page itself: 116 bytes a frame, 5 to 10 for the map, and the policy's.

pub mod clock;
mod dirty;
pub mod gd2l;
pub mod lru;
mod midpoint;

pub use clock::Clock;
pub use gd2l::Gd2l;
pub use lru::Lru;

use crate::by_object::ByObject;
use crate::cost::Costs;
use crate::hash;
use crate::hint::HintSet;
use crate::page::{FrameId, ObjectId, PageId};
use dirty::Dirty;
use hashbrown::HashTable;

/// Names of the pool policies, as [`build`] knows them.
pub const NAMES: &[&str] = &["lru", "clock", "gd2l"];

/// The pool policy called `name` for `frames` frames; none when there is no such policy.
#[must_use]
pub fn build(name: &str, frames: u32, costs: &Costs) -> Option<Box<dyn PoolPolicy>> {
    Some(match name {
        "lru" => Box::new(Lru::new(frames)),
        "clock" => Box::new(Clock::new(frames)),
        "gd2l" => Box::new(Gd2l::new(frames, costs)),
        _ => return None,
    })
}

/// How a buffered page came to flash or left it (GDL4; thesis §6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashMove {
    /// Written there because its frame was to be replaced soon.
    EnteredByReplacement,
    /// Written there because it had been dirty for long.
    EnteredByRecovery,
    /// Admitted for another reason, on a read for one.
    Entered,
    /// It is no longer there.
    Left,
}

/// Orders the frames of a pool: the first in *eviction order* leaves first.
///
/// The pool calls it with frames in the states the methods name and in no other.
pub trait PoolPolicy: Send {
    /// Name used in configuration and tables.
    fn name(&self) -> &'static str;

    /// The free `frame` was filled: with a page that is on flash or not, read on demand or
    /// `prefetched` (part of a sequential read; GDL2).
    fn on_fill(&mut self, frame: FrameId, on_flash: bool, prefetched: bool);

    /// The page in the filled `frame` was asked for.
    fn on_touch(&mut self, frame: FrameId);

    /// The filled `frame` became free.
    fn on_remove(&mut self, frame: FrameId);

    /// The page in the filled `frame` came to flash or left it.
    fn on_flash(&mut self, _frame: FrameId, _how: FlashMove) {}

    /// Whether the page in the filled `frame` is on flash as far as the policy was told; `None` for
    /// policies to which it is all the same.
    fn is_on_flash(&self, _frame: FrameId) -> Option<bool> {
        None
    }

    /// The first frame in eviction order that `may` leave. The caller evicts it: policies move
    /// their hand or raise their inflation here. `may` must not change meanwhile.
    fn victim(&mut self, may: &dyn Fn(FrameId) -> bool) -> Option<FrameId>;

    /// Visits at most `depth` frames, those that would leave next if all may, in eviction order,
    /// until `visit` says false. With `depth` as large as the pool all filled frames are visited.
    fn tail(&self, depth: u32, visit: &mut dyn FnMut(FrameId) -> bool);

    /// Bytes of memory held.
    fn bytes(&self) -> usize;

    /// Panics unless the policy's own invariants hold. O(frames).
    fn assert_invariants(&self);
}

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    page: PageId,
    hints: HintSet,
    filled: bool,
    /// As [`Dirty`] has it: here for those who look at every frame that may leave.
    dirty: bool,
    busy: bool,
}

/// A page that leaves the pool, with the hints of the request that last brought or wrote it.
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
pub struct Pool {
    frames: Vec<Frame>,
    map: HashTable<u32>,
    objects: ByObject,
    free: Vec<u32>,
    policy: Box<dyn PoolPolicy>,
    dirty: Dirty,
}

impl Pool {
    /// A pool of `capacity` free frames under LRU; 0 is a pool that holds nothing.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::with_policy(Box::new(Lru::new(capacity)), capacity)
    }

    /// A pool of `capacity` free frames under `policy`, which was made for as many.
    #[must_use]
    pub fn with_policy(policy: Box<dyn PoolPolicy>, capacity: u32) -> Self {
        Self {
            frames: vec![Frame::default(); capacity as usize],
            map: HashTable::new(),
            objects: ByObject::new(capacity),
            free: (0..capacity).rev().collect(),
            policy,
            dirty: Dirty::new(capacity),
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
        self.map.len() as u32
    }

    /// Frames that are dirty.
    #[must_use]
    pub fn dirty(&self) -> u32 {
        self.dirty.len()
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &dyn PoolPolicy {
        self.policy.as_ref()
    }

    /// Bytes of memory held by decisions, not by pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let frames = self.frames.capacity() * size_of::<Frame>();
        let free = self.free.capacity() * size_of::<u32>();
        let lists = self.objects.bytes();
        frames
            + free
            + lists
            + self.map.allocation_size()
            + self.dirty.bytes()
            + self.policy.bytes()
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
        let frame = &self.frames[frame.at()];
        frame.filled.then_some(frame.page)
    }

    /// Hints of the request that brought the page in the filled `frame` or wrote it last.
    #[must_use]
    pub fn hints(&self, frame: FrameId) -> &HintSet {
        assert!(self.frames[frame.at()].filled, "a free frame has no hints");
        &self.frames[frame.at()].hints
    }

    /// The page in `frame` was used, if there is one.
    pub fn touch(&mut self, frame: FrameId) {
        if self.frames[frame.at()].filled {
            self.policy.on_touch(frame);
        }
    }

    /// The frame that leaves when room is needed, which the caller then removes: the first in
    /// eviction order that is neither dirty nor busy. None while there are free ones, and when
    /// no frame may leave. Passes over the dirty frames before it.
    pub fn victim(&mut self) -> Option<Evicted> {
        if !self.free.is_empty() || self.dirty() == self.filled() {
            return None;
        }
        let frames = &self.frames;
        let may = |frame: FrameId| !frames[frame.at()].busy && !frames[frame.at()].dirty;
        let frame = self.policy.victim(&may)?;
        assert!(may(frame), "invariant 5");
        let Frame { page, hints, .. } = self.frames[frame.at()];
        Some(Evicted { frame, page, hints })
    }

    /// Puts `page`, which has no frame, into a free one, if there is one; clean. `on_flash` says
    /// that the page has a slot, `prefetched` that a sequential read brings it.
    pub fn fill(
        &mut self,
        page: PageId,
        hints: HintSet,
        on_flash: bool,
        prefetched: bool,
    ) -> Option<FrameId> {
        assert!(self.find(page).is_none(), "a page has at most one frame");
        let frame = FrameId(self.free.pop()?);
        assert!(!self.frames[frame.at()].filled, "invariant 1");
        self.frames[frame.at()] = Frame {
            page,
            hints,
            filled: true,
            ..Frame::default()
        };
        let frames = &self.frames;
        let rehash = |&f: &u32| hash::of_page(frames[f as usize].page);
        self.map.insert_unique(hash::of_page(page), frame.0, rehash);
        self.objects.insert(page.object, frame.0);
        self.policy.on_fill(frame, on_flash, prefetched);
        Some(frame)
    }

    /// Takes the page out of the filled `frame`, whether dirty or busy or not: who removes a dirty
    /// one gives up its bytes.
    pub fn remove(&mut self, frame: FrameId) -> PageId {
        let page = self.frames[frame.at()].page;
        let entry = self.map.find_entry(hash::of_page(page), |&f| f == frame.0);
        assert!(entry.is_ok(), "invariant 1: a filled frame is in the map");
        if let Ok(entry) = entry {
            entry.remove();
        }
        self.objects.remove(page.object, frame.0);
        self.policy.on_remove(frame);
        self.set_clean(frame);
        self.frames[frame.at()].filled = false;
        self.frames[frame.at()].busy = false;
        self.free.push(frame.0);
        page
    }

    /// The page in `frame` came to flash or left it. Nothing happens when the frame is free.
    pub fn set_on_flash(&mut self, frame: FrameId, how: FlashMove) {
        if self.frames[frame.at()].filled {
            self.policy.on_flash(frame, how);
        }
    }

    /// [`PoolPolicy::is_on_flash`] of a filled frame; `None` for a free one.
    #[must_use]
    pub fn is_on_flash(&self, frame: FrameId) -> Option<bool> {
        let filled = self.frames[frame.at()].filled;
        filled.then(|| self.policy.is_on_flash(frame))?
    }

    /// The filled `frame` got new bytes at `now` (any unit, not falling) by a write with `hints`.
    /// A frame that is dirty already keeps its time and its place among the dirty ones.
    pub fn set_dirty(&mut self, frame: FrameId, hints: &HintSet, now: u64) {
        assert!(self.frames[frame.at()].filled, "invariant 3");
        self.frames[frame.at()].hints = *hints;
        if !std::mem::replace(&mut self.frames[frame.at()].dirty, true) {
            self.dirty.insert(frame, now);
        }
    }

    /// The bytes in `frame` are on flash or base now.
    pub fn set_clean(&mut self, frame: FrameId) {
        if std::mem::take(&mut self.frames[frame.at()].dirty) {
            self.dirty.remove(frame);
        }
    }

    /// Whether `frame` has bytes that are nowhere else.
    #[must_use]
    pub fn is_dirty(&self, frame: FrameId) -> bool {
        self.frames[frame.at()].dirty
    }

    /// The bytes in the filled `frame` are on their way to a device, or no longer.
    pub fn set_busy(&mut self, frame: FrameId, busy: bool) {
        assert!(self.frames[frame.at()].filled, "invariant 3");
        self.frames[frame.at()].busy = busy;
    }

    /// Whether `frame` is busy.
    #[must_use]
    pub fn is_busy(&self, frame: FrameId) -> bool {
        self.frames[frame.at()].busy
    }

    /// Dirty frames of `object` in page order, busy ones included. O(dirty frames) or O(its
    /// frames), whichever is less.
    #[must_use]
    pub fn dirty_of(&self, object: ObjectId) -> Vec<FrameId> {
        let page = |frame: &FrameId| self.frames[frame.at()].page;
        let mut found: Vec<FrameId> = if self.dirty() <= self.objects.count(object) {
            let dirty = self.dirty.iter();
            dirty.filter(|f| page(f).object == object).collect()
        } else {
            let frames = self.objects.of(object).map(FrameId);
            frames.filter(|frame| self.is_dirty(*frame)).collect()
        };
        found.sort_unstable_by_key(|frame| page(frame).index);
        found
    }

    /// The frame that has been dirty longest of those that are not busy and `may` be cleaned, and
    /// since when (GDL3: recovery writes go by age). Looks at `depth` frames that are not busy.
    #[must_use]
    pub fn oldest_dirty(
        &self,
        depth: u32,
        may: impl Fn(FrameId) -> bool,
    ) -> Option<(FrameId, u64)> {
        let idle = self.dirty.iter().filter(|frame| !self.is_busy(*frame));
        let oldest = idle.take(depth as usize).find(|frame| may(*frame))?;
        self.dirty.since(oldest).map(|since| (oldest, since))
    }

    /// Among the `depth` frames that would leave next the first that is dirty, not busy, and `may`
    /// be cleaned (GDL3: replacement writes go by H, whichever queue the frame is in). O(depth).
    #[must_use]
    pub fn next_replacement(&self, depth: u32, may: impl Fn(FrameId) -> bool) -> Option<FrameId> {
        if self.dirty() == 0 {
            return None;
        }
        let mut found = None;
        self.policy.tail(depth, &mut |frame| {
            if self.is_dirty(frame) && !self.is_busy(frame) && may(frame) {
                found = Some(frame);
            }
            found.is_none()
        });
        found
    }

    /// Filled frames with pages `first..=last` of `object`, in page order. O(pages asked for) or
    /// O(its frames), whichever is less.
    #[must_use]
    pub fn in_range(&self, object: ObjectId, first: u64, last: u64) -> Vec<FrameId> {
        assert!(first <= last, "a range has a first page");
        if last - first < u64::from(self.objects.count(object)) {
            let pages = (first..=last).map(|index| PageId { object, index });
            return pages.filter_map(|page| self.find(page)).collect();
        }
        let index = |frame: &FrameId| self.frames[frame.at()].page.index;
        let frames = self.objects.of(object).map(FrameId);
        let mut found: Vec<FrameId> = frames
            .filter(|frame| (first..=last).contains(&index(frame)))
            .collect();
        found.sort_unstable_by_key(index);
        found
    }

    /// Panics unless the numbered invariants hold. O(frames).
    pub fn assert_invariants(&self) {
        let filled = self.frames.iter().filter(|frame| frame.filled).count();
        assert_eq!(filled, self.map.len(), "invariant 1");
        assert_eq!(self.free.len() + filled, self.frames.len(), "invariant 1");
        for (id, frame) in (0u32..).zip(&self.frames) {
            let found = self.find(frame.page) == Some(FrameId(id));
            assert_eq!(frame.filled, found, "invariant 1");
            assert!(frame.filled || !(frame.busy || frame.dirty), "invariant 3");
            let listed = self.dirty.since(FrameId(id)).is_some();
            assert_eq!(frame.dirty, listed, "invariant 4");
        }
        let mut seen = vec![false; self.frames.len()];
        self.policy.tail(u32::MAX, &mut |frame| {
            assert!(self.frames[frame.at()].filled, "invariant 2");
            assert!(
                !std::mem::replace(&mut seen[frame.at()], true),
                "invariant 2"
            );
            true
        });
        let ordered = seen.iter().filter(|seen| **seen).count();
        assert_eq!(ordered, filled, "invariant 2");
        assert_eq!(self.objects.len() as usize, filled, "invariant 6");
        self.objects.assert_invariants(|object, id| {
            let page = self.page(FrameId(id));
            page.is_some_and(|page| page.object == object)
        });
        self.dirty.assert_invariants();
        self.policy.assert_invariants();
    }
}
