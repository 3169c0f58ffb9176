//! A filter is right whatever its shape, and damage is an error.

use proptest::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thermocline::device::{Device, FileDevice, FileOptions, MemoryDevice};
use thermocline_filter::{BuildOptions, Builder, Built, Filter, FilterError, Key, KeyKind, Lanes};

const PAGE: u32 = 4096;

fn options(pages: u32, kind: KeyKind, workers: u32) -> BuildOptions {
    BuildOptions {
        page_bytes: PAGE,
        pages,
        kind,
        lanes: lanes(pages, workers, 40),
        ..BuildOptions::default()
    }
}

/// Memory for blocks of about `entries` questions.
fn lanes(pages: u32, workers: u32, entries: u64) -> Lanes {
    let blocks = u64::from(pages + 3 * workers) * entries * 12;
    Lanes {
        memory: u64::from(workers * PAGE) + blocks,
        workers,
    }
}

fn build(
    device: Arc<dyn Device>,
    options: &BuildOptions,
    keys: impl Iterator<Item = i64>,
) -> Result<Built, FilterError> {
    let mut builder = Builder::create(device, options)?;
    for key in keys {
        builder.insert(Key::Integer(key))?;
    }
    builder.finish()
}

/// How many of `keys` may be in, each answered once.
fn maybe(filter: &Filter, keys: std::ops::Range<i64>, lanes: &Lanes) -> Result<u64, FilterError> {
    let mut answered = vec![false; (keys.end - keys.start) as usize];
    let mut yes = 0;
    let mut hear = |ticket: u64, maybe: bool| {
        let before = std::mem::replace(&mut answered[ticket as usize], true);
        assert!(!before, "ticket {ticket} is answered once");
        yes += u64::from(maybe);
    };
    let mut probe = filter.probe(lanes)?;
    for key in keys.clone() {
        probe.ask(Key::Integer(key), (key - keys.start) as u64, &mut hear)?;
    }
    let counts = probe.finish(&mut hear)?;
    assert_eq!(
        (counts.asked, counts.maybe),
        ((keys.end - keys.start) as u64, yes)
    );
    assert!(answered.iter().all(|&answered| answered));
    Ok(yes)
}

fn integers(pages: u32) -> (Arc<MemoryDevice>, BuildOptions) {
    let device = Arc::new(MemoryDevice::new());
    (device, options(pages, KeyKind::Integer, 2))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_inserted_key_is_answered_with_no(
        pages in 1_u32..20,
        hashes in 1_u32..6,
        workers in 1_u32..5,
        first in any::<i32>(),
        count in 0_i64..20_000,
        seed: u64,
    ) {
        let device = Arc::new(MemoryDevice::new());
        let shape = BuildOptions { hashes, seed, ..options(pages, KeyKind::Integer, workers) };
        let keys = i64::from(first)..i64::from(first) + count;
        let built = build(device.clone(), &shape, keys.clone()).expect("built");
        let filter = Filter::open(device).expect("opens");
        prop_assert_eq!(filter.summary(), &built.summary);
        prop_assert_eq!(built.summary.keys, count as u64);
        let lanes = lanes(pages, workers, 17 + seed % 200);
        prop_assert_eq!(maybe(&filter, keys, &lanes).expect("probed"), count as u64);
    }

    #[test]
    fn text_keys_come_back_with_their_items(words in prop::collection::vec(".{0,12}", 0..400)) {
        let device = Arc::new(MemoryDevice::new());
        let mut builder = Builder::create(device.clone(), &options(3, KeyKind::Text, 2)).unwrap();
        for word in &words {
            builder.insert(Key::Text(word.as_bytes())).unwrap();
        }
        builder.finish().unwrap();
        let filter = Filter::open(device).unwrap();
        let lanes = lanes(3, 2, 17);
        let items = words.clone().into_iter();
        let sifted = filter.sift(items, |word| Key::Text(word.as_bytes()), &lanes).unwrap();
        let mut back: Vec<String> = Vec::new();
        for answer in sifted {
            let (word, maybe) = answer.unwrap();
            prop_assert!(maybe);
            back.push(word);
        }
        let mut words = words;
        words.sort();
        back.sort();
        prop_assert_eq!(words, back);
    }
}

