//! Reading ahead of sequential streams: fewer requests to the device, and never a byte older than
//! what was acknowledged before the request began.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;
use thermocline::classify::Dialect;
use thermocline::device::{Device, FaultScript, Faulty, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, Object, ObjectSpec, ReadStarted, Request, Stamp,
    Store, StoreOptions,
};
use thermocline_core::hint::RequestType;
use thermocline_core::{FileKind, HintSet, hint_type};

const PAGE: usize = 4096;
const PAGES: u64 = 256;

/// Tells that a write is inside the device, and waits until it may go on.
type Gate = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// A base that counts the reads it gets and notes how far they come, takes its time for each, and
/// holds its next write up at a gate.
#[derive(Default)]
struct Counting {
    device: MemoryDevice,
    reads: AtomicU64,
    bytes: AtomicU64,
    /// The byte after the furthest one read.
    furthest: AtomicU64,
    gate: Mutex<Option<Gate>>,
    /// Where there is one, it takes 4 ms for each read, one after another.
    arm: Option<Mutex<()>>,
    /// Reads of this byte or one after it do not end while it is there.
    hung_from: Mutex<Option<u64>>,
    freed: Condvar,
}

impl Device for Counting {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let end = offset + buf.len() as u64;
        let hung = self.hung_from.lock().expect("lock");
        let freed = self
            .freed
            .wait_while(hung, |hung| hung.is_some_and(|from| end > from));
        drop(freed.expect("lock"));
        let arm = self.arm.as_ref().map(|arm| arm.lock().expect("lock"));
        let millis = if arm.is_some() { 4 } else { 1 };
        std::thread::sleep(Duration::from_millis(millis));
        let read = self.device.read_at(buf, offset)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        let end = offset + read as u64;
        self.furthest.fetch_max(end, Ordering::Relaxed);
        Ok(read)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let gate = self.gate.lock().expect("lock").take();
        if let Some((inside, go)) = gate {
            inside.send(()).expect("told");
            go.recv().expect("may go on");
        }
        self.device.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
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
        "counting".into()
    }
}

fn store(blocks: u32) -> Store {
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(Store::length_for(blocks, PAGE as u32)),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        ..StoreOptions::default()
    };
    Store::with_device(Arc::new(MemoryDevice::new()), "cache", &options).expect("opens")
}

/// An engine over a tier of `blocks`, with `frames` pages of DRAM above it.
fn engine(back: bool, blocks: u32, frames: u64) -> Arc<Engine> {
    engine_of("lru", back, blocks, frames)
}

fn engine_of(policy: &str, back: bool, blocks: u32, frames: u64) -> Arc<Engine> {
    let config = EngineConfig {
        page_size: PAGE as u32,
        policy: policy.into(),
        pool_bytes: frames * PAGE as u64,
        write_back: back,
        ..EngineConfig::default()
    };
    Engine::start(config, Some(store(blocks))).expect("starts")
}

fn open(engine: &Engine, base: Arc<dyn Device>) -> Arc<Object> {
    open_number(7, engine, base)
}

fn open_number(inode: u64, engine: &Engine, base: Arc<dyn Device>) -> Arc<Object> {
    let spec = ObjectSpec {
        name: format!("file{inode}"),
        group: "file".into(),
        identity: Identity {
            device: 1,
            inode,
            generation: 1,
        },
        base,
        kind: FileKind::Unknown,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    };
    engine.open_object(spec).expect("opens")
}

fn request(object: &Object, index: u64) -> Request<'_> {
    let sequential = RequestType::SequentialRead.value();
    Request {
        object,
        offset: index * PAGE as u64,
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, sequential),
        client: 0,
    }
}

fn page(content: u64) -> Vec<u8> {
    content.to_le_bytes().repeat(PAGE / 8)
}

/// The one number that a page is full of.
fn content(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let same = bytes
        .chunks_exact(8)
        .all(|word| word == first.to_le_bytes());
    assert!(same, "a page of one write");
    first
}

