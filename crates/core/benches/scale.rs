//! Memory and time of the decisions as the tier grows: slot table, ledger and default policy under
//! one [`Hierarchy`], write-through, no pool and no I/O.
//!
//! `cargo bench -p thermocline-core --bench scale [-- SIZE...] [--policy NAME]`, a size being `1G`,
//! `16G`, `128G` (the default) or `1T` of 8-KiB slots. Base is 20 times as large, in 100,000 files.
//! Each size is a process of its own, so that none finds memory that another gave back.
//!
//! The tier is filled as by a restart, every slot with another page. Then four streams of reads,
//! one after another, each request with the flash write and the commits it leads to:
//!
//! - `hit`: pages on flash, any as likely as any other;
//! - `zipf`: pages of base, the n-th asked for with probability about 1/n, ranks scattered;
//! - `uniform`: pages of base, any as likely, so most are misses, and most come in;
//! - `hit` once more, after what the others did to the tables.
//!
//! Columns: nanoseconds of CPU a request (of this thread, so that other work changes little), the
//! share of misses, and bytes a slot as the system counts them (growth of the resident set: what
//! was really touched, allocator included) after filling and at the end, the peak, and what the
//! hierarchy itself says that it holds.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "the decisions are pure; measuring them takes a clock, a file and a terminal"
)]

use std::process::Command;
use std::time::{Duration, Instant};
use thermocline_core::hint::RequestType;
use thermocline_core::policy::PolicyOptions;
use thermocline_core::{
    Action, BlockId, Hierarchy, HierarchyOptions, HintSet, MapEntry, ObjectId, PageId, ReadStart,
    SlotId, hash, hint_type,
};

const PAGE: u64 = 8192;
const FILES: u64 = 100_000;
/// Pages of base for each slot.
const BASE: u64 = 20;
/// Requests of a stream for each slot, at least, and at most in all.
const REQUESTS_MIN: u64 = 2_000_000;
/// Pages that come back at a time.
const FILL: usize = 1 << 18;
/// Changes in a batch.
const BATCH: usize = 10_000;
/// CPU nanoseconds of this thread so far, then two other numbers.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";
/// Set for the process that measures one size.
const CHILD: &str = "THERMOCLINE_SCALE_CHILD";

fn cpu_time(start: Instant) -> Duration {
    let text = std::fs::read_to_string(SCHEDSTAT).ok();
    let nanoseconds = text.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// Bytes of a line of this process's status, which gives KiB; NaN where there is none.
fn status(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    number.map_or(f64::NAN, |kib| kib * 1024.0)
}

/// A page of base by its number, in files of equal length.
fn page_of(number: u64, pages: u64) -> PageId {
    let file = pages.div_ceil(FILES);
    PageId::new(ObjectId(1 + (number / file) as u32), number % file)
}

/// Another number below `pages` for each number below it: a few steps of a walk that leaves no
/// number out.
fn scattered(number: u64, pages: u64) -> u64 {
    let bits = u64::BITS - (pages - 1).leading_zeros();
    let mask = (1u64 << bits) - 1;
    let mut at = number;
    loop {
        // An odd factor, a shift and an odd factor: each maps bits one to one.
        at = at.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask;
        at ^= at >> (bits / 2);
        at = at.wrapping_mul(0xBF58_476D_1CE4_E5B9) & mask;
        if at < pages {
            return at;
        }
    }
}

struct Tier {
    hierarchy: Hierarchy,
    hints: HintSet,
    slots: u64,
    actions: Vec<Action>,
    asked: u64,
    misses: u64,
}

impl Tier {
    fn new(policy: &str, slots: u32) -> Self {
        let options = HierarchyOptions::new(policy, PolicyOptions::new(slots));
        Self {
            hierarchy: Hierarchy::new(&options).expect("a known policy"),
            hints: HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value()),
            slots: u64::from(slots),
            actions: Vec::new(),
            asked: 0,
            misses: 0,
        }
    }

    fn pages(&self) -> u64 {
        self.slots * BASE
    }

    /// Every slot gets a page, as after a restart.
    fn fill(&mut self) {
        for first in (0..self.slots).step_by(FILL) {
            let of = |block| MapEntry {
                page: page_of(scattered(block, self.pages()), self.pages()),
                checksum: block,
                version: block,
                dirty: false,
            };
            let blocks = first..self.slots.min(first + FILL as u64);
            let entries: Vec<_> = blocks.clone().map(of).collect();
            let named = blocks.map(|block| BlockId(block as u32)).zip(&entries);
            assert_eq!(self.hierarchy.restore_all(named) as usize, entries.len());
        }
        self.hierarchy.restored(self.slots + 1, []);
        assert_eq!(u64::from(self.hierarchy.slots().resident()), self.slots);
    }

    fn read(&mut self, page: PageId) {
        self.actions.clear();
        let how = self.hierarchy.start_read(page);
        self.misses += u64::from(how == ReadStart::Base);
        let out = &mut self.actions;
        self.hierarchy.finish_read(page, &self.hints, how, out);
        while let Some(job) = self.hierarchy.next_write() {
            self.hierarchy
                .end_write(job, Ok(u64::from(job.block.0)), out);
        }
        if self.hierarchy.ledger().changed() >= BATCH || self.hierarchy.wants_commit() {
            self.hierarchy.commit_now(out);
        }
    }

    /// Nanoseconds a request, and the share of misses.
    fn stream(&mut self, next: impl Fn(&Self, u64) -> PageId) -> (f64, f64) {
        let requests = (self.slots / 4).clamp(REQUESTS_MIN, 8 * REQUESTS_MIN);
        let misses = self.misses;
        let start = Instant::now();
        let before = cpu_time(start);
        for _ in 0..requests {
            self.asked += 1;
            let page = next(self, hash::mix(7, self.asked));
            self.read(page);
        }
        let taken = cpu_time(start) - before;
        let missed = (self.misses - misses) as f64 / requests as f64;
        (taken.as_secs_f64() * 1e9 / requests as f64, missed)
    }
}

