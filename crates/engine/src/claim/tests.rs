//! The rules of claims, and two engines over one base of which one takes over.

use super::mark::{Claimant, Mark};
use super::place::{OnDisk, Place};
use super::*;
use crate::classify::Dialect;
use crate::clock::Clock;
use crate::device::{Device, FileDevice, FileOptions, MemoryDevice};
use crate::{
    Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stamp, Store, StoreOptions,
    untouched,
};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use tempfile::TempDir;
use thermocline_core::{FileKind, HintSet};

const PAGE: u32 = 4096;
const OURS: u64 = 0xc0ffee;

fn host(name: &str) -> Host {
    Host {
        name: name.into(),
        machine: format!("{name}-machine"),
        boot: format!("{name}-boot"),
    }
}

fn mark(state: State, cache: u64, epoch: u64, by: &Host) -> Mark {
    Mark {
        state,
        base: 77,
        cache,
        epoch,
        claimant: Claimant::new(by, "/ssd/a; b%\n", Path::new("/srv/x")),
        taking: false,
    }
}

/// A base with this mark, and what the host `name` makes of it with our cache, opened so often.
fn admitted(mark: Option<&Mark>, name: &str, epoch: u64, leave: &Leave) -> Result<(), Refusal> {
    let base = tempfile::tempdir().expect("base");
    let place = Place::of(base.path()).expect("place");
    if let Some(mark) = mark {
        place.write(mark).expect("writes");
    }
    let claim = Claim::with(base.path(), host(name), Duration::ZERO, None)?;
    let mut stamp = CacheStamp {
        name: "/ssd/tier".into(),
        format_id: OURS,
        epoch,
        marked: 0,
        base: claim.identity(),
    };
    stamp.base.path = "/elsewhere".into();
    claim.admit(&|| Ok(Some(stamp.clone())), leave).map(drop)
}

#[test]
fn a_mark_is_read_as_it_was_written() {
    let written = mark(State::Dirty, OURS, 9, &host("a"));
    let text = written.encode();
    assert!(
        !text.contains('\n') && text.contains("state=dirty"),
        "{text}"
    );
    assert!(text.contains("start no server on it"), "{text}");
    assert_eq!(Mark::decode(&text), Ok(written.clone()));
    let taken = Mark {
        taking: true,
        ..written
    };
    assert_eq!(Mark::decode(&taken.encode()), Ok(taken));
    for wrong in ["", "thermocline mark 2; state=whole", "thermocline mark 1"] {
        assert!(Mark::decode(wrong).is_err(), "{wrong}");
    }
    let nowhere = text.replace("state=dirty", "state=odd");
    assert_eq!(Mark::decode(&nowhere), Err("its state is \"odd\"".into()));
}

#[test]
fn where_there_are_no_attributes_a_file_beside_the_base_is_the_mark() {
    let parent = tempfile::tempdir().expect("directory");
    let base = parent.path().join("base");
    fs::create_dir(&base).expect("base");
    let place = Place::of(&base).expect("place");
    assert_eq!(place.read().expect("reads"), None);
    let first = mark(State::Dirty, OURS, 1, &host("a"));
    let on_disk = OnDisk::of(&base).expect("place");
    on_disk.write_file(&first.encode()).expect("writes");
    assert!(parent.path().join(".base.thermocline").exists());
    assert_eq!(place.read().expect("reads"), Some(first));
    // Should attributes come, they count, and the file goes.
    let second = mark(State::Whole, OURS, 2, &host("a"));
    place.write(&second).expect("writes");
    assert_eq!(place.read().expect("reads"), Some(second));
    assert!(!parent.path().join(".base.thermocline").exists());
}

