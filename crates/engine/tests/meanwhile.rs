//! A commit under way: what is staged meanwhile is written by those who wait for the next one, and
//! so is the next batch, which counts after a sync of its own. And a cut under way: a write of what
//! stays of a page is not lost with the rest.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use thermocline::classify::Dialect;
use thermocline::device::{
    Device, FaultScript, Faulty, FileDevice, FileOptions, MemoryDevice, Transfer, Witness,
};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions, Told,
};
use thermocline_core::{FileKind, HintSet};

const PAGE: usize = 4096;
const MANY: u64 = 40;
/// Longer than any wait that ends.
const EVER: Duration = Duration::from_secs(20);
/// Long enough for another thread to go wrong in.
const A_WHILE: Duration = Duration::from_millis(300);

/// A device whose next sync, once it is armed, ends when pages are written while it lasts; and
/// whose syncs wait while they are held.
struct Gate {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: bool,
    syncing: bool,
    /// Syncs that may pass; all where nothing is said.
    passes: Option<usize>,
    /// Syncs begun while they are held.
    begun: usize,
    /// The next sync fails.
    fails: bool,
    writes: usize,
    /// Page writes that came while the sync lasted.
    meanwhile: Option<usize>,
}

impl Gate {
    fn count(&self, writes: usize) {
        self.state.lock().unwrap().writes += writes;
        self.changed.notify_all();
    }

