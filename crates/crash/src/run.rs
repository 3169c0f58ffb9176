//! One run: a workload from a seed on one engine, a crash at every boundary of its requests.
//!
//! # How one run gives many crashes
//! An observer of the disks takes, before every request that changes something, what a power cut
//! would leave. When the step at hand has ended, a second engine recovers from each of these
//! images and every byte is compared with the model as it was during the step. While it recovers,
//! further images are taken, and recovered from in turn.

use crate::draw::Draw;
use crate::elsewhere::Elsewhere;
use crate::model::{Broken, pattern};
use crate::serve::{Ended, NoStart, Served};
use crate::setup::{FLASH, Mode, SPARE, Setup};
use crate::step::{FILES, Step, draw_step};
use crate::tracked::{Tracked, contents, new_file, open, request};
use crate::world::{DIRECTORY, Fault, FileId, World};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thermocline::clock::Clock;
use thermocline::mutant::Mutant;
use thermocline::{Claim, Engine, Error, Identity, Object, WarmPace, Warmed};

/// Pages of a file that is still appended to, at most.
const APPENDED_TO: u64 = 30;

/// How often a warming asks whether to go on, at most.
const WARM_TURNS: u32 = 40;

/// Crashes within crashes at most: the third is while recovering from the second.
pub(crate) const DEPTH_MAX: u32 = 3;

/// What runs did, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps of workloads.
    pub steps: u64,
    /// Images of power cuts during workloads.
    pub crash_points: u64,
    /// Recoveries that were compared byte by byte.
    pub recoveries: u64,
    /// Crashes during or right after a recovery, the second and third ones.
    pub second_crashes: u64,
    /// Recoveries that served before they had read the map.
    pub loads: u64,
    /// Images of power cuts taken while the workload's engine had not read its map.
    pub crash_points_loading: u64,
    /// Bytes compared after crashes.
    pub bytes: u64,
    /// Caches that became longer or shorter under the engine.
    pub resizes: u64,
    /// Pages that warming brought to flash.
    pub warmed: u64,
    /// Requests that failed because a fault was planned.
    pub refused: u64,
    /// Batches that were written while the one before was made durable.
    pub meanwhile: u64,
    /// Pages that were written again while a sync wrote them to flash.
    pub rewrites: u64,
    /// Starts that were refused because base had gone on without a flash device that had failed
    /// and came back.
    pub refused_starts: u64,
    /// Starts with another cache, or with none.
    pub elsewhere: u64,
    /// Those that were refused because base waits for a cache.
    pub refused_elsewhere: u64,
    /// How often base went back to a snapshot.
    pub rolled_back: u64,
    /// Openings that began while the cache was served.
    pub renewed: u64,
    /// How often base was marked as whole while it was served.
    pub settled: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.crash_points += other.crash_points;
        self.recoveries += other.recoveries;
        self.second_crashes += other.second_crashes;
        self.loads += other.loads;
        self.crash_points_loading += other.crash_points_loading;
        self.bytes += other.bytes;
        self.resizes += other.resizes;
        self.warmed += other.warmed;
        self.refused += other.refused;
        self.meanwhile += other.meanwhile;
        self.rewrites += other.rewrites;
        self.refused_starts += other.refused_starts;
        self.elsewhere += other.elsewhere;
        self.refused_elsewhere += other.refused_elsewhere;
        self.rolled_back += other.rolled_back;
        self.renewed += other.renewed;
        self.settled += other.settled;
    }
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Write mode.
    pub mode: Mode,
    /// Steps of the workload.
    pub steps: u32,
    /// Tier policy at the start, instead of the seed's.
    pub policy: Option<&'static str>,
    /// Print every step.
    pub trace: bool,
    /// Fault of the flash device from the start: a mutant.
    pub flash_fault: Option<Fault>,
    /// A bug planted in the engine.
    pub mutant: Mutant,
}

impl Options {
    /// The usual ones for `mode`.
    #[must_use]
    pub fn of(mode: Mode) -> Self {
        Self {
            mode,
            steps: 150,
            policy: None,
            trace: false,
            flash_fault: None,
            mutant: Mutant::None,
        }
    }
}

/// A broken promise, and where.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Number of the step, from 0.
    pub step: u32,
    /// The step.
    pub during: String,
    /// What was found.
    pub what: String,
}

/// The bytes of every tracked object, `None` for those that are not there; or why there are none.
pub(crate) type Recovered = Result<Vec<Option<Vec<u8>>>, NoStart>;

pub(crate) type Captured = Arc<Mutex<Vec<World>>>;

