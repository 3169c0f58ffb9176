//! What each object costs on base, and what it would cost on flash.

use super::choose::Item;
use crate::error::SimError;
use crate::request::{Kind, PageRequest};
use crate::workload::Workload;
use serde::Serialize;
use std::collections::BTreeMap;
use thermocline_core::hint::hint_type;
use thermocline_core::{Costs, FileKind, HintSet, ObjectId, PageType, RequestType};

/// Pages of one object that were asked for.
///
/// A page is asked for *in sequence* when it is not the first of its I/O, when the trace says that
/// the read continues a stream, or, where the trace does not say why (and for writes), when its
/// I/O begins where the last one of the same kind on the object ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accesses {
    /// Read at random.
    pub random_reads: u64,
    /// Read in sequence.
    pub sequential_reads: u64,
    /// Written at random.
    pub random_writes: u64,
    /// Written in sequence.
    pub sequential_writes: u64,
}

impl Accesses {
    /// All pages read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.random_reads + self.sequential_reads
    }

    /// All pages written.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.random_writes + self.sequential_writes
    }

    /// Time base needs to read them, ns.
    #[must_use]
    pub fn read_ns(&self, costs: &Costs) -> f64 {
        self.random_reads as f64 * costs.base_random_read
            + self.sequential_reads as f64 * costs.base_sequential_read
    }

    /// Time base needs to write them, ns. A page written after its neighbour costs as if read.
    #[must_use]
    pub fn write_ns(&self, costs: &Costs) -> f64 {
        self.random_writes as f64 * costs.base_random_write
            + self.sequential_writes as f64 * costs.base_sequential_read
    }
}

/// What an object holds, by the pages and files that were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// Nothing says.
    Unknown,
    /// Mostly table data.
    Table,
    /// Mostly an index. A file that holds a table with its indexes is what most of its requests
    /// were for.
    Index,
}

/// What placing an object on flash means for its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The object lives on flash: writes go there (the paper's placement).
    Moved,
    /// Flash holds a copy: writes still wait for base (a pinned object of a write-through tier).
    Copied,
}

/// One object's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectProfile {
    /// Its number in the workload.
    #[serde(skip)]
    pub object: ObjectId,
    /// The name recorded in the trace: a path below the mountpoint, where a mount recorded it.
    pub file: String,
    /// What tells it from all others: the same, after its trace where another trace has the name
    /// too.
    pub path: String,
    /// What people call it: the name of the table or index where the trace has one, else the path.
    pub name: String,
    /// Pages up to the last one that was asked for: a file may be longer. In a sample its share of
    /// them, as of all that is counted.
    pub pages: u64,
    /// What it holds.
    pub kind: ObjectKind,
    /// What was asked for.
    pub accesses: Accesses,
}

impl ObjectProfile {
    /// The benefit B of the paper: time saved were it on flash, ns.
    #[must_use]
    pub fn benefit(&self, costs: &Costs, holding: Holding) -> f64 {
        let reads = self.accesses.read_ns(costs) - self.accesses.reads() as f64 * costs.flash_read;
        let written = self.accesses.writes() as f64 * costs.flash_write;
        match holding {
            Holding::Moved => reads + self.accesses.write_ns(costs) - written,
            // The copy is renewed while nobody waits.
            Holding::Copied => reads,
        }
    }
}

/// The objects as items to place.
#[must_use]
pub fn items(profiles: &[ObjectProfile], costs: &Costs, holding: Holding) -> Vec<Item> {
    let item = |profile: &ObjectProfile| Item {
        pages: profile.pages.max(1),
        benefit: profile.benefit(costs, holding),
        kind: profile.kind,
    };
    profiles.iter().map(item).collect()
}

/// One row for each object, by number. One pass; O(1) a page request.
///
/// # Errors
/// When a trace that is not in memory cannot be read again.
pub fn profile(workload: &Workload) -> Result<Vec<ObjectProfile>, SimError> {
    let facts = workload.facts();
    let mut seen = vec![Seen::default(); facts.extents.len()];
    workload.for_each_chunk(|chunk, hint_sets| {
        for request in chunk.iter().filter(|request| request.kind() != Kind::Trim) {
            let hints = &hint_sets[request.hints as usize];
            seen[request.object.0 as usize].add(request, hints);
        }
    })?;
    let row = |(number, seen): (u32, &Seen)| {
        let object = ObjectId(number);
        let path = workload.object_path(object);
        let name = seen
            .named
            .map(|hints| workload.value_name(&hints, hint_type::OBJECT));
        ObjectProfile {
            object,
            name: name.unwrap_or_else(|| path.clone()),
            file: path.clone(),
            path,
            pages: facts.pages_of(object),
            kind: seen.kind(),
            accesses: seen.accesses,
        }
    };
    let mut rows: Vec<ObjectProfile> = (0..).zip(&seen).map(row).collect();
    tell_apart(workload, &mut rows);
    Ok(rows)
}

