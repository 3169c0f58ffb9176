//! How long a clean start takes that does not wait for its map: until the first read is served,
//! and until the whole map is in use. Every block of the cache holds a clean page of one of up to
//! 100,000 files, in no order.
//!
//! `cargo run --release -p thermocline --example start_without_map -- --size 64G [--dir DIR]`
//!
//! The cache is a sparse file: map, journal and table of files are real, read past the page cache
//! where the file system allows; its pages are holes, and base is a device that has nothing but
//! zeros and answers at once. Everything is removed at the end.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thermocline::classify::Dialect;
use thermocline::device::{Device, FileDevice, FileOptions};
use thermocline::store::{Batch, Fate, ObjectChange, SavedObject, checksum};
use thermocline::{
    Engine, EngineConfig, FileKind, HintSet, Identity, MapLoad, Object, ObjectSpec, Request, Stamp,
    Store, StoreOptions,
};
use thermocline_core::ledger::{MapChange, MapEntry};
use thermocline_core::{BlockId, ObjectId, PageId};

const PAGE: u32 = 8192;
/// Changes in a batch.
const CHANGES: u32 = 100_000;
/// One block of so many holds what its checksum says: these are read at the end.
const READABLE: u32 = 65_536;

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.len().checked_sub(1)?);
    let shift = match unit {
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_shl(shift)
}

fn arguments() -> Option<(u64, PathBuf, MapLoad)> {
    let (mut size, mut dir, mut load) = (None, std::env::temp_dir(), MapLoad::BySize);
    let mut all = std::env::args().skip(1);
    while let Some(name) = all.next() {
        match name.as_str() {
            "--size" => size = bytes(&all.next()?),
            "--dir" => dir = all.next()?.into(),
            "--wait" => load = MapLoad::Before,
            _ => return None,
        }
    }
    Some((size?, dir, load))
}

fn options(size: Option<u64>, load: MapLoad) -> StoreOptions {
    StoreOptions {
        page_size: PAGE,
        size,
        load,
        ..StoreOptions::default()
    }
}

fn device(path: &Path) -> io::Result<Arc<FileDevice>> {
    let options = FileOptions {
        create: true,
        ..FileOptions::default()
    };
    Ok(Arc::new(FileDevice::open(path, options)?))
}

/// A base file of any length, all zeros.
struct Zeros;

impl Device for Zeros {
    fn read_at(&self, buf: &mut [u8], _: u64) -> io::Result<usize> {
        buf.fill(0);
        Ok(buf.len())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(1 << 50)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn label(&self) -> String {
        "zeros".into()
    }
}

/// What the cache holds: pages of a base some 20 to 40 times as large, scattered.
#[derive(Clone, Copy)]
struct Base {
    files: u64,
    pages: u64,
}

impl Base {
    /// As many files as the object table of a cache of `size` bytes takes.
    fn of(size: u64, blocks: u32) -> Self {
        Self {
            files: (size >> 18).clamp(1, 100_000),
            pages: (20 * u64::from(blocks)).next_power_of_two(),
        }
    }

    /// Another page for each block.
    fn page(self, block: u32) -> PageId {
        // An odd factor maps the numbers of pages one to one.
        let number = u64::from(block).wrapping_mul(0x9E37_79B9_7F4A_7C15) & (self.pages - 1);
        let length = self.pages.div_ceil(self.files);
        PageId::new(ObjectId(1 + (number / length) as u32), number % length)
    }

    fn entry(self, block: u32) -> MapEntry {
        let page = self.page(block);
        let right = || checksum(page, &[0; PAGE as usize]);
        MapEntry {
            page,
            checksum: block.is_multiple_of(READABLE).then(right).unwrap_or(1),
            version: 1,
            dirty: false,
        }
    }
}

const STAMP: Stamp = Stamp {
    length: 1 << 50,
    mtime_ns: 0,
    ctime_ns: 0,
};

fn identity(id: u32) -> Identity {
    Identity {
        inode: u64::from(id),
        ..Identity::default()
    }
}

fn saved(id: u32) -> SavedObject {
    SavedObject {
        id: ObjectId(id),
        identity: identity(id),
        stamp: STAMP,
        name: "table".into(),
        fate: Fate::default(),
        promised: true,
    }
}

fn spec(identity: Identity) -> ObjectSpec {
    ObjectSpec {
        name: "table".into(),
        group: "table".into(),
        identity,
        base: Arc::new(Zeros),
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(STAMP)),
        touch: thermocline::untouched(),
    }
}

