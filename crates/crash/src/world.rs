//! A small world that loses power: a flash device and base files with names, behind the engine's
//! [`Device`] trait.
//!
//! What its disks may do and what they never do is in the crate's text. Everything is in memory,
//! behind one lock; all chance comes from seeds.
//!
//! # States
//! *Powered* → *off* ([`World::power_off`]): every request fails from then on. [`World::crash`]
//! makes another world of what survived, powered, with nothing pending and no faults planned.
//!
//! # Invariants
//! 1. A file that somebody may have open, or that a crash may bring back, keeps its bytes.
//! 2. Names change as [`Directory`] says.

mod base;
mod disk;

use crate::clock::WorldClock;
use crate::directory::Directory;
use crate::draw::Draw;
use crate::image::Image;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thermocline::clock::Clock;
use thermocline::device::Device;
use thermocline::{Identity, Stamp};

pub use base::Snapshot;
pub use disk::PowerDisk;

/// [`Identity::device`] of a file that is a device of its own, like flash: it shares no file system
/// with others.
pub const BARE_DEVICE: u64 = 0;

/// What [`Io::file`] is for the directory of base.
pub const DIRECTORY: FileId = FileId(u32::MAX);

/// A file of a world; never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// What an observer is told of: a request that is about to be carried out (`done: false`) or was
/// (`done: true`).
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Which file.
    pub file: FileId,
    /// What is done to it.
    pub kind: IoKind,
    /// First byte.
    pub offset: u64,
    /// Bytes; the new length for [`IoKind::SetLen`].
    pub length: u64,
    /// Whether it was carried out.
    pub done: bool,
}

/// Kinds of requests that change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Bytes are written.
    Write,
    /// Earlier changes are made durable.
    Sync,
    /// The length changes.
    SetLen,
    /// Room is set aside, and the file may get longer.
    Reserve,
    /// A range becomes zeros.
    Punch,
}

/// What a file is told to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Requests of a kind fail: `times` of them, after the next `skip`.
    Fail {
        /// Which.
        what: Failing,
        /// How many of them still succeed.
        skip: u32,
        /// How many then fail.
        times: u32,
    },
    /// The device is gone for good.
    Die,
    /// Syncs report success and do nothing. No honest disk does: a mutant of the tester's tests.
    LieOnSync,
}

/// Requests that a [`Fault`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Reads.
    Reads,
    /// Writes, length changes and holes.
    Writes,
    /// Syncs.
    Syncs,
    /// Writes, which time out instead, and arrive later or never.
    Late,
}

/// Sees requests before and after they change anything, with the world as it is then.
pub type Observer = Box<dyn FnMut(&State, &Io) + Send>;

/// What somebody else does while a request is under way: see [`World::during`].
pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

/// The request of a file during which somebody else does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The next sync.
    Sync,
    /// The next write but so many.
    Write(u32),
}

#[derive(Clone, Debug)]
struct File {
    identity: Identity,
    image: Image,
    times: Times,
    /// The times a crash may bring back.
    old_times: Times,
    faults: Vec<Fault>,
    /// When a write or sync first failed, or the device died: see [`World::failed_at`].
    failed_at: Option<i64>,
}

/// When contents and when anything of a file was last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    contents: i64,
    any: i64,
}

/// All files of a world; see [`World`].
#[derive(Default)]
pub struct State {
    files: BTreeMap<FileId, File>,
    directory: Directory,
    /// Faults of the directory of base.
    directory_faults: Vec<Fault>,
    next: u32,
    off: bool,
    /// Late writes arrive when a file is healed only.
    held: bool,
    /// No file can set room aside.
    reserves_nothing: bool,
    clock: Arc<WorldClock>,
    draw: Option<Draw>,
    observer: Option<Observer>,
    /// What happens while a request of a file is under way.
    meanwhile: Option<(FileId, Moment, Meanwhile)>,
}

/// A world. Clones are the same world. See the module text.
#[derive(Clone, Default)]
pub struct World {
    state: Arc<Mutex<State>>,
}

