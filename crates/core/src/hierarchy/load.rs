//! The tier works before its map was read: it starts without a slot, and the map is made a
//! hierarchy of its own beside it, which it takes over in one short step.
//!
//! # States
//! ```text
//!   begin_load        end_load
//!  -----------> loading ------> open, with the pages that nobody touched
//!                   |
//!                   +---------> off, empty: give_up_load
//! ```
//! While it loads there is no slot and no block: everything is read from base and written to it,
//! and the pool works as ever. The durable map names pages that nobody here knows. So whatever
//! would drop or renew the copy of a page is noted ([`Touched`]) and carried out on the loaded
//! hierarchy before it is taken over ([`Hierarchy::forget_touched`]); and the marks of regions stay
//! on, written or not (`Ledger::keep_marks`), so that a crash meanwhile finds in doubt whatever was
//! written: it needs no memory of this one.
//!
//! # Invariants
//! 1. While it loads the hierarchy has no slot and no block.
//! 2. A page that base was written at, or that was trimmed, since [`Hierarchy::begin_load`] is not
//!    on flash after [`Hierarchy::end_load`], unless it came there later.

use super::{Action, Hierarchy, HierarchyOptions, UnknownPolicy};
use crate::page::{FrameId, ObjectId, PageId};
use crate::policy::Removal;
use crate::tier::SlotTable;
use std::collections::{BTreeMap, BTreeSet};

/// Pages in one word of [`Touched`].
const WORD: u64 = 64;

/// What copies of were dropped, or became old, while the map was being read.
///
/// Memory: about 40 bytes for each 64 neighbouring pages of which one was written, 24 for each
/// range that was cut or punched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    words: BTreeMap<(ObjectId, u64), u64>,
    ranges: Vec<(ObjectId, u64, u64)>,
}

impl Touched {
    /// How many single pages and ranges there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let pages: u32 = self.words.values().map(|word| word.count_ones()).sum();
        pages as usize + self.ranges.len()
    }

    /// Whether nothing was touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.ranges.is_empty()
    }

    fn add(&mut self, page: PageId) {
        let word = (page.object, page.index / WORD);
        *self.words.entry(word).or_default() |= 1 << (page.index % WORD);
    }

    fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.words.iter().flat_map(|(&(object, word), &bits)| {
            let set = (0..WORD).filter(move |bit| bits & 1 << bit != 0);
            set.map(move |bit| PageId::new(object, word * WORD + bit))
        })
    }
}

/// What is known of the map before it was read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Objects that may have pages in it.
    objects: BTreeSet<ObjectId>,
    touched: Touched,
}

impl Hierarchy {
    /// From now on a map is being read that may name pages of `objects`, and of nobody else.
    pub fn begin_load(&mut self, objects: impl IntoIterator<Item = ObjectId>) {
        assert!(self.is_bare(), "invariant 1");
        self.ledger.keep_marks(true);
        self.unread = Some(Unread {
            objects: objects.into_iter().collect(),
            touched: Touched::default(),
        });
    }

    fn is_bare(&self) -> bool {
        self.slots.capacity() == 0 && self.ledger.blocks() == 0
    }