    /// Waits until that is so.
    fn until(&self, so: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, EVER, |s| !so(s));
        assert!(!waited.unwrap().1.timed_out(), "it never was so");
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Device for Gate {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.count(1);
        self.device.write_at(buf, offset)
    }
    fn transfer(&self, batch: &mut [Transfer<'_>]) {
        self.count(batch.len());
        self.device.transfer(batch);
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if std::mem::take(&mut state.armed) {
            (state.syncing, state.writes) = (true, 0);
            self.changed.notify_all();
            let none = |state: &mut State| state.writes < 16;
            let waited = self.changed.wait_timeout_while(state, EVER, none);
            state = waited.unwrap().0;
            state.meanwhile = Some(state.writes);
        }
        if state.passes.is_some() {
            (state.begun, state.writes) = (state.begun + 1, 0);
            let number = state.begun;
            self.changed.notify_all();
            let held = |state: &mut State| state.passes.is_some_and(|passes| passes < number);
            let waited = self.changed.wait_timeout_while(state, EVER, held);
            state = waited.unwrap().0;
        }
        if std::mem::take(&mut state.fails) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        drop(state);
        self.device.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.punch(offset, len)
    }
    fn label(&self) -> String {
        self.device.label()
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A base that does something more, once, when it was read, when it was cut or punched, when it
/// has lost a write and before it says so to a sync.
struct Base {
    device: Arc<dyn Device>,
    when_read: Mutex<Option<Hook>>,
    when_cut: Mutex<Option<Hook>>,
    when_lost: Mutex<Option<Hook>>,
    when_failed: Mutex<Option<Hook>>,
    has_witness: bool,
    /// Punches fail, and cuts say that they have failed.
    refuses: AtomicBool,
    /// The next write is acknowledged, and lost.
    loses: AtomicBool,
    /// A write was lost, and the users of the device were not told; nor was a witness.
    untold: [AtomicBool; 2],
    /// The last sync was of data alone.
    data_only: AtomicBool,
}

impl Base {
    fn new(device: Arc<dyn Device>, has_witness: bool) -> Self {
        Self {
            device,
            has_witness,
            when_read: Mutex::default(),
            when_cut: Mutex::default(),
            when_lost: Mutex::default(),
            when_failed: Mutex::default(),
            refuses: AtomicBool::new(false),
            loses: AtomicBool::new(false),
            untold: [const { AtomicBool::new(false) }; 2],
            data_only: AtomicBool::new(false),
        }
    }

    /// Tells one of the two of a write that was lost: once.
    fn tell(&self, who: usize) -> io::Result<()> {
        if self.untold[who].swap(false, Ordering::AcqRel) {
            call(&self.when_failed);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }
}

fn call(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().unwrap().take();
    if let Some(hook) = hook {
        hook();
    }
}

impl Device for Base {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.device.read_at(buf, offset);
        call(&self.when_read);
        read
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.loses.swap(false, Ordering::AcqRel) {
            let untold = |who: &AtomicBool| who.store(true, Ordering::Release);
            self.untold.iter().for_each(untold);
            call(&self.when_lost);
            return Ok(());
        }
        self.device.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.tell(0)?;
        self.data_only.store(data_only, Ordering::Release);
        self.device.sync(data_only)
    }
    fn witness(&self) -> Witness {
        match self.has_witness {
            true => self.device.witness(),
            false => Witness::NONE,
        }
    }
    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        self.tell(witness.is_there().into())?;
        self.device.sync_before(witness, data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)?;
        call(&self.when_cut);
        match self.refuses.load(Ordering::Acquire) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.refuses.load(Ordering::Acquire) {
            call(&self.when_cut);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.device.punch(offset, len)?;
        call(&self.when_cut);
        Ok(())
    }
    fn label(&self) -> String {
        self.device.label()
    }
}

fn write(engine: &Engine, object: &Arc<Object>, page: u64, version: u8) {
    let request = Request {
        object,
        offset: page * PAGE as u64,
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    engine.write(&request, &[version; PAGE]).unwrap();
}

struct Rig {
    engine: Arc<Engine>,
    object: Arc<Object>,
    base: Arc<Base>,
    gate: Arc<Gate>,
    _dir: tempfile::TempDir,
}

/// An engine in write-back, and a file; its flash is what `wrap` makes of the cache.
fn engine_over(
    dir: &Path,
    wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
) -> (Arc<Engine>, Arc<Object>, Arc<Base>) {
    engine_between(dir, wrap, Base::new(Arc::new(MemoryDevice::new()), true))
}

fn engine_between(
    dir: &Path,
    wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    base: Base,
) -> (Arc<Engine>, Arc<Object>, Arc<Base>) {
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(Store::length_for(512, PAGE as u32)),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        ..StoreOptions::default()
    };
    let store = Store::open(&dir.join("cache"), &options).unwrap();
    let store = store.wrapped(wrap);
    let config = EngineConfig {
        page_size: PAGE as u32,
        policy: "lc".into(),
        write_back: true,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(store)).unwrap();
    let base = Arc::new(base);
    base.set_len(MANY * PAGE as u64).unwrap();
    let object = engine.open_object(spec(7, base.clone())).unwrap();
    (engine, object, base)
}

fn spec(inode: u64, base: Arc<dyn Device>) -> ObjectSpec {
    ObjectSpec {
        name: "file".into(),
        group: "file".into(),
        identity: Identity {
            device: 1,
            inode,
            generation: 1,
        },
        base,
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    }
}

/// All pages are on flash, durably.
fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let mut gate = None;
    let (engine, object, base) = engine_over(dir.path(), |device| {
        let made = Arc::new(Gate {
            device,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        gate = Some(Arc::clone(&made));
        made
    });
    for page in 0..MANY {
        write(&engine, &object, page, 1);
    }
    engine.sync(&object, true).unwrap();
    Rig {
        engine,
        object,
        base,
        gate: gate.unwrap(),
        _dir: dir,
    }
}

/// Writes a page and syncs it.
fn write_and_sync(rig: &Rig, page: u64, done: &AtomicBool) {
    write(&rig.engine, &rig.object, page, 2);
    rig.engine.sync(&rig.object, true).unwrap();
    done.store(true, Ordering::Release);
}

#[test]
fn the_next_batch_is_written_while_one_is_synced_and_counts_after_its_own_sync() {
    let rig = rig();
    let gate = &rig.gate;
    gate.change(|state| state.passes = Some(0));
    let done = [const { AtomicBool::new(false) }; 2];
    let is_done = |at: usize| done[at].load(Ordering::Acquire);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| write_and_sync(&rig, 0, &done[0]));
        gate.until(|state| state.begun == 1);
        scope.spawn(|| write_and_sync(&rig, 1, &done[1]));
        // The page and the journal's block.
        gate.until(|state| state.writes >= 2);
        assert!(!is_done(0) && !is_done(1));
        gate.change(|state| state.passes = Some(1));
        gate.until(|state| state.begun == 2);
        first.join().unwrap();
        assert!(is_done(0) && !is_done(1), "it has a sync of its own");
        gate.change(|state| state.passes = None);
    });
    assert!(is_done(1));
    rig.engine.stop().unwrap();
}

/// A sync that fails is everybody's who needs it, and the tier's last: what was to be durable is so
/// on base before anybody is told that it is.
#[test]
fn a_sync_that_fails_is_told_to_the_batch_that_was_written_meanwhile() {
    let rig = rig();
    let gate = &rig.gate;
    gate.change(|state| (state.passes, state.fails) = (Some(0), true));
    let done = [const { AtomicBool::new(false) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| write_and_sync(&rig, 0, &done[0]));
        gate.until(|state| state.begun == 1);
        scope.spawn(|| write_and_sync(&rig, 1, &done[1]));
        gate.until(|state| state.writes >= 2);
        gate.change(|state| state.passes = Some(MANY as usize));
    });
    assert!(rig.engine.tier_state().is_err(), "the tier is off");
    assert_eq!(
        gate.state.lock().unwrap().begun,
        1,
        "no later sync is believed"
    );
    for page in 0..2 {
        let mut bytes = vec![0; PAGE];
        rig.base.read_at(&mut bytes, page * PAGE as u64).unwrap();
        assert_eq!(bytes, [2; PAGE], "page {page} on base");
    }
}

