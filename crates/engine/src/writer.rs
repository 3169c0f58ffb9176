//! Background writers: staged pages to flash (TAC §3.3). A writer sleeps while there is nothing to
//! write or while fewer writers are wanted than are at work; it never polls.

use crate::engine::{Engine, Inner};
use crate::flash::{FlashStore, checksum};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;
use thermocline_core::WriteJob;

/// The life of writer `number`: until the engine stops with an empty buffer, or is gone.
pub(crate) fn run(engine: &Weak<Engine>, number: u32) {
    while let Some(engine) = engine.upgrade() {
        let Some(flash) = &engine.flash else { return };
        match next_job(&engine, number) {
            Some((job, bytes)) => write(&engine, flash, job, &bytes),
            None => return,
        }
    }
}

type Staged = Arc<crate::device::AlignedBuf>;

/// Waits for a job; `None` when the engine stops and the buffer is empty.
fn next_job(engine: &Engine, number: u32) -> Option<(WriteJob, Staged)> {
    let mut inner = engine.inner();
    loop {
        if let Some(job) = may_start(engine, &mut inner) {
            let bytes = inner.staged.get(&job.slot.0).cloned();
            debug_assert!(bytes.is_some(), "a queued slot has staged bytes");
            if let Some(bytes) = bytes {
                inner.writers_at_work += 1;
                debug_assert!(inner.writers_at_work <= engine.config.writers_max);
                return Some((job, bytes));
            }
        }
        if inner.stopping && (inner.hierarchy.staged() == 0 || number > 0) {
            return None;
        }
        inner = engine
            .work
            .wait(inner)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// The next job, unless enough writers are at work already.
fn may_start(engine: &Engine, inner: &mut Inner) -> Option<WriteJob> {
    let backlog = inner.hierarchy.staged();
    let config = &engine.config;
    let wanted = inner
        .pace
        .wanted(backlog, config.write_buffer_pages, config.writers_max);
    match inner.writers_at_work < wanted {
        true => inner.hierarchy.next_write(),
        false => None,
    }
}

fn write(engine: &Engine, flash: &FlashStore, job: WriteJob, bytes: &Staged) {
    debug_assert_eq!(bytes.len(), engine.page_size(), "whole pages are written");
    let started = Instant::now();
    let sum = checksum(job.page, bytes);
    let result = flash.write_slot(job.slot, bytes);
    let took = started.elapsed();
    let mut inner = engine.inner();
    debug_assert!(
        inner.hierarchy.slots().is_writing(job.slot),
        "a slot has one writer"
    );
    debug_assert!(inner.writers_at_work > 0, "an end follows a start");
    inner.checksums[job.slot.at()] = sum;
    inner.writers_at_work -= 1;
    let Inner {
        hierarchy,
        actions,
        pace,
        ..
    } = &mut *inner;
    hierarchy.end_write(job, result, actions);
    let now_ns = engine.started.elapsed().as_nanos() as u64;
    pace.finished(now_ns, took.as_nanos() as u64, hierarchy.staged());
    engine.carry_out(&mut inner, &[]);
    if inner.hierarchy.staged() > 0 || inner.stopping {
        engine.work.notify_all();
    }
}
