//! A recency queue with a midpoint (thesis §6.2.1): the "LRU list" of InnoDB.
//!
//! The ids of a queue stand from head (used last) to tail (leaves next). The ⌊3n/8⌋ of its n ids
//! nearest the tail are its *old* part, the rest its young part. An id put in at the *midpoint*
//! has the whole old part between it and the tail. The boundary is a pointer that moves by at
//! most one id per change of the queue, so that everything here is O(1).
//!
//! # Invariants
//! 1. The old part holds ⌊3n/8⌋ ids, and they are those nearest the tail.
//! 2. `middle` is the old id nearest the head; none when the old part is empty.
//! 3. Exactly the ids of old parts are marked old.

use crate::list::{Links, List};

/// Neighbours and marks of all ids, for any number of queues; an id is in at most one.
#[derive(Clone, Debug)]
pub(super) struct Places {
    links: Links,
    old: Vec<bool>,
}

/// See the module text.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    order: List,
    middle: Option<u32>,
    old: u32,
}

impl Places {
    /// Places of ids `0..capacity`, none of them in a queue.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            links: Links::new(capacity),
            old: vec![false; capacity as usize],
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.links.bytes() + self.old.capacity()
    }
}

impl Queue {
    /// Ids in the queue.
    pub(super) fn len(&self) -> u32 {
        self.order.len()
    }

    /// The id at the tail.
    pub(super) fn tail(&self) -> Option<u32> {
        self.order.back()
    }

    /// The id at the midpoint: the old one nearest the head, or in a queue too short to have an
    /// old part the one at the tail.
    pub(super) fn middle(&self) -> Option<u32> {
        self.middle.or(self.order.back())
    }

    /// Ids from tail to head.
    pub(super) fn iter_from_tail(&self, places: &Places) -> impl Iterator<Item = u32> {
        self.order.iter_from_back(&places.links)
    }

    /// Puts `id`, which is in no queue, at the head.
    pub(super) fn push_head(&mut self, places: &mut Places, id: u32) {
        self.order.push_front(&mut places.links, id);
        self.rebalance(places);
    }

    /// Puts `id`, which is in no queue, at the midpoint.
    pub(super) fn push_middle(&mut self, places: &mut Places, id: u32) {
        let Some(middle) = self.middle else {
            return self.push_tail(places, id);
        };
        self.order.insert_before(&mut places.links, middle, id);
        self.extend_old(places, id);
        self.rebalance(places);
    }

    /// Puts `id`, which is in no queue, at the tail.
    pub(super) fn push_tail(&mut self, places: &mut Places, id: u32) {
        self.order.push_back(&mut places.links, id);
        places.old[id as usize] = true;
        self.old += 1;
        self.middle.get_or_insert(id);
        self.rebalance(places);
    }

    /// Takes `id`, which is in this queue, out of it.
    pub(super) fn remove(&mut self, places: &mut Places, id: u32) {
        self.take(places, id);
        self.rebalance(places);
    }

    /// Moves `id`, which is in this queue, to the head.
    pub(super) fn move_to_head(&mut self, places: &mut Places, id: u32) {
        if self.order.front() != Some(id) {
            self.take(places, id);
            self.push_head(places, id);
        }
    }

    fn take(&mut self, places: &mut Places, id: u32) {
        if std::mem::take(&mut places.old[id as usize]) {
            debug_assert!(self.old > 0, "a marked id is counted");
            self.old -= 1;
            if self.middle == Some(id) {
                self.middle = places.links.towards_back(id);
            }
        }
        self.order.remove(&mut places.links, id);
    }

    /// `id`, next to the old part, is old now.
    fn extend_old(&mut self, places: &mut Places, id: u32) {
        debug_assert!(!places.old[id as usize], "an id grows old once");
        places.old[id as usize] = true;
        self.middle = Some(id);
        self.old += 1;
    }

    /// Restores invariant 1.
    fn rebalance(&mut self, places: &mut Places) {
        let wanted = (u64::from(self.order.len()) * 3 / 8) as u32;
        while self.old < wanted {
            let next = match self.middle {
                Some(middle) => places.links.towards_front(middle),
                None => self.order.back(),
            };
            debug_assert!(next.is_some(), "the old part is shorter than the queue");
            let Some(next) = next else { return };
            self.extend_old(places, next);
        }
        while self.old > wanted {
            debug_assert!(self.middle.is_some(), "invariant 2");
            let Some(middle) = self.middle else { return };
            places.old[middle as usize] = false;
            self.middle = places.links.towards_back(middle);
            self.old -= 1;
        }
    }

    /// Panics unless the numbered invariants hold. O(ids).
    pub(super) fn assert_invariants(&self, places: &Places) {
        let ids: Vec<u32> = self.iter_from_tail(places).collect();
        assert_eq!(ids.len(), self.len() as usize, "every id is counted");
        let old = ids.len() * 3 / 8;
        assert_eq!(self.old as usize, old, "invariant 1");
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(places.old[*id as usize], at < old, "invariants 1 and 3");
        }
        let last = old.checked_sub(1).map(|at| ids[at]);
        assert_eq!(self.middle, last, "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Index 0 of the model is the tail.
        #[test]
        fn equals_a_vector(ops in prop::collection::vec((0u8..5, 0u32..24), 1..300)) {
            let mut places = Places::new(24);
            let (mut queue, mut model) = (Queue::default(), Vec::<u32>::new());
            for (op, id) in ops {
                let at = model.iter().position(|x| *x == id);
                match (op, at) {
                    (0, None) => { queue.push_head(&mut places, id); model.push(id); }
                    (1, None) => { queue.push_tail(&mut places, id); model.insert(0, id); }
                    (2, None) => {
                        queue.push_middle(&mut places, id);
                        model.insert(model.len() * 3 / 8, id);
                    }
                    (3, Some(at)) => { queue.remove(&mut places, id); model.remove(at); }
                    (4, Some(at)) => {
                        queue.move_to_head(&mut places, id);
                        model.remove(at);
                        model.push(id);
                    }
                    _ => {}
                }
                queue.assert_invariants(&places);
                prop_assert!(queue.iter_from_tail(&places).eq(model.iter().copied()));
                prop_assert_eq!(queue.tail(), model.first().copied());
                let middle = (model.len() * 3 / 8).saturating_sub(1);
                prop_assert_eq!(queue.middle(), model.get(middle).copied());
            }
        }
    }
}