#[test]
fn pages_are_written_while_a_commit_is_under_way() {
    let rig = rig();
    let (engine, object, gate) = (&rig.engine, &rig.object, &rig.gate);
    gate.state.lock().unwrap().armed = true;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write(engine, object, 0, 2);
            engine.sync(object, true).unwrap();
        });
        let state = gate.state.lock().unwrap();
        let waits = |state: &mut State| !state.syncing;
        drop(gate.changed.wait_timeout_while(state, EVER, waits).unwrap());
        for page in 1..MANY {
            write(engine, object, page, 2);
        }
        engine.sync(object, true).unwrap();
    });
    let meanwhile = gate.state.lock().unwrap().meanwhile;
    assert!(
        meanwhile.is_some_and(|writes| writes >= 16),
        "{meanwhile:?}"
    );
    let mut bytes = vec![0; PAGE];
    for page in 0..MANY {
        let request = Request {
            object,
            offset: page * PAGE as u64,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        engine.read(&request, &mut bytes).unwrap();
        assert_eq!(bytes, [2; PAGE], "page {page}");
    }
    assert_eq!(engine.stats().tier.unwrap().staged, 0, "all was settled");
    engine.stop().unwrap();
}

/// Writes a part of page 3 while `cut` changes base; what the file is then. Either the write has
/// begun before the cut, or the cut before the write: the later one waits, or is done in the midst
/// of the other.
fn written_while(cut: impl Fn(&Engine, &Object) + Sync, write_first: bool) -> Vec<u8> {
    let rig = rig();
    let (engine, object) = (&rig.engine, &rig.object);
    engine.flush(|_| true).unwrap();
    let at = |offset: usize| Request {
        object,
        offset: offset as u64,
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    let (cutting, base_is_cut) = mpsc::channel();
    let (reading, write_has_begun) = mpsc::channel();
    let (written, write_is_done) = mpsc::channel();
    *rig.base.when_cut.lock().unwrap() = Some(Box::new(move || {
        let _ = cutting.send(());
        let _ = write_is_done.recv_timeout(A_WHILE);
    }));
    std::thread::scope(|scope| {
        let write = || {
            let done = engine.write(&at(3 * PAGE + 100), &[2; 100]);
            let _ = written.send(());
            done.unwrap();
        };
        match write_first {
            true => {
                *rig.base.when_read.lock().unwrap() = Some(Box::new(move || {
                    reading.send(()).unwrap();
                    let _ = base_is_cut.recv_timeout(A_WHILE);
                }));
                scope.spawn(write);
                write_has_begun.recv_timeout(EVER).expect("base is read");
                cut(engine, object);
            }
            false => {
                scope.spawn(|| cut(engine, object));
                base_is_cut.recv_timeout(EVER).expect("base is cut");
                write();
            }
        }
    });
    let mut bytes = vec![9; 5 * PAGE];
    let length = engine.read(&at(0), &mut bytes).unwrap();
    bytes.truncate(length);
    engine.stop().unwrap();
    bytes
}

#[test]
fn what_stays_of_a_page_that_is_punched_is_written_meanwhile() {
    let behind = (3 * PAGE + 1000)..(5 * PAGE);
    let before = (3 * PAGE - 10)..(3 * PAGE + 50);
    for (punched, write_first) in [(&behind, true), (&behind, false), (&before, false)] {
        let (offset, length) = (punched.start as u64, punched.len() as u64);
        let punch = |engine: &Engine, object: &Object| {
            engine.punch(object, offset, length).unwrap();
        };
        let mut expected = vec![1; 5 * PAGE];
        expected[punched.clone()].fill(0);
        expected[3 * PAGE + 100..3 * PAGE + 200].fill(2);
        let found = written_while(punch, write_first);
        assert!(found == expected, "punched {punched:?}, {write_first}");
    }
}

#[test]
fn what_stays_of_a_page_that_is_cut_is_written_meanwhile() {
    let end = 3 * PAGE + 1000;
    let mut expected = vec![1; end];
    expected[3 * PAGE + 100..3 * PAGE + 200].fill(2);
    for write_first in [true, false] {
        let cut = |engine: &Engine, object: &Object| engine.truncate(object, end as u64).unwrap();
        assert!(written_while(cut, write_first) == expected, "{write_first}");
    }
}

#[test]
fn a_flush_goes_on_when_another_one_ends() {
    let rig = rig();
    let (began, has_begun) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel();
    let engine = Arc::clone(&rig.engine);
    std::thread::spawn(move || {
        let mut first = true;
        let flushed = engine.flush(|_| {
            if std::mem::take(&mut first) {
                began.send(()).unwrap();
                let _ = has_ended.recv_timeout(EVER);
            }
            true
        });
        done.send(flushed).unwrap();
    });
    has_begun.recv_timeout(EVER).expect("the other one begins");
    rig.engine.flush(|_| false).unwrap();
    ended.send(()).unwrap();
    let flushed = is_done.recv_timeout(EVER).expect("it ends");
    flushed.unwrap();
    assert_eq!(rig.engine.dirty_pages(), 0);
}

/// A write of base between its cut and the moment when the object is as short would leave base
/// longer than the object: as it grew, old bytes would come up.
#[test]
fn base_is_as_long_as_the_object_when_it_was_cut_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, object, base) = engine_over(dir.path(), |device| device);
    // So that flash has nothing of the file, and no note of the cut makes the write wait.
    engine.set_write_back(false);
    let (sender, writer) = mpsc::channel();
    let (other, same) = (Arc::clone(&engine), Arc::clone(&object));
    *base.when_cut.lock().unwrap() = Some(Box::new(move || {
        let (written, is_written) = mpsc::channel();
        let write = std::thread::spawn(move || {
            write(&other, &same, 10, 2);
            let _ = written.send(());
        });
        let _ = is_written.recv_timeout(A_WHILE);
        sender.send(write).unwrap();
    }));
    engine.truncate(&object, 3 * PAGE as u64).unwrap();
    let writer = writer.recv_timeout(EVER).expect("it was cut");
    writer.join().unwrap();
    let request = Request {
        object: &object,
        offset: 0,
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    let mut bytes = vec![0; MANY as usize * PAGE];
    let length = engine.read(&request, &mut bytes).unwrap() as u64;
    assert_eq!(base.len().unwrap(), length);
    engine.stop().unwrap();
}

