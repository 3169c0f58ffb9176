//! What a page is worth on flash (thesis §6.4.1, equations 6.2 to 6.6).

use crate::cost::Costs;

/// What was counted of a page while it was in one place: on flash, or not. In parts of an event
/// whose size [`super::Cac`] knows; comparable among all pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Random physical reads: those that missed the DRAM pool.
    pub reads: u32,
    /// Physical writes.
    pub writes: u32,
    /// Logical reads: random physical ones and hits in the DRAM pool.
    pub logical: u32,
}

/// What was measured of a page (figure 6.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// r_S, w_S and logical reads, while on flash.
    pub on_flash: Counts,
    /// r_D, w_D and logical reads, while not.
    pub off_flash: Counts,
}

impl Measured {
    /// Logical reads wherever the page was.
    #[must_use]
    pub fn logical(&self) -> u64 {
        u64::from(self.on_flash.logical) + u64::from(self.off_flash.logical)
    }

    /// The counts of where the page is now.
    pub(super) fn side(&mut self, on_flash: bool) -> &mut Counts {
        match on_flash {
            true => &mut self.on_flash,
            false => &mut self.off_flash,
        }
    }

    /// Every count, to be changed alike.
    pub(super) fn counts(&mut self) -> [&mut u32; 6] {
        let (on, off) = (&mut self.on_flash, &mut self.off_flash);
        [
            &mut on.reads,
            &mut on.writes,
            &mut on.logical,
            &mut off.reads,
            &mut off.writes,
            &mut off.logical,
        ]
    }

    /// Equations 6.3 to 6.6 with the expansion factors of reads and of writes, both finite and
    /// above 0. (The thesis has one for both.)
    #[must_use]
    pub fn estimates(&self, reads: f64, writes: f64) -> Estimates {
        debug_assert!(reads > 0.0 && reads.is_finite(), "a ratio of rates");
        debug_assert!(writes > 0.0 && writes.is_finite(), "a ratio of rates");
        let (on, off) = (&self.on_flash, &self.off_flash);
        let always = |on: u32, off: u32, alpha| f64::from(on) + alpha * f64::from(off);
        let never = |on: u32, off: u32, alpha| f64::from(off) + f64::from(on) / alpha;
        Estimates {
            reads_always: always(on.reads, off.reads, reads),
            reads_never: never(on.reads, off.reads, reads),
            writes_always: always(on.writes, off.writes, writes),
            writes_never: never(on.writes, off.writes, writes),
        }
    }
}

/// Physical requests a page would have had, had it always or never been on flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimates {
    /// r̂_S (6.3).
    pub reads_always: f64,
    /// r̂_D (6.4).
    pub reads_never: f64,
    /// ŵ_S (6.5).
    pub writes_always: f64,
    /// ŵ_D (6.6).
    pub writes_never: f64,
}

impl Estimates {
    /// Equation 6.2: nanoseconds of device time that flash saves. Negative where flash costs more,
    /// as for a page that the DRAM pool would keep if it were not on flash.
    #[must_use]
    pub fn benefit(&self, costs: &Costs) -> f64 {
        let reads =
            self.reads_never * costs.base_random_read - self.reads_always * costs.flash_read;
        let writes =
            self.writes_never * costs.base_random_write - self.writes_always * costs.flash_write;
        debug_assert!(!(reads + writes).is_nan(), "finite estimates");
        reads + writes
    }
}
