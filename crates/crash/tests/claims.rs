//! Scenes of base between two openings of a cache: served elsewhere, rolled back, without its mark;
//! and of the mark that tells. Each that has a planted bug must fail with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thermocline::claim::{Fence, PATIENCE};
use thermocline::clock::Clock;
use thermocline::config::DirtySettings;
use thermocline::mutant::Mutant;
use thermocline::{Engine, Error, Identity, MapLoad, Object, Request};
use thermocline_core::{HintSet, hint_type};
use thermocline_crash::{
    DIRECTORY, Failing, Fault, FileId, IoKind, Mode, NoStart, Served, Setup, World, pattern,
    spec_of,
};

const PAGE: usize = 512;
const FLASH: FileId = FileId(0);
const SPARE: FileId = FileId(1);
const NAME: &str = "file";
const ID: Identity = Identity {
    device: 1,
    inode: 10,
    generation: 1,
};

/// A world with two caches, of which the other was used before, and a base file of eight pages.
struct Scene {
    world: World,
    setup: Setup,
    file: FileId,
}

impl Scene {
    fn new(mode: Mode, planted: Mutant) -> Self {
        let world = World::new(1);
        assert_eq!(world.create("flash", Identity::default()), FLASH);
        assert_eq!(world.create("spare", Identity::default()), SPARE);
        let file = world.create(NAME, ID);
        world.put(file, &pattern(1, 0, 8 * PAGE));
        let setup = Setup {
            page_size: PAGE as u32,
            policy: "lru",
            slots: 32,
            frames: 0,
            pool: "lru",
            dirty: DirtySettings::default(),
            buffer: 4,
            faults: false,
            pinned: 0,
            load: MapLoad::Before,
            planted,
            ..Setup::of(1, mode)
        };
        let scene = Self { world, setup, file };
        scene.serve().stop().expect("stops");
        scene.world.exchange(FLASH, SPARE);
        scene
    }

    fn serve(&self) -> Served {
        let served = self.setup.serve(&self.world, false);
        served.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    fn bare(&self) -> Served {
        let setup = Setup {
            bare: true,
            ..self.setup.clone()
        };
        setup.serve(&self.world, false).expect("without a cache")
    }

    fn open(&self, engine: &Engine) -> Arc<Object> {
        let spec = spec_of(&self.world, self.file, NAME, ID);
        engine.open_object(spec).expect("opens")
    }

    /// Serves with all pages on flash.
    fn warm(&self) -> (Served, Arc<Object>) {
        let served = self.serve();
        let id = self.open(&served.engine);
        read(&served.engine, &id);
        work(&served.engine, 40);
        served.engine.sync(&id, false).expect("syncs");
        (served, id)
    }

    fn crash(&mut self, seed: u64) {
        let next = self.world.crash(seed);
        self.world.power_off();
        self.world = next;
    }

    /// What is found of the file, or why nothing is.
    fn found(&self) -> Result<Vec<u8>, NoStart> {
        let served = self.setup.serve(&self.world, false)?;
        let id = self.open(&served.engine);
        let found = read(&served.engine, &id);
        self.world.power_off();
        Ok(found)
    }

    /// The same after a power failure at every request of `act`, by some lots each.
    fn found_during(&self, act: impl FnOnce(&Self)) -> Vec<Result<Vec<u8>, NoStart>> {
        let images = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut seed) = (Arc::clone(&images), 0);
        self.world.observe(Some(Box::new(move |state, io| {
            for _ in 0..if io.done { 0 } else { 4 } {
                seed += 1;
                seen.lock().expect("unpoisoned").push(state.crash(seed));
            }
        })));
        act(self);
        self.world.observe(None);
        let images = std::mem::take(&mut *images.lock().expect("unpoisoned"));
        assert!(images.len() > 8, "something was written");
        let found = images.into_iter().map(|world| {
            let (setup, file) = (self.setup.clone(), self.file);
            Self { world, setup, file }.found()
        });
        found.collect()
    }
}

fn request(object: &Object, page: usize) -> Request<'_> {
    Request {
        object,
        offset: (page * PAGE) as u64,
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, 1),
        client: 1,
    }
}

fn read(engine: &Engine, id: &Arc<Object>) -> Vec<u8> {
    let mut bytes = vec![0; 8 * PAGE];
    let read = engine.read(&request(id, 0), &mut bytes).expect("reads");
    assert_eq!(read, bytes.len());
    bytes
}

