//! What a policy has learned about hints, in a form to be printed.

use crate::hint::HintSet;

/// The learned state of a policy: `thermocline status` and `thermocline simulate` print it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// Windows of requests closed so far (thesis §3.2.3).
    pub windows: u64,
    /// Requests in one window.
    pub window: u64,
    /// Hint sets with their priority, highest priority first.
    pub hint_sets: Vec<LearnedHintSet>,
    /// Hint types with their impurity (thesis §5.2), purest first; empty where the policy does
    /// not choose among hint types.
    pub hint_types: Vec<LearnedHintType>,
    /// What pages turned out to be worth by hint set and age; empty where that is not kept.
    pub worth: Vec<LearnedWorth>,
    /// Who leads; `None` where the policy follows no other.
    pub race: Option<LearnedRace>,
}

/// How the policies that `auto` may follow do on its sample.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedRace {
    /// The policies.
    pub finalists: Vec<LearnedFinalist>,
    /// Changes of leader.
    pub changes: u64,
    /// Requests of the sample.
    pub requests: u64,
    /// Slots of each miniature.
    pub slots: u32,
}

/// One policy in that race. Ratios are over all requests of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedFinalist {
    /// The policy.
    pub name: &'static str,
    /// Whether it leads; it decides once it knows all that is on flash.
    pub leads: bool,
    /// Read hits a request.
    pub hits: f64,
    /// Pages written to flash a request.
    pub flash_writes: f64,
    /// Base's time saved less the price of flash writes, random reads a request.
    pub score: f64,
    /// How far its miniature is ahead of the tier since it last was behind, less what it has to be
    /// better by, in random reads.
    pub ahead: f64,
    /// The lead that decides.
    pub needed: f64,
}

/// What a page is worth some time after its last request (`value`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedWorth {
    /// The hint set of the page's last request; types that say nothing are 0 (unknown).
    pub hints: HintSet,
    /// Requests since then, at least; fewer than twice as many and one more.
    pub age: u64,
    /// Mean of e^(-d/H), d being the requests until it was read, H the horizon; 0 for a page
    /// that was written first.
    pub worth: f64,
    /// Samples that the mean is over, at most 1024.
    pub samples: u32,
}

/// One hint set H (thesis §3.2.1). Counts are those of the last closed window, smoothed where the
/// policy smooths them (§3.2.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedHintSet {
    /// H. Of a policy that keeps only some hint types, the others are 0 (unknown).
    pub hints: HintSet,
    /// N(H): requests with H.
    pub requests: f64,
    /// Nr(H): those whose page was read next.
    pub rereads: f64,
    /// D(H): their mean re-reference distance, in requests; 0 where there was none.
    pub distance: f64,
    /// Pr(H), in hits per page and request; for DP-CLIC the peak of its curve.
    pub priority: f64,
    /// Pages on flash whose last request carried H.
    pub resident: u32,
}

/// One hint type as HYB1 sees it (thesis §5.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedHintType {
    /// Its position in the hint set.
    pub position: usize,
    /// Weighted impurity of the partition by this type; lower separates priorities better.
    pub impurity: f64,
    /// Whether hint sets are told apart by it now.
    pub used: bool,
}