    /// Whether the map is being read.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.unread.is_some()
    }

    /// Whether `object` may have pages in the part of the map that nobody has read.
    #[must_use]
    pub fn is_unread(&self, object: ObjectId) -> bool {
        let unread = self.unread.as_ref();
        unread.is_some_and(|unread| unread.objects.contains(&object))
    }

    /// Copies of `page` are old from now on.
    pub(super) fn touch_page(&mut self, page: PageId) {
        if let Some(unread) = &mut self.unread
            && unread.objects.contains(&page.object)
        {
            unread.touched.add(page);
        }
    }

    /// The same of pages `first..=last`; of all of them, nothing of the object is unread any more.
    pub(super) fn touch_range(&mut self, object: ObjectId, first: u64, last: u64) {
        let Some(unread) = &mut self.unread else {
            return;
        };
        let whole = (first, last) == (0, u64::MAX);
        let there = match whole {
            true => unread.objects.remove(&object),
            false => unread.objects.contains(&object),
        };
        if there {
            unread.touched.ranges.push((object, first, last));
        }
    }

    /// What was touched since this was last asked: for [`Hierarchy::forget_touched`] of the loaded
    /// one, without haste.
    pub fn take_touched(&mut self) -> Touched {
        let unread = self.unread.as_mut();
        unread.map_or_else(Touched::default, |unread| {
            std::mem::take(&mut unread.touched)
        })
    }

    /// How much [`Hierarchy::take_touched`] would give now.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.unread
            .as_ref()
            .map_or(0, |unread| unread.touched.len())
    }

    /// This one was made from a map: what was `touched` since leaves it. O(pages that leave, and
    /// log of all for each touched).
    pub fn forget_touched(&mut self, touched: &Touched) {
        let mut out = Vec::new();
        for page in touched.pages() {
            self.give_up_doubt(page);
            if let Some(slot) = self.slots.find(page) {
                self.remove(slot, Removal::Stale, &mut out);
            }
        }
        for &(object, first, last) in &touched.ranges {
            self.trim(object, first, last, &mut out);
        }
        for page in touched.pages() {
            let there = self.slots.find(page).is_some() || self.doubt_of(page).is_some();
            assert!(!there, "invariant 2: {page:?} was touched");
        }
        assert!(
            !out.iter()
                .any(|action| matches!(action, Action::Unstage { .. })),
            "what was loaded is not staged"
        );
    }

    /// The map was read: takes over `loaded`, made from it, with its policy, but for what was
    /// touched. O(touched + frames).
    ///
    /// # Errors
    /// Gives it back, and nothing is done, while a batch is under way or after one has failed, and
    /// when the tier is off.
    pub fn end_load(&mut self, loaded: Self, out: &mut Vec<Action>) -> Result<(), Box<Self>> {
        assert!(self.is_loading() && self.is_bare(), "invariant 1");
        if self.ledger.is_committing() || self.is_off() {
            return Err(Box::new(loaded));
        }
        let mut loaded = loaded;
        let touched = self.take_touched();
        loaded.forget_touched(&touched);
        let vain: Vec<ObjectId> = loaded.pinned.difference(&self.pinned).copied().collect();
        for object in vain {
            loaded.set_pinned(object, false, &mut Vec::new());
        }
        self.slots = loaded.slots;
        self.policy = loaded.policy;
        // Requests served without a tier are none of this policy's: it counts from the start.
        self.requests = loaded.requests;
        self.asked = loaded.asked;
        self.policy_options = loaded.policy_options;
        self.ledger.join(loaded.ledger);
        self.loaded(out);
        for frame in (0..self.pool.capacity()).map(FrameId) {
            let Some(page) = self.pool.page(frame) else {
                continue;
            };
            self.policy.on_pool(page, true);
        }
        self.weigh_frames();
        Ok(())
    }

    /// The map cannot be read, or the device has failed: the tier has the shape of `options`, and
    /// nothing on it. Whatever the device says is not to be believed any more.
    ///
    /// # Errors
    /// [`UnknownPolicy`] when the one in force cannot be built by its name.
    pub fn give_up_load(
        &mut self,
        options: &HierarchyOptions,
        out: &mut Vec<Action>,
    ) -> Result<(), UnknownPolicy> {
        assert!(self.is_off() && self.is_bare(), "invariant 1");
        let mut policy = self.anew(options)?;
        let (capacity, keeps, reserve) = options.areas();
        self.slots = SlotTable::with_areas(capacity, keeps, reserve);
        self.introduce(policy.as_mut());
        self.policy = policy;
        self.policy_options = options.policy_options.clone();
        self.ledger = self.ledger.moved_to(options.all_blocks());
        self.loaded(out);
        Ok(())
    }

    fn loaded(&mut self, out: &mut Vec<Action>) {
        self.unread = None;
        self.ledger.keep_marks(false);
        self.shape += 1;
        out.extend([Action::Room, Action::WakeWriter, Action::WakeCleaner]);
    }

    /// Has the loaded hierarchy follow the policy that was chosen meanwhile, if it is another.
    ///
    /// # Errors
    /// [`UnknownPolicy`].
    pub fn follow_policy(&mut self, name: &str) -> Result<(), UnknownPolicy> {
        match self.asked == name {
            true => Ok(()),
            false => self.set_policy(name),
        }
    }

    pub(super) fn assert_load(&self) {
        if self.is_loading() {
            assert!(self.is_bare(), "invariant 1");
            assert_eq!(self.ledger.doubts(), 0, "invariant 1");
        }
    }
}
