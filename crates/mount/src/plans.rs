//! What query plans say of a read, from the file that the PostgreSQL extension publishes into.
//!
//! The file belongs to the database's user, who may write anything into it, cut it or put another
//! in its place; `classify::plan` believes no byte of it. It is read with `pread`, never mapped: a
//! mapping of a file that is cut kills its reader. A read of a slot costs the request one system
//! call on memory, and only requests of processes that publish make it.
//!
//! A helper thread reads the whole file, at most every [`ROUND`] and only while somebody asks: it
//! finds out which slot a process has and makes the table of all running plans, without those of
//! processes that are gone. A request takes that table and reads its own process's slot anew.
//!
//! States of the table: *none* (no file, or nobody asked yet), *fresh*, *stale* (older than
//! [`STALE_MS`]: no hint, until the helper has been round). Requests ask the helper; the helper
//! makes a table fresh.
//!
//! # Invariants
//! 1. A request never waits for the helper, and opens nothing.
//! 2. A hint comes from a slot that names the caller, or the leader that the caller's slot names,
//!    in a file of the caller's user; a level from a table that is not stale.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use thermocline::classify::Access;
use thermocline::classify::plan::{self, Entry, Plans, Relation, SLOT_BYTES, Slot};
use thermocline_core::hint::{HintSet, Role};

use crate::fs::Caller;
use crate::lock::{read, write};
use crate::roles::now_ms;

/// Between two readings of the file.
const ROUND: Duration = Duration::from_millis(50);
/// A table older than this is not used.
const STALE_MS: u64 = 300;

const _: () = assert!(ROUND.as_millis() * 2 < STALE_MS as u128);

/// Where the extension publishes, and for what range of priorities levels are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSource {
    /// The file; need not be there.
    pub path: PathBuf,
    /// C_prio = n2 − n1 of function (1), hStorage-DB §4.2.2.
    pub range: u8,
}

/// The file as the helper last found it.
#[derive(Debug)]
struct Table {
    file: Arc<File>,
    owner: u32,
    at_ms: u64,
    slots: HashMap<u32, u32>,
    plans: Plans,
}

#[derive(Debug)]
struct Shared {
    source: PlanSource,
    table: RwLock<Option<Arc<Table>>>,
    asked: AtomicBool,
    ended: AtomicBool,
}

/// Reads what plans say.
#[derive(Debug)]
pub(crate) struct PlanReader {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
}

impl PlanReader {
    /// Starts the helper thread.
    pub(crate) fn start(source: PlanSource) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            source,
            table: RwLock::default(),
            asked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let of_helper = Arc::clone(&shared);
        let helper = std::thread::Builder::new().name("plans".into());
        let helper = helper.spawn(move || go_round(&of_helper))?;
        Ok(Self {
            shared,
            helper: Some(helper),
        })
    }

    /// `hints` of a read of `relation`, with what the caller's plan says of it.
    pub(crate) fn hint(
        &self,
        hints: HintSet,
        (caller, role): (Caller, Role),
        relation: Relation,
        detected: Access,
    ) -> HintSet {
        let asked = &self.shared.asked;
        // Looked at first: a write of all requests to one place would make them wait in turn.
        if !asked.load(Ordering::Relaxed)
            && !asked.swap(true, Ordering::Relaxed)
            && let Some(helper) = &self.helper
        {
            helper.thread().unpark();
        }
        assert!(
            self.helper.is_some(),
            "invariant 1: another thread reads the file"
        );
        let Some(table) = read(&self.shared.table).clone() else {
            return hints;
        };
        if now_ms() > table.at_ms + STALE_MS || table.owner != caller.uid {
            return hints; // invariant 2
        }
        assert_eq!(table.owner, caller.uid, "invariant 2");
        let entry = match role {
            // It reads for whoever asked it to: the best of all.
            Role::IoWorker => table.plans.all(relation).copied(),
            _ => table.entry_of(caller.tid, relation),
        };
        let range = self.shared.source.range;
        entry.map_or(hints, |entry| {
            table.plans.hint(hints, &entry, detected, range)
        })
    }
}

