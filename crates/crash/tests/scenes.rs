//! Scenes of faults on the tester's disks. Each was met by a run of the tester, or is a row of
//! `docs/faults.md`; a scene is shorter than a run and says what it is about.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thermocline::clock::Clock;
use thermocline::config::DirtySettings;
use thermocline::mutant::Mutant;
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Error, Grave, Identity, Object, Request, Stamp, Store,
    StoreOptions, Told,
};
use thermocline_core::{HintSet, hint_type};
use thermocline_crash::{
    Failing, Fault, FileId, Mode, NoStart, Setup, World, WorldClock, pattern, spec_of,
};

const PAGE: usize = 512;
const FLASH: FileId = FileId(0);

/// A world with flash and two base files of eight pages, and what an engine on it is like.
struct Scene {
    world: World,
    setup: Setup,
    files: [FileId; 2],
}

fn identity(at: usize) -> Identity {
    Identity {
        device: 1,
        inode: 10 + at as u64,
        generation: 1,
    }
}

fn name(at: usize) -> String {
    format!("file{at}")
}

impl Scene {
    /// By a clock that stands still: nothing waits.
    fn new(mode: Mode, frames: u64) -> Self {
        Self::by_the_clock(mode, frames, WorldClock::default())
    }

    fn by_the_clock(mode: Mode, frames: u64, clock: WorldClock) -> Self {
        let world = World::by_the_clock(1, clock);
        assert_eq!(world.create("flash", Identity::default()), FLASH);
        let files = [0, 1].map(|at| {
            let file = world.create(&name(at), identity(at));
            world.put(file, &pattern(at as u64, 0, 8 * PAGE));
            file
        });
        let setup = Setup {
            page_size: PAGE as u32,
            policy: "lru",
            slots: 32,
            frames,
            pool: "lru",
            dirty: DirtySettings::default(),
            buffer: 4,
            faults: false,
            ..Setup::of(1, mode)
        };
        Self {
            world,
            setup,
            files,
        }
    }

    fn start(&self) -> Arc<Engine> {
        self.setup.start(&self.world, false).expect("starts")
    }

    fn open(&self, engine: &Engine, at: usize) -> Arc<Object> {
        self.open_in(&self.world, engine, at)
    }

    fn open_in(&self, world: &World, engine: &Engine, at: usize) -> Arc<Object> {
        let spec = spec_of(world, self.files[at], &name(at), identity(at));
        engine.open_object(spec).expect("opens")
    }

    /// Makes durable that a file has lost its name.
    fn grave(&self) -> Grave {
        let world = self.world.clone();
        Grave {
            kept: None,
            directory: (1, 1),
            sync: Arc::new(move || world.sync_directory()),
        }
    }

    /// What an engine finds in file `at` of a world that lost power.
    fn found(&self, world: &World, at: usize) -> Vec<u8> {
        let engine = self.setup.start(world, false).expect("recovers");
        let spec = spec_of(world, self.files[at], &name(at), identity(at));
        let id = engine.open_object(spec).expect("opens");
        let found = read(&engine, &id, 64 * PAGE);
        world.power_off();
        found
    }
}

fn request(object: &Object, offset: usize) -> Request<'_> {
    Request {
        object,
        offset: offset as u64,
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, 1),
        client: 1,
    }
}

fn read(engine: &Engine, id: &Arc<Object>, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = engine.read(&request(id, 0), &mut bytes).expect("reads");
    bytes.truncate(read);
    bytes
}

fn write(engine: &Engine, id: &Arc<Object>, page: usize, number: u64) {
    let data = pattern(number, (page * PAGE) as u64, PAGE);
    engine
        .write(&request(id, page * PAGE), &data)
        .expect("writes");
}

fn work(engine: &Engine, units: u32) {
    for _ in 0..units {
        engine.step();
    }
}

fn fails(what: Failing, times: u32) -> Fault {
    let skip = 0;
    Fault::Fail { what, skip, times }
}

#[test]
fn a_cut_whose_sync_failed_is_not_made_again_over_what_came_later() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 5, 10);
    engine.sync(&id, true).expect("syncs");
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    assert!(
        engine.truncate(&id, PAGE as u64).is_err(),
        "base is not durable"
    );
    write(&engine, &id, 1, 11);
    write(&engine, &id, 2, 12);
    assert!(engine.sync(&id, true).is_err(), "a sync of base has failed");
    write(&engine, &id, 0, 13);
    write(&engine, &id, 1, 14);
    write(&engine, &id, 2, 15);
    engine.sync(&id, true).expect("syncs");
    let newest = read(&engine, &id, 64 * PAGE);
    assert_eq!(newest.len(), 3 * PAGE);
    for seed in 0..40 {
        let crashed = scene.world.crash(seed);
        assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
    }
}

