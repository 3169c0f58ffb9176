//! The Buffered Bloom filter beside filters in memory: one contender a run, one line of CSV.
//!
//! Usage: `compare CONTENDER KEYS MEMORY_MIB FILE`, see evaluation/filter/run.sh. KEYS keys are
//! inserted, as many others asked for; then the keys that were inserted are asked for (every
//! seventh of the filters in memory), and a "no" fails the run. CONTENDER is:
//!
//! - `bbf` (as the paper: 256 MiB on flash for 50 million keys, pages of 2 MiB, k = 2; the caller's
//!   thread and two workers), `bbf-twice` (the same with 512 MiB), `bbf-one` (with one worker).
//! - On the SSD as well, with one thread: `mapped` (bits in pages behind frames of memory, k = 3,
//!   21.5 bits a key), `sbbf-ssd` (split blocks of 16 bits a key with a buffer for each region of
//!   2 MiB), `cascade` (a quotient filter in memory, sorted fingerprints on the SSD). `mapped` and
//!   `cascade` answer at once and read a page for it: every 500th key is asked for, and `mapped` is
//!   filled in memory but for every 500th key.
//! - In memory, with one thread: `plain` (fastbloom with the hash of `bbf`, k = 3), `fastbloom`
//!   (its own hash and k), `sbbf` (split blocks of whole bits a key), `quotient` (qfilter; takes
//!   the memory that 0.25 % needs).
//!
//! Columns: contender, memory MiB, DRAM bytes per key, false positives in %, µs per key to
//! build, µs per key to ask, bytes written per key, pages read, pages written.

mod rivals;

use rivals::cascade::Cascade;
use rivals::paged::Paged;
use rivals::regions::Regions;
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use thermocline::device::{FileDevice, FileOptions};
use thermocline_filter::{BuildOptions, Builder, Filter, Key, KeyKind, Lanes};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One run's figures.
#[derive(Default)]
struct Run {
    memory: u64,
    false_positives: u64,
    build: f64,
    ask: f64,
    written: u64,
    page_reads: u64,
    page_writes: u64,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let [contender, keys, memory, file] = arguments.as_slice() else {
        eprintln!("skipped: compare CONTENDER KEYS MEMORY_MIB FILE");
        return Ok(());
    };
    let (keys, mib) = (keys.parse::<i64>()?, memory.parse::<u64>()?);
    let bits = (mib << 23) as usize;
    let run = match contender.as_str() {
        "bbf" => buffered(keys, mib << 20, file, 128, 2)?,
        "bbf-one" => buffered(keys, mib << 20, file, 128, 1)?,
        "bbf-twice" => buffered(keys, mib << 20, file, 256, 2)?,
        "mapped" => mapped(keys, mib << 20, file)?,
        "sbbf-ssd" => regions(keys, mib << 20, file)?,
        "cascade" => cascade(keys, mib << 20, file)?,
        "plain" => {
            let filter = fastbloom::BloomFilter::with_num_bits(bits).hashes(3);
            let insert = |f: &mut fastbloom::BloomFilter, key| _ = f.insert_hash(mix(key));
            in_memory(keys, mib << 20, filter, insert, |f, key| {
                f.contains_hash(mix(key))
            })?
        }
        "fastbloom" => {
            let filter = fastbloom::BloomFilter::with_num_bits(bits).expected_items(keys as usize);
            let insert = |f: &mut fastbloom::BloomFilter, key: i64| _ = f.insert(&key);
            in_memory(keys, mib << 20, filter, insert, |f, key| f.contains(&key))?
        }
        "sbbf" => {
            let per_key = bits / keys as usize;
            let filter = sbbf_rs_safe::Filter::new(per_key, keys as usize);
            let memory = (per_key * keys as usize / 8) as u64;
            let insert = |f: &mut sbbf_rs_safe::Filter, key| _ = f.insert_hash(mix(key));
            in_memory(keys, memory, filter, insert, |f, key| {
                f.contains_hash(mix(key))
            })?
        }
        "quotient" => {
            let filter = qfilter::Filter::new(keys as u64, 0.0025)?;
            let insert = |f: &mut qfilter::Filter, key: i64| assert!(f.insert(key).is_ok());
            let memory = filter.memory_usage() as u64;
            in_memory(keys, memory, filter, insert, |f, key| f.contains(key))?
        }
        other => return Err(format!("no contender {other}").into()),
    };
    let per_key = |figure: f64| figure / keys as f64;
    println!(
        "{contender},{mib},{:.2},{:.4},{:.4},{:.4},{:.1},{},{}",
        per_key(run.memory as f64),
        100.0 * per_key(run.false_positives as f64),
        per_key(run.build * 1e6),
        per_key(run.ask * 1e6),
        per_key(run.written as f64),
        run.page_reads,
        run.page_writes,
    );
    Ok(())
}

