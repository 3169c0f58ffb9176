//! GD2L: GreedyDual for two costs of bringing a page back (thesis §6.2).
//!
//! *Algorithm*: every page has a value H. The page with the lowest H leaves and raises the
//! inflation L to its H; a page that is used gets H = L + what reading it again would cost: R_S
//! when it is on flash, R_D when it is not. There are only two costs, so two queues in order of
//! recency are in order of H as well: Q_S for pages on flash, Q_D for the others; the lower H of
//! the two tails is the lowest of all. Prefetched pages enter at the midpoint of their queue with
//! the H of the page that is there. A page that comes to flash or leaves it while buffered
//! changes queue (§6.2.1): written by a replacement write it goes to the tail of Q_S with the H of
//! the page that was there; by a recoverability write, to the middle of Q_S; leaving flash, to the
//! middle of Q_D; in the middle it takes the H of the page that was there.
//!
//! *Cost*: O(1) a request and an eviction; finding a victim passes over the frames at the tails
//! that may not leave. *Memory*: 18 bytes a frame.
//!
//! *Choices where the thesis is silent*:
//! - Equal H at both tails: Q_S gives the victim (figure 6.4, line 4: Q_D only when lower).
//! - A page that may not leave (dirty, being written) is passed over, so the victim's H may be
//!   above the lowest, and a later victim's below L. L never falls: it becomes the greater of the
//!   two, or the queues would lose their order.
//! - An empty queue has no page to take an H from: at the tail the newcomer gets L (it is the next
//!   to leave), in the middle L + R as if it had been read.
//! - A page admitted to flash for another reason goes to the middle of Q_S, as after a
//!   recoverability write: nothing says that it would leave soon. A page already in the queue it
//!   should be in stays where it is: a new version of a page on flash is no move.
//! - A page that is removed for another reason (deleted, invalidated) leaves L alone.
//!
//! Departure: H is in whole nanoseconds, so that L grows for centuries without rounding.
//!
//! # Invariants
//! 1. A filled frame is in one queue: Q_S when the page is on flash as far as we were told.
//! 2. From tail to head, H never falls in either queue.
//! 3. No H is above L plus the cost of its queue.

use super::midpoint::{Places, Queue};
use super::{FlashMove, PoolPolicy};
use crate::cost::Costs;
use crate::page::FrameId;

/// Index of Q_S: pages on flash.
const ON_FLASH: usize = 0;
/// Index of Q_D: pages on base alone.
const ON_BASE: usize = 1;

/// See the module text.
#[derive(Debug)]
pub struct Gd2l {
    places: Places,
    queues: [Queue; 2],
    queue_of: Vec<u8>,
    h: Vec<u64>,
    inflation: u64,
    costs: [u64; 2],
}

impl Gd2l {
    /// An empty policy for `frames` frames; R_S and R_D are `flash_read` and `base_random_read`.
    #[must_use]
    pub fn new(frames: u32, costs: &Costs) -> Self {
        Self {
            places: Places::new(frames),
            queues: [Queue::default(), Queue::default()],
            queue_of: vec![0; frames as usize],
            h: vec![0; frames as usize],
            inflation: 0,
            costs: [costs.flash_read, costs.base_random_read].map(whole_nanoseconds),
        }
    }

    /// H of a page of `queue` that is used now.
    fn fresh(&self, queue: usize) -> u64 {
        self.inflation.saturating_add(self.costs[queue])
    }

    fn push_head(&mut self, frame: u32, queue: usize) {
        self.h[frame as usize] = self.fresh(queue);
        self.queue_of[frame as usize] = queue as u8;
        self.queues[queue].push_head(&mut self.places, frame);
    }

    fn push_middle(&mut self, frame: u32, queue: usize) {
        let there = self.queues[queue].middle();
        self.h[frame as usize] = there.map_or(self.fresh(queue), |id| self.h[id as usize]);
        self.queue_of[frame as usize] = queue as u8;
        self.queues[queue].push_middle(&mut self.places, frame);
    }

