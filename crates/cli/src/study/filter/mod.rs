//! `filter`: sets of keys larger than memory, on flash.

mod rows;

use crate::failure::{Code, Failure, Outcome};
use crate::reader;
use crate::show::{beside, status};
use crate::study::modelled::{self, Bar};
use crate::units::{Size, show_bytes, show_count};
use clap::{Args, Subcommand, ValueHint};
use rows::{Rows, Seen};
use serde::Serialize;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::device::{FileDevice, FileOptions};
use thermocline_filter::{
    BuildOptions, Builder, Built, Filter, FilterError, KeyKind, Lanes, MAGIC, PAGE_BYTES_MAX,
    PAGES_MAX, ProbeCounts, Summary,
};

/// `thermocline filter`.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Make a filter of a file of keys
    #[command(after_long_help = BUILD_HELP)]
    Build(BuildArgs),
    /// Print the rows whose key may be in a filter, or those whose key is not
    #[command(after_long_help = PROBE_HELP)]
    Probe(ProbeArgs),
}

const BUILD_HELP: &str = "\
Examples:
  The customers that asked to be forgotten, one id a line:
    thermocline filter build forgotten.txt --out /ssd/forgotten.filter
  The ids of a CSV file, or of a Parquet file, wrong for one other key in 10,000:
    thermocline filter build orders.csv --column id --out /ssd/orders.filter
    thermocline filter build orders.parquet --column id --out /ssd/orders.filter \\
      --false-positives 0.01%

A Bloom filter says \"no\" or \"maybe\" for a key. \"No\" is always right. The filter lies on flash
in pages, and memory holds keys back until many of one page can be written at once, so it may be
far larger than memory. Keys are text unless --integers says otherwise or a Parquet column holds
whole numbers. The file appears under its name only when it is whole.

Blanks around a text key are a part of it, whatever the file. A line has at most 1 MiB, a row of CSV
is one line, and all rows have as many cells. Compressed files have to be unpacked first.

--memory does not cover: 32 bytes for each page of the filter and 16 more for each page and thread,
and what reading KEYS takes (1 MiB and the longest line, or what the Parquet decoder holds).";

const PROBE_HELP: &str = "\
Examples:
  The orders of customers that are surely not in the set (an anti-join):
    thermocline filter probe /ssd/forgotten.filter orders.csv --column customer --not
  The rows that may have been seen before (before removing duplicates exactly):
    thermocline filter probe /ssd/orders.filter new.parquet --column id

Rows come out in the order of the file, those of Parquet as CSV; nothing is printed before every
row has its answer, so an error never looks like the end. A null key is in no filter. ROWS is read
twice. Statistics go to standard error.

Blanks around a text key are a part of it, whatever the file. A line has at most 1 MiB, a row of CSV
is one line, and all rows have as many cells. Compressed files have to be unpacked first.

--memory does not cover: one bit for each row, 32 bytes for each page of the filter, and what
reading ROWS takes (1 MiB and the longest line, or what the Parquet decoder holds).";

/// `thermocline filter build`.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// One key a line; CSV or Parquet with --column
    #[arg(value_hint = ValueHint::FilePath)]
    keys: PathBuf,
    /// The filter to write
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Column that holds the keys
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Keys of text files are whole numbers: 7, 07 and +7 are then one key
    #[arg(long)]
    integers: bool,
    /// Share of other keys that may be answered with "maybe"; from it follows the filter's size
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share)]
    false_positives: f64,
    /// Bits that a key sets: more make the filter smaller, and cost time
    #[arg(long, value_name = "COUNT", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=32))]
    hashes: u32,
    /// Bytes of a page on flash: a multiple of 4096
    #[arg(long, value_name = "SIZE", default_value = "2MiB")]
    page: Size,
    /// Replace the filter when it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    lanes: LaneArgs,
    /// Print the statistics as JSON
    #[arg(long)]
    json: bool,
}

/// `thermocline filter probe`.
#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// The filter
    #[arg(value_hint = ValueHint::FilePath)]
    filter: PathBuf,
    /// The rows: one key a line; CSV or Parquet with --column
    #[arg(value_hint = ValueHint::FilePath)]
    rows: PathBuf,
    /// Column that holds the keys
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Print the rows whose key is surely not in the filter
    #[arg(long)]
    not: bool,
    #[command(flatten)]
    lanes: LaneArgs,
    /// Print the statistics as JSON, and no rows
    #[arg(long)]
    json: bool,
}