#[test]
fn a_failed_sync_in_the_background_is_told_once_and_leaves_no_copies() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    read(&engine, &id, 8 * PAGE);
    work(&engine, 20);
    let resident = || engine.stats().tier.map_or(0, |tier| tier.resident);
    assert!(resident() > 0, "pages were copied to flash");
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    engine.close_object(&id);
    // Lingering objects are synced now and then, and closed once that goes well.
    work(&engine, 192);
    assert_eq!(engine.open_objects(), 0);
    let id = scene.open(&engine, 0);
    assert_eq!(
        resident(),
        0,
        "base may have given up what they are copies of"
    );
    read(&engine, &id, 8 * PAGE);
    work(&engine, 20);
    assert_eq!(resident(), 0);
    assert!(
        engine.sync(&id, true).is_err(),
        "whoever syncs next is told"
    );
    engine.sync(&id, true).expect("and is told once");
}

#[test]
fn a_failed_sync_is_told_to_each_user_once_also_one_of_before_it_was_opened() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    engine.close_object(&id);
    work(&engine, 64);
    let id = scene.open(&engine, 0);
    let users = [Told::by(&id), Told::by(&id)];
    let sync = |user: &Told| engine.sync_for(&id, user, true).is_ok();
    for (user, told) in [(0, true), (0, false), (1, true), (1, false)] {
        assert_eq!(sync(&users[user]), !told, "user {user}");
    }
    let late = Told::by(&id);
    write(&engine, &id, 3, 11);
    assert!(sync(&late), "it was opened after somebody was told");
    write(&engine, &id, 3, 12);
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    assert!(!sync(&users[1]), "base fails");
    for (user, name) in [(&users[0], "the first"), (&late, "the late one")] {
        assert!(!sync(user), "{name} is told too");
        assert!(sync(user), "{name} is told once");
    }
    assert!(sync(&users[1]));
}

/// The last batch says that a newer copy is there, that the older is not, and that base is no
/// longer being written: when the newer copy did not get there the older one is no substitute.
#[test]
fn an_older_clean_copy_does_not_stand_in_for_a_newer_one() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    read(&engine, &id, 8 * PAGE);
    work(&engine, 40);
    scene.world.clock().pass(Duration::from_secs(3));
    work(&engine, 4);
    (0..8).for_each(|page| write(&engine, &id, page, 20 + page as u64));
    engine.sync(&id, true).expect("syncs");
    let newest = read(&engine, &id, 8 * PAGE);
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    let mut seed = 0;
    scene.world.observe(Some(Box::new(move |state, io| {
        for _ in 0..if io.done { 0 } else { 20 } {
            seed += 1;
            seen.lock().expect("unpoisoned").push(state.crash(seed));
        }
    })));
    engine.close_object(&id);
    engine.stop().expect("stops");
    scene.world.observe(None);
    let images = std::mem::take(&mut *images.lock().expect("unpoisoned"));
    assert!(images.len() > 40);
    for image in images {
        assert!(scene.found(&image, 0) == newest, "an older copy came back");
    }
}

#[test]
fn a_file_changed_while_not_mounted_and_not_opened_before_the_next_crash_is_not_believed() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    read(&engine, &id, 8 * PAGE);
    work(&engine, 40);
    engine.close_object(&id);
    engine.stop().expect("stops");
    scene.world.clock().pass(Duration::from_secs(60));
    let behind = scene.world.device(scene.files[0]);
    let newest = pattern(30, 0, 8 * PAGE);
    thermocline::device::Device::write_at(&*behind, &newest, 0).expect("writes");
    thermocline::device::Device::sync(&*behind, false).expect("syncs");
    scene.world.clock().pass(Duration::from_secs(60));
    let engine = scene.start();
    // Another file makes the mount commit: the time by which changes are noticed moves on.
    let other = scene.open(&engine, 1);
    write(&engine, &other, 2, 31);
    engine.sync(&other, false).expect("syncs");
    work(&engine, 40);
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
    }
}

