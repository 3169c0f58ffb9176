//! How long a start takes after a crash: reads a cache whose every block holds a page and whose
//! journal is as full as it gets, then builds the tables of an engine from it. The pages are those
//! of up to 100,000 files, in no order.
//!
//! `cargo run --release -p thermocline --example recovery_time -- --size 10G [--dir DIR]`
//!
//! The cache is a sparse file: map, journal and tables are real, read past the page cache where
//! the file system allows; its pages are holes, so the pages that recovery verifies cost less than
//! on a full device (their number is printed). Everything is removed at the end.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thermocline::device::{Device, FileDevice, FileOptions, Metered};
use thermocline::store::{
    BaseIdentity, Batch, Fate, MapLoad, ObjectChange, SavedObject, Store, StoreOptions, checksum,
};
use thermocline::{Engine, EngineConfig, Identity, Stamp};
use thermocline_core::ledger::{MapChange, MapEntry};
use thermocline_core::{BlockId, ObjectId, PageId};

const PAGE: u32 = 8192;
/// Changes in a batch.
const CHANGES: u32 = 100_000;
/// Changes appended without a sync at the end: recovery reads the page of each.
const UNSYNCED: u32 = 30_000;

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.len().checked_sub(1)?);
    let shift = match unit {
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_shl(shift)
}

fn arguments() -> Option<(u64, PathBuf)> {
    let mut size = None;
    let mut dir = std::env::temp_dir();
    let mut all = std::env::args().skip(1);
    while let Some(name) = all.next() {
        match name.as_str() {
            "--size" => size = bytes(&all.next()?),
            "--dir" => dir = all.next()?.into(),
            _ => return None,
        }
    }
    Some((size?, dir))
}

