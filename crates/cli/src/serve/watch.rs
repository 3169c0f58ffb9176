//! What a mount does now and then while it serves. It says when its tier has gone off and when
//! pages are lost. It marks base as whole once a mount that went over to write-through has nothing
//! left to write back. And it begins another opening of the cache, because a copy of the cache, or
//! of base, can be told from the newest one only by the opening it is of.

use crate::failure::Outcome;
use crate::serve::log;
use crate::serve::reshaping::Reshaping;
use crate::units::show_count;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thermocline::Engine;

/// How often it is looked whether the tier is off.
const LOOK: Duration = Duration::from_secs(1);

/// The thread that does that.
pub(crate) struct Watch {
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct End {
    over: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    /// From now on, until [`Self::finish`]; another opening each time `every` has passed.
    pub(crate) fn begin(every: Duration, engine: &Arc<Engine>, reshaping: &Arc<Reshaping>) -> Self {
        let end = Arc::new(End::default());
        let waiting = Arc::clone(&end);
        let (engine, reshaping) = (Arc::clone(engine), Arc::clone(reshaping));
        let mut seen = Seen::of(&engine);
        let work = move || {
            let mut began = Instant::now();
            while !waiting.is_over_after(LOOK.min(every)) {
                seen.look(&engine);
                seen.note_mark(&reshaping.mark_whole());
                if began.elapsed() >= every && reshaping.renew_opening() {
                    began = Instant::now();
                }
            }
        };
        let thread = std::thread::Builder::new().name("tc-watch".into());
        let thread = thread.spawn(work).map_err(|error| {
            log::line(&format!(
                "nobody will say when the tier goes off, nor tell old copies of the cache: {error}"
            ));
        });
        Self {
            end,
            thread: thread.ok(),
        }
    }

    /// No more of it.
    pub(crate) fn finish(self) {
        *self.end.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.changed.notify_all();
        if let Some(thread) = self.thread {
            let _panicked = thread.join();
        }
    }
}

impl End {
    fn is_over_after(&self, time: Duration) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(over, time, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What was seen at the last look.
struct Seen {
    off: Option<String>,
    lost: usize,
    /// Why base could not be marked, the last time; empty when it could.
    unmarked: String,
}

impl Seen {
    fn of(engine: &Engine) -> Self {
        Self {
            off: engine.tier_state().err(),
            lost: engine.lost_count(),
            unmarked: String::new(),
        }
    }

    /// Says why base cannot be marked as whole, once.
    fn note_mark(&mut self, marked: &Outcome) {
        let why = match marked {
            Ok(()) => String::new(),
            Err(failure) => format!(
                "base is whole, and its mark cannot say so: {}",
                failure.message
            ),
        };
        if !why.is_empty() && why != self.unmarked {
            log::line(&why);
        }
        self.unmarked = why;
    }

    /// Says what is new.
    fn look(&mut self, engine: &Engine) {
        let now = Self::of(engine);
        match &now.off {
            Some(why) if now.off != self.off => log::line(&format!("the tier is off: {why}")),
            _ => {}
        }
        if now.lost > self.lost {
            let (more, all) = (now.lost - self.lost, now.lost);
            log::line(&format!(
                "lost: {} more dirty pages, {} in all; status lists them",
                show_count(more as u64),
                show_count(all as u64)
            ));
        }
        (self.off, self.lost) = (now.off, now.lost);
    }
}