/// Whoever has read new bytes does not read old ones after a crash.
#[test]
fn a_change_that_was_noticed_at_opening_is_not_forgotten_by_a_crash() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    read(&engine, &id, 8 * PAGE);
    engine.sync(&id, false).expect("syncs");
    engine.close_object(&id);
    work(&engine, 192);
    scene.world.clock().pass(Duration::from_secs(60));
    let behind = scene.world.device(scene.files[0]);
    let newest = pattern(30, 0, 8 * PAGE);
    thermocline::device::Device::write_at(&*behind, &newest, 0).expect("writes");
    thermocline::device::Device::sync(&*behind, false).expect("syncs");
    let other = scene.open(&engine, 1);
    for number in 31..34 {
        scene.world.clock().pass(Duration::from_secs(60));
        write(&engine, &other, 2, number);
        read(&engine, &other, 8 * PAGE);
        engine.sync(&other, false).expect("syncs");
        work(&engine, 40);
    }
    let id = scene.open(&engine, 0);
    assert!(
        read(&engine, &id, 8 * PAGE) == newest,
        "the change is noticed"
    );
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
    }
}

/// A program says that somebody else changed the file, while it has it open.
#[test]
fn pages_that_were_given_up_do_not_come_back_with_a_crash() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    read(&engine, &id, 8 * PAGE);
    engine.sync(&id, false).expect("syncs");
    work(&engine, 192);
    let behind = scene.world.device(scene.files[0]);
    let newest = pattern(30, 0, 8 * PAGE);
    thermocline::device::Device::write_at(&*behind, &newest, 0).expect("writes");
    thermocline::device::Device::sync(&*behind, false).expect("syncs");
    engine.trim(&id);
    assert!(read(&engine, &id, 8 * PAGE) == newest, "the new bytes");
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
    }
}

/// Base gives its number to a new file as soon as nobody has the removed one open, closed or not.
#[test]
fn a_file_with_the_number_of_a_removed_one_has_none_of_its_pages_after_a_crash() {
    for open in [false, true] {
        let scene = Scene::new(Mode::Through, 0);
        let engine = scene.start();
        let id = scene.open(&engine, 0);
        read(&engine, &id, 8 * PAGE);
        engine.sync(&id, false).expect("syncs");
        work(&engine, 192);
        if !open {
            engine.close_object(&id);
        }
        let kept = std::fs::File::open("/dev/null").expect("opens");
        let grave = Grave {
            kept: Some(Arc::new(kept)),
            ..scene.grave()
        };
        engine.before_unlink(&identity(0));
        engine.unlinked(&identity(0), grave);
        if open {
            engine.close_object(&id);
        }
        let another = scene.world.device(scene.files[0]);
        let newest = pattern(30, 0, 8 * PAGE);
        thermocline::device::Device::write_at(&*another, &newest, 0).expect("writes");
        thermocline::device::Device::sync(&*another, false).expect("syncs");
        for seed in 0..20 {
            let crashed = scene.world.crash(seed);
            assert!(scene.found(&crashed, 0) == newest, "{open} seed {seed}");
        }
    }
}

/// Base may still lose what was written before, so a copy of it is doubted.
#[test]
fn a_file_whose_pages_were_given_up_keeps_its_marks() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 2, 20);
    engine.trim(&id);
    read(&engine, &id, 8 * PAGE);
    work(&engine, 192);
    let other = scene.open(&engine, 1);
    for number in 31..34 {
        write(&engine, &other, 2, number);
        engine.sync(&other, false).expect("syncs");
        work(&engine, 40);
    }
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        let base = crashed.contents(scene.files[0]);
        assert!(scene.found(&crashed, 0) == base, "seed {seed}");
    }
}

#[test]
fn a_page_that_waits_on_a_failed_device_can_be_written_again() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    engine.sync(&id, true).expect("syncs");
    write(&engine, &id, 4, 11);
    scene.world.inject(FLASH, fails(Failing::Syncs, 1));
    let settled = engine.sync(&id, true);
    settled.expect("the tier fails with the commit, and base has the pages");
    write(&engine, &id, 3, 12);
    write(&engine, &id, 4, 13);
    engine.sync(&id, true).expect("syncs");
    let newest = read(&engine, &id, 8 * PAGE);
    assert!(scene.world.contents(scene.files[0]) == newest);
}

