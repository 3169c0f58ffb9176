//! Every command and option, once: help, man pages and completions all come from here.

use crate::advise;
use crate::config::{NO_TIER, Transport};
use crate::demo;
use crate::failure::CODES_HELP;
use crate::filter::FilterCommand;
use crate::import::{self, ImportArgs};
use crate::joint;
use crate::mrc;
use crate::plan;
use crate::replay;
use crate::simulate;
use crate::units::{Size, span};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use thermocline_core::model::Model;
use thermocline_core::policy::NAMES;
use thermocline_trace::Format;

/// Policies a mount can start with: those of the tier, and `none` for base only.
pub(crate) fn policies() -> impl Iterator<Item = &'static str> {
    thermocline_core::policy::NAMES
        .iter()
        .copied()
        .chain([NO_TIER])
}

/// A flash tier for databases.
///
/// Puts a tier on an SSD between an unmodified database and its slow bulk storage, and decides
/// what to keep there by what a page is for and what it would cost to fetch again.
#[derive(Debug, Parser)]
#[command(name = "thermocline", version, after_help = CODES_HELP, max_term_width = 100)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a base directory with a flash tier above it
    #[command(after_long_help = MOUNT_HELP)]
    Mount(Box<MountArgs>),
    /// Unmount, and wait until the map of the cache file is saved
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// Show what a mount is doing
    Status(StatusArgs),
    /// Switch the replacement policy of a running mount
    Policy(PolicyArgs),
    /// List the parameters of the policies: defaults, the papers' values, ranges, sources
    Policies,
    /// Switch the flash tier of a running mount off or back on
    Tier(TierArgs),
    /// Keep writes on flash and write them back later, or write them through to base
    Mode(ModeArgs),
    /// Write back to base what only the tier holds; the mount goes on serving
    #[command(after_long_help = FLUSH_HELP)]
    Flush(FlushArgs),
    /// Write everything back and unmount: base is then whole without the cache
    Detach(DetachArgs),
    /// Make the cache of a running mount longer or shorter
    #[command(after_long_help = RESIZE_HELP)]
    Resize(ResizeArgs),
    /// Put another cache in the place of the one a running mount has
    #[command(after_long_help = REPLACE_HELP)]
    Replace(ReplaceArgs),
    /// Keep files on flash, whatever else is read; without paths, list what is pinned
    #[command(after_long_help = PIN_HELP)]
    Pin(PinArgs),
    /// Let pinned files be evicted like all others
    Unpin(UnpinArgs),
    /// Record the requests of a running mount for a while: a trace for `advise` and `simulate`
    #[command(after_long_help = RECORD_HELP)]
    Record(RecordArgs),
    /// Verify a cache that is not mounted; changes nothing
    #[command(after_long_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Write back to base what a cache holds, without a mount
    #[command(after_long_help = RECOVER_HELP)]
    Recover(RecoverArgs),
    /// Measure the base and flash devices and store the costs in the configuration
    Calibrate(CalibrateArgs),
    /// Work with recorded traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Compare policies and sizes of the tier on recorded requests, without any device
    #[command(after_long_help = simulate::EXAMPLES)]
    Simulate(Box<simulate::SimulateArgs>),
    /// Compare policies of pool and tier together, in write-back, on recorded requests
    #[command(after_long_help = joint::EXAMPLES)]
    Joint(Box<joint::JointArgs>),
    /// Draw miss ratio by size of the tier, from a sample of a trace's pages
    #[command(after_long_help = mrc::EXAMPLES)]
    Mrc(Box<mrc::MrcArgs>),
    /// Recommend sizes of flash and memory for a trace, given their prices
    #[command(after_long_help = plan::EXAMPLES)]
    Plan(Box<plan::PlanArgs>),
    /// Say what to buy, which policy to use, what to pin and what to leave out
    #[command(after_long_help = advise::EXAMPLES)]
    Advise(Box<advise::AdviseArgs>),
    /// Do a trace's requests on real files through the tier, and time them
    #[command(after_long_help = replay::EXAMPLES)]
    Replay(Box<replay::ReplayArgs>),
    /// Keep sets of keys larger than memory on flash, and ask them: anti-joins, duplicates
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Show the tier at work on an emulated disk: no mount, no database server needed
    #[command(after_help = demo::EXPLANATION)]
    Demo(demo::DemoArgs),
    /// Print the configuration in effect, the documented defaults, or check a file
    Config(ConfigArgs),
    /// Write the man pages
    Man(ManArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

const MOUNT_HELP: &str = "\
Ending a mount: `thermocline umount MOUNTPOINT`, or SIGTERM, SIGINT or SIGHUP to its process.
The first signal unmounts. While files are open it is remembered: the mount serves on, `status` says
that it was asked to end, and it ends when the last file is closed. A second signal detaches: the
mountpoint is free at once, files that are open are served until they are closed. Either way dirty
pages are then written back to base, with a line on progress in the log every few seconds, and the
map is saved; the cache is in use until that is done. Further signals change nothing, and kill -9 is
a crash: the next mount recovers. In write-back never start a server on the base directory itself
before the log says `base is whole`.";

/// `thermocline mount`.
#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    /// Directory that holds the files: the database's own, on bulk storage
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) base: PathBuf,
    /// Empty directory where the database will see them
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// File or block device on flash that holds the tier [config: tier.cache]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cache: Option<PathBuf>,
    /// Size of the tier: 8GiB, 512M, 65536p [config: tier.size]
    #[arg(long)]
    pub(crate) size: Option<Size>,
    /// Replacement policy of the tier [config: tier.policy]
    #[arg(long, value_parser = PossibleValuesParser::new(policies()))]
    pub(crate) policy: Option<String>,
    /// Memory for a pool of pages above the tier; 0 for none [config: pool.size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) pool: Option<Size>,
    /// Keep writes on flash and write them back later: the cache file is then part of the
    /// database's storage until `flush` [config: tier.write_back]
    #[arg(long)]
    pub(crate) write_back: bool,
    /// Page size of the database: 8KiB PostgreSQL, 16KiB InnoDB, 4KiB SQLite
    /// [config: tier.page_size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Record every request with its hints to a trace file (Parquet) [config: trace.record]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,
    /// Slow the base down to an emulated device, to try things out
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(Model::PRESETS))]
    pub(crate) emulate_base: Option<String>,
    /// Bytes that fill the emulated disk: its arm moves over all of it for that many. By default
    /// as many as the real device has, so that a small database sees short seeks
    #[arg(long, value_name = "SIZE", requires = "emulate_base")]
    pub(crate) emulate_capacity: Option<Size>,
    /// Let .thermocline/faults script faults of the flash device, to see what a sick SSD does
    #[arg(long)]
    pub(crate) faults: bool,
    /// Configuration file; command-line options override it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Stay in the foreground; without it the command returns once the mount serves
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Start the cache file afresh; refused while it holds pages that base does not have
    #[arg(long)]
    pub(crate) format: bool,
    /// With --format: give up the pages that base does not have, which must be N
    #[arg(long, value_name = "N", requires = "format")]
    pub(crate) discard_dirty: Option<u64>,
    /// Log of the mount [config: mount.log] [default: the cache file's name + .log; none in the
    /// foreground]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<PathBuf>,
    /// Threads that serve requests [config: mount.threads]
    #[arg(long)]
    pub(crate) threads: Option<u32>,
    /// Serve files that bypass the tier too, rather than let the kernel do it on base itself; they
    /// are then counted [config: mount.passthrough]
    #[arg(long)]
    pub(crate) no_passthrough: bool,
    /// How requests come from the kernel [config: mount.transport]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Transport>,
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
}