impl World {
    /// A world without files, whose faults take their lots from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::by_the_clock(seed, WorldClock::default())
    }

    /// As [`World::new`], by this clock.
    #[must_use]
    pub fn by_the_clock(seed: u64, clock: WorldClock) -> Self {
        let world = Self::default();
        {
            let mut state = world.state();
            state.draw = Some(Draw::new(seed));
            state.clock = Arc::new(clock);
        }
        world
    }

    /// What time it is in this world.
    #[must_use]
    pub fn clock(&self) -> Arc<WorldClock> {
        Arc::clone(&self.state().clock)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an empty file, durably.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn create(&self, name: &str, identity: Identity) -> FileId {
        let file = self.make(name, identity);
        self.state().directory.sync();
        file
    }

    /// Makes an empty file. Like all that is done to names, it is durable after a sync of a base
    /// file or of the directory, and perhaps before ([`Directory`]).
    ///
    /// # Panics
    /// If the name is taken.
    pub fn make(&self, name: &str, identity: Identity) -> FileId {
        let mut state = self.state();
        let id = FileId(state.next);
        state.next += 1;
        let file = File::new(identity, state.clock.wall_ns());
        state.files.insert(id, file);
        state.directory.make(name, id);
        id
    }

    /// The file as a device.
    #[must_use]
    pub fn device(&self, file: FileId) -> Arc<PowerDisk> {
        let world = self.clone();
        Arc::new(PowerDisk { world, file })
    }

    /// Gives a file another name instead of `from`; what had it before loses it.
    ///
    /// # Panics
    /// If nothing is called `from`.
    pub fn rename(&self, from: &str, to: &str) {
        let mut state = self.state();
        let losers = [from, to].map(|name| state.directory.find(name));
        state.directory.rename(from, to);
        losers.into_iter().flatten().for_each(|id| state.mark(id));
    }

    /// Gives a file one name more.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn link(&self, file: FileId, name: &str) {
        let mut state = self.state();
        state.directory.link(name, file);
        state.mark(file);
    }

    /// Takes a name away.
    ///
    /// # Panics
    /// If nothing is called that.
    pub fn unlink(&self, name: &str) {
        let mut state = self.state();
        let file = state.directory.find(name);
        state.directory.unlink(name);
        file.into_iter().for_each(|id| state.mark(id));
    }

    /// Changes attributes of a file: its time of any change is now.
    pub fn change_attributes(&self, file: FileId) {
        self.state().mark(file);
    }

    /// Sets when contents were last changed, `None`: now.
    pub fn touch(&self, file: FileId, time: Option<i64>) {
        let mut state = self.state();
        let now = state.clock.wall_ns();
        state.mark(file);
        if let Some(file) = state.files.get_mut(&file) {
            file.times.contents = time.unwrap_or(now);
        }
    }

    /// Whether a power failure now may find the file under some name.
    #[must_use]
    pub fn may_come_back(&self, file: FileId) -> bool {
        self.state().directory.may_come_back(file)
    }

    /// The names of a file.
    #[must_use]
    pub fn names_of(&self, file: FileId) -> Vec<String> {
        let state = self.state();
        state.directory.names_of(file).map(Into::into).collect()
    }

    /// Whether the file has a name.
    #[must_use]
    pub fn has_name(&self, file: FileId) -> bool {
        self.state().directory.names_of(file).next().is_some()
    }

    /// What a name stands for.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<FileId> {
        self.state().directory.find(name)
    }

    /// Files that have a name.
    #[must_use]
    pub fn files(&self) -> Vec<(FileId, String, Identity)> {
        let state = self.state();
        let named = |(name, id): (&str, FileId)| {
            let file = state.files.get(&id)?;
            Some((id, name.to_string(), file.identity))
        };
        state.directory.all().filter_map(named).collect()
    }

    /// The named file that `identity` belongs to, and a name of it.
    #[must_use]
    pub fn find(&self, identity: &Identity) -> Option<(FileId, String)> {
        let files = self.files().into_iter();
        let mut found = files.filter(|(_, _, of)| of == identity);
        found.next().map(|(id, name, _)| (id, name))
    }

    /// The stamp of a file.
    #[must_use]
    pub fn stamp(&self, file: FileId) -> Option<Stamp> {
        let state = self.state();
        let file = state.files.get(&file)?;
        Some(Stamp {
            length: file.image.current().len() as u64,
            mtime_ns: file.times.contents,
            ctime_ns: file.times.any,
        })
    }

    /// The bytes of a file as they are read now.
    #[must_use]
    pub fn contents(&self, file: FileId) -> Vec<u8> {
        let state = self.state();
        let file = state.files.get(&file);
        file.map_or_else(Vec::new, |file| file.image.current().to_vec())
    }

    /// Gives a file these bytes, durably and unobserved.
    pub fn put(&self, file: FileId, bytes: &[u8]) {
        if let Some(file) = self.state().files.get_mut(&file) {
            file.image.write(0, bytes);
            file.image.sync(usize::MAX);
        }
    }

    /// Plans a fault.
    pub fn inject(&self, file: FileId, fault: Fault) {
        if file == DIRECTORY {
            self.state().directory_faults.push(fault);
        } else if let Some(file) = self.state().files.get_mut(&file) {
            file.faults.push(fault);
        }
    }

    /// What is late arrives when the file is healed, and not before.
    pub fn hold_late(&self) {
        self.state().held = true;
    }

    /// From now on no file can set room aside, as on file systems that cannot.
    pub fn reserve_nothing(&self) {
        self.state().reserves_nothing = true;
    }

    /// Forgets planned faults of a file; a dead device lives again, and what was late arrives.
    pub fn heal(&self, file: FileId) {
        let mut state = self.state();
        if file == DIRECTORY {
            state.directory_faults.clear();
        }
        let mut draw = state.draw.clone().unwrap_or_else(|| Draw::new(0));
        if let Some(file) = state.files.get_mut(&file) {
            file.faults.clear();
            file.image.arrive(true, &mut draw);
        }
        state.draw = Some(draw);
    }

    /// When a write or sync of the file first failed, or its device died; power cuts and healing do
    /// not make that forgotten, [`World::forgive`] does.
    #[must_use]
    pub fn failed_at(&self, file: FileId) -> Option<i64> {
        self.state()
            .files
            .get(&file)
            .and_then(|file| file.failed_at)
    }

    /// What failed before no longer matters.
    pub fn forgive(&self, file: FileId) {
        if let Some(file) = self.state().files.get_mut(&file) {
            file.failed_at = None;
        }
    }

    /// Whether a file shows bytes that it gave up to write when a sync failed.
    #[must_use]
    pub fn shows_forgotten(&self) -> bool {
        self.state().files.values().any(|file| file.image.forgot())
    }

    /// Makes every base file durable, with its times and name: what a frontend does before it
    /// starts an engine on them.
    ///
    /// # Errors
    /// Those of the files.
    pub fn sync_base(&self) -> io::Result<()> {
        let (ids, names) = {
            let state = self.state();
            let base = |(_, id): (&str, FileId)| {
                let file = state.files.get(&id)?;
                let due = file.identity.device != BARE_DEVICE && file.is_unsynced();
                due.then_some(id)
            };
            let ids: Vec<FileId> = state.directory.all().filter_map(base).collect();
            (ids, state.directory.is_unsynced())
        };
        if names {
            self.sync_directory()?;
        }
        ids.into_iter()
            .try_for_each(|id| self.device(id).sync(false))
    }

    /// Whom to tell of requests; `None`: nobody.
    pub fn observe(&self, observer: Option<Observer>) {
        self.state().observer = observer;
    }

    /// A request of the file takes as long as it takes to do this: what is written meanwhile is not
    /// covered by it. `None`: nothing.
    pub(crate) fn during(&self, file: FileId, moment: Moment, meanwhile: Option<Meanwhile>) {
        self.state().meanwhile = meanwhile.map(|meanwhile| (file, moment, meanwhile));
    }

    /// Ends this world: every request fails from now on, and nobody observes.
    pub fn power_off(&self) {
        let mut state = self.state();
        state.off = true;
        state.observer = None;
    }

    /// What is found after a power cut now, as [`State::crash`].
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        self.state().crash(seed)
    }
}

