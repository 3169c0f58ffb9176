//! Every policy on the same streams: properties that hold for all, and golden miss counts.

use proptest::prelude::*;
use thermocline_core::policy::{self, PolicyOptions, TacConfig, TacLabels};
use thermocline_core::{
    Costs, Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId, ReadStart, RequestType, Source,
    hint_type,
};

fn hierarchy(policy: &str, slots: u32, tac: TacConfig) -> Hierarchy {
    let policy_options = PolicyOptions {
        tac,
        ..PolicyOptions::new(slots)
    };
    let options = HierarchyOptions {
        buffer_pages: 1,
        ..HierarchyOptions::new(policy, policy_options)
    };
    Hierarchy::new(&options).expect("a known policy")
}

/// One request, flash writes done at once; true when the page was on flash.
fn request(hierarchy: &mut Hierarchy, page: PageId, write: bool, hints: &HintSet) -> bool {
    let mut out = Vec::new();
    let hit = hierarchy.slots().find(page).is_some();
    if write {
        assert!(hierarchy.start_write(page));
        hierarchy.finish_write(page, hints, true, true, &mut out);
    } else {
        let start = hierarchy.start_read(page);
        assert_ne!(start, ReadStart::Busy);
        assert_eq!(hit, start.source() != Some(Source::Base));
        hierarchy.finish_read(page, hints, start, &mut out);
    }
    while let Some(job) = hierarchy.next_write() {
        hierarchy.end_write(job, Ok(0), &mut out);
    }
    hierarchy.commit_now(&mut out);
    hit
}

/// A small fixed stream with hot pages, a loop and a scan: splitmix64, no library involved.
fn stream() -> Vec<PageId> {
    let mut state = 42u64;
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let mut pages = Vec::new();
    for i in 0..20_000u64 {
        let draw = next();
        let page = match draw % 10 {
            // 60 %: 320 hot pages in ten regions far apart; 20 %: a loop; 20 %: a slow scan.
            0..=5 => (draw / 16 % 10) * 1000 + draw / 1024 % 32,
            6 | 7 => 20_000 + (i % 600),
            _ => 40_000 + i / 5,
        };
        pages.push(PageId::new(ObjectId(1), page));
    }
    pages
}

fn misses(policy: &str, slots: u32, tac: TacConfig) -> usize {
    let mut hierarchy = hierarchy(policy, slots, tac);
    let unknown = HintSet::UNKNOWN;
    let missed = stream()
        .iter()
        .filter(|p| !request(&mut hierarchy, **p, false, &unknown))
        .count();
    hierarchy.assert_invariants();
    missed
}

/// LRU, FIFO and CLOCK counted again by the plainest code there is.
fn naive_misses(policy: &str, slots: usize) -> usize {
    let mut queue: Vec<(PageId, bool)> = Vec::new();
    let mut missed = 0;
    for page in stream() {
        if let Some(at) = queue.iter().position(|e| e.0 == page) {
            match policy {
                "lru" => {
                    let entry = queue.remove(at);
                    queue.push(entry);
                }
                "clock" => queue[at].1 = true,
                _ => {}
            }
            continue;
        }
        missed += 1;
        while queue.len() >= slots {
            let (page, referenced) = queue.remove(0);
            if referenced {
                queue.push((page, false));
            }
        }
        queue.push((page, false));
    }
    missed
}

#[test]
fn recency_policies_agree_with_the_plainest_code() {
    for name in ["lru", "fifo", "clock"] {
        for slots in [1, 7, 100, 400, 1500] {
            let counted = misses(name, slots, TacConfig::default());
            assert_eq!(
                counted,
                naive_misses(name, slots as usize),
                "{name} with {slots} slots"
            );
        }
    }
}