pub(crate) struct Run {
    options: Options,
    pub(crate) setup: Setup,
    pub(crate) draw: Draw,
    pub(crate) world: World,
    pub(crate) engine: Arc<Engine>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) files: Vec<Tracked>,
    /// Files that lost their names: in use, or a power failure may bring them back.
    pub(crate) ghosts: Vec<Tracked>,
    /// Names of files that were removed, and when; a crash may bring them back.
    pub(crate) removed: Vec<(String, FileId, i64)>,
    captured: Captured,
    pub(crate) tally: Tally,
    pub(crate) writes: u64,
    pub(crate) renames: u64,
    /// Faults were planned since the devices were last healed.
    pub(crate) faulted: bool,
    /// Who had base.
    pub(crate) elsewhere: Elsewhere,
}

/// Runs the workload of `seed`.
///
/// # Errors
/// The first broken promise.
pub fn run(seed: u64, options: &Options, tally: &mut Tally) -> Result<(), Failure> {
    let at = |step, during: String| move |what| Failure { step, during, what };
    let mut run = Run::new(seed, options).map_err(at(0, "start".into()))?;
    let mut result = Ok(());
    for number in 0..options.steps {
        let step = draw_step(&mut run.draw, &run.setup);
        if options.trace {
            println!("{number:4} {step:?}");
        }
        let ended = run.step(&step);
        if let Err(what) = ended {
            result = Err(at(number, format!("{step:?}"))(what));
            break;
        }
    }
    run.end();
    tally.add(&run.tally);
    result
}

impl Run {
    fn new(seed: u64, options: &Options) -> Result<Self, String> {
        let mut setup = Setup {
            planted: options.mutant,
            ..Setup::of(seed, options.mode)
        };
        setup.policy = options.policy.unwrap_or(setup.policy);
        if options.trace {
            println!("seed {seed}: {setup:?}");
        }
        let world = World::new(seed);
        if !setup.reserves {
            world.reserve_nothing();
        }
        let flash = world.create("flash", Identity::default());
        assert_eq!(flash, FLASH, "flash is the first file of a world");
        let spare = world.create("spare", Identity::default());
        assert_eq!(spare, SPARE, "another cache is the second");
        let mut draw = Draw::new(seed);
        let mut files = Vec::new();
        for at in 0..FILES {
            files.push(new_file(&world, &mut draw, at, &setup));
        }
        if let Some(fault) = options.flash_fault {
            world.inject(FLASH, fault);
        }
        let start = || setup.serve(&world, false).map_err(|e| format!("{e:?}"));
        // The other cache was made some time before.
        start()?.stop().map_err(|e| format!("{e:?}"))?;
        world.exchange(FLASH, SPARE);
        let served = start()?;
        let mut run = Self {
            options: options.clone(),
            setup,
            draw,
            world,
            engine: served.engine,
            claim: served.claim,
            files,
            ghosts: Vec::new(),
            removed: Vec::new(),
            captured: Captured::default(),
            tally: Tally::default(),
            writes: FILES as u64,
            renames: 0,
            faulted: false,
            elsewhere: Elsewhere::default(),
        };
        run.open_all()?;
        run.watch();
        Ok(run)
    }

    fn open_all(&mut self) -> Result<(), String> {
        for tracked in &mut self.files {
            tracked.object = Some(open(&self.engine, &self.world, tracked)?);
        }
        Ok(())
    }

    /// Takes an image before every change of the world.
    pub(crate) fn watch(&mut self) {
        let captured = Arc::clone(&self.captured);
        let mut draw = Draw::new(self.draw.bits());
        self.world.observe(Some(Box::new(move |state, io| {
            if !io.done {
                let image = state.crash(draw.bits());
                lock(&captured).push(image);
            }
        })));
    }

