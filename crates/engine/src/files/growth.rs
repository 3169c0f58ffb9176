//! Files that grow in write-back: base gets the length at once, the bytes later.
//!
//! Before a page that base does not have is absorbed, base is made as long as that page reaches,
//! with room set aside ([`Device::reserve`](crate::device::Device::reserve)), and without moving a
//! byte. From then on it is a page like any other: a file that dies soon never reaches base but
//! for its length.
//!
//! - *Length* is base's, as ever: nothing else knows one. What the tier absorbs are whole pages;
//!   the last part of a file, which fills no page, is written to base.
//! - *Lack of room* (`ENOSPC`, `EDQUOT`) is told to the writer, at once: room is set aside for all
//!   pages of the request before any of them is absorbed. Where base cannot set room aside, pages
//!   that make the file longer are written to base.
//! - *A sync* owes base one, for the length: what flash has past base's durable end is dropped
//!   after a crash (`drop_past_end`), so no sync is acknowledged before base has the length for
//!   good. A crash before that leaves zeros, or the former length, as of any file that was not
//!   synced.
//! - *A cut* holds the object's layout alone, and this holds it shared: neither undoes the other's
//!   length. A page that is cut away after its room was set aside goes to base, which makes the
//!   file longer again.
//! - *A page that the policy refuses* goes where refused pages go: the reserve on flash, and when
//!   that is full base, with all pages of the request behind it in one I/O.
//! - *A long stream* (requests as long as the longest I/O of base) goes to base at once: it costs
//!   base no more than writing back would, and flash nothing.
//! - *What clean copies say*: no bytes of base change but from none to zeros, and those are what
//!   anybody reads of them. So no region has to be marked (rule R1).
//!
//! # Ahead
//! Room for single pages of several files that grow at once would lie page by page in turn. So some
//! more is set aside behind the end, a quarter of the file, and given back when it is closed. A
//! crash may leave it there; it is used when the file grows on, and gone when it is cut.

use crate::engine::Engine;
use crate::files::object::Object;
use crate::lock::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::mutant::Mutant;
use crate::request::RUN_BYTES_MAX;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes set aside behind the end of a file, at least and at most: the most is as long as the
/// longest I/O of base.
const AHEAD: [u64; 2] = [64 << 10, 1 << 20];

/// What is known of the room behind a file's end.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Where what was set aside ends; 0: nothing was.
    until: AtomicU64,
    /// The frontend set some aside itself: that is left as it is.
    theirs: AtomicBool,
    /// Base sets nothing aside.
    refused: AtomicBool,
}

impl Room {
    /// How much is to be set aside behind `end`.
    fn ahead(&self, end: u64) -> u64 {
        let enough = end <= self.until.load(Ordering::Acquire);
        match enough || self.theirs.load(Ordering::Acquire) {
            true => 0,
            false => (end / 4).clamp(AHEAD[0], AHEAD[1]),
        }
    }

    /// The frontend allocates behind the end.
    pub(crate) fn is_theirs(&self) {
        self.theirs.store(true, Ordering::Release);
    }

    /// Base was cut: there is nothing behind the end.
    pub(crate) fn is_gone(&self) {
        self.until.store(0, Ordering::Release);
    }
}

impl Engine {
    /// Makes base reach to the end of the last page that `written`, bytes of a request whose pages
    /// were started, fills, if those pages may then be absorbed.
    ///
    /// # Errors
    /// Those of base, such as that there is no room.
    pub(crate) fn lengthen(&self, object: &Object, written: &Range<u64>) -> io::Result<()> {
        let size = self.page_size() as u64;
        let (before, end) = (object.length(), written.end - written.end % size);
        let refused = object.room.refused.load(Ordering::Acquire);
        let streams = written.end - written.start >= RUN_BYTES_MAX as u64;
        let grows = end > before.max(written.start);
        if !grows || refused || streams || !self.inner().hierarchy.absorbs_new() {
            return Ok(());
        }
        self.before_base_write(object, &[]);
        let from = before.max(written.start - written.start % size);
        match object.reserve(from..end, self.config.planted) {
            Err(error) if is_unsupported(&error) => {
                object.room.refused.store(true, Ordering::Release);
                Ok(())
            }
            reserved => reserved,
        }
    }

    /// The last use of the object is about to end: gives back what was set aside behind its end.
    pub(crate) fn give_back(&self, object: &Arc<Object>) {
        let last = object.opens.load(Ordering::Acquire) == 1;
        let some = object.room.until.load(Ordering::Acquire) > object.length();
        let kept = object.room.theirs.load(Ordering::Acquire);
        if !last || !some || kept || object.unlinked.load(Ordering::Acquire) {
            return;
        }
        self.before_base_write(object, &[]);
        let _layout = object.layout_alone();
        // A base that refuses keeps the room until the file is cut.
        let _ = object.change_quietly(|base| base.give_back());
        object.unsynced.add();
        object.room.is_gone();
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let by_number = error.raw_os_error() == Some(libc::EOPNOTSUPP);
    by_number || error.kind() == io::ErrorKind::Unsupported
}

impl Object {
    /// Sets room aside on base for `bytes`, which may make the file longer.
    fn reserve(&self, bytes: Range<u64>, planted: Mutant) -> io::Result<()> {
        assert!(!bytes.is_empty(), "room for something");
        // Nobody sets base's length to what it was while this makes it longer.
        let layout = self.layout();
        let ahead = self.room.ahead(bytes.end);
        self.base_writes.fetch_add(1, Ordering::AcqRel);
        let length = bytes.end - bytes.start;
        let reserved = self.base.reserve(bytes.start, length, ahead);
        self.base_writes.fetch_add(1, Ordering::AcqRel);
        if planted != Mutant::UnsyncedGrowth {
            self.unsynced.add();
        }
        if reserved.is_ok() {
            self.grow(bytes.end);
        }
        drop(layout);
        if let Err(error) = &reserved {
            self.take_back(bytes.end, ahead > 0 && !is_unsupported(error));
        }
        if reserved.is_ok() && ahead > 0 {
            self.room
                .until
                .fetch_max(bytes.end + ahead, Ordering::AcqRel);
        }
        reserved
    }

    /// Setting room aside up to `end` failed: a part of it may have made base longer, or lie
    /// `behind` its end. Cuts base back to what requests have made of it.
    fn take_back(&self, end: u64, behind: bool) {
        let _layout = self.layout_alone();
        let length = self.length();
        let now = self.base.len().ok();
        let longer = now.is_some_and(|now| length < now && now <= end);
        if longer || (behind && now == Some(length)) {
            self.base_writes.fetch_add(1, Ordering::AcqRel);
            // A base that refuses this, too, has zeros there.
            let cut = self.base.set_len(length);
            self.base_writes.fetch_add(1, Ordering::AcqRel);
            self.unsynced.add();
            if cut.is_err() {
                self.grow(self.base.len().unwrap_or(0));
            }
            self.room.is_gone();
        }
    }
}