impl Drop for PlanReader {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(helper) = self.helper.take() {
            helper.thread().unpark();
            // It holds nothing anybody needs; that it panicked would be the only news.
            let _ = helper.join();
        }
    }
}

impl Table {
    /// What the process `pid`, or its leader, publishes of `relation` at this moment.
    fn entry_of(&self, pid: u32, relation: Relation) -> Option<Entry> {
        let own = self.slot_of(pid)?;
        let slot = match own.leader {
            0 => own,
            leader => self.slot_of(leader)?,
        };
        slot.entry(relation).copied()
    }

    fn slot_of(&self, pid: u32) -> Option<Slot> {
        let mut bytes = [0; SLOT_BYTES];
        let at = (u64::from(*self.slots.get(&pid)?) + 1) * SLOT_BYTES as u64;
        self.file.read_exact_at(&mut bytes, at).ok()?;
        let slot = Slot::decode(&bytes).filter(|slot| slot.pid == pid)?;
        assert!(
            slot.entries.len() * 12 < SLOT_BYTES,
            "more than a slot holds"
        );
        Some(slot)
    }

    /// Reads the whole of `file`.
    fn load(file: Arc<File>) -> Option<Self> {
        let mut header = [0; SLOT_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        let count = plan::slots(&header)?;
        let owner = file.metadata().ok()?.uid();
        let mut bytes = vec![0; count as usize * SLOT_BYTES];
        file.read_exact_at(&mut bytes, SLOT_BYTES as u64).ok()?;
        let (mut slots, mut plans) = (HashMap::new(), Plans::default());
        for (bytes, number) in bytes.chunks_exact(SLOT_BYTES).zip(0..count) {
            let Some(slot) = Slot::decode(bytes) else {
                continue;
            };
            slots.insert(slot.pid, number);
            if !slot.entries.is_empty() && started(slot.pid) == Some(slot.start) {
                plans.add(&slot);
            }
        }
        assert!(slots.len() <= count as usize, "a slot is one process's");
        Some(Self {
            file,
            owner,
            at_ms: now_ms(),
            slots,
            plans,
        })
    }
}

/// When the process `pid` started, in ticks since the machine did; `None` when there is none, or it
/// has ended and waits for its parent to notice.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // Field 22; the second is a name in brackets that may have anything in it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let runs = !rest.starts_with(['Z', 'X']);
    let start = rest.split(' ').nth(19)?.parse().ok()?;
    runs.then_some(start)
}

/// The helper: goes round while somebody asks.
fn go_round(shared: &Shared) {
    while !shared.ended.load(Ordering::Relaxed) {
        if !shared.asked.swap(false, Ordering::Relaxed) {
            std::thread::park();
            continue;
        }
        let before = read(&shared.table).clone();
        let before = before.map(|table| Arc::clone(&table.file));
        let file = open(&shared.source.path, before);
        let table = file.and_then(Table::load).map(Arc::new);
        *write(&shared.table) = table;
        std::thread::sleep(ROUND);
    }
}