#[test]
fn other_keys_are_answered_with_yes_as_seldom_as_promised() {
    let (device, options) = integers(16);
    let built = build(device.clone(), &options, 0..40_000).expect("built");
    let filter = Filter::open(device).expect("opens");
    let yes = maybe(&filter, 1_000_000..1_200_000, &options.lanes).expect("probed");
    let expected = built.summary.expected_false_positives() * 200_000.0;
    assert!(expected > 1_000.0, "enough to count: {expected}");
    assert!(
        (yes as f64 / expected - 1.0).abs() < 0.1,
        "{yes} of {expected}"
    );
}

#[test]
fn the_blocks_spare_page_accesses() {
    let (device, options) = integers(16);
    let built = build(device.clone(), &options, 0..40_000).expect("built");
    // 40 questions of 12 bytes are 80 marks of 6: a page is written for 80 keys.
    assert!(built.page_writes <= 40_000 / 80 + 16, "{built:?}");
    assert_eq!(built.page_writes, built.page_reads + 16, "{built:?}");
}

#[test]
fn many_threads_ask_at_once() {
    let (device, options) = integers(8);
    build(device.clone(), &options, 0..30_000).expect("built");
    let filter = Filter::open(device).expect("opens");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (filter, lanes) = (filter.clone(), options.lanes);
            scope.spawn(move || {
                let keys = number * 5_000..number * 5_000 + 10_000;
                assert_eq!(maybe(&filter, keys, &lanes).expect("probed"), 10_000);
            });
        }
    });
}

/// A filter of 30,000 keys over 8 pages in a file, after `damage`.
fn damaged(damage: impl Fn(&FileDevice)) -> Result<u64, FilterError> {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("f");
    let create = FileOptions {
        create_new: true,
        ..FileOptions::default()
    };
    let device = Arc::new(FileDevice::open(&path, create).expect("file"));
    let options = options(8, KeyKind::Integer, 2);
    build(device.clone(), &options, 0..30_000)?;
    damage(&device);
    let filter = Filter::open(device)?;
    maybe(&filter, 0..30_000, &options.lanes)
}

#[test]
fn damage_of_any_sector_is_an_error() {
    assert_eq!(damaged(|_| ()).expect("whole"), 30_000);
    let length = 4096 + 8 * u64::from(PAGE) + 4096;
    for sector in 0..length / 512 {
        let result = damaged(|device| {
            let mut bytes = vec![0; 512];
            device.read_at(&mut bytes, sector * 512).expect("read");
            // A sector of the header or the table may be all zeros as it is.
            let torn: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            device.write_at(&torn, sector * 512).expect("written");
        });
        let error = result.expect_err("an error, never an answer");
        let told = error.to_string();
        let known = ["damaged", "not a filter"].iter().any(|w| told.contains(w));
        assert!(known, "sector {sector}: {told}");
    }
}

#[test]
fn a_page_of_an_earlier_write_is_an_error() {
    // What a device gives that lost the last write of a page: zeros, as before the build.
    let error = damaged(|device| {
        let at = 4096 + 3 * u64::from(PAGE);
        device.write_at(&[0; PAGE as usize], at).expect("written");
    });
    assert!(
        matches!(error, Err(FilterError::Damaged { .. })),
        "{error:?}"
    );
}

