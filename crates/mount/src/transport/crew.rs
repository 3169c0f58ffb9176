//! The threads that serve a mount.
//!
//! Each serves one request at a time, and waits for flash or base as long as that takes. A base
//! that is slow, or hangs, must not keep those waiting whose pages are on flash: one more thread
//! comes when all are busy, up to what the mount allows. None of them goes before the unmount but
//! one that fails, in whose place another one comes. Where the system has no thread to give, it is
//! asked again while all are busy.
//!
//! # Invariants
//! 1. A thread counts as waiting before it answers a request and before it takes the next one, and
//!    while it takes one; not when it serves one, could not be started, or has failed. So where
//!    there are fewer clients than threads, somebody always waits.
//! 2. Of all being busy at most one event is on its way.

use crate::sys;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// Threads that serve requests of the device at first.
const THREADS_FIRST: usize = 16;
/// How long a system that had no thread to give is left alone.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });

/// What threads that serve tell the one that started them.
enum Event {
    /// None of them waits for a request of the device.
    AllBusy,
    /// One has ended.
    Ended,
}

/// Threads that wait for a request of the device, and whom to tell when there is none.
pub(super) struct Waiting {
    threads: AtomicUsize,
    /// There are no more to come.
    is_all: AtomicBool,
    /// That all are busy was told, and nobody has looked yet: see invariant 2.
    is_told: AtomicBool,
    tell: Sender<Event>,
}

impl Waiting {
    /// A thread waits for a request from now on.
    pub(super) fn begin(&self) {
        self.threads.fetch_add(1, Ordering::AcqRel);
    }

    /// It has one, or has failed.
    pub(super) fn end(&self) {
        let before = self.threads.fetch_sub(1, Ordering::AcqRel);
        assert!(
            before > 0,
            "invariant 1: whoever has a request waited for it"
        );
        let is_missing = before == 1 && !self.is_all.load(Ordering::Acquire);
        if is_missing && !self.is_told.swap(true, Ordering::AcqRel) {
            // Nobody listens any more where the mount ends: then no thread is missing.
            let _ = self.tell.send(Event::AllBusy);
        }
    }

    /// Whether all are busy now; when they are again, that is told again.
    fn are_all_busy(&self) -> bool {
        let was_told = self.is_told.swap(false, Ordering::AcqRel);
        assert!(was_told, "invariant 2: whoever looks was told");
        self.threads.load(Ordering::Acquire) == 0
    }
}

/// Tells that a thread ends, also when it panics.
struct Leaving(Sender<Event>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Ended);
    }
}

/// What the threads of a crew tell.
pub(super) struct Told(Receiver<Event>);

/// For a crew that nobody is in yet.
pub(super) fn prepare() -> (Waiting, Told) {
    let (tell, told) = mpsc::channel();
    let waiting = Waiting {
        threads: AtomicUsize::new(0),
        is_all: AtomicBool::new(false),
        is_told: AtomicBool::new(false),
        tell,
    };
    (waiting, Told(told))
}

