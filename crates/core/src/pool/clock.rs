//! CLOCK over the frames of the pool.
//!
//! *Algorithm*: the frames stand on a circle in the order of their numbers, with one reference bit
//! each, clear at the fill and set by every touch. The hand passes over frames with the bit set,
//! clearing it, and over frames that may not leave, and takes the first other one. *Cost*: O(1)
//! amortised; a call that finds nobody who may leave goes round twice and leaves all bits clear.
//! *Memory*: 1 byte a frame. *Departures*: there is no paper to depart from (the thesis runs LRU
//! and GD2L only). There is no midpoint on a circle: a prefetched page enters as any other does,
//! and being touched by nobody it leaves when the hand first comes by.

use super::PoolPolicy;
use crate::page::FrameId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bit {
    /// The frame is free.
    Free,
    Clear,
    Set,
}

/// See the module text.
#[derive(Debug)]
pub struct Clock {
    bits: Vec<Bit>,
    hand: usize,
}

impl Clock {
    /// An empty policy for `frames` frames.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self {
            bits: vec![Bit::Free; frames as usize],
            hand: 0,
        }
    }

    /// Filled frames from the hand onwards, once round.
    fn ahead(&self) -> impl Iterator<Item = usize> {
        let round = (self.hand..self.bits.len()).chain(0..self.hand);
        round.filter(|at| self.bits[*at] != Bit::Free)
    }
}

impl PoolPolicy for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn on_fill(&mut self, frame: FrameId, _on_flash: bool, _prefetched: bool) {
        debug_assert_eq!(
            self.bits[frame.at()],
            Bit::Free,
            "only free frames are filled"
        );
        self.bits[frame.at()] = Bit::Clear;
    }

    fn on_touch(&mut self, frame: FrameId) {
        self.bits[frame.at()] = Bit::Set;
    }

    fn on_remove(&mut self, frame: FrameId) {
        debug_assert_ne!(self.bits[frame.at()], Bit::Free, "a free frame has no page");
        self.bits[frame.at()] = Bit::Free;
    }

    fn victim(&mut self, may: &dyn Fn(FrameId) -> bool) -> Option<FrameId> {
        // Two rounds always suffice: the first clears every bit.
        for _ in 0..2 * self.bits.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.bits.len();
            let frame = FrameId(at as u32);
            match self.bits[at] {
                Bit::Set => self.bits[at] = Bit::Clear,
                Bit::Clear if may(frame) => return Some(frame),
                Bit::Clear | Bit::Free => {}
            }
        }
        None
    }

    /// The `depth` frames the hand comes to next: first those without the bit, then the others.
    /// O(depth), plus the free frames among them.
    fn tail(&self, depth: u32, visit: &mut dyn FnMut(FrameId) -> bool) {
        for wanted in [Bit::Clear, Bit::Set] {
            for at in self.ahead().take(depth as usize) {
                if self.bits[at] == wanted && !visit(FrameId(at as u32)) {
                    return;
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        self.bits.capacity() * size_of::<Bit>()
    }

    fn assert_invariants(&self) {
        let frames = self.bits.len();
        assert!(self.hand < frames.max(1), "the hand points at a frame");
        assert_eq!(size_of::<Bit>(), 1, "a byte a frame");
    }
}
