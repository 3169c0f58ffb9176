//! What is under way with a file: it is being cut, or it is about to lose its last name.
//!
//! Every record that the map on flash gets of an open file is made from this (rule R6 of
//! `docs/write-back.md`), whoever writes it and whatever for. So no record takes back a note that
//! another one made.
//!
//! # States of a cut
//! *None* → *noted* (flash may say that base is being cut) → *durable* (base has the new length
//! for good; flash may still say it) → *none* (flash says so no more).
//!
//! # Invariants
//! 1. A cut is noted only when there is none.

use crate::lock::Mutex;
use crate::store::Fate;

#[derive(Clone, Copy, Debug)]
struct Cut {
    length: u64,
    /// Tells it from the cuts before and after it.
    number: u64,
    durable: bool,
}

#[derive(Debug, Default)]
struct State {
    cut: Option<Cut>,
    /// Cuts noted so far.
    cuts: u64,
    loses_name: bool,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(Mutex<State>);

impl UnderWay {
    /// A cut to `length` is about to be noted on flash; its number.
    pub(crate) fn note_cut(&self, length: u64) -> u64 {
        let mut state = self.0.lock();
        assert!(state.cut.is_none(), "invariant 1: the last cut has ended");
        state.cuts += 1;
        let number = state.cuts;
        state.cut = Some(Cut {
            length,
            number,
            durable: false,
        });
        number
    }

    /// The cut that flash may have a note of.
    pub(crate) fn cut(&self) -> Option<u64> {
        let state = self.0.lock();
        state.cut.map(|cut| cut.number)
    }

    /// Base durably has the length that cut `number` made, or refused to make: records say so from
    /// now on. False when the cut has ended already.
    pub(crate) fn cut_is_durable(&self, number: u64) -> bool {
        match &mut self.0.lock().cut {
            Some(cut) if cut.number == number => {
                cut.durable = true;
                true
            }
            _ => false,
        }
    }

    /// Flash has no note of cut `number` that counts.
    pub(crate) fn end_cut(&self, number: u64) {
        self.0.lock().cut.take_if(|cut| cut.number == number);
    }

    /// The last name is about to go, or stays after all.
    pub(crate) fn loses_name(&self, loses: bool) {
        self.0.lock().loses_name = loses;
    }

    /// What a record is to say.
    pub(crate) fn fate(&self) -> Fate {
        let state = self.0.lock();
        let cut = state.cut.filter(|cut| !cut.durable);
        Fate {
            unlinked: state.loses_name,
            cut: cut.map(|cut| cut.length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_every_note() {
        let file = UnderWay::default();
        assert_eq!(file.fate(), Fate::default());
        let first = file.note_cut(5);
        file.loses_name(true);
        let both = Fate {
            unlinked: true,
            cut: Some(5),
        };
        assert_eq!(file.fate(), both);
        assert_eq!(file.cut(), Some(first));
        file.loses_name(false);
        assert!(file.cut_is_durable(first));
        assert_eq!(file.fate(), Fate::default());
        assert_eq!(file.cut(), Some(first), "flash may still say it");
        file.end_cut(first);
        let second = file.note_cut(7);
        file.end_cut(first);
        assert!(!file.cut_is_durable(first), "it has ended");
        assert_eq!(file.cut(), Some(second));
        assert_eq!(file.fate().cut, Some(7));
    }

    #[test]
    #[should_panic(expected = "invariant 1")]
    fn one_cut_at_a_time() {
        let file = UnderWay::default();
        file.note_cut(1);
        file.note_cut(2);
    }
}
