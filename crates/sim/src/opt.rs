//! OPT: the tier that knows the future (Belady's MIN by next *read*, thesis §3.4).
//!
//! The victim is the page whose next read lies furthest ahead. Two forms:
//! - `opt` lets every page in that is read (or written, where policies may admit on writes), as
//!   the online policies mostly do and as libCacheSim's Belady does;
//! - `opt-bypass` leaves a page out when it is itself the one read furthest ahead, may admit on
//!   every write, and so gives up a page that is written whole before it is read. No policy of the
//!   same size has more read hits: each read takes a slot from the last chance to admit its page
//!   on, and of such intervals the greedy choice serves the most. It is the bound that "share of
//!   OPT" refers to. Under a DRAM pool it is no bound, and there is no such share: other policies
//!   may admit a page as it leaves the pool, these two admit only what is read or written.
//!
//! A page's next read is the next one that reaches the tier (reads the DRAM pool serves do not
//! count) and that the copy survives (after a trim, or a write of a part of the page, a copy is
//! gone). *Cost*: O(log64 requests) each. *Memory*: 4 to 8 bytes a request, 4 bytes a page.

use crate::bits::BitTree;
use crate::outlook::{NEVER, Outlook};
use crate::request::{Kind, PageRequest};
use crate::tier::{Effect, Tier};
use thermocline_core::counters::Source;
use thermocline_core::{HintSet, policy};

/// Lets everything in.
pub const OPT: &str = "opt";
/// May leave a page out.
pub const OPT_BYPASS: &str = "opt-bypass";

/// Every policy the simulator knows: the tier's own, then the two that know the future.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let own = policy::NAMES.iter().copied();
    own.chain([OPT, OPT_BYPASS]).collect()
}

/// Whether `name` is a policy that needs the future.
#[must_use]
pub fn is_opt(name: &str) -> bool {
    name == OPT || name == OPT_BYPASS
}

/// Not on flash.
const ABSENT: u32 = u32::MAX - 1;

/// See the module text.
pub(crate) struct OptTier<'a> {
    outlook: &'a Outlook<'a>,
    /// The next read of each request's page.
    next: &'a [u32],
    capacity: u32,
    bypass: bool,
    admit_on_write: bool,
    resident: u32,
    /// By page number: the next read of a resident page, or [`ABSENT`].
    next_of: Vec<u32>,
    /// Next reads of the resident pages that have one. No two share one.
    reads: BitTree,
    /// Resident pages that are never read again, and stale entries.
    never: Vec<u32>,
    trims: usize,
}

impl<'a> OptTier<'a> {
    /// An empty tier that does as the policy called `name` does.
    pub(crate) fn new(
        outlook: &'a Outlook<'a>,
        name: &str,
        capacity: u32,
        admit_on_write: bool,
    ) -> Self {
        debug_assert!(is_opt(name));
        let bypass = name == OPT_BYPASS;
        let unwritten = outlook.next_unwritten.as_ref().filter(|_| bypass);
        Self {
            outlook,
            next: unwritten.unwrap_or(&outlook.next),
            capacity,
            bypass,
            admit_on_write: admit_on_write || bypass,
            resident: 0,
            next_of: vec![ABSENT; outlook.pages],
            reads: BitTree::new(outlook.next.len()),
            never: Vec::new(),
            trims: 0,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.next_of.len() + self.never.capacity() + self.outlook.next.len())
    }

    fn put(&mut self, id: u32, next: u32) {
        self.next_of[id as usize] = next;
        match next {
            NEVER => self.never.push(id),
            next => self.reads.insert(next as usize),
        }
    }

    fn take(&mut self, id: u32) {
        let next = std::mem::replace(&mut self.next_of[id as usize], ABSENT);
        debug_assert_ne!(next, ABSENT, "only a resident page leaves");
        if next != NEVER {
            self.reads.remove(next as usize);
        }
    }

    /// The resident page read furthest ahead and that read.
    fn furthest(&mut self) -> Option<(u32, u32)> {
        while let Some(&id) = self.never.last() {
            if self.next_of[id as usize] == NEVER {
                return Some((id, NEVER));
            }
            self.never.pop();
        }
        let next = self.reads.max()?;
        Some((self.outlook.ids[next], next as u32))
    }

    /// Lets a page in, or not; returns the pages written to flash.
    fn admit(&mut self, id: u32, next: u32) -> u32 {
        if self.capacity == 0 || (self.bypass && next == NEVER) {
            return 0;
        }
        if self.resident == self.capacity {
            match self.furthest() {
                Some((_, furthest)) if self.bypass && furthest < next => return 0,
                Some((victim, _)) => self.take(victim),
                None => return 0,
            }
        } else {
            self.resident += 1;
        }
        self.put(id, next);
        1
    }

    fn forget(&mut self, id: u32) {
        if self.next_of[id as usize] != ABSENT {
            self.take(id);
            self.resident -= 1;
        }
    }
}

impl Tier for OptTier<'_> {
    fn serve(&mut self, at: u64, request: &PageRequest, _hints: &HintSet) -> Effect {
        let kind = request.kind();
        if kind == Kind::Read && self.outlook.pool_hits.get(at) {
            return Effect {
                source: Source::Pool,
                flash_writes: 0,
                moved: false,
            };
        }
        let (id, next) = (self.outlook.ids[at as usize], self.next[at as usize]);
        let resident = self.next_of[id as usize] != ABSENT;
        let flash_writes = match (kind, resident) {
            (Kind::PartWrite, _) => {
                self.forget(id);
                0
            }
            (_, true) => {
                self.take(id);
                self.put(id, next);
                u32::from(kind == Kind::Write)
            }
            (Kind::Write, false) if !self.admit_on_write => 0,
            (_, false) => self.admit(id, next),
        };
        Effect {
            source: if resident {
                Source::Flash
            } else {
                Source::Base
            },
            flash_writes,
            moved: false,
        }
    }

    fn trim(&mut self, at: u64, _trim: &PageRequest) {
        let trims = self.outlook.trims;
        debug_assert!(u64::from(trims[self.trims].0) == at, "trims come in order");
        for &id in &trims[self.trims].1 {
            self.forget(id);
        }
        self.trims += 1;
    }
}
