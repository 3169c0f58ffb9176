//! What `auto` takes of a memory that is bounded: the form of `value`, and who may be the second.
//!
//! Of the memory the miniatures take their fixed part. A finalist may be the second one in life
//! only if it takes a third of the rest at most, and none is raced that could not be called.
//! `value` has what is left beside the largest of those, in the largest form that fits
//! ([`ValueConfig::within`]); where none fits, the largest is not raced. `value` is always raced,
//! in both its ways of counting.
//!
//! Hint sets, of which nobody knows the number beforehand, are not reckoned: CLIC takes about
//! 30 MB for 65,536 of them, the most it has ([`crate::policy::ClicConfig::sets_max`]), in
//! miniature and in life each.
//!
//! Whatever there is of memory, a finalist is not raced in a tier so large that requests would wait
//! while it is made ([`SECOND_SLOTS`]).

use super::{COUNT, sampled};
use crate::policy::{PolicyOptions, ValueConfig};

/// Bytes a slot that each finalist takes as the second one, at most; see the test.
const SECOND: [u64; COUNT] = [0, 0, 240, 96, 40, 8];
/// Slots of a tier in which each finalist may be the second one, at most: it is made, and CLIC's
/// windows close, within one request, and nobody is to wait for that.
const SECOND_SLOTS: [u32; COUNT] = [u32::MAX, u32::MAX, 1 << 17, 1 << 18, 1 << 20, 1 << 20];
/// Bytes that all miniatures take for each of their slots, at most.
const MINIATURES: u64 = 1300;
/// The same whatever their size: the fixed part of `value`, twice.
const MINIATURES_FIXED: u64 = 2 << 20;
/// A second one may take one part in so many.
const SECOND_SHARE: u64 = 3;

/// See the module text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    /// Parameters of `value`.
    pub value: ValueConfig,
    /// Which finalists are raced; `value` always is, in both its ways of counting.
    pub raced: [bool; COUNT],
}

impl Fit {
    /// All of `auto`.
    pub(crate) fn whole(options: &PolicyOptions) -> Self {
        Self {
            value: options.value,
            raced: std::array::from_fn(|at| options.capacity <= SECOND_SLOTS[at]),
        }
    }

    /// What fits `options.memory`; `None` where nothing does.
    pub(crate) fn of(options: &PolicyOptions) -> Option<Self> {
        let (slots, whole) = (options.capacity, Self::whole(options));
        let Some(memory) = options.memory else {
            let value = options.value.within(slots, u64::MAX)?;
            return Some(Self { value, ..whole });
        };
        let rest = memory.checked_sub(miniatures(slots))?;
        let of = |at: usize| SECOND[at] * u64::from(slots);
        let mut most = rest / SECOND_SHARE;
        loop {
            let raced: [bool; COUNT] = std::array::from_fn(|at| whole.raced[at] && of(at) <= most);
            let seconds = (0..COUNT).filter(|at| raced[*at]).map(of);
            let largest = seconds.max().unwrap_or(0);
            if let Some(value) = options.value.within(slots, rest - largest) {
                return Some(Self { value, raced });
            }
            most = largest.checked_sub(1)?;
        }
    }

    /// As little as there can be.
    pub(crate) fn smallest(options: &PolicyOptions) -> Self {
        Self {
            value: options.value.smallest(options.capacity),
            raced: std::array::from_fn(|at| SECOND[at] == 0),
        }
    }

    /// Bytes that `auto` takes so, at most.
    pub(crate) fn bytes(&self, slots: u32) -> u64 {
        let seconds = (0..COUNT).filter(|at| self.raced[*at]).map(|at| SECOND[at]);
        let second = seconds.max().unwrap_or(0) * u64::from(slots);
        miniatures(slots) + self.value.bytes(slots) + second
    }
}

/// Bytes of the miniatures of a tier of `slots` slots, at most.
fn miniatures(slots: u32) -> u64 {
    MINIATURES_FIXED + MINIATURES * u64::from(sampled(slots))
}

#[cfg(test)]
mod tests {
    use super::super::{Auto, FINALISTS, VALUES};
    use super::*;
    use crate::policy::{DEFAULT, TierPolicy, build, remark, standard};

    fn options(slots: u32, memory: u64) -> PolicyOptions {
        PolicyOptions {
            memory: Some(memory),
            ..PolicyOptions::new(slots)
        }
    }