#[test]
fn a_base_that_is_owed_bytes_by_another_cache_is_refused_until_those_are_given_up() {
    let theirs = mark(State::Dirty, 0xbad, 3, &host("a"));
    let refused = admitted(Some(&theirs), "a", 1, &Leave::default());
    let text = refused.expect_err("refused").to_string();
    for part in [
        "0000000000000bad",
        "/ssd/a; b%\n",
        "recover",
        "--abandon-dirty",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let leave = |abandon| Leave {
        abandon: Some(abandon),
        ..Leave::default()
    };
    assert!(admitted(Some(&theirs), "a", 1, &leave(0xbee)).is_err());
    admitted(Some(&theirs), "a", 1, &leave(0xbad)).expect("given up");
    for whole in [State::Whole, State::Serving] {
        let theirs = mark(whole, 0xbad, 3, &host("a"));
        admitted(Some(&theirs), "a", 1, &Leave::default()).expect("base is whole");
    }
    let ours = mark(State::Dirty, OURS, 3, &host("a"));
    admitted(Some(&ours), "a", 3, &Leave::default()).expect("our own");
    admitted(None, "a", 3, &Leave::default()).expect("no mark");
}

#[test]
fn an_old_copy_of_a_cache_is_refused() {
    for state in [State::Dirty, State::Serving, State::Whole] {
        let ours = mark(state, OURS, 8, &host("a"));
        let refused = admitted(Some(&ours), "a", 7, &Leave::default());
        assert!(matches!(refused, Err(Refusal::OldCopy { .. })), "{state:?}");
        for epoch in [8, 9] {
            admitted(Some(&ours), "a", epoch, &Leave::default()).expect("not older");
        }
        let format = Leave {
            format: true,
            ..Leave::default()
        };
        let anew = admitted(Some(&ours), "a", 7, &format).is_ok();
        assert_eq!(anew, state != State::Dirty, "{state:?}");
    }
}

#[test]
fn another_host_is_refused_until_it_takes_over() {
    let leave = Leave {
        take_over: true,
        ..Leave::default()
    };
    for state in [State::Dirty, State::Serving] {
        let theirs = mark(state, OURS, 3, &host("b"));
        let refused = admitted(Some(&theirs), "a", 3, &Leave::default());
        assert!(
            matches!(refused, Err(Refusal::OtherHost { .. })),
            "{state:?}"
        );
        admitted(Some(&theirs), "a", 3, &leave).expect("taken over");
        let mut ended = theirs;
        ended.claimant.pid = 0;
        admitted(Some(&ended), "a", 3, &Leave::default()).expect("nobody serves");
    }
    // Rebooted; and where machines have no ids.
    let mut rebooted = mark(State::Serving, OURS, 3, &host("a"));
    rebooted.claimant.host.boot = "earlier".into();
    admitted(Some(&rebooted), "a", 3, &Leave::default()).expect("the same machine");
    rebooted.claimant.host.machine = String::new();
    admitted(Some(&rebooted), "a", 3, &Leave::default()).expect("the same name");
    rebooted.claimant.host.name = "b".into();
    assert!(admitted(Some(&rebooted), "a", 3, &Leave::default()).is_err());
}

/// A clock that only counts what was waited for, or ends whoever waits as a signal would.
#[derive(Debug, Default)]
struct Waited {
    ms: AtomicU64,
    deadly: bool,
}

impl Clock for Waited {
    fn now(&self) -> Duration {
        Duration::from_millis(self.ms.load(Ordering::Relaxed))
    }
    fn wall_ns(&self) -> i64 {
        1
    }
    fn pass(&self, time: Duration) {
        assert!(!self.deadly, "killed while it waits");
        let ms = u64::try_from(time.as_millis()).expect("short");
        self.ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// What `name` does that finds a base as it is: how long it waits before it has it.
fn waits(base: &Path, name: &str, leave: &Leave, deadly: bool) -> Result<Duration, Refusal> {
    let clock = Arc::new(Waited {
        deadly,
        ..Waited::default()
    });
    let mut claim = Claim::with(base, host(name), PATIENCE, None)?;
    claim.clock = SharedClock::new(Arc::clone(&clock) as Arc<dyn Clock>);
    claim.admit(&|| Ok(None), leave)?;
    claim.hold(State::Serving, None, Path::new("/m"))?;
    Ok(clock.now())
}

#[test]
fn a_take_over_that_was_interrupted_is_waited_for_by_whoever_comes_next() {
    let take_over = Leave {
        take_over: true,
        ..Leave::default()
    };
    let none = Leave::default();
    for (next, leave) in [("b", none), ("b", take_over), ("c", take_over)] {
        let base = tempfile::tempdir().expect("base");
        let place = Place::of(base.path()).expect("place");
        let theirs = mark(State::Serving, 0, 0, &host("a"));
        place.write(&theirs).expect("writes");
        let killed = std::panic::catch_unwind(|| waits(base.path(), "b", &take_over, true));
        assert!(killed.is_err(), "it died waiting");
        // The first host has not looked at the mark since, and serves on.
        let waited = waits(base.path(), next, &leave, false).expect("has it");
        assert!(waited >= PATIENCE, "{next} waited {waited:?}");
        // Then nobody has to wait any more.
        let again = waits(base.path(), next, &none, false).expect("again");
        assert_eq!(again, Duration::ZERO);
    }
}

#[test]
fn a_base_below_one_that_is_half_taken_is_refused() {
    let base = tempfile::tempdir().expect("base");
    let below = base.path().join("below");
    fs::create_dir(&below).expect("below");
    let place = Place::of(base.path()).expect("place");
    let mut half = mark(State::Serving, 0, 0, &Host::this());
    place.write(&half).expect("writes");
    Claim::take(&below).expect("the one who served it is dead");
    half.taking = true;
    place.write(&half).expect("writes");
    let refused = Claim::take(&below).expect_err("another host may serve it");
    assert!(matches!(refused, Refusal::Above { .. }), "{refused}");
}

#[test]
fn a_cache_of_another_base_is_refused_before_anything_is_taken_over() {
    let base = tempfile::tempdir().expect("base");
    let place = Place::of(base.path()).expect("place");
    let theirs = mark(State::Serving, OURS, 3, &host("b"));
    place.write(&theirs).expect("writes");
    let claim = Claim::with(base.path(), host("a"), Duration::ZERO, None).expect("claims");
    let mut stamp = CacheStamp {
        name: "/ssd/tier".into(),
        format_id: 5,
        epoch: 1,
        marked: 0,
        base: claim.identity(),
    };
    stamp.base.id += 1;
    let leave = Leave {
        take_over: true,
        ..Leave::default()
    };
    let refused = claim.admit(&|| Ok(Some(stamp.clone())), &leave);
    assert!(matches!(refused, Err(Refusal::OtherBase { .. })));
    assert_eq!(place.read().expect("reads"), Some(theirs), "it serves on");
}

/// Permissions go by the user of this thread, who owns the base and may not write it any more.
#[test]
fn a_mark_that_cannot_be_changed_is_not_said_to_be() {
    const NOBODY: u32 = 65_534;
    let parent = tempfile::tempdir().expect("directory");
    let base = parent.path().join("base");
    fs::create_dir(&base).expect("base");
    let allow = |path: &Path, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, mode).expect("permissions");
    };
    allow(parent.path(), 0o777);
    // Where this is not root it is somebody who is refused as well.
    let _ = std::os::unix::fs::chown(&base, Some(NOBODY), Some(NOBODY));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: changes what this thread may do to files, nothing else.
            unsafe { libc::setfsuid(NOBODY) };
            let claim = Claim::with(&base, host("a"), Duration::ZERO, None).expect("claims");
            let admitted = claim.admit(&|| Ok(None), &Leave::default());
            admitted.expect("admitted");
            let at = Path::new("/m");
            claim.hold(State::Serving, None, at).expect("holds");
            if parent.path().join(".base.thermocline").exists() {
                println!("skipped: the temporary directory has no extended attributes");
                return;
            }
            let before = claim.place.read().expect("reads");
            allow(&base, 0o555);
            claim
                .switch(State::Dirty, None)
                .expect_err("it is not dirty");
            assert_eq!(claim.place.read().expect("reads"), before);
            claim.end(true).expect_err("it is not whole");
            assert_eq!(claim.place.read().expect("reads"), before);
            assert!(!parent.path().join(".base.thermocline").exists());
            allow(&base, 0o311);
            let read = claim.place.read_fresh();
            assert!(read.is_err(), "it is there, and cannot be read: {read:?}");
            allow(&base, 0o755);
            claim.switch(State::Dirty, None).expect("it can again");
        });
    });
}