/// Dirty pages in frames, in the write buffer and on flash, and nothing that takes them.
fn stop_over_dead_devices(scene: &Scene, engine: &Engine) {
    let id = scene.open(engine, 0);
    (0..4).for_each(|page| write(engine, &id, page, 10 + page as u64));
    engine.sync(&id, true).expect("syncs");
    (2..8).for_each(|page| write(engine, &id, page, 20 + page as u64));
    scene.world.inject(FLASH, Fault::Die);
    scene.world.inject(scene.files[0], Fault::Die);
    engine.close_object(&id);
    let error = engine.stop().expect_err("nothing can be written");
    let Error::Unsaved { pages, files, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*pages, 8, "{files}");
    assert_eq!(files, "file0 pages 0, 1, 2, 3, 4, 5, 6, 7");
}

#[test]
fn a_stop_over_dead_devices_ends_and_names_the_pages() {
    for frames in [0, 4, 16] {
        let scene = Scene::new(Mode::Back, frames);
        stop_over_dead_devices(&scene, &scene.start());
    }
}

#[test]
fn a_stop_over_dead_devices_ends_with_threads_too() {
    let scene = Scene::by_the_clock(Mode::Back, 0, WorldClock::machine());
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(64 << 10),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format: false,
        deadline: None,
        ..StoreOptions::default()
    };
    let store = Store::with_device(scene.world.device(FLASH), "flash", &options);
    let config = EngineConfig {
        page_size: PAGE as u32,
        policy: "lru".into(),
        pool_bytes: 16 * PAGE as u64,
        write_back: true,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(store.expect("a store"))).expect("starts");
    stop_over_dead_devices(&scene, &engine);
}

#[test]
fn a_file_that_passes_by_is_synced_each_time() {
    for mode in [Mode::Through, Mode::Back] {
        let scene = Scene::new(mode, 0);
        let engine = scene.start();
        let mut spec = spec_of(&scene.world, scene.files[0], &name(0), identity(0));
        spec.cached = false;
        let log = engine.open_object(spec).expect("opens");
        for number in 40..43 {
            write(&engine, &log, 2, number);
            engine.sync(&log, true).expect("syncs");
            let expected = pattern(number, 2 * PAGE as u64, PAGE);
            for seed in 0..8 {
                let base = scene.world.crash(seed).contents(scene.files[0]);
                assert!(base[2 * PAGE..3 * PAGE] == expected, "write {number}");
            }
        }
    }
}

/// What an engine finds in file 0 of a world that lost power, unless it refuses to start.
fn found_or_refused(scene: &Scene, world: &World) -> Option<Vec<u8>> {
    match scene.setup.start(world, false) {
        Ok(engine) => {
            let id = scene.open_in(world, &engine, 0);
            Some(read(&engine, &id, 64 * PAGE))
        }
        Err(NoStart::Refused { .. }) => None,
        Err(refused) => panic!("{refused:?}"),
    }
}

#[test]
fn times_that_base_takes_back_after_a_clean_stop_are_no_change_behind_the_tier() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    engine.sync(&id, false).expect("syncs");
    let (world, file) = (scene.world.clone(), scene.files[0]);
    let stamp = || world.stamp(file);
    let change = || {
        world.change_attributes(file);
        Ok(())
    };
    let changed = engine.change_metadata(&identity(0), stamp, change);
    changed.expect("changes attributes");
    let newest = read(&engine, &id, 8 * PAGE);
    engine.close_object(&id);
    engine.stop().expect("stops");
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
    }
}

/// Base cannot tell the stamp of a file from its close on.
#[test]
fn a_stop_without_the_stamp_of_a_file_with_dirty_pages_is_recovered_from_as_a_crash() {
    for clean in [false, true] {
        let scene = Scene::new(Mode::Back, 0);
        let engine = scene.start();
        let silent = Arc::new(AtomicBool::new(false));
        let mut spec = spec_of(&scene.world, scene.files[0], &name(0), identity(0));
        let (stamp, is_silent) = (Arc::clone(&spec.stamp), Arc::clone(&silent));
        spec.stamp = Arc::new(move || match is_silent.load(Ordering::Acquire) {
            true => None,
            false => stamp(),
        });
        let id = engine.open_object(spec).expect("opens");
        write(&engine, &id, 3, 10);
        engine.sync(&id, false).expect("syncs");
        let newest = read(&engine, &id, 8 * PAGE);
        if clean {
            engine.flush(|_| true).expect("flushes");
        }
        silent.store(true, Ordering::Release);
        engine.close_object(&id);
        let stopped = engine.stop();
        for seed in 0..20 {
            let crashed = scene.world.crash(seed);
            assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
        }
        let told = matches!(&stopped, Err(Error::Save { source, .. })
            if source.to_string().contains("file0"));
        assert_eq!(told, !clean, "clean {clean}: {stopped:?}");
        assert_eq!(stopped.is_ok(), clean);
    }
}

