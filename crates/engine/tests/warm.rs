//! Warming a cache that was lost from the list of what was hot: every policy, in both modes, the
//! hottest first where not all fit, and right whatever is written, cut or switched meanwhile.
#![cfg(not(feature = "shuttle"))]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline::{Engine, EngineConfig, FileKind, Grave, HintSet, HotList, Identity, Object};
use thermocline::{ObjectSpec, Request, Store, StoreOptions, WarmEnd, WarmPace, Warmed};

const PAGE: u64 = 8192;
const PAGES: u64 = 400;
const FAST: WarmPace = WarmPace {
    share: 1.0,
    requests_per_s: 0.0,
};

fn content(page: u64, version: u8) -> Vec<u8> {
    vec![(page % 251) as u8 ^ version; PAGE as usize]
}

struct Scene {
    directory: tempfile::TempDir,
    config: EngineConfig,
}

impl Scene {
    fn new(policy: &str, write_back: bool, frames: u64) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        for name in ["a", "b"] {
            let pages: Vec<u8> = (0..PAGES).flat_map(|page| content(page, 0)).collect();
            fs::write(directory.path().join(name), pages).expect("a file");
        }
        let config = EngineConfig {
            write_back,
            policy: policy.into(),
            pool_bytes: frames * PAGE,
            // However late the writers are, no page finds the buffer full and stays away.
            write_buffer_pages: 1024,
            ..EngineConfig::default()
        };
        Self { directory, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// With an empty cache of so many pages.
    fn start(&self, slots: u64) -> Arc<Engine> {
        let _none = fs::remove_file(self.path("cache"));
        let options = StoreOptions {
            size: Some(slots * PAGE),
            ..StoreOptions::default()
        };
        let store = Store::open(&self.path("cache"), &options).expect("a cache");
        Engine::start(self.config.clone(), Some(store)).expect("starts")
    }

    fn open(&self, engine: &Engine, name: &str) -> Arc<Object> {
        let kind = FileKind::Relation;
        let spec = ObjectSpec::of_file(self.directory.path(), name, kind).expect("opens");
        engine.open_object(spec).expect("opens")
    }

    fn warm(&self, engine: &Engine, list: &HotList) -> (Warmed, WarmEnd) {
        let mut tally = Warmed::default();
        let mut end = WarmEnd::Done;
        for part in list.parts() {
            let object = self.open(engine, part.name);
            let warmed = engine.warm(&object, part.ranges(), &FAST, &mut tally, |_| true);
            engine.close_object(&object);
            end = warmed.expect("base gives it");
            if end != WarmEnd::Done {
                break;
            }
        }
        (tally, end)
    }
}

fn request(object: &Object, page: u64) -> Request<'_> {
    Request {
        object,
        offset: page * PAGE,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

fn read(engine: &Engine, object: &Object, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    let read = engine.read(&request(object, page), &mut bytes);
    assert_eq!(read.expect("reads"), PAGE as usize);
    bytes
}

fn base_reads(engine: &Engine) -> u64 {
    engine.stats().page_reads["base"]
}

fn end(engine: &Engine, objects: &[&Arc<Object>]) {
    engine.assert_invariants();
    objects
        .iter()
        .for_each(|object| engine.close_object(object));
    engine.flush(|_| true).expect("flushes");
    engine.stop().expect("stops");
}

/// Every page of the two files was hot, three of the second most of all: their stretch with them.
fn learned(scene: &Scene) -> HotList {
    let mut teacher = scene.config.clone();
    (teacher.policy, teacher.pool_bytes) = ("lru".into(), 0);
    let engine = Scene {
        config: teacher,
        directory: tempfile::tempdir().expect("directory"),
    };
    for name in ["a", "b"] {
        fs::copy(scene.path(name), engine.path(name)).expect("copied");
    }
    let (scene, engine) = (&engine, engine.start(2000));
    let (a, b) = (scene.open(&engine, "a"), scene.open(&engine, "b"));
    for page in 0..PAGES {
        read(&engine, &a, page);
        (0..3).for_each(|_| drop(read(&engine, &b, page)));
    }
    for page in 3..6 {
        (0..300).for_each(|_| drop(read(&engine, &b, page)));
    }
    let list = engine.hot_list();
    end(&engine, &[&a, &b]);
    list
}

#[test]
fn the_list_has_the_hottest_first() {
    let list = learned(&Scene::new("tac", false, 0));
    let parts = list
        .parts()
        .map(|p| (p.name, p.worth, p.ranges().collect()));
    let parts: Vec<(&str, u8, Vec<_>)> = parts.collect();
    let one = |from, to| std::iter::once(from..to).collect::<Vec<_>>();
    // Stretches of 128 pages, read 1015, 256 and 32 times; reads of a page count to 255.
    let expected = [
        ("b", 10, one(0, 128)),
        ("b", 9, one(128, 384)),
        ("b", 6, one(384, PAGES)),
        ("a", 0, one(0, PAGES)),
    ];
    assert_eq!(parts, expected);
    assert_eq!(list.pages(), 2 * PAGES);
}

#[test]
fn a_lost_cache_is_warm_again_under_every_policy() {
    let list = learned(&Scene::new("lru", false, 0));
    for policy in thermocline_core::policy::NAMES {
        for (write_back, frames) in [(false, 0), (true, 16)] {
            let scene = Scene::new(policy, write_back, frames);
            let engine = scene.start(2000);
            let (tally, ended) = scene.warm(&engine, &list);
            assert_eq!(ended, WarmEnd::Done, "{policy}");
            assert_eq!((tally.seen, tally.came), (2 * PAGES, 2 * PAGES), "{policy}");
            assert!(tally.requests < 20, "{policy}: in base order, together");
            let stats = engine.stats();
            let tier = stats.tier.expect("a tier");
            assert_eq!(u64::from(tier.resident), 2 * PAGES, "{policy}");
            assert_eq!(tier.warmed, 2 * PAGES);
            assert_eq!(stats.page_reads.values().sum::<u64>(), 0, "nobody asked");
            let (a, b) = (scene.open(&engine, "a"), scene.open(&engine, "b"));
            for page in 0..PAGES {
                assert_eq!(read(&engine, &a, page), content(page, 0));
                assert_eq!(read(&engine, &b, page), content(page, 0));
            }
            assert_eq!(base_reads(&engine), 0, "{policy}: all from flash");
            // Nothing is left to do.
            let (again, _) = scene.warm(&engine, &list);
            assert_eq!((again.seen, again.requests), (2 * PAGES, 0));
            end(&engine, &[&a, &b]);
        }
    }
}

#[test]
fn where_not_all_fit_the_hottest_come() {
    let scene = Scene::new("tac", false, 0);
    let list = learned(&scene);
    let engine = scene.start(600);
    let (tally, ended) = scene.warm(&engine, &list);
    assert_eq!(ended, WarmEnd::Full);
    let tier = engine.stats().tier.expect("a tier");
    assert_eq!(
        (tier.resident, u64::from(tier.slots)),
        (tier.slots, tally.came)
    );
    let (a, b) = (scene.open(&engine, "a"), scene.open(&engine, "b"));
    (0..PAGES).for_each(|page| drop(read(&engine, &b, page)));
    assert_eq!(base_reads(&engine), 0, "the file that was read three times");
    end(&engine, &[&a, &b]);
}

#[test]
fn changed_and_shorter_files_are_read_as_they_are() {
    let scene = Scene::new("tac", false, 0);
    let list = learned(&scene);
    let changed: Vec<u8> = (0..10).flat_map(|page| content(page, 77)).collect();
    fs::write(scene.path("a"), changed).expect("another file");
    let engine = scene.start(2000);
    let (tally, ended) = scene.warm(&engine, &list);
    assert_eq!((ended, tally.came), (WarmEnd::Done, PAGES + 10));
    let a = scene.open(&engine, "a");
    for page in 0..10 {
        assert_eq!(read(&engine, &a, page), content(page, 77));
    }
    assert_eq!(base_reads(&engine), 0);
    end(&engine, &[&a]);
}

#[test]
fn it_ends_when_told_to_and_when_the_tier_goes_off() {
    let scene = Scene::new("tac", true, 0);
    let list = learned(&scene);
    let engine = scene.start(2000);
    let part = list.parts().last().expect("parts");
    let object = scene.open(&engine, part.name);
    let mut tally = Warmed::default();
    let stopped = engine.warm(&object, part.ranges(), &FAST, &mut tally, |t| {
        t.requests < 1
    });
    assert_eq!(stopped.expect("base is well"), WarmEnd::Stopped);
    assert!(tally.came > 0 && tally.came < PAGES);
    engine.tier_off("a test").expect("goes off");
    let off = engine.warm(&object, part.ranges(), &FAST, &mut tally, |_| true);
    assert_eq!(off.expect("base is well"), WarmEnd::Off);
    end(&engine, &[&object]);
}

impl Scene {
    fn open_aside(&self, engine: &Engine, name: &str) -> Arc<Object> {
        let kind = FileKind::Relation;
        let spec = ObjectSpec::of_file(self.directory.path(), name, kind).expect("opens");
        engine.open_aside(spec).expect("opens")
    }

    /// Another content for `pages` pages of the file, behind the engine's back.
    fn replace(&self, name: &str, pages: u64, version: u8) {
        // So that the file's times tell.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let bytes: Vec<u8> = (0..pages).flat_map(|page| content(page, version)).collect();
        fs::write(self.path(name), bytes).expect("written");
    }
}

/// Nobody knows that a file is being warmed: who may change closed files may change it.
#[test]
fn what_is_changed_behind_it_is_read_as_it_is_now() {
    for (policy, frames) in [("tac", 0), ("lru", 16)] {
        let scene = Scene::new(policy, false, frames);
        let engine = scene.start(2000);
        let warm = |object: &Object, pages| {
            let (ranges, mut tally) = (std::iter::once(pages), Warmed::default());
            let ended = engine.warm(object, ranges, &FAST, &mut tally, |_| true);
            assert_eq!(ended.expect("base is well"), WarmEnd::Done);
        };
        let check = |object: &Object, pages, version| {
            for page in 0..pages {
                let read = read(&engine, object, page);
                assert!(read == content(page, version), "{policy}: {page} {version}");
            }
            let mut bytes = [0; 1];
            let past = engine.read(&request(object, pages), &mut bytes);
            assert_eq!(past.expect("reads"), 0, "the end is where it is now");
        };
        // It is opened while it is warmed: when it has as many pages, fewer, more.
        let aside = scene.open_aside(&engine, "a");
        for (version, pages) in [(1, PAGES), (2, 50), (3, PAGES + 9)] {
            warm(&aside, 0..PAGES);
            scene.replace("a", pages, version);
            let used = scene.open(&engine, "a");
            check(&used, pages, version);
            warm(&aside, 0..PAGES);
            engine.close_object(&used);
        }
        // And it is not, until that is over.
        warm(&aside, 0..PAGES);
        scene.replace("a", PAGES, 4);
        warm(&aside, 300..PAGES);
        engine.close_aside(&aside);
        let used = scene.open(&engine, "a");
        check(&used, PAGES, 4);
        // Another use of the kind finds it too.
        engine.close_object(&used);
        let (one, two) = (
            scene.open_aside(&engine, "a"),
            scene.open_aside(&engine, "a"),
        );
        scene.replace("a", PAGES, 5);
        engine.close_aside(&one);
        let used = scene.open(&engine, "a");
        check(&used, PAGES, 5);
        engine.close_aside(&two);
        end(&engine, &[&used]);
    }
}

/// Its place on base is wanted back, and its pages are worth no slot.
#[test]
fn a_file_that_is_removed_meanwhile_is_let_go() {
    let scene = Scene::new("lru", false, 0);
    let engine = scene.start(2000);
    let path = scene.path("a");
    let identity = Identity::of(&fs::metadata(&path).expect("there"));
    let aside = scene.open_aside(&engine, "a");
    let mut tally = Warmed::default();
    let ended = engine.warm(
        &aside,
        std::iter::once(0..PAGES),
        &FAST,
        &mut tally,
        |tally| {
            if tally.requests == 1 && path.exists() {
                engine.before_unlink(&identity);
                fs::remove_file(&path).expect("removed");
                let grave = Grave {
                    kept: None,
                    directory: (0, 0),
                    sync: Arc::new(|| Ok(())),
                };
                engine.unlinked(&identity, grave);
            }
            true
        },
    );
    assert_eq!(ended.expect("base is well"), WarmEnd::Done);
    assert_eq!(tally.requests, 1, "nothing more is read of it");
    engine.close_aside(&aside);
    assert_eq!(engine.stats().tier.expect("a tier").resident, 0);
    end(&engine, &[]);
}

/// What the tier itself writes to base, of a file that it warms, is no change of it.
#[test]
fn what_the_tier_changes_meanwhile_is_its_own_doing() {
    let scene = Scene::new("lru", true, 0);
    let engine = scene.start(2000);
    let used = scene.open(&engine, "a");
    for page in 0..PAGES {
        let bytes = content(page, 1);
        engine.write(&request(&used, page), &bytes).expect("writes");
    }
    let aside = scene.open_aside(&engine, "a");
    engine.close_object(&used);
    engine.flush(|_| true).expect("flushes");
    let used = scene.open(&engine, "a");
    for page in 0..PAGES {
        assert!(read(&engine, &used, page) == content(page, 1));
    }
    assert_eq!(engine.stats().tier.expect("a tier").stale_objects, 0);
    assert_eq!(base_reads(&engine), 0, "its pages are still on flash");
    engine.close_aside(&aside);
    end(&engine, &[&used]);
}

/// Each page is written by one thread; what it wrote last, or zeros after a cut, is what is read.
#[test]
fn what_is_written_and_cut_meanwhile_is_what_is_read() {
    for (policy, write_back, frames) in [("tac", false, 0), ("cac", true, 16), ("lru", true, 0)] {
        let scene = Scene::new(policy, write_back, frames);
        let list = learned(&scene);
        let engine = scene.start(600);
        let (a, b) = (scene.open(&engine, "a"), scene.open(&engine, "b"));
        let over = AtomicBool::new(false);
        let versions = std::thread::scope(|scope| {
            let writer = |object: &Arc<Object>, cuts: bool| {
                let (engine, object, over) = (&engine, Arc::clone(object), &over);
                scope.spawn(move || {
                    let mut newest = BTreeMap::new();
                    for round in 1..u64::MAX {
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                        let page = round * 7 % PAGES;
                        let version = (round % 200) as u8 + 1;
                        let bytes = content(page, version);
                        engine
                            .write(&request(&object, page), &bytes)
                            .expect("writes");
                        newest.insert(page, version);
                        assert_eq!(read(engine, &object, page), bytes, "what was written");
                        if cuts && round.is_multiple_of(97) {
                            engine.truncate(&object, 100 * PAGE).expect("cut");
                            engine.truncate(&object, PAGES * PAGE).expect("longer");
                            newest.extend((100..PAGES).map(|page| (page, 0)));
                        }
                    }
                    newest
                })
            };
            let writers = [writer(&a, true), writer(&b, false)];
            let mut came = 0;
            for round in 0..20 {
                came += scene.warm(&engine, &list).0.came;
                // The next round finds room again.
                let name = ["lru", policy][round % 2];
                engine.set_policy(name).expect("known");
                if round % 5 == 4 && !write_back {
                    engine.tier_off("a test").expect("off");
                    engine.tier_on().expect("on");
                }
            }
            over.store(true, Ordering::Release);
            assert!(came > 0);
            writers.map(|writer| writer.join().expect("no writer failed"))
        });
        for (object, newest) in [&a, &b].into_iter().zip(versions) {
            for page in 0..PAGES {
                let expected = match newest.get(&page) {
                    Some(0) => vec![0; PAGE as usize],
                    Some(version) => content(page, *version),
                    None => content(page, 0),
                };
                assert!(read(&engine, object, page) == expected, "{policy}: {page}");
            }
        }
        end(&engine, &[&a, &b]);
    }
}
