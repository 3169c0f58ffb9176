//! Write-back: what a page on flash saves, in device time.
//!
//! The unit is what one random read saves, R_D - R_S, so that a page's worth is a number of read
//! hits here too. Of the requests of a page that are to come within the horizon, on flash a read
//! costs R_S instead of R_D, and a write of a page that is newer than base W_S instead of W_D and
//! W_S: base is owed one write less, but to flash it goes anyway, because a page that is refused
//! goes to the reserve, which is flash as well. So letting in a page that is newer than base costs
//! nothing. A clean page saves nothing by being there when it is written: it is offered then,
//! whether it was there or not.
//!
//! *How many*: r being V of reads and w V of writes (whichever comes first counts), r / (1 - r - w)
//! reads and w / (1 - r - w) writes for a dirty page, r / (1 - r) reads for a clean one: as many as
//! there would be if every request found the page as it is now.
//!
//! *The pool*: one that knows costs drops pages of flash early, so that a page is read from flash
//! more often than it would be read from base. CAC has α for that (thesis §6.4.1, equations 6.2 to
//! 6.6). Here outlooks do not tell apart whether a page is on flash: of pages that are not, little
//! is learned, and late (`evaluation/results/joint.md`).

use crate::cost::Costs;

/// What a page that goes back to base costs there, as a share of a random write: pages are
/// destaged in base order, many at a time. The more are dirty, the less it is; under TPC-C it was
/// about a half on a tier of 4,300 slots, 0.1 to 0.2 on larger ones.
const IN_ORDER: f64 = 0.3;
/// At least so much is left of 1 - r - w: more than 100 requests within the horizon are 100.
const LEFT_MIN: f32 = 0.01;

/// V of the reads and of the writes of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    pub reads: f32,
    pub writes: f32,
}

impl Outlook {
    /// Reads and writes to come within the horizon.
    fn counts(self, dirty: bool) -> (f32, f32) {
        let writes = if dirty { self.writes } else { 0.0 };
        let left = (1.0 - self.reads - writes).max(LEFT_MIN);
        (self.reads / left, writes / left)
    }
}

/// The costs of a page in the unit of the module's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Money {
    base_read: f32,
    base_write: f32,
    flash_read: f32,
    flash_write: f32,
}

impl Money {
    /// By the costs of the devices.
    pub(super) fn new(costs: &Costs) -> Self {
        // Where flash is no faster nothing is saved, whatever the unit.
        let unit = costs.random_saving().max(1.0);
        let of = |cost: f64| (cost / unit) as f32;
        Self {
            base_read: of(costs.base_random_read),
            base_write: of(costs.base_random_write * IN_ORDER),
            flash_read: of(costs.flash_read),
            flash_write: of(costs.flash_write),
        }
    }

    /// What a page with this outlook saves by being on flash. A clean page's is below 0 where flash
    /// is slower than base.
    pub(super) fn saved(&self, outlook: Outlook, dirty: bool) -> f32 {
        let (reads, writes) = outlook.counts(dirty);
        reads * (self.base_read - self.flash_read) + writes * self.base_write
    }

    /// The time of a write to flash that there need not be.
    pub(super) fn flash_write(&self) -> f32 {
        self.flash_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        base_random_read: 11.0,
        base_sequential_read: 0.5,
        base_random_write: 20.0,
        flash_read: 1.0,
        flash_write: 2.0,
    };

    fn look(reads: f32, writes: f32) -> Outlook {
        Outlook { reads, writes }
    }

    #[test]
    fn savings_are_those_of_the_text() {
        let money = Money::new(&COSTS);
        let near = |found: f32, expected: f32| {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        };
        // One read to come: 1.1 of base, 0.1 of flash.
        near(money.saved(look(0.5, 0.0), false), 1.0);
        // A clean page saves no write; a dirty one 0.6 of base.
        near(money.saved(look(0.5, 0.3), false), 1.0);
        near(money.saved(look(0.0, 0.5), true), 0.6);
        near(money.saved(look(0.4, 0.2), true), 1.3);
    }

    #[test]
    fn flash_that_is_no_faster_saves_nothing() {
        let costs = Costs {
            flash_read: 12.0,
            ..COSTS
        };
        let money = Money::new(&costs);
        assert!(money.saved(look(0.5, 0.0), false) < 0.0);
    }
}