/// What is allowed where the mark of a base stands in the way.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ClaimArgs {
    /// Fence another host that serves this base, or did when it crashed, and wait until it has
    /// stopped
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Give up what another cache holds, by its id: every write that base does not have yet is
    /// lost. For a cache that is lost for good
    #[arg(long, value_name = "CACHE-ID")]
    pub(crate) abandon_dirty: Option<CacheId>,
    /// This is the base that the cache belongs to, restored or mounted in another way
    #[arg(long)]
    pub(crate) same_base: bool,
}

/// The id of a cache, as messages show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheId(pub(crate) u64);

impl std::str::FromStr for CacheId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = u64::from_str_radix(text, 16);
        let wrong = |_| "an id has 16 hexadecimal digits, as the message showed it".to_string();
        id.map(Self).map_err(wrong)
    }
}

/// `thermocline umount`.
#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Detach now and finish when the last file is closed
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Leave pages that are newer than base on flash: unmounts at once, and base is whole only
    /// together with the cache. Without it they are written back
    #[arg(long)]
    pub(crate) keep_dirty: bool,
    /// Seconds to wait for the map to be saved, after the last news in the log
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

/// `thermocline status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Print the statistics as JSON
    #[arg(long, conflicts_with_all = ["live", "metrics"])]
    pub(crate) json: bool,
    /// Print the statistics in Prometheus text format
    #[arg(long, conflicts_with = "live")]
    pub(crate) metrics: bool,
    /// Print the statistics in OpenMetrics text format
    #[arg(long, conflicts_with_all = ["live", "metrics", "json"])]
    pub(crate) openmetrics: bool,
    /// Refresh until interrupted, even when the output is not a terminal
    #[arg(long, visible_alias = "watch", conflicts_with = "once")]
    pub(crate) live: bool,
    /// Print once, even on a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval: u64,
}

