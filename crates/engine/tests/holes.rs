//! Reads of which some pages are on flash: one request of base instead of many, and never a byte
//! that base is older in.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use thermocline::classify::Dialect;
use thermocline::config::CostSettings;
use thermocline::device::{Device, MemoryDevice};
use thermocline::mutant::Mutant;
use thermocline::{
    Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stamp, Store, StoreOptions,
};
use thermocline_core::{FileKind, HintSet};

const PAGE: usize = 512;
const PAGES: u64 = 64;

/// Tells that a read has its bytes, and waits until it may return them.
type Gate = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// A base that counts its reads, cannot read one page, and holds its next read up at a gate.
#[derive(Default)]
struct Counting {
    device: MemoryDevice,
    reads: AtomicU64,
    /// Number of the page plus one.
    bad: AtomicU64,
    gate: Mutex<Option<Gate>>,
}

impl Device for Counting {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let pages = offset / PAGE as u64 + 1..=(offset + buf.len() as u64) / PAGE as u64;
        if pages.contains(&self.bad.load(Ordering::Relaxed)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let read = self.device.read_at(buf, offset);
        let gate = self.gate.lock().expect("lock").take();
        if let Some((has_bytes, go)) = gate {
            has_bytes.send(()).expect("told");
            go.recv().expect("may go on");
        }
        read
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
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

/// An engine over a file of which each page has its number in it, plus one. See [`rig_of`].
struct Rig {
    base: Arc<Counting>,
    engine: Arc<Engine>,
    object: Arc<Object>,
}

fn rig(change: impl FnOnce(&mut EngineConfig)) -> Rig {
    rig_of(2 * PAGES as u32, change)
}

/// With so many slots, or few more.
fn rig_of(slots: u32, change: impl FnOnce(&mut EngineConfig)) -> Rig {
    let mut config = EngineConfig {
        page_size: PAGE as u32,
        policy: "lru".into(),
        read_ahead: 0,
        ..EngineConfig::default()
    };
    change(&mut config);
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(Store::length_for(config.blocks_for(slots), PAGE as u32)),
        ..StoreOptions::default()
    };
    let store = Store::with_device(Arc::new(MemoryDevice::new()), "memory", &options);
    let engine = Engine::start(config, Some(store.expect("opens"))).expect("starts");
    let base = Arc::new(Counting::default());
    for index in 0..PAGES {
        let bytes = [index as u8 + 1; PAGE];
        base.write_at(&bytes, index * PAGE as u64).expect("writes");
    }
    let spec = ObjectSpec {
        name: "file".into(),
        group: "file".into(),
        identity: Identity {
            device: 1,
            inode: 7,
            generation: 1,
        },
        base: Arc::clone(&base) as Arc<dyn Device>,
        kind: FileKind::Unknown,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    };
    let object = engine.open_object(spec).expect("opens");
    Rig {
        base,
        engine,
        object,
    }
}

impl Rig {
    fn request(&self, offset: u64) -> Request<'_> {
        Request {
            object: &self.object,
            offset,
            hints: HintSet::UNKNOWN,
            client: 1,
        }
    }

    /// So many pages from `first` on, by what is in them.
    fn read(&self, first: u64, pages: u64) -> io::Result<Vec<u8>> {
        let mut buf = vec![0; pages as usize * PAGE];
        let read = self
            .engine
            .read(&self.request(first * PAGE as u64), &mut buf)?;
        assert_eq!(read, buf.len());
        Ok(buf.chunks(PAGE).map(content).collect())
    }

    /// Pages `first`, `first + step` and so on go to flash.
    fn warm(&self, first: u64, step: usize) {
        for index in (first..PAGES).step_by(step) {
            assert_eq!(self.read(index, 1).expect("reads"), [index as u8 + 1]);
            self.settle();
        }
    }

    fn write(&self, index: u64, byte: u8) {
        let request = self.request(index * PAGE as u64);
        self.engine.write(&request, &[byte; PAGE]).expect("writes");
    }

    fn settle(&self) {
        while self.engine.stats().tier.is_some_and(|tier| tier.staged > 0) {
            std::thread::yield_now();
        }
    }

    fn base_reads(&self) -> u64 {
        self.base.reads.swap(0, Ordering::Relaxed)
    }

    /// Page reads counted as of flash, and those of them whose bytes came from base.
    fn flash_reads(&self) -> (u64, u64) {
        let stats = self.engine.stats();
        let bridged = stats.tier.expect("a tier").bridged;
        (stats.page_reads["flash"], bridged)
    }