#[test]
fn a_scan_page_by_page_makes_few_requests() {
    let base = Arc::new(Counting::default());
    for index in 0..PAGES {
        base.write_at(&page(index + 1), index * PAGE as u64)
            .expect("writes");
    }
    for blocks in [64, 512] {
        let engine = engine(false, blocks, 0);
        let object = open(&engine, base.clone());
        let before = base.reads.load(Ordering::Relaxed);
        let mut buf = vec![0; PAGE];
        for index in 0..PAGES {
            let read = engine
                .read(&request(&object, index), &mut buf)
                .expect("reads");
            assert_eq!((read, content(&buf)), (PAGE, index + 1));
        }
        let reads = base.reads.load(Ordering::Relaxed) - before;
        assert!(reads < PAGES / 4, "{reads} reads of base for {PAGES} pages");
        let past = engine
            .read(&request(&object, PAGES), &mut buf)
            .expect("reads");
        assert_eq!(past, 0, "nothing past the end");
        engine.close_object(&object);
        engine.stop().expect("stops");
    }
}

/// A scan that follows another one of the same file closely is read ahead too: a policy that does
/// not admit what is read once has nothing of it on flash.
#[test]
fn two_scans_close_behind_each_other_make_few_requests() {
    for behind in [1, 2, 3] {
        let base = Arc::new(Counting::default());
        base.set_len(PAGES * PAGE as u64).expect("grows");
        let engine = engine_of("tac", false, 64, 0);
        let object = open(&engine, base.clone());
        let mut buf = vec![0; PAGE];
        for index in 0..PAGES + behind {
            let second = index.checked_sub(behind);
            for page in [Some(index), second].into_iter().flatten() {
                let read = engine.read(&request(&object, page), &mut buf);
                assert_eq!(read.expect("reads"), if page < PAGES { PAGE } else { 0 });
            }
        }
        let reads = base.reads.load(Ordering::Relaxed);
        assert!(
            reads < PAGES / 2,
            "{behind} behind: {reads} reads of base for {PAGES} pages"
        );
        engine.close_object(&object);
        engine.stop().expect("stops");
    }
}

/// Were it one chunk, a request of its length would take it away whole, and the device would wait
/// until that was answered.
#[test]
fn two_chunks_are_kept_ahead_of_requests_as_long_as_one() {
    let base = Arc::new(Counting::default());
    let chunk = u64::from(EngineConfig::default().read_ahead);
    base.set_len(8 * chunk).expect("grows");
    let engine = engine(false, 64, 0);
    let object = open(&engine, base.clone());
    let mut buf = vec![0; chunk as usize];
    for asked in 1..=4 {
        let first = (asked - 1) * chunk / PAGE as u64;
        let read = engine.read(&request(&object, first), &mut buf);
        assert_eq!(read.expect("reads"), buf.len());
        let furthest = || base.furthest.load(Ordering::Relaxed);
        // One request is no stream.
        let expected = if asked == 1 { 1 } else { asked + 2 };
        let patience = std::time::Instant::now() + Duration::from_secs(60);
        while furthest() < expected * chunk && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(furthest() / chunk, expected, "after {asked} requests");
    }
    engine.close_object(&object);
    engine.stop().expect("stops");
}

/// More scans than base keeps up with: requests that wait long do not read a second time, and what
/// is queued is read as one.
#[test]
fn many_scans_of_a_slow_base_read_each_page_once() {
    const SCANS: u64 = 32;
    const LENGTH: u64 = 2 << 20;
    let base = Arc::new(Counting {
        arm: Some(Mutex::default()),
        ..Counting::default()
    });
    base.set_len(LENGTH).expect("grows");
    let engine = engine(false, 64, 0);
    std::thread::scope(|scope| {
        for inode in 1..=SCANS {
            let (engine, base) = (&engine, base.clone());
            scope.spawn(move || {
                let file = open_number(inode, engine, base);
                let mut buf = vec![0; 16 * PAGE];
                for offset in (0..LENGTH).step_by(buf.len()) {
                    let request = request(&file, offset / PAGE as u64);
                    assert_eq!(engine.read(&request, &mut buf).expect("reads"), buf.len());
                }
                engine.close_object(&file);
            });
        }
    });
    engine.stop().expect("stops");
    let (read, asked) = (base.bytes.load(Ordering::Relaxed), SCANS * LENGTH);
    let reads = base.reads.load(Ordering::Relaxed);
    assert!(
        read < asked + asked / 20,
        "{read} bytes of base for {asked}"
    );
    let requests = asked / (16 * PAGE) as u64;
    assert!(reads < requests / 2, "{reads} reads of base for {requests}");
}

