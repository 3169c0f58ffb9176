//! Learning from hints, for CLIC and its descendants (thesis chapters 3 to 5).
//!
//! [`HintedPages`] is everything that CLIC and DP-CLIC share: of every page on flash, and of
//! five times as many that are not (the *outqueue*), with which hint set and when it was last
//! requested; from that, window by window, what happens after a request with a hint set; from
//! that the *groups* of hint sets that have a priority; and the pages on flash by group, most
//! recent request first. Which page is the victim is left to the policy.
//!
//! ```text
//! request --> pages: last hint set, distance --> learning: counters of this window
//!                                                    | window closes
//!             pages by group  <----- regroup ---- groups: priorities in force
//! ```
//!
//! *Cost*: O(1) expected a request; O(hint sets) when a window closes, and O(slots log slots)
//! when hint sets changed their group then.
//!
//! *Memory*: 24 bytes a slot; 31 to 38 bytes an outqueue entry; 64 to 74 bytes a hint set that a
//! page remembers; a counter and a group each about 100 bytes and what the policy adds.

mod counting;
mod groups;
mod impurity;
mod learning;
mod outqueue;
mod pages;
mod sets;
mod space_saving;

pub use counting::{Counted, Counting, Counts, Evidence};
pub use groups::{Group, GroupId, Groups, HintTypes};
pub use learning::Learning;
pub use pages::{HintedPages, Seen};
pub use sets::{HintSets, SetId};
pub use space_saving::SpaceSaving;

use super::clic::Ties;

/// Which hint sets are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintKeys {
    /// All (§3.2), up to [`ClicConfig::sets_max`].
    All,
    /// The most frequent [`ClicConfig::k`] of a window (§3.3.1).
    TopK,
    /// Those most frequent when only the [`ClicConfig::types`] hint types that say most are
    /// looked at (§5.1): one window to choose the types, one to count, and again.
    Hybrid,
}

/// Parameters of learning from hints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClicConfig {
    /// Requests in a window; 0 means twice the number of slots, at least 1000 and at most 10^6.
    /// (§3.2.3: 10^6, for 60 000 to 300 000 slots and traces of at least 2.6 million requests;
    /// a small tier sees the same behaviour, and has to learn it, in fewer requests.)
    pub window: u64,
    /// How fast earlier windows are forgotten, in (0, 1]: what they counted has weight 1 - `r`
    /// for every window since (§3.2.3: 1, with windows several times as long).
    pub r: f64,
    /// Outqueue entries per slot (§3.4.1: 5).
    pub outqueue_per_page: u32,
    /// The most hint sets that are told apart at a time; requests with any other are taken for
    /// worthless (the thesis has no bound).
    pub sets_max: u32,
    /// Hint sets counted by top-k and hybrid (§3.4.4: 100).
    pub k: u32,
    /// Hint types kept by hybrid (§5.3: 3).
    pub types: u32,
    /// Buckets of a re-reference histogram of DP-CLIC at most (§4.6: 3000; §4.6.3: 200 do).
    pub buckets: u32,
    /// Distances per bucket; 0 means a sixteenth of the slots (§4.6: 5000, which is a twelfth to
    /// a sixtieth).
    pub bucket_width: u64,
    /// Reads of a hint set at which DP-CLIC's curve and CLIC's priority weigh the same; 0: the
    /// curve alone, as in the thesis.
    pub evidence: u32,
    /// Whether a newcomer replaces a page of equal priority (figure 3.7, line 12: never).
    pub ties: Ties,
}

impl Default for ClicConfig {
    fn default() -> Self {
        Self {
            window: 0,
            r: 0.3,
            outqueue_per_page: 5,
            sets_max: 1 << 16,
            k: 100,
            types: 3,
            buckets: 256,
            bucket_width: 0,
            evidence: 10_000,
            ties: Ties::Informed,
        }
    }
}

impl ClicConfig {
    /// Requests in a window of a tier of `capacity` slots.
    #[must_use]
    pub fn window_of(&self, capacity: u32) -> u64 {
        match self.window {
            0 => (2 * u64::from(capacity)).clamp(1000, 1_000_000),
            given => given,
        }
    }

    /// Distances in a bucket of a re-reference histogram in a tier of `capacity` slots.
    #[must_use]
    pub fn bucket_width_of(&self, capacity: u32) -> u64 {
        match self.bucket_width {
            0 => u64::from(capacity / 16).max(1),
            given => given,
        }
    }
}
