//! LRU with InnoDB's midpoint (thesis §6.2.1).
//!
//! *Algorithm*: one list. A page read on demand enters at the head; a prefetched one at the
//! midpoint, with 3/8 of the pages between it and the tail, and moves to the head when it is asked
//! for again: so a scan passes through the old part and leaves the rest alone. The page nearest the
//! tail that may leave is the victim. *Cost*: O(1) a request; finding a victim passes over the
//! frames at the tail that may not leave. *Memory*: 9 bytes a frame. *Departures*: InnoDB has no
//! midpoint in short lists, lets it drift by a few pages, and does not move pages that are near the
//! head already; here it is exact from the third page on and every touch moves.

use super::PoolPolicy;
use super::midpoint::{Places, Queue};
use crate::page::FrameId;

/// See the module text.
#[derive(Debug)]
pub struct Lru {
    places: Places,
    recency: Queue,
}

impl Lru {
    /// An empty policy for `frames` frames.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self {
            places: Places::new(frames),
            recency: Queue::default(),
        }
    }
}

impl PoolPolicy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn on_fill(&mut self, frame: FrameId, _on_flash: bool, prefetched: bool) {
        match prefetched {
            true => self.recency.push_middle(&mut self.places, frame.0),
            false => self.recency.push_head(&mut self.places, frame.0),
        }
    }

    fn on_touch(&mut self, frame: FrameId) {
        self.recency.move_to_head(&mut self.places, frame.0);
    }

    fn on_remove(&mut self, frame: FrameId) {
        self.recency.remove(&mut self.places, frame.0);
    }

    fn victim(&mut self, may: &dyn Fn(FrameId) -> bool) -> Option<FrameId> {
        let mut order = self.recency.iter_from_tail(&self.places).map(FrameId);
        order.find(|frame| may(*frame))
    }

    fn tail(&self, depth: u32, visit: &mut dyn FnMut(FrameId) -> bool) {
        let order = self.recency.iter_from_tail(&self.places).map(FrameId);
        let _ = order.take(depth as usize).all(visit);
    }

    fn bytes(&self) -> usize {
        self.places.bytes()
    }

    fn assert_invariants(&self) {
        self.recency.assert_invariants(&self.places);
    }
}
