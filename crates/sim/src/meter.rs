//! Counts what page requests did, and hands their I/Os to the closed loop.

use crate::closed_loop::{ClosedLoop, Elapsed, Step};
use crate::request::{Kind, PageRequest};
use crate::result::{ClientTotals, ObjectTotals, Sample, Totals};
use crate::tier::Effect;
use thermocline_core::PageId;
use thermocline_core::counters::Source;
use thermocline_core::model::IoOp;

/// Samples of the hit ratio over a run.
pub(crate) const SAMPLES: u64 = 100;

/// Where objects lie on base: one after another, each as long as its last page requested.
#[derive(Debug)]
pub(crate) struct Layout {
    page_size: u64,
    /// First byte of each object.
    starts: Vec<u64>,
}

impl Layout {
    /// Objects of `extents` pages each.
    pub(crate) fn new(extents: &[u64], page_size: u32) -> Self {
        let page_size = u64::from(page_size);
        let mut next = 0u64;
        let start = |pages: &u64| {
            let start = next;
            next = next.wrapping_add(pages.wrapping_mul(page_size));
            start
        };
        Self {
            page_size,
            starts: extents.iter().map(start).collect(),
        }
    }

    /// Bytes per page.
    pub(crate) fn page_size(&self) -> u64 {
        self.page_size
    }

    /// First byte of `page`.
    pub(crate) fn position(&self, page: PageId) -> u64 {
        let start = self.starts.get(page.object.0 as usize).copied();
        let offset = page.index.wrapping_mul(self.page_size);
        start.unwrap_or(0).wrapping_add(offset)
    }
}

/// Adds a base I/O: one with the last when it goes on where that ended.
pub(crate) fn append(steps: &mut Vec<Step>, step: Step) {
    match steps.last_mut() {
        Some(last)
            if last.device == step.device
                && (last.op, last.waits) == (step.op, step.waits)
                && last.position.wrapping_add(last.len) == step.position =>
        {
            last.len += step.len;
        }
        _ => steps.push(step),
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) totals: Totals,
    pub(crate) clients: Vec<ClientTotals>,
    pub(crate) samples: Vec<Sample>,
    /// Virtual time at the end of each sample, ns; empty without devices.
    pub(crate) sample_ns: Vec<u64>,
    /// Of each object.
    pub(crate) objects: Vec<ObjectTotals>,
    pub(crate) elapsed: Option<Elapsed>,
}

/// See the module text.
pub(crate) struct Meter<'a> {
    layout: &'a Layout,
    queues: Option<ClosedLoop>,
    warm_up: u64,
    interval: u64,
    /// Page requests so far.
    at: u64,
    counted: Counted,
    sample: Sample,
    /// Pages still to come of the I/O at hand, and whether it missed.
    left: u32,
    io_missed: bool,
    steps: Vec<Step>,
    flash_writes: u32,
}

impl<'a> Meter<'a> {
    /// Counts page requests after the first `warm_up` of `requests`; the samples cover all.
    pub(crate) fn new(
        layout: &'a Layout,
        queues: Option<ClosedLoop>,
        warm_up: u64,
        requests: u64,
        clients: usize,
    ) -> Self {
        Self {
            layout,
            queues,
            warm_up,
            interval: requests.div_ceil(SAMPLES).max(1),
            at: 0,
            counted: Counted {
                clients: vec![ClientTotals::default(); clients],
                objects: vec![ObjectTotals::default(); layout.starts.len()],
                ..Counted::default()
            },
            sample: Sample::default(),
            left: 0,
            io_missed: false,
            steps: Vec::new(),
            flash_writes: 0,
        }
    }