/// Memory and threads.
#[derive(Args, Clone, Copy, Debug)]
struct LaneArgs {
    /// Memory for keys that wait and for pages being read: more means fewer page accesses
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: Size,
    /// Threads: pages read or written at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
}

impl LaneArgs {
    fn lanes(self) -> Result<Lanes, Failure> {
        Ok(Lanes {
            memory: bytes("--memory", self.memory)?,
            workers: self.threads,
        })
    }
}

fn bytes(option: &str, size: Size) -> Result<u64, Failure> {
    match size {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Pages(_) => Err(Failure::usage(format!("{option} {size}: expected bytes"))),
    }
}

/// A share between 0 and 1, or percent.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|p: f64| p / 100.0),
        None => text.parse(),
    };
    let share = number.ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| format!("\"{text}\" is not a share; write 1% or 0.01"))
}

/// Does what was asked.
pub(crate) fn run(command: &FilterCommand) -> Outcome {
    match command {
        FilterCommand::Build(args) => build(args),
        FilterCommand::Probe(args) => probe(args),
    }
}

#[derive(Serialize)]
struct BuildReport {
    rows: u64,
    null_keys: u64,
    expected_false_positives: f64,
    file_bytes: u64,
    #[serde(flatten)]
    built: Built,
}

fn build(args: &BuildArgs) -> Outcome {
    let kind = args.integers.then_some(KeyKind::Integer);
    let rows = Rows::open(&args.keys, args.column.as_deref(), kind)?;
    let keys = std::slice::from_ref(&args.keys);
    beside::apart("--out", Some(&args.out), keys)?;
    let out = place(&args.out, args.force)?;
    let mut count = 0;
    read(&rows, false, "counting", &mut |seen| {
        count += u64::from(seen.key.key().is_some());
        Ok(())
    })?;
    let options = shape(args, count, rows.kind())?;
    let mut partial = out.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    beside::apart("--out", Some(&partial), keys)?;
    let claimed = claim(&partial)?;
    // Another build may have ended meanwhile.
    let free = place(&args.out, args.force).map(drop);
    let report = free.and_then(|()| fill(&rows, &claimed, &partial, &options));
    let report = report.and_then(|report| publish(&partial, &out).map(|()| report));
    let report = report.inspect_err(|_| {
        // What cannot be removed stays for the next build.
        let _gone = fs::remove_file(&partial);
    })?;
    match args.json {
        true => modelled::print_json(&report),
        false => status::print(&told(args, &report)),
    }
}

/// The file that a build fills. Its lock, which goes with the file, keeps other builds of the same
/// filter off.
fn claim(partial: &Path) -> Result<Arc<File>, Failure> {
    let failed = |error: &io::Error| Failure::io("create", partial, error);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(partial).map_err(|error| failed(&error))?;
    // One that was locked until just now has another name, or none.
    let is_there = |file: &File| {
        let (here, there) = (file.metadata(), fs::metadata(partial));
        here.is_ok_and(|here| there.is_ok_and(|there| here.ino() == there.ino()))
    };
    match file.try_lock() {
        Ok(()) if is_there(&file) => match is_left(&file).map_err(|error| failed(&error))? {
            true => Ok(Arc::new(file)),
            false => {
                let fact = format!("{}: a file of something else", partial.display());
                Err(Failure::usage(fact).advise("move it away, or another name for --out"))
            }
        },
        Err(TryLockError::Error(error)) => Err(failed(&error)),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            let fact = format!("{}: another build writes it", partial.display());
            Err(Failure::usage(fact).advise("wait for it, or another name for --out"))
        }
    }
}

/// Whether a file is what a build leaves that is killed: new, or with the beginning of a filter.
fn is_left(file: &File) -> io::Result<bool> {
    let mut head = [0; MAGIC.len()];
    match file.metadata()?.len() {
        0 => Ok(true),
        length if length < head.len() as u64 => Ok(false),
        _ => {
            file.read_exact_at(&mut head, 0)?;
            // Pages that were given room before the header was written are zeros.
            Ok(head == MAGIC || head == [0; MAGIC.len()])
        }
    }
}