/// What is read ahead for one scan does not push out what another one is about to ask for.
#[test]
fn many_scans_read_each_page_once() {
    const SCANS: u64 = 40;
    const LENGTH: u64 = 6 << 20;
    let base = Arc::new(Counting::default());
    base.set_len(LENGTH).expect("grows");
    let engine = engine(false, 64, 0);
    let files = (0..SCANS).map(|inode| open_number(inode + 1, &engine, base.clone()));
    let files: Vec<_> = files.collect();
    let mut buf = vec![0; 32 * PAGE];
    for offset in (0..LENGTH).step_by(buf.len()) {
        for file in &files {
            let request = request(file, offset / PAGE as u64);
            assert_eq!(engine.read(&request, &mut buf).expect("reads"), buf.len());
        }
    }
    for file in &files {
        engine.close_object(file);
    }
    engine.stop().expect("stops");
    let (read, asked) = (base.bytes.load(Ordering::Relaxed), SCANS * LENGTH);
    assert!(
        read < asked + asked / 20,
        "{read} bytes of base for {asked}"
    );
}

/// While base hangs pages on flash are served, also those of a chunk that base hangs in, or that
/// nobody can read because all that read ahead hang.
#[test]
fn pages_on_flash_are_served_while_base_hangs() {
    const ON_FLASH: u64 = 24;
    for others in 0..3 {
        let base = Arc::new(Counting::default());
        base.set_len(PAGES * PAGE as u64).expect("grows");
        let engine = engine(false, 64, 0);
        let files: Vec<_> = (0..=others).collect();
        let open = |inode: &u64| open_number(inode + 1, &engine, base.clone());
        let files: Vec<_> = files.iter().map(open).collect();
        let mut buf = vec![0; PAGE];
        for index in 0..ON_FLASH {
            engine
                .read(&plain(&files[0], index), &mut buf)
                .expect("reads");
        }
        while engine.stats().tier.is_some_and(|tier| tier.staged > 0) {
            std::thread::yield_now();
        }
        *base.hung_from.lock().expect("lock") = Some(ON_FLASH * PAGE as u64);
        let (served, is_served) = mpsc::channel();
        let all_served = std::thread::scope(|scope| {
            scope.spawn(|| {
                for file in files[1..].iter().chain(&files[..1]) {
                    let pages = if file.id() == files[0].id() {
                        ON_FLASH
                    } else {
                        2
                    };
                    let mut buf = vec![0; PAGE];
                    for index in 0..pages {
                        engine.read(&request(file, index), &mut buf).expect("reads");
                    }
                }
                served.send(()).expect("told");
            });
            // It takes a tenth of a second; this only ends a test that fails.
            let all_served = is_served.recv_timeout(Duration::from_secs(30)).is_ok();
            *base.hung_from.lock().expect("lock") = None;
            base.freed.notify_all();
            all_served
        });
        assert!(all_served, "with {others} other scans");
        for file in &files {
            engine.close_object(file);
        }
        engine.stop().expect("stops");
    }
}

#[test]
fn a_failure_ahead_is_met_by_who_needs_the_page() {
    let base = Arc::new(MemoryDevice::new());
    base.write_at(&vec![3; PAGES as usize * PAGE], 0)
        .expect("writes");
    let script = FaultScript::new();
    let faulty = Arc::new(Faulty::new(base, script.clone(), None));
    let engine = engine(false, 64, 0);
    let object = open(&engine, faulty);
    let mut buf = vec![0; PAGE];
    engine.read(&request(&object, 0), &mut buf).expect("reads");
    script.load("read fail EIO").expect("a script");
    let mut index = 1;
    while engine.read(&request(&object, index), &mut buf).is_ok() {
        index += 1;
        assert!(index < PAGES, "the error is told");
    }
    script.clear();
    for index in 0..PAGES {
        assert_eq!(
            engine
                .read(&request(&object, index), &mut buf)
                .expect("reads"),
            PAGE
        );
    }
    engine.close_object(&object);
    engine.stop().expect("stops");
}

/// Change `number` of a page writes its number, or makes it zeros when it is even.
fn after(number: u64) -> u64 {
    if number.is_multiple_of(2) { 0 } else { number }
}

/// Ends the writers, also when the scan fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A scan of all pages, and what their writers have begun and ended.
struct Scan<'a> {
    engine: &'a Engine,
    object: &'a Arc<Object>,
    begun: &'a [AtomicU64],
    ended: &'a [AtomicU64],
}

