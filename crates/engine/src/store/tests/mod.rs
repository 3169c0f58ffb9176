mod anew;
mod damage;
mod disk;
mod marked;
mod model;
mod resizing;

use super::*;
use crate::device::{FaultScript, Faulty, MemoryDevice};
use crate::files::object::{Identity, Stamp};
use disk::{Disk, Random};
use thermocline_core::ObjectId;
use thermocline_core::ledger::{Intent, MapChange};

const PAGE: usize = 512;

fn options(size: Option<u64>) -> StoreOptions {
    StoreOptions {
        page_size: PAGE as u32,
        size,
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format: false,
        deadline: None,
        ..StoreOptions::default()
    }
}

fn create(device: impl Device + 'static, size: u64) -> Store {
    let mut store = Store::with_device(Arc::new(device), "test", &options(Some(size))).unwrap();
    assert_eq!(store.take_recovered(), None);
    store.mark_open().unwrap();
    store
}

fn reopen(device: impl Device + 'static) -> (Store, Recovered) {
    let mut store = Store::with_device(Arc::new(device), "test", &options(None)).unwrap();
    let recovered = store.take_recovered().unwrap();
    (store, recovered)
}

fn object(id: u32) -> SavedObject {
    SavedObject {
        id: ObjectId(id),
        identity: Identity::default(),
        stamp: Stamp::default(),
        name: format!("file {id}"),
        fate: Fate::default(),
        promised: true,
    }
}

fn content(page: PageId, version: u64) -> Vec<u8> {
    let seed = hash::mix(hash::of_page(page), version).to_le_bytes();
    seed.iter().copied().cycle().take(PAGE).collect()
}

fn entry(page: PageId, version: u64) -> MapEntry {
    MapEntry {
        page,
        checksum: checksum(page, &content(page, version)),
        version,
        dirty: true,
    }
}

fn set(block: u32, entry: Option<MapEntry>) -> MapChange {
    let block = BlockId(block);
    MapChange::Set { block, entry }
}

/// Writes version `version` of page `index` of object 1 into `block`; its change.
fn place(store: &Store, block: u32, index: u64, version: u64) -> MapChange {
    let page = PageId::new(ObjectId(1), index);
    store
        .write_block(BlockId(block), &content(page, version))
        .unwrap();
    set(block, Some(entry(page, version)))
}

fn batch(changes: Vec<MapChange>) -> Batch {
    Batch {
        changes,
        objects: Vec::new(),
        time_ns: 5,
    }
}

fn with_object(changes: Vec<MapChange>) -> Batch {
    Batch {
        objects: vec![ObjectChange::Put(object(1))],
        ..batch(changes)
    }
}

fn blocks(recovered: &Recovered) -> Vec<(u32, u64, u64)> {
    let entries = recovered.entries.iter();
    entries
        .map(|(b, e)| (b.0, e.page.index, e.version))
        .collect()
}

const SIZE: u64 = 64 << 10;

#[test]
fn what_is_committed_is_there_after_a_crash_and_after_a_close() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let changes = vec![place(&store, 3, 7, 1), place(&store, 20, 8, 2)];
    store.commit(&with_object(changes)).unwrap();
    let (store, recovered) = reopen(disk.crashed(&mut Random(1)));
    assert!(!recovered.clean_stop);
    assert_eq!(blocks(&recovered), [(3, 7, 1), (20, 8, 2)]);
    assert_eq!(recovered.objects, [object(1)]);
    assert_eq!(recovered.next_version, 3);
    assert_eq!(
        (recovered.journal_batches, recovered.last_commit_ns),
        (1, 5)
    );
    assert_eq!(recovered.lost, []);
    store.mark_open().unwrap();
    store.commit(&batch(vec![set(3, None)])).unwrap();
    store.close(vec![object(1)]).unwrap();
    assert!(
        store.commit(&batch(vec![set(4, None)])).is_err(),
        "it is closed"
    );
    let (_, recovered) = reopen(store.device);
    assert!(recovered.clean_stop);
    assert_eq!(blocks(&recovered), [(20, 8, 2)]);
    assert_eq!((recovered.journal_batches, recovered.next_version), (0, 3));
}

