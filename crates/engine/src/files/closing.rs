//! Files that nobody uses any more and that base does not wholly have yet: closed together.
//!
//! A sync of base takes as long as its file system takes for a commit, whether it is for one file
//! or for fifty that come at the same time: file systems share commits and flushes among syncs
//! under way. So files that linger are closed in *rounds*, whose syncs run at the same time.
//!
//! Why not one `syncfs`: what it promises differs. On FUSE it may do nothing, XFS and btrfs may
//! leave the disk's own cache unflushed where nothing but data was written in place, an error names
//! no file, and it waits for everything that other programs have written. Each file's own sync
//! means the same everywhere, and says by itself what became of this file.
//!
//! States: *no round* → *round* (of one thread at a time) → *no round*.
//!
//! # Invariants
//! 1. One round at a time.
//!
//! Whoever waits goes on when no more linger than the limit says, or when a round ended that began
//! after it came. So a base that refuses its syncs holds nobody for good.

use crate::engine::Engine;
use crate::files::object::Object;
use crate::lock::{Condvar, Mutex};
use crate::writeback::destage::BATCH;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Syncs of base under way at the same time, of one round or one batch that is destaged.
const SYNCS_AT_ONCE: usize = 32;

/// Objects that one round closes at most.
const ROUND: usize = 256;

/// What those who close files know of each other.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rounds {
    begun: u64,
    ended: u64,
    /// Where the next round begins to look, so that files whose base fails are not all it sees.
    from: usize,
}

/// A round under way; it ends when this is dropped, also by a panic.
struct Round<'a>(&'a Closing);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut rounds = self.0.rounds.lock();
        rounds.ended = rounds.begun;
        self.0.changed.notify_all();
    }
}

impl Engine {
    /// With more than `most` objects that linger, whoever opens one, or ends the last use of one,
    /// waits until others are whole on base and closed. So those that linger do not use up the
    /// process's descriptors. Without a limit unless this is called.
    pub fn limit_objects(&self, most: usize) {
        self.lingering_most.store(most, Ordering::Release);
    }

    fn too_many_linger(&self) -> bool {
        let most = self.lingering_most.load(Ordering::Acquire);
        self.lingering.load(Ordering::Acquire) > most
    }

    /// Waits while more objects linger than may, and makes the rounds that close them.
    pub(crate) fn close_surplus(&self) {
        let mut rounds = self.closing.rounds.lock();
        let mine = rounds.begun + 1;
        while self.too_many_linger() && rounds.ended < mine {
            assert!(rounds.begun - rounds.ended <= 1, "invariant 1");
            if rounds.begun > rounds.ended {
                rounds = self.closing.changed.wait(rounds);
                continue;
            }
            rounds.begun += 1;
            let from = rounds.from;
            drop(rounds);
            let round = Round(&self.closing);
            let next = self.close_some(from);
            drop(round);
            rounds = self.closing.rounds.lock();
            rounds.from = next;
        }
    }

    /// Closes up to [`ROUND`] lingering objects, from an id on; where to go on.
    fn close_some(&self, from: usize) -> usize {
        let mut objects = self.lingering_objects();
        let first = objects.partition_point(|object| (object.id.0 as usize) < from);
        objects.rotate_left(first);
        objects.truncate(ROUND);
        let next = objects.last().map_or(0, |last| last.id.0 as usize + 1);
        self.settle_together(&objects);
        self.close_together(&objects);
        next
    }

    /// Objects that nobody uses and that have a name, by id.
    fn lingering_objects(&self) -> Vec<Arc<Object>> {
        let objects = self.objects.read();
        let lingers = |o: &&Arc<Object>| {
            o.opens.load(Ordering::Acquire) == 0 && !o.unlinked.load(Ordering::Acquire)
        };
        objects.iter().flatten().filter(lingers).cloned().collect()
    }

    /// Syncs the base of lingering objects, and closes those that nothing waits for any more.
    pub(crate) fn close_lingering(&self) {
        self.close_together(&self.lingering_objects());
    }

    fn close_together(&self, objects: &[Arc<Object>]) {
        // What base refuses is tried again; meanwhile its regions stay doubtful.
        drop(self.sync_together(objects, Self::sync_to_close));
        for object in objects {
            self.close_if_idle(object);
        }
    }

    /// Writes what is newer than base of all of them to base: batches hold pages of many, so that
    /// these share commits and syncs. What base refuses stays as it is.
    fn settle_together(&self, objects: &[Arc<Object>]) {
        let dirty = objects.iter().filter(|object| self.has_dirty(object.id));
        let dirty: Vec<&Arc<Object>> = dirty.collect();
        for object in &dirty {
            // What fails here fails below too, where it keeps nothing but this object.
            let _ = self.clean_pages(object.id, 0, u64::MAX);
        }
        for object in &dirty {
            self.drain(object.id, 0, u64::MAX);
        }
        loop {
            let mut jobs = Vec::new();
            for object in &dirty {
                let room = BATCH - jobs.len();
                if room > 0 {
                    let range = Some((object.id, 0, u64::MAX));
                    jobs.extend(self.inner().hierarchy.next_destage(room, range));
                }
            }
            if jobs.is_empty() || self.destage(jobs).is_err() {
                break;
            }
        }
        for object in dirty {
            let _ = self.settle(object.id, 0, u64::MAX);
        }
    }

    /// Has `sync` done for each object, [`SYNCS_AT_ONCE`] of them at the same time; how each went,
    /// in this order. One by one where there are no threads.
    pub(crate) fn sync_together(
        &self,
        objects: &[Arc<Object>],
        sync: impl Fn(&Self, &Object) -> io::Result<()> + Sync,
    ) -> Vec<io::Result<()>> {
        let alone = self.config.inline || cfg!(shuttle);
        let threads = if alone { 1 } else { SYNCS_AT_ONCE };
        let threads = threads.min(objects.len());
        if threads <= 1 {
            return objects.iter().map(|object| sync(self, object)).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((at, object)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                objects.get(at).map(|object| (at, object))
            } {
                done.push((at, sync(self, object)));
            }
            done
        };
        let mut done = std::thread::scope(|scope| {
            let spawn = |_| {
                let thread = std::thread::Builder::new().name("tc-sync".into());
                // A system that has no more threads leaves more to those there are.
                thread.spawn_scoped(scope, work).ok()
            };
            let others: Vec<_> = (1..threads).filter_map(spawn).collect();
            let mut done = work();
            for other in others {
                match other.join() {
                    Ok(theirs) => done.extend(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_unstable_by_key(|(at, _)| *at);
        assert_eq!(done.len(), objects.len(), "each was done once");
        done.into_iter().map(|(_, synced)| synced).collect()
    }
}
