//! The offline verifier: reads a cache and says what is wrong with it. Never writes.

use super::access;
use super::checksum;
use super::layout::Layout;
use super::objects::Fate;
use super::open::{lock_exclusively, read_superblock};
use super::recover::{self, Lost, Reading};
use super::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::device::{AlignedBuf, Device, FileDevice, FileOptions};
use crate::error::Error;
use crate::mutant::Mutant;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use thermocline_core::ObjectId;

/// Problems listed; more are only counted.
const LISTED_MAX: usize = 1000;

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// What is being read.
    pub step: CheckStep,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStep {
    /// The map.
    Map,
    /// The pages.
    Data,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub text: String,
    /// False for what a crash can leave behind without harm.
    pub damage: bool,
}

/// Pages of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPages {
    /// Its id.
    pub id: ObjectId,
    /// Its name when it was last noted.
    pub name: String,
    /// What was under way with it.
    pub fate: Fate,
    /// Pages on flash that base has too.
    pub clean: u64,
    /// Pages of which flash has the newest copy.
    pub dirty: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes per page.
    pub page_size: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Length in bytes.
    pub length: u64,
    /// Base it belongs to.
    pub base: String,
    /// Whether it was closed.
    pub clean_stop: bool,
    /// Wall clock of the newest batch, ns since 1970.
    pub last_commit_ns: i64,
    /// Batches in the journal.
    pub journal_batches: u64,
    /// Objects, sorted by id.
    pub objects: Vec<ObjectPages>,
    /// Regions with base writes under way.
    pub intents: u64,
    /// Entries that a higher version of the same page outranks.
    pub duplicates: u64,
    /// Pages whose bytes were compared with their checksums.
    pub verified: u64,
    /// Dirty pages whose bytes are not there.
    pub dirty_damaged: u64,
    /// What is wrong, the first thousand.
    pub problems: Vec<Problem>,
    /// Problems that are not listed.
    pub more_problems: u64,
}

impl Report {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.more_problems == 0 && self.problems.iter().all(|p| !p.damage)
    }

    /// Clean and dirty pages.
    #[must_use]
    pub fn pages(&self) -> (u64, u64) {
        let objects = self.objects.iter();
        objects.fold((0, 0), |(c, d), o| (c + o.clean, d + o.dirty))
    }

    fn problem(&mut self, offset: u64, damage: bool, text: String) {
        debug_assert!(!text.is_empty() && offset < self.length);
        let problem = Problem {
            offset,
            text,
            damage,
        };
        match self.problems.len() < LISTED_MAX {
            true => self.problems.push(problem),
            false => self.more_problems += u64::from(damage),
        }
    }
}

/// Checks the cache at `path`, which no mount may have open. `data`: also compares the bytes of
/// every page with their checksum. Reads journal, object areas, map and, with `data`, all pages
/// that count.
///
/// # Errors
/// When it is in use, is no cache, or cannot be read at all.
pub fn check_path(
    path: &Path,
    data: bool,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Report, Error> {
    let name = path.display().to_string();
    let failed = |source| Error::CacheIo {
        path: name.clone(),
        source,
    };
    let options = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        // To open a pipe would wait for a writer.
        let message = "neither a regular file nor a block device";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
    }
    let lock = File::open(path).map_err(failed)?;
    lock_exclusively(&lock, &name)?;
    let found = lock.metadata().map_err(failed)?;
    let device = FileDevice::open(path, options).map_err(failed)?;
    let mut report = check(&device, &name, data, progress)?;
    if let Some(why) = access::objection(&found) {
        report.problem(0, false, format!("{why}: a mount refuses it"));
    }
    Ok(report)
}