    fn push_tail(&mut self, frame: u32, queue: usize) {
        let there = self.queues[queue].tail();
        self.h[frame as usize] = there.map_or(self.inflation, |id| self.h[id as usize]);
        self.queue_of[frame as usize] = queue as u8;
        self.queues[queue].push_tail(&mut self.places, frame);
    }

    /// All frames, the lowest H first.
    fn in_order(&self) -> impl Iterator<Item = FrameId> {
        let from_tail = |at: usize| self.queues[at].iter_from_tail(&self.places).peekable();
        let (mut on_flash, mut on_base) = (from_tail(ON_FLASH), from_tail(ON_BASE));
        std::iter::from_fn(move || {
            let next = match (on_flash.peek(), on_base.peek()) {
                (Some(&s), Some(&d)) if self.h[s as usize] > self.h[d as usize] => on_base.next(),
                (None, _) => on_base.next(),
                _ => on_flash.next(),
            };
            next.map(FrameId)
        })
    }
}

/// Costs are measured in nanoseconds already; a cost that is no number counts as nothing.
fn whole_nanoseconds(cost: f64) -> u64 {
    debug_assert!(cost >= 0.0, "a cost is not negative");
    cost.round() as u64
}

impl PoolPolicy for Gd2l {
    fn name(&self) -> &'static str {
        "gd2l"
    }

    fn on_fill(&mut self, frame: FrameId, on_flash: bool, prefetched: bool) {
        let queue = if on_flash { ON_FLASH } else { ON_BASE };
        match prefetched {
            true => self.push_middle(frame.0, queue),
            false => self.push_head(frame.0, queue),
        }
    }

    fn on_touch(&mut self, frame: FrameId) {
        let queue = usize::from(self.queue_of[frame.at()]);
        self.h[frame.at()] = self.fresh(queue);
        self.queues[queue].move_to_head(&mut self.places, frame.0);
    }

    fn on_remove(&mut self, frame: FrameId) {
        let queue = usize::from(self.queue_of[frame.at()]);
        self.queues[queue].remove(&mut self.places, frame.0);
    }

    fn on_flash(&mut self, frame: FrameId, how: FlashMove) {
        let to = if how == FlashMove::Left {
            ON_BASE
        } else {
            ON_FLASH
        };
        if usize::from(self.queue_of[frame.at()]) == to {
            return;
        }
        self.on_remove(frame);
        match how {
            FlashMove::EnteredByReplacement => self.push_tail(frame.0, to),
            _ => self.push_middle(frame.0, to),
        }
    }

    fn is_on_flash(&self, frame: FrameId) -> Option<bool> {
        Some(usize::from(self.queue_of[frame.at()]) == ON_FLASH)
    }

    fn victim(&mut self, may: &dyn Fn(FrameId) -> bool) -> Option<FrameId> {
        let victim = self.in_order().find(|frame| may(*frame))?;
        self.inflation = self.inflation.max(self.h[victim.at()]);
        Some(victim)
    }

    fn tail(&self, depth: u32, visit: &mut dyn FnMut(FrameId) -> bool) {
        let _ = self.in_order().take(depth as usize).all(visit);
    }

    fn bytes(&self) -> usize {
        self.places.bytes() + self.queue_of.capacity() + self.h.capacity() * size_of::<u64>()
    }

    fn assert_invariants(&self) {
        for (at, queue) in self.queues.iter().enumerate() {
            queue.assert_invariants(&self.places);
            let mut below = 0;
            for id in queue.iter_from_tail(&self.places) {
                assert_eq!(usize::from(self.queue_of[id as usize]), at, "invariant 1");
                assert!(self.h[id as usize] >= below, "invariant 2");
                below = self.h[id as usize];
            }
            assert!(below <= self.fresh(at), "invariant 3");
        }
    }
}