#[test]
fn of_two_hosts_that_start_at_a_time_the_later_one_is_refused() {
    let leave = Leave::default();
    for is_probed in [false, true] {
        let base = tempfile::tempdir().expect("base");
        let claim = |name| Claim::with(base.path(), host(name), Duration::ZERO, None);
        let (first, later) = (claim("a").expect("claims"), claim("b").expect("claims"));
        for claim in [&first, &later] {
            claim.admit(&|| Ok(None), &leave).expect("nobody serves");
        }
        first.probe().expect("probes");
        let at = Path::new("/mnt");
        first.hold(State::Dirty, None, at).expect("holds");
        let refused = match is_probed {
            true => later.probe().map(drop),
            false => later.hold(State::Dirty, None, at),
        };
        assert!(matches!(refused, Err(Refusal::Contested { .. })));
        first.holds().expect("it serves on");
    }
}

#[test]
fn pages_that_base_does_not_wait_for_are_refused() {
    let base = tempfile::tempdir().expect("base");
    let place = Place::of(base.path()).expect("place");
    let stamp = CacheStamp {
        name: "/ssd/tier".into(),
        format_id: OURS,
        epoch: 4,
        marked: 0,
        base: BaseIdentity::default(),
    };
    let checked = |mark: Option<Mark>, dirty, leave: Leave| {
        if let Some(mark) = mark {
            place.write(&mark).expect("writes");
        }
        let claim = Claim::with(base.path(), host("a"), Duration::ZERO, None).expect("claims");
        claim.check_dirty(&stamp, dirty, &leave)
    };
    let none = Leave::default();
    assert!(checked(None, 3, none).expect("no mark").is_some());
    for (state, cache) in [(State::Whole, OURS), (State::Serving, 5), (State::Dirty, 5)] {
        let found = Some(mark(state, cache, 4, &host("a")));
        let refused = checked(found.clone(), 3, none);
        assert!(matches!(refused, Err(Refusal::NotAwaited { dirty: 3, .. })));
        assert!(checked(found.clone(), 0, none).is_ok(), "nothing is owed");
        let same_base = Leave {
            same_base: true,
            ..none
        };
        assert!(checked(found, 3, same_base).is_ok());
    }
    let ours = Some(mark(State::Dirty, OURS, 4, &host("a")));
    assert!(checked(ours, 3, none).is_ok());
}

