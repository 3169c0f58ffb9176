//! Misses and speed of policies over one trace, one thread, decisions only:
//! `cargo run --release --example throughput -- TRACE POLICY,... PAGES,...`

use std::time::Instant;
use thermocline_core::policy::{self, PolicyOptions};
use thermocline_sim::tier::{PolicyTier, Tier};
use thermocline_sim::{Kind, Workload, WorkloadOptions, Writes, opener};
use thermocline_trace::ImportOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, policies, sizes] = arguments.as_slice() else {
        return Err("usage: throughput TRACE POLICY,... PAGES,...".into());
    };
    let options = WorkloadOptions {
        writes: Writes::AsReads,
        ..WorkloadOptions::default()
    };
    let openers = vec![opener(trace.into(), ImportOptions::default())];
    let workload = Workload::open(openers, options, &mut |_| {})?;
    let requests = workload.decoded().ok_or("too long for memory")?;
    for name in policies.split(',') {
        for size in sizes.split(',') {
            let capacity: u32 = size.parse()?;
            let built = policy::build(name, &PolicyOptions::new(capacity));
            let mut tier = PolicyTier::new(built.ok_or("no such policy")?, capacity, 0);
            let begin = Instant::now();
            let mut misses = 0u64;
            for (at, request) in (0u64..).zip(requests) {
                if request.kind() == Kind::Trim {
                    tier.trim(at, request);
                    continue;
                }
                let hints = &workload.hint_sets()[request.hints as usize];
                let effect = tier.serve(at, request, hints);
                misses += u64::from(effect.source == thermocline_core::counters::Source::Base);
            }
            let seconds = begin.elapsed().as_secs_f64();
            let rate = requests.len() as f64 / seconds / 1e6;
            println!("{name} {capacity} misses {misses}  {rate:.2} M requests/s");
        }
    }
    Ok(())
}