/// Where a filter called `out` is to be: what a link names is replaced, and never a device.
fn place(out: &Path, force: bool) -> Result<PathBuf, Failure> {
    let refuse = |what: &str, advice: &str| {
        let fact = format!("{}: {what}", out.display());
        Err(Failure::usage(fact).advise(advice))
    };
    match out.metadata() {
        Ok(found) if !found.is_file() => refuse("it is no regular file", "another name"),
        Ok(_) if !force => refuse("a file is there already", "--force, or another name"),
        Ok(_) => out.canonicalize().map_err(|e| Failure::io("find", out, &e)),
        Err(_) if out.is_symlink() => refuse("a link to what is not there", "another name"),
        Err(_) => Ok(out.to_path_buf()),
    }
}

/// The filter that `keys` keys need.
fn shape(args: &BuildArgs, keys: u64, kind: KeyKind) -> Result<BuildOptions, Failure> {
    let hashes = f64::from(args.hashes);
    let per_key = -hashes / (-args.false_positives.powf(1.0 / hashes)).ln_1p();
    let need = (keys as f64 * per_key / 8.0).ceil().max(1.0) as u64;
    let asked = bytes("--page", args.page)?.max(1);
    // A filter smaller than a page is one page, no larger than it must be.
    if need > u64::from(PAGES_MAX) * u64::from(PAGE_BYTES_MAX) {
        let fact = format!(
            "{keys} keys at --false-positives {} and --hashes {} need a filter of {}, larger than \
             a filter may be",
            args.false_positives,
            args.hashes,
            show_bytes(need)
        );
        return Err(Failure::usage(fact).advise("more --hashes, or more --false-positives"));
    }
    let mut page = asked.min(need.next_multiple_of(4096));
    while need.div_ceil(page) > u64::from(PAGES_MAX) {
        page *= 2;
    }
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Ok(BuildOptions {
        page_bytes: number(page),
        pages: number(need.div_ceil(page)),
        hashes: args.hashes,
        kind,
        seed: 0,
        lanes: args.lanes.lanes()?,
    })
}

fn fill(
    rows: &Rows,
    file: &Arc<File>,
    out: &Path,
    options: &BuildOptions,
) -> Result<BuildReport, Failure> {
    let (file, label) = (Arc::clone(file), out.display().to_string());
    let device = FileDevice::from_file(file, label, FileOptions::default());
    let device = device.map_err(|e| Failure::io("create", out, &e))?;
    let builder = Builder::create(Arc::new(device), options);
    let mut builder = builder.map_err(|error| explain(&error))?;
    let (mut count, mut nulls) = (0, 0);
    read(rows, false, "building", &mut |seen| {
        count += 1;
        match seen.key.key() {
            None => nulls += 1,
            Some(key) => builder.insert(key).map_err(|error| explain(&error))?,
        }
        Ok(())
    })?;
    let built = builder.finish().map_err(|error| explain(&error))?;
    Ok(BuildReport {
        rows: count,
        null_keys: nulls,
        expected_false_positives: built.summary.expected_false_positives(),
        file_bytes: built.summary.length(),
        built,
    })
}

/// Gives a whole filter its name, durably.
fn publish(partial: &Path, out: &Path) -> Outcome {
    fs::rename(partial, out).map_err(|error| Failure::io("name", out, &error))?;
    let folder = match out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Failure::io("sync", folder, &error))
}

fn told(args: &BuildArgs, report: &BuildReport) -> String {
    let Built {
        summary,
        page_reads,
        page_writes,
        bytes_written,
    } = &report.built;
    format!(
        "{}: {} keys ({}) of {} rows, {} null\n{} in {} pages of {}, {} bits a key set\n\
         {:.4} % of other keys will be answered with \"maybe\"\n\
         {} pages read, {} written, {} written in all\n",
        args.out.display(),
        show_count(summary.keys),
        summary.kind,
        show_count(report.rows),
        show_count(report.null_keys),
        show_bytes(report.file_bytes),
        show_count(summary.pages.into()),
        show_bytes(summary.page_bytes.into()),
        summary.hashes,
        100.0 * report.expected_false_positives,
        show_count(*page_reads),
        show_count(*page_writes),
        show_bytes(*bytes_written),
    )
}