fn options(size: Option<u64>) -> StoreOptions {
    StoreOptions {
        page_size: PAGE,
        size,
        base: BaseIdentity {
            file_system: 1,
            inode: 1,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format: false,
        deadline: None,
        load: MapLoad::Before,
        ..StoreOptions::default()
    }
}

fn device(path: &Path) -> std::io::Result<FileDevice> {
    let create = true;
    FileDevice::open(
        path,
        FileOptions {
            create,
            ..FileOptions::default()
        },
    )
}

/// Files that a cache of `size` bytes has pages of: as many as its object table takes.
fn files(size: u64) -> u32 {
    (size >> 18).clamp(1, 100_000) as u32
}

/// What the cache holds: pages of a base some 20 to 40 times as large, scattered.
#[derive(Clone, Copy)]
struct Base {
    files: u64,
    pages: u64,
}

impl Base {
    fn of(size: u64, blocks: u32) -> Self {
        Self {
            files: u64::from(files(size)),
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
}

/// The entry of a block that reads zeros; its checksum only where it will be looked at.
fn entry(block: u32, base: Base, version: u64, verified: bool) -> MapEntry {
    let page = base.page(block);
    let zeros = [0; PAGE as usize];
    MapEntry {
        page,
        checksum: if verified { checksum(page, &zeros) } else { 1 },
        version,
        dirty: block.is_multiple_of(4),
    }
}

fn batch(from: u32, to: u32, base: Base, version: u64, verified: bool) -> Batch {
    let change = |block| MapChange::Set {
        block: BlockId(block),
        entry: Some(entry(block, base, version, verified)),
    };
    Batch {
        changes: (from..to).map(change).collect(),
        ..Batch::default()
    }
}

fn object(id: u32) -> SavedObject {
    let identity = Identity {
        inode: u64::from(id),
        ..Identity::default()
    };
    SavedObject {
        id: ObjectId(id),
        identity,
        stamp: Stamp::default(),
        name: "table".into(),
        fate: Fate::default(),
        promised: true,
    }
}

/// Fills the map, then the journal up to half, then appends what is not synced.
fn fill(path: &Path, size: u64) -> Result<(), Box<dyn Error>> {
    let store = Store::with_device(Arc::new(device(path)?), "cache", &options(Some(size)))?;
    store.mark_open()?;
    let files = files(size);
    for first in (1..=files).step_by(1000) {
        let some = first..=(first + 999).min(files);
        store.commit(&Batch {
            objects: some.map(|id| ObjectChange::Put(object(id))).collect(),
            ..Batch::default()
        })?;
        if store.wants_checkpoint() {
            store.checkpoint()?;
        }
    }
    let blocks = store.blocks();
    let base = Base::of(size, blocks);
    for from in (0..blocks).step_by(CHANGES as usize) {
        store.append(&batch(from, (from + CHANGES).min(blocks), base, 1, false))?;
        if store.wants_checkpoint() {
            store.checkpoint()?;
        }
    }
    store.checkpoint()?;
    let mut at = 0;
    while !store.wants_checkpoint() {
        let to = (at + 1000).min(blocks);
        store.append(&batch(at, to, base, 2, true))?;
        at = if to == blocks { 0 } else { to };
    }
    store.commit(&Batch::default())?;
    let unsynced = UNSYNCED.min(blocks / 8);
    for from in (0..unsynced).step_by(1000) {
        store.append(&batch(from, (from + 1000).min(unsynced), base, 3, true))?;
    }
    Ok(())
}

/// What a start found, with the seconds that reading and building took.
struct Start {
    entries: usize,
    batches: u64,
    lost: usize,
    read: u64,
    reading: Duration,
    building: Duration,
}

fn measure(path: &Path) -> Result<Start, Box<dyn Error>> {
    let device = Arc::new(Metered::new(device(path)?));
    let metered: Arc<dyn Device> = device.clone();
    let started = Instant::now();
    let store = Store::with_device(metered, "cache", &options(None))?;
    let reading = started.elapsed();
    let read = device.meter().read.bytes;
    let found = store.recovered().ok_or("a cache was there")?;
    let (entries, batches, lost) = (found.entries.len(), found.journal_batches, found.lost.len());
    let config = EngineConfig {
        page_size: PAGE,
        inline: true,
        ..EngineConfig::default()
    };
    let started = Instant::now();
    let engine = Engine::start(config, Some(store))?;
    let building = started.elapsed();
    let held = engine.stats().tier.map_or(0, |tier| tier.restored) as usize;
    assert!(held > entries / 2, "{held} of {entries} pages came back");
    Ok(Start {
        entries,
        batches,
        lost,
        read,
        reading,
        building,
    })
}

/// The largest resident set so far, in bytes; 0 where the system does not tell.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

fn main() -> Result<(), Box<dyn Error>> {
    let (size, dir) = arguments().ok_or("usage: recovery_time --size 1G [--dir DIR]")?;
    let dir = tempfile::tempdir_in(dir)?;
    let path = dir.path().join("cache");
    let started = Instant::now();
    fill(&path, size)?;
    println!(
        "cache of {size} bytes on a sparse file, made in {:.1?}",
        started.elapsed()
    );
    let filling = peak();
    let start = measure(&path)?;
    let entries = start.entries as f64;
    let map = (start.entries as u64).div_ceil(15) * 512;
    println!("entries           {}", start.entries);
    println!("map               {map} bytes");
    println!("journal batches   {}", start.batches);
    println!("bytes read        {}", start.read);
    for (what, took) in [("reading", start.reading), ("building", start.building)] {
        let seconds = took.as_secs_f64();
        let of_many = seconds * 1e8 / entries;
        println!("{what:<17} {seconds:.3} s, {of_many:.1} s per 100 M entries");
    }
    println!("lost              {}", start.lost);
    println!(
        "resident set      {:.1} bytes an entry at most ({:.1} while the cache was made)",
        peak() as f64 / entries,
        filling as f64 / entries,
    );
    assert_eq!(start.lost, 0, "all of it was readable");
    Ok(())
}
