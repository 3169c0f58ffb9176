//! Syncs of one base file that run at the same time.
//!
//! All users of an object share base's open file description, and the system tells a description
//! of a lost write once (`device/witness.rs`). A sync that was not told must not be acknowledged
//! before the one that was told in its place has counted the failure.
//!
//! A sync begins, goes through the shared description or through a witness, and ends; a failure is
//! counted before the end.
//! 1. One sync at a time goes through the shared description: what an earlier one was told of is
//!    counted.
//! 2. A sync that finds it taken goes through a witness made now, which is told of what is lost
//!    from now on and of what nobody was told of yet. For the rest it waits until all syncs that
//!    began before it have ended. Those that begin later are never waited for.
//! 3. The destager's witness was made before its writes. It has its number, so that others wait
//!    for it, and waits for nobody: a sync that hangs does not stop it.

use crate::lock::{Condvar, Mutex};

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Numbers of the syncs under way, ascending.
    under_way: Vec<u64>,
    /// The one of them that goes through the shared description.
    shared: Option<u64>,
}

/// A sync under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    /// A sync begins. It has the shared description if `shared` and nobody else has it.
    pub(crate) fn begin(&self, shared: bool) -> Turn<'_> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let newest = state.under_way.last();
        assert!(
            newest.is_none_or(|newest| *newest < number),
            "numbers ascend"
        );
        state.under_way.push(number);
        if shared && state.shared.is_none() {
            state.shared = Some(number);
        }
        Turn {
            turns: self,
            number,
        }
    }
}

impl Turn<'_> {
    /// Whether it has the shared description.
    pub(crate) fn is_shared(&self) -> bool {
        self.turns.state.lock().shared == Some(self.number)
    }

    /// Waits for the shared description.
    pub(crate) fn share(&self) {
        let mut state = self.turns.state.lock();
        while state.shared.is_some_and(|other| other != self.number) {
            state = self.turns.ended.wait(state);
        }
        assert!(
            state.under_way.contains(&self.number),
            "invariant 1: who has it is under way"
        );
        state.shared = Some(self.number);
    }

    /// Waits until all syncs that began before this one have ended.
    pub(crate) fn wait_for_earlier(&self) {
        let mut state = self.turns.state.lock();
        assert!(
            state.shared != Some(self.number),
            "invariant 1: who has it waits for nobody"
        );
        while state
            .under_way
            .first()
            .is_some_and(|&first| first < self.number)
        {
            state = self.turns.ended.wait(state);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        let at = state.under_way.binary_search(&self.number);
        let Ok(at) = at else {
            crate::lock::die("a sync of base ended that is not under way");
        };
        state.under_way.remove(at);
        state.shared.take_if(|shared| *shared == self.number);
        drop(state);
        self.turns.ended.notify_all();
    }
}
