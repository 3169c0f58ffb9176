//! Which hint types say something about what a page is worth.
//!
//! Meaningless types would split every hint set into parts of which nothing is known. So pages
//! sampled at their request are grouped by the value of one type, for each type, and the spread of
//! the groups' mean worth is held against what chance alone makes of it: the F of a one-way
//! analysis of variance (Fisher), 1 where the type says nothing. A type stays until its F is below
//! [`LEAVE`], and comes back above [`ENTER`]; the others are 0 in the hint set's number.
//!
//! Cost: O(types) a sample, O(types × 256) when a window of samples closes. Memory: 24 KiB.
//!
//! # Invariants (checked by [`Choice::assert_invariants`])
//! 1. All types saw the same samples: their counts add up to the same.

use crate::hash;
use crate::hint::{HINT_TYPES_MAX, HintSet};
use crate::policy::LearnedHintType;

/// One byte for each hint type: its value, folded.
pub(super) type Values = [u8; HINT_TYPES_MAX];

/// Values told apart, by their last eight bits.
const GROUPS: usize = 256;
/// F below which a type is no longer looked at.
const LEAVE: f64 = 2.0;
/// F above which it is again.
const ENTER: f64 = 4.0;
/// Share of the variance that it must explain as well.
const SHARE: f64 = 0.002;
/// Samples in the first window; each is twice as long as the one before, up to the last.
const WINDOW_FIRST: u32 = 1 << 10;
const WINDOW_LAST: u32 = 1 << 13;

/// Samples with one value of one type.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    samples: f32,
    worth: f32,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    groups: Vec<[Group; GROUPS]>,
    squares: f64,
    samples: u32,
    window: u32,
    used: [bool; HINT_TYPES_MAX],
    /// Share of the variance that no grouping by the type explains, as of the last window.
    impurity: [f64; HINT_TYPES_MAX],
    /// Whether the type had more than one value then.
    varies: [bool; HINT_TYPES_MAX],
}

impl Choice {
    /// Bytes of one.
    pub(super) const BYTES: usize = HINT_TYPES_MAX * size_of::<[Group; GROUPS]>();

    /// All types in use.
    pub(super) fn new() -> Self {
        Self {
            groups: vec![[Group::default(); GROUPS]; HINT_TYPES_MAX],
            squares: 0.0,
            samples: 0,
            window: WINDOW_FIRST,
            used: [true; HINT_TYPES_MAX],
            impurity: [1.0; HINT_TYPES_MAX],
            varies: [false; HINT_TYPES_MAX],
        }
    }

    /// The values by which samples of `hints` are grouped.
    pub(super) fn values(hints: &HintSet) -> Values {
        hints.values().map(|value| value as u8)
    }

    /// `hints` without the types that say nothing.
    pub(super) fn project(&self, hints: &HintSet) -> HintSet {
        let unused = (0..HINT_TYPES_MAX).filter(|position| !self.used[*position]);
        unused.fold(*hints, |hints, position| hints.with(position, 0))
    }

    /// The number that stands for `hints` projected.
    pub(super) fn number(&self, hints: &HintSet) -> u16 {
        hash::of_hints(&self.project(hints)) as u16
    }

    /// A page sampled at a request with `values` was worth `worth` then, from 0 to 1.
    pub(super) fn learn(&mut self, values: &Values, worth: f32) {
        for (groups, value) in self.groups.iter_mut().zip(values) {
            let group = &mut groups[usize::from(*value)];
            group.samples += 1.0;
            group.worth += worth;
        }
        self.squares += f64::from(worth * worth);
        self.samples += 1;
        if self.samples >= self.window {
            self.close();
        }
    }

    /// Every type that had more than one value, purest first.
    pub(super) fn learned(&self) -> Vec<LearnedHintType> {
        let varied = (0..HINT_TYPES_MAX).filter(|position| self.varies[*position]);
        let types = varied.map(|position| LearnedHintType {
            position,
            impurity: self.impurity[position],
            used: self.used[position],
        });
        let mut types: Vec<_> = types.collect();
        types.sort_by(|a, b| a.impurity.total_cmp(&b.impurity));
        types
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<[Group; GROUPS]>()
    }

    /// Panics unless the numbered invariant holds.
    pub(super) fn assert_invariants(&self) {
        let sum = |groups: &[Group; GROUPS]| groups.iter().map(|group| group.samples).sum::<f32>();
        let first = sum(&self.groups[0]);
        for groups in &self.groups {
            assert!(
                (sum(groups) - first).abs() <= 1.0 + first * 1e-3,
                "invariant 1"
            );
        }
    }

    /// Ends the window: decides on every type; what was counted has half its weight from now on.
    fn close(&mut self) {
        for position in 0..HINT_TYPES_MAX {
            let explained = self.explained(position);
            self.varies[position] = explained.is_some();
            let Some((f, share)) = explained else {
                (self.impurity[position], self.used[position]) = (1.0, true);
                continue;
            };
            self.impurity[position] = 1.0 - share;
            let used = &mut self.used[position];
            *used = match *used {
                true => f >= LEAVE && share >= SHARE / 2.0,
                false => f >= ENTER && share >= SHARE,
            };
        }
        for group in self.groups.iter_mut().flatten() {
            group.samples *= 0.5;
            group.worth *= 0.5;
        }
        self.squares *= 0.5;
        self.samples = 0;
        self.window = (2 * self.window).min(WINDOW_LAST);
    }

    /// F of the type at `position`, and the share of the variance it explains; `None` where it had
    /// one value: it explains nothing then, and harms nothing.
    fn explained(&self, position: usize) -> Option<(f64, f64)> {
        let seen = self.groups[position]
            .iter()
            .filter(|group| group.samples >= 0.5);
        let (mut count, mut samples, mut worth, mut between) = (0.0, 0.0, 0.0, 0.0);
        for group in seen {
            let (n, sum) = (f64::from(group.samples), f64::from(group.worth));
            count += 1.0;
            samples += n;
            worth += sum;
            between += sum * sum / n;
        }
        if count < 2.0 {
            return None;
        }
        if samples <= count + 1.0 {
            return Some((f64::INFINITY, 0.0));
        }
        let all = worth * worth / samples;
        let total = (self.squares - all).max(1e-9);
        let between = (between - all).clamp(0.0, total);
        let within = (total - between).max(1e-9);
        let f = (between / (count - 1.0)) / (within / (samples - count));
        // Less what chance explains in the mean.
        let chance = (count - 1.0) * within / (samples - count);
        Some((f, ((between - chance) / total).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is listed is what varies, whether it says something or not.
    #[test]
    fn types_with_one_value_are_not_listed() {
        let mut choice = Choice::new();
        assert_eq!(choice.learned(), []);
        for number in 0..2 * WINDOW_FIRST {
            let lot = hash::mix(u64::from(number), 1);
            let mut values = [7; HINT_TYPES_MAX];
            // The first says all, the second nothing, and the others do not vary.
            (values[0], values[1]) = ((lot % 2) as u8, (lot >> 8) as u8 % 2);
            choice.learn(&values, (lot % 2) as f32);
        }
        let seen: Vec<_> = choice.learned();
        let seen = seen.iter().map(|of| (of.position, of.used));
        assert_eq!(seen.collect::<Vec<_>>(), [(0, true), (1, false)]);
        assert_eq!(choice.used[2..], [true; HINT_TYPES_MAX - 2]);
        assert!(choice.learned()[1].impurity > 0.99);
        choice.assert_invariants();
    }
}
