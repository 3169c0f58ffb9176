//! An engine that stops rather than guesses, and a flash device that fails: a panic under the
//! engine's lock ends the process and nothing is called clean; losing a name or punching a hole
//! never fails because of flash.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use thermocline::classify::Dialect;
use thermocline::clock::{Clock, SharedClock};
use thermocline::config::DirtySettings;
use thermocline::device::{Device, FaultScript, Faulty, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Error, Grave, Identity, Object, ObjectSpec, Request, Stamp,
    Store, StoreOptions, Told,
};
use thermocline_core::policy::{Access, PolicyOptions, TierPolicy, build};
use thermocline_core::{FileKind, HintSet, SlotId};

const PAGE: usize = 512;
/// Set for the process that is to end.
const KEY: &str = "THERMOCLINE_TEST_FAIL_STOP";

fn options(format: bool) -> StoreOptions {
    StoreOptions {
        page_size: PAGE as u32,
        size: format.then(|| Store::length_for(60, PAGE as u32)),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        ..StoreOptions::default()
    }
}

fn config() -> EngineConfig {
    EngineConfig {
        page_size: PAGE as u32,
        policy: "lru".into(),
        write_buffer_pages: 4,
        inline: true,
        clock: SharedClock::new(Arc::new(Still::default())),
        ..EngineConfig::default()
    }
}

/// A clock that only moves when somebody waits.
#[derive(Debug, Default)]
struct Still(AtomicI64);

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed).unsigned_abs())
    }
    fn wall_ns(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
    }
}

fn identity() -> Identity {
    Identity {
        device: 1,
        inode: 7,
        generation: 1,
    }
}

fn spec(base: &Arc<MemoryDevice>, changed: &Arc<AtomicI64>) -> ObjectSpec {
    let (device, changed) = (Arc::clone(base), Arc::clone(changed));
    let stamp = move || {
        let at = changed.load(Ordering::Relaxed);
        Some(Stamp {
            length: device.len().ok()?,
            mtime_ns: at,
            ctime_ns: at,
        })
    };
    ObjectSpec {
        name: "file".into(),
        group: "file".into(),
        identity: identity(),
        base: Arc::clone(base) as Arc<dyn Device>,
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(stamp),
        touch: thermocline::untouched(),
    }
}

fn request(object: &Object, page: u64) -> Request<'_> {
    Request {
        object,
        offset: page * PAGE as u64,
        hints: HintSet::UNKNOWN,
        client: 1,
    }
}

/// LRU until it is told to panic.
struct Fragile {
    policy: Box<dyn TierPolicy>,
    broken: Arc<AtomicBool>,
}

impl TierPolicy for Fragile {
    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        assert!(!self.broken.load(Ordering::Relaxed), "planted panic");
        self.policy.on_request(access, resident);
    }
    thermocline_core::pass_on!(policy: name, on_aside, decide, surplus, on_admit, on_found,
        on_remove, on_trim, on_pool_hits, on_pool, on_reserve, on_time, on_written, dirty_pages,
        keeps_outdated, on_dirty, on_clean, write_buffer, is_buffered, is_synchronous, worth,
        taught, learned, bytes, bytes_full, assert_invariants);
}

/// The process that is to end: a policy panics in one thread, another thread asks on.
fn be_ended(cache: &Path) {
    let store = Store::open(cache, &options(true)).expect("cache");
    let broken = Arc::new(AtomicBool::new(false));
    let planted = Arc::clone(&broken);
    let policy = move |options: &PolicyOptions| -> Box<dyn TierPolicy> {
        let policy = build("lru", options).expect("lru");
        let broken = planted;
        Box::new(Fragile { policy, broken })
    };
    let engine = Engine::start_with_policy(config(), Some(store), policy).expect("starts");
    let base = Arc::new(MemoryDevice::new());
    base.write_at(&[1; 16 * PAGE], 0).expect("base");
    let object = engine.open_object(spec(&base, &Arc::default()));
    let object = object.expect("opens");
    let mut page = [0; PAGE];
    engine.read(&request(&object, 0), &mut page).expect("reads");
    broken.store(true, Ordering::Relaxed);
    let reader = Arc::clone(&engine);
    let panicked = std::thread::spawn(move || {
        let mut page = [0; PAGE];
        let _ = reader.read(&request(&object, 1), &mut page);
    });
    assert!(panicked.join().is_err(), "the policy has panicked");
    let stopped = engine.stop();
    println!("still there: {stopped:?}");
}

