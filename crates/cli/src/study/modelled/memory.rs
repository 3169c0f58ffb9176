//! Whether the tables of a simulated tier fit into memory: they are made for all of its slots,
//! whatever the trace touches, and a process that asks for too much is killed without a word.

use crate::failure::{Failure, Outcome};
use crate::units::{show_bytes, show_count};
use std::fs;
use std::thread::available_parallelism;

/// Refuses `capacities`, in slots, that `option` gave and whose tables cannot all be there under
/// `policies` with so many `threads`, each of which has one size under one policy; 0: as many as
/// there are processors. `learning`: the most that a policy which learns may take of it.
pub(crate) fn fits(
    option: &str,
    policies: &[String],
    capacities: &[u32],
    learning: Option<u64>,
    threads: usize,
) -> Outcome {
    let learning = learning.unwrap_or(u64::MAX);
    within(available(), option, policies, capacities, learning, threads)
}

fn within(
    free: u64,
    option: &str,
    policies: &[String],
    capacities: &[u32],
    learning: u64,
    threads: usize,
) -> Outcome {
    let of = |slots: u32| {
        policies
            .iter()
            .map(move |name| tables(name, slots.into(), learning))
    };
    let mut runs: Vec<u64> = capacities.iter().flat_map(|&slots| of(slots)).collect();
    runs.sort_unstable();
    let processors = || available_parallelism().map_or(1, usize::from);
    let at_once = if threads > 0 { threads } else { processors() };
    let needed: u64 = runs.iter().rev().take(at_once).sum();
    if needed <= free {
        return Ok(());
    }
    let most = capacities.iter().max().copied().unwrap_or(0);
    let fact = format!(
        "{option} needs tables of up to {} slots, which take {} of memory at once, and {} are free",
        show_count(most.into()),
        show_bytes(needed),
        show_bytes(free)
    );
    Err(Failure::usage(fact).advise("a smaller size, --threads 1, or larger pages"))
}

/// Bytes that a simulation touches before its first request (measured, rounded down).
fn tables(policy: &str, slots: u64, learning: u64) -> u64 {
    let name = policy.split(':').next().unwrap_or(policy);
    match name {
        // It looks into the future instead.
        name if thermocline_sim::opt::is_opt(name) => 0,
        "auto" | "value" | "value-time" => 30 * slots + learning.min(270 * slots),
        _ => 30 * slots,
    }
}

/// Memory that this process can still have, bytes.
fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    // Where the system does not tell, nothing is refused.
    let free = kib("MemAvailable:").map_or(u64::MAX, |free| {
        free.saturating_add(kib("SwapFree:").unwrap_or(0)) << 10
    });
    free.min(address_space())
}

/// The limit on addresses of this process, bytes.
fn address_space() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid `rlimit`. Where the call fails, it is as if there were none.
    let _ = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_at_once_counts() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let refused = |free, policies: &[&str], slots: &[u32], threads| {
            let most = 260_000;
            let outcome = within(free, "--flash", &names(policies), slots, most, threads);
            outcome.err().map(|failure| failure.message)
        };
        assert_eq!(refused(30_000, &["lru"], &[1000], 1), None);
        assert_eq!(refused(30_000, &["lru", "fifo"], &[1000, 10], 1), None);
        let two = refused(59_999, &["lru", "fifo"], &[10, 1000], 2).expect("too much");
        assert!(
            two.contains("--flash needs tables of up to 1,000 slots"),
            "{two}"
        );
        assert!(refused(289_999, &["auto"], &[1000], 1).is_some());
        assert!(
            refused(290_000, &["auto"], &[1000], 1).is_none(),
            "what it may have"
        );
        assert_eq!(refused(0, &["opt"], &[1000], 1), None);
    }
}
