//! Slots in queues, each slot in one: the brick of policies that sort pages into classes.
//!
//! The front of a queue is its young end. Everything is O(1), but for victims: O(pinned).
//! *Memory*: 9 bytes a slot.
//!
//! # Invariants (checked by [`Queues::assert_invariants`])
//! 1. The queues hold exactly the residents, each in the queue noted for it.

use super::evictable_from_back;
use crate::list::{Links, List};
use crate::page::SlotId;
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub(super) struct Queues {
    links: Links,
    lists: Vec<List>,
    /// The queue each slot is in.
    queue_of: Vec<u8>,
}

impl Queues {
    /// `count` empty queues, 255 at most.
    pub(super) fn new(capacity: u32, count: u8) -> Self {
        Self {
            links: Links::new(capacity),
            lists: vec![List::default(); usize::from(count)],
            queue_of: vec![0; capacity as usize],
        }
    }

    /// Slots in `queue`.
    pub(super) fn len(&self, queue: u8) -> u32 {
        self.lists[usize::from(queue)].len()
    }

    /// The queue that `slot` is in.
    pub(super) fn of(&self, slot: SlotId) -> u8 {
        self.queue_of[slot.at()]
    }

    /// Puts `slot`, which is in no queue, at the front of `queue`.
    pub(super) fn enter(&mut self, slot: SlotId, queue: u8) {
        self.queue_of[slot.at()] = queue;
        self.lists[usize::from(queue)].push_front(&mut self.links, slot.0);
    }

    /// Takes `slot` out of its queue.
    pub(super) fn leave(&mut self, slot: SlotId) {
        let queue = self.of(slot);
        self.lists[usize::from(queue)].remove(&mut self.links, slot.0);
    }

    /// Takes `slot` from its queue to the front of `queue`, which may be the same.
    pub(super) fn renew(&mut self, slot: SlotId, queue: u8) {
        self.leave(slot);
        self.enter(slot, queue);
    }

    /// The slot at the back of `queue`.
    pub(super) fn oldest(&self, queue: u8) -> Option<SlotId> {
        self.lists[usize::from(queue)].back().map(SlotId)
    }

    /// The evictable slot nearest the back of the first of `queues` that has one.
    pub(super) fn victim(
        &self,
        queues: impl IntoIterator<Item = u8>,
        slots: &SlotTable,
    ) -> Option<SlotId> {
        let lists = queues
            .into_iter()
            .map(|queue| &self.lists[usize::from(queue)]);
        let mut victims = lists.filter_map(|list| evictable_from_back(list, &self.links, slots));
        victims.next()
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.links.bytes() + self.queue_of.capacity() + self.lists.capacity() * size_of::<List>()
    }

    /// Panics unless invariant 1 holds. O(residents).
    pub(super) fn assert_invariants(&self, slots: &SlotTable) {
        let queued: u32 = self.lists.iter().map(List::len).sum();
        assert_eq!(queued, slots.resident(), "invariant 1");
        for (queue, list) in self.lists.iter().enumerate() {
            for id in list.iter_from_back(&self.links) {
                assert_eq!(
                    usize::from(self.queue_of[id as usize]),
                    queue,
                    "invariant 1"
                );
                assert!(slots.page(SlotId(id)).is_some(), "invariant 1");
            }
        }
    }
}