#[test]
fn a_panic_under_the_lock_ends_the_process_and_nothing_is_called_clean() {
    if let Some(cache) = std::env::var_os(KEY) {
        return be_ended(Path::new(&cache));
    }
    let directory = tempfile::tempdir().expect("directory");
    let cache = directory.path().join("cache");
    let name = "a_panic_under_the_lock_ends_the_process_and_nothing_is_called_clean";
    let ended = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(KEY, &cache)
        .output()
        .expect("child");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("planted panic"), "{said}");
    assert!(said.contains("the next start recovers"), "{said}");
    let out = String::from_utf8_lossy(&ended.stdout);
    assert!(!out.contains("still there"), "{out}");
    let store = Store::open(&cache, &options(false)).expect("opens");
    let found = store.recovered().expect("it was there");
    assert!(!found.clean_stop, "it was not ended cleanly");
}

/// Starts an engine as a user who may have no more threads, and says what came of it.
fn start_without_threads() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call reads the limit; both calls change this process alone.
    let limited = unsafe {
        // Root has no such limit.
        let user = libc::geteuid() != 0 || libc::setresuid(65534, 65534, 65534) == 0;
        user && libc::setrlimit(libc::RLIMIT_NPROC, &raw const none) == 0
    };
    assert!(limited, "{}", io::Error::last_os_error());
    let store = Store::with_device(Arc::new(MemoryDevice::new()), "cache", &options(true));
    let config = EngineConfig {
        inline: false,
        ..config()
    };
    match Engine::start(config, Some(store.expect("cache"))) {
        Ok(_) => println!("started"),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn a_start_without_threads_fails_and_says_so() {
    if std::env::var_os(KEY).is_some() {
        return start_without_threads();
    }
    let name = "a_start_without_threads_fails_and_says_so";
    let ended = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(KEY, "")
        .output()
        .expect("child");
    let out = String::from_utf8_lossy(&ended.stdout);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        out.contains("refused: cannot start a thread"),
        "{out}{said}"
    );
    assert!(out.contains("ulimit -u"), "{out}");
}

/// What is done to a file.
type Deed = fn(&Engine, &Arc<Object>) -> io::Result<()>;

fn unlink(engine: &Engine, object: &Arc<Object>) -> io::Result<()> {
    engine.before_unlink(&identity());
    let grave = Grave {
        kept: None,
        directory: (1, 2),
        sync: Arc::new(|| Ok(())),
    };
    engine.unlinked(&identity(), grave);
    engine.close_object(object);
    Ok(())
}

/// A cache on a device that does what the script says; its requests may take so long.
fn sick(options: &StoreOptions, limit: Option<Duration>) -> (Arc<FaultScript>, Store) {
    let (faults, device) = (FaultScript::new(), Arc::new(MemoryDevice::new()));
    let store = Store::with_device(device, "cache", options).expect("cache");
    let planted = Arc::clone(&faults);
    let store = store.wrapped(|device| Arc::new(Faulty::new(device, planted, limit)));
    (faults, store)
}

/// A file of 16 pages, on base.
fn of_16_pages(engine: &Arc<Engine>) -> Arc<Object> {
    let base = Arc::new(MemoryDevice::new());
    base.write_at(&[1; 16 * PAGE], 0).expect("base");
    let opened = engine.open_object(spec(&base, &Arc::default()));
    opened.expect("opens")
}