#[test]
fn what_was_only_appended_may_go_but_never_in_part() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let first = place(&store, 3, 7, 1);
    store.commit(&with_object(vec![first])).unwrap();
    let second = place(&store, 4, 7, 2);
    store.append(&batch(vec![second, set(3, None)])).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (_, recovered) = reopen(disk.crashed(&mut Random(seed)));
        seen.insert(blocks(&recovered));
    }
    let both: BTreeSet<_> = [vec![(3, 7, 1)], vec![(4, 7, 2)]].into();
    assert_eq!(seen, both, "the old version or the new one");
}

#[test]
fn the_highest_version_counts_and_leftovers_are_cleared() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let changes = vec![place(&store, 3, 7, 2), place(&store, 9, 7, 1)];
    store.commit(&with_object(changes)).unwrap();
    let (store, recovered) = reopen(disk);
    assert_eq!(blocks(&recovered), [(3, 7, 2)]);
    store.mark_open().unwrap();
    store.commit(&batch(vec![set(3, None)])).unwrap();
    let (_, recovered) = reopen(store.device);
    assert_eq!(blocks(&recovered), [], "the older one does not come back");
}

#[test]
fn entries_of_forgotten_objects_count_no_more() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let change = place(&store, 3, 7, 2);
    store.commit(&with_object(vec![change])).unwrap();
    let gone = Batch {
        objects: vec![ObjectChange::Gone(ObjectId(1))],
        ..batch(Vec::new())
    };
    store.commit(&gone).unwrap();
    let (_, recovered) = reopen(disk);
    assert_eq!(blocks(&recovered), []);
    let object = ObjectId(1);
    assert_eq!(
        recovered.lost,
        [Lost::Orphans { object, pages: 1 }],
        "it was dirty"
    );
}

#[test]
fn the_journal_wraps_at_every_offset_and_size() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    store.commit(&with_object(Vec::new())).unwrap();
    let blocks_there = u64::from(store.blocks());
    let mut want = BTreeMap::new();
    for round in 1..200u64 {
        // Bytes of one to eight 4-KiB blocks: more than the journal holds at once.
        let count = 1 + (round * 37) % 900;
        let place = |i| {
            let block = ((round + i) % blocks_there) as u32;
            set(
                block,
                Some(entry(PageId::new(ObjectId(1), u64::from(block)), round)),
            )
        };
        let changes: Vec<_> = (0..count).map(place).collect();
        for change in &changes {
            if let MapChange::Set { block, entry } = *change {
                want.insert(block, entry.unwrap());
            }
        }
        store.commit(&batch(changes)).unwrap();
        // A later batch, so that nothing is verified: no block was written.
        store.commit(&batch(vec![set(0, None)])).unwrap();
        want.remove(&BlockId(0));
        let (_, recovered) = reopen(disk.crashed(&mut Random(round)));
        let found: BTreeMap<_, _> = recovered.entries.into_iter().collect();
        assert_eq!(found, want, "round {round}");
    }
}

#[test]
fn intents_stay_until_they_are_off() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let intend = |region, on| MapChange::Intend {
        intent: Intent {
            object: ObjectId(1),
            region,
        },
        on,
    };
    store
        .commit(&batch(vec![intend(1, true), intend(2, true)]))
        .unwrap();
    store.checkpoint().unwrap();
    store
        .commit(&batch(vec![intend(1, false), intend(3, true)]))
        .unwrap();
    let (_, recovered) = reopen(disk.clone());
    let regions: Vec<_> = recovered.intents.iter().map(|i| i.region).collect();
    assert_eq!(regions, [2, 3]);
    let limit = store.intent_limit() as u64;
    let many = batch((0..limit).map(|r| intend(r + 4, true)).collect());
    let refused = store.commit(&many).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    store.commit(&batch(vec![intend(2, false)])).unwrap();
}

#[test]
fn too_many_objects_are_refused_before_anything_is_written() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let mut id = 0;
    while store.room_for_object(&object(id)).is_ok() {
        let objects = vec![ObjectChange::Put(object(id))];
        let time_ns = 0;
        let changes = Vec::new();
        store
            .commit(&Batch {
                changes,
                objects,
                time_ns,
            })
            .unwrap();
        id += 1;
    }
    assert!(id > 20);
    let written = disk.written();
    let objects = vec![ObjectChange::Put(object(id))];
    let one_more = Batch {
        objects,
        ..Batch::default()
    };
    assert!(store.commit(&one_more).is_err());
    assert_eq!(disk.written(), written);
    let all: Vec<_> = (0..=id).map(object).collect();
    assert!(store.room_for_objects(&all).is_err());
    assert!(store.close(all.clone()).is_err());
    store.close(all[..id as usize].to_vec()).unwrap();
    let (_, recovered) = reopen(disk);
    assert_eq!(recovered.objects.len(), id as usize);
}