impl State {
    /// Another world with what survives a power cut now. Which of the pending changes do is up to
    /// `seed`; faults that were planned are not taken along, a lying device stays one.
    #[must_use]
    pub fn crash(&self, seed: u64) -> World {
        let mut draw = Draw::new(seed);
        let directory = self.directory.crash(&mut draw);
        let mut files = BTreeMap::new();
        for (id, file) in &self.files {
            if directory.names_of(*id).next().is_none() {
                continue;
            }
            let times = draw.one(&[file.times, file.old_times]);
            let survivor = File {
                identity: file.identity,
                image: file.image.crash(&mut draw),
                times,
                old_times: times,
                faults: file.faults.iter().filter(|f| f.is_lie()).copied().collect(),
                failed_at: file.failed_at,
            };
            files.insert(*id, survivor);
        }
        let state = Self {
            files,
            directory,
            next: self.next,
            reserves_nothing: self.reserves_nothing,
            clock: Arc::new(self.clock.split()),
            draw: Some(draw),
            ..Self::default()
        };
        World {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Something of a file changed, if not its contents.
    fn mark(&mut self, id: FileId) {
        let now = self.clock.wall_ns();
        self.clock.pass(Duration::from_micros(1));
        if let Some(file) = self.files.get_mut(&id) {
            file.times.any = now;
        }
    }

    fn tell(&mut self, io: Io) {
        if let Some(mut observer) = self.observer.take() {
            observer(self, &io);
            self.observer = Some(observer);
        }
    }

    /// The file, if the next request of this kind is not to fail.
    fn ask(&mut self, id: FileId, what: Failing) -> Result<&mut File, Refusal> {
        if self.off {
            return Err(Refusal::Gone);
        }
        let file = self.files.get_mut(&id).ok_or(Refusal::Gone)?;
        match strikes(&mut file.faults, what) {
            None => Ok(file),
            Some(refusal) => Err(refusal),
        }
    }

    fn tick(&mut self, id: FileId) {
        let clock = self.clock.wall_ns();
        self.clock.pass(Duration::from_micros(1));
        if let Some(file) = self.files.get_mut(&id) {
            file.times = Times {
                contents: clock,
                any: clock,
            };
        }
    }

    /// A base file was synced: so was its file system's journal, as far as that goes.
    fn names_are_durable(&mut self, synced: FileId, data_only: bool) {
        let of = |file: &File| file.identity.device;
        let device = self.files.get(&synced).map_or(BARE_DEVICE, of);
        match (device, data_only) {
            (BARE_DEVICE, _) => {}
            (_, true) => self.directory.sync_made(synced),
            (_, false) => self.directory.sync(),
        }
    }

    /// Length of a file in bytes.
    fn length(&self, id: FileId) -> u64 {
        let length = |file: &File| file.image.current().len() as u64;
        self.files.get(&id).map_or(0, length)
    }
}

/// Why a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Nothing happens.
    Gone,
    /// Part of it may happen.
    Failed,
    /// It may happen later.
    Late,
}

impl Refusal {
    fn error(self) -> io::Error {
        match self {
            Self::Late => io::ErrorKind::TimedOut.into(),
            Self::Gone | Self::Failed => io::Error::from_raw_os_error(5),
        }
    }
}

impl Failing {
    fn is_about(self, asked: Self) -> bool {
        self == asked || (self == Self::Late && asked == Self::Writes)
    }