#[test]
fn no_name_and_no_hole_fails_because_of_flash() {
    let deeds: [(&str, Deed); 5] = [
        ("unlink", unlink),
        ("punch", |engine, file| {
            engine.punch(file, 0, 4 * PAGE as u64)
        }),
        ("truncate", |engine, file| {
            engine.truncate(file, PAGE as u64)
        }),
        ("write", |engine, file| {
            engine.write(&request(file, 3), &[9; PAGE])
        }),
        ("chmod", |engine, _| {
            engine.change_metadata(&identity(), || None, || Ok(()))
        }),
    ];
    for script in ["sync fail EIO", "write fail EIO", "any fail EIO"] {
        for (what, deed) in deeds {
            let (faults, store) = sick(&options(true), None);
            let engine = Engine::start(config(), Some(store)).expect("starts");
            let file = of_16_pages(&engine);
            let mut bytes = [0; 16 * PAGE];
            engine.read(&request(&file, 0), &mut bytes).expect("reads");
            while engine.step() {}
            engine.sync(&file, false).expect("syncs");
            faults.load(script).expect("script");
            let done = deed(&engine, &file);
            assert!(
                done.is_ok(),
                "{what} while flash does \"{script}\": {done:?}"
            );
        }
    }
}

/// A cache on a device that does what the script says, in write-back; a file of 16 pages, of which
/// the first four are on flash and newer than base, `synced` or only written there.
fn four_newer_pages(synced: bool) -> (Arc<FaultScript>, Arc<Engine>, Arc<Object>) {
    let (faults, store) = sick(&options(true), None);
    let config = EngineConfig {
        write_back: true,
        ..config()
    };
    let engine = Engine::start(config, Some(store)).expect("starts");
    let file = of_16_pages(&engine);
    engine.sync(&file, false).expect("syncs");
    engine
        .write(&request(&file, 0), &[2; 4 * PAGE])
        .expect("writes");
    if synced {
        engine.sync(&file, false).expect("syncs");
    }
    while engine.stats().tier.is_some_and(|tier| tier.staged > 0) {
        assert!(engine.step(), "staged pages are written");
    }
    (faults, engine, file)
}

/// PostgreSQL ends when a sync fails, and does not start again while it does.
#[test]
fn of_pages_that_were_durable_and_are_lost_each_user_is_told_once() {
    let (faults, engine, file) = four_newer_pages(true);
    let (one, other) = (Told::by(&file), Told::by(&file));
    faults.load("any fail EIO").expect("script");
    for page in [5, 6] {
        engine
            .write(&request(&file, page), &[3; PAGE])
            .expect("goes to base");
        if page == 5 {
            engine.sync_for(&file, &one, true).expect_err("is told");
        }
        engine.sync_for(&file, &one, true).expect("base has it");
        let mut bytes = [0; PAGE];
        engine
            .read(&request(&file, page), &mut bytes)
            .expect("is there");
        assert_eq!(bytes, [3; PAGE]);
    }
    let tier = engine.stats().tier.expect("there is one");
    assert!(tier.off.is_some() && tier.lost.len() == 4, "{tier:?}");
    engine.sync_for(&file, &other, true).expect_err("is told");
    engine.sync_for(&file, &other, true).expect("once");
    let later = Told::by(&file);
    engine.sync_for(&file, &later, true).expect("it came later");
    let mut bytes = [0; PAGE];
    engine
        .read(&request(&file, 0), &mut bytes)
        .expect_err("old bytes are not given instead");
}

#[test]
fn a_sync_fails_for_pages_that_are_lost_before_it_as_often_as_it_is_tried() {
    let (faults, engine, file) = four_newer_pages(false);
    faults.load("any fail EIO").expect("script");
    for _ in 0..3 {
        engine.sync(&file, true).expect_err("nobody has them");
    }
    faults.clear();
    engine.sync(&file, true).expect("it has them after all");
}

/// What the device is asked for as one, and answers late.
type Call = fn(&Engine, &Arc<Object>) -> io::Result<()>;