#[test]
fn nobody_waits_for_what_was_written_to_a_file_after_it_lost_its_name() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    engine.sync(&id, false).expect("syncs");
    engine.flush(|_| true).expect("flushes");
    engine.before_unlink(&identity(0));
    scene.world.unlink(&name(0));
    engine.unlinked(&identity(0), scene.grave());
    write(&engine, &id, 4, 11);
    engine.sync(&id, false).expect("syncs");
    assert!(!scene.world.may_come_back(scene.files[0]), "for good");
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.setup.start(&crashed, false).is_ok(), "seed {seed}");
    }
}

#[test]
fn a_failed_device_is_seen_to_be_older_after_a_sync_of_data_alone() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    engine.sync(&id, true).expect("syncs");
    scene.world.inject(FLASH, fails(Failing::Syncs, 1));
    write(&engine, &id, 4, 11);
    let settled = engine.sync(&id, true);
    settled.expect("the tier fails, and base has the page");
    write(&engine, &id, 3, 12);
    write(&engine, &id, 4, 13);
    engine.sync(&id, true).expect("syncs");
    let newest = read(&engine, &id, 8 * PAGE);
    for seed in 0..40 {
        let crashed = scene.world.crash(seed);
        if let Some(found) = found_or_refused(&scene, &crashed) {
            assert!(found == newest, "seed {seed}: flash has older pages");
        }
    }
}

#[test]
fn a_cut_that_base_refused_is_not_made_after_a_crash() {
    for (base_syncs, flash_syncs, skip) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 1, 1)] {
        let scene = Scene::new(Mode::Through, 0);
        let engine = scene.start();
        let id = scene.open(&engine, 0);
        read(&engine, &id, 8 * PAGE);
        work(&engine, 20);
        engine.sync(&id, false).expect("syncs");
        scene
            .world
            .inject(scene.files[0], fails(Failing::Writes, 1));
        let syncs = fails(Failing::Syncs, base_syncs);
        scene.world.inject(scene.files[0], syncs);
        // The note of the cut reaches flash, and the one that takes it back perhaps does not.
        let what = Failing::Syncs;
        let times = flash_syncs;
        scene.world.inject(FLASH, Fault::Fail { what, skip, times });
        assert!(engine.truncate(&id, PAGE as u64).is_err(), "base refuses");
        let first = engine.sync(&id, true);
        assert!(first.is_ok() || base_syncs > 0, "nothing failed since");
        engine.sync(&id, true).expect("said once");
        for seed in 0..20 {
            let crashed = scene.world.crash(seed);
            let found = scene.found(&crashed, 0).len();
            let faults = (base_syncs, flash_syncs);
            assert_eq!(found, 8 * PAGE, "seed {seed}, failed syncs {faults:?}");
        }
    }
}

/// How many of some power failures bring back, under the file's name, bytes that were neither
/// there before nor after a cut whose sync failed, when the name was taken after it.
fn old_bytes_after_a_cut_and_an_unlink(planted: Mutant) -> usize {
    // What a failed sync gives up depends on how much the world has done.
    (0..4).map(|rounds| old_bytes_after(planted, rounds)).sum()
}

fn old_bytes_after(planted: Mutant, rounds: u64) -> usize {
    let mut scene = Scene::new(Mode::Back, 0);
    scene.setup.planted = planted;
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 5, 10);
    engine.sync(&id, true).expect("syncs");
    let before = read(&engine, &id, 64 * PAGE);
    let other = scene.open(&engine, 1);
    for number in 0..rounds {
        write(&engine, &other, 0, 100 + number);
        engine.sync(&other, true).expect("syncs");
    }
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    assert!(engine.truncate(&id, PAGE as u64).is_err(), "base's sync");
    engine.before_unlink(&identity(0));
    let after = read(&engine, &id, 64 * PAGE);
    assert_eq!(after.len(), PAGE);
    scene.world.unlink(&name(0));
    engine.unlinked(&identity(0), scene.grave());
    // A commit of somebody else's.
    write(&engine, &other, 0, 20);
    engine.sync(&other, true).expect("syncs");
    let crashed = |seed| {
        let world = scene.world.crash(seed);
        let back = world.has_name(scene.files[0]);
        back.then(|| scene.found(&world, 0))
    };
    let found: Vec<_> = (0..40).filter_map(crashed).collect();
    assert!(!found.is_empty(), "the name comes back now and then");
    let old = found
        .iter()
        .filter(|found| **found != before && **found != after);
    old.count()
}

