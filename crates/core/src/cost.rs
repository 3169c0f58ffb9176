//! What a page costs on each device, in nanoseconds: the numbers that decide.

/// Service times of one page (TAC §3.1; thesis §6.2, figure 6.3). Measured by
/// `thermocline calibrate` or taken from a device model; nanoseconds per page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// R_D: random page read from base.
    pub base_random_read: f64,
    /// S_D: one page of a sequential read from base.
    pub base_sequential_read: f64,
    /// W_D: random page write to base.
    pub base_random_write: f64,
    /// R_S: random page read from flash.
    pub flash_read: f64,
    /// W_S: random page write to flash.
    pub flash_write: f64,
}

impl Default for Costs {
    /// A 7200-rpm disk (TAC §4.1: 8.2 ms seek, 4.17 ms rotation, 1070 Mbit/s, 8 KiB pages)
    /// above a SATA-class flash device.
    fn default() -> Self {
        Self {
            base_random_read: 12_430_000.0,
            base_sequential_read: 61_000.0,
            base_random_write: 12_430_000.0,
            flash_read: 60_000.0,
            flash_write: 60_000.0,
        }
    }
}

/// How many times as long as one of flash a random read of base must take for holes to be bridged.
const BRIDGED_FROM: f64 = 4.0;

impl Costs {
    /// Pages between two runs of pages to be read from base, at most, for one read over all of
    /// them to be the shorter: the pages between, read in order, cost no more than what the second
    /// read costs beyond its transfer, which on a disk is a seek and half a turn. 0 where a random
    /// read of base is not much slower than one of flash: such a base has no arm, it serves others
    /// meanwhile, and bytes read in vain are taken from them.
    #[must_use]
    pub fn bridge_pages(&self) -> u64 {
        let seek = self.base_random_read - self.base_sequential_read;
        if self.base_random_read < BRIDGED_FROM * self.flash_read || seek <= 0.0 {
            return 0;
        }
        // Saturates where a page of a sequential read costs nothing.
        (seek / self.base_sequential_read) as u64
    }

    /// Time saved by finding a randomly read page on flash (TAC eq. 1, ΔR). Never negative: where
    /// flash is the slower device nothing is saved.
    #[must_use]
    pub fn random_saving(&self) -> f64 {
        (self.base_random_read - self.flash_read).max(0.0)
    }

    /// Time saved by finding a sequentially read page on flash (TAC eq. 1, ΔS). Never negative:
    /// the paper assumes that random flash reads beat sequential disk reads (§1.3); where they do
    /// not, caching a scan saves nothing.
    #[must_use]
    pub fn sequential_saving(&self) -> f64 {
        (self.base_sequential_read - self.flash_read).max(0.0)
    }

    /// Time saved by writing a page to flash instead of base (thesis eq. 6.1, W_D - W_S). Never
    /// negative.
    #[must_use]
    pub fn write_saving(&self) -> f64 {
        (self.base_random_write - self.flash_write).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_bridged_where_base_seeks() {
        // 12.43 ms against 61 us a page: 202 pages of 8 KiB go by in one seek.
        assert_eq!(Costs::default().bridge_pages(), 202);
        let base = |random, sequential| Costs {
            base_random_read: random,
            base_sequential_read: sequential,
            ..Costs::default()
        };
        assert_eq!(base(1_000_000.0, 65_000.0).bridge_pages(), 14);
        assert_eq!(base(1_000_000.0, 600_000.0).bridge_pages(), 0);
        assert_eq!(base(1_000_000.0, 0.0).bridge_pages(), u64::MAX);
        assert_eq!(base(61_000.0, 61_000.0).bridge_pages(), 0);
        // Base is flash itself, or as fast.
        assert_eq!(base(100_000.0, 3_000.0).bridge_pages(), 0);
        assert_eq!(base(0.0, 0.0).bridge_pages(), 0);
    }

    #[test]
    fn savings_are_never_negative() {
        let slow_flash = Costs {
            flash_read: 1e9,
            ..Costs::default()
        };
        assert_eq!(slow_flash.random_saving(), 0.0);
        assert_eq!(slow_flash.sequential_saving(), 0.0);
        let costs = Costs::default();
        assert!(costs.random_saving() > costs.sequential_saving());
    }
}