    /// Reads `pages` while somebody does `meanwhile`, after base has given its bytes and before
    /// they are served.
    fn read_beside(&self, first: u64, pages: u64, meanwhile: impl FnOnce()) -> Vec<u8> {
        let (has_bytes, told) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        *self.base.gate.lock().expect("lock") = Some((has_bytes, may_go));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| self.read(first, pages));
            told.recv().expect("base was asked");
            meanwhile();
            go.send(()).expect("goes on");
            reader.join().expect("ends").expect("reads")
        })
    }

    fn end(self) {
        self.engine.assert_invariants();
        self.engine.close_object(&self.object);
        self.engine.flush(|_| true).expect("flushes");
        self.engine.stop().expect("stops");
    }
}

/// The one byte that a page is full of.
fn content(page: &[u8]) -> u8 {
    assert!(
        page.iter().all(|byte| *byte == page[0]),
        "a page of one write"
    );
    page[0]
}

fn numbers(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|index| index as u8 + 1).collect()
}

#[test]
fn a_scan_over_scattered_pages_is_one_read_of_base() {
    let costs = |random, sequential| CostSettings {
        base_random_read_us: random,
        base_sequential_read_us: sequential,
        ..CostSettings::default()
    };
    // A disk; a disk whose seek is worth two pages and no three; a base as fast as flash.
    let cases = [
        (CostSettings::default(), 8, 1),
        (costs(300.0, 100.0), 8, 1),
        (costs(300.0, 100.0), 3, 8),
        (costs(80.0, 3.0), 8, 8),
    ];
    for (costs, step, expected) in cases {
        let rig = rig(|config| config.costs = costs);
        // Of three pages in a row from each eighth on, or of one.
        for index in (1..PAGES).step_by(8) {
            let pages = if step == 3 { 3 } else { 1 };
            rig.read(index, pages).expect("reads");
            rig.settle();
        }
        rig.base_reads();
        let before = rig.flash_reads();
        assert_eq!(rig.read(0, PAGES).expect("reads"), numbers(0..PAGES));
        let reads = rig.base_reads();
        let after = rig.flash_reads();
        let on_flash = if step == 3 { 24 } else { 8 };
        assert_eq!(after.0 - before.0, on_flash, "hits on slots, each once");
        match expected {
            1 => {
                assert_eq!(reads, 1);
                assert_eq!(after.1, on_flash, "their bytes came with the others'");
            }
            _ => {
                assert_eq!(reads, 9, "each run of absent pages alone");
                assert_eq!(after.1, 0);
            }
        }
        rig.end();
    }
}

#[test]
fn parts_of_pages_at_both_ends_are_bridged_too() {
    let rig = rig(|_| ());
    rig.warm(2, 4);
    rig.base_reads();
    let mut buf = vec![0; 6 * PAGE + 200];
    let from = PAGE as u64 - 100;
    let read = rig.engine.read(&rig.request(from), &mut buf);
    assert_eq!(read.expect("reads"), buf.len());
    assert_eq!(rig.base_reads(), 1);
    for (at, byte) in buf.iter().enumerate() {
        let page = (from as usize + at) / PAGE;
        assert_eq!(*byte, page as u8 + 1, "byte {at}");
    }
    rig.end();
}

#[test]
fn pages_in_the_pool_are_passed_over() {
    let rig = rig(|config| config.pool_bytes = 16 * PAGE as u64);
    rig.warm(1, 16);
    rig.base_reads();
    assert_eq!(rig.read(0, 8).expect("reads"), numbers(0..8));
    assert_eq!((rig.base_reads(), rig.flash_reads().1), (1, 0));
    rig.end();
}

/// Pages 8, 16 and so on are dirty on flash, some in the pool besides; base has them as they were.
fn over_dirty_pages(frames: u64, planted: Mutant) -> Vec<u8> {
    let rig = rig(|config| {
        config.write_back = true;
        config.pool_bytes = frames * PAGE as u64;
        config.planted = planted;
    });
    for index in (8..PAGES).step_by(8) {
        rig.write(index, 200);
    }
    rig.engine.sync(&rig.object, false).expect("syncs");
    rig.settle();
    rig.base_reads();
    let seen = rig.read(1, PAGES - 1).expect("reads");
    assert_eq!(rig.base_reads(), 1);
    assert_eq!(seen.len(), PAGES as usize - 1);
    rig.end();
    seen
}

#[test]
fn base_is_never_believed_for_a_dirty_page() {
    let mut right = numbers(1..PAGES);
    (8..PAGES)
        .step_by(8)
        .for_each(|index| right[index as usize - 1] = 200);
    for frames in [0, 4, 64] {
        assert_eq!(
            over_dirty_pages(frames, Mutant::None),
            right,
            "{frames} frames"
        );
    }
    let wrong = over_dirty_pages(0, Mutant::BaseBelieved);
    assert_eq!(wrong, numbers(1..PAGES), "the planted bug shows");
}

