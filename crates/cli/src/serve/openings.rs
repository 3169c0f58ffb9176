//! Another opening of the cache now and then: a copy of the cache, or of base, can be told from the
//! newest one only by the opening it is of.

use crate::serve::log;
use crate::serve::reshaping::Reshaping;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread that begins them.
pub(crate) struct Openings {
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct End {
    over: Mutex<bool>,
    changed: Condvar,
}

impl Openings {
    /// One each time `every` has passed, until [`Self::finish`].
    pub(crate) fn begin(every: Duration, reshaping: &Arc<Reshaping>) -> Self {
        let end = Arc::new(End::default());
        let (waiting, reshaping) = (Arc::clone(&end), Arc::clone(reshaping));
        let work = move || {
            while !waiting.is_over_after(every) {
                reshaping.renew_opening();
            }
        };
        let thread = std::thread::Builder::new().name("tc-openings".into());
        let thread = thread.spawn(work).map_err(|error| {
            log::line(&format!(
                "old copies of the cache will not be told: {error}"
            ));
        });
        Self {
            end,
            thread: thread.ok(),
        }
    }

    /// No more of them.
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
