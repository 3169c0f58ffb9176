#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline_core::policy::{NAMES, PolicyOptions};
use thermocline_core::{
    Absorbed, Cleaned, Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId, ReadStart, hint_type,
};

// Byte 0 chooses the policy, byte 1 the number of slots; then three bytes are a request: what to
// do, which page, which hints. Invariants hold after every request, whatever the requests are.
fuzz_target!(|data: &[u8]| {
    let [policy, slots, requests @ ..] = data else {
        return;
    };
    let policy_options = PolicyOptions::new(u32::from(*slots % 16) + 1);
    let options = HierarchyOptions {
        frames: u32::from(*slots / 16),
        buffer_pages: 2,
        reserve: u32::from(*policy / 64),
        write_back: *policy & 32 != 0,
        recovery_age: 20,
        ..HierarchyOptions::new(NAMES[usize::from(*policy) % NAMES.len()], policy_options)
    };
    let Ok(mut hierarchy) = Hierarchy::new(&options) else {
        panic!("{} can be made", options.policy);
    };
    for request in requests.chunks_exact(3) {
        step(&mut hierarchy, [request[0], request[1], request[2]]);
        hierarchy.assert_invariants();
    }
});

fn step(hierarchy: &mut Hierarchy, [action, page, hint]: [u8; 3]) {
    let far = if action & 0x80 == 0 {
        0
    } else {
        u64::MAX - 255
    };
    let page = PageId::new(ObjectId(u32::from(page >> 6)), far + u64::from(page & 63));
    let mut hints = HintSet::UNKNOWN;
    hints.set(hint_type::REQUEST, u32::from(hint % 8));
    hints.set(hint_type::OBJECT, u32::from(hint / 8));
    let mut out = Vec::new();
    match action % 4 {
        0 if hierarchy.start_write(page) => {
            let whole = action & 8 == 0 || hierarchy.is_dirty(page);
            match hierarchy.absorb(page, &hints, u64::from(hint), &mut out) {
                Absorbed::Base => {
                    hierarchy.finish_write(page, &hints, whole, action & 16 == 0, &mut out);
                }
                Absorbed::Done => {}
                Absorbed::Wait | Absorbed::Lost => hierarchy.abandon_write(page, &mut out),
            }
        }
        0 => {}
        1 => hierarchy.trim(
            page.object,
            page.index,
            page.index.saturating_add(9),
            &mut out,
        ),
        _ => {
            let start = hierarchy.start_read(page);
            assert_ne!(start, ReadStart::Busy, "nothing is under way");
            hierarchy.finish_read(page, &hints, start, &mut out);
        }
    }
    // Some requests leave their flash writes to later ones.
    if action & 4 == 0 {
        while let Some(job) = hierarchy.next_write() {
            hierarchy.end_write(job, Ok(0), &mut out);
        }
        hierarchy.commit_now(&mut out);
        while let Cleaned::Base(job) = hierarchy.next_clean(u64::from(hint), &mut out) {
            hierarchy.finish_clean(&job, true, &mut out);
        }
        if hierarchy.destage_due() {
            let jobs = hierarchy.next_destage(4, None);
            for job in &jobs {
                hierarchy.destage_written(job, &mut out);
            }
            hierarchy.destaged(&jobs, &mut out);
        }
    }
}