#[test]
fn a_base_that_is_an_older_copy_waits_for_nothing_and_backs_no_clean_page() {
    let base = tempfile::tempdir().expect("base");
    let place = Place::of(base.path()).expect("place");
    let stamp = |marked| CacheStamp {
        name: "/ssd/tier".into(),
        format_id: OURS,
        epoch: 6,
        marked,
        base: BaseIdentity::default(),
    };
    let claim = || Claim::with(base.path(), host("a"), Duration::ZERO, None).expect("claims");
    let none = Leave::default();
    assert!(claim().is_of_newest(&stamp(0)), "it never had a mark");
    assert!(!claim().is_of_newest(&stamp(1)), "it went");
    // The opening that crashed before it marked base has made no batch.
    for (epoch, marked, is_newest) in [(5, 5, true), (5, 0, true), (6, 5, true), (4, 5, false)] {
        let found = mark(State::Dirty, OURS, epoch, &host("a"));
        place.write(&found).expect("writes");
        let stamp = stamp(marked);
        assert_eq!(claim().is_of_newest(&stamp), is_newest, "{epoch} {marked}");
        let checked = claim().check_dirty(&stamp, 3, &none);
        assert_eq!(checked.is_ok(), is_newest, "{epoch} {marked}");
        let same_base = Leave {
            same_base: true,
            ..none
        };
        let checked = claim().check_dirty(&stamp, 3, &same_base);
        checked.expect("somebody says that it is the one");
    }
    let other = mark(State::Serving, 5, 9, &host("a"));
    place.write(&other).expect("writes");
    assert!(!claim().is_of_newest(&stamp(0)), "another cache served");
}

/// Neither of a new cache over a base that others served, nor of one whose start was cut short over
/// a base without a mark, is it said that base was served without it. Of an older copy, it is.
#[test]
fn who_was_not_served_without_is_not_said_to_be() {
    let shared = Shared::new();
    let claim =
        || Claim::with(shared.base.path(), host("a"), Duration::ZERO, None).expect("claims");
    let checked = |claim: &Claim| {
        let mut store = shared.store(BaseIdentity::default());
        let notes = claim.check_store(&mut store, &Leave::default());
        (notes.expect("accepted").len(), store)
    };
    let place = Place::of(shared.base.path()).expect("place");
    place
        .write(&mark(State::Whole, 5, 9, &host("a")))
        .expect("writes");
    let (notes, store) = checked(&claim());
    assert_eq!(notes, 0, "it is new");
    store.mark_open().expect("opens");
    store.close(Vec::new()).expect("closes");
    drop(store);
    let (notes, store) = checked(&claim());
    assert_eq!(
        (notes, store.recovered().is_some()),
        (1, true),
        "another one served"
    );
    drop(store);

    let shared = Shared::new();
    let claim =
        || Claim::with(shared.base.path(), host("a"), Duration::ZERO, None).expect("claims");
    let store = shared.store(BaseIdentity::default());
    store.mark_open().expect("opens");
    store.close(Vec::new()).expect("closes");
    let newest = store.stamp();
    drop(store);
    for _ in 0..2 {
        let claim = claim();
        claim
            .admit(&|| Ok(None), &Leave::default())
            .expect("admitted");
        let mut store = shared.store(BaseIdentity::default());
        let notes = claim.check_store(&mut store, &Leave::default());
        assert_eq!(notes.expect("accepted"), Vec::<String>::new());
        // It marks base, and the start ends there.
        claim.probe().expect("probes");
    }
    let older = CacheStamp {
        epoch: newest.epoch - 1,
        ..newest.clone()
    };
    assert!(claim().is_of_newest(&newest) && !claim().is_of_newest(&older));
}