/// `thermocline policy`.
#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// The policy to use from now on; the tier's contents stay
    #[arg(value_parser = PossibleValuesParser::new(NAMES))]
    pub(crate) name: String,
}

/// `thermocline tier`.
#[derive(Args, Debug)]
pub(crate) struct TierArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Serve from the tier, or pass everything to base
    pub(crate) state: Switch,
}

/// Off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Use it
    On,
    /// Leave it alone
    Off,
}

impl Switch {
    /// The word written to the mount's control file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// `thermocline mode`.
#[derive(Args, Debug)]
pub(crate) struct ModeArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Where writes go from now on
    pub(crate) mode: WriteMode,
}

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteMode {
    /// To flash; base gets them later
    WriteBack,
    /// To base; what is dirty is written back in the background
    WriteThrough,
}

const FLUSH_HELP: &str = "\
In write-back, base is whole only together with the cache until its dirty pages are written back.
A flush does that as fast as base can, in the order of base; the mount goes on serving, slower.
While a database writes as fast as base takes, it has no end, and says so; then
  thermocline mode MOUNTPOINT write-through
keeps pages from becoming dirty. An interrupted command leaves the flush at work; --stop ends it.
The remaining time is what is left at the rate of the last ten seconds.";

/// `thermocline flush`.
#[derive(Args, Debug)]
pub(crate) struct FlushArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// End a flush that another command started
    #[arg(long, conflicts_with = "json")]
    pub(crate) stop: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `thermocline detach`.
#[derive(Args, Debug)]
pub(crate) struct DetachArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Seconds to wait for the map to be saved, after the last news in the log
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

const RESIZE_HELP: &str = "\
The mount goes on serving. Before a cache becomes shorter, what is dirty in it is written back; then
writes wait until the last of that is done, and reads of pages on flash for a moment longer. Pages
in the part that goes are forgotten, the others stay; the policy forgets what it learned. The size
is kept in the cache, so the next mount needs no --size. An interrupted command leaves the change at
work; one that fails leaves the size there was.
  thermocline resize /srv/pgdata --size 20GiB";

/// `thermocline resize`.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Size of the cache from now on: 8GiB, 512M, 65536p
    #[arg(long)]
    pub(crate) size: Size,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const PIN_HELP: &str = "\
A pinned file is read from base once, now, at no more than half of the time; from then on its pages
are on flash and never evicted. As many slots as it has pages are set aside; a tenth of the cache
stays with the policy. What the file grows by later is cached like any other, until it is pinned
again or the mount starts anew. Dirty pages are written back before; the policy forgets what it
learned, as with `resize`. Lasts as long as the mount: for more, name the paths in the configuration
(tier.pin). An interrupted command leaves the mount at work; `unpin`, `resize` and `replace` need
not wait for a load, which goes on after them.
  thermocline pin /srv/pgdata base/5/16384 'base/5/16384.*'
  thermocline pin /srv/pgdata";