/// As [`check_path`], for a device called `name` in messages.
///
/// # Errors
/// As [`check_path`].
pub fn check(
    device: &dyn Device,
    name: &str,
    data: bool,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Report, Error> {
    let failed = |source| Error::CacheIo {
        path: name.into(),
        source,
    };
    let found = device.len().map_err(failed)?;
    let superblock = read_superblock(device, name, found)?;
    let layout = superblock.layout;
    if found < layout.length {
        return Err(Error::Truncated {
            path: name.into(),
            found,
            expected: layout.length,
        });
    }
    let mut report = Report {
        page_size: layout.page_size,
        blocks: layout.blocks,
        length: layout.length,
        base: superblock.base.path.clone(),
        ..Report::default()
    };
    check_copies(device, &mut report).map_err(failed)?;
    let total = layout.map_bytes();
    let mut on_map = |done| {
        progress(CheckProgress {
            step: CheckStep::Map,
            done,
            total,
        });
    };
    let reading = recover::read(device, &superblock, Mutant::None, &mut on_map).map_err(failed)?;
    fill(&mut report, &layout, &reading);
    if data {
        check_data(device, &layout, &reading, &mut report, progress);
    }
    Ok(report)
}

/// Reports a copy of the superblock that is not whole: the other one is.
fn check_copies(device: &dyn Device, report: &mut Report) -> std::io::Result<()> {
    for copy in 0..2u64 {
        let mut block = [0; SUPERBLOCK_BYTES];
        let offset = copy * SUPERBLOCK_BYTES as u64;
        device.read_at(&mut block, offset)?;
        if let Err(why) = Superblock::decode(&block) {
            let text = format!("copy {copy} of the superblock: {why}; the other one is used");
            report.problem(offset, false, text);
        }
    }
    Ok(())
}

fn fill(report: &mut Report, layout: &Layout, reading: &Reading) {
    let found = &reading.recovered;
    report.clean_stop = found.clean_stop;
    report.last_commit_ns = found.last_commit_ns;
    report.journal_batches = found.journal_batches;
    report.intents = found.intents.len() as u64;
    report.duplicates = reading.duplicates;
    let objects = found.objects.iter().map(|o| ObjectPages {
        id: o.id,
        name: o.name.clone(),
        fate: o.fate,
        ..ObjectPages::default()
    });
    let mut objects: BTreeMap<ObjectId, ObjectPages> = objects.map(|o| (o.id, o)).collect();
    for (_, entry) in &found.entries {
        if let Some(object) = objects.get_mut(&entry.page.object) {
            object.dirty += u64::from(entry.dirty);
            object.clean += u64::from(!entry.dirty);
        }
    }
    report.objects = objects.into_values().collect();
    for lost in &found.lost {
        let offset = match lost {
            Lost::MapSector { offset, .. }
            | Lost::Journal { offset, .. }
            | Lost::Objects { offset, .. } => *offset,
            Lost::Orphans { .. } => layout.objects_offset(0),
            Lost::Unverified { block, .. } | Lost::Impossible { block, .. } => {
                layout.block_offset(*block)
            }
        };
        report.problem(offset, lost.is_damage(), lost.to_string());
    }
    if reading.out_of_range > 0 {
        let text = format!("{} entries for blocks past the last", reading.out_of_range);
        report.problem(layout.sector_offset(layout.map_sectors() - 1), true, text);
    }
    debug_assert_eq!(
        report.pages().0 + report.pages().1,
        found.entries.len() as u64
    );
}

/// Compares every page with its checksum, in the order of blocks.
fn check_data(
    device: &dyn Device,
    layout: &Layout,
    reading: &Reading,
    report: &mut Report,
    progress: &mut dyn FnMut(CheckProgress),
) {
    debug_assert_eq!(report.verified, 0);
    let mut page = AlignedBuf::new(layout.page_size as usize);
    let total = reading.recovered.entries.len() as u64 * u64::from(layout.page_size);
    for (block, entry) in &reading.recovered.entries {
        let offset = layout.block_offset(*block);
        let read = device.read_at(&mut page, offset);
        let fault = match &read {
            Ok(n) if *n == page.len() && checksum(entry.page, &page) == entry.checksum => None,
            Ok(_) => Some("wrong checksum".to_string()),
            Err(why) => Some(why.to_string()),
        };
        if let Some(fault) = fault {
            report.dirty_damaged += u64::from(entry.dirty);
            let kind = if entry.dirty { "dirty" } else { "clean" };
            let objects = &reading.objects.table;
            let name = objects
                .get(&entry.page.object)
                .map_or("", |o| o.name.as_str());
            let at = entry.page.index.saturating_mul(layout.page_size.into());
            let text = format!("{kind} page at byte {at} of {name}: {fault}");
            report.problem(offset, true, text);
        }
        report.verified += 1;
        progress(CheckProgress {
            step: CheckStep::Data,
            done: report.verified * u64::from(layout.page_size),
            total,
        });
    }
}