/// A page in a hole changes between base's answer and its turn. The read itself may return the page
/// as it was when it began; whoever reads after it may not.
#[test]
fn a_page_that_changes_meanwhile_is_not_kept_as_it_was() {
    let after = |planted, change: &dyn Fn(&Rig)| {
        let rig = rig(|config| {
            config.planted = planted;
            config.pool_bytes = 2 * PAGE as u64;
        });
        rig.warm(2, 2);
        let seen = rig.read_beside(1, 3, || change(&rig));
        assert_eq!((seen[0], seen[2]), (2, 4));
        rig.settle();
        let again = rig.read(2, 1).expect("reads")[0];
        rig.end();
        again
    };
    let write = |rig: &Rig| {
        rig.write(2, 77);
        rig.settle();
    };
    let write_a_part = |rig: &Rig| {
        let request = rig.request(2 * PAGE as u64);
        rig.engine.write(&request, &[3; 8]).expect("writes");
    };
    let write_and_read = |rig: &Rig| {
        rig.write(2, 88);
        rig.read(40, 8).expect("reads");
        rig.settle();
    };
    let punch = |rig: &Rig| {
        let page = PAGE as u64;
        rig.engine
            .punch(&rig.object, 2 * page, page)
            .expect("punches");
    };
    let none = Mutant::None;
    assert_eq!(after(none, &write), 77);
    assert_eq!(after(none, &write_a_part), 3);
    assert_eq!(after(none, &write_and_read), 88);
    assert_eq!(after(none, &punch), 0);
    assert_eq!(
        after(Mutant::BaseBelieved, &write),
        3,
        "the planted bug shows"
    );
}

/// A page in a hole is in the midst of a write when its turn comes: the reader waits for it, and
/// holds nothing that its writer may wait for.
#[test]
fn a_writer_over_a_hole_and_its_neighbours_is_not_locked_out() {
    let rig = rig(|_| ());
    rig.warm(2, 2);
    std::thread::scope(|scope| {
        let seen = rig.read_beside(1, 5, || {
            // Holds page 2, and waits for page 3 until the read has ended.
            let writer = scope.spawn(|| {
                let request = rig.request(2 * PAGE as u64);
                rig.engine.write(&request, &[99; 2 * PAGE]).expect("writes");
            });
            drop(writer);
            std::thread::sleep(std::time::Duration::from_millis(50));
        });
        assert_eq!((seen[0], seen[2], seen[3], seen[4]), (2, 4, 5, 6));
        assert!([3, 99].contains(&seen[1]));
    });
    assert_eq!(rig.read(1, 4).expect("reads"), [2, 99, 99, 5]);
    rig.end();
}

/// The cache is full, of every other page, and each page that comes makes the next one leave.
#[test]
fn a_page_evicted_by_those_before_it_is_not_read_twice() {
    let rig = rig_of(PAGES as u32 / 2, |_| ());
    let slots = u64::from(rig.engine.stats().tier.expect("a tier").slots);
    assert!(slots < PAGES - 8, "{slots} slots do not hold all");
    rig.warm(1, 2);
    let more = (PAGES - 2 * (slots - PAGES / 2)..PAGES).step_by(2);
    more.for_each(|index| _ = rig.read(index, 1).expect("reads"));
    rig.settle();
    let hits = rig.flash_reads().0;
    rig.base_reads();
    assert_eq!(rig.read(0, PAGES).expect("reads"), numbers(0..PAGES));
    assert!(
        rig.flash_reads().0 - hits < 8,
        "pages left before their turn"
    );
    let reads = rig.base_reads();
    assert!(reads <= 4, "{reads} reads of base");
    rig.end();
}

#[test]
fn what_base_cannot_read_in_a_hole_fails_nobody() {
    let rig = rig(|_| ());
    rig.warm(2, 4);
    rig.base.bad.store(6 + 1, Ordering::Relaxed);
    assert_eq!(rig.read(1, 11).expect("reads"), numbers(1..12));
    // Where it is needed it does fail, and everything else goes on.
    rig.base.bad.store(20 + 1, Ordering::Relaxed);
    assert!(rig.read(15, 10).is_err());
    rig.base.bad.store(0, Ordering::Relaxed);
    assert_eq!(rig.read(0, PAGES).expect("reads"), numbers(0..PAGES));
    rig.write(20, 5);
    assert_eq!(rig.read(20, 1).expect("reads"), [5]);
    rig.end();
}
