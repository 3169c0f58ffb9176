//! Who may serve a base: a lock, a mark on the base itself, and the fence that follows from both.
//!
//! Two tiers over one base would give each other's old bytes, and a cache that holds the newest
//! bytes of a base must not be forgotten by whoever opens that base next. So whoever serves a base
//! (a mount, `recover`) takes a [`Claim`] of it first:
//!
//! 1. **The lock** keeps others on this host out: `flock` on the base directory for the life of the
//!    claim. It goes with the process, so a crash leaves none. Bases that contain each other are
//!    found by the marks of the directories above, and by the table of mounts ([`mounts`]).
//! 2. **The mark** outlives the process and is seen by other hosts that share the base: one line of
//!    text as an extended attribute of the directory, or a file where there are none (`mark`,
//!    `place`). It says which cache the newest bytes are in, who serves, and since which opening.
//! 3. **The fence**: the serving process reads the mark again and again. Once it names somebody
//!    else, nothing is written to base, nothing is acknowledged and nothing is answered any more.
//!
//! # States of a mark
//! *none* (never served, or restored without attributes) → *serving* (write-through: base is whole)
//! or *dirty* (write-back: base is whole only together with the cache) → *whole* (ended with
//! nothing owed) → *serving* … A crash leaves *serving* or *dirty*. `umount --keep-dirty` leaves
//! *dirty* with nobody serving.
//!
//! # Rules
//! 1. The mark is *dirty* durably before the first write is acknowledged that base does not have,
//!    and *whole* or gone only after base has everything.
//! 2. A mark that is *dirty* by another cache refuses, until that cache is given up by its id.
//! 3. A mark of this cache with a newer opening than the cache's own refuses: the file is an old
//!    copy. The cache's superblock is written before the mark, so never the other way round. One
//!    of the same opening cannot be told: so another opening begins now and then
//!    ([`Claim::renew`]).
//! 4. A cache with dirty pages for a base whose mark does not say *dirty* by it refuses: its pages
//!    were given up, or the base is an older copy. Without any mark it is accepted. The cache keeps
//!    the newest opening of it that the mark is known to have named: a mark with an older one is
//!    of an older copy of base, and does not wait for anything either.
//! 5. A mark of another host that serves refuses, until it is taken over: our claim is written, and
//!    the base is used only [`PATIENCE`] later. Until then the mark says that it is being taken
//!    over: whoever finds it so, on whatever host, waits as long before it uses the base, for the
//!    one who began may have died waiting. It is looked at again just before it is written:
//!    of two hosts that start at a time, one has begun by then, but for the moment between.
//! 6. A claim that was seen to hold is relied on for [`RELY`] at most, a commit's for [`FRESH`];
//!    and a commit's lease ends within [`crate::LEASE`] of that. All of it is less than
//!    [`PATIENCE`], so two hosts never use a base at the same time.
//!
//! 7. The clean pages of a cache are believed only where the mark still is of its newest opening
//!    known to be marked; after a clean stop also where there is none. Else somebody else served
//!    base since, who may have changed files within the lease, or whose power failed and took the
//!    times of files back and not their bytes; or base went back and files look older than
//!    they are.
//!
//! # Which host
//! The same kernel (boot id), or the same machine id; where one of the two has no machine id, the
//! same host name. Two machines that were cloned with their machine ids are taken for one.

mod fence;
mod host;
mod lock;
mod mark;
pub mod mounts;
mod place;
mod probe;
mod refusal;
mod serve;
#[cfg(test)]
mod tests;

use crate::clock::SharedClock;
use crate::durable::lease::LEASE;
use crate::lock::{Mutex, MutexGuard};
use crate::mutant::Mutant;
use crate::store::{self, BaseIdentity, CacheStamp};
use fence::Watch;
use mark::{Claimant, Mark};
use place::Place;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use fence::{Fence, Fenced};
pub use host::Host;
pub use mark::State;
#[doc(hidden)]
pub use place::Keep;
pub use place::{ATTRIBUTE, Standing, awaits, beside, mark_of, standing_of};
pub use probe::{Clocks, TICK};
pub use refusal::Refusal;

/// How long a claim that was seen to hold is relied on by requests.
pub const RELY: Duration = Duration::from_secs(4);
/// How old the last look at the mark may be when a commit begins.
pub const FRESH: Duration = Duration::from_secs(1);
/// How long whoever takes a base over waits before using it.
pub const PATIENCE: Duration = Duration::from_secs(9);