impl Scan<'_> {
    fn run(&self, rounds: u64, pages: u64) {
        let mut buf = vec![0; 4 * PAGE];
        for round in 0..rounds {
            let step = 1 + (round + pages) % 4;
            let mut index = 0;
            while index + step <= PAGES {
                self.check(index, step, &mut buf[..step as usize * PAGE]);
                index += step;
            }
        }
    }

    fn check(&self, first: u64, pages: u64, buf: &mut [u8]) {
        let all = first..first + pages;
        let load = |counts: &[AtomicU64]| -> Vec<u64> {
            let counts = all
                .clone()
                .map(|page| counts[page as usize].load(Ordering::Acquire));
            counts.collect()
        };
        let least = load(self.ended);
        let request = request(self.object, first);
        let at = (request.offset, 0);
        // As a frontend with a ring of its own; what is on flash is read the other way.
        let started = self
            .engine
            .start_read(self.object, at, buf, 0, || request.hints);
        let read = match started {
            ReadStarted::Done(len) => Ok(len),
            _ => self.engine.read(&request, buf),
        };
        assert_eq!(read.expect("reads"), buf.len());
        let most = load(self.begun);
        for (index, bytes) in buf.chunks_exact(PAGE).enumerate() {
            let (least, most, seen) = (least[index], most[index], content(bytes));
            let fits = (least..=most).any(|number| after(number) == seen);
            let page = first + index as u64;
            assert!(fits, "page {page}: {seen} is none of {least}..={most}");
        }
    }
}

/// One thread scans, the others change pages: what the scan sees is what the page was at some time
/// during the request.
fn scan_beside_changes(back: bool, blocks: u32, frames: u64) {
    let engine = engine(back, blocks, frames);
    let base = Arc::new(MemoryDevice::new());
    base.write_at(&vec![0; PAGES as usize * PAGE], 0)
        .expect("writes");
    let object = open(&engine, base);
    let counts = || (0..PAGES).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (begun, ended) = (counts(), counts());
    let stop = AtomicBool::new(false);
    let scan = Scan {
        engine: &engine,
        object: &object,
        begun: &begun,
        ended: &ended,
    };
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (engine, object, begun, ended, stop) = (&engine, &object, &begun, &ended, &stop);
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_u64 + writer;
                while !stop.load(Ordering::Relaxed) {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    // Pages of its own.
                    let index = (state >> 33) % (PAGES / 2) * 2 + writer;
                    let number = begun[index as usize].fetch_add(1, Ordering::AcqRel) + 1;
                    let at = request(object, index);
                    match after(number) {
                        0 => engine
                            .punch(object, at.offset, PAGE as u64)
                            .expect("punches"),
                        content => engine.write(&at, &page(content)).expect("writes"),
                    }
                    ended[index as usize].store(number, Ordering::Release);
                }
            });
        }
        let _ending = Ending(&stop);
        // Two scans that overtake each other: their chunks overlap.
        scope.spawn(|| scan.run(40, 1));
        scan.run(60, 3);
    });
    engine.close_object(&object);
    engine.stop().expect("stops");
}

#[test]
fn what_is_read_ahead_is_never_old() {
    for (back, blocks) in [(false, 64), (false, 512), (true, 64), (true, 512)] {
        for frames in [0, 48] {
            scan_beside_changes(back, blocks, frames);
        }
    }
}

fn plain(object: &Object, index: u64) -> Request<'_> {
    let hints = HintSet::UNKNOWN;
    Request {
        hints,
        ..request(object, index)
    }
}

#[test]
fn a_page_read_ahead_from_the_pool_during_a_write_is_not_served_after_it() {
    let base = Arc::new(Counting::default());
    for index in 0..256u64 {
        base.write_at(&vec![1; PAGE], index * PAGE as u64)
            .expect("done");
    }
    let config = EngineConfig {
        page_size: PAGE as u32,
        policy: "lru".into(),
        pool_bytes: 128 * PAGE as u64,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, None).expect("done");
    let object = open(&engine, base.clone());
    let mut buf = vec![0; PAGE];
    engine.read(&plain(&object, 40), &mut buf).expect("done");
    let (inside, is_inside) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    *base.gate.lock().expect("done") = Some((inside, may_go));
    std::thread::scope(|scope| {
        let write = scope.spawn(|| engine.write(&plain(&object, 40), &[2; 2048]));
        is_inside.recv().expect("done");
        // A scan begins beside the write: pages 37.. are read ahead, page 40 from its frame.
        engine
            .read(&request(&object, 36), &mut vec![0; PAGE])
            .expect("done");
        std::thread::sleep(Duration::from_millis(500));
        go.send(()).expect("done");
        write.join().expect("done").expect("done");
    });
    engine.read(&request(&object, 40), &mut buf).expect("done");
    assert_eq!((buf[0], buf[2048]), (2, 1), "the write had returned");
}