/// Fills the map and closes the cache.
fn fill(path: &Path, size: u64) -> Result<Base, Box<dyn Error>> {
    let store = Store::with_device(
        device(path)?,
        "cache",
        &options(Some(size), MapLoad::Before),
    )?;
    store.mark_open()?;
    let base = Base::of(size, store.blocks());
    let ids: Vec<u32> = (1..=base.files as u32).collect();
    for some in ids.chunks(1000) {
        let objects = some.iter().map(|id| ObjectChange::Put(saved(*id)));
        store.commit(&Batch {
            objects: objects.collect(),
            ..Batch::default()
        })?;
    }
    for from in (0..store.blocks()).step_by(CHANGES as usize) {
        let to = (from + CHANGES).min(store.blocks());
        let change = |block| MapChange::Set {
            block: BlockId(block),
            entry: Some(base.entry(block)),
        };
        store.append(&Batch {
            changes: (from..to).map(change).collect(),
            ..Batch::default()
        })?;
        if store.wants_checkpoint() {
            store.checkpoint()?;
        }
    }
    store.close_as(ids.into_iter().map(saved).collect(), true)?;
    Ok(base)
}

/// A line of `/proc/self/status`, in MiB; 0 where the system does not tell.
fn resident(what: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) / 1024
}

fn read(engine: &Engine, object: &Object, page: u64) -> io::Result<()> {
    let request = Request {
        object,
        offset: page * u64::from(PAGE),
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    engine.read(&request, &mut [0; PAGE as usize]).map(drop)
}

fn from_flash(engine: &Engine) -> u64 {
    engine.stats().page_reads["flash"]
}

/// Reads the pages whose copies are readable: how many came from flash, of how many.
fn hits(engine: &Engine, base: Base, blocks: u32) -> Result<(u64, u64), Box<dyn Error>> {
    let before = from_flash(engine);
    let mut asked = 0;
    for block in (0..blocks).step_by(READABLE as usize) {
        let page = base.page(block);
        let object = engine.open_object(spec(identity(page.object.0)))?;
        read(engine, &object, page.index)?;
        engine.close_object(&object);
        asked += 1;
    }
    Ok((from_flash(engine) - before, asked))
}

fn measure(path: &Path, base: Base, load: MapLoad) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let store = Store::with_device(device(path)?, "cache", &options(None, load))?;
    let blocks = store.blocks();
    let config = EngineConfig {
        page_size: PAGE,
        ..EngineConfig::default()
    };
    let opened = started.elapsed();
    let engine = Engine::start(config, Some(store))?;
    let running = started.elapsed();
    engine.adopt(
        &|identity: &Identity, _: &str, _: bool| Ok(Some(spec(*identity))),
        false,
    )?;
    let adopted = started.elapsed();
    let first = base.page(0);
    let object = engine.open_object(spec(identity(first.object.0)))?;
    read(&engine, &object, first.index)?;
    let served = started.elapsed();
    let before = resident("VmRSS:");
    let (mut reads, mut slowest) = (0u64, Duration::ZERO);
    while engine.loading().is_some() {
        let asked = Instant::now();
        read(&engine, &object, first.index)?;
        slowest = slowest.max(asked.elapsed());
        reads += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let whole = started.elapsed();
    engine.close_object(&object);
    let (hits, asked) = hits(&engine, base, blocks)?;
    let tier = engine.stats().tier.unwrap_or_default();
    println!("opened            {:.3} s", opened.as_secs_f64());
    println!("running           {:.3} s", running.as_secs_f64());
    println!(
        "files compared    {:.3} s, {} files",
        adopted.as_secs_f64(),
        base.files
    );
    println!("first read        {:.3} s", served.as_secs_f64());
    println!(
        "map in use        {:.3} s, {} pages of {blocks} blocks",
        whole.as_secs_f64(),
        tier.restored
    );
    println!(
        "reads meanwhile   {reads}, the slowest {:.1} ms",
        slowest.as_secs_f64() * 1e3
    );
    println!(
        "resident set      {before} MiB at the first read, {} MiB at the end, {} MiB at most",
        resident("VmRSS:"),
        resident("VmHWM:")
    );
    println!("read from flash   {hits} of {asked} pages read afterwards");
    let stopping = Instant::now();
    engine.stop()?;
    println!(
        "stop              {:.3} s",
        stopping.elapsed().as_secs_f64()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: start_without_map --size 64G [--dir DIR] [--wait]";
    let (size, dir, load) = arguments().ok_or(usage)?;
    let dir = tempfile::tempdir_in(dir)?;
    let path = dir.path().join("cache");
    let started = Instant::now();
    let base = fill(&path, size)?;
    println!(
        "cache of {size} bytes on a sparse file, made in {:.1?}",
        started.elapsed()
    );
    measure(&path, base, load)
}
