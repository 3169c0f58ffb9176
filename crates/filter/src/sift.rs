//! An iterator that hides that answers come later.

use crate::error::FilterError;
use crate::key::Key;
use crate::probe::Probe;
use std::collections::VecDeque;

/// See [`crate::Filter::sift`]. After an error it ends.
pub struct Sift<I: Iterator, F> {
    items: I,
    key: F,
    /// None when all is asked, or after an error.
    probe: Option<Probe>,
    /// Items by ticket, those whose answers are due.
    waiting: Vec<Option<I::Item>>,
    /// Tickets that are free again.
    free: Vec<usize>,
    ready: VecDeque<(I::Item, bool)>,
}

impl<I: Iterator, F> std::fmt::Debug for Sift<I, F> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("Sift");
        let waiting = self.waiting.len() - self.free.len();
        out.field("waiting", &waiting)
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl<I, F> Sift<I, F>
where
    I: Iterator,
    F: for<'k> Fn(&'k I::Item) -> Key<'k>,
{
    pub(crate) fn new(items: I, key: F, probe: Probe) -> Self {
        Self {
            items,
            key,
            probe: Some(probe),
            waiting: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Asks for one more item, or for the last answers.
    fn advance(&mut self, mut probe: Probe) -> Result<(), FilterError> {
        let (waiting, free, ready) = (&mut self.waiting, &mut self.free, &mut self.ready);
        let Some(item) = self.items.next() else {
            probe.finish(|ticket, maybe| {
                let item = waiting[ticket as usize].take();
                ready.extend(item.map(|item| (item, maybe)));
            })?;
            let all = waiting.iter().all(Option::is_none);
            assert!(all, "every question was answered");
            return Ok(());
        };
        let ticket = free.pop().unwrap_or(waiting.len());
        if ticket == waiting.len() {
            waiting.push(None);
        }
        let kept = waiting[ticket].insert(item);
        // The key is the item's own, and the item is kept where the answers are looked up.
        let hashed = probe.question((self.key)(kept))?;
        probe.put(hashed, ticket as u64, |ticket, maybe| {
            let item = waiting[ticket as usize].take();
            ready.extend(item.map(|item| (item, maybe)));
            free.push(ticket as usize);
        })?;
        self.probe = Some(probe);
        Ok(())
    }
}

impl<I, F> Iterator for Sift<I, F>
where
    I: Iterator,
    F: for<'k> Fn(&'k I::Item) -> Key<'k>,
{
    type Item = Result<(I::Item, bool), FilterError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(Ok(answer));
            }
            let probe = self.probe.take()?;
            if let Err(error) = self.advance(probe) {
                // Answers that came with it are given up: nothing follows an error.
                self.ready.clear();
                return Some(Err(error));
            }
        }
    }
}