/// Writes page 3 durably.
fn write(engine: &Engine, id: &Arc<Object>, number: u64, data_only: bool) {
    let data = pattern(number, 3 * PAGE as u64, PAGE);
    engine.write(&request(id, 3), &data).expect("writes");
    engine.sync(id, data_only).expect("syncs");
}

fn work(engine: &Engine, units: u32) {
    for _ in 0..units {
        engine.step();
    }
}

fn page(found: &[u8]) -> &[u8] {
    &found[3 * PAGE..][..PAGE]
}

fn bytes(number: u64) -> Vec<u8> {
    pattern(number, 3 * PAGE as u64, PAGE)
}

/// The tier is put back, as a mount does it.
fn tier_on(served: &Served) {
    struct Why;
    impl From<Error> for Why {
        fn from(_: Error) -> Self {
            Self
        }
    }
    let engine = &served.engine;
    let follow = |dirty| served.claim.follow(engine, dirty).map_err(|_| Why);
    let on = engine.take_turns(|_| true, follow, |engine| Ok(engine.tier_on()?));
    assert!(on.is_ok(), "the tier is on again");
}

/// How often an old page is shown after a crash, and another cache or none for a while, which
/// stops or crashes too.
fn hides_what_came_after_a_crash(planted: Mutant) -> usize {
    let hides = |(other, clean): &(bool, bool)| {
        let mut scene = Scene::new(Mode::Through, planted);
        drop(scene.warm());
        scene.crash(1);
        if *other {
            scene.world.exchange(FLASH, SPARE);
        }
        let served = if *other { scene.serve() } else { scene.bare() };
        let id = scene.open(&served.engine);
        write(&served.engine, &id, 7, false);
        match clean {
            true => served.stop().expect("stops"),
            false => scene.crash(2),
        }
        if *other {
            scene.world.exchange(FLASH, SPARE);
        }
        page(&scene.found().expect("served")) != bytes(7)
    };
    let all = [(true, true), (true, false), (false, true), (false, false)];
    all.iter().filter(|how| hides(how)).count()
}

#[test]
fn what_was_written_without_a_cache_after_its_crash_is_not_hidden_by_it() {
    assert_eq!(hides_what_came_after_a_crash(Mutant::None), 0);
    assert_eq!(hides_what_came_after_a_crash(Mutant::ServedElsewhere), 4);
}

/// How often an old page is shown after a clean stop, and a power failure of another cache or none
/// that takes the times of files back: what was written in place and synced by `fdatasync` stays.
fn hides_what_came_after_a_stop(planted: Mutant) -> usize {
    let hides = |(other, seed): &(bool, u64)| {
        let mut scene = Scene::new(Mode::Through, planted);
        let (served, id) = scene.warm();
        served.engine.close_object(&id);
        served.stop().expect("stops");
        if *other {
            scene.world.exchange(FLASH, SPARE);
        }
        let served = if *other { scene.serve() } else { scene.bare() };
        let id = scene.open(&served.engine);
        write(&served.engine, &id, 7, true);
        scene.crash(*seed);
        if *other {
            scene.world.exchange(FLASH, SPARE);
        }
        page(&scene.found().expect("served")) != bytes(7)
    };
    let seeds = |other| (0..8).map(move |seed| (other, seed));
    seeds(true).chain(seeds(false)).filter(hides).count()
}

#[test]
fn what_was_written_without_a_cache_after_its_stop_is_not_hidden_where_times_went_back() {
    assert_eq!(hides_what_came_after_a_stop(Mutant::None), 0);
    assert!(hides_what_came_after_a_stop(Mutant::CleanBelieved) > 0);
}

/// How another opening of the cache begins.
#[derive(Clone, Copy, PartialEq)]
enum Begun {
    /// After a crash.
    Crash,
    /// The tier was off.
    TierOn,
    /// While it is served.
    Serving,
}