    /// Counts one page request of `client` (from 0).
    pub(crate) fn count(&mut self, request: &PageRequest, effect: Effect, client: usize) {
        let measured = self.at >= self.warm_up;
        let measuring = self.at == self.warm_up && self.at > 0;
        if let (true, Some(queues)) = (measuring, &mut self.queues) {
            queues.start_measuring();
        }
        self.at += 1;
        let read = request.kind() == Kind::Read;
        let hit = effect.source != Source::Base;
        if read {
            self.sample.reads += 1;
            self.sample.read_hits += u64::from(hit);
        }
        if self.at.is_multiple_of(self.interval) {
            self.end_sample();
        }
        if measured {
            self.add(request, effect, client, read, hit);
        }
        self.count_io(request, read, hit, measured);
        if self.queues.is_some() {
            self.add_step(request, effect, read);
            if self.left == 0 {
                self.end_io();
            }
        }
    }

    fn add(&mut self, request: &PageRequest, effect: Effect, client: usize, read: bool, hit: bool) {
        let totals = &mut self.counted.totals;
        totals.requests += 1;
        totals.flash_writes += u64::from(effect.flash_writes);
        if let Some(object) = self.counted.objects.get_mut(request.object.0 as usize) {
            object.reads += u64::from(read);
            object.read_hits += u64::from(read && hit);
            object.flash_writes += u64::from(effect.flash_writes);
        }
        if !read {
            totals.base_writes += u64::from(!effect.moved);
            totals.writes += 1;
            totals.write_hits += u64::from(hit);
            return;
        }
        totals.reads += 1;
        let first = !hit && request.is_first_touch();
        totals.compulsory_misses += u64::from(first);
        match effect.source {
            Source::Pool => totals.pool_hits += 1,
            Source::Flash | Source::Buffer => totals.flash_hits += 1,
            Source::Base => totals.base_reads += 1,
        }
        if let Some(client) = self.counted.clients.get_mut(client) {
            client.reads += 1;
            client.read_hits += u64::from(hit);
        }
    }

    fn count_io(&mut self, request: &PageRequest, read: bool, hit: bool, measured: bool) {
        if request.pages() > 0 {
            self.left = request.pages();
            self.io_missed = false;
        }
        self.left = self.left.saturating_sub(1);
        self.io_missed |= !hit;
        if self.left == 0 && measured {
            let totals = &mut self.counted.totals;
            totals.ios += 1;
            if read {
                totals.io_reads += 1;
                totals.io_read_hits += u64::from(!self.io_missed);
            }
        }
    }

    fn end_sample(&mut self) {
        self.sample.requests = self.at;
        self.counted.samples.push(self.sample);
        let now = self.queues.as_ref().map(ClosedLoop::now_ns);
        self.counted.sample_ns.extend(now);
        self.sample = Sample::default();
    }

    /// Adds what the request makes its I/O do.
    fn add_step(&mut self, request: &PageRequest, effect: Effect, read: bool) {
        let page = self.layout.page_size;
        if !read && effect.moved {
            self.steps.push(Step::flash(IoOp::Write, page));
            return;
        }
        self.flash_writes += effect.flash_writes;
        if read && effect.source == Source::Pool {
            return;
        }
        if read && effect.source != Source::Base {
            let read = Step::flash(IoOp::Read, page).clean(!effect.moved);
            self.steps.push(read);
            return;
        }
        let op = if read { IoOp::Read } else { IoOp::Write };
        let step = Step::base(op, self.layout.position(request.page()), page);
        append(&mut self.steps, step);
    }

    /// A client does the I/O.
    fn end_io(&mut self) {
        let len = self.layout.page_size;
        let writes = std::mem::take(&mut self.flash_writes) as usize;
        let write = Step::flash(IoOp::Write, len).later();
        self.steps.extend(std::iter::repeat_n(write, writes));
        if let Some(queues) = &mut self.queues {
            queues.io(&self.steps);
        }
        self.steps.clear();
    }

    /// The counts at the end of the run.
    pub(crate) fn finish(mut self) -> Counted {
        if self.sample != Sample::default() {
            self.end_sample();
        }
        self.counted.elapsed = self.queues.map(ClosedLoop::finish);
        let totals = &self.counted.totals;
        debug_assert_eq!(
            totals.pool_hits + totals.flash_hits + totals.base_reads,
            totals.reads
        );
        self.counted
    }
}