/// `thermocline pin`.
#[derive(Args, Debug)]
pub(crate) struct PinArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Files, relative to the base, beside those pinned already: * and ? stand for parts of a name,
    /// ** for any number of directories
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const RECORD_HELP: &str = "\
The mount writes the trace, with some 30 MiB of memory more meanwhile. Files that bypass the tier and
are open already are not in it. An interrupted command leaves the recording at work: it ends when
its time is over, with the mount, or by --stop. A longer recording goes on in files beside this one.
  thermocline record /srv/pgdata monday.parquet --for 1h
  thermocline advise monday.parquet --mount /srv/pgdata";

/// `thermocline record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// The trace, a new file outside of the mount and its base
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "stop")]
    pub(crate) file: Option<PathBuf>,
    /// For how long
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = span)]
    pub(crate) length: Duration,
    /// End the recording that another command started
    #[arg(long, conflicts_with_all = ["file", "json"])]
    pub(crate) stop: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `thermocline unpin`.
#[derive(Args, Debug)]
pub(crate) struct UnpinArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Paths as they were pinned
    #[arg(value_name = "PATH", required_unless_present = "all")]
    pub(crate) paths: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "paths")]
    pub(crate) all: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const REPLACE_HELP: &str = "\
For a device that is to be taken out, or has failed. The mount goes on serving: what is dirty is
written back to base, then the new cache takes over, cold. The old one is left empty; where its
device does not work any more, the command waits a few seconds so that it cannot be believed should
it come back. Refused while the old device alone has pages and does not give them back:
`thermocline status` lists those. Name the new cache in later mounts.
  thermocline replace /srv/pgdata --cache /newssd/tier --size 20GiB";

/// `thermocline replace`.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// The new cache file or block device
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cache: PathBuf,
    /// Its size [default: that of the old one, or the whole block device]
    #[arg(long)]
    pub(crate) size: Option<Size>,
    /// Overwrite what the file or device holds; refused while that is pages that a base does not
    /// have
    #[arg(long)]
    pub(crate) format: bool,
    /// With --format: give up the pages in it that a base does not have, which must be N
    #[arg(long, value_name = "N", requires = "format")]
    pub(crate) discard_dirty: Option<u64>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const CHECK_HELP: &str = "\
Reads superblocks, journal and map, and with --data every page. A page is dirty when flash has the
only newest copy: while there are such pages, mount or recover before anything uses base. Exit code
0 when nothing is damaged, dirty pages or not, 1 when something is; what a crash leaves behind
without harm is listed as a note. Files are listed by dirty pages, most first, twenty of them.
  thermocline check /ssd/tier --data";

/// `thermocline check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The cache file or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) cache: PathBuf,
    /// Compare the bytes of every page with their checksum too
    #[arg(long)]
    pub(crate) data: bool,
    /// List every file and every problem
    #[arg(long)]
    pub(crate) all: bool,
    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const RECOVER_HELP: &str = "\
After a crash of a mount in write-back, base lacks what only flash holds. The next mount recovers
that by itself; this command does it without a mount, so that base can be used alone:
  thermocline recover /bulk/pgdata /ssd/tier
It refuses when a file was changed or removed since: pages from before the change do not belong
into it. The refusal names those files and their pages. Best put the files back as they were.
--discard=FILE gives up the pages of that file, if it was changed, and keeps it as it is now;
without a name, those of all such files. --save-to DIR writes the pages before to DIR/FILE.pages
(with _ for /), at the offsets they have in FILE, so that a person can still look for what is
missing:
  thermocline recover /bulk/pgdata /ssd/tier --save-to /root/pages --discard=base/5/16384";