#[test]
fn a_base_keeps_its_id_and_a_cache_of_another_one_is_refused() {
    let base = tempfile::tempdir().expect("base");
    let claim = || Claim::with(base.path(), host("a"), Duration::ZERO, None).expect("claims");
    let first = claim();
    first
        .admit(&|| Ok(None), &Leave::default())
        .expect("admitted");
    let id = first.identity().id;
    assert_ne!(id, 0);
    first
        .hold(State::Serving, None, Path::new("/m"))
        .expect("holds");
    first.end(true).expect("ends");
    assert_eq!(first.state(), Some(State::Whole));
    let second = claim();
    assert_eq!(second.identity().id, id);
    let mut stamp = CacheStamp {
        name: "/ssd/tier".into(),
        format_id: OURS,
        epoch: 1,
        marked: 0,
        base: second.identity(),
    };
    // Mounted again, with another device number.
    stamp.base.file_system += 1;
    let admit = |stamp: &CacheStamp| {
        let stamp = stamp.clone();
        second.admit(&move || Ok(Some(stamp.clone())), &Leave::default())
    };
    admit(&stamp).expect("known by its id");
    stamp.base.id += 1;
    let refused = admit(&stamp).expect_err("another base").to_string();
    assert!(refused.contains("--same-base"), "{refused}");
}

#[test]
fn a_lock_keeps_a_second_claim_out_and_one_below_and_goes_with_the_first() {
    let base = tempfile::tempdir().expect("base");
    let below = base.path().join("below");
    fs::create_dir(&below).expect("below");
    let first = Claim::take(base.path()).expect("first");
    first
        .admit(&|| Ok(None), &Leave::default())
        .expect("admitted");
    first
        .hold(State::Serving, None, Path::new("/m"))
        .expect("holds");
    let refused = Claim::take(base.path()).expect_err("locked").to_string();
    let us = format!("process {}", std::process::id());
    assert!(refused.contains(&us), "{refused}");
    let refused = Claim::take(&below).expect_err("inside");
    assert!(matches!(refused, Refusal::Above { .. }), "{refused}");
    drop(first);
    // The mark still says that it is served, but nobody has the lock.
    Claim::take(&below).expect("the other one is dead");
    Claim::take(base.path()).expect("again");
}

#[test]
fn a_mark_that_is_not_understood_is_refused_with_the_way_out() {
    let base = tempfile::tempdir().expect("base");
    let text = b"thermocline mark 9; state=whole";
    let path = format!("{}\0", base.path().display());
    let name = format!("{ATTRIBUTE}\0");
    // SAFETY: both strings are terminated, the value is as long as said.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr().cast(),
            name.as_ptr().cast(),
            text.as_ptr().cast(),
            text.len(),
            0,
        )
    };
    if set != 0 {
        println!("skipped: the temporary directory has no extended attributes");
        return;
    }
    let refused = Claim::take(base.path()).expect_err("refused").to_string();
    for part in ["mark 9", "setfattr -x user.thermocline"] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn the_clock_of_a_local_base_is_ours() {
    let base = tempfile::tempdir().expect("base");
    let claim = Claim::with(base.path(), host("a"), Duration::ZERO, None).expect("claims");
    claim
        .admit(&|| Ok(None), &Leave::default())
        .expect("admitted");
    let mut clocks = claim.probe().expect("probes");
    // What is already there must not be taken for a stamp of now.
    std::thread::sleep(Duration::from_millis(1_100));
    clocks.offset_ns = clocks
        .offset_ns
        .min(claim.probe().expect("probes").offset_ns);
    assert!(clocks.offset_ns.abs() < 1_000_000_000, "{clocks:?}");
    assert_eq!(claim.state(), Some(State::Whole), "probing owes nothing");
}

/// A base with one file, as two hosts see it, and the cache that both can reach.
struct Shared {
    base: TempDir,
    flash: Arc<MemoryDevice>,
}

impl Shared {
    fn new() -> Self {
        let base = tempfile::tempdir().expect("base");
        fs::write(base.path().join("t"), vec![0; 16 * PAGE as usize]).expect("file");
        Self {
            base,
            flash: Arc::default(),
        }
    }

