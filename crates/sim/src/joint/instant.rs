//! The live tier's state machine with I/O that takes no time.
//!
//! Every decision is the hierarchy's own. What the live engine does in the background is done at
//! once after each request: staged pages are written, cleaners and destaging do what is due, and
//! the journal is committed when blocks run out or base is to be written in a region without an
//! intent. Left out are requests that overlap and devices that fail. Nobody asks for a sync: the
//! pool stands for the database's own, whose log makes commits durable.

use super::bytes::{At, Bytes};
use super::flow::Flow;
use super::journal::Journal;
use crate::closed_loop::Step;
use crate::meter::{Layout, append};
use crate::request::{Kind, PageRequest};
use thermocline_core::counters::Source;
use thermocline_core::hierarchy::{
    Absorbed, Action, CleanJob, Cleaned, Hierarchy, HierarchyOptions, ReadStart, UnknownPolicy,
};
use thermocline_core::model::IoOp;
use thermocline_core::{HintSet, ObjectId, PageId, SlotId};

/// Pages destaged before base is synced.
const BATCH: usize = 256;

/// What became of a page request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Reads: where the page came from.
    pub source: Source,
    /// Whether the page was on flash when the request came.
    pub on_flash: bool,
    /// Pages written to flash for it.
    pub flash_writes: u64,
}

/// See the module text.
pub struct Instant<'a, B: Bytes> {
    hierarchy: Hierarchy,
    layout: &'a Layout,
    bytes: B,
    journal: Journal,
    flow: Flow,
    /// Milliseconds of the trace.
    now: u64,
    actions: Vec<Action>,
    /// What the client waits for, and what it does not.
    ahead: Vec<Step>,
    behind: Vec<Step>,
}

impl<'a, B: Bytes> Instant<'a, B> {
    /// An empty hierarchy above objects that lie as `layout` says.
    ///
    /// # Errors
    /// When a policy is unknown.
    pub(crate) fn new(
        options: &HierarchyOptions,
        layout: &'a Layout,
        bytes: B,
    ) -> Result<Self, UnknownPolicy> {
        let hierarchy = Hierarchy::new(options)?;
        Ok(Self {
            journal: Journal::new(hierarchy.ledger().blocks()),
            hierarchy,
            layout,
            bytes,
            flow: Flow::default(),
            now: 0,
            actions: Vec::new(),
            ahead: Vec::new(),
            behind: Vec::new(),
        })
    }

    /// The state machine.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// What follows the bytes.
    #[must_use]
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// Pages moved so far.
    #[must_use]
    pub fn flow(&self) -> Flow {
        Flow {
            flash_writes: self.hierarchy.counters().flash_writes,
            admissions: self.hierarchy.counters().admissions,
            destaged: self.hierarchy.counters().destaged,
            ..self.flow
        }
    }

    /// The I/Os since the last call: first what the client waits for.
    pub fn take_steps(&mut self, out: &mut Vec<Step>) {
        out.append(&mut self.ahead);
        out.append(&mut self.behind);
    }

    /// Pins an object and brings these pages of it to its kept slots, before anybody asks. What
    /// that takes is not counted.
    pub(crate) fn keep(&mut self, object: ObjectId, pages: impl Iterator<Item = u64>) {
        self.hierarchy.set_pinned(object, true, &mut self.actions);
        self.carry();
        for index in pages {
            let page = PageId { object, index };
            let (how, _) = self.bring(page);
            self.hierarchy
                .finish_read(page, &HintSet::default(), how, &mut self.actions);
            self.carry();
            self.settle();
        }
        self.ahead.clear();
        self.behind.clear();
    }

    /// Base alone serves a page request.
    pub fn go_around(&mut self, request: &PageRequest) -> Served {
        let op = match request.kind() {
            Kind::Read => IoOp::Read,
            _ => IoOp::Write,
        };
        match op {
            IoOp::Read => self.flow.base_reads += 1,
            _ => self.flow.base_writes += 1,
        }
        let step = self.base(op, request.page());
        append(&mut self.ahead, step);
        Served {
            source: Source::Base,
            on_flash: false,
            flash_writes: 0,
        }
    }

