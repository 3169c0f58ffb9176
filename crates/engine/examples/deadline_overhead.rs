//! What a deadline costs per read: the same random direct reads of one file, with and without,
//! interleaved so that both meet the same moods of the disk.
//!
//! `cargo run --release --example deadline_overhead [DIRECTORY] [READS]`

use std::error::Error;
use std::time::{Duration, Instant};

use thermocline::device::{AlignedBuf, Device, FileDevice, FileOptions};

const FILE_BYTES: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let reads: usize = arguments.next().map_or(Ok(20_000), |n| n.parse())?;
    let path = std::path::Path::new(&directory).join("thermocline-deadline-overhead");
    let result = measure(&path, reads);
    std::fs::remove_file(&path)?;
    result
}

fn measure(path: &std::path::Path, reads: usize) -> Result<(), Box<dyn Error>> {
    let create = FileOptions {
        create: true,
        ..FileOptions::default()
    };
    let plain = FileDevice::open(path, create)?;
    fill(&plain)?;
    let bounded = FileDevice::open(
        path,
        FileOptions {
            deadline: Some(Duration::from_secs(2)),
            ..create
        },
    )?;
    println!(
        "direct I/O: {}, deadline kept: {}",
        plain.is_direct() && bounded.is_direct(),
        bounded.deadline_enforced()
    );
    for page in [4096usize, 8192, 16384, 65536] {
        let [without, with] = compare(&plain, &bounded, page, reads)?;
        println!(
            "{:>2} KiB: without p50 {:.2} mean {:.2} us, with p50 {:.2} mean {:.2} us, \
             difference of medians {:+.2} us, ratio {:.3}",
            page / 1024,
            without.median,
            without.mean,
            with.median,
            with.mean,
            with.median - without.median,
            with.median / without.median,
        );
    }
    Ok(())
}

fn fill(device: &FileDevice) -> Result<(), Box<dyn Error>> {
    let block = AlignedBuf::new(1 << 20);
    for at in (0..FILE_BYTES).step_by(block.len()) {
        device.write_at(&block, at)?;
    }
    Ok(device.sync(false)?)
}

struct Figures {
    median: f64,
    mean: f64,
}

fn compare(
    plain: &FileDevice,
    bounded: &FileDevice,
    page: usize,
    reads: usize,
) -> Result<[Figures; 2], Box<dyn Error>> {
    let mut buf = AlignedBuf::new(page);
    let mut times = [Vec::with_capacity(reads), Vec::with_capacity(reads)];
    let (mut state, mut checked) = (1u64, 0u64);
    for i in 0..2 * reads {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let offset = (state >> 16) % (FILE_BYTES / page as u64) * page as u64;
        let begin = Instant::now();
        let n = if i % 2 == 0 { plain } else { bounded }.read_at(&mut buf, offset)?;
        checked = checked.wrapping_add(sum(&buf));
        times[i % 2].push(begin.elapsed().as_secs_f64() * 1e6);
        assert_eq!(n, page);
    }
    assert_eq!(std::hint::black_box(checked), 0, "the file holds zeros");
    Ok(times.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Figures {
            median: samples[samples.len() / 2],
            mean,
        }
    }))
}

/// Reads every byte, as whoever checks a page's checksum does.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, chunk| {
        sum.wrapping_add(chunk.try_into().map_or(0, u64::from_le_bytes))
    })
}