    fn store(&self, base: BaseIdentity) -> Store {
        let options = StoreOptions {
            page_size: PAGE,
            size: Some(Store::length_for(64, PAGE)),
            base,
            format: false,
            deadline: None,
            ..StoreOptions::default()
        };
        let flash = Arc::clone(&self.flash);
        Store::with_device(flash, "shared", &options).expect("opens")
    }

    /// Serves as host `name`; the engine and its open file.
    fn serve(
        &self,
        name: &str,
        back: bool,
        leave: &Leave,
    ) -> (Arc<Claim>, Arc<Engine>, Arc<Object>) {
        let claim = Claim::with(self.base.path(), host(name), PATIENCE, None).expect("claims");
        let claim = Arc::new(claim);
        let stamp = || {
            let new = self.flash.len().expect("length") == 0;
            let identity = claim.identity();
            Ok((!new).then(|| self.store(identity).stamp()))
        };
        claim.admit(&stamp, leave).expect("admitted");
        let config = EngineConfig {
            page_size: PAGE,
            policy: "lru".into(),
            write_back: back,
            ..EngineConfig::default()
        };
        let engine = Engine::start(config, Some(self.store(claim.identity()))).expect("starts");
        let state = if back { State::Dirty } else { State::Serving };
        let stamp = engine.cache_stamp();
        claim
            .hold(state, stamp.as_ref(), Path::new("/m"))
            .expect("holds");
        engine.set_fence(Arc::clone(&claim) as Arc<dyn Fence>);
        let adopted = engine.adopt(&|_, _, _| Ok(Some(self.spec(&claim))), false);
        adopted.expect("adopted");
        let file = engine.open_object(self.spec(&claim)).expect("opens");
        (claim, engine, file)
    }

    fn spec(&self, claim: &Arc<Claim>) -> ObjectSpec {
        let path = self.base.path().join("t");
        let file = FileDevice::open(&path, FileOptions::default()).expect("opens");
        let stamp = move || {
            let found = fs::metadata(&path).ok()?;
            let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
            Some(Stamp {
                length: found.len(),
                mtime_ns: ns(found.mtime(), found.mtime_nsec()),
                ctime_ns: ns(found.ctime(), found.ctime_nsec()),
            })
        };
        ObjectSpec {
            name: "t".into(),
            group: "t".into(),
            identity: Identity {
                device: 1,
                inode: 7,
                generation: 1,
            },
            base: Arc::new(Fenced::new(file, Arc::clone(claim) as Arc<dyn Fence>)),
            kind: FileKind::Relation,
            dialect: Dialect::None,
            cached: true,
            stamp: Arc::new(stamp),
            touch: untouched(),
        }
    }

    /// An engine in write-back behind `fence`, without threads.
    fn inline(&self, fence: Arc<dyn Fence>, clock: SharedClock) -> Arc<Engine> {
        let config = EngineConfig {
            page_size: PAGE,
            policy: "lru".into(),
            write_back: true,
            inline: true,
            clock,
            ..EngineConfig::default()
        };
        let store = self.store(BaseIdentity::default());
        let engine = Engine::start(config, Some(store)).expect("starts");
        engine.set_fence(fence);
        engine
    }

    fn on_flash(&self) -> Vec<u8> {
        image(&self.flash)
    }

    fn on_base(&self) -> Vec<u8> {
        fs::read(self.base.path().join("t")).expect("reads")
    }
}

fn image(flash: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; flash.len().expect("length") as usize];
    let read = flash.read_at(&mut bytes, 0).expect("reads");
    assert_eq!(read, bytes.len());
    bytes
}

