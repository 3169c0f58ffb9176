//! Sequential or random: a detector per file.
//!
//! Per file and not per handle, because asynchronous I/O workers share the streams of all
//! sessions: three workers that serve one scan leave gaps in every one of their handles, but
//! none in the file. Several streams interleave in one file (parallel scans, a scan beside
//! point reads), so a small table of runs is kept. A run is a byte range that grew at its end:
//! a request that starts in its window extends it. One that ends before the run does is part of
//! it only soon after the run grew: later it has nothing to do with it.
//!
//! States of a slot: *free* (never used), *candidate* (fewer than [`RUN_MIN`] bytes in a row),
//! *stream* (that many or more). Requests move a slot candidate → stream; only replacement
//! moves it back.
//!
//! # Invariants
//! 1. A request begins one run or extends one.
//! 2. A candidate is replaced before a stream, an older one before a younger one; a stream is
//!    replaced only when it was idle for `STREAM_IDLE` requests to the file.
//!
//! Cost: 16 slots of 24 bytes a file, scanned once a read.

/// Slots: up to this many runs at once in one file, candidates included.
const SLOTS: usize = 16;
/// Bytes in a row after which the next request of the run is sequential. Four 8 KiB pages:
/// more than an index range scan of neighbouring leaves usually makes, less than a region.
pub const RUN_MIN: u64 = 32 << 10;
/// A single request at least this long is sequential by itself: no page-wise demand read is,
/// and PostgreSQL 18 combines the pages of a scan into requests of up to 128 KiB.
pub const REQUEST_MIN: u64 = 64 << 10;
/// How far out of order the requests of one run may come, in multiples of the request.
const WINDOW: u64 = 4;
/// Requests to the file within which one may come that ends before its run does: as many as runs
/// side by side have in their windows.
const BEHIND: u64 = SLOTS as u64 * WINDOW;
/// Requests to the file after which an idle stream may be replaced.
const STREAM_IDLE: u64 = 4096;

const _: () = assert!(RUN_MIN <= REQUEST_MIN && SLOTS >= 2 && STREAM_IDLE > SLOTS as u64);

/// What a request is, seen beside the earlier ones to the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Part of no run, or of one too short to say.
    Random,
    /// Continues a run.
    Sequential,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The offset the next request should have.
    end: u64,
    /// Bytes read in a row.
    read: u64,
    /// The file's request count when the run last grew; 0 is a free slot.
    touched: u64,
}

// What the module says a file costs.
const _: () = assert!(size_of::<Run>() == 24 && size_of::<Streams>() == SLOTS * 24 + 8);

/// The runs of one file.
///
/// ```
/// use thermocline::classify::{Access, Streams};
///
/// let mut streams = Streams::default();
/// assert_eq!(streams.note(1 << 30, 8192), Access::Random);
/// let scan: Vec<Access> = (0..8).map(|page| streams.note(page * 8192, 8192)).collect();
/// assert_eq!(scan.last(), Some(&Access::Sequential));
/// ```
#[derive(Debug, Default)]
pub struct Streams {
    runs: [Run; SLOTS],
    requests: u64,
}

impl Streams {
    /// Notes a read of `len` bytes at `offset` and says what it is.
    pub fn note(&mut self, offset: u64, len: u64) -> Access {
        self.requests += 1;
        let now = self.requests;
        let end = offset.saturating_add(len);
        let (access, grew) = match self.extended(offset, len) {
            Some(run) => {
                debug_assert!(0 < run.touched && run.touched < now);
                let (before, grows) = (run.read, run.end < end);
                run.read = before.saturating_add(len);
                if grows {
                    (run.end, run.touched) = (end, now);
                }
                (before >= RUN_MIN, grows)
            }
            None => {
                *self.victim() = Run {
                    end,
                    read: len,
                    touched: now,
                };
                (false, true)
            }
        };
        let newest = self.runs.iter().filter(|run| run.touched == now);
        assert_eq!(
            newest.count(),
            usize::from(grew),
            "invariant 1: a request is part of one run"
        );
        if access || len >= REQUEST_MIN {
            Access::Sequential
        } else {
            Access::Random
        }
    }

    /// The run this request extends: one that ends exactly here, else the nearest within the
    /// window. Only streams have a window: two random reads close together are no scan.
    fn extended(&mut self, offset: u64, len: u64) -> Option<&mut Run> {
        let (window, end) = (len.saturating_mul(WINDOW), offset.saturating_add(len));
        let now = self.requests;
        self.runs
            .iter_mut()
            .filter(|run| run.touched > 0)
            .filter(|run| run.end < end || now - run.touched <= BEHIND)
            .filter(|run| {
                let distance = run.end.abs_diff(offset);
                distance == 0
                    || (run.read >= RUN_MIN.max(len.saturating_mul(2)) && distance <= window)
            })
            .min_by_key(|run| run.end.abs_diff(offset))
    }

