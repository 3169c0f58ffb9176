//! The map is read while requests are served: whatever is read is the newest, before, while and
//! after the tables made of it are taken over; a stop and a crash meanwhile lose no truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline::classify::Dialect;
use thermocline::device::{Device, FaultScript, Faulty, MemoryDevice};
use thermocline::mutant::Mutant;
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Error, Identity, MapLoad, Object, ObjectSpec, Request,
    Stamp, Store, StoreOptions,
};
use thermocline_core::hash::mix;
use thermocline_core::{FileKind, HintSet, policy};

const PAGE: u32 = 512;
const PAGES: u64 = 700;
const FILES: usize = 3;
const BLOCKS: u32 = 2048;

fn options(found: bool, load: MapLoad) -> StoreOptions {
    StoreOptions {
        page_size: PAGE,
        size: (!found).then(|| Store::length_for(BLOCKS, PAGE)),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        load,
        ..StoreOptions::default()
    }
}

/// A base file, and what it should hold. Its time changes only when the test says so.
struct File {
    device: Arc<MemoryDevice>,
    time: Arc<AtomicU64>,
    model: Vec<u8>,
    inode: u64,
}

impl File {
    fn new(inode: u64) -> Self {
        let model = vec![inode as u8; (PAGES * u64::from(PAGE)) as usize];
        let device = Arc::new(MemoryDevice::new());
        device.write_at(&model, 0).expect("writes");
        Self {
            device,
            time: Arc::default(),
            model,
            inode,
        }
    }

    fn spec(&self) -> ObjectSpec {
        let (device, time) = (self.device.clone(), self.time.clone());
        let stamp = move || {
            let time = time.load(Ordering::Relaxed) as i64;
            Some(Stamp {
                length: device.len().ok()?,
                mtime_ns: time,
                ctime_ns: time,
            })
        };
        ObjectSpec {
            name: format!("file{}", self.inode),
            group: "file".into(),
            identity: Identity {
                device: 1,
                inode: self.inode,
                generation: 1,
            },
            base: self.device.clone(),
            kind: FileKind::Relation,
            dialect: Dialect::None,
            cached: true,
            stamp: Arc::new(stamp),
            touch: thermocline::untouched(),
        }
    }
}

