//! Making a cache anew over one with pages that base does not have, and whose file it may be.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

const SIZE: u64 = 256 << 10;

/// A cache with two dirty pages and a clean one.
fn with_dirty(device: impl Device + 'static) {
    let store = create(device, SIZE);
    let mut batch = Batch {
        objects: vec![ObjectChange::Put(object(1))],
        ..Batch::default()
    };
    for (block, dirty) in [(0, true), (1, false), (2, true)] {
        let page = PageId::new(ObjectId(1), block.into());
        store
            .write_block(BlockId(block), &content(page, 1))
            .unwrap();
        let entry = Some(MapEntry {
            dirty,
            ..entry(page, 1)
        });
        let block = BlockId(block);
        batch.changes.push(MapChange::Set { block, entry });
    }
    store.commit(&batch).unwrap();
}

fn anew(device: &Arc<MemoryDevice>, discard: Option<u64>) -> Result<Store, Error> {
    let options = StoreOptions {
        format: true,
        ..options(Some(SIZE))
    };
    Store::on_device(
        Arc::clone(device) as Arc<dyn Device>,
        "test",
        &options,
        discard,
    )
}

fn pages_held(result: Result<Store, Error>) -> (u64, bool) {
    match result.map(|_| ()).unwrap_err() {
        Error::HoldsDirty { pages, more, .. } => (pages, !more.is_empty()),
        other => panic!("{other}"),
    }
}

#[test]
fn dirty_pages_are_given_up_only_by_their_number() {
    let device = Arc::new(MemoryDevice::new());
    with_dirty(Arc::clone(&device));
    for wrong in [None, Some(0), Some(1), Some(3)] {
        assert_eq!(pages_held(anew(&device, wrong)), (2, false), "{wrong:?}");
    }
    let error = anew(&device, None).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("2 pages that base does not have"), "{error}");
    assert!(
        error.contains("`thermocline recover /base test`"),
        "{error}"
    );
    let (_, found) = reopen(Arc::clone(&device));
    assert_eq!(found.entries.len(), 3, "a refusal changes nothing");
    anew(&device, Some(2)).expect("all are named");
    anew(&device, None).expect("nothing is dirty any more");
}

#[test]
fn what_damage_may_hide_is_not_made_anew_without_a_word() {
    let whole = Arc::new(MemoryDevice::new());
    with_dirty(Arc::clone(&whole));
    let damaged = |at: u64, length: usize| {
        let mut bytes = vec![0; whole.len().unwrap() as usize];
        whole.read_at(&mut bytes, 0).unwrap();
        bytes[at as usize..][..length].fill(0xA5);
        let device = Arc::new(MemoryDevice::new());
        device.set_len(bytes.len() as u64).unwrap();
        device.write_at(&bytes, 0).unwrap();
        device
    };
    let superblocks = damaged(64, 4096 + 8);
    assert_eq!(pages_held(anew(&superblocks, None)), (0, true));
    anew(&superblocks, Some(0)).expect("as many as are known");
    let layout = layout::Layout::of_length(SIZE, PAGE as u32).unwrap();
    let map = damaged(layout.map_offset, 512);
    assert_eq!(pages_held(anew(&map, None)), (2, true));
    let cut = damaged(0, 0);
    cut.set_len(SIZE / 2).unwrap();
    assert!(
        pages_held(anew(&cut, None)).1,
        "the map may be in the part that is gone"
    );
    let foreign = damaged(0, 8192);
    anew(&foreign, None).expect("what never was a cache holds nothing");
}

#[test]
fn a_poisoned_store_takes_nothing_and_is_not_marked_clean() {
    let device = Arc::new(MemoryDevice::new());
    with_dirty(Arc::clone(&device));
    let (store, found) = reopen(Arc::clone(&device));
    store.mark_open().unwrap();
    store.poison("a handler panicked");
    assert!(store.is_poisoned());
    let refused = store.commit(&Batch::default()).unwrap_err().to_string();
    assert!(refused.contains("a handler panicked"), "{refused}");
    let refused = store.close(found.objects).unwrap_err().to_string();
    assert!(refused.contains("a handler panicked"), "{refused}");
    let (_, again) = reopen(device);
    assert!(!again.clean_stop, "nothing says that it was closed");
    assert_eq!(again.entries, found.entries);
}