/// The finaliser of `SplitMix64`: the hash that the Buffered Bloom filter takes for integers.
fn mix(key: i64) -> u64 {
    let x = key.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn in_memory<T>(
    keys: i64,
    memory: u64,
    mut filter: T,
    insert: impl Fn(&mut T, i64),
    contains: impl Fn(&T, i64) -> bool,
) -> Outcome<Run> {
    let begin = Instant::now();
    (0..keys).for_each(|key| insert(&mut filter, key));
    let build = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let false_positives = (keys..2 * keys).filter(|&key| contains(&filter, key));
    let false_positives = false_positives.count() as u64;
    let ask = begin.elapsed().as_secs_f64();
    let lost = (0..keys).step_by(7).find(|&key| !contains(&filter, key));
    if let Some(key) = lost {
        return Err(format!("a false no for key {key}").into());
    }
    Ok(Run {
        memory,
        false_positives,
        build,
        ask,
        ..Run::default()
    })
}

/// Of a filter that answers one key at a time from the SSD, one key in so many is tried.
const TRIED: usize = 500;

fn sampled(from: i64, to: i64) -> impl Iterator<Item = i64> {
    (from..to).step_by(TRIED)
}

/// False noes of sampled keys are an error.
fn found(keys: i64, mut contains: impl FnMut(i64) -> Outcome<bool>) -> Outcome<()> {
    for key in sampled(0, keys) {
        if !contains(key)? {
            return Err(format!("a false no for key {key}").into());
        }
    }
    Ok(())
}

fn mapped(keys: i64, memory: u64, file: &str) -> Outcome<Run> {
    let bits = (keys as u64 * 43).div_ceil(2);
    // In memory as a whole.
    let mut filter = Paged::create(file, bits, u64::MAX)?;
    for key in (0..keys).filter(|key| key % TRIED as i64 != 0) {
        filter.insert(mix(key))?;
    }
    filter.flush()?;
    let mut filter = filter.reopened(memory);
    let begin = Instant::now();
    for key in sampled(0, keys) {
        filter.insert(mix(key))?;
    }
    filter.flush()?;
    let build = begin.elapsed().as_secs_f64();
    let (writes, written) = (filter.scratch.writes, filter.scratch.written);
    let reads = filter.scratch.reads;
    let begin = Instant::now();
    let mut false_positives = 0;
    for key in sampled(keys, 2 * keys) {
        false_positives += u64::from(filter.contains(mix(key))?);
    }
    let ask = begin.elapsed().as_secs_f64();
    let reads = filter.scratch.reads - reads;
    found(keys, |key| filter.contains(mix(key)))?;
    Ok(Run {
        memory: memory.min(bits / 8),
        ..scaled(false_positives, [build, ask], written, reads, writes)
    })
}

/// The figures of all keys, where one in [`TRIED`] was tried.
fn scaled(
    false_positives: u64,
    [build, ask]: [f64; 2],
    written: u64,
    page_reads: u64,
    page_writes: u64,
) -> Run {
    let all = TRIED as u64;
    Run {
        memory: 0,
        false_positives: false_positives * all,
        build: build * all as f64,
        ask: ask * all as f64,
        written: written * all,
        page_reads: page_reads * all,
        page_writes: page_writes * all,
    }
}

fn regions(keys: i64, memory: u64, file: &str) -> Outcome<Run> {
    let mut filter = Regions::create(file, keys as u64 * 16, memory)?;
    let begin = Instant::now();
    (0..keys).try_for_each(|key| filter.put(mix(key), true))?;
    filter.finish(true)?;
    let build = begin.elapsed().as_secs_f64();
    let (written, page_writes) = (filter.scratch.written, filter.scratch.writes);
    let reads = filter.scratch.reads;
    let begin = Instant::now();
    (keys..2 * keys).try_for_each(|key| filter.put(mix(key), false))?;
    filter.finish(false)?;
    let ask = begin.elapsed().as_secs_f64();
    let (false_positives, page_reads) = (filter.found, filter.scratch.reads - reads);
    filter.found = 0;
    (0..keys).try_for_each(|key| filter.put(mix(key), false))?;
    filter.finish(false)?;
    if filter.found != keys as u64 {
        return Err(format!("{} false noes", keys as u64 - filter.found).into());
    }
    Ok(Run {
        // The region at hand too.
        memory: memory + (2 << 20),
        false_positives,
        build,
        ask,
        written,
        page_reads,
        page_writes,
    })
}

fn cascade(keys: i64, memory: u64, file: &str) -> Outcome<Run> {
    let bits = qfilter::Filter::new(keys as u64, 0.0025)?.fingerprint_size();
    let mut filter = Cascade::create(file, bits, memory)?;
    let begin = Instant::now();
    (0..keys).try_for_each(|key| filter.insert(mix(key)))?;
    let build = begin.elapsed().as_secs_f64();
    let (memory, reads) = (filter.memory(), filter.reads);
    let begin = Instant::now();
    let mut false_positives = 0;
    for key in sampled(keys, 2 * keys) {
        false_positives += u64::from(filter.contains(mix(key))?);
    }
    let ask = begin.elapsed().as_secs_f64();
    let asked = scaled(false_positives, [0.0, ask], 0, filter.reads - reads, 0);
    found(keys, |key| filter.contains(mix(key)))?;
    let (written, page_writes) = (filter.written, filter.writes);
    filter.remove();
    Ok(Run {
        memory,
        build,
        written,
        page_writes,
        ..asked
    })
}

/// A filter of `pages` pages for each 50 million keys, with `memory` bytes.
fn buffered(keys: i64, memory: u64, file: &str, pages: i64, workers: u32) -> Outcome<Run> {
    let create = FileOptions {
        create: true,
        ..FileOptions::default()
    };
    let device = Arc::new(FileDevice::open(file, create)?);
    let lanes = Lanes { memory, workers };
    let options = BuildOptions {
        pages: u32::try_from(keys * pages / 50_000_000)?.max(1),
        kind: KeyKind::Integer,
        lanes,
        ..BuildOptions::default()
    };
    let begin = Instant::now();
    let mut builder = Builder::create(device.clone(), &options)?;
    for key in 0..keys {
        builder.insert(Key::Integer(key))?;
    }
    let built = builder.finish()?;
    let build = begin.elapsed().as_secs_f64();
    let filter = Filter::open(device)?;
    let begin = Instant::now();
    let mut probe = filter.probe(&lanes)?;
    for key in keys..2 * keys {
        probe.ask(Key::Integer(key), key as u64, |_, _| ())?;
    }
    let counts = probe.finish(|_, _| ())?;
    let ask = begin.elapsed().as_secs_f64();
    let mut probe = filter.probe(&lanes)?;
    for key in 0..keys {
        probe.ask(Key::Integer(key), key as u64, |_, _| ())?;
    }
    let found = probe.finish(|_, _| ())?.maybe;
    if found != keys as u64 {
        return Err(format!("{} false noes", keys as u64 - found).into());
    }
    Ok(Run {
        memory: memory + 8 * u64::from(options.pages),
        false_positives: counts.maybe,
        build,
        ask,
        written: built.bytes_written,
        page_reads: counts.page_reads,
        page_writes: built.page_writes,
    })
}
