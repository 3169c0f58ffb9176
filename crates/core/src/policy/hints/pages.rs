//! Of every page: when and with which hint set it was last requested. On flash: by slot, in lists
//! by group. Absent: in the outqueue (thesis §3.2.2).

use super::HintKeys;
use super::counting::Evidence;
use super::groups::{GroupId, Groups};
use super::learning::Learning;
use super::outqueue::Outqueue;
use super::sets::SetId;
use crate::list::{Links, List};
use crate::page::{ObjectId, PageId, SlotId};
use crate::policy::{Access, Learned, PolicyOptions, Removal, Ties};
use crate::tier::SlotTable;

/// Last request of a page on flash.
#[derive(Clone, Copy, Debug)]
struct Resident {
    seq: u64,
    set: SetId,
    group: GroupId,
}

/// The request at hand, when its page is absent: it goes to flash or to the outqueue.
#[derive(Clone, Copy, Debug)]
struct Pending {
    page: PageId,
    set: SetId,
    seq: u64,
}

/// What [`HintedPages::on_request`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The group of the request's hint set.
    pub group: GroupId,
    /// Whether a window closed just before this request: all priorities are new, and pages may
    /// be in other lists than before.
    pub closed: bool,
}

/// Pages, what is learned from their requests, and the pages on flash by group. See the module
/// text of [`super`].
///
/// # Invariants (checked by [`HintedPages::assert_invariants`])
/// 1. A page on flash is in the list of its group, the lists are in order of request, and the
///    group is that of the page's hint set.
/// 2. A page is remembered once: on flash, pending, or in the outqueue.
/// 3. A hint set has a number while a page remembers it.
#[derive(Clone, Debug)]
pub struct HintedPages<E> {
    learning: Learning<E>,
    residents: Vec<Resident>,
    links: Links,
    lists: Vec<List>,
    outqueue: Outqueue,
    pending: Option<Pending>,
}

impl<E: Evidence> HintedPages<E> {
    /// No pages, nothing learned.
    #[must_use]
    pub fn new(keys: HintKeys, options: &PolicyOptions, empty: E) -> Self {
        let capacity = options.capacity;
        let nobody = Resident {
            seq: 0,
            set: SetId::OTHER,
            group: GroupId::REST,
        };
        let outqueue = capacity.saturating_mul(options.clic.outqueue_per_page);
        Self {
            learning: Learning::new(keys, options, empty),
            residents: vec![nobody; capacity as usize],
            links: Links::new(capacity),
            lists: vec![List::default()],
            outqueue: Outqueue::new(outqueue),
            pending: None,
        }
    }

    /// A request: closes the window if it is full, learns from the request, and makes its page
    /// the most recent of its group if it is on flash. O(1) expected but for the window.
    pub fn on_request(&mut self, access: &Access, resident: Option<SlotId>) -> Seen {
        let closed = self.learning.is_full();
        if closed && self.learning.close() {
            self.rebuild();
        }
        self.settle();
        match resident {
            Some(slot) => {
                let Resident { seq, set, .. } = self.residents[slot.at()];
                let distance = access.number.saturating_sub(seq).max(1);
                self.learning.reference(set, distance, access.op);
            }
            None => {
                if let Some((set, seq)) = self.outqueue.remove(access.page) {
                    let distance = (access.number as u32).wrapping_sub(seq).max(1);
                    self.learning.reference(set, u64::from(distance), access.op);
                    self.learning.release(set);
                }
            }
        }
        let set = self.learning.request(&access.hints);
        self.learning.hold(set);
        match resident {
            Some(slot) => self.renew(slot, set, access.number),
            None => {
                self.pending = Some(Pending {
                    page: access.page,
                    set,
                    seq: access.number,
                });
            }
        }
        Seen {
            group: self.learning.group(set),
            closed,
        }
    }

    /// The page of `access` got `slot`. Gives its group.
    pub fn on_admit(&mut self, access: &Access, slot: SlotId) -> GroupId {
        let (set, seq) = match self.pending.take_if(|pending| pending.page == access.page) {
            // Warming may bring it, after others that were brought since its request.
            Some(pending) => (pending.set, pending.seq.max(access.number)),
            // Not by its own request: after a restart, or a change of policy.
            None => match self.outqueue.remove(access.page) {
                Some((set, _)) => (set, access.number),
                None => {
                    self.learning.hold(SetId::OTHER);
                    (SetId::OTHER, access.number)
                }
            },
        };
        self.place(slot, set, seq)
    }

