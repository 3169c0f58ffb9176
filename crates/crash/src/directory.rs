//! The names of a base file system, and the mark on its directory: a journal of changes that a
//! power failure cuts somewhere.
//!
//! As ext4 in ordered mode: each change of a name or of the mark is a transaction; a power
//! failure keeps the transactions up to some moment; a sync of any file or directory makes all
//! durable that came before. A sync of a file's data alone does that only as far as the file
//! needs to be found: to where it was made.
//!
//! # Invariants
//! 1. A name stands for one file.
//! 2. The durable names and the pending changes in order give the names as they are now.

use crate::draw::Draw;
use crate::world::FileId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The text of the mark, an attribute of the directory; `None` where there is none.
pub(crate) type Mark = Option<Arc<str>>;

/// Names and what they stand for; `None` takes a name away.
type Change = Vec<(String, Option<FileId>)>;

#[derive(Clone, Debug)]
struct Transaction {
    change: Change,
    /// The file that it makes, if it makes one.
    makes: Option<FileId>,
    /// What becomes of the mark, if that changes.
    mark: Option<Mark>,
}

/// See the module text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    names: BTreeMap<String, FileId>,
    durable: BTreeMap<String, FileId>,
    mark: Mark,
    durable_mark: Mark,
    pending: VecDeque<Transaction>,
}

impl Directory {
    fn apply(names: &mut BTreeMap<String, FileId>, change: &Change) {
        for (name, file) in change {
            match file {
                Some(file) => names.insert(name.clone(), *file),
                None => names.remove(name),
            };
        }
    }

    fn change(&mut self, change: Change, makes: Option<FileId>) {
        Self::apply(&mut self.names, &change);
        let mark = None;
        let transaction = Transaction {
            change,
            makes,
            mark,
        };
        self.pending.push_back(transaction);
    }

    /// The text of the mark.
    pub(crate) fn mark(&self) -> Mark {
        self.mark.clone()
    }

    /// The mark gets another text, or goes.
    pub(crate) fn set_mark(&mut self, mark: Mark) {
        self.mark.clone_from(&mark);
        self.pending.push_back(Transaction {
            change: Vec::new(),
            makes: None,
            mark: Some(mark),
        });
    }

    /// A file is made.
    pub(crate) fn make(&mut self, name: &str, file: FileId) {
        assert!(!self.names.contains_key(name), "invariant 1: {name} exists");
        self.change(vec![(name.into(), Some(file))], Some(file));
    }

    /// A file gets one name more.
    pub(crate) fn link(&mut self, name: &str, file: FileId) {
        assert!(!self.names.contains_key(name), "invariant 1: {name} exists");
        self.change(vec![(name.into(), Some(file))], None);
    }

    /// A name stands for another file; what it stood for loses it.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let file = self.names.get(from).copied();
        assert!(file.is_some(), "{from} exists");
        self.change(vec![(from.into(), None), (to.into(), file)], None);
    }

    /// A name goes.
    pub(crate) fn unlink(&mut self, name: &str) {
        assert!(self.names.contains_key(name), "{name} exists");
        self.change(vec![(name.into(), None)], None);
    }

    /// What a name stands for.
    pub(crate) fn find(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// The names of a file.
    pub(crate) fn names_of(&self, file: FileId) -> impl Iterator<Item = &str> {
        let its = move |(_, of): &(&String, &FileId)| **of == file;
        self.names.iter().filter(its).map(|(name, _)| name.as_str())
    }

    /// Names and files.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.names.iter().map(|(name, file)| (name.as_str(), *file))
    }

    /// Whether a power failure may find the file under some name.
    pub(crate) fn may_come_back(&self, file: FileId) -> bool {
        let made = |change: &Transaction| change.change.iter().any(|(_, of)| *of == Some(file));
        self.durable.values().any(|of| *of == file) || self.pending.iter().any(made)
    }

    /// Whether a power failure may take names back or away.
    pub(crate) fn is_unsynced(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Makes every change durable.
    pub(crate) fn sync(&mut self) {
        self.keep(self.pending.len());
        debug_assert_eq!(self.names, self.durable, "invariant 2");
    }

    /// Makes every change durable up to the one that made `file`.
    pub(crate) fn sync_made(&mut self, file: FileId) {
        let makes = |change: &Transaction| change.makes == Some(file);
        let until = self.pending.iter().rposition(makes);
        self.keep(until.map_or(0, |at| at + 1));
    }

    fn keep(&mut self, count: usize) {
        for transaction in self.pending.drain(..count) {
            Self::apply(&mut self.durable, &transaction.change);
            if let Some(mark) = transaction.mark {
                self.durable_mark = mark;
            }
        }
    }

    /// What is found after a power failure now: how much of the journal is up to a lot; all and
    /// nothing are as likely as the rest.
    pub(crate) fn crash(&self, draw: &mut Draw) -> Self {
        let mut survived = self.clone();
        let pending = self.pending.len() as u64;
        let some = draw.below(pending + 1);
        let count = draw.one(&[0, some, some, pending]);
        survived.keep(count as usize);
        survived.pending.clear();
        survived.names = survived.durable.clone();
        survived.mark = survived.durable_mark.clone();
        survived
    }
}
