//! Doubly linked lists over dense ids: no pointers, no allocation per operation.
//!
//! One [`Links`] table (8 bytes an id) serves any number of [`List`]s as long as an id is in at
//! most one of them at a time.

const NONE: u32 = u32::MAX;

/// Previous and next neighbours of every id.
#[derive(Debug, Clone)]
pub struct Links {
    links: Vec<(u32, u32)>,
}

/// Head, tail and length of one list. The head is the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Links {
    /// A table for ids `0..capacity`, none of them in a list.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        assert!(capacity < NONE, "the last id is reserved");
        Self {
            links: vec![(NONE, NONE); capacity as usize],
        }
    }

    /// Makes room for ids up to `capacity`, which is no less than before; they are in no list.
    pub fn grow(&mut self, capacity: u32) {
        assert!(capacity < NONE, "the last id is reserved");
        assert!(capacity as usize >= self.links.len(), "ids in use stay");
        self.links.resize(capacity as usize, (NONE, NONE));
    }

    /// The neighbour of `id` on the side of the front, in the list that `id` is in.
    #[must_use]
    pub fn towards_front(&self, id: u32) -> Option<u32> {
        let previous = self.links[id as usize].0;
        (previous != NONE).then_some(previous)
    }

    /// The neighbour of `id` on the side of the back, in the list that `id` is in.
    #[must_use]
    pub fn towards_back(&self, id: u32) -> Option<u32> {
        let next = self.links[id as usize].1;
        (next != NONE).then_some(next)
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<(u32, u32)>()
    }
}

impl List {
    /// A list without ids.
    pub const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    /// Number of ids in the list.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the list has no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The id at the front.
    #[must_use]
    pub fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The id at the back.
    #[must_use]
    pub fn back(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Puts `id`, which is in no list, at the front.
    pub fn push_front(&mut self, links: &mut Links, id: u32) {
        assert!(self.head != id, "id is already at the front");
        links.links[id as usize] = (NONE, self.head);
        match self.head {
            NONE => self.tail = id,
            head => links.links[head as usize].0 = id,
        }
        self.head = id;
        self.len += 1;
    }

    /// Puts `id`, which is in no list, at the back.
    pub fn push_back(&mut self, links: &mut Links, id: u32) {
        assert!(self.tail != id, "id is already at the back");
        links.links[id as usize] = (self.tail, NONE);
        match self.tail {
            NONE => self.head = id,
            tail => links.links[tail as usize].1 = id,
        }
        self.tail = id;
        self.len += 1;
    }

    /// Puts `new`, which is in no list, next to `at`, which is in this list, on the front's side.
    pub fn insert_before(&mut self, links: &mut Links, at: u32, new: u32) {
        assert!(self.len > 0, "there is nothing to insert beside");
        assert_ne!(at, new, "an id stands before another");
        let previous = links.links[at as usize].0;
        links.links[new as usize] = (previous, at);
        links.links[at as usize].0 = new;
        match previous {
            NONE => self.head = new,
            p => links.links[p as usize].1 = new,
        }
        self.len += 1;
    }

    /// Takes `id`, which is in this list, out of it.
    pub fn remove(&mut self, links: &mut Links, id: u32) {
        assert!(self.len > 0, "removing from an empty list");
        let (previous, next) = links.links[id as usize];
        match previous {
            NONE => {
                assert_eq!(self.head, id, "id is not in this list");
                self.head = next;
            }
            p => links.links[p as usize].1 = next,
        }
        match next {
            NONE => {
                assert_eq!(self.tail, id, "id is not in this list");
                self.tail = previous;
            }
            n => links.links[n as usize].0 = previous,
        }
        links.links[id as usize] = (NONE, NONE);
        self.len -= 1;
    }

    /// Moves `id`, which is in this list, to the front.
    pub fn move_to_front(&mut self, links: &mut Links, id: u32) {
        if self.head != id {
            self.remove(links, id);
            self.push_front(links, id);
        }
    }

    /// Puts `new`, which is in no list, where `old` is, and takes `old` out of this list.
    pub fn replace(&mut self, links: &mut Links, old: u32, new: u32) {
        assert!(self.len > 0, "replacing in an empty list");
        assert_ne!(old, new, "an id replaces another");
        let (previous, next) = links.links[old as usize];
        links.links[new as usize] = (previous, next);
        match previous {
            NONE => self.head = new,
            p => links.links[p as usize].1 = new,
        }
        match next {
            NONE => self.tail = new,
            n => links.links[n as usize].0 = new,
        }
        links.links[old as usize] = (NONE, NONE);
    }

    /// Ids from front to back.
    pub fn iter_from_front<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + use<'a> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let id = at;
            (id != NONE).then(|| {
                at = links.links[id as usize].1;
                id
            })
        })
    }

    /// Ids from back to front.
    pub fn iter_from_back<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + use<'a> {
        let mut at = self.tail;
        std::iter::from_fn(move || {
            let id = at;
            (id != NONE).then(|| {
                at = links.links[id as usize].0;
                id
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn equals_a_deque(ops in proptest::collection::vec((0u8..6, 0u32..16), 1..400)) {
            let mut links = Links::new(16);
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for (op, id) in ops {
                let present = model.contains(&id);
                match (op, present) {
                    (0, false) => { list.push_front(&mut links, id); model.push_front(id); }
                    (1, false) => { list.push_back(&mut links, id); model.push_back(id); }
                    (2, true) => { list.remove(&mut links, id); model.retain(|x| *x != id); }
                    (3, true) => {
                        list.move_to_front(&mut links, id);
                        model.retain(|x| *x != id);
                        model.push_front(id);
                    }
                    (4, true) => {
                        let free = (0..16).find(|x| !model.contains(x));
                        if let (Some(free), Some(at)) = (free, model.iter().position(|x| *x == id))
                        {
                            list.replace(&mut links, id, free);
                            model[at] = free;
                        }
                    }
                    (5, true) => {
                        let free = (0..16).find(|x| !model.contains(x));
                        if let (Some(free), Some(at)) = (free, model.iter().position(|x| *x == id))
                        {
                            list.insert_before(&mut links, id, free);
                            model.insert(at, free);
                        }
                    }
                    _ => {}
                }
                let seen: Vec<u32> = list.iter_from_back(&links).collect();
                let expected: Vec<u32> = model.iter().rev().copied().collect();
                prop_assert_eq!(seen, expected);
                let forwards: Vec<u32> = list.iter_from_front(&links).collect();
                prop_assert!(forwards.iter().eq(&model));
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.front(), model.front().copied());
                prop_assert_eq!(list.back(), model.back().copied());
                for (at, id) in model.iter().enumerate() {
                    let nearer = at.checked_sub(1).map(|at| model[at]);
                    prop_assert_eq!(links.towards_front(*id), nearer);
                    prop_assert_eq!(links.towards_back(*id), model.get(at + 1).copied());
                }
            }
        }
    }
}