/// Each call is of four pages. One late call leaves the tier on, a few do not.
#[test]
fn a_late_request_of_many_pages_is_one_time_out() {
    let read: Call = |engine, file| {
        let mut bytes = [0; 4 * PAGE];
        engine.read(&request(file, 0), &mut bytes).map(drop)
    };
    let write: Call = |engine, file| {
        let mut bytes = [0; 4 * PAGE];
        engine.read(&request(file, 8), &mut bytes)?;
        assert!(engine.step(), "staged pages are written");
        Ok(())
    };
    let commit: Call = |engine, file| {
        engine.write(&request(file, 0), &[7; 4 * PAGE])?;
        engine.sync(file, false)
    };
    for (what, call, write_back) in [
        ("read", read, false),
        ("write", write, false),
        ("write", commit, true),
    ] {
        // Blocks that hold late writes are not used again: there are some to spare.
        let options = StoreOptions {
            size: Some(Store::length_for(640, PAGE as u32)),
            ..options(true)
        };
        let (faults, store) = sick(&options, Some(Duration::from_millis(1)));
        let config = EngineConfig {
            write_back,
            read_ahead: 0,
            ..config()
        };
        let engine = Engine::start(config, Some(store)).expect("starts");
        let file = of_16_pages(&engine);
        let late = (1..=4).find(|_| {
            let mut bytes = [0; 4 * PAGE];
            engine.read(&request(&file, 0), &mut bytes).expect("reads");
            while engine.step() {}
            let before = engine.stats().tier.expect("there is one");
            faults
                .load(&format!("{what} times 4 hang 1s"))
                .expect("script");
            call(&engine, &file).expect("base has it");
            faults.clear();
            let tier = engine.stats().tier.expect("there is one");
            let late = tier.faults["timed-out"] - before.faults["timed-out"];
            assert_eq!(late, 4, "{what}: all pages of the call were late");
            tier.off.is_some()
        });
        // What went well between two of them counts too.
        assert!(matches!(late, Some(2..=3)), "{what}: {late:?}");
    }
}

#[test]
fn a_hole_of_any_length_costs_what_is_there() {
    let device = Arc::new(MemoryDevice::new());
    let store = Store::with_device(device, "cache", &options(true)).expect("cache");
    let config = EngineConfig {
        write_back: true,
        ..config()
    };
    let engine = Engine::start(config, Some(store)).expect("starts");
    let base = Arc::new(MemoryDevice::new());
    base.write_at(&[1; 16 * PAGE], 0).expect("base");
    let file = engine
        .open_object(spec(&base, &Arc::default()))
        .expect("opens");
    for (offset, length) in [(0, u64::MAX), (PAGE as u64, 1 << 62), (5, u64::MAX - 5)] {
        engine
            .write(&request(&file, 0), &[7; 8 * PAGE])
            .expect("writes");
        engine.sync(&file, true).expect("syncs");
        engine.punch(&file, offset, length).expect("punches");
        let mut bytes = [0xEE; 8 * PAGE];
        engine.read(&request(&file, 0), &mut bytes).expect("reads");
        let kept = offset as usize;
        assert!(
            bytes[..kept].iter().all(|byte| *byte == 7),
            "before {offset}"
        );
        assert!(bytes[kept..].iter().all(|byte| *byte == 0), "from {offset}");
    }
    engine.assert_invariants();
}

#[test]
fn a_stop_names_what_base_refuses_and_flash_does_not_take() {
    for flash in [true, false] {
        let dir = tempfile::tempdir().expect("directory");
        let store = flash.then(|| {
            let made = Store::open(&dir.path().join("cache"), &options(true));
            made.expect("cache")
        });
        // This policy takes no writes, and there is no reserve for them.
        let config = EngineConfig {
            policy: "tac".into(),
            write_back: true,
            pool_bytes: 8 * PAGE as u64,
            dirty: DirtySettings {
                reserve: 0.0,
                ..DirtySettings::default()
            },
            ..config()
        };
        let engine = Engine::start(config, store).expect("starts");
        let base = Arc::new(MemoryDevice::new());
        base.write_at(&[1; 16 * PAGE], 0).expect("base");
        let script = FaultScript::new();
        let faulty = Faulty::new(Arc::clone(&base), Arc::clone(&script), None);
        let object = engine.open_object(ObjectSpec {
            base: Arc::new(faulty),
            ..spec(&base, &Arc::default())
        });
        let object = object.expect("opens");
        engine
            .write(&request(&object, 3), &[2; PAGE])
            .expect("writes");
        let dirty = engine.dirty_pages();
        script.load("write fail EIO").expect("a script");
        engine.close_object(&object);
        let stopped = engine.stop();
        if dirty == 0 {
            assert!(!flash, "DRAM takes it where there is flash");
            stopped.expect("base has it");
            continue;
        }
        let error = stopped.expect_err("base has it not");
        let Error::Unsaved { pages, files, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*pages, files.as_str()), (1, "file page 3"));
    }
}