#[test]
fn a_cut_is_made_again_when_the_file_lost_its_name_meanwhile() {
    assert_eq!(old_bytes_after_a_cut_and_an_unlink(Mutant::None), 0);
    assert!(old_bytes_after_a_cut_and_an_unlink(Mutant::LostCut) > 0);
}

#[test]
fn a_file_is_closed_only_when_flash_has_no_note_of_its_cut() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 0, 10);
    engine.sync(&id, true).expect("syncs");
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    assert!(engine.truncate(&id, PAGE as u64).is_err(), "base's sync");
    // Nothing else keeps it open.
    engine.flush(|_| true).expect("flushes");
    engine.close_object(&id);
    work(&engine, 200);
    let id = scene.open(&engine, 0);
    write(&engine, &id, 1, 11);
    write(&engine, &id, 2, 12);
    // The first one tells of the sync that failed.
    let _ = engine.sync(&id, true);
    engine.sync(&id, true).expect("syncs");
    let newest = read(&engine, &id, 64 * PAGE);
    assert_eq!(newest.len(), 3 * PAGE);
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.found(&crashed, 0) == newest, "seed {seed}");
    }
}

/// Nobody has the file open by the time its cut is ended.
#[test]
fn a_cut_that_ends_late_is_no_change_behind_the_tier() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 0, 10);
    engine.sync(&id, true).expect("syncs");
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    assert!(engine.truncate(&id, PAGE as u64).is_err(), "base's sync");
    let newest = read(&engine, &id, 64 * PAGE);
    assert_eq!(newest.len(), PAGE);
    engine.close_object(&id);
    scene.world.clock().pass(Duration::from_secs(60));
    work(&engine, 200);
    engine.stop().expect("stops, with a dirty page on flash");
    assert!(scene.found(&scene.world, 0) == newest);
}

#[test]
fn a_cut_of_a_file_that_is_gone_is_not_waited_for() {
    let scene = Scene::new(Mode::Through, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    read(&engine, &id, 8 * PAGE);
    work(&engine, 20);
    engine.sync(&id, false).expect("syncs");
    scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
    assert!(engine.truncate(&id, PAGE as u64).is_err(), "base's sync");
    scene.world.unlink(&name(0));
    scene.world.sync_directory().expect("syncs");
    for seed in 0..20 {
        let crashed = scene.world.crash(seed);
        assert!(scene.setup.start(&crashed, false).is_ok(), "seed {seed}");
    }
}

#[test]
fn a_length_that_a_failed_sync_gave_up_is_base_s_again_before_a_sync_is_acknowledged() {
    for seed in 0..20 {
        let scene = Scene::new(Mode::Back, 0);
        let engine = scene.start();
        let (id, other) = (scene.open(&engine, 0), scene.open(&engine, 1));
        // What a failed sync gives up depends on how much the world has done.
        for number in 0..seed {
            write(&engine, &other, 0, 100 + number);
            engine.sync(&other, true).expect("syncs");
        }
        engine.truncate(&id, 12 * PAGE as u64).expect("extends");
        scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
        assert!(engine.sync(&id, true).is_err(), "base's sync fails");
        write(&engine, &id, 10, 20);
        engine.sync(&id, true).expect("syncs");
        let newest = read(&engine, &id, 64 * PAGE);
        assert_eq!(newest.len(), 12 * PAGE);
        let crashed = scene.world.crash(seed);
        let found = scene.found(&crashed, 0);
        assert!(found == newest, "seed {seed}: {} bytes", found.len());
    }
}

/// Base keeps bytes that were never synced and takes back the time of their file, as file systems
/// do that write data in place before their log: flash's older copies are not believed then.
#[test]
fn what_base_got_after_flash_failed_shows_in_times_that_last() {
    for seed in 0..40 {
        let scene = Scene::new(Mode::Through, 0);
        let engine = scene.start();
        let id = scene.open(&engine, 0);
        read(&engine, &id, 8 * PAGE);
        work(&engine, 20);
        engine.sync(&id, false).expect("syncs");
        // The map gets there, and the device fails.
        engine.close_object(&id);
        let id = scene.open(&engine, 0);
        scene.world.inject(FLASH, Fault::Die);
        read(&engine, &id, 8 * PAGE);
        write(&engine, &id, 3, 10);
        let crashed = scene.world.crash(seed);
        let engine = scene.setup.start(&crashed, false).expect("recovers");
        let id = scene.open_in(&crashed, &engine, 0);
        let shown = read(&engine, &id, 8 * PAGE);
        engine.tier_off("to see base").expect("off");
        assert!(read(&engine, &id, 8 * PAGE) == shown, "seed {seed}");
    }
}

#[test]
fn a_start_that_was_refused_is_no_reason_to_refuse_the_next() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    write(&engine, &id, 3, 10);
    engine.sync(&id, true).expect("syncs");
    let newest = read(&engine, &id, 64 * PAGE);
    let crashed = scene.world.crash(1);
    let changed_by_somebody = |wanted: &Identity, _: &str, _: bool| {
        let mut spec = spec_of(&crashed, scene.files[0], &name(0), *wanted);
        let stamp = spec.stamp;
        spec.stamp = Arc::new(move || {
            let late = |stamp: Stamp| Stamp {
                ctime_ns: stamp.ctime_ns + 60_000_000_000,
                ..stamp
            };
            stamp().map(late)
        });
        Ok(Some(spec))
    };
    for _ in 0..3 {
        let refused = scene
            .setup
            .start_with(&crashed, false, &changed_by_somebody);
        assert!(matches!(refused, Err(NoStart::Refused { dirty: 1, .. })));
    }
    // It is put back as it was.
    assert!(scene.found(&crashed, 0) == newest, "nothing is lost");
}

