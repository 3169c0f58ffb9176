//! Blocks that fill up, and workers that drain them: what build and probe share.
//!
//! # States
//! Of a block: *filling* (one for each page, in the caller's hands) → *under way* (sent to a
//! worker) → *drained* (back, its entries delivered to the caller) → spare, or filling again.
//!
//! # Invariants
//! 1. A page is drained by one worker, so its reads and writes never overlap.
//! 2. Every entry is delivered exactly once, or the end is an error.
//! 3. Entries that a worker could not drain are never delivered.
//! 4. No worker goes on without a pipeline: who drops one may use the device for something else.

use crate::error::FilterError;
use crate::layout::Summary;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

/// Memory and threads of a build or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Bytes of memory for all blocks and for the page that each worker holds.
    pub memory: u64,
    /// Worker threads: pages read or written at the same time. 1 to 256.
    pub workers: u32,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            workers: 2,
        }
    }
}

/// Blocks of a worker besides those that fill: one in its hands, one waiting, one on its way
/// back.
const SPARE_BLOCKS: u32 = 3;
/// Entries of a block at least: with fewer, a page is read for nearly every key.
const BLOCK_MIN: u64 = 16;

impl Lanes {
    /// Entries that a block can have; an error when there is too little memory.
    fn block_entries(&self, summary: &Summary, entry: usize) -> Result<usize, FilterError> {
        if !(1..=256).contains(&self.workers) {
            let expected = "1 to 256".to_string();
            let option = "the number of workers";
            return Err(FilterError::Option { option, expected });
        }
        let blocks = u64::from(summary.pages + SPARE_BLOCKS * self.workers);
        let held = u64::from(self.workers) * u64::from(summary.page_bytes);
        let entries = self.memory.saturating_sub(held) / (blocks * entry as u64);
        if entries < BLOCK_MIN {
            let least = held + BLOCK_MIN * blocks * entry as u64;
            let expected = format!(
                "at least {least} bytes for {} pages of {} bytes and {} workers",
                summary.pages, summary.page_bytes, self.workers
            );
            let option = "the memory";
            return Err(FilterError::Option { option, expected });
        }
        Ok(usize::try_from(entries.min(1 << 30)).unwrap_or(1 << 30))
    }
}

/// What a worker does with a block.
pub(crate) trait Drain<E>: Send + 'static {
    /// Does what the entries of one page ask for.
    fn drain(&mut self, page: u32, entries: &mut [E]) -> Result<(), FilterError>;
}

struct Block<E> {
    page: u32,
    entries: Vec<E>,
    drained: bool,
}

struct Worker<E, D> {
    blocks: SyncSender<Block<E>>,
    thread: JoinHandle<(D, Option<FilterError>)>,
}

/// Blocks and workers.
pub(crate) struct Pipeline<E, D> {
    filling: Vec<Vec<E>>,
    spare: Vec<Vec<E>>,
    capacity: usize,
    workers: Vec<Worker<E, D>>,
    back: Receiver<Block<E>>,
    under_way: usize,
    failed: Arc<AtomicBool>,
    taken: u64,
    delivered: u64,
    /// The error that ended it.
    lost: Option<String>,
}