    /// What is said to be the most is no less than what policies say of themselves.
    #[test]
    fn nothing_takes_more_than_is_reckoned() {
        // Around a power of two tables take the most a slot, and the least.
        for slots in [1000, 4096, 15_000, 65_537, 90_000, 131_072] {
            let options = PolicyOptions::new(slots);
            for (name, most) in FINALISTS.iter().zip(SECOND).skip(VALUES) {
                let policy = build(name, &options).expect("a policy");
                let bytes = policy.bytes_full() as u64;
                // A few fixed bytes do not count.
                assert!(
                    bytes < most * u64::from(slots) + 4096,
                    "{name} {slots} {bytes}"
                );
            }
            let whole = Fit::whole(&options);
            let bytes = Auto::new(&options).bytes_full() as u64;
            let reckoned = miniatures(slots) + whole.value.bytes(slots);
            assert!(bytes <= reckoned, "{slots}: {bytes} {reckoned}");
        }
    }

    /// From all to nothing: less memory never makes a larger `auto`, and never one too large.
    #[test]
    fn auto_takes_no_more_than_it_may() {
        let slots = 100_000;
        let whole = Fit::whole(&PolicyOptions::new(slots)).bytes(slots);
        let mut before = whole;
        let mut seen = Vec::new();
        for memory in (0..=whole * 3 / 2).rev().step_by(1 << 19) {
            let Some(fit) = Fit::of(&options(slots, memory)) else {
                assert_eq!(standard(&options(slots, memory)), "tac");
                assert!(fit_never_again(slots, memory));
                break;
            };
            assert!(fit.bytes(slots) <= memory);
            // `value` may get more room where a second one goes; both together never.
            assert!(fit.bytes(slots) <= before, "{memory}");
            before = fit.bytes(slots);
            if !seen.contains(&fit) {
                seen.push(fit);
            }
        }
        assert!(seen.len() >= 5, "{seen:?}");
        assert_eq!(seen[0], Fit::whole(&PolicyOptions::new(slots)));
        let last = seen.last().expect("some");
        assert_eq!(*last, Fit::smallest(&PolicyOptions::new(slots)));
        assert!(Auto::new(&options(slots, 0)).bytes() as u64 <= last.bytes(slots));
    }

    fn fit_never_again(slots: u32, below: u64) -> bool {
        (0..below)
            .step_by(1 << 19)
            .all(|memory| Fit::of(&options(slots, memory)).is_none())
    }

    /// In a large tier nobody is raced who would be made too slowly; in the largest `value` alone.
    #[test]
    fn large_tiers_race_fewer() {
        let raced = |slots| Fit::whole(&PolicyOptions::new(slots)).raced;
        assert_eq!(raced(1 << 17), [true; COUNT]);
        let without = |slots| {
            let raced = raced(slots);
            (0..COUNT)
                .filter(|at| !raced[*at])
                .map(|at| FINALISTS[at])
                .collect::<Vec<_>>()
        };
        assert_eq!(without((1 << 17) + 1), ["clic"]);
        assert_eq!(without((1 << 18) + 1), ["clic", "arc"]);
        let largest = PolicyOptions::new((1 << 20) + 1);
        assert_eq!(without(largest.capacity), ["clic", "arc", "tac", "lru"]);
        let fit = Fit::whole(&largest);
        assert_eq!(
            fit.bytes(largest.capacity),
            fit.value.bytes(largest.capacity) + miniatures(largest.capacity)
        );
    }

    /// Who is not raced leads never, and is shown nowhere.
    #[test]
    fn only_what_has_room_is_raced() {
        let slots = 100_000;
        let smallest = Fit::smallest(&PolicyOptions::new(slots));
        let auto = Auto::new(&options(slots, smallest.bytes(slots)));
        let learned = auto.learned().expect("a race");
        let finalists = learned.race.expect("a race").finalists;
        let names: Vec<_> = finalists.iter().map(|finalist| finalist.name).collect();
        assert_eq!(names, ["value", "value-time"]);
    }

    /// The default falls back, and says why; a policy that is named does not.
    #[test]
    fn the_default_says_what_memory_made_of_it() {
        let slots = 1_000_000;
        let built = |name, memory| {
            let options = options(slots, memory);
            let policy = build(name, &options).expect("a policy");
            (policy.name(), remark(name, &options))
        };
        let (name, said) = built(DEFAULT, 1 << 20);
        assert_eq!(name, "tac");
        let said = said.expect("a sentence");
        assert!(
            said.starts_with("tac decides, because auto needs "),
            "{said}"
        );
        assert!(said.ends_with("tier.policy_memory is 1.0 MiB"), "{said}");
        assert_eq!(built("lru", 1 << 20), ("lru", None));
        assert_eq!(built(DEFAULT, 2 << 30), ("auto", None));
        let (name, said) = built("value", 200 << 20);
        assert_eq!(name, "value");
        assert!(said.is_some_and(|said| said.contains("less than it would like")));
        let (name, said) = built("value", 1 << 20);
        assert_eq!(name, "value");
        assert!(said.is_some_and(|said| said.contains("more than allowed")));
        let unbounded = PolicyOptions::new(slots);
        assert_eq!(remark(DEFAULT, &unbounded), None);
        assert_eq!(standard(&unbounded), "auto");
    }
}
