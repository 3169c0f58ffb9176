//! One flipped bit in each structure: noticed, named, and nothing else is lost.

use super::*;

/// A cache with pages 0..30 in blocks of the same number (version 1, in the map), then page 30 in
/// block 30, 31 in 31 and 32 in 32, each in a batch of its own.
fn sample() -> (Vec<u8>, layout::Layout) {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let changes = (0..30).map(|i| place(&store, i, u64::from(i), 1)).collect();
    store.commit(&with_object(changes)).unwrap();
    store.checkpoint().unwrap();
    for i in 30..33 {
        let change = place(&store, i, u64::from(i), 1);
        store.commit(&batch(vec![change])).unwrap();
    }
    let layout = store.state().superblock.layout;
    (disk.bytes(), layout)
}

fn damaged(offset: u64) -> (Store, Recovered, Report) {
    let (mut bytes, _) = sample();
    bytes[offset as usize] ^= 4;
    let report = check(&Disk::of(bytes.clone()), "test", true, &mut |_| {}).unwrap();
    let (store, recovered) = reopen(Disk::of(bytes));
    (store, recovered, report)
}

fn found(recovered: &Recovered) -> BTreeSet<u32> {
    recovered.entries.iter().map(|(b, _)| b.0).collect()
}

#[test]
fn a_sound_cache_has_no_problem() {
    let (bytes, layout) = sample();
    let mut steps = Vec::new();
    let disk = Disk::of(bytes.clone());
    let report = check(&disk, "test", true, &mut |p| steps.push(p)).unwrap();
    assert_eq!(report.problems, []);
    assert!(report.is_sound());
    assert_eq!((report.pages(), report.verified), ((0, 33), 33));
    assert_eq!(report.journal_batches, 3);
    assert_eq!(report.objects[0].name, "file 1");
    assert_eq!(report.blocks, layout.blocks);
    let last = steps.last().unwrap();
    assert_eq!((last.step, last.done), (CheckStep::Data, last.total));
    assert_eq!(disk.bytes(), bytes, "a check writes nothing");
    assert_eq!(disk.written(), 0);
}

#[test]
fn in_a_map_sector() {
    let (_, layout) = sample();
    let offset = layout.sector_offset(1);
    let (store, recovered, report) = damaged(offset + 40);
    let blocks = 15..30;
    assert_eq!(recovered.lost, [Lost::MapSector { offset, blocks }]);
    assert_eq!(found(&recovered), (0..15).chain(30..33).collect());
    assert!(!report.is_sound());
    assert_eq!((report.problems[0].offset, report.pages().1), (offset, 18));
    store.mark_open().unwrap();
    let (_, again) = reopen(store.device);
    assert_eq!(again.lost, []);
    assert_eq!(found(&again), found(&recovered));
}

#[test]
fn in_the_journal() {
    let (bytes, layout) = sample();
    let superblock = open::read_superblock(&Disk::of(bytes), "test", SIZE).unwrap();
    let sequence = superblock.journal_first + 1;
    let offset = layout.journal_block(sequence);
    let (_, recovered, report) = damaged(offset + 60);
    assert_eq!(recovered.lost, [Lost::Journal { offset, sequence }]);
    assert_eq!(
        found(&recovered),
        (0..31).chain(32..33).collect(),
        "what follows counts"
    );
    assert_eq!(
        (report.is_sound(), report.problems[0].offset),
        (false, offset)
    );
    // The last one: as if it had never been written, which nobody can tell.
    let last = layout.journal_block(sequence + 1);
    let (_, recovered, _) = damaged(last + 60);
    assert_eq!(found(&recovered), (0..32).collect());
}

#[test]
fn in_an_object_area() {
    let (bytes, layout) = sample();
    let superblock = open::read_superblock(&Disk::of(bytes), "test", SIZE).unwrap();
    let offset = layout.objects_offset(superblock.objects_area);
    let (_, recovered, report) = damaged(offset + 30);
    assert_eq!(
        recovered.lost[0],
        Lost::Objects {
            offset,
            older: true
        }
    );
    let (object, pages) = (ObjectId(1), 33);
    assert_eq!(recovered.lost[1], Lost::Orphans { object, pages });
    assert!(!report.is_sound());
}

#[test]
fn in_a_superblock() {
    for copy in 0..2 {
        let (bytes, _) = sample();
        let newest = open::read_superblock(&Disk::of(bytes), "test", SIZE).unwrap();
        let (_, recovered, report) = damaged(copy * 4096 + 50);
        assert_eq!(report.problems[0].offset, copy * 4096);
        if newest.generation % 2 != copy {
            assert_eq!((recovered.lost.len(), found(&recovered).len()), (0, 33));
            assert!(report.is_sound(), "a crash can leave that");
        } else {
            // The older copy: its journal goes on to the end of the newer one.
            assert_eq!(found(&recovered).len(), 33);
        }
    }
}