/// Without a stop the cache would be as the crash left it; with one it must be, too.
#[test]
fn a_start_that_failed_after_a_crash_is_no_reason_to_refuse_the_next() {
    let scene = Scene::new(Mode::Back, 0);
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    for number in 0..2 {
        scene.world.clock().pass(Duration::from_secs(1));
        write(&engine, &id, 3, 10 + number);
        engine.sync(&id, true).expect("syncs");
    }
    let newest = read(&engine, &id, 64 * PAGE);
    let crashed = scene.world.crash(1);
    let fails = |_: &Identity, _: &str, _: bool| Err(std::io::Error::from_raw_os_error(5));
    for _ in 0..2 {
        let failed = scene.setup.start_with(&crashed, false, &fails);
        assert!(matches!(failed, Err(NoStart::Failed(_))));
    }
    assert!(scene.found(&crashed, 0) == newest, "nothing is lost");
}

/// A crash interrupts a cut, and the next start cannot make it.
#[test]
fn a_cut_that_base_refuses_at_a_start_is_asked_for_again_by_the_next() {
    for what in [Failing::Writes, Failing::Syncs] {
        let scene = Scene::new(Mode::Back, 0);
        let engine = scene.start();
        let id = scene.open(&engine, 0);
        write(&engine, &id, 0, 10);
        write(&engine, &id, 5, 11);
        engine.sync(&id, true).expect("syncs");
        let other = scene.open(&engine, 1);
        write(&engine, &other, 3, 12);
        engine.sync(&other, true).expect("syncs");
        let (kept, others) = (read(&engine, &id, PAGE), read(&engine, &other, 8 * PAGE));
        scene.world.inject(scene.files[0], fails(Failing::Syncs, 1));
        assert!(engine.truncate(&id, PAGE as u64).is_err(), "base's sync");
        let crashed = scene.world.crash(1);
        crashed.inject(scene.files[0], fails(what, 1));
        let failed = scene.setup.start(&crashed, false);
        assert!(matches!(failed, Err(NoStart::Failed(_))), "{what:?}");
        let engine = scene.setup.start(&crashed, false).expect("starts");
        let id = scene.open_in(&crashed, &engine, 0);
        assert!(read(&engine, &id, 64 * PAGE) == kept, "{what:?}");
        engine.close_object(&id);
        engine.stop().expect("stops");
        assert!(scene.found(&crashed, 1) == others, "{what:?}");
    }
}

/// A region is marked while base is written; after a crash nobody may open its file again.
#[test]
fn marked_regions_do_not_add_up_from_crash_to_crash() {
    let scene = Scene::new(Mode::Through, 0);
    let mut world = scene.world.crash(0);
    for at in 1..7 {
        let engine = scene.setup.start(&world, false).expect("starts");
        for at in [2 * at, 2 * at + 1] {
            let file = world.create(&name(at), identity(at));
            world.sync_directory().expect("syncs");
            let spec = spec_of(&world, file, &name(at), identity(at));
            let id = engine.open_object(spec).expect("opens");
            write(&engine, &id, 0, at as u64);
            if at % 2 == 1 {
                // This one has a page on flash, too, and is remembered by its number.
                read(&engine, &id, PAGE);
                work(&engine, 20);
            }
            engine.sync(&id, false).expect("syncs");
        }
        let next = world.crash(at as u64);
        world.power_off();
        world = next;
    }
    let engine = scene.setup.start(&world, false).expect("starts");
    work(&engine, 1000);
    engine.flush(|_| true).expect("commits");
    let left = engine.marked_regions();
    assert!(left <= 1, "{left} regions are still marked");
}