/// Pages that flash did not give once are asked for again by the next flush.
#[test]
fn a_flush_asks_again_for_what_could_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let script = FaultScript::new();
    let (engine, object, _) = engine_over(dir.path(), |device| {
        Arc::new(Faulty::new(device, Arc::clone(&script), None))
    });
    write(&engine, &object, 3, 2);
    engine.sync(&object, true).unwrap();
    script.load("read times 8 fail EIO").unwrap();
    assert!(engine.flush(|_| true).is_err(), "it cannot be read");
    script.clear();
    engine.flush(|_| true).unwrap();
    assert_eq!(engine.dirty_pages(), 0);
    engine.stop().unwrap();
}

/// The system tells of a lost write once. Where a user's sync is told, and those who wrote the
/// pages sync before the user's has ended, base does not have the pages.
fn a_loss_that_a_users_sync_is_told_of(base: Base) {
    let dir = tempfile::tempdir().unwrap();
    let (engine, object, base) = engine_between(dir.path(), |device| device, base);
    let has_witness = base.has_witness;
    assert_eq!(base.witness().is_there(), has_witness);
    for page in 0..MANY {
        write(&engine, &object, page, 1);
    }
    engine.sync(&object, true).unwrap();
    let (written, is_written) = mpsc::channel();
    let (told, is_told) = mpsc::channel();
    *base.when_failed.lock().unwrap() = Some(Box::new(move || {
        told.send(()).unwrap();
        std::thread::sleep(A_WHILE);
    }));
    *base.when_lost.lock().unwrap() = Some(Box::new(move || {
        written.send(()).unwrap();
        is_told.recv_timeout(EVER).expect("the user's sync fails");
    }));
    base.loses.store(true, Ordering::Release);
    let (same_engine, same) = (&engine, &object);
    std::thread::scope(|scope| {
        let user = scope.spawn(move || {
            is_written.recv_timeout(EVER).expect("base is written");
            same_engine.sync(same, false)
        });
        let mut batches = 0..1;
        let flushed = engine.flush(|_| batches.next().is_some());
        assert!(flushed.is_ok() || has_witness, "{flushed:?}");
        user.join().unwrap().expect_err("its bytes may be lost");
    });
    let mut read = [0; PAGE];
    for page in 0..MANY {
        let request = Request {
            object: &object,
            offset: page * PAGE as u64,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        engine.read(&request, &mut read).unwrap();
        assert!(read == [1; PAGE], "page {page} is what it was");
    }
    engine.flush(|_| true).unwrap();
    for page in 0..MANY {
        base.read_at(&mut read, page * PAGE as u64).unwrap();
        assert!(read == [1; PAGE], "page {page} of base");
    }
    engine.stop().unwrap();
}

/// A base whose device has witnesses.
fn witnessed(dir: &Path) -> Base {
    let options = FileOptions {
        create: true,
        ..FileOptions::default()
    };
    let file = FileDevice::open(dir.join("base"), options).unwrap();
    Base::new(Arc::new(file), true)
}

#[test]
fn a_witness_is_told_of_a_loss_that_a_users_sync_was_told_of() {
    let dir = tempfile::tempdir().unwrap();
    a_loss_that_a_users_sync_is_told_of(witnessed(dir.path()));
}

/// The system tells the sync of one of two users of a lost write, and that one is slow to say so.
fn a_loss_that_another_user_is_told_of(base: Base) {
    let dir = tempfile::tempdir().unwrap();
    let (engine, object, base) = engine_between(dir.path(), |device| device, base);
    engine.set_write_back(false);
    engine.sync(&object, false).unwrap();
    let users = [0; 2].map(|_| Told::by(&object));
    base.loses.store(true, Ordering::Release);
    write(&engine, &object, 3, 2);
    let (told, is_told) = mpsc::channel();
    let same = Arc::clone(&base);
    *base.when_failed.lock().unwrap() = Some(Box::new(move || {
        // A witness that is made later is not told of what was told.
        same.untold[1].store(false, Ordering::Release);
        told.send(()).unwrap();
        std::thread::sleep(A_WHILE);
    }));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| engine.sync_for(&object, &users[0], true));
        is_told.recv_timeout(EVER).expect("the first one is told");
        let second = engine.sync_for(&object, &users[1], true);
        second.expect_err("its bytes may be lost");
        first.join().unwrap().expect_err("it is told");
    });
    for user in &users {
        engine.sync_for(&object, user, true).expect("told once");
    }
    engine.stop().unwrap();
}

