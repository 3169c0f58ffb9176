//! A crowd of clients on few files, and what they may read: opens, closes, reads, writes, syncs,
//! cuts, holes, renames, unlinks at the same time, with names, object ids and pages that collide.
//!
//! What is written are numbers that count up, so that a read tells which writes it saw. A read may
//! give any number that was written there before it ended and was not replaced before it began.
//!
//! Runs on threads of the machine or, with the feature `shuttle`, of the scheduler: locks and
//! threads are those of the engine. Locks that guard the crowd's own books are never held across a
//! call of it.

mod late;

use late::LateDevice;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Book};
use std::time::Duration;
use thermocline::classify::Dialect;
use thermocline::clock::{Clock, SharedClock};
use thermocline::config::DirtySettings;
use thermocline::device::{Device, MemoryDevice};
use thermocline::lock::{RwLock, thread};
use thermocline::mutant::Mutant;
use thermocline::{
    Engine, EngineConfig, Error, Grave, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions,
};
use thermocline_core::hash::mix;
use thermocline_core::{FileKind, HintSet};

const PAGE: u64 = 512;
/// What requests are made of: half a page, so that some write a page in part.
const CELL: u64 = PAGE / 2;
/// Cells of a file at most.
const CELLS: u64 = 8;
/// Writes of a cell that are remembered at most.
const MEMORY: usize = 512;

/// How large a crowd is, and what it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Names of files; every other file passes by the tier.
    pub(crate) names: usize,
    /// Clients.
    pub(crate) clients: u64,
    /// What each does.
    pub(crate) steps: u64,
    /// Out of ten steps, how many are opens and closes.
    pub(crate) opens: u64,
    /// The flash device gives one write or sync in so many up, and it arrives later; 0: none.
    pub(crate) late: u64,
    /// A bug in the engine.
    pub(crate) planted: Mutant,
}

/// A clock of which time passes whenever it is asked.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(20, Ordering::Relaxed))
    }

    fn wall_ns(&self) -> i64 {
        self.now().as_nanos() as i64
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        thread::yield_now();
    }
}

/// A write of a cell.
#[derive(Clone, Copy, Debug)]
struct Written {
    number: u64,
    began: u64,
    ended: Option<u64>,
}

/// A base file, and what may be read of it.
struct File {
    identity: Identity,
    cached: bool,
    bytes: Arc<Timed>,
    cells: Book<Vec<Vec<Written>>>,
    /// Held by who cuts or punches alone, by who writes with others.
    layout: RwLock<()>,
    /// Held by who takes the name away, alone; with others by who opens it by name.
    named: RwLock<bool>,
}

/// Bytes of a base file whose changes advance its times.
#[derive(Default)]
struct Timed {
    bytes: MemoryDevice,
    changed: AtomicI64,
    attributes: AtomicI64,
}

impl Timed {
    fn stamp(&self) -> Option<Stamp> {
        let length = self.bytes.len().ok()?;
        let mtime_ns = self.changed.load(Ordering::Relaxed);
        let ctime_ns = mtime_ns + self.attributes.load(Ordering::Relaxed);
        Some(Stamp {
            length,
            mtime_ns,
            ctime_ns,
        })
    }

    fn change<T>(&self, done: T) -> T {
        self.changed.fetch_add(1, Ordering::Relaxed);
        done
    }
}

impl Device for Timed {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.change(self.bytes.write_at(buf, offset))
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.bytes.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(self.bytes.set_len(len))
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(self.bytes.punch(offset, len))
    }
    fn label(&self) -> String {
        "memory with times".into()
    }
}

impl File {
    fn new(name: usize, generation: u64) -> Arc<Self> {
        let zeros = Written {
            number: 0,
            began: 0,
            ended: Some(0),
        };
        Arc::new(Self {
            identity: Identity {
                device: 1,
                inode: 10 + name as u64,
                generation,
            },
            cached: name.is_multiple_of(2),
            bytes: Arc::default(),
            cells: Book::new(vec![vec![zeros]; CELLS as usize]),
            layout: RwLock::new(()),
            named: RwLock::new(true),
        })
    }

