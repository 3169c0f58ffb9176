//! The fence: whether this process may still use the base it claimed.
//!
//! States: *unarmed* (nothing is claimed yet: everything passes) → *up* → *down*, for good.
//!
//! Invariant: while armed, nothing passes more than [`RELY`] after the last look that found the
//! mark to be ours.

use super::{Claim, FRESH, Mark, RELY};
use crate::device::{Device, Witness};
use crate::engine::Engine;
use crate::error::Error;
use crate::lock::Mutex;
use crate::store::CacheStamp;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Looks at the mark before it is given up for unreadable, and the time between two.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(100);

/// How long flash waits for an answer whether base is still ours before it counts as failed; a base
/// that fails for a moment is no fault of flash.
const UNSURE: Duration = Duration::from_secs(30);

/// Asked before something is acknowledged or written that another host could have taken over.
pub trait Fence: Send + Sync {
    /// Whether a commit may count. Looks at the mark unless that was done just now.
    ///
    /// # Errors
    /// `ESTALE` once the base belongs to somebody else; others when that cannot be told.
    fn holds(&self) -> io::Result<()>;

    /// Whether a request may be answered. Cheap.
    ///
    /// # Errors
    /// As [`Fence::holds`].
    fn passes(&self) -> io::Result<()>;

    /// Whether a request may be answered, as far as that is known without a look. Never waits.
    /// Where it is false, [`Fence::passes`] tells, from a thread that may wait for base.
    fn passes_now(&self) -> bool;

    /// Why it is down, when it is.
    fn reason(&self) -> Option<String>;
}

/// Told the reason when a claim is lost.
type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// When the mark was last seen to be ours.
#[derive(Default)]
pub(super) struct Watch {
    armed: AtomicBool,
    down: AtomicBool,
    /// Milliseconds of the claim's clock.
    seen: AtomicU64,
    looking: Mutex<()>,
    reason: OnceLock<String>,
    told: OnceLock<Tell>,
}

impl Watch {
    /// Looks count from `now` on, by the claim's clock, which goes on while the machine sleeps.
    pub(super) fn begin(&self, now: Duration) {
        self.seen.store(in_ms(now), Ordering::Release);
        self.armed.store(true, Ordering::Release);
    }

    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    fn age(&self, now: Duration) -> Duration {
        Duration::from_millis(in_ms(now).saturating_sub(self.seen.load(Ordering::Acquire)))
    }

    fn fall(&self, reason: String) -> io::Error {
        let told = self.reason.set(reason).is_ok();
        self.down.store(true, Ordering::Release);
        if let (true, Some(tell), Some(reason)) = (told, self.told.get(), self.reason.get()) {
            tell(reason);
        }
        stale()
    }
}

/// The error of a request after the base was lost.
fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

