//! What a cache knows of the mark of its base.

use super::*;

#[test]
fn a_cache_knows_after_a_crash_which_opening_base_was_marked_with() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    store.commit(&with_object(vec![])).unwrap();
    let first = store.stamp();
    assert_eq!(first.marked, 0, "nobody said so");
    store.note_marked(&first).unwrap();
    let (store, recovered) = reopen(disk.crashed(&mut Random(3)));
    assert_eq!(store.stamp().marked, first.epoch);
    assert_eq!((recovered.last_commit_ns, recovered.clean_stop), (5, false));
    store.mark_open().unwrap();
    let second = store.stamp();
    assert_eq!(second.marked, first.epoch, "the mark is the former one yet");
    store.note_marked(&first).unwrap();
    assert_eq!(store.stamp(), second, "that opening is over");
    store.note_marked(&second).unwrap();
    store.checkpoint().unwrap();
    store.close(vec![]).unwrap();
    assert_eq!(store.stamp().marked, second.epoch);
}

#[test]
fn a_clean_stop_stays_as_exact_when_base_is_marked() {
    let disk = Disk::default();
    create(disk.clone(), SIZE).close(vec![object(1)]).unwrap();
    let (store, _) = reopen(disk.clone());
    store.mark_open().unwrap();
    store.note_marked(&store.stamp()).unwrap();
    let (store, recovered) = reopen(disk.crashed(&mut Random(4)));
    assert!(recovered.as_closed && !recovered.clean_stop);
    assert_eq!(store.stamp().marked, store.stamp().epoch);
}

/// The start that found out may be cut short after it marked base.
#[test]
fn what_is_distrusted_once_stays_so_after_further_crashes() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    store.commit(&with_object(vec![])).unwrap();
    let options = options(None);
    let device = Arc::new(disk.crashed(&mut Random(5)));
    let mut store = Store::with_device(device.clone(), "test", &options).unwrap();
    store.distrust();
    let found = store.take_recovered().unwrap();
    assert!(found.last_commit_ns < 0, "no file is as old");
    store.mark_open().unwrap();
    store.note_marked(&store.stamp()).unwrap();
    let device = Arc::new(device.crashed(&mut Random(6)));
    let (store, found) = reopen(device.clone());
    assert!(found.last_commit_ns < 0, "no batch was made since");
    assert_eq!(found.objects, [object(1)]);
    store.mark_open().unwrap();
    store.commit(&batch(vec![])).unwrap();
    let (_, found) = reopen(device.crashed(&mut Random(7)));
    assert_eq!(found.last_commit_ns, 5, "what it says now is believed");
}

#[test]
fn another_opening_begins_where_something_was_committed() {
    let disk = Disk::default();
    let store = create(disk.clone(), SIZE);
    let first = store.stamp();
    store.next_opening().unwrap();
    assert_eq!(store.stamp(), first, "a copy is the same yet");
    store.commit(&with_object(vec![])).unwrap();
    store.next_opening().unwrap();
    let second = store.stamp();
    assert_eq!(second.epoch, first.epoch + 1);
    store.note_marked(&second).unwrap();
    store.next_opening().unwrap();
    assert_eq!(store.stamp().epoch, second.epoch);
    let (store, recovered) = reopen(disk.crashed(&mut Random(8)));
    assert_eq!(
        (store.stamp().marked, recovered.objects.len()),
        (second.epoch, 1)
    );
}