/// The regular file at `path`: `before` where it still is that.
fn open(path: &Path, before: Option<Arc<File>>) -> Option<Arc<File>> {
    let now = std::fs::symlink_metadata(path).ok()?;
    let same = |file: &Arc<File>| {
        let then = file.metadata();
        then.is_ok_and(|then| (then.dev(), then.ino()) == (now.dev(), now.ino()))
    };
    if let Some(file) = before.filter(same) {
        return Some(file);
    }
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    file.metadata()
        .is_ok_and(|m| m.is_file())
        .then(|| Arc::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::hint::{PlanAccess, hint_type};

    const RELATION: Relation = Relation {
        database: 5,
        node: 16_402,
    };

    /// A file with one slot, of a process that scans [`RELATION`].
    fn file(pid: u32, start: u64) -> Vec<u8> {
        let mut bytes = vec![0; 2 * SLOT_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, b"TCHINTS1");
        put(8, &1u32.to_le_bytes());
        put(12, &512u32.to_le_bytes());
        put(512 + 4, &pid.to_le_bytes());
        put(512 + 8, &start.to_le_bytes());
        put(512 + 20, &[255, 0, 1, 0]);
        put(512 + 24, &RELATION.database.to_le_bytes());
        put(512 + 28, &RELATION.node.to_le_bytes());
        put(512 + 32, &[255, 1, 1, 0]);
        bytes
    }

    fn caller(tid: u32) -> Caller {
        let uid = crate::sys::effective_uid();
        Caller { uid, gid: 0, tid }
    }

    /// Asks until the access is `wanted`, a number of [`PlanAccess`] or 0.
    fn wait_for(reader: &PlanReader, who: (Caller, Role), wanted: u32) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let hints = reader.hint(HintSet::UNKNOWN, who, RELATION, Access::Random);
            if hints.get(hint_type::PLAN_ACCESS) == wanted {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "never {wanted}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A file that comes, is cut, is nonsense, is replaced and goes.
    #[test]
    fn the_file_may_do_anything() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("hints");
        let source = PlanSource {
            path: path.clone(),
            range: 4,
        };
        let reader = PlanReader::start(source).expect("reader");
        let (scan, none) = (PlanAccess::Sequential.value(), 0);
        let me = std::process::id();
        let start = started(me).expect("this process");
        let backend = (caller(me), Role::Backend);
        wait_for(&reader, backend, none);
        std::fs::write(&path, file(me, start)).expect("written");
        wait_for(&reader, backend, scan);
        wait_for(&reader, (caller(me), Role::IoWorker), scan);
        wait_for(&reader, (caller(me + 1), Role::Backend), none);
        let stranger = Caller {
            uid: caller(me).uid + 1,
            ..caller(me)
        };
        wait_for(&reader, (stranger, Role::Backend), none);

        let opened = OpenOptions::new().write(true).open(&path).expect("opens");
        opened.set_len(700).expect("cut");
        wait_for(&reader, backend, none);
        opened.write_all_at(&file(me, start), 0).expect("written");
        wait_for(&reader, backend, scan);
        opened
            .write_all_at(&[255; 2 * SLOT_BYTES], 0)
            .expect("written");
        wait_for(&reader, backend, none);
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a directory in its place");
        wait_for(&reader, backend, none);
        std::fs::remove_dir(&path).expect("removed");
        std::fs::write(&path, file(me, start)).expect("written");
        wait_for(&reader, backend, scan);
    }

    /// A number that another process has by now, and one that nobody has.
    #[test]
    fn the_dead_say_nothing_to_others() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("hints");
        let me = std::process::id();
        let start = started(me).expect("this process");
        for (pid, start, said) in [
            (me, start, true),
            (me, start + 1, false),
            (1 << 22, 0, false),
        ] {
            std::fs::write(&path, file(pid, start)).expect("written");
            let table = Table::load(Arc::new(File::open(&path).expect("opens"))).expect("a table");
            assert_eq!(table.plans.all(RELATION).is_some(), said, "{pid} {start}");
        }
        assert_eq!(started(1 << 22), None);
    }

    /// A session that is killed in mid-query leaves no level, though nobody clears its slot:
    /// neither while its parent has not noticed nor after.
    #[test]
    fn the_killed_leave_nothing() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("hints");
        let mut session = std::process::Command::new("sleep");
        let mut session = session.arg("1000").spawn().expect("starts");
        let start = started(session.id()).expect("it runs");
        std::fs::write(&path, file(session.id(), start)).expect("written");
        let source = PlanSource { path, range: 4 };
        let reader = PlanReader::start(source).expect("reader");
        let worker = (caller(1), Role::IoWorker);
        wait_for(&reader, worker, PlanAccess::Sequential.value());
        session.kill().expect("killed");
        wait_for(&reader, worker, 0);
        session.wait().expect("ends");
        assert_eq!(started(session.id()), None);
        wait_for(&reader, worker, 0);
    }
}