#[test]
fn in_a_page() {
    let (_, layout) = sample();
    let offset = layout.block_offset(BlockId(7));
    let (_, recovered, report) = damaged(offset + 1);
    assert_eq!((recovered.lost.len(), found(&recovered).len()), (0, 33));
    assert_eq!((report.dirty_damaged, report.problems.len()), (1, 1));
    assert_eq!(report.problems[0].offset, offset);
    assert!(
        report.problems[0]
            .text
            .contains("dirty page at byte 3584 of file 1")
    );
    let block = BlockId(32);
    let (_, recovered, report) = damaged(layout.block_offset(block) + 1);
    let entry = entry(PageId::new(ObjectId(1), 32), 1);
    assert_eq!(recovered.lost, [Lost::Unverified { block, entry }]);
    assert_eq!(
        (report.is_sound(), report.problems.len()),
        (true, 1),
        "or never acknowledged"
    );
}

#[test]
fn in_the_map_while_the_cache_is_open() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let change = place(&store, 3, 3, 1);
    store.commit(&with_object(vec![change])).unwrap();
    store.checkpoint().unwrap();
    let offset = store.state().superblock.layout.sector_offset(0);
    store.device.write_at(&[0xEE; 512], offset).unwrap();
    let change = place(&store, 4, 4, 2);
    store.commit(&batch(vec![change])).unwrap();
    let refused = store.checkpoint().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    let (_, recovered) = reopen(disk);
    assert_eq!(
        blocks(&recovered),
        [(4, 4, 2)],
        "the journal still has its change"
    );
    assert!(matches!(recovered.lost[..], [Lost::MapSector { .. }]));
}

#[test]
fn in_one_block_of_a_batch_of_two() {
    for lost in 0..2 {
        let disk = Disk::default();
        let store = create(disk.clone(), SIZE);
        store.commit(&with_object(Vec::new())).unwrap();
        let first = place(&store, 3, 3, 1);
        let last = place(&store, 4, 4, 2);
        let between = (0..1000).map(|_| set(9, None));
        let changes: Vec<_> = [first].into_iter().chain(between).chain([last]).collect();
        let (layout, next) = {
            let state = store.state();
            (state.superblock.layout, state.next)
        };
        store.commit(&batch(changes)).unwrap();
        assert_eq!(store.state().next, next + 2);
        let (_, recovered) = reopen(Disk::of(disk.bytes()));
        assert_eq!(blocks(&recovered), [(3, 3, 1), (4, 4, 2)]);
        let mut bytes = disk.bytes();
        bytes[layout.journal_block(next + lost) as usize + 70] ^= 1;
        let (_, recovered) = reopen(Disk::of(bytes));
        assert_eq!(blocks(&recovered), [], "wholly or not at all");
    }
}

#[test]
fn in_a_page_that_was_about_to_become_clean() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let change = place(&store, 3, 3, 1);
    store.commit(&with_object(vec![change])).unwrap();
    let dirty = entry(PageId::new(ObjectId(1), 3), 1);
    let clean = MapEntry {
        dirty: false,
        ..dirty
    };
    store.append(&batch(vec![set(3, Some(clean))])).unwrap();
    let mut bytes = disk.bytes();
    let (_, recovered) = reopen(Disk::of(bytes.clone()));
    assert_eq!(recovered.entries, [(BlockId(3), clean)]);
    let offset = store.state().superblock.layout.block_offset(BlockId(3));
    bytes[offset as usize] ^= 1;
    let (_, recovered) = reopen(Disk::of(bytes));
    assert_eq!(
        recovered.entries,
        [(BlockId(3), dirty)],
        "kept as it was, and unreadable"
    );
}

#[test]
fn a_part_of_the_map_that_cannot_be_read_is_written_anew() {
    let (bytes, layout) = sample();
    let disk = Disk::of(bytes);
    let unit = layout.sector_offset(0);
    disk.unreadable(unit..unit + 4096);
    let (store, recovered) = reopen(disk.clone());
    assert_eq!(
        found(&recovered),
        (30..33).collect(),
        "what the journal says"
    );
    assert_eq!(recovered.lost.len() as u32, layout.map_sectors().min(8));
    store.mark_open().unwrap();
    let (store, again) = reopen(disk.clone());
    assert_eq!((again.lost.len(), found(&again)), (0, (30..33).collect()));
    store.mark_open().unwrap();
    // But not what counts: it may be readable the next time.
    disk.unreadable(unit..unit + 4096);
    let change = place(&store, 4, 4, 2);
    store.commit(&batch(vec![change])).unwrap();
    assert!(store.checkpoint().is_err());
    disk.unreadable(0..0);
    let (_, last) = reopen(disk);
    assert_eq!((last.lost.len(), found(&last)), (0, [4, 30, 31, 32].into()));
}