#[test]
fn golden_miss_counts() {
    let found: Vec<(&str, [usize; 3])> = policy::NAMES
        .iter()
        .map(|name| {
            (
                *name,
                [100, 400, 1500].map(|slots| misses(name, slots, TacConfig::default())),
            )
        })
        .collect();
    let golden = [
        ("tac", [15_820, 7_877, 4_354]),
        ("tac-bands-lru", [15_849, 7_804, 4_285]),
        ("tac-bands-mru", [15_852, 7_713, 4_279]),
        ("priority", [16_381, 10_911, 4_013]),
        ("lru", [16_381, 10_911, 4_013]),
        ("fifo", [16_474, 11_229, 5_395]),
        ("clock", [16_447, 10_644, 4_055]),
        ("lirs", [16_408, 8_765, 3_768]),
        ("s3-fifo", [15_206, 7_661, 3_896]),
        ("sieve", [15_994, 7_948, 3_895]),
        ("w-tinylfu", [15_431, 6_938, 3_688]),
        ("clic", [17_020, 10_564, 4_013]),
        ("clic-topk", [17_019, 10_544, 4_013]),
        ("clic-hybrid", [17_140, 10_525, 4_013]),
        ("dp-clic", [16_573, 10_911, 4_013]),
        ("dp-clic-topk", [16_573, 10_911, 4_013]),
        ("dp-clic-hybrid", [16_539, 10_874, 4_013]),
        ("lru2", [16_399, 9_287, 3_813]),
        ("2q", [15_418, 8_927, 4_556]),
        ("arc", [15_955, 9_076, 3_772]),
        ("mq", [15_300, 7_331, 3_764]),
        ("tq", [16_381, 10_911, 4_013]),
        ("cac", [16_196, 8_197, 4_616]),
        ("cc", [16_196, 8_197, 4_616]),
        ("lc", [16_399, 9_287, 3_813]),
        ("mv-fifo", [16_474, 11_229, 5_395]),
        ("clean-write", [16_399, 9_287, 3_813]),
        ("dual-write", [16_399, 9_287, 3_813]),
        ("tac-mixed", [15_820, 7_877, 4_354]),
        ("tac-blocks", [15_871, 8_103, 4_590]),
        ("value", [15_565, 7_097, 3_604]),
        ("value-time", [15_608, 7_062, 3_606]),
        ("auto", [15_679, 7_097, 3_604]),
    ];
    assert_eq!(found, golden);
}

#[test]
fn tac_keeps_hot_regions_where_lru_does_not() {
    let tac = misses("tac", 400, TacConfig::default());
    let lru = misses("lru", 400, TacConfig::default());
    assert!(tac < lru, "TAC missed {tac}, LRU {lru}");
}

/// §3.1: the label comes from the window, and the cost arrives when the window closes.
#[test]
fn tac_window_labels_and_charges() {
    let config = TacConfig {
        window: 4,
        sequential_above: 2,
        labels: TacLabels::Window,
        ..TacConfig::default()
    };
    let costs = Costs {
        base_random_read: 10_000.0,
        base_sequential_read: 3_000.0,
        flash_read: 1_000.0,
        ..Costs::default()
    };
    let options = PolicyOptions {
        tac: config,
        costs,
        ..PolicyOptions::new(8)
    };
    let mut tac = policy::Tac::new(&options);
    let page = |index| PageId::new(ObjectId(1), index);
    let read = |tac: &mut policy::Tac, index: u64, number: u64| {
        use policy::TierPolicy;
        let access = policy::Access {
            page: page(index),
            op: policy::Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        };
        tac.on_request(&access, None);
    };
    // Region 0 three times: sequential. Region 5 once: random.
    for (number, index) in [0, 1, 2].into_iter().enumerate() {
        read(&mut tac, index, number as u64);
    }
    assert_eq!(
        tac.temperature(page(0)),
        0.0,
        "no label before the window closes"
    );
    read(&mut tac, 5 * 32, 3);
    assert_eq!(
        tac.temperature(page(31)),
        3.0 * 2.0,
        "three sequential reads save 2 us each"
    );
    assert_eq!(
        tac.temperature(page(5 * 32)),
        9.0,
        "one random read saves 9 us"
    );
    assert_eq!(
        tac.temperature(page(32)),
        0.0,
        "the next region saw nothing"
    );
}