/// `thermocline recover`.
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// The base directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) base: PathBuf,
    /// Its cache file or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) cache: PathBuf,
    /// Give up dirty pages of a file that was changed or removed; may be given several times.
    /// Without a file: of all such files, and what cannot be read
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub(crate) discard: Vec<String>,
    /// Write pages that are to be given up to files in DIR first
    #[arg(long, value_name = "DIR", requires = "discard", value_hint = ValueHint::DirPath)]
    pub(crate) save_to: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
}

/// `thermocline calibrate`.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// A directory on the base device; a scratch file is written there and removed
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) base: PathBuf,
    /// A directory on the flash device, or the place of the cache file; as with base
    #[arg(long, value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) cache: PathBuf,
    /// Configuration file to write the costs to; others of its lines stay as they are
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Page size to measure with [config: tier.page_size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Size of the scratch files; a short one makes a hard disk look fast: its arm hardly moves
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) scratch: Size,
    /// Seconds for each measurement at most; filling the scratch file takes as long as it takes
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Slow the base down to an emulated device, to try things out
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(Model::PRESETS))]
    pub(crate) emulate_base: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `thermocline trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarise trace files: requests, objects, hints, hit ratios, latencies
    Info(TraceInfoArgs),
    /// Write a trace in another format
    #[command(after_help = CONVERT_HELP)]
    Convert(Box<TraceConvertArgs>),
}

const CONVERT_HELP: &str = "\
Formats that can be written:
  parquet         the native one: nothing is lost
  csv             under the native column names; page size and start are lost
  oracle-general  libCacheSim's: one record per page, reads and writes alike, no hints
A name that ends with .zst is written compressed (csv, oracle-general).";

/// `thermocline trace info`.
#[derive(Args, Debug)]
pub(crate) struct TraceInfoArgs {
    /// A trace: a file written by `mount --record`, later parts found by name, or several as one
    /// trace; or a file of another program, .zst, .xz and .gz too
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Objects and hint values to list at most
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    /// Page size to count pages with, when the trace does not say
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) import: ImportArgs,
}

/// `thermocline trace convert`.
#[derive(Args, Debug)]
pub(crate) struct TraceConvertArgs {
    /// The trace to read: any format, .zst, .xz and .gz too
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    pub(crate) input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Format to write [default: told by the name]
    #[arg(long, value_name = "FORMAT", value_parser = import::format_parser(&WRITABLE))]
    pub(crate) to: Option<String>,
    /// Page size requests are split with [default: the trace's own, or 4KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// One row per page instead of one per request (oracle-general always has)
    #[arg(long)]
    pub(crate) split: bool,
    /// Replace the file when it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what was written as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) import: ImportArgs,
}

const WRITABLE: [Format; 3] = [Format::Parquet, Format::Csv, Format::OracleGeneral];

/// `thermocline config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Print every setting with its default and what it does
    #[arg(long, conflicts_with = "check")]
    pub(crate) defaults: bool,
    /// Check a configuration file and print the settings that result
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) check: Option<PathBuf>,
    /// Print the settings as JSON
    #[arg(long, conflicts_with = "defaults")]
    pub(crate) json: bool,
}

/// `thermocline man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write them to; made if missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

/// `thermocline completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_is_explained() {
        fn check(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no help",
                command.get_name()
            );
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(
                    argument.get_help().is_some(),
                    "{} {id} has no help",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn the_brief_mount_line_parses() {
        let line = "thermocline mount /data /mnt --cache /ssd/c --size 8GiB --policy lru --pool 0 \
                    --page-size 16k --record t.parquet --emulate-base hdd --foreground --format";
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("parses");
        let Command::Mount(mount) = cli.command else {
            panic!("not mount")
        };
        assert_eq!(mount.size, Some(Size::Bytes(8 << 30)));
        assert_eq!(mount.page_size, Some(Size::Bytes(16384)));
        assert_eq!(mount.emulate_base, Some("hdd".to_string()));
        assert!(mount.foreground && mount.format);
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_ones() {
        let error = Cli::try_parse_from(["thermocline", "policy", "/mnt", "magic"]).unwrap_err();
        let text = error.to_string();
        assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
    }
}