/// Puts the trace before the path, and the name, of objects that another trace has too. In one
/// trace no two have the same.
fn tell_apart(workload: &Workload, rows: &mut [ObjectProfile]) {
    let mut objects: BTreeMap<String, u32> = BTreeMap::new();
    for row in rows.iter() {
        *objects.entry(row.file.clone()).or_default() += 1;
    }
    for row in rows.iter_mut().filter(|row| objects[&row.file] > 1) {
        let trace = workload.trace_of_object(row.object) + 1;
        row.path = format!("trace {trace}: {}", row.file);
        row.name = format!("trace {trace}: {}", row.name);
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    accesses: Accesses,
    /// The page after the last I/O, of reads and of writes.
    ends: [Option<u64>; 2],
    /// Requests for table and for index pages.
    votes: [u64; 2],
    /// Hints that name the object.
    named: Option<HintSet>,
}

impl Seen {
    fn add(&mut self, request: &PageRequest, hints: &HintSet) {
        let read = request.kind() == Kind::Read;
        let end = &mut self.ends[usize::from(read)];
        let follows = *end == Some(request.index);
        *end = request.index.checked_add(1);
        let told = read && hints.request() != RequestType::Unknown;
        let sequential = request.pages() == 0
            || match told {
                true => hints.request() == RequestType::SequentialRead,
                false => follows,
            };
        *match (read, sequential) {
            (true, false) => &mut self.accesses.random_reads,
            (true, true) => &mut self.accesses.sequential_reads,
            (false, false) => &mut self.accesses.random_writes,
            (false, true) => &mut self.accesses.sequential_writes,
        } += 1;
        if let Some(index) = is_index(hints) {
            self.votes[usize::from(index)] += 1;
        }
        if self.named.is_none() && hints.get(hint_type::OBJECT) != 0 {
            self.named = Some(*hints);
        }
    }

    fn kind(&self) -> ObjectKind {
        match self.votes {
            [0, 0] => ObjectKind::Unknown,
            [table, index] if index > table => ObjectKind::Index,
            _ => ObjectKind::Table,
        }
    }
}

/// Whether the request is for an index; nothing when nothing says.
fn is_index(hints: &HintSet) -> Option<bool> {
    match (hints.file_kind(), hints.page_type()) {
        (FileKind::Index, _) => Some(true),
        (_, PageType::BtreeLeaf | PageType::BtreeInner | PageType::BtreeMeta) => Some(true),
        (_, PageType::OtherIndex) => Some(true),
        (_, PageType::Heap) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::VecRecords;
    use crate::workload::WorkloadOptions;
    use thermocline_trace::{Op, Served, TraceRecord};

    fn record(op: Op, object: u32, page: u64, pages: u64, request: RequestType) -> TraceRecord {
        TraceRecord {
            time_ns: 0,
            client: 1,
            op,
            served: Served::Base,
            object: ObjectId(object),
            offset: page * 4096,
            length: pages * 4096,
            latency_ns: 0,
            hints: HintSet::UNKNOWN.with(hint_type::REQUEST, request.value()),
        }
    }

    #[test]
    fn random_and_sequential_are_told_apart() {
        let (unknown, read) = (RequestType::Unknown, RequestType::Read);
        let records = vec![
            record(Op::Read, 0, 10, 3, unknown), // 1 random, 2 in sequence
            record(Op::Read, 0, 13, 1, unknown), // goes on
            record(Op::Read, 0, 14, 1, read),    // goes on, but the trace says it is none
            record(Op::Read, 0, 99, 1, RequestType::SequentialRead),
            record(Op::Write, 0, 14, 1, unknown),
            record(Op::Write, 0, 15, 1, unknown),
            record(Op::Read, 7, 0, 1, unknown),
        ];
        let openers = vec![VecRecords::opener(records, 4096)];
        let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let rows = profile(&workload.expect("opens")).expect("profiles");
        assert_eq!(
            rows[0].accesses,
            Accesses {
                random_reads: 2,
                sequential_reads: 4,
                random_writes: 1,
                sequential_writes: 1
            }
        );
        assert_eq!((rows.len(), rows[0].pages, rows[1].pages), (2, 100, 1));
        assert_eq!(
            (rows[0].path.as_str(), rows[1].kind),
            ("object 0", ObjectKind::Unknown)
        );
        let costs = Costs {
            base_random_read: 100.0,
            base_sequential_read: 10.0,
            base_random_write: 200.0,
            flash_read: 5.0,
            flash_write: 20.0,
        };
        let benefit = |holding| rows[0].benefit(&costs, holding);
        assert_eq!(benefit(Holding::Copied), 2.0 * 95.0 + 4.0 * 5.0);
        assert_eq!(benefit(Holding::Moved), 210.0 + 180.0 - 10.0);
    }
}