    /// Serves one page request and does the background work that is due then.
    pub fn serve(&mut self, request: &PageRequest, hints: &HintSet) -> Served {
        self.now = request.time_ms();
        self.hierarchy.on_time(self.now);
        let page = request.page();
        let on_flash = self.hierarchy.slots().find(page).is_some();
        let before = self.hierarchy.counters().flash_writes;
        let source = match request.kind() {
            Kind::Read => self.read(page, hints),
            kind => self.write(page, hints, kind == Kind::Write, on_flash),
        };
        self.settle();
        Served {
            source,
            on_flash,
            flash_writes: self.hierarchy.counters().flash_writes - before,
        }
    }

    /// Forgets the pages of a trim.
    pub fn trim(&mut self, trim: &PageRequest) {
        let (first, last) = (trim.page(), trim.trim_last());
        self.bytes.forget(first, last);
        self.hierarchy
            .trim(first.object, first.index, last, &mut self.actions);
        self.carry();
        self.settle();
    }

    /// Writes everything that is dirty to base.
    pub fn flush(&mut self) {
        self.hierarchy.set_write_back(false);
        self.settle();
    }

    fn read(&mut self, page: PageId, hints: &HintSet) -> Source {
        let (how, source) = self.bring(page);
        self.bytes.give(page);
        self.hierarchy
            .finish_read(page, hints, how, &mut self.actions);
        self.carry();
        source
    }

    /// The newest bytes of `page` come to hand.
    fn bring(&mut self, page: PageId) -> (ReadStart, Source) {
        let how = self.hierarchy.start_read(page);
        let from = match how {
            ReadStart::Frame(frame) => At::Frame(frame),
            ReadStart::Buffer(slot) => At::Buffer(slot),
            ReadStart::Slot(slot) => {
                self.flow.flash_reads += 1;
                let clean = !self.hierarchy.is_dirty(page);
                self.ahead.push(self.flash(IoOp::Read).clean(clean));
                self.block_of(slot)
            }
            ReadStart::Base | ReadStart::Busy => {
                debug_assert_eq!(how, ReadStart::Base, "requests do not overlap");
                self.flow.base_reads += 1;
                let step = self.base(IoOp::Read, page);
                append(&mut self.ahead, step);
                At::Base(page)
            }
        };
        self.bytes.copy(from, At::Hand);
        (how, how.source().unwrap_or(Source::Base))
    }

    fn block_of(&self, slot: SlotId) -> At {
        let found = self.hierarchy.bytes_of(slot);
        debug_assert!(found.is_some(), "a valid slot has a block");
        found.map_or(At::Buffer(slot), |(block, _)| At::Block(block))
    }

    fn write(&mut self, page: PageId, hints: &HintSet, whole: bool, on_flash: bool) -> Source {
        let dirty = self.hierarchy.is_dirty(page);
        // The rest of a page of which base has old bytes is read before a part is replaced.
        if dirty && !whole {
            let (how, _) = self.bring(page);
            self.hierarchy
                .finish_read(page, hints, how, &mut self.actions);
            self.carry();
        }
        self.bytes.renew(page);
        let started = self.hierarchy.start_write(page);
        debug_assert!(started, "requests do not overlap");
        let absorbs = whole || dirty;
        if !absorbs || !self.absorb(page, hints) {
            self.write_base(page, true);
            self.flow.writes_through += 1;
            self.bytes.copy(At::Hand, At::Base(page));
            self.hierarchy
                .finish_write(page, hints, whole || dirty, true, &mut self.actions);
            self.carry();
        }
        match on_flash {
            true => Source::Flash,
            false => Source::Base,
        }
    }

    /// False when the write goes to base.
    fn absorb(&mut self, page: PageId, hints: &HintSet) -> bool {
        loop {
            let absorbed = self
                .hierarchy
                .absorb(page, hints, self.now, &mut self.actions);
            self.carry();
            match absorbed {
                Absorbed::Done => return true,
                Absorbed::Base | Absorbed::Lost => return false,
                Absorbed::Wait => self.settle(),
            }
        }
    }

    /// A page is written to base, where an intent says so durably.
    fn write_base(&mut self, page: PageId, waits: bool) {
        let counted = self.hierarchy.ledger().blocks() > 0;
        if counted {
            self.hierarchy.ledger_mut().intend(page);
            if !self.hierarchy.ledger().may_write_base(page) {
                self.commit(waits);
            }
        }
        debug_assert!(!counted || self.hierarchy.ledger().may_write_base(page));
        let step = self.base(IoOp::Write, page);
        match waits {
            true => append(&mut self.ahead, step),
            false => append(&mut self.behind, step.later()),
        }
        if counted {
            self.hierarchy.ledger_mut().base_written(page);
        }
        self.flow.base_writes += 1;
    }