fn request(object: &Object, offset: u64) -> Request<'_> {
    Request {
        object,
        offset,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

/// An engine over files, which stops, crashes and starts.
struct Scene {
    flash: Arc<MemoryDevice>,
    faults: Arc<FaultScript>,
    files: Vec<File>,
    config: EngineConfig,
    engine: Option<Arc<Engine>>,
    open: Vec<Option<Arc<Object>>>,
}

impl Scene {
    fn new(policy: &str, pool_pages: u64, write_back: bool) -> Self {
        let config = EngineConfig {
            page_size: PAGE,
            policy: policy.into(),
            pool_bytes: pool_pages * u64::from(PAGE),
            write_back,
            // Nothing is refused where nobody writes in the background.
            write_buffer_pages: 4096,
            writers_max: 1,
            inline: true,
            ..EngineConfig::default()
        };
        let mut scene = Self {
            flash: Arc::new(MemoryDevice::new()),
            faults: FaultScript::new(),
            files: (1..=FILES as u64).map(File::new).collect(),
            config,
            engine: None,
            open: (0..FILES).map(|_| None).collect(),
        };
        scene.start(MapLoad::Before);
        scene
    }

    fn engine(&self) -> Arc<Engine> {
        Arc::clone(self.engine.as_ref().expect("runs"))
    }

    fn start(&mut self, load: MapLoad) {
        let found = self.flash.len().is_ok_and(|length| length > 0);
        let flash = Faulty::new(self.flash.clone(), self.faults.clone(), None);
        let store = Store::with_device(Arc::new(flash), "cache", &options(found, load));
        let engine = Engine::start(self.config.clone(), Some(store.expect("opens")));
        let engine = engine.expect("starts");
        let opener = |identity: &Identity, _: &str, _: bool| {
            let file = self.files.iter().find(|f| f.inode == identity.inode);
            Ok(file.map(File::spec))
        };
        engine.adopt(&opener, false).expect("adopts");
        self.engine = Some(engine);
    }

    fn close_all(&mut self) {
        let engine = self.engine();
        for object in self.open.iter_mut().filter_map(Option::take) {
            engine.close_object(&object);
        }
    }

    fn stop(&mut self) {
        self.close_all();
        let engine = self.engine.take().expect("runs");
        engine.stop().expect("stops");
    }

    /// As the death of the process does: base keeps everything, the cache is left open.
    fn crash(&mut self) {
        self.open.iter_mut().for_each(|object| *object = None);
        self.engine = None;
    }

    /// Stops with nothing dirty, and starts without the map.
    fn restart_loading(&mut self) {
        self.engine().flush(|_| true).expect("flushes");
        self.stop();
        self.start(MapLoad::After);
        assert!(self.engine().loading().is_some(), "the map is unread");
    }

    fn object(&mut self, at: usize) -> Arc<Object> {
        let engine = self.engine();
        let spec = || self.files[at].spec();
        let open = &mut self.open[at];
        let object = open.get_or_insert_with(|| engine.open_object(spec()).expect("opens"));
        Arc::clone(object)
    }

    fn write(&mut self, at: usize, offset: u64, bytes: &[u8]) {
        let object = self.object(at);
        let written = self.engine().write(&request(&object, offset), bytes);
        written.expect("writes");
        let model = &mut self.files[at].model;
        let end = offset as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(bytes);
    }

    fn truncate(&mut self, at: usize, length: u64) {
        let object = self.object(at);
        self.engine().truncate(&object, length).expect("cuts");
        self.files[at].model.resize(length as usize, 0);
    }

    fn punch(&mut self, at: usize, offset: u64, length: u64) {
        let object = self.object(at);
        self.engine().punch(&object, offset, length).expect("cuts");
        let model = &mut self.files[at].model;
        let end = model.len().min((offset + length) as usize);
        if (offset as usize) < end {
            model[offset as usize..end].fill(0);
        }
    }

    fn sync(&mut self, at: usize) {
        let object = self.object(at);
        self.engine().sync(&object, true).expect("syncs");
    }

    /// Reads a file page by page; which pages were wrong.
    fn wrong(&mut self, at: usize) -> Vec<u64> {
        let object = self.object(at);
        let engine = self.engine();
        let model = self.files[at].model.clone();
        let check = |(page, expected): (usize, &[u8])| {
            let mut bytes = vec![0xEE; expected.len()];
            let offset = page as u64 * u64::from(PAGE);
            let read = engine.read(&request(&object, offset), &mut bytes);
            assert_eq!(read.expect("reads"), expected.len(), "page {page}");
            (bytes != expected).then_some(page as u64)
        };
        let pages = model.chunks(PAGE as usize).enumerate();
        pages.filter_map(check).collect()
    }

    fn check_all(&mut self) {
        for at in 0..FILES {
            assert_eq!(self.wrong(at), Vec::<u64>::new(), "file {at}");
        }
    }

    /// Reads everything until it is on flash.
    fn warm(&mut self) {
        for _ in 0..2 {
            self.check_all();
            while self.engine().step() {}
        }
        assert!(self.on_flash() > 100, "{}", self.config.policy);
    }

    fn on_flash(&self) -> u32 {
        self.engine().stats().tier.expect("a tier").resident
    }

    fn flash_reads(&self) -> u64 {
        self.engine().stats().page_reads["flash"]
    }

    /// Has the map read to its end.
    fn load(&self) {
        let engine = self.engine();
        for _ in 0..10_000 {
            if engine.loading().is_none() {
                engine.assert_invariants();
                return;
            }
            engine.step();
        }
        panic!("the map is never read");
    }

    fn change_one_of_all_kinds(&mut self) {
        self.write(0, 5 * 512, &[9; 512]);
        self.write(0, 100 * 512 + 7, &[9; 30]);
        self.truncate(1, 20 * 512 + 100);
        self.truncate(1, 600 * 512);
        self.punch(2, 10 * 512, 20 * 512);
    }
}

fn scenes() -> impl Iterator<Item = Scene> {
    policy::NAMES.iter().flat_map(|policy| {
        [(0, false), (16, true)].map(|(pool, back)| Scene::new(policy, pool, back))
    })
}

#[test]
fn what_is_touched_meanwhile_is_never_old_afterwards() {
    for mut scene in scenes() {
        scene.warm();
        let all = scene.on_flash();
        scene.restart_loading();
        scene.check_all();
        scene.change_one_of_all_kinds();
        scene.check_all();
        scene.load();
        let (warm, before) = (scene.on_flash(), scene.flash_reads());
        scene.check_all();
        let policy = &scene.config.policy;
        assert!(
            all > 100 && warm > all / 4,
            "{policy}: {warm} of {all} are warm"
        );
        assert!(scene.flash_reads() > before, "pages come from flash");
        scene.stop();
        scene.start(MapLoad::Before);
        scene.check_all();
    }
}

#[test]
fn before_the_map_is_read_nothing_comes_from_flash() {
    let mut scene = Scene::new("lru", 0, false);
    scene.warm();
    scene.restart_loading();
    scene.check_all();
    let tier = scene.engine().stats().tier.expect("a tier");
    assert_eq!((tier.resident, tier.off, scene.flash_reads()), (0, None, 0));
    assert!(tier.loading.is_some());
    scene.load();
    assert_eq!(scene.engine().stats().tier.expect("a tier").loading, None);
}

#[test]
fn a_stop_meanwhile_leaves_what_was_not_touched() {
    for steps in 0..12 {
        let mut scene = Scene::new("lru", 0, false);
        scene.warm();
        let warm = scene.on_flash();
        scene.restart_loading();
        for _ in 0..steps {
            scene.engine().step();
        }
        scene.change_one_of_all_kinds();
        scene.stop();
        scene.start(MapLoad::After);
        scene.load();
        let left = scene.on_flash();
        assert!(left > 300 && left < warm, "{left} of {warm} are left");
        scene.check_all();
    }
}

#[test]
fn a_crash_meanwhile_leaves_nothing_old() {
    for steps in 0..12 {
        let mut scene = Scene::new("lru", 0, false);
        scene.warm();
        scene.restart_loading();
        for _ in 0..steps {
            scene.engine().step();
        }
        scene.change_one_of_all_kinds();
        for at in 0..FILES {
            scene.sync(at);
        }
        scene.crash();
        scene.start(MapLoad::After);
        assert_eq!(scene.engine().loading(), None, "a crash start waits");
        scene.check_all();
        while scene.engine().step() {}
        scene.check_all();
        assert!(scene.on_flash() > 300, "what was not touched is warm");
    }
}

/// A file changed behind the tier's back before the start, or while nobody had it open.
#[test]
fn a_changed_file_loses_its_pages() {
    for later in [false, true] {
        let mut scene = Scene::new("lru", 0, false);
        scene.warm();
        scene.engine().flush(|_| true).expect("flushes");
        scene.stop();
        let change = |scene: &mut Scene| {
            let file = &mut scene.files[1];
            file.model.fill(77);
            file.device.write_at(&file.model, 0).expect("writes");
            file.time.store(5, Ordering::Relaxed);
        };
        if !later {
            change(&mut scene);
        }
        scene.start(MapLoad::After);
        if later {
            change(&mut scene);
        }
        scene.check_all();
        scene.load();
        scene.check_all();
        assert!(scene.on_flash() > 500);
        scene.stop();
        scene.start(MapLoad::After);
        scene.load();
        scene.check_all();
    }
}

/// What is changed without a new time within a second that base's clock does not tell apart.
#[test]
fn coarse_times_do_not_matter_to_what_the_mount_wrote() {
    let mut scene = Scene::new("lru", 0, false);
    scene.warm();
    scene.restart_loading();
    scene.write(0, 0, &[1; 512]);
    scene.close_all();
    scene.write(0, 512, &[2; 512]);
    scene.close_all();
    scene.crash();
    scene.start(MapLoad::After);
    scene.check_all();
    while scene.engine().step() {}
    scene.check_all();
}

#[test]
fn a_damaged_map_is_reported_and_the_rest_is_warm() {
    let mut scene = Scene::new("lru", 0, false);
    scene.warm();
    let warm = scene.on_flash();
    scene.engine().flush(|_| true).expect("flushes");
    scene.stop();
    let length = scene.flash.len().expect("a length");
    // One sector of the map, which ends the cache.
    let at = length / 4096 * 4096 - 8 * 4096;
    scene.flash.write_at(&[0xAB; 512], at).expect("writes");
    scene.start(MapLoad::After);
    scene.check_all();
    scene.load();
    let lost = scene.engine().lost_in_map();
    assert_eq!(lost.len(), 1, "{lost:?}");
    let left = scene.on_flash();
    assert!(
        left < warm && left + 15 >= warm,
        "{left} of {warm} are left"
    );
    scene.check_all();
    scene.stop();
    scene.start(MapLoad::Before);
    scene.check_all();
}

#[test]
fn a_device_that_fails_meanwhile_leaves_base() {
    let mut scene = Scene::new("lru", 0, false);
    scene.warm();
    scene.restart_loading();
    scene.faults.load("any fail EIO").expect("a script");
    scene.write(0, 0, &[1; 512]);
    for _ in 0..100 {
        scene.engine().step();
    }
    scene.check_all();
    let engine = scene.engine();
    assert_eq!(engine.loading(), None, "nobody goes on reading");
    assert!(engine.tier_state().is_err());
    engine.assert_invariants();
    scene.faults.clear();
    engine.tier_on().expect("is on, and empty");
    assert_eq!(scene.on_flash(), 0);
    scene.warm();
    scene.stop();
    scene.start(MapLoad::After);
    scene.load();
    scene.check_all();
}

#[test]
fn what_changes_the_tier_waits_for_the_map() {
    let mut scene = Scene::new("lru", 0, false);
    scene.warm();
    scene.restart_loading();
    let engine = scene.engine();
    let resized = engine.resize(Store::length_for(BLOCKS / 2, PAGE), |_| true);
    assert!(matches!(resized, Err(Error::Loading { .. })), "{resized:?}");
    assert!(matches!(engine.tier_on(), Err(Error::Loading { .. })));
    let off = engine.tier_off("the test says so").expect_err("is refused");
    assert!(off.to_string().contains(" %"), "{off}");
    engine.set_policy("clock").expect("can be switched");
    engine.set_write_back(true);
    engine.flush(|_| true).expect("has nothing to flush");
    scene.write(0, 0, &[1; 512]);
    scene.load();
    assert_eq!(engine.policy(), "clock");
    assert!(engine.is_write_back());
    scene.check_all();
    let half = Store::length_for(BLOCKS / 2, PAGE);
    engine.resize(half, |_| true).expect("the map was read");
    scene.check_all();
}

#[test]
fn dirty_pages_are_not_put_off() {
    let mut scene = Scene::new("lru", 0, true);
    scene.write(0, 0, &[1; 512]);
    scene.sync(0);
    scene.stop();
    scene.start(MapLoad::After);
    assert_eq!(scene.engine().loading(), None, "a page is dirty");
    scene.check_all();
}

/// Random requests, stops and crashes under a map that is read piece by piece; what went wrong.
fn wander(seed: u64, planted: Mutant) -> Result<(), String> {
    let name = policy::NAMES[(seed % policy::NAMES.len() as u64) as usize];
    let mut scene = Scene::new(name, seed % 3 * 8, seed.is_multiple_of(2));
    scene.config.planted = planted;
    scene.warm();
    scene.restart_loading();
    let mut state = seed;
    let mut draw = |below: u64| {
        state = mix(state, 0x9E37);
        state % below
    };
    for number in 0..300 {
        let at = draw(FILES as u64) as usize;
        let offset = draw(PAGES) * 512 + [0, 0, 0, 100][draw(4) as usize];
        let length = [512, 512, 1024, 5 * 512, 70][draw(5) as usize];
        match draw(40) {
            0..12 => scene.write(at, offset, &vec![number as u8; length as usize]),
            12..16 => scene.truncate(at, offset),
            16..19 => scene.punch(at, offset, length * 3),
            19..22 => scene.sync(at),
            22..27 => {
                for _ in 0..draw(30) {
                    scene.engine().step();
                }
            }
            27..32 => {
                if let Some(object) = scene.open[at].take() {
                    scene.engine().close_object(&object);
                }
            }
            32..34 => scene.restart_loading_anyhow(),
            34 => {
                for at in 0..FILES {
                    scene.sync(at);
                }
                scene.crash();
                scene.start(MapLoad::After);
            }
            _ => scene.compare(number)?,
        }
    }
    scene.load();
    scene.compare(300)
}

impl Scene {
    fn compare(&mut self, number: usize) -> Result<(), String> {
        for at in 0..FILES {
            let wrong = self.wrong(at);
            if !wrong.is_empty() {
                return Err(format!("{number}: file {at}, pages {wrong:?}"));
            }
        }
        Ok(())
    }

    fn restart_loading_anyhow(&mut self) {
        self.engine().flush(|_| true).expect("flushes");
        self.stop();
        self.start(MapLoad::After);
    }
}

#[test]
fn random_requests_never_see_old_bytes() {
    for seed in 0..60 {
        assert_eq!(wander(seed, Mutant::None), Ok(()), "seed {seed}");
    }
}

#[test]
fn bugs_planted_in_loading_are_found() {
    for mutant in [
        Mutant::TouchedKept,
        Mutant::MarksForgotten,
        Mutant::UnmarkedCut,
    ] {
        let found = (0..200).find(|seed| wander(*seed, mutant).is_err());
        println!("{mutant:?}: found by seed {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}

/// The note of a cut is taken back though no page of the file can be in the map any more.
#[test]
fn a_cut_of_all_pages_is_not_made_again() {
    let mut scene = Scene::new("lru", 0, false);
    scene.warm();
    scene.restart_loading();
    scene.truncate(1, 300);
    scene.write(1, 0, &[5; 4096]);
    scene.sync(1);
    scene.crash();
    scene.start(MapLoad::After);
    scene.check_all();
}
