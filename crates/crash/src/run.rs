//! One run: a workload from a seed on one engine, a crash at every boundary of its requests.
//!
//! # How one run gives many crashes
//! An observer of the disks takes, before every request that changes something, what a power cut
//! would leave. When the step at hand has ended, a second engine recovers from each of these
//! images and every byte is compared with the model as it was during the step. While it recovers,
//! further images are taken, and recovered from in turn.

use crate::draw::Draw;
use crate::image::SECTOR;
use crate::model::{Broken, pattern};
use crate::setup::{FLASH, Mode, NoStart, Setup};
use crate::step::{FILES, Step, draw_step};
use crate::tracked::{Tracked, contents, new_file, open, request};
use crate::world::{Fault, FileId, World};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thermocline::clock::Clock;
use thermocline::mutant::Mutant;
use thermocline::{Behind, Engine, Error, Identity, Object, WarmPace, Warmed};

/// Pages of a file that is still appended to, at most.
const APPENDED_TO: u64 = 30;

/// How often a warming asks whether to go on, at most.
const WARM_TURNS: u32 = 40;

/// Crashes within crashes at most: the third is while recovering from the second.
const DEPTH_MAX: u32 = 3;

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
type Recovered = Result<Vec<Option<Vec<u8>>>, NoStart>;

type Captured = Arc<Mutex<Vec<World>>>;