#[test]
fn a_page_past_the_end_of_every_file_is_damage() {
    let device = Arc::new(MemoryDevice::new());
    let store = Store::with_device(
        Arc::clone(&device) as Arc<dyn Device>,
        "test",
        &StoreOptions {
            page_size: 4096,
            ..options(Some(SIZE))
        },
    );
    let mut store = store.unwrap();
    store.take_recovered();
    store.mark_open().unwrap();
    let set = |block, index| MapChange::Set {
        block: BlockId(block),
        entry: Some(MapEntry {
            page: PageId::new(ObjectId(1), index),
            dirty: true,
            version: 1,
            checksum: checksum(PageId::new(ObjectId(1), index), &[0; 4096]),
        }),
    };
    for block in 0..2 {
        store.write_block(BlockId(block), &[0; 4096]).unwrap();
    }
    let objects = vec![ObjectChange::Put(object(1))];
    let changes = vec![set(0, 7), set(1, 1 << 52)];
    let batch = Batch {
        changes,
        objects,
        time_ns: 0,
    };
    store.commit(&batch).unwrap();
    let report = check(&*device, "test", true, &mut |_| ()).unwrap();
    assert_eq!(report.pages(), (0, 1));
    assert!(!report.is_sound());
    assert!(
        report
            .problems
            .iter()
            .any(|p| p.text.contains("no file is that long"))
    );
}

#[test]
fn an_object_id_past_the_bound_is_refused() {
    let store = create(MemoryDevice::new(), SIZE);
    let put = |id| Batch {
        objects: vec![ObjectChange::Put(object(id))],
        ..Batch::default()
    };
    store.commit(&put(OBJECT_END - 1)).expect("the last one");
    let refused = store.commit(&put(OBJECT_END)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    store.commit(&put(2)).expect("and goes on");
}

fn open_file(path: &std::path::Path, size: Option<u64>, format: bool) -> Result<(), Error> {
    let options = StoreOptions {
        format,
        ..options(size)
    };
    Store::open(path, &options).map(|_| ())
}

fn is_untrusted(result: Result<(), Error>, word: &str) {
    match result.unwrap_err() {
        Error::Untrusted { why, .. } => assert!(why.contains(word), "{why}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_cache_is_made_for_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tier");
    open_file(&path, Some(SIZE), false).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    is_untrusted(open_file(&path, None, false), "0620");
    is_untrusted(open_file(&path, Some(SIZE), true), "0620");
    let report = check_path(&path, false, &mut |_| ()).unwrap();
    assert!(report.is_sound(), "it may be looked at");
    assert!(report.problems.iter().any(|p| p.text.contains("0620")));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    open_file(&path, None, false).expect("others may read it");
    let empty = directory.path().join("empty");
    fs::write(&empty, "").unwrap();
    is_untrusted(open_file(&empty, Some(SIZE), false), "empty");
    open_file(&empty, Some(SIZE), true).expect("the administrator says so");
}

#[test]
fn links_of_ones_own_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (link, target) = (directory.path().join("link"), directory.path().join("tier"));
    symlink("tier", &link).unwrap();
    open_file(&link, Some(SIZE), false).expect("made behind the link");
    assert!(target.is_file() && link.is_symlink());
    assert_eq!(resolve(&link).unwrap(), target);
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
    is_untrusted(open_file(&link, None, false), "belongs to user 65534");
    std::os::unix::fs::chown(&target, Some(65_534), None).unwrap();
    is_untrusted(open_file(&target, None, false), "belongs to user 65534");
    let circle = directory.path().join("circle");
    symlink("circle", &circle).unwrap();
    assert!(resolve(&circle).is_err());
}