#[test]
fn every_cut_is_an_error() {
    for length in [
        0,
        1,
        511,
        4095,
        4096,
        5000,
        4096 + 8 * u64::from(PAGE),
        40_959,
    ] {
        let error = damaged(|device| device.set_len(length).expect("cut"));
        match error {
            Err(FilterError::NotAFilter { .. }) => assert!(length < 8),
            Err(FilterError::Truncated { found, .. }) => assert_eq!(found, length),
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn a_build_that_never_ended_is_an_error() {
    let (device, options) = integers(4);
    let mut builder = Builder::create(device.clone(), &options).expect("begins");
    for key in 0..10_000 {
        builder.insert(Key::Integer(key)).expect("inserted");
    }
    drop(builder);
    let error = Filter::open(device).expect_err("unfinished");
    assert!(matches!(error, FilterError::Unfinished { .. }), "{error}");
}

/// A device in memory that is slow, or fails: each page is read or written `left` times in all.
struct Failing {
    inside: MemoryDevice,
    left: AtomicI64,
    slow: bool,
}

impl Failing {
    fn new(left: i64, slow: bool) -> Arc<Self> {
        let (inside, left) = (MemoryDevice::new(), AtomicI64::new(left));
        Arc::new(Self { inside, left, slow })
    }

    /// Pages begin behind the header.
    fn ask(&self, offset: u64) -> io::Result<()> {
        if offset < 4096 {
            return Ok(());
        }
        if self.slow {
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        match self.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            true => Ok(()),
            false => Err(io::Error::other("the device is full")),
        }
    }
}

impl Device for Failing {
    fn label(&self) -> String {
        "failing".into()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ask(offset)?;
        self.inside.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.ask(offset)?;
        self.inside.write_at(buf, offset)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.inside.sync(data_only)
    }

    fn len(&self) -> io::Result<u64> {
        self.inside.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inside.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inside.punch(offset, len)
    }
}

#[test]
fn a_builder_that_is_dropped_writes_no_more() {
    let device = Failing::new(i64::MAX, true);
    let options = options(2, KeyKind::Integer, 2);
    let mut builder = Builder::create(device.clone(), &options).expect("begins");
    for key in 0..400 {
        builder.insert(Key::Integer(key)).expect("inserted");
    }
    drop(builder);
    assert_eq!(Arc::strong_count(&device), 1, "no worker has it any more");
}

#[test]
fn every_call_after_an_error_tells_that_error() {
    let options = options(2, KeyKind::Integer, 2);
    let mut builder = Builder::create(Failing::new(5, false), &options).expect("begins");
    let failed: Vec<String> = (0..10_000)
        .filter_map(|key| builder.insert(Key::Integer(key)).err())
        .map(|error| error.to_string())
        .collect();
    assert!(failed.len() > 1, "{}", failed.len());
    for text in failed {
        assert!(text.contains("the device is full"), "{text}");
    }
    let text = builder.finish().expect_err("lost").to_string();
    assert!(text.contains("the device is full"), "{text}");
}

#[test]
fn nothing_follows_an_error() {
    let options = options(2, KeyKind::Integer, 2);
    let device = Failing::new(i64::MAX, false);
    build(device.clone(), &options, 0..5_000).expect("built");
    let filter = Filter::open(device.clone()).expect("opens");
    let mut after = 0;
    for left in 0..200 {
        device.left.store(left, Ordering::SeqCst);
        let sifted = filter.sift(0..20_000_i64, |key| Key::Integer(*key), &options.lanes);
        let sifted = sifted.expect("begins");
        after += sifted.skip_while(Result::is_ok).skip(1).count();
    }
    assert_eq!(after, 0);
}

#[test]
fn another_version_is_told_apart_from_damage() {
    let error = damaged(|device| device.write_at(&[9, 0, 0, 0], 8).expect("written"));
    let told = error.expect_err("another version").to_string();
    assert!(
        told.contains("format version 9") && told.contains("reads version 1"),
        "{told}"
    );
}

#[test]
fn keys_of_another_kind_are_refused_in_build_and_probe() {
    let (device, options) = integers(4);
    let mut builder = Builder::create(device.clone(), &options).expect("begins");
    let error = builder.insert(Key::Text(b"7")).expect_err("refused");
    assert!(matches!(error, FilterError::Kind { .. }), "{error}");
    builder.finish().expect("still good");
    let filter = Filter::open(device).expect("opens");
    let mut probe = filter.probe(&options.lanes).expect("begins");
    let error = probe
        .ask(Key::Text(b"7"), 0, |_, _| ())
        .expect_err("refused");
    assert!(error.to_string().contains("integer"), "{error}");
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_does() {
    let (device, mut options) = integers(4);
    options.lanes.memory = 1;
    let error = Builder::create(device, &options).expect_err("refused");
    let least = 2 * u64::from(PAGE) + 10 * 16 * 6;
    assert!(error.to_string().contains(&least.to_string()), "{error}");
}
