//! Background work: staged pages to flash (TAC §3.3), dirty frames out of DRAM, dirty pages to
//! base, commits. Each kind is a method that does one unit of it; threads call them in turn, and
//! without threads [`Engine::step`] does.
//!
//! A writer sleeps while there is little to write (`writers_due`), while fewer writers are wanted
//! than are at work, and while a sync waits: its commit takes the pages. The other threads look
//! when they are woken, and once in a while for what becomes due by age alone.

use crate::engine::Engine;
use crate::lock::{self, Condvar, MutexGuard};
use crate::state::Inner;
use crate::store::{Store, checksum};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thermocline_core::health::Way;
use thermocline_core::ledger::UNDER_WAY_MAX;
use thermocline_core::{Fault, WriteJob};

/// What the engine's threads wait for, each kind for its own: a signal that wakes those who have
/// nothing to do with it costs more than the work.
#[derive(Default)]
pub(crate) struct Signals {
    /// Many pages are staged, or some for a while.
    pub(crate) writers: Condvar,
    /// A frame became dirty.
    pub(crate) cleaner: Condvar,
    /// Flash holds many dirty pages.
    pub(crate) destager: Condvar,
    /// The engine stops.
    pub(crate) committer: Condvar,
    /// A chunk is to be read ahead.
    pub(crate) reader: Condvar,
    /// Commits by their numbers: one of them ended, or is to be synced or made. Of those that
    /// somebody waits for at a time, two under way and the next, each has its own.
    commits: [Condvar; UNDER_WAY_MAX + 1],
    /// The engine stops.
    pub(crate) verifier: Condvar,
}

impl Signals {
    /// What those wait for whose commit has this number.
    pub(crate) fn of_commit(&self, number: u64) -> &Condvar {
        &self.commits[number as usize % self.commits.len()]
    }

    /// Wakes everybody who waits for a commit.
    pub(crate) fn wake_committed(&self) {
        self.commits.iter().for_each(Condvar::notify_all);
    }

    /// Wakes every thread of the engine.
    pub(crate) fn wake_all(&self) {
        for signal in [
            &self.writers,
            &self.cleaner,
            &self.destager,
            &self.committer,
            &self.reader,
            &self.verifier,
        ] {
            signal.notify_all();
        }
    }
}

/// How often age alone is looked at.
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// Ticks between two looks at quiet write intents.
const EXPIRE_TICKS: u64 = 8;
/// Steps between them where there are no threads.
const EXPIRE_STEPS: u64 = 64;

impl Engine {
    /// Does one unit of background work, on the caller's thread; false when there was none.
    #[doc(hidden)]
    pub fn step(&self) -> bool {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        if number % EXPIRE_STEPS == EXPIRE_STEPS - 1 {
            self.spare_a_checkpoint();
            self.tidy_up();
            self.tell_time(&mut self.inner());
        }
        self.write_some(self.inner()).is_ok()
            || self.commit_if_due()
            || self.clean_one()
            || self.destage_some()
            || self.verify_some()
            || self.load_some()
    }

    /// Empties a half full journal, so that no sync has to wait for that.
    pub(crate) fn spare_a_checkpoint(&self) {
        let due = self.store().filter(|store| store.wants_checkpoint());
        if let (Some(store), Ok(())) = (due, self.check_fence()) {
            // An error poisons the store: the next commit tells.
            let _ = store.checkpoint();
        }
    }

