//! What happened, counted.

use crate::health::Fault;
use crate::policy::{Refusal, Removal};

/// Where a page's bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Source {
    /// A DRAM frame.
    Pool,
    /// The write buffer: admitted, not yet on flash.
    Buffer,
    /// A flash slot.
    Flash,
    /// Base.
    Base,
}

impl Source {
    /// Every source, fastest first.
    pub const ALL: [Self; 4] = [Self::Pool, Self::Buffer, Self::Flash, Self::Base];

    /// Name used in statistics and traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Buffer => "buffer",
            Self::Flash => "flash",
            Self::Base => "base",
        }
    }
}

/// Totals since the hierarchy was made. Arrays are indexed by the enum of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Page reads by where they were served; pool reads are counted by the pool's executor.
    pub reads: [u64; Source::ALL.len()],
    /// Those of flash that were of pinned objects, in slots of their own.
    pub kept_reads: u64,
    /// Those of flash whose bytes came from base, with their neighbours.
    pub bridged: u64,
    /// Page writes.
    pub writes: u64,
    /// Page writes that updated a copy on flash.
    pub write_hits: u64,
    /// Pages admitted.
    pub admissions: u64,
    /// Those among them that were brought by warming, past the policy.
    pub warmed: u64,
    /// Pages not admitted, by [`Refusal`].
    pub refusals: [u64; Refusal::ALL.len()],
    /// Pages that left flash, by [`Removal`].
    pub removals: [u64; Removal::ALL.len()],
    /// Flash I/Os that failed, by [`Fault`].
    pub faults: [u64; Fault::ALL.len()],
    /// Page writes to flash that finished well.
    pub flash_writes: u64,
    /// Pages evicted from the DRAM pool.
    pub pool_evictions: u64,
    /// Page writes that stayed in the DRAM pool (write-back).
    pub absorbed: u64,
    /// Dirty pages written out to flash, by [`Cleaning`].
    pub cleaned_to_flash: [u64; Cleaning::ALL.len()],
    /// Dirty pages written out to base, by [`Cleaning`].
    pub cleaned_to_base: [u64; Cleaning::ALL.len()],
    /// Dirty pages that went to the reserve because the policy refused or evicted them.
    pub reserved: u64,
    /// Dirty pages on flash that were written back to base.
    pub destaged: u64,
    /// Copies in doubt that were what base holds.
    pub doubts_verified: u64,
    /// Copies in doubt that were not, or were given up unread.
    pub doubts_given_up: u64,
}

/// Why a dirty page was written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cleaning {
    /// It is among the next to leave the pool (replacement write).
    Replacement,
    /// It has been dirty for long (recovery write).
    Recovery,
    /// A sync asked for it, or there was no frame for it.
    Synchronous,
}

impl Cleaning {
    /// Every reason, in numeric order.
    pub const ALL: [Self; 3] = [Self::Replacement, Self::Recovery, Self::Synchronous];

    /// Name used in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replacement => "replacement",
            Self::Recovery => "recovery",
            Self::Synchronous => "synchronous",
        }
    }
}
