//! What reads cost base: a disk goes on where it is for the time of a transfer, elsewhere it has to
//! move.
//!
//! A read is *in order* when the page before it was requested as one of the last [`RECENT`]
//! requests of a stream that base has read for. Its hint does not matter. Where pages of the stream
//! were found on flash in between, base reads over them, as the mount's runs do
//! ([`Costs::bridge_pages`]): each costs the time of a transfer, until all of them cost as much as
//! to move. TAC (§3.1) labels requests for the same reason, by hint or by region, wherever they are
//! served.
//!
//! A read in order costs [`IN_ORDER_MIN`] of a random one at least. How much of a stream base reads
//! at once is not known here: it moves after every page of two streams side by side, and once in
//! 128 where much is read ahead. The number was chosen on all captures, P3, cloudPhysicsIO, a
//! recording of TPC-H, and TPC-H itself, under which TAC is to be seen ahead of `value`: 0 to 0.7
//! were tried.
//!
//! *Cost*: a look at [`HEADS`] places in a row for each read. *Memory*: 656 bytes.
//!
//! # Invariants (checked by [`Streams::assert_invariants`])
//! 1. No two streams are at one page.
//! 2. A read in order costs between 0 and 1.

use super::{Access, Op};
use crate::cost::Costs;
use crate::page::PageId;

/// Requests within which base goes on, at most.
const RECENT: u64 = 16;
/// Streams that base is taken to be reading for, at most: those of all recent requests.
const HEADS: usize = RECENT as usize;

/// What a read in order costs at least, in random reads.
const IN_ORDER_MIN: f64 = 0.1;

/// A stream that base has read for.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The page after the last one that was requested.
    next: PageId,
    /// Pages before it that were requested since base read, and were on flash.
    over: u64,
    /// When the last one was requested, by the number of the request.
    last: u64,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    heads: [Option<Head>; HEADS],
    /// What the transfer of a read in order costs, in random reads: TAC's ΔS / ΔR (eq. 1); 1
    /// where flash saves nothing.
    in_order: f64,
    /// Pages that base reads over at most.
    bridge: u64,
}

/// What the transfer of a read in order costs, in random reads.
fn transfer(costs: &Costs) -> f64 {
    let random = costs.random_saving();
    match random > 0.0 {
        true => (costs.sequential_saving() / random).min(1.0),
        false => 1.0,
    }
}

/// What a read in order costs, in random reads, where base reads over nothing.
pub(super) fn in_order(costs: &Costs) -> f64 {
    transfer(costs).max(IN_ORDER_MIN)
}

impl Streams {
    /// Base has read nothing yet.
    pub(super) fn new(costs: &Costs) -> Self {
        Self {
            heads: [None; HEADS],
            in_order: transfer(costs),
            bridge: costs.bridge_pages(),
        }
    }

    /// A request, `found` on flash or not: what it costs base, in random reads; writes cost
    /// nothing here. O([`HEADS`]).
    pub(super) fn cost(&mut self, access: &Access, found: bool) -> f64 {
        if access.op == Op::Write {
            return 0.0;
        }
        let here = self.at(access.page);
        let recent = |head: &Head| access.number.saturating_sub(head.last) <= RECENT;
        let stream = here.and_then(|at| self.heads[at]).filter(recent);
        let over = match (stream, found) {
            // Base reads for nobody here.
            (None, true) => return 0.0,
            (Some(head), true) => head.over.saturating_add(1),
            (_, false) => 0,
        };
        let next = PageId::new(access.page.object, access.page.index.wrapping_add(1));
        if let Some(there) = self.at(next) {
            self.heads[there] = None;
        }
        let at = here.unwrap_or_else(|| self.longest_ago());
        self.heads[at] = Some(Head {
            next,
            over,
            last: access.number,
        });
        match (stream, found) {
            (_, true) => 0.0,
            (Some(head), false) if head.over <= self.bridge => {
                (self.in_order * (head.over as f64 + 1.0)).clamp(IN_ORDER_MIN, 1.0)
            }
            (_, false) => 1.0,
        }
    }

    /// The stream that comes to `page` next.
    fn at(&self, page: PageId) -> Option<usize> {
        let comes = |head: &Head| head.next == page;
        let mut heads = self.heads.iter();
        heads.position(|head| head.as_ref().is_some_and(comes))
    }

    /// The stream that was longest quiet, or none. It is not recent: there are as many as recent
    /// requests.
    fn longest_ago(&self) -> usize {
        let last = |at: &usize| self.heads[*at].map(|head| head.last);
        (0..HEADS).min_by_key(last).unwrap_or(0)
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
    fn it_takes_the_memory_that_the_module_text_says() {
        assert_eq!(size_of::<Streams>(), 656);
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
        assert_eq!(cost(2, 1, 6, false), 0.1);
        assert_eq!(cost(3, 2, 7, false), 1.0, "of another object");
        assert_eq!(cost(4, 1, 7, true), 0.0);
        assert_eq!(
            cost(5, 1, 8, false),
            0.1,
            "it reads over the page that was on flash"
        );
        assert_eq!(cost(6, 1, 10, false), 1.0, "not in a row");
        assert_eq!(cost(6 + RECENT, 1, 11, false), 0.1);
        assert_eq!(cost(7 + 2 * RECENT, 1, 12, false), 1.0, "too late");
        assert_eq!(cost(8 + 2 * RECENT, 1, 13, false), 0.1, "from here");
    }

    #[test]
    fn what_base_reads_over_costs_until_moving_is_cheaper() {
        // A transfer is a quarter of a random read, less what flash takes.
        let costs = Costs {
            base_random_read: 13.0,
            ..costs(4.0)
        };
        let (mut streams, bridge) = (Streams::new(&costs), costs.bridge_pages());
        assert_eq!(bridge, 2);
        for on_flash in [0, 1, 2, 3, 30] {
            let object = on_flash as u32;
            streams.cost(&read(1, object, 0), false);
            for index in 1..=on_flash {
                assert_eq!(streams.cost(&read(1, object, index), true), 0.0);
                streams.assert_invariants();
            }
            let cost = streams.cost(&read(1, object, on_flash + 1), false);
            let over = ((on_flash as f64 + 1.0) / 4.0).max(IN_ORDER_MIN);
            let expected = if on_flash <= bridge { over } else { 1.0 };
            assert!((cost - expected).abs() < 1e-12, "{on_flash}: {cost}");
        }
        streams.cost(&read(1, 1, 100), false);
        streams.cost(&read(2, 1, 101), true);
        let again = streams.cost(&read(3, 1, 101), false);
        assert_eq!(again, 1.0, "not where the stream comes next");
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
        assert_eq!(streams.cost(&read(2, 1, 1), false), 0.1);
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
        for (costs, cost) in [
            (costs(1.5), 0.1),
            (costs(8.5), 0.75),
            (costs(11.0), 1.0),
            (costs(1e9), 1.0),
        ] {
            let mut streams = Streams::new(&costs);
            streams.cost(&read(1, 1, 1), false);
            assert_eq!(streams.cost(&read(2, 1, 2), false), cost);
            assert_eq!(in_order(&costs), cost);
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