#[derive(Serialize)]
struct ProbeReport {
    rows: u64,
    null_keys: u64,
    expected_false_positives: f64,
    filter: Summary,
    #[serde(flatten)]
    counts: ProbeCounts,
}

fn probe(args: &ProbeArgs) -> Outcome {
    let only = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let device = FileDevice::open(&args.filter, only);
    let device = device.map_err(|error| Failure::io("open", &args.filter, &error))?;
    let filter = Filter::open(Arc::new(device)).map_err(|error| explain(&error))?;
    let kind = filter.summary().kind;
    let rows = Rows::open(&args.rows, args.column.as_deref(), Some(kind))?;
    let (report, maybe) = answers(&rows, &filter, &args.lanes.lanes()?)?;
    if args.json {
        return modelled::print_json(&report);
    }
    print_rows(&rows, &maybe, args.not)?;
    eprintln!(
        "{} rows, {} null; {} may be in, {} are not; {} pages read; a \"maybe\" is wrong for \
         {:.4} % of keys that are not in",
        show_count(report.rows),
        show_count(report.null_keys),
        show_count(report.counts.maybe),
        show_count(report.rows - report.counts.maybe),
        show_count(report.counts.page_reads),
        100.0 * report.expected_false_positives,
    );
    Ok(())
}

/// One bit for each row.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, at: u64) {
        let word = (at / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (at % 64);
    }

    fn has(&self, at: u64) -> bool {
        let word = self.0.get((at / 64) as usize);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

/// Asks for every row; which of them may be in.
fn answers(rows: &Rows, filter: &Filter, lanes: &Lanes) -> Result<(ProbeReport, Bits), Failure> {
    let mut probe = filter.probe(lanes).map_err(|error| explain(&error))?;
    let (mut maybe, mut count, mut nulls) = (Bits::default(), 0, 0);
    read(rows, false, "asking", &mut |seen| {
        count += 1;
        let Some(key) = seen.key.key() else {
            nulls += 1;
            return Ok(());
        };
        let asked = probe.ask(key, seen.number, |row, may_be_in| {
            if may_be_in {
                maybe.set(row);
            }
        });
        asked.map_err(|error| explain(&error))
    })?;
    let counts = probe.finish(|row, may_be_in| {
        if may_be_in {
            maybe.set(row);
        }
    });
    let report = ProbeReport {
        rows: count,
        null_keys: nulls,
        expected_false_positives: filter.summary().expected_false_positives(),
        filter: filter.summary().clone(),
        counts: counts.map_err(|error| explain(&error))?,
    };
    Ok((report, maybe))
}

/// Prints those rows that may be in, or those that are not.
fn print_rows(rows: &Rows, maybe: &Bits, not: bool) -> Outcome {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut line = |text: &[u8]| {
        let written = out.write_all(text).and_then(|()| out.write_all(b"\n"));
        written.map_err(reader::failed)
    };
    if let Some(heading) = rows.heading()? {
        line(heading.as_bytes())?;
    }
    rows.each(true, &mut |seen| {
        if maybe.has(seen.number) != not {
            line(seen.text)?;
        }
        Ok(())
    })?;
    out.flush().map_err(reader::failed)
}

/// Reads all rows under a bar.
fn read(
    rows: &Rows,
    texts: bool,
    what: &str,
    each: &mut dyn FnMut(&Seen<'_>) -> Outcome,
) -> Outcome {
    let bar = Bar::new(what, "{wide_bar} {percent} % {eta} left", rows.length()?);
    rows.each(texts, &mut |seen| {
        if seen.number % 4096 == 0 {
            bar.set(seen.position);
        }
        each(seen)
    })
}

/// What to try about a filter.
fn explain(error: &FilterError) -> Failure {
    let failure = Failure::new(Code::Failure, error.to_string());
    match error {
        FilterError::NotAFilter { .. } => failure.advise("name a file of thermocline filter build"),
        FilterError::Version { .. } => failure.advise("build it again with this program"),
        FilterError::Unfinished { .. }
        | FilterError::Truncated { .. }
        | FilterError::Damaged { .. } => failure.advise("build it again from its keys"),
        FilterError::Option { .. } => {
            Failure::usage(error.to_string()).advise("--memory, --page or --threads to fit")
        }
        _ => failure,
    }
}