    fn victim(&mut self) -> &mut Run {
        let now = self.requests;
        debug_assert!(self.runs.iter().all(|run| run.touched < now));
        let rank = |run: &Run| {
            let live_stream = run.read >= RUN_MIN && now - run.touched < STREAM_IDLE;
            (live_stream, run.touched)
        };
        let mut oldest = 0;
        for slot in 1..SLOTS {
            if rank(&self.runs[slot]) < rank(&self.runs[oldest]) {
                oldest = slot;
            }
        }
        let all_live = || self.runs.iter().all(|run| rank(run).0);
        assert!(
            !rank(&self.runs[oldest]).0 || all_live(),
            "invariant 2: candidates go first"
        );
        &mut self.runs[oldest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Random, Sequential};

    const PAGE: u64 = 8192;

    /// A xorshift generator: the tests need arbitrary, not good, numbers.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn a_scan_page_by_page_is_sequential_after_four_pages() {
        let mut streams = Streams::default();
        let seen: Vec<Access> = (0..8).map(|i| streams.note(i * PAGE, PAGE)).collect();
        assert_eq!(seen[..4], [Random; 4]);
        assert_eq!(seen[4..], [Sequential; 4]);
    }

    #[test]
    fn combined_requests_are_sequential_at_once() {
        let mut streams = Streams::default();
        assert_eq!(streams.note(0, 128 << 10), Sequential);
        assert_eq!(streams.note(128 << 10, 128 << 10), Sequential);
    }

    #[test]
    fn point_reads_are_random() {
        let (mut streams, mut state) = (Streams::default(), 7);
        let sequential = (0..10_000)
            .map(|_| streams.note(random(&mut state) % 50_000 * PAGE, PAGE))
            .filter(|access| *access == Sequential)
            .count();
        assert_eq!(sequential, 0);
    }

    #[test]
    fn interleaved_scans_and_point_reads_are_kept_apart() {
        let (mut streams, mut state) = (Streams::default(), 11);
        let (mut scan_hits, mut point_hits) = (0, 0);
        for i in 0..2000 {
            for scan in 0..4 {
                let offset = (scan * 100_000 + i) * PAGE;
                scan_hits += usize::from(streams.note(offset, PAGE) == Sequential);
            }
            let point = (1_000_000 + random(&mut state) % 500_000) * PAGE;
            point_hits += usize::from(streams.note(point, PAGE) == Sequential);
        }
        assert_eq!(scan_hits, 4 * (2000 - 4));
        assert_eq!(point_hits, 0);
    }

    #[test]
    fn io_workers_out_of_order_stay_one_stream() {
        let mut streams = Streams::default();
        let len = 24 << 10;
        let mut sequential = 0;
        for group in 0..200_u64 {
            for index in [1, 0, 2] {
                let offset = (group * 3 + index) * len;
                sequential += usize::from(streams.note(offset, len) == Sequential);
            }
        }
        assert!(sequential > 590, "{sequential} of 600");
    }

    #[test]
    fn an_established_stream_outlives_many_random_reads() {
        let (mut streams, mut state) = (Streams::default(), 3);
        for i in 0..8 {
            streams.note(i * PAGE, PAGE);
        }
        for _ in 0..1000 {
            streams.note((1_000_000 + random(&mut state) % 500_000) * PAGE, PAGE);
        }
        assert_eq!(streams.note(8 * PAGE, PAGE), Sequential);
    }

    /// A scan ended long ago: a page before its end is as random as any other.
    #[test]
    fn pages_where_a_scan_ended_are_random_again() {
        let (mut streams, mut state) = (Streams::default(), 5);
        let scan = (0..64).map(|page| streams.note(page * PAGE, PAGE));
        assert_eq!(scan.last(), Some(Sequential));
        for before in (1..4).cycle().take(30) {
            for _ in 0..BEHIND {
                streams.note((1_000_000 + random(&mut state) % 500_000) * PAGE, PAGE);
            }
            assert_eq!(streams.note((64 - before) * PAGE, PAGE), Random);
        }
        // A reader who goes on where it ended is one.
        assert_eq!(streams.note(64 * PAGE, PAGE), Sequential);
    }

    #[test]
    fn offsets_at_the_end_of_the_number_range_do_not_overflow() {
        let mut streams = Streams::default();
        for _ in 0..100 {
            streams.note(u64::MAX - 3, u64::MAX);
            streams.note(0, u64::MAX);
        }
    }
}
