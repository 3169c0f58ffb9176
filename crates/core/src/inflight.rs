//! Pages with I/O under way: many readers or one writer a page.
//!
//! # States of a page
//! *Idle* (not in the table) · *read by n* · *being written*. A writer that finds readers leaves a
//! mark; new readers then wait, so a hot page cannot starve its writer.
//!
//! # Invariants
//! 1. A page has readers or a writer, never both.
//! 2. An entry exists only while the page has a reader, a writer or a waiting writer's mark.
//!
//! A *doomed* page was trimmed while being read: what was read is old and must not be kept.

use crate::hash;
use crate::page::{ObjectId, PageId};
use hashbrown::HashTable;

#[derive(Clone, Copy, Debug)]
struct Entry {
    page: PageId,
    readers: u32,
    writing: bool,
    writer_waits: bool,
    contended: bool,
    doomed: bool,
    asked: bool,
}

/// How a page's I/O ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Somebody waits for this page.
    pub wake: bool,
    /// The page was trimmed meanwhile.
    pub doomed: bool,
    /// The policy was told of the write already (see [`InFlight::mark_asked`]).
    pub asked: bool,
}

/// The table of pages with I/O under way; its size follows the requests in flight.
#[derive(Debug, Default)]
pub struct InFlight {
    entries: HashTable<Entry>,
}

impl InFlight {
    fn entry(&mut self, page: PageId) -> &mut Entry {
        let new = Entry {
            page,
            readers: 0,
            writing: false,
            writer_waits: false,
            contended: false,
            doomed: false,
            asked: false,
        };
        let eq = |e: &Entry| e.page == page;
        self.entries
            .entry(hash::of_page(page), eq, |e| hash::of_page(e.page))
            .or_insert(new)
            .into_mut()
    }

    /// Starts a read; false when the caller must wait.
    pub fn start_read(&mut self, page: PageId) -> bool {
        let entry = self.entry(page);
        if entry.writing || entry.writer_waits {
            entry.contended = true;
            return false;
        }
        entry.readers += 1;
        true
    }

    /// Starts a write; false when the caller must wait.
    pub fn start_write(&mut self, page: PageId) -> bool {
        let entry = self.entry(page);
        if entry.writing || entry.readers > 0 {
            entry.contended = true;
            entry.writer_waits = true;
            return false;
        }
        entry.writing = true;
        entry.writer_waits = false;
        true
    }

    /// Ends a read or write that was started.
    pub fn end(&mut self, page: PageId) -> Ended {
        let entry = self.entry(page);
        assert!(entry.writing != (entry.readers > 0), "invariant 1");
        match entry.writing {
            true => entry.writing = false,
            false => entry.readers -= 1,
        }
        let ended = Ended {
            wake: entry.contended,
            doomed: entry.doomed,
            asked: std::mem::take(&mut entry.asked),
        };
        if entry.readers == 0 {
            let kept = entry.writer_waits;
            entry.contended = false;
            entry.doomed = false;
            if !kept {
                self.remove(page);
            }
        }
        ended
    }

    /// Starts a read if that can be done at once; leaves no mark otherwise.
    pub fn try_read(&mut self, page: PageId) -> bool {
        let found = self.get(page);
        let free = found.is_none_or(|e| !e.writing && !e.writer_waits);
        free && self.start_read(page)
    }

    /// Starts a write if that can be done at once; leaves no mark otherwise.
    pub fn try_write(&mut self, page: PageId) -> bool {
        self.get(page).is_none() && self.start_write(page)
    }

    /// Whether `page` is being written, or somebody waits to write it.
    #[must_use]
    pub fn has_writer(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|e| e.writing || e.writer_waits)
    }

    /// Notes on the write of `page` that the policy was told of it.
    pub fn mark_asked(&mut self, page: PageId) {
        let entry = self.entry(page);
        assert!(entry.writing, "only a write is marked");
        entry.asked = true;
    }

    fn get(&self, page: PageId) -> Option<&Entry> {
        self.entries.find(hash::of_page(page), |e| e.page == page)
    }

    fn remove(&mut self, page: PageId) {
        if let Ok(entry) = self
            .entries
            .find_entry(hash::of_page(page), |e| e.page == page)
        {
            entry.remove();
        }
    }

    /// Marks the pages `first..=last` of `object` that are in flight as doomed.
    pub fn doom(&mut self, object: ObjectId, first: u64, last: u64) {
        for entry in self.entries.iter_mut() {
            if entry.page.object == object && (first..=last).contains(&entry.page.index) {
                entry.doomed = true;
            }
        }
    }

    /// Whether `page` was trimmed while reads of it that go on began before.
    #[must_use]
    pub fn is_doomed(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|e| e.doomed)
    }

    /// Whether `page` is being written.
    #[must_use]
    pub fn is_written(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|e| e.writing)
    }

    /// Whether `page` is being read.
    #[must_use]
    pub fn is_read(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|e| e.readers > 0)
    }

    /// Pages `first..=last` of `object` with I/O under way, in no order. O(pages in flight).
    pub fn in_range(
        &self,
        object: ObjectId,
        first: u64,
        last: u64,
    ) -> impl Iterator<Item = PageId> + '_ {
        let pages = self.entries.iter().map(|e| e.page);
        pages.filter(move |p| p.object == object && (first..=last).contains(&p.index))
    }

    /// Whether `page` has I/O under way.
    #[must_use]
    pub fn is_busy(&self, page: PageId) -> bool {
        let found = self.get(page);
        found.is_some_and(|e| e.writing || e.readers > 0)
    }

    /// Panics unless the numbered invariants hold.
    pub fn assert_invariants(&self) {
        for e in &self.entries {
            assert!(!(e.writing && e.readers > 0), "invariant 1");
            assert!(e.writing || e.readers > 0 || e.writer_waits, "invariant 2");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PageId = PageId::new(ObjectId(1), 7);

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut table = InFlight::default();
        assert!(table.start_read(P) && table.start_read(P));
        assert!(!table.start_write(P));
        assert!(
            !table.start_read(P),
            "a waiting writer comes before new readers"
        );
        assert!(table.end(P).wake);
        table.assert_invariants();
        table.end(P);
        assert!(table.start_write(P));
        assert!(!table.start_read(P));
        assert!(table.end(P).wake);
        assert!(!table.is_busy(P));
        assert_eq!(table.entries.len(), 0, "idle pages leave no entry");
    }

    #[test]
    fn a_trim_dooms_what_is_in_flight_only() {
        let mut table = InFlight::default();
        assert!(table.start_read(P));
        table.doom(P.object, 0, 6);
        table.doom(ObjectId(2), 0, u64::MAX);
        assert!(!table.end(P).doomed);
        assert!(table.start_read(P));
        table.doom(P.object, 7, 7);
        assert!(table.end(P).doomed);
        assert!(table.start_read(P));
        assert!(!table.end(P).doomed);
    }
}