#[test]
fn of_two_users_who_sync_at_a_time_both_learn_of_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    a_loss_that_another_user_is_told_of(witnessed(dir.path()));
    a_loss_that_another_user_is_told_of(Base::new(Arc::new(MemoryDevice::new()), false));
}

/// What a user wrote to base was lost, and a program beside the mount was told of it before the
/// destager had a witness.
#[test]
fn a_batch_that_is_synced_says_nothing_of_what_users_wrote_before() {
    let dir = tempfile::tempdir().unwrap();
    let base = witnessed(dir.path());
    let (engine, object, base) = engine_between(dir.path(), |device| device, base);
    engine.set_write_back(false);
    engine.sync(&object, false).unwrap();
    base.loses.store(true, Ordering::Release);
    write(&engine, &object, 3, 2);
    base.untold[1].store(false, Ordering::Release);
    engine.set_write_back(true);
    write(&engine, &object, 5, 2);
    engine.flush(|_| true).unwrap();
    assert_eq!(engine.dirty_pages(), 0, "the batch is in base");
    let synced = engine.sync(&object, true);
    synced.expect_err("page 3 is not");
    engine.stop().unwrap();
}

#[test]
fn without_a_witness_no_sync_is_believed_beside_another_one() {
    a_loss_that_a_users_sync_is_told_of(Base::new(Arc::new(MemoryDevice::new()), false));
}