    fn spec(&self) -> ObjectSpec {
        let Identity {
            inode, generation, ..
        } = self.identity;
        let (stamped, touched) = (Arc::clone(&self.bytes), Arc::clone(&self.bytes));
        ObjectSpec {
            name: format!("{inode}.{generation}"),
            group: "crowd".into(),
            identity: self.identity,
            base: Arc::clone(&self.bytes) as Arc<dyn Device>,
            kind: FileKind::Relation,
            dialect: Dialect::None,
            cached: self.cached,
            stamp: Arc::new(move || stamped.stamp()),
            touch: Arc::new(move |time| {
                match time {
                    Some(time) => touched.changed.store(time, Ordering::Relaxed),
                    None => touched.change(()),
                }
                touched.attributes.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }),
        }
    }

    fn begin(&self, cells: Range<u64>, number: u64, now: u64) {
        let mut books = self.cells.lock().expect("no client panicked");
        for cell in &mut books[cells.start as usize..cells.end as usize] {
            if cell.len() == MEMORY {
                cell.remove(0);
            }
            cell.push(Written {
                number,
                began: now,
                ended: None,
            });
        }
    }

    fn end(&self, number: u64, now: u64) {
        let mut books = self.cells.lock().expect("no client panicked");
        for written in books.iter_mut().flatten() {
            if written.number == number && written.ended.is_none() {
                written.ended = Some(now);
            }
        }
    }

    /// Whether a read from `began` to `ended` may find `number` in a cell.
    fn may_hold(&self, cell: u64, number: u64, began: u64, ended: u64) -> bool {
        let books = self.cells.lock().expect("no client panicked");
        let writes = &books[cell as usize];
        let replaced = |by: u64| {
            writes.iter().any(|later| {
                let over = later.ended.is_some_and(|ended| ended < began);
                over && later.began > by
            })
        };
        writes.iter().any(|written| {
            let fits = value(written.number) == number && written.began < ended;
            fits && written.ended.is_none_or(|ended| !replaced(ended))
        })
    }
}

/// Numbers of holes and cuts are negative in spirit: what is read is zero.
fn value(number: u64) -> u64 {
    if number & HOLE == 0 { number } else { 0 }
}

const HOLE: u64 = 1 << 63;

/// An open file of a client.
struct Handle {
    file: Arc<File>,
    object: Arc<Object>,
}

/// See the module text.
pub(crate) struct Crowd {
    engine: Arc<Engine>,
    /// Its flash, when that answers late.
    flash: Option<Arc<LateDevice>>,
    size: Size,
    names: Book<Vec<Arc<File>>>,
    ticks: AtomicU64,
    clock: SharedClock,
    /// How often the tier was put back.
    put_back: AtomicU64,
}

/// Lots of one client.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = mix(self.0, 1);
        (self.0 >> 20) % end
    }
}