/// What is found after base went back to a snapshot of an earlier opening, with a newer page on
/// flash that is dirty or clean by the mode.
fn after_going_back(mode: Mode, planted: Mutant, begun: Begun) -> Result<Vec<u8>, NoStart> {
    let mut scene = Scene::new(mode, planted);
    let first = scene.serve();
    if begun == Begun::Serving {
        // Another opening begins only where something was committed.
        let id = scene.open(&first.engine);
        read(&first.engine, &id);
        work(&first.engine, 40);
        first.engine.sync(&id, false).expect("syncs");
        first.engine.close_object(&id);
    }
    let snapshot = scene.world.snapshot();
    let served = match begun {
        Begun::Serving => {
            first.claim.renew(&first.engine).expect("renewed");
            first
        }
        Begun::TierOn => {
            first.engine.tier_off("by command").expect("off");
            tier_on(&first);
            first
        }
        Begun::Crash => {
            scene.crash(1);
            scene.serve()
        }
    };
    let id = scene.open(&served.engine);
    write(&served.engine, &id, 7, false);
    if mode == Mode::Through {
        // The page comes to flash, and base is not being written any more.
        read(&served.engine, &id);
        work(&served.engine, 40);
        scene.world.clock().pass(Duration::from_secs(3));
        served.engine.sync(&id, false).expect("syncs");
        work(&served.engine, 40);
        served.engine.close_object(&id);
        work(&served.engine, 400);
        served.engine.flush(|_| true).expect("commits");
        assert_eq!(served.engine.marked_regions(), 0);
    }
    scene.crash(2);
    scene.world.roll_back(&snapshot);
    scene.found()
}

#[test]
fn a_base_that_went_back_is_served_as_it_stands() {
    let found = after_going_back(Mode::Through, Mutant::None, Begun::Crash).expect("served");
    assert!(found == pattern(1, 0, 8 * PAGE));
    let found = after_going_back(Mode::Through, Mutant::BaseWentBack, Begun::Crash);
    let found = found.expect("served");
    assert!(page(&found) == bytes(7), "the planted bug is not met");
}

#[test]
fn dirty_pages_are_not_written_to_a_base_that_went_back() {
    let found = after_going_back(Mode::Back, Mutant::None, Begun::Crash);
    assert_eq!(found, Err(NoStart::NotAwaited));
    let found = after_going_back(Mode::Back, Mutant::BaseWentBack, Begun::Crash).expect("served");
    assert!(page(&found) == bytes(7), "the planted bug is not met");
}

#[test]
fn an_opening_that_begins_while_base_is_served_is_another_one() {
    for begun in [Begun::TierOn, Begun::Serving] {
        let through = |planted| after_going_back(Mode::Through, planted, begun).expect("served");
        assert!(through(Mutant::None) == pattern(1, 0, 8 * PAGE));
        let found = through(Mutant::StaleMark);
        assert!(page(&found) == bytes(7), "the planted bug is not met");
    }
    let found = after_going_back(Mode::Back, Mutant::None, Begun::Serving);
    assert_eq!(found, Err(NoStart::NotAwaited));
}

/// What a second start finds after a power failure at every request of the first after a crash.
fn started_twice(planted: Mutant, unmarked: bool) -> Vec<Result<Vec<u8>, NoStart>> {
    let mut scene = Scene::new(Mode::Back, planted);
    let served = scene.serve();
    let id = scene.open(&served.engine);
    write(&served.engine, &id, 7, true);
    scene.crash(1);
    if unmarked {
        scene.world.set_mark(None).expect("it is lost");
        scene.world.sync_directory().expect("syncs");
    }
    scene.found_during(|scene| drop(scene.serve()))
}

fn are_newest(found: &[Result<Vec<u8>, NoStart>]) -> bool {
    let newest = |found: &Result<Vec<u8>, NoStart>| {
        let found = found.as_ref();
        found.is_ok_and(|found| page(found) == bytes(7))
    };
    found.iter().all(newest)
}

#[test]
fn a_power_failure_between_superblock_and_mark_leaves_dirty_pages_awaited() {
    assert!(are_newest(&started_twice(Mutant::None, false)));
    let found = started_twice(Mutant::EarlyNote, false);
    assert!(found.contains(&Err(NoStart::NotAwaited)));
}

/// The clock of base is asked by writing a mark, before it is marked as served.
#[test]
fn a_base_without_a_mark_is_not_called_whole_while_a_start_goes_on() {
    assert!(are_newest(&started_twice(Mutant::None, true)));
    let found = started_twice(Mutant::UnmarkedWhole, true);
    assert!(found.contains(&Err(NoStart::NotAwaited)));
}

