//! Steps in which somebody else does something while a request to a disk is under way, as a second
//! thread would: the engine holds no lock then.

use crate::model::pattern;
use crate::run::Run;
use crate::setup::FLASH;
use crate::step::Step;
use crate::tracked::request;
use crate::world::{Failing, Fault, Moment};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

impl Run {
    /// Somebody else writes a page again while a sync has its older bytes written to flash. That
    /// sync does not promise the newer ones; the next one does, also where their write fails once.
    pub(crate) fn rewrite(
        &mut self,
        at: usize,
        page: u64,
        hint: u32,
        skip: u32,
    ) -> Result<(), String> {
        let size = u64::from(self.setup.page_size);
        let (at, object) = self.opened(at)?;
        let offset = page * size;
        self.write(at, offset, size as usize, hint)?;
        let fits = offset + size <= self.tracked(at).model.length();
        if self.faulted || !fits {
            return self.sync(at);
        }
        self.writes += 1;
        let data = pattern(self.writes, offset, size as usize);
        self.tracked(at).model.begin_write(offset, &data);
        let written = Arc::new(Mutex::new(None));
        let act = {
            let (engine, object) = (Arc::clone(&self.engine), Arc::clone(&object));
            let (data, written, buffer) = (data.clone(), Arc::clone(&written), self.setup.buffer);
            move || {
                let staged = engine.stats().tier.map_or(0, |tier| tier.staged);
                let run = engine.dirty_of(&object).run_from(offset);
                let is_dirty = run.is_some_and(|run| run.start <= offset);
                // One thread cannot wait for room, nor for a commit before base is written, nor for
                // who has the page, as a commit that is made before it goes to base.
                let free = staged < buffer && !engine.is_busy(&object, page);
                if is_dirty && free && engine.tier_state().is_ok() {
                    let done = engine.write(&request(&object, offset, hint), &data);
                    *written.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                }
            }
        };
        let moment = Moment::Write(skip);
        self.world.during(FLASH, moment, Some(Box::new(act)));
        let done = self.engine.sync(&object, true);
        self.world.during(FLASH, moment, None);
        self.verify_captured()?;
        done.map_err(|error| format!("fails without a fault: {error}"))?;
        let tracked = self.tracked(at);
        tracked.model.end_sync_before();
        tracked.promised = true;
        let written = written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.tally.rewrites += u64::from(written.is_some());
        let write = || self.engine.write(&request(&object, offset, hint), &data);
        let written = written.unwrap_or_else(write);
        self.end_change(at, written)?;
        if self.setup.faults {
            let (what, skip, times) = (Failing::Writes, 0, 1);
            self.apply(&Step::Fault(None, Fault::Fail { what, skip, times }))?;
        }
        self.sync(at)
    }

    /// A commit that takes no staged pages; while it is made durable the next one is written, with
    /// all of them. That one becomes durable when somebody makes one more.
    pub(crate) fn commit_two(&mut self) -> Result<(), String> {
        let engine = Arc::clone(&self.engine);
        let meanwhile = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&meanwhile);
        let next = move || _ = count.fetch_add(engine.write_next().into(), Ordering::Relaxed);
        self.world.during(FLASH, Moment::Sync, Some(Box::new(next)));
        let done = self.engine.commit_now();
        self.world.during(FLASH, Moment::Sync, None);
        self.tally.meanwhile += meanwhile.load(Ordering::Relaxed);
        match self.engine.tier_state() {
            Ok(()) => self.excuse(done),
            // Nothing is made while the tier is off.
            Err(_) => Ok(()),
        }
    }
}