// Rule 6: a lease begins up to FRESH after a look, and slow I/O ends with it.
const _: () = assert!(LEASE.as_secs() + FRESH.as_secs() < PATIENCE.as_secs());
const _: () = assert!(RELY.as_secs() < PATIENCE.as_secs());

/// What the caller allows beyond the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leave {
    /// Fence another host that serves the base.
    pub take_over: bool,
    /// Give up what the cache with this id holds: it is lost for good.
    pub abandon: Option<u64>,
    /// The cache belongs to this base whatever the records say.
    pub same_base: bool,
    /// The cache will be made anew.
    pub format: bool,
}

/// A base that nobody else serves. See the module text.
///
/// ```
/// use thermocline::claim::{Claim, Leave, Refusal};
///
/// # let base = tempfile::tempdir()?;
/// let claim = Claim::take(base.path())?;
/// claim.admit(&|| Ok(None), &Leave::default())?; // without a cache
/// assert!(matches!(Claim::take(base.path()), Err(Refusal::Locked { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Claim {
    base: PathBuf,
    place: Place,
    host: Host,
    /// Which directory it is, with the id of its mark.
    identity: Mutex<BaseIdentity>,
    held: Mutex<Held>,
    watch: Watch,
    patience: Duration,
    clock: SharedClock,
    planted: Mutant,
    /// Holds the lock.
    _lock: Option<fs::File>,
}

