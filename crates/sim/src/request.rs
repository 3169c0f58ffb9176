//! One page request: what a decoded trace is made of.

use thermocline_core::{ObjectId, PageId};

/// What a page request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The page is read.
    Read,
    /// The page is written whole.
    Write,
    /// A part of the page is written: its copies are dropped, as the live tier does.
    PartWrite,
    /// Pages from this one on are forgotten: [`PageRequest::pages`] of them.
    Trim,
}

/// Bits of `word` that hold the number of pages.
const PAGES_BITS: u32 = 28;
/// The most pages of one I/O. As the length of a trim: all pages to the end of the object.
pub const PAGES_MAX: u32 = (1 << PAGES_BITS) - 1;
const FIRST_TOUCH: u32 = 1 << 31;
/// The time is in units of [`COARSE_MS`]: it does not fit into 32 bits otherwise.
const COARSE: u32 = 1 << 30;
/// Milliseconds that times beyond 49 days are counted in. 32 bits of them are 69 years.
const COARSE_MS: u64 = 512;

/// A page request in 24 bytes. Times are relative to the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The page's index in its object (byte offset / page size).
    pub index: u64,
    /// The object, numbered over all traces of the workload.
    pub object: ObjectId,
    /// The hint set: a position in [`crate::Workload`]'s table, which also names the client.
    pub hints: u32,
    /// When the I/O arrived, in what `word` says.
    time: u32,
    /// Bit 31: first touch; bit 30: a coarse time; bits 28 and 29: kind; the rest: pages.
    word: u32,
}

const _: () = assert!(size_of::<PageRequest>() == 24);

impl PageRequest {
    /// A request for `page`. `pages` is the number of pages of the I/O (or trim) when this is
    /// its first page, 0 for each further one.
    #[must_use]
    pub fn new(page: PageId, kind: Kind, hints: u32, time_ms: u64, pages: u32) -> Self {
        assert!(pages <= PAGES_MAX, "an I/O of at most {PAGES_MAX} pages");
        let (time, coarse) = match u32::try_from(time_ms) {
            Ok(time) => (time, 0),
            Err(_) => {
                let time = u32::try_from(time_ms / COARSE_MS).unwrap_or(u32::MAX);
                (time, COARSE)
            }
        };
        Self {
            index: page.index,
            object: page.object,
            hints,
            time,
            word: (kind as u32) << PAGES_BITS | coarse | pages,
        }
    }

    /// When the I/O arrived, milliseconds from the start of the trace: exact in the first 49 days,
    /// rounded down to about half a second after them.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        let unit = match self.word & COARSE {
            0 => 1,
            _ => COARSE_MS,
        };
        u64::from(self.time) * unit
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> PageId {
        PageId::new(self.object, self.index)
    }

    /// What it does.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (self.word >> PAGES_BITS) & 3 {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::PartWrite,
            _ => Kind::Trim,
        }
    }

    /// Pages of the I/O that begins with this request; 0 when it began earlier.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.word & PAGES_MAX
    }

    /// The last page of a trim.
    #[must_use]
    pub fn trim_last(&self) -> u64 {
        match self.pages() {
            PAGES_MAX => u64::MAX,
            pages => self.index.saturating_add(u64::from(pages.max(1)) - 1),
        }
    }

    /// Whether its page was never requested before, or not since it was trimmed: where such a
    /// read misses, no tier could have helped.
    #[must_use]
    pub fn is_first_touch(&self) -> bool {
        self.word & FIRST_TOUCH != 0
    }

    /// Marks the request as its page's first.
    pub(crate) fn set_first_touch(&mut self) {
        self.word |= FIRST_TOUCH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_put_in_comes_out() {
        let page = PageId::new(ObjectId(7), u64::MAX);
        for kind in [Kind::Read, Kind::Write, Kind::PartWrite, Kind::Trim] {
            for pages in [0, 1, PAGES_MAX] {
                let mut request = PageRequest::new(page, kind, 9, 11, pages);
                assert!(!request.is_first_touch());
                request.set_first_touch();
                assert!(request.is_first_touch());
                assert_eq!((request.page(), request.kind()), (page, kind));
                assert_eq!((request.pages(), request.hints), (pages, 9));
                assert_eq!(request.time_ms(), 11);
            }
        }
    }

    #[test]
    fn time_goes_on_for_decades() {
        let at = |time| PageRequest::new(PageId::new(ObjectId(0), 0), Kind::Trim, 0, time, 5);
        let exact = u64::from(u32::MAX);
        assert_eq!(at(exact).time_ms(), exact);
        for time in [exact + 1, 60 * 86_400_000 + 77, 60 * 365 * 86_400_000] {
            let request = at(time);
            assert!((time - 511..=time).contains(&request.time_ms()), "{time}");
            assert_eq!((request.kind(), request.pages()), (Kind::Trim, 5));
            assert!(!request.is_first_touch());
        }
        assert_eq!(at(u64::MAX).time_ms(), exact * COARSE_MS);
    }

    #[test]
    fn a_trim_reaches_its_last_page_or_the_end() {
        let trim = |index, pages| {
            PageRequest::new(PageId::new(ObjectId(0), index), Kind::Trim, 0, 0, pages).trim_last()
        };
        assert_eq!(trim(10, 3), 12);
        assert_eq!(trim(10, PAGES_MAX), u64::MAX);
        assert_eq!(trim(u64::MAX, 2), u64::MAX);
    }
}