#[test]
fn after_a_failed_commit_nothing_is_promised_any_more() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let first = place(&store, 3, 7, 1);
    store.commit(&with_object(vec![first])).unwrap();
    let written = disk.written();
    store.commit(&Batch::default()).unwrap();
    assert_eq!(disk.written(), written, "an empty batch takes no room");
    let second = place(&store, 4, 8, 2);
    disk.fail_after(1);
    assert!(
        store.commit(&batch(vec![second])).is_err(),
        "the sync fails"
    );
    disk.fail_after(1000);
    assert!(store.commit(&batch(vec![second])).is_err());
    assert!(store.append(&batch(vec![second])).is_err());
    assert!(store.checkpoint().is_err());
    assert!(store.close(vec![object(1)]).is_err());
    let page = PageId::new(ObjectId(1), 7);
    let mut buf = vec![0; PAGE];
    let read = store.read_block(BlockId(3), page, entry(page, 1).checksum, &mut buf);
    assert_eq!((read, buf), (Ok(()), content(page, 1)), "reads go on");
}

/// Page 8 cannot be written: the batch is durable without it, and its older version stands.
#[test]
fn a_page_that_fails_is_left_out_of_its_batch() {
    let disk = Arc::new(MemoryDevice::new());
    let script = FaultScript::new();
    let faulty = Faulty::new(Arc::clone(&disk), Arc::clone(&script), None);
    let store = create(faulty, SIZE);
    let first = vec![place(&store, 3, 7, 1), place(&store, 4, 8, 2)];
    store.commit(&with_object(first)).unwrap();
    let new = |block: u32, index: u64, version: u64| {
        let page = PageId::new(ObjectId(1), index);
        (
            set(block, Some(entry(page, version))),
            content(page, version),
        )
    };
    let (seven, bytes_7) = new(5, 7, 3);
    let (eight, bytes_8) = new(6, 8, 4);
    let page = |block, old, bytes| NewPage {
        block: BlockId(block),
        bytes,
        named: true,
        old: Some(BlockId(old)),
    };
    let pages = [page(5, 3, &bytes_7[..]), page(6, 4, &bytes_8[..])];
    let at = store.offset(BlockId(6));
    script
        .load(&format!("write offset {at}..{} fail EIO", at + 1))
        .unwrap();
    let changes = vec![seven, eight, set(3, None), set(4, None)];
    let written = store.commit_pages(&batch(changes), &pages).unwrap();
    assert_eq!(written, [Ok(()), Err(Fault::WriteError)]);
    script.clear();
    let (_, recovered) = reopen(Arc::clone(&disk));
    assert_eq!(blocks(&recovered), [(4, 8, 2), (5, 7, 3)]);
    assert_eq!(
        recovered.lost,
        [],
        "the batch names nothing that is not there"
    );
    // The journal goes on behind it.
    let third = place(&store, 7, 9, 5);
    store.commit(&batch(vec![third])).unwrap();
    let (_, recovered) = reopen(disk);
    assert_eq!(blocks(&recovered), [(4, 8, 2), (5, 7, 3), (7, 9, 5)]);
}

#[test]
fn the_time_of_the_newest_commit_is_known_to_a_second() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let at = |time_ns| Batch {
        time_ns,
        ..Batch::default()
    };
    for (time, found) in [
        (4_000_000_000, 4_000_000_000),
        (4_900_000_000, 4_000_000_000),
    ] {
        store.commit(&at(time)).unwrap();
        let (_, recovered) = reopen(disk.crashed(&mut Random(time as u64)));
        assert_eq!(recovered.last_commit_ns, found);
    }
    store.append(&at(9_000_000_000)).unwrap();
    store.checkpoint().unwrap();
    let (_, recovered) = reopen(disk);
    assert_eq!(recovered.last_commit_ns, 4_000_000_000, "of the superblock");
}