/// Of a cache with clean pages in blocks 0..3, a batch that empties block 1, and later ones.
fn emptied() -> (Disk, layout::Layout, u64) {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let clean = |block: u32| {
        let page = PageId::new(ObjectId(1), u64::from(block));
        let entry = MapEntry {
            dirty: block == 2,
            ..entry(page, 1)
        };
        let bytes = content(page, 1);
        store.write_block(BlockId(block), &bytes).unwrap();
        set(block, Some(entry))
    };
    store
        .commit(&with_object((0..3).map(clean).collect()))
        .unwrap();
    store.checkpoint().unwrap();
    let (layout, next) = {
        let state = store.state();
        (state.superblock.layout, state.next)
    };
    store.commit(&batch(vec![set(1, None)])).unwrap();
    store.commit(&batch(vec![set(9, None)])).unwrap();
    store.commit(&batch(vec![set(10, None)])).unwrap();
    (disk, layout, next)
}

#[test]
fn in_what_may_say_that_base_is_newer() {
    let (disk, layout, next) = emptied();
    let (_, recovered) = reopen(Disk::of(disk.bytes()));
    assert_eq!(found(&recovered), [0, 2].into(), "without damage");
    let mut bytes = disk.bytes();
    bytes[layout.journal_block(next) as usize + 60] ^= 4;
    let (store, recovered) = reopen(Disk::of(bytes));
    assert!(matches!(recovered.lost[..], [Lost::Journal { .. }]));
    assert_eq!(found(&recovered), [2].into(), "no clean page counts");
    store.mark_open().unwrap();
    let (_, again) = reopen(store.device);
    assert_eq!((found(&again), again.lost), ([2].into(), vec![]));
}

/// A cache with version 1 of page 7 in block 3, in the map.
fn with_an_older_version() -> (Disk, Store) {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let old = place(&store, 3, 7, 1);
    store.commit(&with_object(vec![old])).unwrap();
    store.checkpoint().unwrap();
    (disk, store)
}

#[test]
fn in_a_page_that_cannot_be_read_once_or_ever() {
    for times in [1, 100] {
        let (disk, store) = with_an_older_version();
        let newer = vec![place(&store, 4, 7, 2), set(3, None)];
        store.commit(&batch(newer)).unwrap();
        let offset = store.state().superblock.layout.block_offset(BlockId(4));
        let script = FaultScript::new();
        let end = offset + PAGE as u64;
        let fault = format!("read times {times} offset {offset}..{end} fail EIO");
        script.load(&fault).unwrap();
        let (_, recovered) = reopen(Faulty::new(disk, script, None));
        let found = blocks(&recovered);
        assert_eq!(
            found,
            [(4, 7, 2)],
            "the older version does not stand in for it"
        );
    }
}

#[test]
fn in_the_map_where_it_says_what_a_failed_page_had_before() {
    for times in [1, 100] {
        let (disk, store) = with_an_older_version();
        // The batch is there, and the bytes that it names are not.
        let newer = vec![place(&store, 4, 7, 2), set(3, None)];
        store.append(&batch(newer)).unwrap();
        let layout = store.state().superblock.layout;
        let mut bytes = disk.bytes();
        bytes[layout.block_offset(BlockId(4)) as usize] ^= 1;
        let script = FaultScript::new();
        let (from, to) = (layout.map_offset, layout.map_offset + 512);
        let fault = format!("read times {times} offset {from}..{to} fail EIO");
        script.load(&fault).unwrap();
        let device = Faulty::new(Disk::of(bytes), script, None);
        let (_, recovered) = reopen(device);
        match times {
            1 => assert_eq!(blocks(&recovered), [(3, 7, 1)], "the older version stands"),
            _ => assert!(recovered.lost.iter().any(Lost::is_damage), "told"),
        }
    }
}

/// A page whose new bytes a crash left torn, in a batch that empties the block of the old ones.
fn torn() -> (Disk, layout::Layout) {
    let (bytes, _) = sample();
    let disk = Disk::of(bytes);
    let (store, _) = reopen(disk.clone());
    store.mark_open().unwrap();
    let page = PageId::new(ObjectId(1), 3);
    let changes = vec![set(40, Some(entry(page, 2))), set(3, None)];
    store.append(&batch(changes)).unwrap();
    let layout = store.state().superblock.layout;
    (disk, layout)
}

#[test]
fn in_a_map_that_cannot_be_read_when_a_torn_batch_asks_for_it() {
    let (disk, layout) = torn();
    let (_, recovered) = reopen(disk.clone());
    assert_eq!(recovered.lost.len(), 1, "the page that is torn");
    assert_eq!(found(&recovered), (0..33).collect());
    let unit = layout.sector_offset(0);
    // It can be read again when the map is read, or never.
    for times in [4, 1_000_000] {
        let script = FaultScript::new();
        let device = Faulty::new(disk.clone(), Arc::clone(&script), None);
        let fault = format!("read offset {unit}..{} times {times} fail EIO", unit + 4096);
        script.load(&fault).unwrap();
        let (store, recovered) = reopen(device);
        let damage: Vec<&Lost> = recovered.lost.iter().filter(|l| l.is_damage()).collect();
        let sector = Lost::MapSector {
            offset: unit,
            blocks: 0..15,
        };
        let told = damage.iter().filter(|lost| ***lost == sector);
        assert_eq!(told.count(), 1, "{times} times: {damage:?}");
        assert!(!found(&recovered).contains(&0), "what it held is unknown");
        drop(store);
    }
}