/// The map on flash holds a number of marks. A base that nobody syncs is synced before they are
/// too many, rather than the tier given up.
#[test]
fn regions_marked_faster_than_anybody_syncs_leave_the_tier_on() {
    let scene = Scene::new(Mode::Through, 0);
    let world = scene.world.crash(0);
    let engine = scene.setup.start(&world, false).expect("starts");
    let mut most = 0;
    let objects: Vec<_> = (2..300)
        .map(|at| {
            let file = world.create(&name(at), identity(at));
            let id = engine.open_object(spec_of(&world, file, &name(at), identity(at)));
            let id = id.expect("opens");
            write(&engine, &id, 0, at as u64);
            most = most.max(engine.marked_regions());
            id
        })
        .collect();
    let tier = engine.stats().tier.expect("a tier");
    assert_eq!(tier.off, None, "the tier is on");
    assert!(most < objects.len(), "marks were taken back");
}

/// Pages that are written where writes of blocks are late.
const MANY: usize = 24;
/// How often they may be written before what is late arrives.
const ROUNDS: u64 = 6;

/// Writes many pages `rounds` times, then lets what is late arrive; how many pages are not what was
/// written last.
fn hit(scene: &Scene, engine: &Engine, id: &Arc<Object>, rounds: u64) -> usize {
    let number = |round: u64, page: usize| 1000 + round * MANY as u64 + page as u64;
    for round in 1..=rounds {
        for page in 0..MANY {
            write(engine, id, page, number(round, page));
        }
        engine.sync(id, true).expect("syncs");
    }
    scene.world.heal(FLASH);
    let is_hit = |page: &usize| {
        let mut bytes = vec![0; PAGE];
        let read = engine.read(&request(id, page * PAGE), &mut bytes);
        let newest = pattern(number(rounds, *page), (page * PAGE) as u64, PAGE);
        read.is_err() || bytes != newest
    };
    (0..MANY).filter(is_hit).count()
}

/// A scene in which nothing arrives late before [`hit`] says so.
fn held(planted: Mutant) -> (Scene, Arc<Engine>, Arc<Object>) {
    let mut scene = Scene::new(Mode::Back, 0);
    scene.setup.planted = planted;
    scene.world.hold_late();
    let engine = scene.start();
    let id = scene.open(&engine, 0);
    (scene, engine, id)
}

fn hit_by_a_late_page(planted: Mutant) -> usize {
    let one = |rounds| {
        let (scene, engine, id) = held(planted);
        // The file's record is on flash: the next write there is the page.
        write(&engine, &id, 1, 9);
        engine.sync(&id, true).expect("syncs");
        scene.world.inject(FLASH, fails(Failing::Late, 1));
        write(&engine, &id, 0, 10);
        engine.sync(&id, true).expect("syncs");
        hit(&scene, &engine, &id, rounds)
    };
    (1..=ROUNDS).map(one).sum()
}

#[test]
fn a_block_whose_write_is_late_is_not_written_again() {
    assert_eq!(hit_by_a_late_page(Mutant::None), 0);
    assert!(hit_by_a_late_page(Mutant::LateForgotten) > 0);
}

#[test]
fn what_is_late_when_the_tier_is_put_back_hits_nothing() {
    for rounds in 1..=ROUNDS {
        let (scene, engine, id) = held(Mutant::None);
        write(&engine, &id, 1, 9);
        engine.sync(&id, true).expect("syncs");
        engine.flush(|_| true).expect("flushes");
        // The page and the journal: the tier goes off.
        scene.world.inject(FLASH, fails(Failing::Late, 2));
        write(&engine, &id, 0, 10);
        let _ = engine.sync(&id, true);
        assert!(engine.tier_state().is_err(), "the tier is off");
        engine.sync(&id, true).expect("base has it");
        if engine.tier_on().is_err() {
            // As long as something may arrive.
            scene.world.heal(FLASH);
            engine.tier_on().expect("nothing is late any more");
        }
        assert_eq!(hit(&scene, &engine, &id, rounds), 0, "{rounds} rounds");
    }
}