impl Crowd {
    /// A crowd before a new engine with threads of its own.
    pub(crate) fn new(size: Size, seed: u64) -> Arc<Self> {
        let clock = SharedClock::new(Arc::new(Ticking::default()));
        let config = EngineConfig {
            page_size: PAGE as u32,
            policy: "lru".into(),
            pool_bytes: 3 * PAGE,
            write_buffer_pages: 2,
            writers_max: 1,
            write_back: true,
            dirty: DirtySettings {
                dirty_high: 0.3,
                recovery_s: 0.1,
                ..DirtySettings::default()
            },
            clock: clock.clone(),
            planted: size.planted,
            ..EngineConfig::default()
        };
        let options = StoreOptions {
            page_size: PAGE as u32,
            size: Some(Store::length_for(config.blocks_for(8), PAGE as u32)),
            clock: clock.clone(),
            ..StoreOptions::default()
        };
        let flash = (size.late > 0).then(|| Arc::new(LateDevice::new(seed)));
        let device: Arc<dyn Device> = match &flash {
            Some(flash) => Arc::clone(flash) as Arc<dyn Device>,
            None => Arc::new(MemoryDevice::new()),
        };
        let store = Store::with_device(device, "memory", &options);
        let engine = Engine::start(config, Some(store.expect("a cache"))).expect("starts");
        if let Some(flash) = &flash {
            flash.be_late(size.late);
        }
        Arc::new(Self {
            engine,
            flash,
            size,
            names: Book::new((0..size.names).map(|name| File::new(name, 1)).collect()),
            ticks: AtomicU64::new(1),
            clock,
            put_back: AtomicU64::new(0),
        })
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets all clients do their steps, and looks at everything afterwards.
    pub(crate) fn run(self: &Arc<Self>, seed: u64) {
        // In every other crowd those who leave a file wait until it is closed.
        if seed.is_multiple_of(2) {
            self.engine.limit_objects(2);
        }
        let client = |number| {
            let crowd = Arc::clone(self);
            thread::spawn(move || crowd.client(Draw(mix(seed, number))))
        };
        let clients: Vec<_> = (0..self.size.clients).map(client).collect();
        for client in clients {
            client.join().expect("a client ends well");
        }
        self.look_at_everything();
        match self.engine.stop() {
            // The map could not be saved: a stop says so.
            Err(Error::Save { .. }) if self.flash.is_some() => {}
            stopped => stopped.expect("stops"),
        }
    }

    /// How many requests of flash were given up, and how often the tier was put back.
    pub(crate) fn late(&self) -> (u64, u64) {
        let given_up = self.flash.as_ref().map_or(0, |flash| flash.given_up());
        (given_up, self.put_back.load(Ordering::Relaxed))
    }

    fn client(&self, mut draw: Draw) {
        let mut open: Vec<Handle> = Vec::new();
        for _ in 0..self.size.steps {
            let opens = draw.below(10) < self.size.opens;
            if open.is_empty() || (opens && open.len() < 2) {
                open.extend(self.open(&mut draw));
            } else if opens {
                self.close(open.swap_remove(draw.below(2) as usize));
            } else {
                let at = draw.below(open.len() as u64) as usize;
                self.request(&open[at], &mut draw);
            }
        }
        open.into_iter().for_each(|handle| self.close(handle));
    }

    fn open(&self, draw: &mut Draw) -> Option<Handle> {
        let name = draw.below(self.size.names as u64) as usize;
        let file = Arc::clone(&self.names.lock().expect("no client panicked")[name]);
        let named = file.named.read();
        if !*named {
            return None;
        }
        let object = self.engine.open_object(file.spec()).expect("opens");
        drop(named);
        Some(Handle { file, object })
    }

    fn close(&self, handle: Handle) {
        self.engine.close_object(&handle.object);
    }

    fn request(&self, handle: &Handle, draw: &mut Draw) {
        let first = draw.below(CELLS);
        let cells = first..(first + 1 + draw.below(4)).min(CELLS);
        match draw.below(20) {
            0..7 => self.read(handle, cells),
            7..13 => self.write(handle, cells),
            13 => self.engine.sync(&handle.object, true).expect("syncs"),
            14 => self.cut(handle, cells.start),
            15 => self.punch(handle, cells),
            16 => self.rename(handle, draw.below(100)),
            17 | 18 => self.unlink(draw),
            _ => {
                self.clock.pass(Duration::from_secs(1));
                for _ in 0..8 {
                    self.engine.step();
                }
                self.put_back();
            }
        }
    }

    /// An operator puts the tier back, which is refused while the device owes answers.
    fn put_back(&self) {
        if self.flash.is_none() || self.engine.tier_state().is_ok() {
            return;
        }
        match self.engine.tier_on() {
            Ok(()) => _ = self.put_back.fetch_add(1, Ordering::Relaxed),
            Err(Error::Late { .. } | Error::StillInUse { .. } | Error::CacheIo { .. }) => {}
            Err(error) => panic!("tier on: {error}"),
        }
    }

    fn read(&self, handle: &Handle, cells: Range<u64>) {
        let length = (cells.end - cells.start) * CELL;
        let mut bytes = vec![0; length as usize];
        let began = self.tick();
        let read = self
            .engine
            .read(&request(&handle.object, cells.start * CELL), &mut bytes)
            .expect("reads");
        bytes[read..].fill(0);
        let ended = self.tick();
        for (cell, bytes) in cells.zip(bytes.chunks(CELL as usize)) {
            let words: Vec<u64> = bytes
                .chunks(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                .collect();
            let whole = words.iter().all(|word| *word == words[0]);
            let allowed = whole && handle.file.may_hold(cell, words[0], began, ended);
            assert!(
                allowed,
                "cell {cell} of {:?} reads {} of {:?}",
                handle.file.identity,
                words[0],
                handle.file.cells.lock().expect("no client panicked")[cell as usize]
            );
        }
    }

    fn change(&self, file: &File, cells: Range<u64>, hole: u64, change: impl FnOnce(u64)) {
        let number = self.tick() | hole;
        file.begin(cells, number, self.tick());
        change(number);
        file.end(number, self.tick());
    }

    fn write(&self, handle: &Handle, cells: Range<u64>) {
        let _others = handle.file.layout.read();
        let words = (cells.end - cells.start) * CELL / 8;
        self.change(&handle.file, cells.clone(), 0, |number| {
            let bytes: Vec<u8> = (0..words).flat_map(|_| number.to_le_bytes()).collect();
            self.engine
                .write(&request(&handle.object, cells.start * CELL), &bytes)
                .expect("writes");
        });
    }

    fn cut(&self, handle: &Handle, first: u64) {
        let _alone = handle.file.layout.write();
        self.change(&handle.file, first..CELLS, HOLE, |_| {
            let cut = self.engine.truncate(&handle.object, first * CELL);
            cut.expect("cuts");
        });
    }

    fn punch(&self, handle: &Handle, cells: Range<u64>) {
        let _alone = handle.file.layout.write();
        let length = (cells.end - cells.start) * CELL;
        self.change(&handle.file, cells.clone(), HOLE, |_| {
            let punched = self
                .engine
                .punch(&handle.object, cells.start * CELL, length);
            punched.expect("punches");
        });
    }

    fn rename(&self, handle: &Handle, number: u64) {
        let bytes = &handle.file.bytes;
        let stamp = || bytes.stamp();
        let change = || {
            bytes.attributes.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let identity = &handle.file.identity;
        let changed = self.engine.change_metadata(identity, stamp, change);
        changed.expect("renames");
        self.engine
            .rename(&handle.object, &format!("name {number}"));
    }

    /// A name goes to a new file; the old one lives on while somebody has it open.
    fn unlink(&self, draw: &mut Draw) {
        let name = draw.below(self.size.names as u64) as usize;
        let old = Arc::clone(&self.names.lock().expect("no client panicked")[name]);
        let mut named = old.named.write();
        if !std::mem::replace(&mut *named, false) {
            return;
        }
        self.engine.before_unlink(&old.identity);
        let new = File::new(name, old.identity.generation + 1);
        self.names.lock().expect("no client panicked")[name] = new;
        let grave = Grave {
            kept: None,
            directory: (1, 2),
            sync: Arc::new(|| Ok(())),
        };
        self.engine.unlinked(&old.identity, grave);
    }

    /// Nobody is at work: what is read is what was written last, and after a flush base has it.
    fn look_at_everything(&self) {
        if let Some(flash) = &self.flash {
            flash.answer_everything();
        }
        let files = self.names.lock().expect("no client panicked").clone();
        for file in &files {
            let object = self.engine.open_object(file.spec()).expect("opens");
            let file = Arc::clone(file);
            let handle = Handle { file, object };
            self.read(&handle, 0..CELLS);
            self.close(handle);
        }
        self.engine.flush(|_| true).expect("flushes");
        for file in &files {
            let mut bytes = vec![0; (CELLS * CELL) as usize];
            let read = file.bytes.read_at(&mut bytes, 0).expect("reads");
            bytes[read..].fill(0);
            let now = self.tick();
            for (cell, bytes) in (0..CELLS).zip(bytes.chunks(CELL as usize)) {
                let word = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                assert!(file.may_hold(cell, word, now, now), "base has {word}");
            }
        }
        self.engine.assert_invariants();
    }
}

fn request(object: &Object, offset: u64) -> Request<'_> {
    Request {
        object,
        offset,
        hints: HintSet::UNKNOWN,
        client: 1,
    }
}