#[test]
fn tac_believes_hints_and_ages() {
    use policy::{Access, Op, TierPolicy};
    let config = TacConfig {
        ageing_requests: 10,
        ageing_factor: 0.5,
        ..TacConfig::default()
    };
    let costs = Costs {
        base_random_read: 9_000.0,
        base_sequential_read: 2_000.0,
        flash_read: 1_000.0,
        ..Costs::default()
    };
    let mut tac = policy::Tac::new(&PolicyOptions {
        tac: config,
        costs,
        ..PolicyOptions::new(8)
    });
    let page = PageId::new(ObjectId(1), 0);
    let hinted = |request: RequestType, op| Access {
        page,
        op,
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, request.value()),
        number: 0,
    };
    tac.on_request(&hinted(RequestType::Read, Op::Read), None);
    assert_eq!(tac.temperature(page), 8.0);
    tac.on_request(&hinted(RequestType::SequentialRead, Op::Read), None);
    assert_eq!(tac.temperature(page), 9.0);
    for _ in 0..7 {
        tac.on_request(&hinted(RequestType::RecoveryWrite, Op::Write), None);
    }
    assert_eq!(tac.temperature(page), 9.0, "writes warm nothing");
    tac.on_request(&hinted(RequestType::RecoveryWrite, Op::Write), None);
    assert_eq!(tac.temperature(page), 4.5, "halved after ten requests");
}

/// §3.3: at the bound the region table forgets cold regions and keeps warm ones.
#[test]
fn tac_region_table_is_bounded() {
    use policy::{Access, Op, TierPolicy};
    let config = TacConfig {
        ageing_factor: 1.0,
        ..TacConfig::default()
    };
    let mut tac = policy::Tac::new(&PolicyOptions {
        tac: config,
        ..PolicyOptions::new(8)
    });
    let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
    let read = |tac: &mut policy::Tac, index: u64| {
        let page = PageId::new(ObjectId(1), index);
        tac.on_request(
            &Access {
                page,
                op: Op::Read,
                hints,
                number: 0,
            },
            None,
        );
    };
    for _ in 0..5 {
        read(&mut tac, 0);
    }
    for region in 1..50_000u64 {
        read(&mut tac, region * 32);
    }
    assert!(tac.regions() <= 4096);
    assert!(
        tac.temperature(PageId::new(ObjectId(1), 0)) > 0.0,
        "the warmest region survived"
    );
}

fn arbitrary_hints() -> impl Strategy<Value = HintSet> {
    (0u32..7, 0u32..9, 0u32..12).prop_map(|(request, kind, page_type)| {
        HintSet::UNKNOWN
            .with(hint_type::REQUEST, request)
            .with(hint_type::FILE_KIND, kind)
            .with(hint_type::PAGE_TYPE, page_type)
    })
}

proptest! {
    #[test]
    fn any_stream_keeps_every_policy_sane(
        slots in prop::sample::select(vec![1u32, 2, 5, 33]),
        requests in prop::collection::vec(
            (prop::sample::select(vec![
                0u64, 1, 2, 3, 40, 41, 99, 1 << 32, (1 << 32) + 1, u64::MAX, u64::MAX - 1,
             ]),
             0u32..3, any::<bool>(), arbitrary_hints(), prop::bool::weighted(0.03)),
            1..300),
    ) {
        for name in policy::NAMES {
            let run = || {
                let mut h = hierarchy(name, slots, TacConfig::default());
                let mut log = Vec::new();
                for (index, object, write, hints, trim) in &requests {
                    let page = PageId::new(ObjectId(*object), *index);
                    if *trim {
                        h.trim(page.object, page.index, u64::MAX, &mut Vec::new());
                        prop_assert!(h.slots().find(page).is_none());
                    }
                    log.push(request(&mut h, page, *write, hints));
                    prop_assert!(h.slots().resident() <= slots);
                    h.assert_invariants();
                }
                Ok(log)
            };
            prop_assert_eq!(run()?, run()?, "same input, same output: {}", name);
        }
    }
}