    /// Does all background work that is due.
    fn settle(&mut self) {
        loop {
            self.write_staged();
            let cleaned = self.hierarchy.next_clean(self.now, &mut self.actions);
            self.carry();
            match cleaned {
                Cleaned::Placed | Cleaned::Wait => {}
                Cleaned::Base(job) => self.clean_to_base(&job),
                Cleaned::Nothing if self.hierarchy.destage_due() && self.destage() => {}
                Cleaned::Nothing => return,
            }
        }
    }

    fn write_staged(&mut self) {
        while self.hierarchy.staged() > 0 {
            while let Some(job) = self.hierarchy.next_write() {
                self.bytes.copy(At::Buffer(job.slot), At::Block(job.block));
                self.behind.push(self.flash(IoOp::Write).later());
                self.hierarchy.end_write(job, Ok(0), &mut self.actions);
                self.carry();
            }
            if self.hierarchy.wants_commit() {
                self.commit(false);
            }
        }
    }

    fn clean_to_base(&mut self, job: &CleanJob) {
        self.bytes.copy(At::Frame(job.frame), At::Base(job.page));
        self.write_base(job.page, false);
        self.flow.cleaned_to_base += 1;
        self.hierarchy.finish_clean(job, true, &mut self.actions);
        self.carry();
    }

    /// A batch of dirty pages of flash goes to base; false when there was none.
    fn destage(&mut self) -> bool {
        let jobs = self.hierarchy.next_destage(BATCH, None);
        for job in &jobs {
            let from = job.from.map_or(At::Buffer(job.slot), |(b, _)| At::Block(b));
            self.bytes.copy(from, At::Base(job.page));
            self.behind.push(self.flash(IoOp::Read).later());
            self.flow.destage_reads += 1;
            self.hierarchy.destage_written(job, &mut self.actions);
            self.carry();
        }
        let mut writes = Vec::new();
        for job in &jobs {
            append(&mut writes, self.base(IoOp::Write, job.page).later());
        }
        self.flow.base_writes += jobs.len() as u64;
        self.flow.destage_ios += writes.len() as u64;
        self.behind.append(&mut writes);
        self.hierarchy.destaged(&jobs, &mut self.actions);
        self.carry();
        !jobs.is_empty()
    }

    /// Makes the map's changes durable: one write and one sync of flash.
    fn commit(&mut self, waits: bool) {
        let Some(changes) = self.hierarchy.begin_commit() else {
            return;
        };
        let written = self.journal.batch(&changes);
        self.flow.commits += 1;
        self.flow.journal_bytes += written.journal;
        self.flow.checkpoint_bytes += written.checkpoint;
        let mut steps = vec![
            Step::flash(IoOp::Write, written.journal),
            Step::flash(IoOp::Sync, 0),
        ];
        if written.checkpoint > 0 {
            steps.push(Step::flash(IoOp::Write, written.checkpoint).later());
        }
        match waits {
            true => self.ahead.append(&mut steps),
            false => self.behind.extend(steps.into_iter().map(Step::later)),
        }
        self.hierarchy.end_commit(&mut self.actions);
        self.carry();
    }

    /// Carries the actions out.
    fn carry(&mut self) {
        for action in self.actions.drain(..) {
            match action {
                Action::Stage { slot, .. } => self.bytes.copy(At::Hand, At::Buffer(slot)),
                Action::StageFrame { frame, slot, .. } => {
                    self.bytes.copy(At::Frame(frame), At::Buffer(slot));
                }
                Action::Unstage { slot } => self.bytes.clear(At::Buffer(slot)),
                Action::FillFrame { frame, .. } => self.bytes.copy(At::Hand, At::Frame(frame)),
                Action::EvictFrame { frame, .. } => self.bytes.clear(At::Frame(frame)),
                Action::Wake { .. }
                | Action::WakeWriter
                | Action::WakeCleaner
                | Action::WakeDestager
                | Action::Room => {}
            }
        }
    }

    fn flash(&self, op: IoOp) -> Step {
        Step::flash(op, self.layout.page_size())
    }

    fn base(&self, op: IoOp, page: PageId) -> Step {
        Step::base(op, self.layout.position(page), self.layout.page_size())
    }
}