#[test]
fn an_older_format_of_the_cache_leaves_nothing() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let change = place(&store, 3, 7, 1);
    store.commit(&with_object(vec![change])).unwrap();
    store.checkpoint().unwrap();
    let change = place(&store, 4, 8, 2);
    store.commit(&batch(vec![change])).unwrap();
    let options = StoreOptions {
        format: true,
        ..options(Some(SIZE))
    };
    let device = Arc::new(disk.clone());
    let store = Store::on_device(device, "test", &options, Some(2)).unwrap();
    store.mark_open().unwrap();
    let (_, recovered) = reopen(disk);
    assert_eq!((blocks(&recovered), recovered.lost), (vec![], vec![]));
    assert!(recovered.objects.is_empty());
}

#[test]
fn random_bytes_never_panic() {
    let store = create(MemoryDevice::new(), SIZE);
    let mut device = vec![0; SIZE as usize];
    store.device.read_at(&mut device, 0).unwrap();
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut bytes = device.clone();
        for byte in &mut bytes[8192..] {
            *byte = random.next() as u8;
        }
        let (store, recovered) = reopen(MemoryDevice::from_bytes(bytes));
        assert_eq!(blocks(&recovered), []);
        assert!(recovered.lost.iter().all(Lost::is_damage));
        store.mark_open().unwrap();
        let (_, recovered) = reopen(store.device);
        assert_eq!(recovered.lost, [], "what was damaged is written anew");
    }
}

/// A device that notes its writes, and fails those at one place.
#[derive(Debug)]
struct Logged {
    device: MemoryDevice,
    log: std::sync::Mutex<Vec<(u64, Vec<u8>)>>,
    fail: std::sync::atomic::AtomicU64,
}
impl Device for Logged {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if offset == self.fail.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.log.lock().unwrap().push((offset, buf.to_vec()));
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
        "logged".into()
    }
}

#[test]
fn two_versions_of_a_batch_do_not_mix() {
    let disk = Arc::new(Logged {
        device: MemoryDevice::new(),
        log: std::sync::Mutex::default(),
        fail: u64::MAX.into(),
    });
    let store = create(Arc::clone(&disk), 4 << 20);
    let n = 130u32;
    let first: Vec<_> = (0..n)
        .map(|i| place(&store, i, i.into(), 1 + u64::from(i)))
        .collect();
    store.commit(&with_object(first)).unwrap();
    let page_of = |i: u32| PageId::new(ObjectId(1), i.into());
    let version = |i: u32| 1000 + u64::from(i);
    let bytes: Vec<_> = (0..n).map(|i| content(page_of(i), version(i))).collect();
    let pages: Vec<_> = (0..n)
        .map(|i| NewPage {
            block: BlockId(200 + i),
            bytes: &bytes[i as usize],
            named: true,
            old: Some(BlockId(i)),
        })
        .collect();
    let mut changes: Vec<_> = (0..n)
        .map(|i| set(200 + i, Some(entry(page_of(i), version(i)))))
        .collect();
    changes.extend((0..n).map(|i| set(i, None)));
    disk.fail
        .store(store.offset(BlockId(250)), Ordering::SeqCst);
    disk.log.lock().unwrap().clear();
    let written = store.commit_pages(&batch(changes), &pages).unwrap();
    assert_eq!(written.iter().filter(|r| r.is_err()).count(), 1);
    // Power goes before the one sync: of the journal's two blocks the device kept the first
    // version of the first, and the second version of the second.
    let log = disk.log.lock().unwrap();
    let journal: Vec<_> = log.iter().filter(|(_, b)| b[..4] == *b"TCJB").collect();
    let (offset, v1) = journal[0];
    let image = disk.device.snapshot();
    let crashed = MemoryDevice::from_bytes(image);
    crashed.write_at(&v1[..4096], *offset).unwrap();
    let (_, recovered) = reopen(crashed);
    let found: std::collections::BTreeSet<u64> = recovered
        .entries
        .iter()
        .map(|(_, e)| e.page.index)
        .collect();
    let missing: Vec<u64> = (0..u64::from(n)).filter(|i| !found.contains(i)).collect();
    assert_eq!(missing, [0u64; 0], "acknowledged dirty pages are gone");
}

type Hook = Box<dyn FnOnce() + Send>;

/// A disk that does something more in its next sync.
struct Hooked {
    disk: Disk,
    in_sync: Arc<Mutex<Option<Hook>>>,
}

impl Device for Hooked {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        let hook = self.in_sync.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.disk.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.punch(offset, len)
    }
    fn label(&self) -> String {
        self.disk.label()
    }
}

