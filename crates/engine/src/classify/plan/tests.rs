use super::*;
use proptest::prelude::*;
use thermocline_core::policy::{Assignment, BuiltIn};

fn relation(node: u32) -> Relation {
    Relation { database: 5, node }
}

/// A slot as the extension writes it; entries are ⟨node, level, access, operator⟩.
fn slot(pid: u32, levels: (u8, u8), entries: &[(u32, u8, u8, u8)]) -> Vec<u8> {
    let mut bytes = vec![0; SLOT_BYTES];
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(0, 9);
    put(4, pid);
    put(8, 77);
    put(STARTED_AT, 9);
    for (entry, at) in entries.iter().zip((ENTRIES_AT..).step_by(ENTRY_BYTES)) {
        put(at, 5);
        put(at + 4, entry.0);
        put(at + 8, u32::from_le_bytes([entry.1, entry.2, entry.3, 0]));
    }
    (bytes[20], bytes[21], bytes[22]) = (levels.0, levels.1, entries.len() as u8);
    bytes
}

fn plans(slots: &[Vec<u8>]) -> Plans {
    let mut plans = Plans::default();
    for bytes in slots {
        plans.add(&Slot::decode(bytes).expect("a slot"));
    }
    plans
}

/// The priority of a read of `node` by the process of `own`, with n1 = 2 and n2 = 5.
fn priority(all: &Plans, own: &[u8], node: u32, detected: Access) -> u8 {
    let own = Slot::decode(own).expect("a slot");
    let entry = own.entry(relation(node)).expect("an entry");
    let hints = all.hint(HintSet::UNKNOWN, entry, detected, 3);
    Assignment::built_in(BuiltIn::Postgres, 7).priority(&hints)
}

/// §4.2.2: t.a 2, t.b 4, t.c 2; the scan of t.b has N − 1 = 6.
#[test]
fn figure_2() {
    let own = slot(
        812,
        (0, 2),
        &[(1, 0, 2, 3), (2, 2, 3, 3), (3, 0, 2, 3), (4, 255, 1, 1)],
    );
    let all = plans(std::slice::from_ref(&own));
    let found = [1, 2, 3].map(|node| priority(&all, &own, node, Access::Random));
    assert_eq!(found, [2, 4, 2]);
    assert_eq!(priority(&all, &own, 2, Access::Sequential), 6, "its scan");
    assert_eq!(
        priority(&all, &own, 1, Access::Sequential),
        2,
        "the plan knows better"
    );
    assert_eq!(priority(&all, &own, 4, Access::Random), 6);
}

/// §6.3.1: query 9 has supplier 2 and orders 3, query 21 orders 2 and lineitem 3; beside each other
/// (§4.3) orders has the better of its two.
#[test]
fn queries_9_and_21_alone_and_together() {
    let (supplier, orders, lineitem) = (1, 2, 3);
    let q9 = slot(9, (1, 2), &[(supplier, 1, 2, 3), (orders, 2, 2, 3)]);
    let q21 = slot(21, (1, 2), &[(orders, 1, 2, 3), (lineitem, 2, 3, 3)]);
    let alone = plans(std::slice::from_ref(&q9));
    let found = [supplier, orders].map(|node| priority(&alone, &q9, node, Access::Random));
    assert_eq!(found, [2, 3]);
    let alone = plans(std::slice::from_ref(&q21));
    let found = [orders, lineitem].map(|node| priority(&alone, &q21, node, Access::Random));
    assert_eq!(found, [2, 3]);
    let both = plans(&[q9.clone(), q21]);
    assert_eq!(priority(&both, &q9, orders, Access::Random), 2);
    assert_eq!(both.count(relation(orders), 1), 1);
    assert_eq!(both.count(relation(orders), 2), 1);
    assert_eq!(both.count(relation(orders), 99), 0);
}

/// The branches of function (1).
#[test]
fn levels_become_steps() {
    assert_eq!(steps(4, (4, 4), 3), 0, "no gap");
    assert_eq!(steps(9, (4, 9), 0), 0, "no range");
    assert_eq!([4, 5, 7].map(|level| steps(level, (4, 7), 3)), [0, 1, 3]);
    let scaled = [0, 1, 2, 3, 4, 5, 6].map(|level| steps(level, (0, 6), 3));
    assert_eq!(scaled, [0, 0, 1, 1, 2, 2, 3], "more levels than priorities");
}

#[test]
fn another_querys_levels_widen_the_range() {
    let own = slot(1, (3, 3), &[(1, 3, 2, 3)]);
    let other = slot(2, (1, 7), &[(9, 1, 2, 3)]);
    let alone = plans(std::slice::from_ref(&own));
    assert_eq!(priority(&alone, &own, 1, Access::Random), 2);
    let both = plans(&[own.clone(), other]);
    assert_eq!(
        priority(&both, &own, 1, Access::Random),
        3,
        "3 x 2 / 6 = 1 step"
    );
}