fn first_page(object: &Object) -> Request<'_> {
    Request {
        object,
        offset: 0,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

/// A write of the first page as a frontend makes it, and its sync.
fn put(engine: &Engine, object: &Arc<Object>, fill: u64) -> io::Result<()> {
    engine.check_fence()?;
    let page: Vec<u8> = fill.to_le_bytes().repeat(PAGE as usize / 8);
    engine.write(&first_page(object), &page)?;
    engine.sync(object, false)
}

fn taken_over_while_writing(back: bool) {
    let shared = Shared::new();
    let (lost, old, file) = shared.serve("a", back, &Leave::default());
    let acknowledged = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let leave = Leave {
        take_over: true,
        ..Leave::default()
    };
    let taken = std::thread::scope(|scope| {
        scope.spawn(|| {
            for fill in 1.. {
                if stop.load(Ordering::Relaxed) || put(&old, &file, fill).is_err() {
                    break;
                }
                acknowledged.store(fill, Ordering::Relaxed);
            }
        });
        while acknowledged.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let taken = shared.serve("b", back, &leave);
        stop.store(true, Ordering::Relaxed);
        taken
    });
    let reason = lost.reason().expect("it was seen");
    assert!(reason.contains("host b"), "{reason}");
    let (held, new, object) = taken;
    held.holds().expect("the new one holds");
    let mut page = vec![0; PAGE as usize];
    new.read(&first_page(&object), &mut page).expect("reads");
    let found = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
    let least = acknowledged.load(Ordering::Relaxed);
    assert!(found >= least, "acknowledged {least}, found {found}");
    put(&new, &object, 1 << 40).expect("the new one writes");
    new.flush(|_| true).expect("writes back");
    let before = shared.on_base();
    for refused in [
        put(&old, &file, 5),
        old.write(&first_page(&file), &[9; 100])
            .and_then(|()| old.sync(&file, false)),
    ] {
        assert!(refused.is_err(), "the old one acknowledges nothing");
    }
    // Whatever it says, it must not touch base or call anything clean.
    let _ = old.flush(|_| true);
    lost.end(true).expect_err("not its mark any more");
    assert!(before == shared.on_base(), "the old one wrote to base");
    assert_eq!(held.place.read().expect("reads"), held.held().mark);
}

#[test]
fn a_mount_that_is_taken_over_loses_nothing_it_acknowledged_and_stops_writing() {
    taken_over_while_writing(false);
}

#[test]
fn the_same_in_write_back_with_a_cache_that_both_hosts_reach() {
    taken_over_while_writing(true);
}

/// A fence that falls, and a device during whose every request it does.
struct Falling(AtomicBool);

impl Fence for Falling {
    fn holds(&self) -> io::Result<()> {
        self.passes()
    }
    fn passes(&self) -> io::Result<()> {
        match self.passes_now() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        }
    }
    fn passes_now(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
    fn reason(&self) -> Option<String> {
        None
    }
}

struct During(MemoryDevice, Arc<Falling>);

impl During {
    fn fall(&self) {
        self.1.0.store(false, Ordering::Release);
    }
}

impl Device for During {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fall();
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.fall();
        self.0.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.fall();
        self.0.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fall();
        self.0.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fall();
        self.0.punch(offset, len)
    }
    fn label(&self) -> String {
        "slow".into()
    }
}

/// Nobody is told that it went well: somebody else may have had base meanwhile.
#[test]
fn what_ends_after_the_fence_fell_has_failed() {
    type Io = fn(&dyn Device) -> io::Result<()>;
    let all: [Io; 5] = [
        |device| device.read_at(&mut [0; 8], 0).map(drop),
        |device| device.write_at(&[1; 8], 0),
        |device| device.sync(false),
        |device| device.set_len(4),
        |device| device.punch(0, 4),
    ];
    for io in all {
        let fence = Arc::new(Falling(AtomicBool::new(true)));
        let device = During(MemoryDevice::with_len(8), Arc::clone(&fence));
        let fenced = Fenced::new(device, fence as Arc<dyn Fence>);
        let error = io(&fenced).expect_err("the fence fell");
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    }
}

/// A fence that says what it is told to: how often it cannot tell, and whether base was lost then.
#[derive(Default)]
struct Told {
    unsure: AtomicU64,
    lost: AtomicBool,
}

impl Fence for Told {
    fn holds(&self) -> io::Result<()> {
        if self.unsure.load(Ordering::Acquire) > 0 {
            self.unsure.fetch_sub(1, Ordering::AcqRel);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.passes()
    }
    fn passes(&self) -> io::Result<()> {
        match self.passes_now() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        }
    }
    fn passes_now(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
    }
    fn reason(&self) -> Option<String> {
        (!self.passes_now()).then(|| "taken over".into())
    }
}

/// An engine in write-back behind such a fence, without threads, and its open file.
fn behind_a_fence(shared: &Shared) -> (Arc<Told>, Arc<Engine>, Arc<Object>) {
    let claim = Claim::with(shared.base.path(), host("a"), Duration::ZERO, None);
    let claim = Arc::new(claim.expect("claims"));
    let fence = Arc::new(Told::default());
    let clock = SharedClock::default();
    let engine = shared.inline(Arc::clone(&fence) as Arc<dyn Fence>, clock);
    let file = engine.open_object(shared.spec(&claim)).expect("opens");
    (fence, engine, file)
}