pub(crate) struct Run {
    options: Options,
    pub(crate) setup: Setup,
    pub(crate) draw: Draw,
    pub(crate) world: World,
    pub(crate) engine: Arc<Engine>,
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
        let mut draw = Draw::new(seed);
        let mut files = Vec::new();
        for at in 0..FILES {
            files.push(new_file(&world, &mut draw, at, &setup));
        }
        if let Some(fault) = options.flash_fault {
            world.inject(FLASH, fault);
        }
        let engine = setup.start(&world, false).map_err(|e| format!("{e:?}"))?;
        let mut run = Self {
            options: options.clone(),
            setup,
            draw,
            world,
            engine,
            files,
            ghosts: Vec::new(),
            removed: Vec::new(),
            captured: Captured::default(),
            tally: Tally::default(),
            writes: FILES as u64,
            renames: 0,
            faulted: false,
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
    fn watch(&mut self) {
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
            Step::WriteBack(back) => {
                self.engine.set_write_back(back);
                Ok(())
            }
            Step::Resize(slots) => self.resize(slots),
            Step::Flush => self.flush(),
            Step::Policy(name) => self.engine.set_policy(name).map_err(|e| e.to_string()),
            // Refused until the map was read.
            Step::TierOff | Step::TierOn if self.engine.loading().is_some() => Ok(()),
            Step::TierOff => {
                let off = self.engine.tier_off("the workload says so");
                self.excuse(off)
            }
            Step::TierOn => {
                let on = self.engine.tier_on();
                if on.is_ok() {
                    self.world.forgive(FLASH);
                }
                self.excuse(on.map_err(|e| io::Error::other(e.to_string())))
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

    /// Stops cleanly and starts again. Where base shows bytes that it gave up to write, nobody can
    /// tell what it holds before the machine starts anew: then that is what happens.
    fn restart(&mut self) -> Result<(), String> {
        if self.world.shows_forgotten() {
            return self.power_cut();
        }
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
        match self.engine.stop() {
            Ok(()) => {}
            // Pages that flash did not give are named, or it did not take the map, since a change
            // of its size for example: the next start is as after a crash.
            Err(Error::Unsaved { .. } | Error::Save { .. }) if failed => {
                self.tally.refused += 1;
                return self.go_on(false);
            }
            Err(error) => return Err(format!("does not stop: {error}")),
        }
        self.go_on(true)
    }

    /// Starts an engine to go on with, and says whether it is whole: when it refuses, and may,
    /// dirty pages are given up, and what is left is not what was promised
    /// ([`Run::verify_refused`]).
    fn start_again(&mut self) -> Result<(Arc<Engine>, bool), String> {
        let mut whole = true;
        let engine = match self.setup.start(&self.world, false) {
            Ok(engine) => engine,
            Err(refused) => {
                self.judge_refusal(&self.world, &refused)?;
                self.tally.refused_starts += 1;
                whole = false;
                // What is given up here is what crashes are compared with from here on.
                self.verify_captured()?;
                self.world.observe(None);
                let again = self.setup.start(&self.world, true);
                again.map_err(|e| format!("gives up no dirty pages: {e:?}"))?
            }
        };
        self.world.forgive(FLASH);
        Ok((engine, whole))
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
        }
        self.excuse(flushed)
    }

    fn heal(&mut self) {
        let files = self.files.iter().chain(&self.ghosts);
        let files = files.map(|tracked| tracked.file);
        files.chain([FLASH]).for_each(|file| self.world.heal(file));
        self.faulted = false;
        if let Some(fault) = self.options.flash_fault {
            self.world.inject(FLASH, fault);
        }
    }

    /// The power cut that the workload itself lives through.
    fn power_cut(&mut self) -> Result<(), String> {
        let next = self.world.crash(self.draw.bits());
        self.world.power_off();
        self.world = next;
        self.faulted = false;
        self.go_on(false)
    }

    /// Starts an engine to go on with, and compares what it has: after a stop that was `clean` with
    /// what was read last, else with what a crash may leave.
    fn go_on(&mut self, clean: bool) -> Result<(), String> {
        let (engine, whole) = self.start_again()?;
        self.engine = engine;
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

    /// Recovers from `image` and compares every byte; crashes again meanwhile, and afterwards.
    fn verify(&mut self, image: World, depth: u32) -> Result<(), String> {
        let during = Captured::default();
        if depth < DEPTH_MAX {
            self.watch_recovery(&image, &during);
        }
        let found = match self.recover(&image, false)? {
            Ok(found) => found,
            Err(refused) => return self.verify_refused(&image, &refused),
        };
        self.check_found(&found)
            .map_err(|what| format!("crash {depth}, {what}"))?;
        let again = std::mem::take(&mut *lock(&during));
        for image in again {
            self.tally.second_crashes += 1;
            self.verify(image, depth + 1)?;
        }
        if depth < DEPTH_MAX && self.draw.chance(1, 8) {
            self.tally.second_crashes += 1;
            let again = image.crash(self.draw.bits());
            self.verify_same(&again, &found)?;
        }
        Ok(())
    }

    /// Compares what was found of every file with what a crash may leave.
    fn check_found(&self, found: &[Option<Vec<u8>>]) -> Result<(), String> {
        let named = self.files.len();
        let all = self.files.iter().chain(&self.ghosts);
        for (at, (tracked, found)) in all.zip(found).enumerate() {
            let (name, identity) = (tracked.name(), tracked.identity);
            match found {
                Some(found) => {
                    let checked = tracked.model.check_crash(found);
                    checked.map_err(|Broken(what)| format!("{name} {identity:?}: {what}"))?;
                }
                None if tracked.promised && at < named => {
                    return Err(format!("{name} {identity:?} was synced and is gone"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Another crash with nothing written: what was read is read again.
    fn verify_same(&mut self, image: &World, before: &[Option<Vec<u8>>]) -> Result<(), String> {
        let found = self.recover(image, false)?;
        let found = found.map_err(|refused| format!("refused at the second time: {refused:?}"))?;
        for (at, (found, before)) in found.iter().zip(before).enumerate() {
            let (Some(found), Some(before)) = (found, before) else {
                match found.is_some() == before.is_some() {
                    true => continue,
                    false => return Err(format!("object {at} came or went")),
                }
            };
            let checked = self.setup.model(before).check_crash(found);
            checked.map_err(|Broken(what)| format!("read, then crashed: object {at}: {what}"))?;
        }
        Ok(())
    }

    /// The start from `image` was refused: rightly so? What is served after the dirty pages were
    /// given up must be base's own bytes, and no more of it may be older than was promised than
    /// those pages.
    fn verify_refused(&mut self, image: &World, refused: &NoStart) -> Result<(), String> {
        self.judge_refusal(image, refused)?;
        self.tally.refused_starts += 1;
        let NoStart::Refused { files, dirty } = refused else {
            return Err(format!("{refused:?}"));
        };
        let again = image.crash(self.draw.bits());
        let found = self.recover(&again, true)?;
        let found = found.map_err(|e| format!("gives up no dirty pages: {e:?}"))?;
        let mut older = 0;
        for (tracked, found) in self.files.iter().chain(&self.ghosts).zip(&found) {
            let Some(found) = found else { continue };
            let checked = tracked.model.broken_after_crash(found);
            let given_up = files.iter().any(|file| tracked.names.contains(&file.name));
            // A name may have been that of several, one after another.
            let has = |other: &&Tracked| files.iter().any(|file| other.names.contains(&file.name));
            let sure = given_up && self.files.iter().chain(&self.ghosts).filter(has).count() == 1;
            if sure && *found != image.contents(tracked.file) {
                return Err(format!("{}: given up, and not as base is", tracked.name()));
            }
            match checked {
                Ok(sectors) if given_up => older += sectors,
                Ok(0) => {}
                Ok(sectors) => return Err(format!("{}: {sectors} sectors", tracked.name())),
                Err(Broken(what)) => return Err(format!("given up, {}: {what}", tracked.name())),
            }
        }
        let page = u64::from(self.setup.page_size);
        match older <= dirty * (page / SECTOR as u64) {
            true => Ok(()),
            false => Err(format!("{older} sectors are old, {dirty} pages were dirty")),
        }
    }

    /// A refusal is right only where flash had failed, and each file it names was changed or
    /// removed after that. (Until the lease of the last commit has run out base is not written
    /// then.)
    fn judge_refusal(&self, image: &World, refused: &NoStart) -> Result<(), String> {
        let wrong = || Err(format!("{refused:?}"));
        let (NoStart::Refused { files, .. }, Some(failed)) = (refused, image.failed_at(FLASH))
        else {
            return wrong();
        };
        let late = |file: FileId| {
            let stamp = image.stamp(file);
            stamp.is_some_and(|stamp| stamp.mtime_ns.max(stamp.ctime_ns) >= failed)
        };
        for named in files {
            let gone = named.why == Behind::Gone;
            let mut tracked = self.files.iter().chain(&self.ghosts);
            let changed =
                tracked.any(|tracked| tracked.names.contains(&named.name) && late(tracked.file));
            let removed = self.removed.iter().any(|(name, file, at)| {
                let known = *name == named.name;
                known && if gone { *at >= failed } else { late(*file) }
            });
            if !(removed || changed && !gone) {
                return wrong();
            }
        }
        Ok(())
    }

    /// Takes images of some of the boundaries of a recovery.
    fn watch_recovery(&mut self, world: &World, images: &Captured) {
        let mut draw = Draw::new(self.draw.bits());
        let images = Arc::clone(images);
        world.observe(Some(Box::new(move |state, io| {
            if !io.done && draw.chance(1, 6) {
                lock(&images).push(state.crash(draw.bits()));
            }
        })));
    }

    /// What a fresh engine on `world` reads of every tracked object, or why it does not start.
    fn recover(&mut self, world: &World, discard: bool) -> Result<Recovered, String> {
        self.tally.recoveries += 1;
        let engine = match self.setup.start(world, discard) {
            Ok(engine) => engine,
            Err(NoStart::Failed(what)) => return Err(what),
            Err(refused) => {
                world.power_off();
                return Ok(Err(refused));
            }
        };
        self.load(&engine);
        let mut all = Vec::new();
        for tracked in self.files.iter().chain(&self.ghosts) {
            if !world.has_name(tracked.file) {
                all.push(None);
                continue;
            }
            let id = open(&engine, world, tracked)?;
            let found = contents(&engine, world, tracked.file, &id)?;
            self.tally.bytes += found.len() as u64;
            all.push(Some(found));
        }
        world.power_off();
        Ok(Ok(all))
    }

    /// Has the engine read its map to the end, if it serves without.
    fn load(&mut self, engine: &Engine) {
        if engine.loading().is_some() {
            self.tally.loads += 1;
            while engine.loading().is_some() && engine.step() {}
        }
    }

    fn end(&mut self) {
        self.world.power_off();
    }
}

fn lock(captured: &Captured) -> std::sync::MutexGuard<'_, Vec<World>> {
    captured.lock().unwrap_or_else(PoisonError::into_inner)
}