    fn refusal(self) -> Refusal {
        match self {
            Self::Late => Refusal::Late,
            _ => Refusal::Failed,
        }
    }
}

impl Fault {
    fn is_lie(&self) -> bool {
        matches!(self, Self::LieOnSync)
    }
}

impl File {
    fn new(identity: Identity, now: i64) -> Self {
        let times = Times {
            contents: now,
            any: now,
        };
        Self {
            identity,
            image: Image::default(),
            times,
            old_times: times,
            faults: Vec::new(),
            failed_at: None,
        }
    }

    fn is_unsynced(&self) -> bool {
        self.image.pending() > 0 || self.times != self.old_times
    }

    fn fails(&mut self, now: i64) {
        self.failed_at = self.failed_at.or(Some(now));
    }

    fn is_dead(&self) -> bool {
        self.faults.contains(&Fault::Die)
    }
}

/// What becomes of the next request; counts down the faults that wait for it.
fn strikes(faults: &mut Vec<Fault>, asked: Failing) -> Option<Refusal> {
    let mut struck = None;
    for fault in &mut *faults {
        match fault {
            Fault::Die => struck = Some(Refusal::Gone),
            Fault::Fail { what, skip, times } if what.is_about(asked) => {
                if *skip > 0 {
                    *skip -= 1;
                } else if *times > 0 {
                    *times -= 1;
                    struck = struck.or(Some(what.refusal()));
                }
            }
            Fault::Fail { .. } | Fault::LieOnSync => {}
        }
    }
    faults.retain(|fault| !matches!(fault, Fault::Fail { times: 0, .. }));
    struck
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: u64) -> Identity {
        Identity {
            device: 1,
            inode,
            generation: 1,
        }
    }

