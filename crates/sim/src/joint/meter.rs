//! Counts what requests met and hands I/Os to the closed loop.

use super::flow::Flow;
use super::instant::Served;
use crate::closed_loop::{ClosedLoop, Elapsed, Step};
use crate::meter::SAMPLES;
use crate::request::{Kind, PageRequest};
use crate::result::ObjectTotals;
use crate::workload::Facts;
use thermocline_core::counters::Source;

/// Page requests counted after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Requests of the trace.
    pub(super) ios: u64,
    pub(super) pool_hits: u64,
    /// Reads of pages that were on flash, whether or not the pool had them too.
    pub(super) reads_on_flash: u64,
    /// Of these, those the pool did not have.
    pub(super) misses_on_flash: u64,
    /// Other reads, and those of them that the pool did not have.
    pub(super) reads_off_flash: u64,
    pub(super) misses_off_flash: u64,
}

impl Requests {
    fn add(&mut self, read: bool, served: Served) {
        if !read {
            self.writes += 1;
            return;
        }
        let missed = served.source != Source::Pool;
        self.reads += 1;
        self.pool_hits += u64::from(!missed);
        let (reads, misses) = match served.on_flash {
            true => (&mut self.reads_on_flash, &mut self.misses_on_flash),
            false => (&mut self.reads_off_flash, &mut self.misses_off_flash),
        };
        *reads += 1;
        *misses += u64::from(missed);
    }
}

/// See the module text.
pub(super) struct Meter {
    queues: Option<ClosedLoop>,
    warm_up: u64,
    at: u64,
    /// Pages still to come of the I/O at hand.
    left: u32,
    steps: Vec<Step>,
    requests: Requests,
    /// What had moved when the warm-up ended.
    before: Option<Flow>,
    /// Page requests between two of `ends`.
    interval: u64,
    /// Virtual time at the end of the warm-up and of each interval since, ns.
    ends: Vec<u64>,
    objects: Vec<ObjectTotals>,
}

/// What was counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) requests: Requests,
    pub(super) flow: Flow,
    pub(super) elapsed: Option<Elapsed>,
    /// Virtual time at the beginning and at the end of each hundredth of it, ns; empty without
    /// devices.
    pub(super) ends: Vec<u64>,
    /// Of each object.
    pub(super) objects: Vec<ObjectTotals>,
}

impl Meter {
    /// Counts page requests after the first `warm_up`.
    pub(super) fn new(queues: Option<ClosedLoop>, warm_up: u64, facts: &Facts) -> Self {
        Self {
            queues,
            warm_up,
            at: 0,
            left: 0,
            steps: Vec::new(),
            requests: Requests::default(),
            before: None,
            interval: (facts.requests - warm_up).div_ceil(SAMPLES).max(1),
            ends: Vec::new(),
            objects: vec![ObjectTotals::default(); facts.extents.len()],
        }
    }

    /// The next page request comes, after `flow`.
    pub(super) fn start(&mut self, flow: impl FnOnce() -> Flow) {
        if self.before.is_none() && self.at >= self.warm_up {
            self.before = Some(flow());
            if let (Some(queues), true) = (&mut self.queues, self.at > 0) {
                queues.start_measuring();
            }
            self.note_time();
        }
    }

    fn note_time(&mut self) {
        self.ends
            .extend(self.queues.as_ref().map(ClosedLoop::now_ns));
    }

    /// It was served; `take` hands over its I/Os.
    pub(super) fn count(
        &mut self,
        request: &PageRequest,
        served: Served,
        take: impl FnOnce(&mut Vec<Step>),
    ) {
        self.at += 1;
        if self.before.is_some() {
            let read = request.kind() == Kind::Read;
            self.requests.add(read, served);
            self.requests.ios += u64::from(request.pages() > 0);
            let object = &mut self.objects[request.object.0 as usize];
            object.reads += u64::from(read);
            object.read_hits += u64::from(read && served.source != Source::Base);
            object.flash_writes += served.flash_writes;
        }
        if request.pages() > 0 {
            self.left = request.pages();
        }
        self.left = self.left.saturating_sub(1);
        let mut new = Vec::new();
        take(&mut new);
        // Neighbours that one request asks base for are one I/O.
        for step in new {
            crate::meter::append(&mut self.steps, step);
        }
        if self.left == 0 {
            if let Some(queues) = &mut self.queues {
                queues.io(&self.steps);
            }
            self.steps.clear();
        }
        if self.at > self.warm_up && (self.at - self.warm_up).is_multiple_of(self.interval) {
            self.note_time();
        }
    }

    /// The counts at the end of the run, when so much has moved.
    pub(super) fn finish(self, flow: &Flow) -> Counted {
        Counted {
            requests: self.requests,
            flow: flow.since(&self.before.unwrap_or_default()),
            elapsed: self.queues.map(ClosedLoop::finish),
            ends: self.ends,
            objects: self.objects,
        }
    }
}