fn in_ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl Claim {
    /// How long ago the mark was last seen to be ours.
    fn age(&self) -> Duration {
        self.watch.age(self.clock.now())
    }

    /// Calls `tell` with the reason when the claim is lost. Once.
    pub fn when_lost(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        // A second listener is not needed by anybody.
        let _ = self.watch.told.set(Box::new(tell));
    }

    /// Looks at the mark unless somebody did so within `fresh`.
    fn look(&self, fresh: Duration) -> io::Result<()> {
        let _one = self.watch.looking.lock();
        for left in (0..TRIES).rev() {
            if self.watch.is_down() {
                return Err(stale());
            }
            if self.age() < fresh {
                return Ok(());
            }
            let begun = in_ms(self.clock.now());
            match self.place.read_fresh() {
                // A look that took too long is not a fresh one.
                Ok(found) => self.judge(found, begun)?,
                Err(error) if left == 0 => return Err(error),
                Err(_) => self.clock.pass(BETWEEN),
            }
        }
        match self.age() < fresh {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }

    fn judge(&self, found: Option<Mark>, begun: u64) -> io::Result<()> {
        let held = self.held();
        let ours = held.mark.as_ref().map(|mark| &mark.claimant.token);
        if found.as_ref().map(|mark| &mark.claimant.token) == ours {
            self.watch.seen.fetch_max(begun, Ordering::AcqRel);
            return Ok(());
        }
        let base = self.base.display();
        Err(self.watch.fall(match found {
            Some(mark) => format!("base {base} was taken over by {}", mark.claimant),
            None => format!("the mark of base {base} was removed"),
        }))
    }
}

impl Fence for Claim {
    fn holds(&self) -> io::Result<()> {
        match self.watch.armed.load(Ordering::Acquire) {
            true => self.look(FRESH),
            false => Ok(()),
        }
    }

    fn passes(&self) -> io::Result<()> {
        if !self.watch.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.watch.is_down() {
            return Err(stale());
        }
        let age = self.age();
        if age < RELY / 2 {
            return Ok(());
        }
        // One request looks early, so that hardly any has to wait for a look.
        if age < RELY && self.watch.looking.try_lock().is_none() {
            return Ok(());
        }
        match self.look(RELY / 2) {
            Err(_) if !self.watch.is_down() && self.age() < RELY => Ok(()),
            looked => looked,
        }
    }

    fn passes_now(&self) -> bool {
        if !self.watch.armed.load(Ordering::Acquire) {
            return true;
        }
        let age = self.age();
        // While somebody looks early, the last look is good enough for all others.
        let is_seen = age < RELY / 2 || (age < RELY && self.watch.looking.try_lock().is_none());
        is_seen && !self.watch.is_down()
    }

    fn reason(&self) -> Option<String> {
        self.watch.reason.get().cloned()
    }
}

impl Engine {
    /// Asks `fence` before anything counts from now on. Once, at the start.
    pub fn set_fence(&self, fence: Arc<dyn Fence>) {
        assert!(self.fence.set(fence).is_ok(), "a base is claimed once");
    }

    /// Whether requests may be answered. Once they may not, flash is not written any more either:
    /// whoever has the base now may have the cache too.
    ///
    /// # Errors
    /// Those of [`Fence::passes`].
    pub fn check_fence(&self) -> io::Result<()> {
        let Some(fence) = self.fence.get() else {
            return Ok(());
        };
        let passed = fence.passes();
        if passed.is_err() && fence.reason().is_some() && !self.is_off() {
            let mut inner = self.inner();
            self.decide(&mut inner, &[], |hierarchy, out| hierarchy.switch_off(out));
        }
        passed
    }

    /// Whether requests may be answered, as far as that is known without waiting for base. Where
    /// it is false, [`Engine::check_fence`] tells.
    #[must_use]
    pub fn passes_fence_now(&self) -> bool {
        self.fence.get().is_none_or(|fence| fence.passes_now())
    }

    /// Whether a batch that is written now may count. Waits while that cannot be told; to be asked
    /// without a lock.
    pub(crate) fn fence_holds(&self) -> io::Result<()> {
        let Some(fence) = self.fence.get() else {
            return Ok(());
        };
        self.once_told(|| fence.holds())
    }

    /// Whether flash may be written apart from a batch: somebody else may have base by now, and the
    /// cache with it. Waits as [`Engine::fence_holds`] does.
    pub(crate) fn may_write_flash(&self) -> io::Result<()> {
        self.once_told(|| self.check_fence())
    }

    /// What `look` says once it can tell, or has failed for too long.
    fn once_told(&self, look: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let clock = &self.config.clock;
        let begun = clock.now();
        loop {
            match look() {
                Err(_) if self.fence_reason().is_none() && clock.now() - begun < UNSURE => {
                    clock.pass(BETWEEN);
                }
                told => return told,
            }
        }
    }

    /// An error once base belongs to somebody else: the cache may be theirs too then, and nothing
    /// of it may be written. To be asked by whatever changes its superblock apart from a batch.
    pub(crate) fn still_ours(&self) -> Result<(), Error> {
        self.fence_holds().map_err(|source| Error::Fenced {
            path: self.cache_name(),
            why: self.fence_reason().unwrap_or_else(|| source.to_string()),
        })
    }

    /// Why no request is answered any more.
    pub(crate) fn fence_reason(&self) -> Option<String> {
        self.fence.get().and_then(|fence| fence.reason())
    }

    /// Base's mark names the cache and the opening of `marked`, durably. See
    /// [`Claim::is_of_newest`].
    pub fn note_marked(&self, marked: &CacheStamp) {
        if let Some(store) = self.store() {
            // What fails poisons the store: the next commit tells.
            let _ = store.note_marked(marked);
        }
    }

    /// Begins another opening of the cache, if anything was committed since the present one began.
    /// The mark of base is to name it next: [`Claim::renew`].
    pub(crate) fn next_opening(&self) {
        if let Some(store) = self.store() {
            // What fails poisons the store: the next commit tells.
            let _ = store.next_opening();
        }
    }

    /// The cache and its present opening.
    #[must_use]
    pub fn cache_stamp(&self) -> Option<CacheStamp> {
        self.store().map(|store| store.stamp())
    }
}

/// A base file that is not touched once the fence is down.
pub struct Fenced<D> {
    device: D,
    fence: Arc<dyn Fence>,
}

impl<D: Device> Fenced<D> {
    /// `device` behind `fence`.
    pub fn new(device: D, fence: Arc<dyn Fence>) -> Self {
        Self { device, fence }
    }

    /// What takes long may end after somebody else came to have base: nobody is to be told then
    /// that it went well.
    fn fenced<T>(&self, io: impl FnOnce(&D) -> io::Result<T>) -> io::Result<T> {
        self.fence.passes()?;
        let done = io(&self.device)?;
        self.fence.passes().map(|()| done)
    }
}

impl<D: Device> Device for Fenced<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fenced(|device| device.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.fenced(|device| device.write_at(buf, offset))
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        // What a sync acknowledges must still be there for whoever comes next.
        self.device.sync(data_only)?;
        self.fence.passes()
    }

    fn witness(&self) -> Witness {
        self.device.witness()
    }

    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        self.device.sync_before(witness, data_only)?;
        self.fence.passes()
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fenced(|device| device.set_len(len))
    }

    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        self.fenced(|device| device.reserve(offset, len, ahead))
    }

    fn give_back(&self) -> io::Result<()> {
        self.fenced(|device| device.give_back())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fenced(|device| device.punch(offset, len))
    }

    fn late(&self) -> u32 {
        self.device.late()
    }

    fn can_write(&self) -> bool {
        self.device.can_write()
    }

    fn label(&self) -> String {
        self.device.label()
    }
}
