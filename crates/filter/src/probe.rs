//! Asking a filter: deferred reads.

use crate::error::FilterError;
use crate::key::{Key, Mark, mark_of, page_of, positions};
use crate::lanes::{Drain, Lanes, Pipeline};
use crate::layout::{Place, Summary};
use crate::sift::Sift;
use serde::Serialize;
use std::sync::Arc;
use thermocline::device::{AlignedBuf, Device};

/// A whole filter. Any number of threads may each have a [`Probe`] of it.
#[derive(Clone)]
pub struct Filter {
    device: Arc<dyn Device>,
    summary: Summary,
    /// A checksum for each page: 8 bytes of memory a page.
    table: Arc<[u64]>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("Filter");
        out.field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// What a probe did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProbeCounts {
    /// Keys asked for.
    pub asked: u64,
    /// Of them answered with "may be in".
    pub maybe: u64,
    /// Pages read.
    pub page_reads: u64,
}

impl Filter {
    /// Reads header and checksums.
    ///
    /// # Errors
    /// When there is no filter, one of another version, one that was never finished, one that is
    /// cut or damaged, or the device fails.
    pub fn open(device: Arc<dyn Device>) -> Result<Self, FilterError> {
        let (summary, table) = Place(&*device).open()?;
        Ok(Self {
            device,
            summary,
            table: table.into(),
        })
    }

    /// What it is.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Begins to ask.
    ///
    /// # Errors
    /// When there is too little memory, or no thread.
    pub fn probe(&self, lanes: &Lanes) -> Result<Probe, FilterError> {
        let reader = || Reader {
            filter: self.clone(),
            page: AlignedBuf::new(self.summary.page_bytes as usize),
            page_reads: 0,
        };
        Ok(Probe {
            pipeline: Pipeline::start(&self.summary, lanes, reader)?,
            filter: self.clone(),
            counts: ProbeCounts::default(),
        })
    }

    /// Asks for the key of each of `items`, and gives each back with its answer, *in another
    /// order*: page by page. Holds in memory the items whose answers are due.
    ///
    /// # Errors
    /// As [`Filter::probe`].
    pub fn sift<I, F>(&self, items: I, key: F, lanes: &Lanes) -> Result<Sift<I, F>, FilterError>
    where
        I: Iterator,
        F: for<'k> Fn(&'k I::Item) -> Key<'k>,
    {
        Ok(Sift::new(items, key, self.probe(lanes)?))
    }
}

/// Tickets are below this: they are kept in 48 bits.
const TICKET_END: u64 = 1 << 48;

/// A key that waits: its mark, which becomes the answer in place, and its ticket.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    mark: Mark,
    ticket: [u8; 6],
}

impl Question {
    fn answer(&self) -> (u64, bool) {
        let [a, b, c, d, e, f] = self.ticket;
        let ticket = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        (ticket, self.mark[0] == 1)
    }
}

/// Questions under way. One thread's.
pub struct Probe {
    filter: Filter,
    pipeline: Pipeline<Question, Reader>,
    counts: ProbeCounts,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("Probe");
        out.field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Probe {
    /// Asks whether `key` may be in the filter. `answers` is called with the ticket and the
    /// answer of this or of earlier questions, as they become known; most calls of `ask` bring
    /// none. A ticket is the caller's, below 2^48.
    ///
    /// # Errors
    /// When the key is of another kind than the filter, the ticket is too large, or a page could
    /// not be read or is damaged. After a page nothing more is answered: every call is
    /// [`FilterError::Lost`].
    pub fn ask(
        &mut self,
        key: Key<'_>,
        ticket: u64,
        answers: impl FnMut(u64, bool),
    ) -> Result<(), FilterError> {
        let hash = self.question(key)?;
        self.put(hash, ticket, answers)
    }

    /// The hash of a key that may be asked for.
    pub(crate) fn question(&self, key: Key<'_>) -> Result<u64, FilterError> {
        let (expected, found) = (self.filter.summary.kind, key.kind());
        if expected != found {
            return Err(FilterError::Kind { expected, found });
        }
        Ok(key.hash(self.filter.summary.seed))
    }

    /// [`Probe::ask`] for a hash.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        ticket: u64,
        answers: impl FnMut(u64, bool),
    ) -> Result<(), FilterError> {
        if ticket >= TICKET_END {
            return Err(FilterError::Option {
                option: "a ticket",
                expected: "below 2^48".into(),
            });
        }
        let page = page_of(hash, self.filter.summary.pages);
        let question = Question {
            mark: mark_of(hash),
            ticket: mark_of(ticket),
        };
        self.counts.asked += 1;
        let deliver = &mut delivering(&mut self.counts, answers);
        self.pipeline.push(page, question, deliver)
    }

    /// Brings the answers of all questions asked so far. Reads each page that somebody waits for,
    /// however few do.
    ///
    /// # Errors
    /// As [`Probe::ask`].
    pub fn flush(&mut self, answers: impl FnMut(u64, bool)) -> Result<(), FilterError> {
        let deliver = &mut delivering(&mut self.counts, answers);
        self.pipeline.flush(deliver)
    }

    /// As [`Probe::flush`], and ends.
    ///
    /// # Errors
    /// As [`Probe::ask`].
    pub fn finish(self, answers: impl FnMut(u64, bool)) -> Result<ProbeCounts, FilterError> {
        let mut counts = self.counts;
        let readers = self
            .pipeline
            .finish(&mut delivering(&mut counts, answers))?;
        counts.page_reads = readers.iter().map(|reader| reader.page_reads).sum();
        Ok(counts)
    }
}

/// Hands answers to the caller, and counts.
fn delivering(
    counts: &mut ProbeCounts,
    mut answers: impl FnMut(u64, bool),
) -> impl FnMut(&[Question]) {
    move |questions| {
        for (ticket, maybe) in questions.iter().map(Question::answer) {
            counts.maybe += u64::from(maybe);
            answers(ticket, maybe);
        }
    }
}

/// A worker's part of a probe.
struct Reader {
    filter: Filter,
    page: AlignedBuf,
    page_reads: u64,
}

impl Drain<Question> for Reader {
    fn drain(&mut self, page: u32, questions: &mut [Question]) -> Result<(), FilterError> {
        let (summary, table) = (&self.filter.summary, &self.filter.table);
        let place = Place(&*self.filter.device);
        place.read_page(summary, page, table[page as usize], &mut self.page)?;
        self.page_reads += 1;
        let (hashes, bits) = (summary.hashes, summary.page_bits());
        for question in questions {
            let is_set = |at: u32| self.page[(at >> 3) as usize] & (1 << (at & 7)) != 0;
            let maybe = positions(question.mark, hashes, bits).all(is_set);
            question.mark = [u8::from(maybe), 0, 0, 0, 0, 0];
        }
        Ok(())
    }
}
