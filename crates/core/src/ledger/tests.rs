//! What waits for which batch, where two are under way.

use super::*;
use crate::page::ObjectId;

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

/// Writes `page`, which `old` held before, to a block.
fn write(ledger: &mut Ledger, page: PageId, dirty: bool, old: Option<BlockId>) -> BlockId {
    let block = ledger.take().expect("a free block");
    ledger.wrote(block, page, 7, dirty, old);
    block
}

/// Begins a batch, which is written at once.
fn begin(ledger: &mut Ledger) {
    ledger.begin_commit().expect("fewer than two are under way");
    ledger.commit_written();
}

#[test]
fn a_mark_of_the_second_batch_waits_for_the_second() {
    let mut ledger = Ledger::new(8);
    begin(&mut ledger);
    ledger.intend(page(3));
    begin(&mut ledger);
    ledger.end_commit();
    ledger.assert_invariants();
    assert!(!ledger.may_write_base(page(3)), "the first has ended");
    ledger.end_commit();
    assert!(ledger.may_write_base(page(3)), "the second has");
}

#[test]
fn an_old_block_is_free_when_the_batch_with_the_new_one_is_durable() {
    let mut ledger = Ledger::new(8);
    let first = write(&mut ledger, page(3), true, None);
    begin(&mut ledger);
    write(&mut ledger, page(3), true, Some(first));
    begin(&mut ledger);
    assert_eq!(ledger.free(), 6);
    ledger.end_commit();
    ledger.assert_invariants();
    assert_eq!(ledger.free(), 6, "the map names the first one still");
    ledger.end_commit();
    assert_eq!(ledger.free(), 7);
}

#[test]
fn a_dirty_page_that_left_is_owed_until_the_map_says_so() {
    let mut ledger = Ledger::new(8);
    let block = write(&mut ledger, page(3), true, None);
    ledger.intend(page(3));
    begin(&mut ledger);
    ledger.removed(block, page(3), true);
    begin(&mut ledger);
    ledger.end_commit();
    ledger.assert_invariants();
    assert!(ledger.owes(ObjectId(1)) && !ledger.may_write_base(page(3)));
    ledger.end_commit();
    assert!(!ledger.owes(ObjectId(1)) && ledger.may_write_base(page(3)));
}

#[test]
fn no_third_batch_is_begun_and_none_beside_one_that_is_being_written() {
    let mut ledger = Ledger::new(8);
    ledger.begin_commit().expect("none is under way");
    assert!(ledger.begin_commit().is_none(), "it is being written");
    ledger.commit_written();
    begin(&mut ledger);
    assert!(ledger.begin_commit().is_none(), "two are under way");
    ledger.end_commit();
    assert!(ledger.may_begin());
}

#[test]
#[should_panic(expected = "invariant 8")]
fn a_batch_does_not_end_before_the_one_in_front_of_it_was_written() {
    let mut ledger = Ledger::new(8);
    begin(&mut ledger);
    ledger.begin_commit().expect("one is under way");
    // Both end, though the second was never written.
    ledger.end_commit();
    ledger.commit_written();
    begin(&mut ledger);
    ledger.committing[0].written = false;
    ledger.end_commit();
}