    /// Carries out a step, and recovers from every crash during and right after it.
    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.tally.steps += 1;
        self.verify_captured()?;
        self.apply(step)?;
        self.verify_captured()?;
        let after = self.world.crash(self.draw.bits());
        self.tally.crash_points += 1;
        self.verify(after, 1)
    }

    /// Recovers from the images taken so far, against the models as they are now.
    pub(crate) fn verify_captured(&mut self) -> Result<(), String> {
        let images = std::mem::take(&mut *lock(&self.captured));
        let loading = self.engine.loading().is_some();
        for image in images {
            self.tally.crash_points += 1;
            self.tally.crash_points_loading += u64::from(loading);
            self.verify(image, 1)?;
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            // There is no cache for it.
            Step::Warm(_) | Step::CommitTwo | Step::Resize(_) | Step::Rewrite(..)
                if self.setup.bare =>
            {
                Ok(())
            }
            Step::TierOff | Step::TierOn | Step::WriteBack(_) if self.setup.bare => Ok(()),
            Step::Read(at, offset, length, hint) => self.read(at, offset, length, hint),
            Step::Write(at, offset, length, hint) => self.write(at, offset, length, hint),
            Step::Append(at, length, hint) => self.append(at, length, hint),
            Step::Warm(at) => self.warm(at),
            Step::Sync(at) => self.sync(at),
            Step::Rewrite(at, page, hint, skip) => self.rewrite(at, page, hint, skip),
            Step::Truncate(at, length) => {
                let (at, object) = self.opened(at)?;
                self.tracked(at).model.begin_truncate(length);
                let done = self.engine.truncate(&object, length);
                self.end_change(at, done)
            }
            Step::Punch(at, offset, length) => {
                let (at, object) = self.opened(at)?;
                self.tracked(at).model.begin_punch(offset, length);
                let done = self.engine.punch(&object, offset, length);
                self.end_change(at, done)
            }
            Step::Unlink(at) => self.unlink(at),
            Step::Replace(at, over) => self.replace(at, over),
            Step::Rename(at, linked) => {
                self.rename(at, linked);
                Ok(())
            }
            Step::Attributes(at, ms) => {
                let time = Duration::from_millis(u64::from(ms));
                self.world.clock().pass(time);
                self.attributes(at);
                Ok(())
            }
            Step::Close(at) => {
                if let Some(object) = self.files[at].object.take() {
                    self.engine.close_object(&object);
                }
                Ok(())
            }
            Step::Bury => self.bury(),
            Step::Restart => self.restart(),
            Step::PowerCut => self.power_cut(),
            Step::Work(units) => {
                for _ in 0..units {
                    if !self.engine.step() {
                        break;
                    }
                }
                Ok(())
            }
            Step::Wait(ms) => {
                let time = Duration::from_millis(u64::from(ms));
                self.world.clock().pass(time);
                Ok(())
            }
            Step::CommitTwo => self.commit_two(),
            Step::WriteBack(back) => self.write_back(back),
            Step::Resize(slots) => self.resize(slots),
            Step::Flush => self.flush(),
            Step::Policy(name) => self.engine.set_policy(name).map_err(|e| e.to_string()),
            // Refused until the map was read.
            Step::TierOff | Step::TierOn if self.engine.loading().is_some() => Ok(()),
            Step::TierOff => {
                let off = self.engine.tier_off("the workload says so");
                self.excuse(off)
            }
            Step::TierOn => self.tier_on(),
            Step::Elsewhere(with, clean) => self.serve_elsewhere(with, clean),
            Step::Behind(at, page, ms) => self.behind(at, page, ms),
            Step::Snapshot => {
                self.take_snapshot();
                Ok(())
            }
            Step::RollBack(clean) => self.roll_back(clean),
            Step::Renew if self.setup.bare => Ok(()),
            Step::Renew => self.renew_opening(),
            Step::LoseMark(clean) => self.lose_mark(clean),
            Step::DirectoryFault(what) => {
                self.faulted = true;
                let (skip, times) = (0, 1);
                self.world
                    .inject(DIRECTORY, Fault::Fail { what, skip, times });
                Ok(())
            }
            Step::Fault(device, fault) => {
                self.faulted = true;
                let file = device.map_or(FLASH, |at| self.files[at].file);
                self.world.inject(file, fault);
                Ok(())
            }
        }
    }

    /// An error is in order only where a fault was planned.
    pub(crate) fn excuse(&mut self, result: io::Result<()>) -> Result<(), String> {
        match result {
            Err(_) if self.faulted => {
                self.tally.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("fails without a fault: {error}")),
            Ok(()) => Ok(()),
        }
    }

    /// A file by its place; those from [`FILES`] on have no name.
    pub(crate) fn tracked(&mut self, at: usize) -> &mut Tracked {
        match at.checked_sub(FILES) {
            None => &mut self.files[at],
            Some(ghost) => &mut self.ghosts[ghost],
        }
    }

    /// Where the file is that a step means, and its object; opened if it was not. For the place
    /// after the last one, a file without a name that is open, or else the first file.
    pub(crate) fn opened(&mut self, at: usize) -> Result<(usize, Arc<Object>), String> {
        let open_ghost = |ghost: &Tracked| ghost.object.is_some();
        let at = match at < FILES {
            true => at,
            false => self
                .ghosts
                .iter()
                .position(open_ghost)
                .map_or(0, |ghost| FILES + ghost),
        };
        if self.tracked(at).object.is_none() {
            self.files[at].object = Some(open(&self.engine, &self.world, &self.files[at])?);
        }
        let object = self.tracked(at).object.clone();
        object.map(|object| (at, object)).ok_or("is open".into())
    }

    fn read(&mut self, at: usize, offset: u64, length: usize, hint: u32) -> Result<(), String> {
        let (at, object) = self.opened(at)?;
        let mut buf = vec![0xEE; length];
        match self.engine.read(&request(&object, offset, hint), &mut buf) {
            Ok(read) => {
                let model = &mut self.tracked(at).model;
                let checked = model.check_read(offset, length, &buf[..read]);
                checked.map_err(|Broken(what)| format!("object {at}: {what}"))
            }
            Err(error) => self.excuse(Err(error)),
        }
    }

    fn warm(&mut self, at: usize) -> Result<(), String> {
        let (_, object) = self.opened(at)?;
        let pages = std::iter::once(0..u64::MAX);
        let (mut tally, mut turns) = (Warmed::default(), 0);
        // Where nothing can be written to flash it would wait for ever.
        let go_on = |_: &Warmed| {
            turns += 1;
            turns < WARM_TURNS
        };
        let pace = WarmPace::default();
        let warmed = self.engine.warm(&object, pages, &pace, &mut tally, go_on);
        self.tally.warmed += tally.came;
        self.excuse(warmed.map(drop))
    }

    pub(crate) fn write(
        &mut self,
        at: usize,
        offset: u64,
        length: usize,
        hint: u32,
    ) -> Result<(), String> {
        let (at, object) = self.opened(at)?;
        self.writes += 1;
        let data = pattern(self.writes, offset, length);
        self.tracked(at).model.begin_write(offset, &data);
        let done = self.engine.write(&request(&object, offset, hint), &data);
        self.end_change(at, done)
    }

    /// As [`Run::write`], where the file ends; somewhere in it, should it be long.
    fn append(&mut self, at: usize, length: usize, hint: u32) -> Result<(), String> {
        let (at, _) = self.opened(at)?;
        let end = self.tracked(at).model.length();
        let most = APPENDED_TO * u64::from(self.setup.page_size);
        self.write(at, end % most, length, hint)
    }

    /// A change of an object ended. Crashes during it are compared with both states.
    pub(crate) fn end_change(&mut self, at: usize, done: io::Result<()>) -> Result<(), String> {
        self.verify_captured()?;
        let file = self.tracked(at).file;
        let length = self.world.stamp(file).map_or(0, |stamp| stamp.length);
        let ended = self.tracked(at).model.end_change(done.is_ok(), length);
        ended.map_err(|Broken(what)| format!("object {at}: {what}"))?;
        self.excuse(done)
    }

    pub(crate) fn sync(&mut self, at: usize) -> Result<(), String> {
        let (at, object) = self.opened(at)?;
        let done = self.engine.sync(&object, self.draw.chance(1, 2));
        self.verify_captured()?;
        let tracked = self.tracked(at);
        tracked.model.end_sync(done.is_ok());
        tracked.promised |= done.is_ok();
        self.excuse(done)
    }

    fn restart(&mut self) -> Result<(), String> {
        let clean = self.leave(true)?;
        self.go_on(clean)
    }

    /// Ends, `clean`ly or by a loss of power; whether it was cleanly. Where base shows bytes that
    /// it gave up to write, nobody can tell what it holds before the machine starts anew: then that
    /// is what happens.
    pub(crate) fn leave(&mut self, clean: bool) -> Result<bool, String> {
        match clean && !self.world.shows_forgotten() {
            true => self.stop(),
            false => {
                self.lose_power();
                Ok(false)
            }
        }
    }

    fn stop(&mut self) -> Result<bool, String> {
        self.heal();
        if self.draw.chance(1, 2) {
            // The next start need not wait for the map. Where that fails it does.
            let _ = self.engine.flush(|_| true);
            self.verify_captured()?;
        }
        for tracked in self.files.iter_mut().chain(&mut self.ghosts) {
            if let Some(object) = tracked.object.take() {
                self.engine.close_object(&object);
            }
        }
        let failed = self.world.failed_at(FLASH).is_some();
        match self.served().stop() {
            Ok(()) => Ok(true),
            // Pages that flash did not give are named, or it did not take the map, since a change
            // of its size for example: the next start is as after a crash.
            Err(Ended::Engine(Error::Unsaved { .. } | Error::Save { .. })) if failed => {
                self.tally.refused += 1;
                Ok(false)
            }
            Err(error) => Err(format!("does not stop: {error:?}")),
        }
    }

    fn served(&self) -> Served {
        Served {
            engine: Arc::clone(&self.engine),
            claim: Arc::clone(&self.claim),
        }
    }

    /// Starts an engine to go on with, and says whether it is whole: when it refuses, and may,
    /// dirty pages are given up, and what is left is not what was promised
    /// ([`Run::verify_refused`]).
    fn start_again(&mut self) -> Result<bool, String> {
        let mut whole = true;
        let served = match self.setup.serve(&self.world, false) {
            Ok(served) => served,
            Err(refused) => {
                self.judge_refusal(&self.world, &refused)?;
                self.tally.refused_starts += 1;
                // What is given up here is what crashes are compared with from here on.
                self.verify_captured()?;
                self.world.observe(None);
                if refused == NoStart::NotAwaited {
                    self.world.empty(FLASH);
                } else {
                    whole = false;
                }
                let again = self.setup.serve(&self.world, true);
                again.map_err(|e| format!("gives up no dirty pages: {e:?}"))?
            }
        };
        (self.engine, self.claim) = (served.engine, served.claim);
        self.world.forgive(FLASH);
        self.elsewhere.note_opening(self.setup.bare);
        Ok(whole)
    }

    /// Longer or shorter: the store has its own opinion of which lengths there are.
    fn resize(&mut self, slots: u64) -> Result<(), String> {
        let resized = self.engine.resize(self.setup.length(slots), |_| true);
        // Half of the sizes come with other pins.
        let pins = self.setup.pins_for(slots);
        let pinned = resized.and_then(|_| self.engine.set_pins(pins, |_| true));
        match pinned {
            Ok(_) => {
                self.tally.resizes += 1;
                Ok(())
            }
            Err(Error::PinnedTooMuch { .. }) => Ok(()),
            Err(Error::TierOff { .. } | Error::Loading { .. }) => Ok(()),
            Err(Error::CacheIo { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                Ok(())
            }
            Err(error) => self.excuse(Err(io::Error::other(error.to_string()))),
        }
    }

    /// After a flush that ended well base alone holds everything.
    fn flush(&mut self) -> Result<(), String> {
        let flushed = self.engine.flush(|_| true);
        if flushed.is_ok() {
            for (at, tracked) in self.files.iter_mut().enumerate() {
                let found = self.world.contents(tracked.file);
                let checked = tracked.model.check_read(0, found.len(), &found);
                checked.map_err(|Broken(what)| format!("flushed, object {at}: {what}"))?;
            }
            self.settle()?;
        }
        self.excuse(flushed)
    }

    fn heal(&mut self) {
        let files = self.files.iter().chain(&self.ghosts);
        let files = files.map(|tracked| tracked.file);
        let files = files.chain([FLASH, DIRECTORY]);
        files.for_each(|file| self.world.heal(file));
        self.faulted = false;
        if let Some(fault) = self.options.flash_fault {
            self.world.inject(FLASH, fault);
        }
    }

    /// The power cut that the workload itself lives through.
    fn power_cut(&mut self) -> Result<(), String> {
        self.lose_power();
        self.go_on(false)
    }

    fn lose_power(&mut self) {
        let next = self.world.crash(self.draw.bits());
        self.world.power_off();
        self.world = next;
        self.faulted = false;
    }

    /// Starts an engine to go on with, and compares what it has: after a stop that was `clean` with
    /// what was read last, else with what a crash may leave.
    pub(crate) fn go_on(&mut self, clean: bool) -> Result<(), String> {
        let whole = self.start_again()?;
        self.verify_captured()?;
        self.find_files()?;
        for tracked in &mut self.files {
            let object = open(&self.engine, &self.world, tracked)?;
            let found = contents(&self.engine, &self.world, tracked.file, &object)?;
            tracked.object = Some(object);
            let checked = match clean {
                true => tracked.model.check_read(0, found.len(), &found),
                false if whole => tracked.model.check_crash(&found),
                false => Ok(()),
            };
            checked.map_err(|Broken(what)| format!("started again, {}: {what}", tracked.name()))?;
            if !clean {
                tracked.model = self.setup.model(&found);
            }
        }
        self.compare_ghosts(whole)?;
        self.watch();
        Ok(())
    }

    fn end(&mut self) {
        self.world.power_off();
    }
}

pub(crate) fn lock(captured: &Captured) -> std::sync::MutexGuard<'_, Vec<World>> {
    captured.lock().unwrap_or_else(PoisonError::into_inner)
}
