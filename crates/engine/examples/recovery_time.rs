//! How long a start takes after a crash: reads a cache whose every block holds a page and whose
//! journal is as full as it gets.
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
    BaseIdentity, Batch, Fate, ObjectChange, Recovered, SavedObject, Store, StoreOptions, checksum,
};
use thermocline::{Identity, Stamp};
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

/// The entry of a block that reads zeros; its checksum only where it will be looked at.
fn entry(block: u32, version: u64, verified: bool) -> MapEntry {
    let page = PageId::new(ObjectId(1), u64::from(block));
    let zeros = [0; PAGE as usize];
    MapEntry {
        page,
        checksum: if verified { checksum(page, &zeros) } else { 1 },
        version,
        dirty: block.is_multiple_of(4),
    }
}

fn batch(from: u32, to: u32, version: u64, verified: bool) -> Batch {
    let change = |block| MapChange::Set {
        block: BlockId(block),
        entry: Some(entry(block, version, verified)),
    };
    Batch {
        changes: (from..to).map(change).collect(),
        ..Batch::default()
    }
}

/// Fills the map, then the journal up to half, then appends what is not synced.
fn fill(path: &Path, size: u64) -> Result<(), Box<dyn Error>> {
    let store = Store::with_device(Arc::new(device(path)?), "cache", &options(Some(size)))?;
    store.mark_open()?;
    let object = SavedObject {
        id: ObjectId(1),
        identity: Identity::default(),
        stamp: Stamp::default(),
        name: "table".into(),
        fate: Fate::Stays,
        promised: true,
    };
    store.commit(&Batch {
        objects: vec![ObjectChange::Put(object)],
        ..Batch::default()
    })?;
    let blocks = store.blocks();
    for from in (0..blocks).step_by(CHANGES as usize) {
        store.append(&batch(from, (from + CHANGES).min(blocks), 1, false))?;
    }
    store.checkpoint()?;
    let mut at = 0;
    while !store.wants_checkpoint() {
        let to = (at + 1000).min(blocks);
        store.append(&batch(at, to, 2, true))?;
        at = if to == blocks { 0 } else { to };
    }
    store.commit(&Batch::default())?;
    let unsynced = UNSYNCED.min(blocks / 8);
    for from in (0..unsynced).step_by(1000) {
        store.append(&batch(from, (from + 1000).min(unsynced), 3, true))?;
    }
    Ok(())
}

fn measure(path: &Path) -> Result<(Recovered, Duration, u64), Box<dyn Error>> {
    let device = Arc::new(Metered::new(device(path)?));
    let metered: Arc<dyn Device> = device.clone();
    let started = Instant::now();
    let mut store = Store::with_device(metered, "cache", &options(None))?;
    let recovered = store.take_recovered().ok_or("a cache was there")?;
    let took = started.elapsed();
    Ok((recovered, took, device.meter().read.bytes))
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
    let (recovered, took, read) = measure(&path)?;
    let entries = recovered.entries.len();
    let map = (entries as u64).div_ceil(15) * 512;
    println!("entries           {entries}");
    println!("map               {map} bytes");
    println!("journal batches   {}", recovered.journal_batches);
    println!("bytes read        {read}");
    println!("seconds           {:.3}", took.as_secs_f64());
    println!(
        "entries/second    {:.0}",
        entries as f64 / took.as_secs_f64()
    );
    println!("lost              {}", recovered.lost.len());
    assert!(recovered.lost.is_empty(), "all of it was readable");
    Ok(())
}