/// What is known of the mark.
#[derive(Debug, Default)]
struct Held {
    /// As it is on base.
    mark: Option<Mark>,
    /// Whether it is ours.
    ours: bool,
    /// Without a mark: what one would say of the cache that was accepted, and of its opening.
    accepted: Option<(State, u64, u64)>,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl Claim {
    /// Locks `base`, an existing directory, and reads its mark. Nothing is written.
    ///
    /// # Errors
    /// [`Refusal::Locked`], [`Refusal::Above`], [`Refusal::Unreadable`] and those of the system.
    pub fn take(base: &Path) -> Result<Self, Refusal> {
        let failed = Refusal::io(base);
        let base = base.canonicalize().map_err(&failed)?;
        let lock = lock::exclusively(&base)?;
        let claim = Self::with(&base, Host::this(), PATIENCE, Some(lock))?;
        lock::check_above(&base, &claim.host)?;
        Ok(claim)
    }

    /// As another host would see the base: locks do not reach there.
    fn with(
        base: &Path,
        host: Host,
        patience: Duration,
        lock: Option<fs::File>,
    ) -> Result<Self, Refusal> {
        let failed = Refusal::io(base);
        let found = fs::metadata(base).map_err(&failed)?;
        let identity = BaseIdentity {
            file_system: found.dev(),
            inode: found.ino(),
            path: base.display().to_string(),
            id: 0,
        };
        let place = Place::of(base).map_err(&failed)?;
        let claim = Self::of(place, identity, host, SharedClock::default())?;
        Ok(Self {
            patience,
            _lock: lock,
            ..claim
        })
    }

    /// A claim of a base that is no directory of this machine: a tester's, whose mark `keep` keeps.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`] and those of `keep`.
    #[doc(hidden)]
    pub fn simulated(
        keep: Box<dyn Keep>,
        identity: BaseIdentity,
        host: Host,
        clock: SharedClock,
        planted: Mutant,
    ) -> Result<Self, Refusal> {
        let place = Place::kept(Path::new(&identity.path), keep);
        let claim = Self::of(place, identity, host, clock)?;
        Ok(Self { planted, ..claim })
    }

    fn of(
        place: Place,
        identity: BaseIdentity,
        host: Host,
        clock: SharedClock,
    ) -> Result<Self, Refusal> {
        let mark = place.read()?;
        let identity = BaseIdentity {
            id: mark.as_ref().map_or(0, |mark| mark.base),
            ..identity
        };
        Ok(Self {
            base: PathBuf::from(&identity.path),
            place,
            host,
            identity: Mutex::new(identity),
            held: Mutex::new(Held {
                mark,
                ..Held::default()
            }),
            watch: Watch::default(),
            patience: PATIENCE,
            clock,
            planted: Mutant::None,
            _lock: None,
        })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Which directory it is; with an id from [`Claim::admit`] on.
    #[must_use]
    pub fn identity(&self) -> BaseIdentity {
        self.identity.lock().clone()
    }

    /// Decides whether the base may be served with the cache that `cache` reads (none: without
    /// one), and gives the base its id. Takes it over from another host where that is allowed. What
    /// a person should know is returned, to be logged.
    ///
    /// # Errors
    /// The [`Refusal`]; nothing was changed then, but for a take-over that somebody else undid.
    pub fn admit(
        &self,
        cache: &dyn Fn() -> Result<Option<CacheStamp>, crate::Error>,
        leave: &Leave,
    ) -> Result<Vec<String>, Refusal> {
        let found = self.held().mark.clone();
        let mut stamp = cache()?;
        self.check(found.as_ref(), stamp.as_ref(), leave)?;
        // Before another host is fenced: it would be for nothing.
        self.check_identity(stamp.as_ref(), leave)?;
        let mut notes = Vec::new();
        let heeded = self.planted != Mutant::HalfTakenServed;
        let waited_for = |mark: &Mark| (mark.taking && heeded) || self.is_elsewhere(mark);
        if let Some(mark) = found.filter(waited_for) {
            notes.push(match mark.taking {
                true => "an earlier take-over had not ended; waited as it should have".to_string(),
                false => format!("taken over from {}", mark.claimant),
            });
            self.take_over(mark)?;
            // The other may have written to both until now.
            stamp = cache()?;
            let mark = self.held().mark.clone();
            self.check(mark.as_ref(), stamp.as_ref(), leave)?;
        }
        self.settle_identity(stamp.as_ref(), leave)?;
        if let Some(given_up) = leave.abandon
            && self
                .held()
                .mark
                .as_ref()
                .is_some_and(|m| m.cache == given_up)
        {
            notes.push(format!(
                "what cache {given_up:016x} holds of base was given up by command"
            ));
        }
        Ok(notes)
    }

    /// Rules 2, 3 and 5.
    fn check(
        &self,
        mark: Option<&Mark>,
        cache: Option<&CacheStamp>,
        leave: &Leave,
    ) -> Result<(), Refusal> {
        let Some(mark) = mark else { return Ok(()) };
        let base = self.base.clone();
        let own = cache.is_some_and(|cache| cache.format_id == mark.cache);
        let given_up = leave.abandon == Some(mark.cache);
        if self.is_elsewhere(mark) && !leave.take_over {
            let mark = Box::new(mark.clone());
            return Err(Refusal::OtherHost { base, mark });
        }
        if mark.state == State::Dirty && !own && !given_up {
            let mark = Box::new(mark.clone());
            return Err(Refusal::OtherCache { base, mark });
        }
        let old = cache.filter(|cache| own && cache.epoch < mark.epoch);
        // A copy that is made anew is no copy any more, unless the real one has what base lacks.
        let spared = given_up || (leave.format && mark.state != State::Dirty);
        match old.filter(|_| !spared) {
            Some(cache) => Err(Refusal::OldCopy {
                cache: cache.name.clone(),
                found: cache.epoch,
                mark: Box::new(mark.clone()),
            }),
            None => Ok(()),
        }
    }

    /// Whether somebody on another host serves the base, as far as the mark knows.
    fn is_elsewhere(&self, mark: &Mark) -> bool {
        mark.state != State::Whole && mark.claimant.is_serving() && !self.host.is_of(&mark.claimant)
    }

    /// Whether somebody began to take the base over and did not wait to the end: whoever claims it
    /// next does.
    #[must_use]
    pub fn is_half_taken(&self) -> bool {
        self.held().mark.as_ref().is_some_and(|mark| mark.taking)
    }

    /// Writes our claim in place of the other's and waits until that one no longer relies on its
    /// own (rules 5 and 6). Until the next write of the mark it says that this is under way.
    fn take_over(&self, found: Mark) -> Result<(), Refusal> {
        let claimant = Claimant::new(&self.host, &found.claimant.cache_path, Path::new(""));
        let ours = Mark {
            claimant,
            taking: true,
            ..found
        };
        self.write(ours.clone())?;
        self.clock.pass(self.patience);
        let now = self.place.read()?;
        if now.is_none_or(|mark| mark.claimant != ours.claimant) {
            return Err(Refusal::Contested {
                base: self.base.clone(),
            });
        }
        let mut held = self.held();
        assert!(held.ours, "rule 5: the mark was written before the wait");
        held.mark = Some(Mark {
            taking: false,
            ..ours
        });
        Ok(())
    }

    /// Refuses a cache of another base.
    fn check_identity(&self, cache: Option<&CacheStamp>, leave: &Leave) -> Result<(), Refusal> {
        let believed = |cache: &&CacheStamp| leave.same_base || cache.base.same(&self.identity());
        let cache = cache.filter(|_| !leave.format);
        match cache.filter(|cache| !believed(cache)) {
            Some(cache) => Err(Refusal::OtherBase {
                cache: cache.name.clone(),
                recorded: cache.base.beside(&self.base.to_string_lossy()),
                base: self.base.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Recorded id and mark, then device and inode, then the caller's word.
    fn settle_identity(&self, cache: Option<&CacheStamp>, leave: &Leave) -> Result<(), Refusal> {
        self.check_identity(cache, leave)?;
        let mut identity = self.identity();
        if let Some(cache) = cache.filter(|_| !leave.format) {
            let same = cache.base.same(&identity);
            if identity.id == 0 {
                identity.id = cache.base.id;
            }
            self.give_id(&mut identity)?;
            if !same {
                store::assign_base(Path::new(&cache.name), &identity)?;
            }
        }
        self.give_id(&mut identity)?;
        *self.identity.lock() = identity;
        Ok(())
    }

    /// An id of its own for a base that has none.
    fn give_id(&self, identity: &mut BaseIdentity) -> Result<(), Refusal> {
        while identity.id == 0 {
            identity.id = host::random().map_err(Refusal::io(&self.base))?;
        }
        Ok(())
    }

    /// Rule 4, once it is known how many dirty pages the cache has. What a person should know is
    /// returned.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`].
    pub fn check_dirty(
        &self,
        cache: &CacheStamp,
        dirty: u64,
        leave: &Leave,
    ) -> Result<Option<String>, Refusal> {
        let mut held = self.held();
        let awaited = match &held.mark {
            _ if dirty == 0 => return Ok(None),
            None => {
                let accepted = (State::Dirty, cache.format_id, cache.epoch);
                held.accepted = Some(accepted).filter(|_| self.planted != Mutant::UnmarkedWhole);
                return Ok(Some(format!(
                    "base has no mark: accepted {dirty} pages of a cache that knows it"
                )));
            }
            Some(mark) => mark.state == State::Dirty && self.is_newest(mark, cache),
        };
        match awaited || leave.same_base {
            true => Ok(None),
            false => Err(Refusal::NotAwaited {
                cache: cache.name.clone(),
                dirty,
                base: self.base.clone(),
            }),
        }
    }

    /// Whether the mark names this cache in this opening.
    #[must_use]
    pub fn names(&self, cache: &CacheStamp) -> bool {
        let held = self.held();
        let named = held.mark.as_ref().map(|mark| (mark.cache, mark.epoch));
        named == Some((cache.format_id, cache.epoch))
    }

    /// Whether the mark still is of the newest opening of `cache` that it is known to have named
    /// (rule 7). One that names none is of a cache that knows of no mark.
    #[must_use]
    pub fn is_of_newest(&self, cache: &CacheStamp) -> bool {
        match &self.held().mark {
            // The superblock of an opening is there before the mark that names it: one that is
            // older than the mark is a copy.
            Some(mark) => self.is_newest(mark, cache) && mark.epoch <= cache.epoch,
            None => cache.marked == 0,
        }
    }

    fn is_newest(&self, mark: &Mark, cache: &CacheStamp) -> bool {
        debug_assert!(
            cache.marked <= cache.epoch,
            "an opening of before is marked"
        );
        match self.planted {
            Mutant::BaseWentBack => mark.cache == cache.format_id,
            _ => mark.is_of_newest(cache),
        }
    }

    /// Writes the mark durably: the base is served, in `state`, with `cache` from its present
    /// opening on. From now on the claim can be lost.
    ///
    /// # Errors
    /// [`Refusal::Contested`], and those of the system; the mark is then as it was, or the new one.
    pub fn hold(
        &self,
        state: State,
        cache: Option<&CacheStamp>,
        mountpoint: &Path,
    ) -> Result<(), Refusal> {
        self.check_unchanged()?;
        let path = cache.map_or("", |cache| cache.name.as_str());
        let claimant = Claimant::new(&self.host, path, mountpoint);
        self.write(Mark {
            state,
            base: self.identity().id,
            cache: cache.map_or(0, |cache| cache.format_id),
            epoch: cache.map_or(0, |cache| cache.epoch),
            claimant,
            taking: false,
        })?;
        self.watch.begin(self.clock.now());
        Ok(())
    }

    /// The mark in another state, or naming another opening or cache, by the same process.
    ///
    /// # Errors
    /// Those of [`Fence::holds`], and of writing.
    pub fn switch(&self, state: State, cache: Option<&CacheStamp>) -> Result<(), Refusal> {
        self.holds().map_err(Refusal::io(&self.base))?;
        let Some(mut mark) = self.held().mark.clone() else {
            return Ok(());
        };
        mark.state = state;
        if let Some(cache) = cache {
            mark.cache = cache.format_id;
            mark.epoch = cache.epoch;
            mark.claimant.cache_path.clone_from(&cache.name);
        }
        self.write(mark)
    }

    /// The end of serving: *whole* when base has everything, else *dirty* with nobody serving. A
    /// claim that was lost is left to whoever has it.
    ///
    /// # Errors
    /// Those of [`Claim::switch`].
    pub fn end(&self, whole: bool) -> Result<(), Refusal> {
        if !self.held().ours {
            return Ok(());
        }
        self.holds().map_err(Refusal::io(&self.base))?;
        let Some(mut mark) = self.held().mark.clone() else {
            return Ok(());
        };
        if whole {
            mark.state = State::Whole;
        }
        mark.claimant.pid = 0;
        self.write(mark)
    }

    /// Whether nobody serves: never held, or ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        let held = self.held();
        let serving = |mark: &Mark| mark.claimant.is_serving();
        !(held.ours && held.mark.as_ref().is_some_and(serving))
    }

    /// The path of the cache that the mark names; `None` without one.
    #[must_use]
    pub fn cache_path(&self) -> Option<String> {
        let held = self.held();
        let path = held
            .mark
            .as_ref()
            .map(|mark| mark.claimant.cache_path.clone());
        path.filter(|path| !path.is_empty())
    }

    /// The state the mark is in.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        self.held().mark.as_ref().map(|mark| mark.state)
    }

    /// Refuses when the mark is not what was read, or what we wrote: the cache was opened since,
    /// and somebody on another host may have begun to serve meanwhile (rule 5).
    fn check_unchanged(&self) -> Result<(), Refusal> {
        let now = self.place.read_fresh().map_err(Refusal::io(&self.base))?;
        let held = self.held();
        let token = |mark: &Option<Mark>| mark.as_ref().map(|mark| mark.claimant.token.clone());
        match token(&now) == token(&held.mark) {
            true => Ok(()),
            false => Err(Refusal::Contested {
                base: self.base.clone(),
            }),
        }
    }

    fn write(&self, mark: Mark) -> Result<(), Refusal> {
        debug_assert!(!self.watch.is_down(), "a lost mark is not ours to write");
        let mut held = self.held();
        self.place.write(&mark).map_err(Refusal::io(&self.base))?;
        *held = Held {
            mark: Some(mark),
            ours: true,
            accepted: None,
        };
        Ok(())
    }

    /// The mark, or where there is none one that says what is known so far: of the cache that was
    /// accepted, that base waits for it or does not; of no other one, that base is *whole*.
    fn mark_or_new(&self) -> Mark {
        let held = self.held();
        if let Some(mark) = &held.mark {
            return mark.clone();
        }
        let (state, cache, epoch) = held.accepted.unwrap_or((State::Whole, 0, 0));
        Mark {
            state,
            base: self.identity().id,
            cache,
            epoch,
            claimant: Claimant::nobody(),
            taking: false,
        }
    }

    /// The clock by which base gives its times, and its granularity. Writes the mark as it is, or a
    /// new one where there is none: the base has an id from [`Claim::admit`] on.
    ///
    /// # Errors
    /// [`Refusal::Contested`], and those of the system.
    pub fn probe(&self) -> Result<Clocks, Refusal> {
        self.check_unchanged()?;
        let failed = Refusal::io(&self.base);
        let mut mark = self.mark_or_new();
        debug_assert!(!mark.taking, "a base is admitted first");
        let clocks = probe::measure(&self.place, &mut mark, &*self.clock).map_err(failed)?;
        self.held().mark = Some(mark);
        Ok(clocks)
    }
}