/// What is found after a power failure at every request of putting a failed tier back.
fn put_back(planted: Mutant) -> Vec<Result<Vec<u8>, NoStart>> {
    let scene = Scene::new(Mode::Back, planted);
    let served = scene.serve();
    let id = scene.open(&served.engine);
    write(&served.engine, &id, 6, true);
    // Else the cache holds a page that base waits for, and then goes on without.
    served.engine.flush(|_| true).expect("writes back");
    let (what, skip, times) = (Failing::Syncs, 0, 1);
    scene.world.inject(FLASH, Fault::Fail { what, skip, times });
    write(&served.engine, &id, 7, true);
    assert!(served.engine.tier_state().is_err(), "flash failed");
    scene.found_during(|_| tier_on(&served))
}

#[test]
fn a_cache_that_is_made_anew_is_accepted_after_a_power_failure_at_any_moment() {
    assert!(are_newest(&put_back(Mutant::None)));
    let found = put_back(Mutant::EarlyRenewal);
    let refused = |found: &Result<_, _>| matches!(found, Err(NoStart::OtherCache(_)));
    assert!(found.iter().any(refused), "no cache is accepted any more");
}

#[test]
fn a_base_that_refuses_its_mark_is_not_served_and_owes_nothing() {
    for what in [Failing::Writes, Failing::Syncs] {
        let (skip, times) = (0, 1);
        let fault = Fault::Fail { what, skip, times };
        let mut scene = Scene::new(Mode::Through, Mutant::None);
        scene.world.inject(DIRECTORY, fault);
        let refused = scene.setup.serve(&scene.world, false);
        assert!(matches!(refused, Err(NoStart::Failed(_))), "{what:?}");
        let (served, id) = scene.warm();
        // Nothing may stay off base: the mark does not say so.
        scene.world.inject(DIRECTORY, fault);
        assert!(served.claim.follow(&served.engine, true).is_err());
        write(&served.engine, &id, 7, false);
        // After a failed sync the mark may say so all the same; its own cache is accepted then.
        scene.crash(1);
        scene.setup.bare = what == Failing::Writes;
        assert!(page(&scene.found().expect("served")) == bytes(7));
    }
}

#[test]
fn a_torn_mark_refuses_and_one_that_is_gone_does_not() {
    let mut scene = Scene::new(Mode::Back, Mutant::None);
    let served = scene.serve();
    let id = scene.open(&served.engine);
    write(&served.engine, &id, 7, true);
    scene.crash(1);
    let whole = scene.world.mark().expect("a mark");
    for length in [0, 10, 30, whole.find("pid=").expect("a pid")] {
        let torn = scene.world.set_mark(Some(&whole[..length]));
        torn.expect("it is torn");
        let refused = scene.setup.serve(&scene.world, false);
        assert!(matches!(refused, Err(NoStart::Failed(_))), "{length} bytes");
    }
    scene.world.set_mark(None).expect("it is lost");
    assert!(page(&scene.found().expect("served")) == bytes(7));
}

/// Whether the host that was taken over relies on base still when another one has it, whose first
/// attempt died while it waited.
fn relied_on_by_two(planted: Mutant) -> bool {
    let scene = Scene::new(Mode::Through, planted);
    let claim = Arc::new(scene.setup.claim(&scene.world, "a").expect("claims"));
    let old = scene.setup.claimed(&scene.world, claim).expect("serves");
    let mut setup = scene.setup.clone();
    setup.leave.take_over = true;
    let claim = Arc::new(setup.claim(&scene.world, "b").expect("claims"));
    scene.world.observe(Some(Box::new(|_, io| {
        let marked = io.file == DIRECTORY && io.kind == IoKind::Sync && io.done;
        assert!(!marked, "killed while it waits");
    })));
    let killed = catch_unwind(AssertUnwindSafe(|| setup.claimed(&scene.world, claim)));
    assert!(killed.is_err(), "while it waits");
    setup.leave.take_over = false;
    let before = scene.world.clock().now();
    let claim = Arc::new(setup.claim(&scene.world, "b").expect("claims"));
    setup.claimed(&scene.world, claim).expect("has base now");
    let waited = scene.world.clock().now() - before;
    assert_eq!(waited >= PATIENCE, planted == Mutant::None);
    old.claim.passes().is_ok()
}

#[test]
fn two_hosts_never_rely_on_one_base_though_a_take_over_was_interrupted() {
    assert!(!relied_on_by_two(Mutant::None));
    assert!(relied_on_by_two(Mutant::HalfTakenServed));
}