    /// Tells the policy how long the engine has run: some have an allowance by time.
    fn tell_time(&self, inner: &mut Inner) {
        let age = u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX);
        inner.hierarchy.on_time(age);
    }

    /// Ends what has been quiet for a while: write intents, and objects nobody has open.
    pub(crate) fn tidy_up(&self) {
        self.close_lingering();
        let unwanted = {
            let mut inner = self.inner();
            inner.hierarchy.ledger_mut().expire_intents();
            inner.ahead.forget_quiet();
            inner.ahead.unwanted()
        };
        drop(unwanted);
    }

    /// Whether staged pages are worth waking a writer. In write-back a sync takes them all, so only
    /// many of them are, and those that the committer finds at a tick: one by one they would be
    /// on their way just when the sync comes, and it would have to wait for them.
    pub(crate) fn writers_due(&self, inner: &Inner) -> bool {
        let staged = inner.hierarchy.staged();
        !inner.hierarchy.absorbs() || inner.stopping || staged > self.config.write_buffer_pages / 2
    }

    /// Writes a batch of staged pages to flash on the caller's thread, if there is something that
    /// can be written: whoever waits for the buffer need not wake anybody.
    pub(crate) fn write_some<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> Result<MutexGuard<'a, Inner>, MutexGuard<'a, Inner>> {
        match inner.commits.takes_pages() {
            true => Err(inner),
            false => write_batch(self, inner),
        }
    }

    pub(crate) fn commit_if_due(&self) -> bool {
        let due = {
            let inner = self.inner();
            // Without threads nobody else sees to the end of what is written.
            self.commit_due(&inner) || (self.config.inline && inner.commits.may_sync())
        };
        due && self.commit().is_ok()
    }

    /// Sleeps until there may be work, at most a tick; false when the engine stops. Not at all when
    /// somebody has `asked` meanwhile.
    pub(crate) fn rest(&self, signal: &Condvar, asked: impl FnOnce(&mut Inner) -> bool) -> bool {
        let mut inner = self.inner();
        if inner.stopping || asked(&mut inner) {
            return !inner.stopping;
        }
        let waited = signal.wait_timeout(inner, TICK);
        !waited.stopping
    }

    /// Does `unit` until there is none to do.
    pub(crate) fn until_stopping(&self, unit: fn(&Self) -> bool) {
        while unit(self) && !self.inner().stopping {}
    }
}

/// The life of the thread that commits what is due.
pub(crate) fn run_committer(engine: &Weak<Engine>) {
    let mut last = Duration::ZERO;
    let mut ticks = 0u64;
    while let Some(engine) = engine.upgrade() {
        engine.commit_if_due();
        if engine.age() >= last + TICK {
            last = engine.age();
            ticks += 1;
            engine.spare_a_checkpoint();
            let mut inner = engine.inner();
            engine.tell_time(&mut inner);
            if inner.hierarchy.staged() > 0 {
                engine.signals.writers.notify_one();
            }
            drop(inner);
            if ticks.is_multiple_of(EXPIRE_TICKS) {
                engine.tidy_up();
            }
        }
        if !engine.rest(&engine.signals.committer, |_| false) {
            return;
        }
    }
}

/// The life of the thread that cleans dirty frames.
pub(crate) fn run_cleaner(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        engine.until_stopping(Engine::clean_one);
        let asked = |inner: &mut Inner| std::mem::take(&mut inner.clean_asked);
        if !engine.rest(&engine.signals.cleaner, asked) {
            return;
        }
    }
}

/// The life of the thread that destages.
pub(crate) fn run_destager(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        engine.until_stopping(Engine::destage_some);
        let asked = |inner: &mut Inner| std::mem::take(&mut inner.destage_asked);
        if !engine.rest(&engine.signals.destager, asked) {
            return;
        }
    }
}

/// The life of writer `number`: until the engine stops with an empty buffer, or is gone.
pub(crate) fn run_writer(engine: &Weak<Engine>, number: u32) {
    while let Some(engine) = engine.upgrade() {
        let jobs = next_jobs(&engine, number);
        match (jobs, engine.store()) {
            (Some(jobs), Some(flash)) => write(&engine, &flash, &jobs),
            _ => return,
        }
    }
}

/// Pages written to flash as one batch at most.
const BATCH: usize = 32;

/// A page to write, and its bytes.
pub(crate) type Job = (WriteJob, Arc<crate::device::AlignedBuf>);

/// Waits for something to write; `None` when the engine stops and the buffer is empty.
fn next_jobs(engine: &Engine, number: u32) -> Option<Vec<Job>> {
    let mut inner = engine.inner();
    loop {
        if may_start(engine, &mut inner)
            && let Some(jobs) = start_batch(&mut inner)
        {
            return Some(jobs);
        }
        let idle = inner.hierarchy.staged() == 0 || inner.hierarchy.is_off();
        if inner.stopping && (idle || number > 0) {
            return None;
        }
        if inner.hierarchy.wants_commit() {
            drop(inner);
            // A failed commit switches the tier off.
            let _ = engine.commit();
            inner = engine.inner();
            continue;
        }
        inner = engine.signals.writers.wait(inner);
    }
}