impl<E: Copy + Send + 'static, D: Drain<E>> Pipeline<E, D> {
    /// Starts `lanes.workers` workers; `drain` makes the part of each.
    pub(crate) fn start(
        summary: &Summary,
        lanes: &Lanes,
        mut drain: impl FnMut() -> D,
    ) -> Result<Self, FilterError> {
        let capacity = lanes.block_entries(summary, size_of::<E>())?;
        let (done, back) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for number in 0..lanes.workers {
            let (blocks, work) = sync_channel(1);
            let (drain, done, failed) = (drain(), done.clone(), Arc::clone(&failed));
            let turn = Turn {
                number,
                workers: lanes.workers,
                failed,
            };
            let name = format!("filter-{number}");
            let started = thread::Builder::new().name(name);
            let thread = started.spawn(move || turn.work(drain, &work, &done));
            let thread = thread.map_err(FilterError::Thread)?;
            workers.push(Worker { blocks, thread });
        }
        Ok(Self {
            filling: (0..summary.pages).map(|_| Vec::new()).collect(),
            spare: (0..SPARE_BLOCKS * lanes.workers)
                .map(|_| Vec::new())
                .collect(),
            capacity,
            workers,
            back,
            under_way: 0,
            failed,
            taken: 0,
            delivered: 0,
            lost: None,
        })
    }

    /// Puts `entry` into the block of `page`; `deliver` gets what has been drained meanwhile.
    pub(crate) fn push(
        &mut self,
        page: u32,
        entry: E,
        deliver: &mut impl FnMut(&[E]),
    ) -> Result<(), FilterError> {
        let block = &mut self.filling[page as usize];
        if block.capacity() < self.capacity {
            block.reserve_exact(self.capacity - block.len());
        }
        block.push(entry);
        self.taken += 1;
        if block.len() < self.capacity {
            return Ok(());
        }
        self.send(page, deliver)
    }

    fn send(&mut self, page: u32, deliver: &mut impl FnMut(&[E])) -> Result<(), FilterError> {
        self.refuse_if_lost()?;
        while let Ok(block) = self.back.try_recv() {
            self.take_back(block, deliver);
        }
        while self.spare.is_empty() {
            let block = self.back.recv().map_err(|_| FilterError::Panicked)?;
            self.take_back(block, deliver);
        }
        if self.failed.load(Ordering::Acquire) {
            // The worker that failed keeps the reason; `finish` fetches it.
            return Err(self.reason());
        }
        let spare = self.spare.pop().unwrap_or_default();
        let entries = std::mem::replace(&mut self.filling[page as usize], spare);
        let worker = &self.workers[page as usize % self.workers.len()];
        let block = Block {
            page,
            entries,
            drained: false,
        };
        worker
            .blocks
            .send(block)
            .map_err(|_| FilterError::Panicked)?;
        self.under_way += 1;
        Ok(())
    }

    fn take_back(&mut self, block: Block<E>, deliver: &mut impl FnMut(&[E])) {
        self.under_way -= 1;
        let mut entries = block.entries;
        if block.drained {
            self.delivered += entries.len() as u64;
            deliver(&entries);
        } else {
            let failed = self.failed.load(Ordering::Acquire);
            assert!(
                failed,
                "invariant 3: only a failure leaves entries undrained"
            );
        }
        entries.clear();
        self.spare.push(entries);
    }

    /// Ends the workers to learn why one failed.
    fn reason(&mut self) -> FilterError {
        let error = match self.join() {
            Err(error) => error,
            Ok(_) => FilterError::Panicked,
        };
        self.lost = Some(error.to_string());
        error
    }

    fn refuse_if_lost(&self) -> Result<(), FilterError> {
        match &self.lost {
            Some(reason) => Err(FilterError::Lost {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Drains all blocks and waits until everything is delivered.
    pub(crate) fn flush(&mut self, deliver: &mut impl FnMut(&[E])) -> Result<(), FilterError> {
        self.refuse_if_lost()?;
        for page in 0..self.filling.len() as u32 {
            if !self.filling[page as usize].is_empty() {
                self.send(page, deliver)?;
            }
        }
        while self.under_way > 0 {
            let block = self.back.recv().map_err(|_| FilterError::Panicked)?;
            self.take_back(block, deliver);
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(self.reason());
        }
        assert_eq!(self.taken, self.delivered, "invariant 2: all is delivered");
        Ok(())
    }

    /// As [`Self::flush`], and ends the workers.
    pub(crate) fn finish(mut self, deliver: &mut impl FnMut(&[E])) -> Result<Vec<D>, FilterError> {
        self.flush(deliver)?;
        self.join()
    }
}

impl<E, D> Pipeline<E, D> {
    fn join(&mut self) -> Result<Vec<D>, FilterError> {
        let (mut drains, mut failure) = (Vec::new(), None);
        for worker in std::mem::take(&mut self.workers) {
            drop(worker.blocks);
            match worker.thread.join() {
                Ok((drain, error)) => {
                    drains.push(drain);
                    failure = failure.or(error);
                }
                Err(_) => failure = Some(FilterError::Panicked),
            }
        }
        failure.map_or(Ok(drains), Err)
    }
}

impl<E, D> Drop for Pipeline<E, D> {
    fn drop(&mut self) {
        // Invariant 4. Nobody asks how it would have ended.
        let _given_up = self.join();
    }
}

/// A worker's own.
struct Turn {
    number: u32,
    workers: u32,
    failed: Arc<AtomicBool>,
}

impl Turn {
    /// Drains blocks until there are no more. After a failure they are only handed back, so that
    /// the caller never waits for ever.
    fn work<E, D: Drain<E>>(
        self,
        mut drain: D,
        work: &Receiver<Block<E>>,
        done: &Sender<Block<E>>,
    ) -> (D, Option<FilterError>) {
        let mut failure = None;
        for mut block in work {
            let mine = block.page % self.workers == self.number;
            assert!(mine, "invariant 1: a page has one worker");
            if failure.is_none() {
                match drain.drain(block.page, &mut block.entries) {
                    Ok(()) => block.drained = true,
                    Err(error) => {
                        failure = Some(error);
                        self.failed.store(true, Ordering::Release);
                    }
                }
            }
            if done.send(block).is_err() {
                // The caller has gone, and nobody wants the rest.
                break;
            }
        }
        (drain, failure)
    }
}
