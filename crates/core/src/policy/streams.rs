//! What reads cost base: a disk goes on where it is for the time of a transfer, elsewhere it has to
//! move.
//!
//! A read is *in order* when the page before it came from base as one of the last [`RECENT`]
//! requests. Its hint does not matter: a scan some of whose pages are on flash is no longer in
//! order there, and base has to move for the next one that is not. TAC (§3.1) labels requests for
//! the same reason, by hint or by region, wherever they are served.
//!
//! *Cost*: a look at [`HEADS`] places in a row for each read. *Memory*: 400 bytes.
//!
//! # Invariants (checked by [`Streams::assert_invariants`])
//! 1. No two heads are at one page.
//! 2. A read in order costs between 0 and 1.

use super::{Access, Op};
use crate::cost::Costs;
use crate::page::PageId;

/// Requests within which base goes on, at most.
const RECENT: u64 = 16;
/// Places at which base is taken to be reading, at most: those of all recent requests.
const HEADS: usize = RECENT as usize;

/// A place up to which base has read.
#[derive(Clone, Copy, Debug)]
struct Head {
    next: PageId,
    /// When it was read, by the number of the request.
    read: u64,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    heads: [Option<Head>; HEADS],
    /// What a read in order costs, in random reads: TAC's ΔS / ΔR (eq. 1); 1 where flash saves
    /// nothing.
    in_order: f64,
}

impl Streams {
    /// Base has read nothing yet.
    pub(super) fn new(costs: &Costs) -> Self {
        let random = costs.random_saving();
        let in_order = match random > 0.0 {
            true => (costs.sequential_saving() / random).min(1.0),
            false => 1.0,
        };
        Self {
            heads: [None; HEADS],
            in_order,
        }
    }

    /// A request, `found` on flash or not: what it costs base, in random reads; writes cost
    /// nothing here. O([`HEADS`]).
    pub(super) fn cost(&mut self, access: &Access, found: bool) -> f64 {
        match (self.goes_on(access, found), found, access.op) {
            (_, true, _) | (_, _, Op::Write) => 0.0,
            (true, false, Op::Read) => self.in_order,
            (false, false, Op::Read) => 1.0,
        }
    }

    /// Whether a request is a read in order.
    fn goes_on(&mut self, access: &Access, found: bool) -> bool {
        if access.op == Op::Write {
            return false;
        }
        let at = |page| {
            let is_there = |head: &Head| head.next == page;
            let mut heads = self.heads.iter();
            heads.position(|head| head.as_ref().is_some_and(is_there))
        };
        let here = at(access.page);
        let next = PageId::new(access.page.object, access.page.index.wrapping_add(1));
        let there = at(next);
        let recent = |head: Head| access.number.saturating_sub(head.read) <= RECENT;
        let goes_on = here.is_some_and(|at| self.heads[at].is_some_and(recent));
        if !found {
            if let Some(at) = there {
                self.heads[at] = None;
            }
            let at = here.unwrap_or_else(|| self.longest_ago());
            self.heads[at] = Some(Head {
                next,
                read: access.number,
            });
        }
        goes_on
    }

    /// The place where base read longest ago, or never. It is not recent: there are as many as
    /// recent requests.
    fn longest_ago(&self) -> usize {
        let read = |at: &usize| self.heads[*at].map(|head| head.read);
        (0..HEADS).min_by_key(read).unwrap_or(0)
    }

    /// Panics unless the numbered invariants hold.
    pub(super) fn assert_invariants(&self) {
        for (at, head) in self.heads.iter().flatten().enumerate() {
            let others = self.heads.iter().flatten().skip(at + 1);
            let same = others.filter(|other| other.next == head.next);
            assert_eq!(same.count(), 0, "invariant 1");
        }
        assert!((0.0..=1.0).contains(&self.in_order), "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::HintSet;
    use crate::page::ObjectId;

    fn costs(base_sequential_read: f64) -> Costs {
        Costs {
            base_random_read: 11.0,
            base_sequential_read,
            base_random_write: 20.0,
            flash_read: 1.0,
            flash_write: 2.0,
        }
    }

    fn read(number: u64, object: u32, index: u64) -> Access {
        Access {
            page: PageId::new(ObjectId(object), index),
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        }
    }

    #[test]
    fn base_goes_on_after_a_page_it_read_of_late() {
        let mut streams = Streams::new(&costs(1.5));
        let mut cost = |number, object, index, found| {
            let cost = streams.cost(&read(number, object, index), found);
            streams.assert_invariants();
            cost
        };
        assert_eq!(cost(1, 1, 5, false), 1.0, "it moves there");
        assert_eq!(cost(2, 1, 6, false), 0.05);
        assert_eq!(cost(3, 2, 7, false), 1.0, "of another object");
        assert_eq!(cost(4, 1, 7, true), 0.0);
        assert_eq!(cost(5, 1, 8, false), 1.0, "the page before was on flash");
        assert_eq!(cost(6, 1, 10, false), 1.0, "not in a row");
        assert_eq!(cost(6 + RECENT, 1, 11, false), 0.05);
        assert_eq!(cost(7 + 2 * RECENT, 1, 12, false), 1.0, "too late");
        assert_eq!(cost(8 + 2 * RECENT, 1, 13, false), 0.05, "from here");
    }

    #[test]
    fn two_streams_that_meet_are_one() {
        let mut streams = Streams::new(&costs(1.5));
        for (number, index) in [(1, 6), (2, 5), (3, 6), (4, 7)] {
            streams.cost(&read(number, 1, index), false);
            streams.assert_invariants();
        }
        assert_eq!(streams.heads.iter().flatten().count(), 1);
    }

    #[test]
    fn the_oldest_of_many_streams_is_forgotten() {
        let mut streams = Streams::new(&costs(1.5));
        for object in 0..=HEADS as u32 {
            streams.cost(&read(1, object, 0), false);
        }
        assert_eq!(streams.cost(&read(2, 1, 1), false), 0.05);
        assert_eq!(streams.cost(&read(3, 0, 1), false), 1.0);
    }

    #[test]
    fn a_write_costs_nothing_here() {
        let mut streams = Streams::new(&costs(1.5));
        streams.cost(&read(1, 1, 0), false);
        let write = Access {
            op: Op::Write,
            ..read(2, 1, 1)
        };
        assert_eq!(streams.cost(&write, false), 0.0);
    }

    #[test]
    fn what_a_read_in_order_costs_is_of_the_devices() {
        for (costs, cost) in [(costs(6.0), 0.5), (costs(11.0), 1.0), (costs(1e9), 1.0)] {
            let mut streams = Streams::new(&costs);
            streams.cost(&read(1, 1, 1), false);
            assert_eq!(streams.cost(&read(2, 1, 2), false), cost);
        }
        let slow_flash = Costs {
            flash_read: 1e9,
            ..costs(1.5)
        };
        let mut streams = Streams::new(&slow_flash);
        assert_eq!(streams.cost(&read(1, 1, 1), false), 1.0);
        assert_eq!(streams.cost(&read(2, 1, 2), false), 1.0);
    }
}