/// Whether fewer writers are at work than are wanted.
fn may_start(engine: &Engine, inner: &mut Inner) -> bool {
    let backlog = inner.hierarchy.staged();
    let config = &engine.config;
    let wanted = inner
        .pace
        .wanted(backlog, config.write_buffer_pages, config.writers_max);
    inner.writers_at_work < wanted
}

/// A batch to be written apart from commits; none while those take the pages themselves.
fn start_batch(inner: &mut Inner) -> Option<Vec<Job>> {
    match inner.commits.takes_pages() {
        true => None,
        false => take_batch(inner),
    }
}

/// A batch to be written now, by one more writer; `None` when nothing can be.
fn take_batch(inner: &mut Inner) -> Option<Vec<Job>> {
    let jobs = take_jobs(inner, BATCH);
    inner.writers_at_work += u32::from(!jobs.is_empty());
    (!jobs.is_empty()).then_some(jobs)
}

/// Writes a batch of staged pages on the caller's thread, whoever else would take them; gives the
/// lock back as it is when nothing can be written.
pub(crate) fn write_batch<'a>(
    engine: &'a Engine,
    mut inner: MutexGuard<'a, Inner>,
) -> Result<MutexGuard<'a, Inner>, MutexGuard<'a, Inner>> {
    let Some(flash) = engine.store() else {
        return Err(inner);
    };
    let Some(jobs) = take_batch(&mut inner) else {
        return Err(inner);
    };
    drop(inner);
    write(engine, &flash, &jobs);
    Ok(engine.inner())
}

/// At most `most` staged pages, those that wait longest first.
pub(crate) fn take_jobs(inner: &mut Inner, most: usize) -> Vec<Job> {
    let mut jobs = Vec::new();
    while jobs.len() < most
        && let Some(job) = inner.hierarchy.next_write()
    {
        let Some(bytes) = inner.staged.get(&job.slot.0) else {
            lock::die("a queued slot has staged bytes");
        };
        jobs.push((job, Arc::clone(bytes)));
    }
    jobs
}

fn write(engine: &Engine, flash: &Store, jobs: &[Job]) {
    let started = engine.age();
    let sum = |(job, bytes): &Job| {
        assert_eq!(bytes.len(), engine.page_size(), "whole pages are written");
        checksum(job.page, bytes)
    };
    let sums: Vec<u64> = jobs.iter().map(sum).collect();
    let pages: Vec<_> = jobs
        .iter()
        .map(|(job, bytes)| (job.block, &bytes[..]))
        .collect();
    // What is free by this map may be another host's by now.
    let results = match engine.may_write_flash() {
        Ok(()) => flash.write_blocks(&pages),
        Err(_) => vec![Err(Fault::WriteError); pages.len()],
    };
    let ended = engine.age();
    let mut inner = engine.inner();
    assert!(inner.writers_at_work > 0, "an end follows a start");
    inner.writers_at_work -= 1;
    inner.hierarchy.begin_call(Way::Write);
    for (((job, _), result), sum) in jobs.iter().zip(results).zip(sums) {
        assert!(
            inner.hierarchy.slots().is_writing(job.slot),
            "a slot has one writer"
        );
        engine.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.end_write(*job, result.map(|()| sum), out)
        });
    }
    engine.end_call(&mut inner, Way::Write);
    let took = ended.saturating_sub(started);
    let staged = inner.hierarchy.staged();
    let (ended, took) = (ended.as_nanos() as u64, took.as_nanos() as u64);
    for _ in jobs {
        let each = took / jobs.len() as u64;
        inner.pace.finished(ended, each, staged);
    }
    engine.page_free.notify_all();
    match (inner.stopping, inner.hierarchy.staged()) {
        (true, _) => engine.signals.wake_all(),
        (false, 1..) if engine.writers_due(&inner) => engine.signals.writers.notify_one(),
        (false, _) => {}
    }
}