#[test]
fn a_batch_that_is_made_while_a_store_is_opened_anew_counts() {
    counts_while(|store| store.mark_open().unwrap());
}

#[test]
fn a_batch_that_is_made_while_another_opening_begins_counts() {
    counts_while(|store| store.next_opening().unwrap());
}

/// A batch is made while `begin` syncs for the first time.
fn counts_while(begin: impl Fn(&Store)) {
    let disk = Disk::default();
    drop(create(disk.clone(), SIZE));
    let in_sync = Arc::new(Mutex::new(None));
    let hooked = Hooked {
        disk: disk.clone(),
        in_sync: Arc::clone(&in_sync),
    };
    let (store, _) = reopen(hooked);
    store.mark_open().unwrap();
    let first = place(&store, 2, 6, 1);
    store.commit(&with_object(vec![first])).unwrap();
    let epoch = store.stamp().epoch;
    let change = place(&store, 3, 7, 1);
    let store = Arc::new(store);
    let other = Arc::clone(&store);
    let (sender, committer) = std::sync::mpsc::channel();
    *in_sync.lock() = Some(Box::new(move || {
        let (done, is_done) = std::sync::mpsc::channel();
        let commit = std::thread::spawn(move || {
            other.commit(&with_object(vec![change])).unwrap();
            let _ = done.send(());
        });
        // It waits for the opening, or is done in the midst of it.
        let _ = is_done.recv_timeout(std::time::Duration::from_millis(300));
        sender.send(commit).unwrap();
    }) as Hook);
    begin(&store);
    committer.recv().unwrap().join().unwrap();
    assert_eq!(store.stamp().epoch, epoch + 1);
    let (_, recovered) = reopen(disk.crashed(&mut Random(1)));
    assert_eq!(blocks(&recovered), [(2, 6, 1), (3, 7, 1)]);
}

#[test]
fn a_crash_before_the_first_batch_leaves_what_the_close_said() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let change = place(&store, 3, 7, 1);
    store.commit(&with_object(vec![change])).unwrap();
    store.close(vec![object(1)]).unwrap();
    for _ in 0..2 {
        let (store, recovered) = reopen(disk.clone());
        assert!(recovered.as_closed);
        store.mark_open().unwrap();
        store.checkpoint().unwrap();
    }
    let (store, recovered) = reopen(disk.clone());
    assert!(recovered.as_closed && !recovered.clean_stop);
    store.mark_open().unwrap();
    // With nothing to say it still gives leave to write base.
    store.commit(&batch(Vec::new())).unwrap();
    let (_, recovered) = reopen(Disk::of(disk.bytes()));
    assert!(!recovered.as_closed, "by the journal");
    store.checkpoint().unwrap();
    let (_, recovered) = reopen(disk);
    assert!(!recovered.as_closed, "by the superblock");
}

/// A batch in two pieces, of which a crash keeps the first: that one does not vouch for files that
/// were changed since the batch before it.
#[test]
fn the_first_pieces_of_a_batch_do_not_have_its_time() {
    let disk = Arc::new(Logged {
        device: MemoryDevice::new(),
        log: std::sync::Mutex::default(),
        fail: u64::MAX.into(),
    });
    let store = create(Arc::clone(&disk), SIZE);
    let change = place(&store, 3, 7, 1);
    store.commit(&with_object(vec![change])).unwrap();
    store.checkpoint().unwrap();
    let (layout, next) = {
        let state = store.state();
        (state.superblock.layout, state.next)
    };
    let empties = store.batch_bytes() / 5 + 1;
    let large = |time_ns| Batch {
        time_ns,
        ..batch(vec![set(9, None); empties])
    };
    let second = layout.journal_block(next + u64::from(layout.journal_units) / 2);
    disk.fail.store(second, Ordering::SeqCst);
    store.commit(&large(77)).unwrap_err();
    let image = || MemoryDevice::from_bytes(disk.device.snapshot());
    let (_, recovered) = reopen(image());
    assert_eq!(recovered.journal_batches, 1, "the first piece");
    assert_eq!(recovered.last_commit_ns, 5, "of the batch before");
    // Both pieces have it.
    disk.fail.store(u64::MAX, Ordering::SeqCst);
    let (store, _) = reopen(Arc::clone(&disk));
    store.mark_open().unwrap();
    store.commit(&large(78)).unwrap();
    let (_, recovered) = reopen(image());
    assert_eq!(recovered.last_commit_ns, 78);
}
