//! A restart that brings back all pages at once leaves the tables as one that brings them one by
//! one.

use proptest::prelude::*;
use thermocline_core::ledger::Intent;
use thermocline_core::policy::PolicyOptions;
use thermocline_core::{BlockId, Hierarchy, HierarchyOptions, HintSet, MapEntry, ObjectId, PageId};

/// More pages than are brought near together.
const PAGES: u64 = 300;

fn hierarchy(policy: &str, slots: u32, reserve: u32) -> Hierarchy {
    let options = HierarchyOptions {
        blocks: PAGES as u32,
        reserve,
        write_back: true,
        ..HierarchyOptions::new(policy, PolicyOptions::new(slots))
    };
    Hierarchy::new(&options).expect("a known policy")
}

fn page(number: u64) -> PageId {
    // Several extents of several objects.
    PageId::new(ObjectId((number % 3) as u32), number / 3 * 100)
}

fn entry(page: PageId, version: u64, dirty: bool) -> MapEntry {
    MapEntry {
        page,
        checksum: version * 7,
        version,
        dirty,
    }
}

/// Everything that can be asked of the tables; the victims of pages that come in afterwards tell
/// what the policy knows.
fn seen(mut hierarchy: Hierarchy) -> Vec<String> {
    hierarchy.restored(1000, []);
    hierarchy.assert_invariants();
    let ledger = format!("{:?}", hierarchy.ledger());
    let mut seen = vec![format!("{:?}", hierarchy.slots()), ledger];
    let mut out = Vec::new();
    for number in 0..20 {
        let page = PageId::new(ObjectId(9), number);
        let how = hierarchy.start_read(page);
        hierarchy.finish_read(page, &HintSet::UNKNOWN, how, &mut out);
    }
    seen.push(format!("{out:?} {:?}", hierarchy.slots()));
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Some pages and blocks twice, more pages than slots, pages that were there before, and one
    /// in doubt, which goes when another copy of it comes.
    #[test]
    fn all_at_once_is_one_after_the_other(
        policy in prop::sample::select(vec!["tac", "lru", "lc"]),
        slots in prop::sample::select(vec![40u32, 150, 300]),
        reserve in prop::sample::select(vec![0u32, 20]),
        before in proptest::collection::vec((0..PAGES as u32, 0..PAGES, any::<bool>()), 0..5),
        found in proptest::collection::vec((0..PAGES as u32, 0..PAGES, any::<bool>()), 0..400),
        doubted in proptest::option::of((0..PAGES as u32, 0..PAGES)),
    ) {
        let mut one_by_one = hierarchy(policy, slots, reserve);
        let mut at_once = hierarchy(policy, slots, reserve);
        for tables in [&mut one_by_one, &mut at_once] {
            for &(block, number, dirty) in &before {
                tables.restore(BlockId(block), &entry(page(number), 1, dirty));
            }
            if let Some((block, number)) = doubted {
                tables.hold_in_doubt(BlockId(block), &entry(page(number), 1, false));
                let intents = [Intent::all_of(page(number).object)];
                tables.restored(2, intents);
            }
        }
        let all = (2..).zip(found).map(|(version, (block, number, dirty))| {
            (BlockId(block), entry(page(number), version, dirty))
        });
        let all: Vec<_> = all.collect();
        let came = all.iter().filter(|(block, entry)| one_by_one.restore(*block, entry)).count();
        let at_a_time = at_once.restore_all(all.iter().map(|(block, entry)| (*block, entry)));
        prop_assert_eq!(at_a_time as usize, came);
        prop_assert_eq!(seen(at_once), seen(one_by_one));
    }
}