/// See the module text.
pub(super) struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    waiting: &'scope Waiting,
    told: Told,
    threads: Vec<ScopedJoinHandle<'scope, io::Result<()>>>,
    /// Those of them that were started to serve requests of the device. One that has failed still
    /// counts: a device that always fails ends as many threads as there may be, and no more.
    of_device: usize,
    /// The system has just had no thread to give.
    is_short: bool,
    /// So many more threads cannot be started.
    #[cfg(test)]
    refused: usize,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    /// Nobody yet.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        waiting: &'scope Waiting,
        told: Told,
    ) -> Self {
        Self {
            scope,
            waiting,
            told,
            threads: Vec::new(),
            of_device: 0,
            is_short: false,
            #[cfg(test)]
            refused: 0,
        }
    }

    /// Starts a thread that serves.
    ///
    /// # Errors
    /// Those of the system, which has no more threads.
    pub(super) fn start(
        &mut self,
        name: String,
        serve: impl FnOnce() -> io::Result<()> + Send + 'scope,
    ) -> io::Result<()> {
        let tell = self.waiting.tell.clone();
        let serve = move || {
            // Made here: a thread that could not be started has no end.
            let _leaving = Leaving(tell);
            serve().inspect_err(|error| sys::say(format_args!("a thread serves no more: {error}")))
        };
        let thread = Builder::new().name(name);
        #[cfg(test)]
        let thread = match self.refused.checked_sub(1) {
            Some(left) => {
                self.refused = left;
                thread.stack_size(isize::MAX as usize)
            }
            None => thread,
        };
        self.threads.push(thread.spawn_scoped(self.scope, serve)?);
        Ok(())
    }

    /// Starts the first threads that serve requests of the device, `most` at most.
    ///
    /// # Errors
    /// That of the first one; without one of the others those that there are serve.
    pub(super) fn start_first<F>(&mut self, most: usize, serve: F) -> io::Result<()>
    where
        F: FnOnce() -> io::Result<()> + Send + Copy + 'scope,
    {
        for _ in 0..most.min(THREADS_FIRST) {
            match self.one_more(serve) {
                Err(error) if self.of_device == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Starts one more thread that serves requests of the device. It counts as waiting at once.
    fn one_more<F>(&mut self, serve: F) -> io::Result<()>
    where
        F: FnOnce() -> io::Result<()> + Send + Copy + 'scope,
    {
        self.waiting.begin();
        let number = self.of_device;
        let started = self.start(format!("fuse-{number}"), serve);
        let was_short = std::mem::replace(&mut self.is_short, started.is_err());
        match &started {
            Ok(()) => {
                self.of_device += 1;
                // The others serve what gives descriptors back.
                sys::allow_patience(self.of_device.saturating_sub(2));
            }
            Err(error) => {
                self.waiting.end();
                if !was_short {
                    sys::say(format_args!("only {number} threads serve for now: {error}"));
                }
            }
        }
        started
    }

    /// Starts one thread more whenever all are busy, until there are `most`, and waits until all
    /// have ended.
    ///
    /// # Errors
    /// The first one of a thread.
    pub(super) fn run<F>(mut self, most: usize, serve: F) -> io::Result<()>
    where
        F: FnOnce() -> io::Result<()> + Send + Copy + 'scope,
    {
        let mut alive = self.threads.len();
        while alive > 0 {
            match self.told.0.recv() {
                Ok(Event::AllBusy) if self.of_device == most => {
                    self.waiting.is_all.store(true, Ordering::Release);
                }
                Ok(Event::AllBusy) if self.waiting.are_all_busy() => match self.one_more(serve) {
                    Ok(()) => alive += 1,
                    // It has told again that all are busy, and so there is another try.
                    Err(_) => std::thread::sleep(PAUSE),
                },
                // One is back by now.
                Ok(Event::AllBusy) => {}
                Ok(Event::Ended) => alive -= 1,
                Err(_) => break,
            }
        }
        let ends = self.threads.into_iter().map(|thread| {
            let end = thread.join();
            end.unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")))
        });
        // All of them are waited for before the first error is picked.
        let ends: Vec<_> = ends.collect();
        ends.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};

    /// Only ends a test that fails.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Requests that nobody serves yet, and whether requests end.
    #[derive(Default)]
    struct Line {
        state: Mutex<(usize, bool)>,
        changed: Condvar,
    }

    impl Line {
        /// So many requests come, and end only when [`Line::end`] is called. Whether all are being
        /// served at last.
        fn come(&self, requests: usize) -> bool {
            let mut state = self.state.lock().expect("lock");
            state.0 += requests;
            self.changed.notify_all();
            let left = |state: &mut (usize, bool)| state.0 > 0;
            let wait = self.changed.wait_timeout_while(state, PATIENCE, left);
            !wait.expect("lock").1.timed_out()
        }

        fn end(&self) {
            self.state.lock().expect("lock").1 = true;
            self.changed.notify_all();
        }

        fn serve(&self, waiting: &Waiting) {
            let state = self.state.lock().expect("lock");
            let came = self.changed.wait_while(state, |s| s.0 == 0 && !s.1);
            let mut state = came.expect("lock");
            if state.0 == 0 {
                return;
            }
            state.0 -= 1;
            waiting.end();
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |s| !s.1).expect("lock"));
            waiting.begin();
        }
    }

    /// Else there would be one for each request, while no more threads can be had.
    #[test]
    fn that_all_are_busy_is_told_once() {
        let (waiting, told) = prepare();
        for _ in 0..2 {
            for _ in 0..1000 {
                waiting.begin();
                waiting.end();
            }
            assert!(matches!(told.0.try_recv(), Ok(Event::AllBusy)));
            assert!(told.0.try_recv().is_err(), "one is on its way");
            assert!(waiting.are_all_busy());
        }
    }

    /// The system refuses threads for a while: whoever comes meanwhile is served afterwards. A
    /// thread that fails is replaced.
    #[test]
    fn a_thread_that_is_missing_comes_later() {
        let line = Line::default();
        let failed = AtomicBool::new(false);
        let (waiting, told) = prepare();
        let end = std::thread::scope(|scope| {
            let mut crew = Crew::new(scope, &waiting, told);
            let serve = || {
                if !failed.swap(true, Ordering::Relaxed) {
                    waiting.end();
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                line.serve(&waiting);
                Ok(())
            };
            crew.start_first(THREADS_FIRST, serve).expect("starts");
            // More often than there are threads.
            crew.refused = 3 * THREADS_FIRST;
            let run = scope.spawn(move || crew.run(40, serve));
            let all_served = line.come(39);
            line.end();
            assert!(all_served, "one of forty has failed");
            run.join().expect("no panic")
        });
        let kind = end.expect_err("one has failed").kind();
        assert_eq!(kind, io::ErrorKind::OutOfMemory);
    }
}
