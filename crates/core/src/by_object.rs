//! Which ids (frames) hold pages of which object: a list of ids for each object, so that
//! whoever means all pages of an object pays for those and for no others.
//!
//! # Invariants (checked by [`ByObject::assert_invariants`])
//! 1. An id is in at most one list; `len` ids are in lists.
//! 2. Objects without ids have no list.
//!
//! Memory: 8 bytes an id, and about 30 an object.

use crate::list::{Links, List};
use crate::page::ObjectId;
use std::collections::BTreeMap;

/// See the module text.
#[derive(Clone, Debug)]
pub struct ByObject {
    links: Links,
    lists: BTreeMap<ObjectId, List>,
    len: u32,
}

impl ByObject {
    /// For ids `0..capacity`, none of which holds a page.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            links: Links::new(capacity),
            lists: BTreeMap::new(),
            len: 0,
        }
    }

    /// `id`, which held none, holds a page of `object`.
    pub fn insert(&mut self, object: ObjectId, id: u32) {
        let list = self.lists.entry(object).or_default();
        list.push_back(&mut self.links, id);
        self.len += 1;
    }

    /// `id` no longer holds a page of `object`.
    pub fn remove(&mut self, object: ObjectId, id: u32) {
        let list = self.lists.get_mut(&object);
        assert!(list.is_some(), "invariant 1: {object:?} has a list");
        if let Some(list) = list {
            list.remove(&mut self.links, id);
            self.len -= 1;
            if list.is_empty() {
                self.lists.remove(&object);
            }
        }
    }

    /// Number of ids that hold pages.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no id holds a page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of ids that hold pages of `object`.
    #[must_use]
    pub fn count(&self, object: ObjectId) -> u32 {
        self.lists.get(&object).map_or(0, List::len)
    }

    /// Ids that hold pages of `object`, those that came first first.
    pub fn of(&self, object: ObjectId) -> impl Iterator<Item = u32> + '_ {
        let list = self.lists.get(&object).copied().unwrap_or_default();
        list.iter_from_front(&self.links)
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.links.bytes() + self.lists.len() * 30
    }

    /// Panics unless the numbered invariants hold, and `holds` says of every listed id that it
    /// holds a page of its object. O(ids).
    pub fn assert_invariants(&self, holds: impl Fn(ObjectId, u32) -> bool) {
        let mut listed = 0;
        for (object, list) in &self.lists {
            assert!(!list.is_empty(), "invariant 2: {object:?}");
            for id in list.iter_from_front(&self.links) {
                assert!(holds(*object, id), "invariant 1: {object:?} has no {id}");
                listed += 1;
                assert!(listed <= self.len, "invariant 1: a list has no end");
            }
        }
        assert_eq!(listed, self.len, "invariant 1");
    }
}
