//! Times checksums of pages. See `run.sh`.
//!
//! Contenders take turns, so that a machine whose speed drifts does not decide. *In the cache*: 16
//! pages again and again. *In memory*: the pages of 512 MiB in an order that no prefetcher knows.

use aegis::aegis128x2::Aegis128X2Mac;
use crc_fast::CrcAlgorithm;
use std::hint::black_box;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

const TURNS: usize = 15;
const TURN: Duration = Duration::from_millis(40);
const MEMORY: usize = 512 << 20;

type Sum = fn(&[u8]) -> u64;

/// One word of each cache line: what anybody pays who looks at a page at all.
fn touch(page: &[u8]) -> u64 {
    let word = |line: &[u8]| u64::from_le_bytes(line[..8].try_into().unwrap_or_default());
    page.chunks_exact(64).map(word).fold(0, u64::wrapping_add)
}

fn xxh3(page: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(7, page)
}

fn crc32c(page: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, page)
}

fn crc64(page: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, page)
}

fn aegis(page: &[u8]) -> u64 {
    let mut mac = Aegis128X2Mac::<16>::new_with_nonce(&[7; 16], &[0; 16]);
    mac.update(page);
    let tag = mac.finalize();
    u64::from_le_bytes(tag[..8].try_into().unwrap_or_default())
}

const SUMS: [(&str, Sum); 5] = [
    ("touch", touch),
    ("XXH3, 64 bits", xxh3),
    ("CRC32C", crc32c),
    ("CRC64", crc64),
    ("AEGIS-128X2", aegis),
];

/// Nanoseconds a page.
fn time(sum: Sum, pages: &[&[u8]], at: &mut usize) -> f64 {
    let started = Instant::now();
    let mut done = 0u32;
    while started.elapsed() < TURN {
        for _ in 0..16 {
            *at = (*at + 1) % pages.len();
            black_box(sum(black_box(pages[*at])));
        }
        done += 16;
    }
    started.elapsed().as_nanos() as f64 / f64::from(done)
}

fn middle(mut of: Vec<f64>) -> (f64, f64, f64) {
    of.sort_by(f64::total_cmp);
    (of[of.len() / 2], of[0], of[of.len() - 1])
}

fn main() {
    let mut seed = 1u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    };
    let memory: Vec<u8> = (0..MEMORY / 8).flat_map(|_| next().to_le_bytes()).collect();
    println!("| page | bytes are | checksum | ns a page | range | GB/s | to XXH3 |");
    println!("|---:|---|---|---:|---|---:|---:|");
    for size in [4096, 8192, 16384] {
        let mut pages: Vec<&[u8]> = memory.chunks_exact(size).collect();
        for last in (1..pages.len()).rev() {
            pages.swap(last, next() as usize % (last + 1));
        }
        for (place, pages) in [("in the cache", &pages[..16]), ("in memory", &pages[..])] {
            let (mut times, mut at) = (vec![Vec::new(); SUMS.len()], 0);
            for _ in 0..TURNS {
                for (number, (_, sum)) in SUMS.iter().enumerate() {
                    times[number].push(time(*sum, pages, &mut at));
                }
            }
            let ours = middle(times[1].clone()).0;
            for ((name, _), times) in SUMS.iter().zip(times) {
                let (median, least, most) = middle(times);
                let (kib, rate) = (size / 1024, size as f64 / median);
                println!(
                    "| {kib} KiB | {place} | {name} | {median:.0} | {least:.0}–{most:.0} \
                     | {rate:.1} | {:.2}× |",
                    median / ours,
                );
            }
        }
    }
}
