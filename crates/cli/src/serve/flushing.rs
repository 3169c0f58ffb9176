//! Writing back: the flush a command started, what its control file says of it, and the one at the
//! end of a mount.
//!
//! States: *idle* → *running* → *done*, *stopped* or *failed*, and from each of these → *running*.
//!
//! Invariants
//! 1. At most one flush runs: its thread is joined before another one starts.
//! 2. `total` is never below what was dirty at any time of the same flush.

use crate::failure::{Code, Failure, Outcome, reason};
use crate::serve::log;
use crate::serve::reshaping::Reshaping;
use crate::show::pace::Pace;
use crate::units::show_count;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thermocline::{Engine, FlushProgress};

/// Time between two lines on progress in the log.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The flushes of one mount.
pub(crate) struct Flushing {
    engine: Arc<Engine>,
    state: Mutex<State>,
    /// Ends the flush that runs.
    stop: AtomicBool,
    /// Whether dirty pages stay on flash when the mount ends.
    keep: AtomicBool,
    /// Marks base after a flush, while it is served.
    marking: OnceLock<Arc<Reshaping>>,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    total: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Running,
    Done,
    Stopped,
    Failed(String),
}

impl Flushing {
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self {
            engine,
            state: Mutex::default(),
            stop: AtomicBool::new(false),
            keep: AtomicBool::new(false),
            marking: OnceLock::new(),
        })
    }

    /// From now on a flush ends with base's mark.
    pub(crate) fn served(&self, marking: &Arc<Reshaping>) {
        self.marking.get_or_init(|| Arc::clone(marking));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the control file says: `dirty N of M`, and how the flush stands.
    pub(crate) fn describe(&self) -> String {
        let left = self.engine.dirty_pages();
        let state = self.state();
        let (phase, total) = match &state.phase {
            Phase::Idle => ("idle".to_string(), left),
            Phase::Running => ("running".to_string(), state.total.max(left)),
            Phase::Done => ("done".to_string(), state.total.max(left)),
            Phase::Stopped => ("stopped".to_string(), state.total.max(left)),
            Phase::Failed(why) => (format!("failed: {why}"), state.total.max(left)),
        };
        format!("dirty {left} of {total}\nstate {phase}\n")
    }

    /// Executes what was written to the control file: `start` or `stop` a flush; `at-end keep` or
    /// `at-end flush` what is dirty when the mount ends.
    pub(crate) fn command(self: &Arc<Self>, word: &str) -> io::Result<()> {
        match word {
            "start" => self.start(),
            "stop" => {
                self.stop.store(true, Ordering::Release);
                Ok(())
            }
            "at-end keep" => {
                self.keep.store(true, Ordering::Release);
                Ok(())
            }
            "at-end flush" => {
                self.keep.store(false, Ordering::Release);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Starts one, unless one runs.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state();
        if state.phase == Phase::Running {
            return Ok(());
        }
        if let Some(ended) = state.thread.take() {
            let _panicked = ended.join();
        }
        self.stop.store(false, Ordering::Release);
        state.total = self.engine.dirty_pages();
        let flushing = Arc::clone(self);
        let thread = std::thread::Builder::new().name("flush".into());
        state.thread = Some(thread.spawn(move || {
            let _told = flushing.run(|_| ());
        })?);
        state.phase = Phase::Running;
        log::line(&format!("flush: {} pages", show_count(state.total)));
        Ok(())
    }

    /// Writes everything back on this thread.
    fn run(&self, mut tell: impl FnMut(FlushProgress)) -> io::Result<()> {
        let result = self.engine.flush(|progress| {
            let mut state = self.state();
            state.total = state.total.max(progress.total);
            drop(state);
            tell(progress);
            !self.stop.load(Ordering::Acquire)
        });
        // Whoever waits may copy base next, mark and all.
        if let (Ok(()), Some(marking)) = (&result, self.marking.get()) {
            // What cannot be marked now is tried again each second, and said then.
            let _later = marking.mark_whole();
        }
        let mut state = self.state();
        state.phase = match &result {
            Ok(()) if self.engine.dirty_pages() == 0 => Phase::Done,
            Ok(()) if self.stop.load(Ordering::Acquire) => Phase::Stopped,
            Ok(()) => Phase::Done,
            Err(error) => Phase::Failed(reason(error)),
        };
        if let Err(error) = &result {
            log::line(&format!("flush failed: {}", reason(error)));
        }
        result
    }

    /// At the end of a mount, when requests have ended: writes everything back, unless it is to be
    /// kept on flash. Progress goes to the log.
    pub(crate) fn finish(&self) -> Outcome {
        self.stop.store(true, Ordering::Release);
        let thread = self.state().thread.take();
        if let Some(thread) = thread {
            let _panicked = thread.join();
        }
        self.stop.store(false, Ordering::Release);
        let dirty = self.engine.dirty_pages();
        if dirty == 0 {
            log::line("base is whole");
            return Ok(());
        }
        if self.keep.load(Ordering::Acquire) {
            let pages = show_count(dirty);
            log::line(&format!(
                "{pages} pages that are newer than base stay on flash"
            ));
            return Ok(());
        }
        log::line(&format!("writing back {} pages", show_count(dirty)));
        let mut lines = Lines::new();
        let result = self.run(|progress| lines.note(progress));
        self.outcome(&result)
    }

    fn outcome(&self, result: &io::Result<()>) -> Outcome {
        let left = self.engine.dirty_pages();
        let why = match result {
            Ok(()) if left == 0 => {
                log::line("base is whole");
                return Ok(());
            }
            Ok(()) => "the flush ended early".to_string(),
            Err(error) => reason(error),
        };
        let message = format!(
            "{} pages could not be written back to base: {why}",
            show_count(left)
        );
        Err(Failure::new(Code::Failure, message)
            .advise("keep the cache file; mount again, or thermocline recover BASE CACHE"))
    }
}

/// Lines on progress, not too many.
struct Lines {
    started: Instant,
    last: Instant,
    pace: Pace,
}

impl Lines {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            pace: Pace::default(),
        }
    }

    fn note(&mut self, progress: FlushProgress) {
        self.pace.note(self.started.elapsed(), progress.left);
        if self.last.elapsed() < LINE_EVERY {
            return;
        }
        self.last = Instant::now();
        let done = show_count(progress.total - progress.left);
        let total = show_count(progress.total);
        let rest = self.pace.describe();
        log::line(&format!("written back {done} of {total} pages, {rest}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::EngineConfig;

    fn flushing() -> Arc<Flushing> {
        Flushing::new(Engine::start(EngineConfig::default(), None).expect("engine"))
    }

    #[test]
    fn with_nothing_dirty_it_is_done_at_once() {
        let flushing = flushing();
        assert_eq!(flushing.describe(), "dirty 0 of 0\nstate idle\n");
        flushing.command("start").expect("starts");
        let thread = flushing.state().thread.take().expect("a thread");
        thread.join().expect("ends");
        assert_eq!(flushing.describe(), "dirty 0 of 0\nstate done\n");
        assert!(flushing.finish().is_ok());
    }

    #[test]
    fn other_words_are_refused() {
        let flushing = flushing();
        for word in ["", "begin", "at-end", "at-end drop"] {
            let refused = flushing.command(word).expect_err(word);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(flushing.describe(), "dirty 0 of 0\nstate idle\n");
        flushing.command("at-end keep").expect("accepted");
        assert!(flushing.keep.load(Ordering::Acquire));
        flushing.command("at-end flush").expect("accepted");
        assert!(!flushing.keep.load(Ordering::Acquire));
    }
}