#[test]
fn flash_is_not_written_in_the_background_once_base_was_taken_over() {
    let shared = Shared::new();
    let (fence, engine, file) = behind_a_fence(&shared);
    put(&engine, &file, 1).expect("syncs");
    let page = vec![2; PAGE as usize];
    engine.write(&first_page(&file), &page).expect("writes");
    let before = shared.on_flash();
    fence.lost.store(true, Ordering::Release);
    for _ in 0..200 {
        engine.step();
    }
    assert!(
        before == shared.on_flash(),
        "the cache may be the other's by now"
    );
}

/// A fence that falls when it is asked for the so many-th time, and what flash had then.
struct Falls {
    left: AtomicI64,
    flash: Arc<MemoryDevice>,
    image: Mutex<Option<Vec<u8>>>,
}

impl Falls {
    fn is_lost(&self) -> bool {
        self.image.lock().is_some()
    }
}

impl Fence for Falls {
    fn holds(&self) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 0 {
            *self.image.lock() = Some(image(&self.flash));
        }
        self.passes()
    }
    fn passes(&self) -> io::Result<()> {
        match self.is_lost() {
            false => Ok(()),
            true => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        }
    }
    fn passes_now(&self) -> bool {
        !self.is_lost()
    }
    fn reason(&self) -> Option<String> {
        self.is_lost().then(|| "taken over".into())
    }
}

/// Does `change` after `before`, with a fence that falls at the first, second, ... look of it:
/// flash stays as it was then. In how many of these it fell.
fn falls_during(before: impl Fn(&Engine, &Arc<Object>), change: impl Fn(&Engine)) -> i64 {
    for number in 0.. {
        let shared = Shared::new();
        let clock = SharedClock::new(Arc::<Waited>::default());
        let fence = Arc::new(Falls {
            left: AtomicI64::new(i64::MAX),
            flash: Arc::clone(&shared.flash),
            image: Mutex::default(),
        });
        let engine = shared.inline(Arc::clone(&fence) as Arc<dyn Fence>, clock);
        let claim = Claim::with(shared.base.path(), host("a"), Duration::ZERO, None);
        let file = engine.open_object(shared.spec(&Arc::new(claim.expect("claims"))));
        let file = file.expect("opens");
        put(&engine, &file, 1).expect("syncs");
        before(&engine, &file);
        fence.left.store(number, Ordering::Release);
        change(&engine);
        let Some(then) = fence.image.lock().take() else {
            return number;
        };
        assert!(then == shared.on_flash(), "written after look {number}");
    }
    unreachable!("it is asked so often at most")
}

#[test]
fn no_command_writes_a_cache_once_base_was_taken_over() {
    let nothing = |_: &Engine, _: &Arc<Object>| ();
    let resize = |blocks| {
        move |engine: &Engine| {
            let _ = engine.resize(Store::length_for(blocks, PAGE), |_| true);
        }
    };
    assert!(falls_during(nothing, resize(200)) >= 2);
    assert!(falls_during(nothing, resize(32)) >= 2);
    let off = |engine: &Engine, _: &Arc<Object>| engine.tier_off("by command").expect("off");
    let on = |engine: &Engine| {
        let _ = engine.tier_on();
    };
    assert!(falls_during(off, on) >= 1);
    let failed = |engine: &Engine, file: &Arc<Object>| {
        engine.store().expect("a cache").poison("a sync failed");
        let _ = put(engine, file, 2);
        assert!(engine.is_off(), "it failed");
        engine.flush(|_| true).expect("base has all");
    };
    assert!(falls_during(failed, on) >= 2, "made anew, and opened");
    let replace = |engine: &Engine| {
        let other = Shared::new().store(BaseIdentity::default());
        let _ = engine.replace(other, |_| true);
    };
    assert!(falls_during(nothing, replace) >= 2);
}

#[test]
fn a_base_that_cannot_be_asked_for_a_moment_is_no_fault_of_flash() {
    let shared = Shared::new();
    let (fence, engine, file) = behind_a_fence(&shared);
    put(&engine, &file, 1).expect("syncs");
    let page = vec![2; PAGE as usize];
    for unsure in [1, 3] {
        engine.write(&first_page(&file), &page).expect("writes");
        fence.unsure.store(unsure, Ordering::Release);
        engine.sync(&file, false).expect("syncs");
        assert_eq!(fence.unsure.load(Ordering::Acquire), 0, "it was asked");
    }
    assert_eq!(engine.tier_state(), Ok(()));
}