fn on_flash(tier: &Tier, draw: u64) -> PageId {
    let slot = SlotId((draw % tier.slots) as u32);
    // A slot whose page was dropped stands for the first one.
    tier.hierarchy.slots().page(slot).unwrap_or_default()
}

fn anywhere(tier: &Tier, draw: u64) -> PageId {
    page_of(draw % tier.pages(), tier.pages())
}

fn by_rank(tier: &Tier, draw: u64) -> PageId {
    let uniform = (draw >> 11) as f64 / (1u64 << 53) as f64;
    let rank = ((tier.pages() + 1) as f64).powf(uniform) as u64;
    let rank = rank.clamp(1, tier.pages()) - 1;
    page_of(scattered(rank, tier.pages()), tier.pages())
}

fn measure(policy: &str, name: &str, slots: u32) {
    let empty = status("VmRSS:");
    let start = Instant::now();
    let before = cpu_time(start);
    let mut tier = Tier::new(policy, slots);
    tier.fill();
    let per_slot = |bytes: f64| bytes / f64::from(slots);
    let fill = per_slot((cpu_time(start) - before).as_secs_f64() * 1e9);
    let filled = per_slot(status("VmRSS:") - empty);
    let (first, _) = tier.stream(on_flash);
    let (zipf, zipf_missed) = tier.stream(by_rank);
    let (uniform, uniform_missed) = tier.stream(anywhere);
    let (last, _) = tier.stream(on_flash);
    let (held, peak) = (status("VmRSS:") - empty, status("VmHWM:") - empty);
    println!(
        "{name:>5} {slots:>10} {fill:>6.0} {first:>5.0} {zipf:>6.0} ({:>4.1}%) {uniform:>6.0} \
         ({:>4.1}%) {last:>5.0} {filled:>8.1} {:>6.1} {:>6.1} {:>6.1}",
        100.0 * zipf_missed,
        100.0 * uniform_missed,
        per_slot(held),
        per_slot(peak),
        per_slot(tier.hierarchy.bytes() as f64),
    );
}

fn slots_of(name: &str) -> Option<u32> {
    let (number, unit) = name.split_at(name.len().checked_sub(1)?);
    let shift = match unit {
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    u32::try_from(bytes / PAGE).ok()
}

fn main() {
    let mut sizes = Vec::new();
    let mut policy = "tac".to_string();
    let mut arguments = std::env::args().skip(1);
    let mut benching = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => benching = true,
            "--policy" => policy = arguments.next().expect("--policy NAME"),
            size => sizes.push(size.to_string()),
        }
    }
    if let Ok(name) = std::env::var(CHILD) {
        let slots = slots_of(&name).expect("a size such as 16G");
        return measure(&policy, &name, slots);
    }
    if sizes.is_empty() {
        let some = if benching {
            &["1G", "16G", "128G"][..]
        } else {
            &["16M"]
        };
        sizes.extend(some.iter().map(ToString::to_string));
    }
    println!("{policy}: CPU ns a request (misses); bytes a slot: resident set, and as reported");
    println!(
        " size      slots   fill   hit   zipf          uniform            hit   filled    end   \
         peak   says"
    );
    let program = std::env::current_exe().expect("this program");
    for size in sizes {
        let mut child = Command::new(&program);
        child.args(["--policy", &policy]).env(CHILD, &size);
        let status = child.status().expect("this program starts");
        assert!(status.success(), "{size} could not be measured");
    }
}
