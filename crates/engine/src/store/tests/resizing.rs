//! Growing and shrinking, with a crash at every I/O of it.

use super::*;
use crate::error::Error;
use std::cell::Cell;

/// A cache with a page in each of its first 20 blocks, half of them only in the journal.
fn filled(disk: &Disk) -> Store {
    let store = create(disk.clone(), SIZE);
    let changes = (0..10).map(|i| place(&store, i, u64::from(i), 1)).collect();
    store.commit(&with_object(changes)).unwrap();
    store.checkpoint().unwrap();
    let changes = (10..20)
        .map(|i| place(&store, i, u64::from(i), 1))
        .collect();
    store.commit(&batch(changes)).unwrap();
    store
}

/// The page of block `i`, read from a cache opened again.
fn all_there(store: &Store, recovered: &Recovered, count: u32) {
    assert_eq!(recovered.lost, []);
    let mut buf = vec![0; PAGE];
    for i in 0..count {
        let (block, entry) = recovered.entries[i as usize];
        assert_eq!((block.0, entry.page.index), (i, u64::from(i)));
        store
            .read_block(block, entry.page, entry.checksum, &mut buf)
            .unwrap();
    }
    assert_eq!(recovered.entries.len() as u32, count);
}

/// Crashes at every I/O; the numbers of blocks seen after it.
fn crash_everywhere(length: u64) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    for ios in 0.. {
        let disk = Disk::default();
        let store = filled(&disk);
        disk.fail_after(ios);
        let resized = store.resize(length);
        let disk = disk.crashed(&mut Random(ios));
        let (store, recovered) = reopen(disk);
        all_there(&store, &recovered, 20);
        seen.insert(store.blocks());
        store.mark_open().unwrap();
        if let Ok(blocks) = resized {
            assert_eq!((store.blocks(), store.length()), (blocks, length));
            // Cutting the file is the last step and may be left undone.
            if ios > 30 {
                break;
            }
        }
    }
    seen
}

#[test]
fn growing_survives_a_crash_anywhere() {
    let seen = crash_everywhere(SIZE + 40_960);
    assert_eq!(seen.len(), 2, "the old layout or the new one: {seen:?}");
}

#[test]
fn shrinking_survives_a_crash_anywhere() {
    let seen = crash_everywhere(SIZE - 12_288);
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn new_blocks_are_used_and_given_back() {
    let disk = Disk::default();
    let store = filled(&disk);
    let before = store.blocks();
    let longer = SIZE + (1 << 20);
    let blocks = store.resize(longer).unwrap();
    assert_eq!(store.blocks_at(longer), Some(blocks));
    assert!(blocks > before + 1800);
    let changes = (20..blocks)
        .map(|i| place(&store, i, u64::from(i), 1))
        .collect();
    store.commit(&batch(changes)).unwrap();
    let (again, recovered) = reopen(disk.crashed(&mut Random(3)));
    all_there(&again, &recovered, blocks);
    let refused = store.resize(SIZE).unwrap_err().to_string();
    assert!(refused.contains("still holds a page"), "{refused}");
    assert_eq!(store.blocks(), blocks, "nothing changed");
    store
        .commit(&batch((20..blocks).map(|i| set(i, None)).collect()))
        .unwrap();
    assert_eq!(store.resize(SIZE).unwrap(), before);
    assert_eq!(disk.len().unwrap(), SIZE);
    let (again, recovered) = reopen(disk);
    all_there(&again, &recovered, 20);
}

/// The map of a large cache takes a while to write, and base may be taken over meanwhile: it is
/// asked about before each part of it, however the cache is changed.
#[test]
fn no_part_of_a_long_map_is_written_unasked() {
    let disk = Disk::default();
    let length = 32 << 20;
    let store = create(disk.clone(), length);
    disk.no_punch();
    let (last, most, looks) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let ours = || {
        most.set(most.get().max(disk.written() - last.get()));
        last.set(disk.written());
        looks.set(looks.get() + 1);
        Ok(())
    };
    let renew = || {
        store.poison("a sync failed");
        store.renew(&ours).map(|()| store.blocks())
    };
    let resize = |length| store.resize_while(length, &ours);
    let changes: [&dyn Fn() -> Result<u32, Error>; 3] =
        [&renew, &|| resize(length + (4 << 20)), &|| resize(length)];
    for change in changes {
        last.set(disk.written());
        looks.set(0);
        let blocks = change().unwrap();
        ours().unwrap();
        assert!(looks.get() > 3, "{}: {blocks} blocks", looks.get());
        let most = most.take();
        assert!(most <= 1 << 20, "{most} bytes at once, {blocks} blocks");
    }
}

#[test]
fn too_little_is_refused_with_the_least() {
    let store = filled(&Disk::default());
    let text = store.resize(SIZE + 1).unwrap_err().to_string();
    assert!(
        text.contains(&format!("{} are the least", SIZE + 4096)),
        "{text}"
    );
    let text = store.resize(SIZE - 1).unwrap_err().to_string();
    assert!(text.contains("a shorter cache has"), "{text}");
    assert_eq!(store.resize(SIZE).unwrap(), store.blocks());
    assert!(store.resize(SIZE + 4096).is_ok());
}