    #[test]
    fn a_power_failure_keeps_what_was_done_to_names_up_to_some_moment() {
        let world = World::new(1);
        let (a, b) = (
            world.create("a", identity(1)),
            world.create("b", identity(2)),
        );
        let flash = world.create("flash", Identity::default());
        world.rename("a", "c");
        world.unlink("b");
        let made = world.make("d", identity(3));
        world.rename("d", "c");
        world.device(flash).sync(false).expect("syncs");
        let names = |world: &World, seed| {
            let files = world.crash(seed).files().into_iter();
            files.map(|(_, name, _)| name).collect::<Vec<_>>().join(" ")
        };
        let all = |world: &World| {
            (0..80)
                .map(|seed| names(world, seed))
                .collect::<std::collections::BTreeSet<_>>()
        };
        let prefixes = ["a b flash", "b c flash", "c flash", "c d flash"];
        assert_eq!(all(&world), prefixes.map(String::from).into());
        assert!(world.may_come_back(a) && world.may_come_back(b));
        world.device(made).sync(true).expect("syncs");
        let prefixes = ["c d flash", "c flash"];
        assert_eq!(all(&world), prefixes.map(String::from).into());
        world.sync_directory().expect("syncs");
        assert_eq!(all(&world), ["c flash".to_string()].into());
        assert!(!world.may_come_back(a) && !world.may_come_back(b));
        assert_eq!(world.named("c"), Some(made));
    }

    #[test]
    fn faults_strike_when_they_are_due() {
        let world = World::new(1);
        let a = world.create("a", identity(1));
        let disk = world.device(a);
        let (skip, times) = (1, 2);
        let what = Failing::Writes;
        world.inject(a, Fault::Fail { what, skip, times });
        let written = [0; 5].map(|_| disk.write_at(&[1; 10], 0).is_ok());
        assert_eq!(written, [true, false, false, true, true]);
        assert!(disk.sync(false).is_ok() && disk.len().is_ok());
        world.inject(a, Fault::Die);
        assert!(disk.read_at(&mut [0; 10], 0).is_err() && disk.len().is_err());
        world.heal(a);
        assert_eq!(disk.read_at(&mut [0; 20], 0).ok(), Some(10));
        world.power_off();
        assert!(disk.sync(true).is_err());
    }

    #[test]
    fn a_crash_at_every_boundary_without_running_twice() {
        let world = World::new(1);
        let a = world.create("a", identity(1));
        let found = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&found);
        world.observe(Some(Box::new(move |state, io| {
            let survived = state.crash(io.length).contents(a);
            seen.lock()
                .expect("unpoisoned")
                .push((io.kind, io.done, survived.len()));
        })));
        let disk = world.device(a);
        disk.write_at(&[1; 512], 0).expect("writes");
        disk.sync(false).expect("syncs");
        let seen = found.lock().expect("unpoisoned");
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[0], (IoKind::Write, false, 0));
        assert_eq!(seen[3], (IoKind::Sync, true, 512));
    }
}
