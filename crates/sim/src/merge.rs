//! Several traces as one: several clients of one tier (thesis §3.4.5).

use crate::error::SimError;
use crate::source::Records;
use thermocline_trace::TraceRecord;

/// In which order the requests of several traces come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interleave {
    /// By time since the first record of each trace.
    #[default]
    Time,
    /// One from each in turn until the shortest ends, as thesis §3.4.5 does.
    RoundRobin,
}

/// Records of several traces in one order, with times that count from the first record of each:
/// some formats have times of day.
pub(crate) struct Merge {
    sources: Vec<Box<dyn Records>>,
    heads: Vec<Option<TraceRecord>>,
    /// Of each trace: the time of its first record, ns.
    begins: Vec<Option<u64>>,
    read: Vec<u64>,
    turn: usize,
    order: Interleave,
}

/// A record, the position of its trace, and its own position in that trace, from 1.
pub(crate) struct Merged {
    pub(crate) trace: usize,
    pub(crate) number: u64,
    pub(crate) record: TraceRecord,
}

impl Merge {
    pub(crate) fn new(sources: Vec<Box<dyn Records>>, order: Interleave) -> Result<Self, SimError> {
        let count = sources.len();
        let mut merge = Self {
            sources,
            heads: vec![None; count],
            begins: vec![None; count],
            read: vec![0; count],
            turn: 0,
            order,
        };
        for trace in 0..count {
            merge.advance(trace)?;
        }
        Ok(merge)
    }

    pub(crate) fn sources(&self) -> &[Box<dyn Records>] {
        &self.sources
    }

    fn advance(&mut self, trace: usize) -> Result<(), SimError> {
        let mut head = self.sources[trace].next().transpose()?;
        if let Some(record) = &mut head {
            let begin = *self.begins[trace].get_or_insert(record.time_ns);
            record.time_ns = record.time_ns.saturating_sub(begin);
        }
        self.heads[trace] = head;
        Ok(())
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Merged>, SimError> {
        let chosen = match self.order {
            Interleave::Time => {
                let times = self.heads.iter().enumerate();
                let times = times.filter_map(|(at, head)| head.map(|head| (head.time_ns, at)));
                times.min().map(|(_, at)| at)
            }
            Interleave::RoundRobin => {
                let at = self.turn;
                self.turn = (at + 1) % self.sources.len();
                Some(at)
            }
        };
        let Some((trace, record)) = chosen.and_then(|at| Some((at, self.heads[at]?))) else {
            return Ok(None);
        };
        self.read[trace] += 1;
        self.advance(trace)?;
        Ok(Some(Merged {
            trace,
            number: self.read[trace],
            record,
        }))
    }
}