#[test]
fn what_makes_no_sense_is_no_hint() {
    let good = slot(812, (0, 2), &[(1, 0, 2, 3)]);
    let found = Slot::decode(&good).expect("a slot");
    assert_eq!(
        (found.pid, found.start, found.levels),
        (812, 77, Some((0, 2)))
    );
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(Slot::decode(&with(0, 10)), None, "being written");
    assert_eq!(
        Slot::decode(&with(7, 1)),
        None,
        "no process has this number"
    );
    assert_eq!(Slot::decode(&with(22, 41)), None, "too many entries");
    assert_eq!(Slot::decode(&with(ENTRIES_AT + 8, 3)), None, "above l_high");
    let odd = Slot::decode(&with(ENTRIES_AT + 9, 8)).expect("a slot");
    assert_eq!(odd.entries, [], "no such access");
    assert_eq!(Slot::decode(&good[..511]), None);
    let header = |slots: u32| [MAGIC.as_slice(), &slots.to_le_bytes(), &[0, 2, 0, 0]].concat();
    assert_eq!(slots(&header(3)), Some(3));
    assert_eq!(slots(&header(0)), None);
    assert_eq!(slots(&header(SLOTS_MAX + 1)), None);
    assert_eq!(slots(&header(3)[..12]), None);
}

#[test]
fn files_are_relations() {
    let of = |path: &str| Relation::of_path(path).map(|r| (r.database, r.node));
    assert_eq!(of("base/5/16402"), Some((5, 16402)));
    assert_eq!(of("pg/data/base/5/16402.7"), Some((5, 16402)));
    assert_eq!(of("ts/PG_15_202209061/5/16402"), Some((5, 16402)));
    assert_eq!(of("base/5/t3_16402"), Some((5, 16402)));
    assert_eq!(of("global/1262"), Some((0, 1262)));
    for other in [
        "base/5/16402_fsm",
        "base/5/16402.x",
        "pg_wal/0001",
        "16402",
        "base/x/1",
    ] {
        assert_eq!(of(other), None, "{other}");
    }
}

/// Whatever the bytes, decoding, the table and the hints hold; `THERMOCLINE_MUTATIONS` says how
/// many mutations (10 million in evaluation/plans/hostile.sh).
#[test]
fn a_hostile_writer_changes_hints_only() {
    let mutations = std::env::var("THERMOCLINE_MUTATIONS").ok();
    let mutations = mutations.map_or(200_000, |n| n.parse::<u64>().expect("a number"));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        thermocline_core::hash::mix(state, 1)
    };
    let mut all = vec![slot(1, (0, 9), &[(1, 0, 2, 3), (2, 9, 3, 4)]); 8];
    let (mut decoded, mut entries) = (0u64, 0u64);
    for _ in 0..mutations {
        let at = random();
        let bytes = &mut all[at as usize % 8];
        // Mostly near the numbers that are looked at; now and then a slot is made good again.
        match at >> 32 & 15 {
            0 => *bytes = slot(1, (0, 9), &[(1, 0, 2, 3), (2, 9, 3, 4)]),
            1 => bytes.iter_mut().for_each(|byte| *byte = random() as u8),
            n if n < 9 => bytes[random() as usize % 64] = random() as u8,
            _ => bytes[random() as usize % SLOT_BYTES] = random() as u8,
        }
        let Some(slot) = Slot::decode(bytes) else {
            continue;
        };
        decoded += 1;
        let mut plans = Plans::default();
        let others = all.iter().filter_map(|bytes| Slot::decode(bytes));
        others.for_each(|slot| plans.add(&slot));
        for entry in &slot.entries {
            entries += 1;
            let detected = [Access::Random, Access::Sequential][at as usize >> 8 & 1];
            let hints = plans.hint(HintSet::UNKNOWN, entry, detected, (at >> 40) as u8);
            check(&hints);
        }
    }
    assert!(
        decoded > mutations / 100 && entries > mutations / 100,
        "{decoded} {entries}"
    );
}

fn check(hints: &HintSet) {
    let within = |position: usize, values: usize| (hints.get(position) as usize) < values;
    assert!(within(hint_type::PLAN_LEVEL, PlanLevel::ALL.len()));
    assert!(within(hint_type::PLAN_ACCESS, PlanAccess::ALL.len()));
    assert!(within(hint_type::PLAN_OPERATOR, PlanOperator::ALL.len()));
    let mut others = (0..thermocline_core::hint::HINT_TYPES_MAX)
        .filter(|position| !(hint_type::PLAN_LEVEL..=hint_type::PLAN_OPERATOR).contains(position));
    assert!(others.all(|position| hints.get(position) == 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]
    #[test]
    fn any_path_is_a_relation_or_none(path in "[a-zPG_0-9./]{0,30}") {
        prop_assert!(Relation::of_path(&path).is_none_or(|_| path.contains('/')));
    }
}