/// What is written to a range while base refuses to punch it was acknowledged, and nothing of it
/// was punched.
#[test]
fn a_punch_that_base_refuses_takes_nothing_that_was_written_meanwhile() {
    let rig = rig();
    let (engine, object) = (&rig.engine, &rig.object);
    rig.base.refuses.store(true, Ordering::Release);
    let (other, same) = (Arc::clone(engine), Arc::clone(object));
    *rig.base.when_cut.lock().unwrap() = Some(Box::new(move || {
        let writer = std::thread::spawn(move || write(&other, &same, 5, 2));
        writer.join().unwrap();
    }));
    let size = PAGE as u64;
    engine.punch(object, 3 * size, 6 * size).unwrap_err();
    let mut bytes = vec![0; PAGE];
    for page in 3..9 {
        let request = Request {
            object,
            offset: page * size,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        engine.read(&request, &mut bytes).unwrap();
        let version = if page == 5 { 2 } else { 1 };
        assert!(bytes == [version; PAGE], "page {page}");
    }
    engine.stop().unwrap();
}

/// A base that cuts a file and says that it could not: the file is as long as base has it.
#[test]
fn a_cut_that_was_made_though_base_says_otherwise_counts() {
    let rig = rig();
    let (engine, object) = (&rig.engine, &rig.object);
    rig.base.refuses.store(true, Ordering::Release);
    engine.truncate(object, 3 * PAGE as u64).unwrap_err();
    rig.base.refuses.store(false, Ordering::Release);
    // Behind a hole, which is to read zeros.
    write(engine, object, 5, 2);
    engine.sync(object, false).unwrap();
    let request = Request {
        object,
        offset: 0,
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    let mut bytes = vec![7; MANY as usize * PAGE];
    let length = engine.read(&request, &mut bytes).unwrap();
    assert_eq!(length, 6 * PAGE);
    assert_eq!(rig.base.len().unwrap(), length as u64);
    let of = |page: usize| bytes[page * PAGE];
    assert_eq!([2, 3, 4, 5].map(of), [1, 0, 0, 2]);
    engine.stop().unwrap();
}

/// Flash that failed and comes back is seen to be older by the times of base's files: a sync while
/// the tier is off is of them too, whatever the caller asked for.
#[test]
fn while_the_tier_is_off_a_sync_of_data_is_one_of_times() {
    let rig = rig();
    for off in [false, true] {
        if off {
            rig.engine.tier_off("test").unwrap();
        }
        write(&rig.engine, &rig.object, 3, 2);
        if !off {
            rig.engine.set_write_back(false);
            write(&rig.engine, &rig.object, 3, 3);
        }
        rig.engine.sync(&rig.object, true).unwrap();
        let data_only = rig.base.data_only.load(Ordering::Acquire);
        assert_eq!(data_only, !off, "off: {off}");
    }
    rig.engine.stop().unwrap();
}

/// A page is written and synced while base is cut below it. The next sync takes it back from the
/// map on flash, though base alone was changed since.
#[test]
fn what_was_synced_while_base_was_cut_is_taken_back_by_the_next_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut gate = None;
    let (engine, object, base) = engine_over(dir.path(), |device| {
        let made = Arc::new(Gate {
            device,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        gate = Some(Arc::clone(&made));
        made
    });
    let gate = gate.unwrap();
    let (other, same, flash) = (Arc::clone(&engine), Arc::clone(&object), Arc::clone(&gate));
    *base.when_cut.lock().unwrap() = Some(Box::new(move || {
        let synced = std::thread::spawn(move || {
            write(&other, &same, 5, 2);
            other.sync(&same, true).unwrap();
            flash.change(|state| state.writes = 0);
        });
        synced.join().unwrap();
    }));
    engine.truncate(&object, 3 * PAGE as u64).unwrap();
    engine.sync(&object, true).unwrap();
    let written = gate.state.lock().unwrap().writes;
    assert!(written > 0, "the map says that the page is gone");
    engine.stop().unwrap();
}

/// A file is closed while base takes its time for a page of it: others are opened.
#[test]
fn files_are_opened_while_one_is_closed_that_base_writes_to() {
    let rig = rig();
    let (engine, object) = (&rig.engine, &rig.object);
    let (written, is_written) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    *rig.base.when_lost.lock().unwrap() = Some(Box::new(move || {
        written.send(()).unwrap();
        goes_on.recv_timeout(EVER).expect("a file is opened");
    }));
    rig.base.loses.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| engine.flush(|_| true));
        is_written.recv_timeout(EVER).expect("base is written");
        let (closed, is_closed) = mpsc::channel();
        scope.spawn(move || {
            engine.close_object(object);
            closed.send(()).unwrap();
        });
        std::thread::sleep(A_WHILE);
        let (opened, is_opened) = mpsc::channel();
        scope.spawn(move || {
            let base = Arc::new(MemoryDevice::new());
            opened.send(engine.open_object(spec(8, base))).unwrap();
        });
        let other = is_opened.recv_timeout(EVER / 2);
        go_on.send(()).unwrap();
        let other = other.expect("it is opened meanwhile").unwrap();
        is_closed.recv_timeout(EVER).expect("it is closed");
        engine.close_object(&other);
        drop(flush.join().unwrap());
    });
    drop(engine.stop());
}
