//! The threads that serve a mount.
//!
//! Each serves one request at a time, and waits for flash or base as long as that takes. A base
//! that is slow, or hangs, must not keep those waiting whose pages are on flash: one more thread
//! comes when all are busy, up to what the mount allows. None of them goes before the unmount.
//!
//! # Invariants
//! 1. A thread counts as waiting before it takes a request, and while it takes one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Threads that serve requests of the device at first.
const THREADS_FIRST: usize = 16;

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
    tell: Sender<Event>,
}

impl Waiting {
    /// A thread waits for a request from now on.
    pub(super) fn begin(&self) {
        self.threads.fetch_add(1, Ordering::AcqRel);
    }

    /// It has one.
    pub(super) fn end(&self) {
        let before = self.threads.fetch_sub(1, Ordering::AcqRel);
        assert!(
            before > 0,
            "invariant 1: whoever has a request waited for it"
        );
        if before == 1 && !self.is_all.load(Ordering::Acquire) {
            // Nobody listens any more where the mount ends: then no thread is missing.
            let _ = self.tell.send(Event::AllBusy);
        }
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

/// For a crew of which at most `most` threads serve requests of the device.
pub(super) fn prepare(most: usize) -> (Waiting, Told) {
    let (tell, told) = mpsc::channel();
    let first = most.min(THREADS_FIRST);
    let waiting = Waiting {
        threads: AtomicUsize::new(first),
        is_all: AtomicBool::new(first == most),
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
    /// Those of them that serve requests of the device.
    of_device: usize,
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
        let leaving = Leaving(self.waiting.tell.clone());
        let serve = move || {
            let _leaving = leaving;
            serve()
        };
        let thread = Builder::new().name(name);
        self.threads.push(thread.spawn_scoped(self.scope, serve)?);
        Ok(())
    }

    /// Starts the first threads that serve requests of the device. They count as waiting already.
    ///
    /// # Errors
    /// That of the first one; without one of the others those that there are serve.
    pub(super) fn start_first<F>(&mut self, serve: F) -> io::Result<()>
    where
        F: FnOnce() -> io::Result<()> + Send + Copy + 'scope,
    {
        for _ in 0..self.waiting.threads.load(Ordering::Acquire) {
            match self.one_more(serve) {
                Err(error) if self.of_device == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn one_more<F>(&mut self, serve: F) -> io::Result<()>
    where
        F: FnOnce() -> io::Result<()> + Send + Copy + 'scope,
    {
        let number = self.of_device;
        let started = self.start(format!("fuse-{number}"), serve);
        if let Err(error) = &started {
            eprintln!("thermocline: only {number} threads serve: {error}");
            self.waiting.is_all.store(true, Ordering::Release);
        }
        self.of_device += usize::from(started.is_ok());
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
                Ok(Event::AllBusy) if self.of_device < most => {
                    self.waiting.begin();
                    alive += usize::from(self.one_more(serve).is_ok());
                }
                Ok(Event::AllBusy) => self.waiting.is_all.store(true, Ordering::Release),
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