    /// `page` lost `slot`: into the outqueue with it, unless it is gone for good.
    pub fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let Resident { seq, set, group } = self.residents[slot.at()];
        self.lists[group.at()].remove(&mut self.links, slot.0);
        match why {
            Removal::Trimmed => self.learning.release(set),
            _ => self.put_out(page, set, seq as u32),
        }
    }

    /// Pages `first..` of `object` are gone. Those in the outqueue leave by age: see
    /// [`crate::ghost`].
    pub fn on_trim(&mut self, object: ObjectId, first: u64) {
        let gone = |page: PageId| page.object == object && page.index >= first;
        if let Some(pending) = self.pending.take_if(|pending| gone(pending.page)) {
            self.learning.release(pending.set);
        }
    }

    /// The group of the hint set of `access`, whose [`Self::on_request`] was the last.
    #[must_use]
    pub fn group_of(&self, access: &Access) -> GroupId {
        let pending = self.pending.filter(|pending| pending.page == access.page);
        match pending {
            Some(pending) => self.learning.group(pending.set),
            None => self.groups().of(&access.hints),
        }
    }

    /// What is learned.
    #[must_use]
    pub fn learning(&self) -> &Learning<E> {
        &self.learning
    }

    /// The groups in force.
    #[must_use]
    pub fn groups(&self) -> &Groups<E> {
        self.learning.groups()
    }

    /// Slots whose pages are in `group`, most recent request at the front; the ids of the list
    /// are slots, its neighbours in [`Self::links`].
    #[must_use]
    pub fn list(&self, group: GroupId) -> &List {
        static EMPTY: List = List::EMPTY;
        self.lists.get(group.at()).unwrap_or(&EMPTY)
    }

    /// Neighbours of the lists of all groups.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Number of the last request of the page in `slot`.
    #[must_use]
    pub fn seq(&self, slot: SlotId) -> u64 {
        self.residents[slot.at()].seq
    }

    /// The group of the page in `slot`.
    #[must_use]
    pub fn group_in(&self, slot: SlotId) -> GroupId {
        self.residents[slot.at()].group
    }

    /// Whether the page in `slot` makes way for a newcomer of equal priority at request `now`.
    /// Until the first window has closed it does: nothing is known yet.
    #[must_use]
    pub fn yields(&self, slot: SlotId, now: u64, ties: Ties) -> bool {
        if self.learning.windows() == 0 {
            return true;
        }
        match ties {
            Ties::Refuse => false,
            Ties::Admit => true,
            Ties::Informed if self.groups().tells_apart() => false,
            Ties::Informed | Ties::Overdue => {
                let age = now.saturating_sub(self.seq(slot));
                let due = match self.groups().get(self.group_in(slot)) {
                    Some(group) => group.counts.mean_distance(),
                    None => self.learning.window() as f64,
                };
                age as f64 > due
            }
        }
    }

    /// For [`crate::policy::TierPolicy::taught`].
    pub fn taught(&mut self, learned: &Learned, slots: f64) {
        if self.learning.taught(learned, slots) {
            self.rebuild();
        }
    }

    /// For [`crate::policy::TierPolicy::learned`].
    #[must_use]
    pub fn learned(&self) -> Learned {
        self.learning.learned(|group| self.list(group).len())
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.learning.bytes()
            + self.residents.capacity() * size_of::<Resident>()
            + self.links.bytes()
            + self.lists.capacity() * size_of::<List>()
            + self.outqueue.bytes()
    }

    /// Bytes held once every slot and every place of the outqueue has a page.
    #[must_use]
    pub fn bytes_full(&self) -> usize {
        self.bytes() - self.outqueue.bytes() + self.outqueue.bytes_full()
    }

    /// Panics unless the numbered invariants hold. O(slots + outqueue).
    pub fn assert_invariants(&self, slots: &SlotTable) {
        self.learning.assert_invariants();
        self.outqueue.assert_invariants();
        let mut listed = 0;
        for (group, list) in (0u32..).map(GroupId).zip(&self.lists) {
            let mut last = None;
            for slot in list.iter_from_back(&self.links).map(SlotId) {
                let resident = self.residents[slot.at()];
                assert!(slots.page(slot).is_some(), "invariant 1");
                assert_eq!(resident.group, group, "invariant 1");
                assert_eq!(self.learning.group(resident.set), group, "invariant 1");
                assert!(last.is_none_or(|seq| seq <= resident.seq), "invariant 1");
                last = Some(resident.seq);
                listed += 1;
            }
        }
        assert_eq!(listed, slots.resident(), "invariant 1");
        for (_, page) in slots.residents() {
            assert!(!self.outqueue.contains(page), "invariant 2");
        }
        if let Some(pending) = self.pending {
            assert!(!self.outqueue.contains(pending.page), "invariant 2");
        }
        let held = listed + self.outqueue.len() + u32::from(self.pending.is_some());
        assert_eq!(self.learning.sets().held(), held, "invariant 3");
    }

    /// The last request's page was not admitted: it goes into the outqueue.
    fn settle(&mut self) {
        if let Some(Pending { page, set, seq }) = self.pending.take() {
            self.put_out(page, set, seq as u32);
        }
    }

    fn put_out(&mut self, page: PageId, set: SetId, seq: u32) {
        if let Some(left) = self.outqueue.insert(page, set, seq) {
            self.learning.release(left);
        }
    }

    /// The page in `slot` was requested with `set`.
    fn renew(&mut self, slot: SlotId, set: SetId, seq: u64) {
        let before = self.residents[slot.at()];
        self.learning.release(before.set);
        let group = self.learning.group(set);
        if group == before.group {
            self.lists[group.at()].move_to_front(&mut self.links, slot.0);
            self.residents[slot.at()] = Resident { seq, set, group };
        } else {
            self.lists[before.group.at()].remove(&mut self.links, slot.0);
            self.place(slot, set, seq);
        }
    }

    /// Puts `slot`, which is in no list, at the front of its group's.
    fn place(&mut self, slot: SlotId, set: SetId, seq: u64) -> GroupId {
        let group = self.learning.group(set);
        self.residents[slot.at()] = Resident { seq, set, group };
        if group.at() >= self.lists.len() {
            self.lists.resize(group.at() + 1, List::default());
        }
        self.lists[group.at()].push_front(&mut self.links, slot.0);
        group
    }

    /// Groups changed: makes all lists again. O(slots log slots).
    fn rebuild(&mut self) {
        let listed = self
            .lists
            .iter()
            .flat_map(|list| list.iter_from_back(&self.links));
        let mut order: Vec<(u64, u32)> = listed
            .map(|slot| (self.residents[slot as usize].seq, slot))
            .collect();
        order.sort_unstable();
        self.lists.clear();
        self.lists.push(List::default());
        for (seq, slot) in order {
            let set = self.residents[slot as usize].set;
            self.place(SlotId(slot), set, seq);
        }
    }
}
