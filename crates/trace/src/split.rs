//! Requests split into pages.

use std::ops::Range;

use crate::record::TraceRecord;

/// The pages a request touches: page numbers within its object, empty for a request without
/// length. A request that is said to end beyond the last byte or page there can be ends there.
///
/// For traces that count in pages ([`crate::Addressing::Pages`]) the page size is 1. The last
/// page of all, number 2^64 − 1, is then left out of no range: the range is of `u128`.
///
/// # Panics
/// When `page_size` is 0.
#[must_use]
pub fn pages_of(record: &TraceRecord, page_size: u32) -> Range<u128> {
    assert!(page_size > 0, "a page has bytes");
    let size = u128::from(page_size);
    let first = u128::from(record.offset) / size;
    if record.length == 0 {
        return first..first;
    }
    let end = u128::from(record.offset) + u128::from(record.length);
    let last = (end - 1).min(u128::from(u64::MAX)) / size;
    assert!(first <= last, "a request with a length has a page");
    first..last + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Op, Served};
    use thermocline_core::{HintSet, ObjectId};

    fn pages(offset: u64, length: u64, page_size: u32) -> (u128, u128) {
        let record = TraceRecord {
            time_ns: 0,
            client: 0,
            op: Op::Read,
            served: Served::Unknown,
            object: ObjectId(0),
            offset,
            length,
            latency_ns: 0,
            hints: HintSet::UNKNOWN,
        };
        let range = pages_of(&record, page_size);
        (range.start, range.end - range.start)
    }

    #[test]
    fn pages_that_are_touched_count_whole() {
        assert_eq!(pages(0, 0, 512), (0, 0));
        assert_eq!(pages(0, 512, 512), (0, 1));
        assert_eq!(pages(511, 2, 512), (0, 2));
        assert_eq!(pages(4096, 8192, 4096), (1, 2));
    }

    #[test]
    fn the_end_of_all_numbers() {
        let last = u128::from(u64::MAX);
        assert_eq!(pages(u64::MAX, 1, 1), (last, 1));
        assert_eq!(pages(u64::MAX, u64::MAX, 1), (last, 1));
        assert_eq!(pages(u64::MAX - 1, 9, 4096), (last / 4096, 1));
    }
}
