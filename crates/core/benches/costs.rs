//! What a hit and a miss cost under each policy, in nanoseconds, beside LRU's in the same turn.
//!
//! `cargo bench -p thermocline-core --bench costs [-- [--beside NAME] POLICY...]`; another policy
//! than LRU may be the one beside. The streams are those of `policies.rs`. A tier takes the whole
//! stream first. Then, in turns, LRU and the policy each take on a part of the stream, which gives
//! the cost of a request and what it is more than LRU's, in % of a core at 100,000 requests a
//! second; and of the stream's next requests first those of pages that are
//! on flash (a hit leaves them there), then those of pages that are not, each once (a miss never
//! brings another of them in): so all of the first are hits and all of the second misses. A row
//! has the median of the turns and their range; `of LRU's` compares within a turn. Time is CPU time
//! of this thread where the system tells it. What is timed is the policy and the slot table.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "the decisions are pure; measuring them takes a clock, a file and a terminal"
)]

mod streams;

use std::collections::HashSet;
use streams::{Stream, Tier, file_stream, mixed_stream, page, timed, zipf_stream};
use thermocline_core::policy;

/// Turns; a median is that of all.
const TURNS: usize = 7;
/// Requests of the stream that each turn looks at.
const LOOKED_AT: usize = 200_000;
/// Requests of the stream between two turns.
const BETWEEN: usize = 50_000;

/// Nanoseconds for one request.
#[derive(Clone, Copy)]
struct Costs {
    /// As requests come in the stream.
    request: f64,
    hit: f64,
    miss: f64,
}

/// One turn of one tier.
fn turn(tier: &mut Tier<'_>, stream: &Stream) -> Costs {
    let request = timed(|| tier.run(BETWEEN)).as_nanos() as f64 / BETWEEN as f64;
    let (mut hits, mut misses, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for at in tier.requests as usize..tier.requests as usize + LOOKED_AT {
        let index = stream.pages[at % stream.pages.len()];
        match tier.slots.find(page(index)) {
            Some(_) => hits.push(index),
            None if seen.insert(index) => misses.push(index),
            None => {}
        }
    }
    let before = tier.misses;
    let hit = each(tier, &hits);
    assert_eq!(tier.misses, before, "hits are hits");
    let miss = each(tier, &misses);
    assert_eq!(
        tier.misses,
        before + misses.len() as u64,
        "misses are misses"
    );
    Costs { request, hit, miss }
}

fn each(tier: &mut Tier<'_>, pages: &[u64]) -> f64 {
    let taken = timed(|| pages.iter().for_each(|index| tier.read(*index)));
    taken.as_nanos() as f64 / pages.len().max(1) as f64
}

/// Least, median and most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}

fn cell(values: Vec<f64>, digits: usize) -> String {
    let [least, median, most] = spread(values);
    format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
}

fn table(stream: &Stream, names: &[&str], beside: &str) {
    println!("\n{}, {} slots\n", stream.name, stream.capacity);
    println!(
        "| policy | request, ns | more than {beside}'s, % | hit, ns | of {beside}'s | miss, ns \
         | of {beside}'s | bytes a slot |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for name in names {
        let mut tiers = [beside, name].map(|name| Tier::new(name, stream));
        for tier in &mut tiers {
            tier.run(stream.pages.len());
        }
        let turns: Vec<[Costs; 2]> = (0..TURNS)
            .map(|_| tiers.each_mut().map(|tier| turn(tier, stream)))
            .collect();
        let of = |what: fn(&[Costs; 2]) -> f64| turns.iter().map(what).collect::<Vec<f64>>();
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {:.0} |",
            cell(of(|turn| turn[1].request), 0),
            // Nanoseconds for each of 100,000 requests: 10^-4 of a second.
            cell(of(|turn| (turn[1].request - turn[0].request) / 100.0), 1),
            cell(of(|turn| turn[1].hit), 0),
            cell(of(|turn| turn[1].hit / turn[0].hit), 2),
            cell(of(|turn| turn[1].miss), 0),
            cell(of(|turn| turn[1].miss / turn[0].miss), 2),
            tiers[1].policy.bytes() as f64 / f64::from(stream.capacity),
        );
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let mut beside = "lru";
    if let Some(at) = wanted.iter().position(|word| *word == "--beside") {
        beside = wanted.remove(at + 1);
        wanted.remove(at);
    }
    let named = |name: &&&str| wanted.contains(*name);
    let mut names: Vec<&str> = policy::NAMES.iter().filter(named).copied().collect();
    if names.is_empty() {
        names = policy::NAMES.to_vec();
    }
    let streams = [Some(zipf_stream()), Some(mixed_stream()), file_stream()];
    for stream in streams.iter().flatten() {
        table(stream, &names, beside);
    }
}
