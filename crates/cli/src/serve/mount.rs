//! `mount`: settings and checks, then a process that serves until it is unmounted.
//!
//! States: *checked* (nothing was started) → *serving* → *ended* (unmounted; the map is being
//! saved) → done. In the background the process is forked while *checked*, before it has threads.

use crate::config::{Config, NO_TIER, Transport, policies};
use crate::failure::{Code, Failure, Outcome};
use crate::serve::beacon;
use crate::serve::claiming;
use crate::serve::claiming::ClaimArgs;
use crate::serve::daemon::{self, Side};
use crate::serve::log;
use crate::serve::preflight::{self, Places};
use crate::serve::serving::Serving;
use crate::serve::signals::{self, Signals};
use crate::units::Size;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};
use thermocline::claim::Leave;
use thermocline_core::model::{Model, NetworkModel};

/// Shown at the end of `mount --help`.
pub(crate) const HELP: &str = "\
Ending a mount: `thermocline umount MOUNTPOINT`, or SIGTERM, SIGINT or SIGHUP to its process.
The first signal unmounts. While files are open it is remembered: the mount serves on, `status` says
that it was asked to end, and it ends when the last file is closed. A second signal detaches: the
mountpoint is free at once, files that are open are served until they are closed. Either way dirty
pages are then written back to base, with a line on progress in the log every few seconds, and the
map is saved; the cache is in use until that is done. Further signals change nothing, and kill -9 is
a crash: the next mount recovers. In write-back never start a server on the base directory itself
before the log says `base is whole`.
Every few minutes and at its end a mount writes a list of what is hot on flash, beside base
(.NAME.thermocline-hot). When the cache was lost, --warm-from auto reads those pages from base in
the background, the hottest first, at most half of the time and while slots are free. A list that is
old, damaged or missing keeps no mount from serving. Settings are under [warm].
The first mount makes the cache: --size for a file, --format for a block device. Leave both out from
then on:
  thermocline mount /bulk/pgdata /srv/pgdata --cache /ssd/tier --size 8GiB
  thermocline mount /bulk/pgdata /srv/pgdata --cache /ssd/tier --log /var/log/thermocline.log";

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
    /// Size of the cache when it is made: 8GiB, 512M, 65536p. Leave it out later: another size is
    /// refused [config: tier.size] [default: the size the cache has; all of a block device]
    #[arg(long)]
    pub(crate) size: Option<Size>,
    /// Replacement policy of the tier; keep the default: auto, or tac where memory is short
    /// [config: tier.policy] [default: default]
    #[arg(long, value_parser = PossibleValuesParser::new(policies()))]
    pub(crate) policy: Option<String>,
    /// Memory for a pool of pages above the tier; 0 for none [config: pool.size] [default: 0]
    #[arg(long, value_name = "SIZE")]
    pub(crate) pool: Option<Size>,
    /// Keep writes on flash and write them back later: the cache file is then part of the
    /// database's storage until `flush` [config: tier.write_back]
    #[arg(long)]
    pub(crate) write_back: bool,
    /// Whole writes of the tier a day that policies `value` and `value-time` steer towards
    /// [config: tier.drive_writes_per_day]
    #[arg(long, value_name = "WRITES")]
    pub(crate) drive_writes_per_day: Option<f64>,
    /// Page size of the database: 8KiB PostgreSQL, 16KiB InnoDB, 4KiB SQLite
    /// [config: tier.page_size] [default: 8KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Record every request with its hints to a trace file (Parquet) [config: trace.record]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,
    /// Bring the pages of a list of what was hot to flash while slots are free: a file, or auto for
    /// the one a mount keeps beside base [config: warm.from]
    #[arg(long, value_name = "FILE|auto", value_hint = ValueHint::FilePath)]
    pub(crate) warm_from: Option<PathBuf>,
    /// Slow the base down to an emulated device, to try things out
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(Model::PRESETS))]
    pub(crate) emulate_base: Option<String>,
    /// Bytes that fill the emulated disk: its arm moves over all of it for that many. By default
    /// as many as the real device has, so that a small database sees short seeks
    #[arg(long, value_name = "SIZE", requires = "emulate_base")]
    pub(crate) emulate_capacity: Option<Size>,
    /// Requests a second of the emulated network volume
    #[arg(long, value_name = "N", requires = "emulate_base")]
    pub(crate) emulate_requests: Option<u64>,
    /// Bytes a second of the emulated network volume
    #[arg(long, value_name = "SIZE", requires = "emulate_base")]
    pub(crate) emulate_rate: Option<Size>,
    /// Let .thermocline/faults script faults of the flash device, to see what a sick SSD does
    #[arg(long)]
    pub(crate) faults: bool,
    /// Configuration file; command-line options override it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Stay in the foreground; without it the command returns once the mount serves
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Make the cache anew, empty; refused while it holds pages that base does not have. Not for a
    /// unit file: the cache would start empty each time
    #[arg(long)]
    pub(crate) format: bool,
    /// With --format: give up the pages that base does not have. N is how many they are, as the
    /// refusal said: so nothing else is given up
    #[arg(long, value_name = "N", requires = "format")]
    pub(crate) discard_dirty: Option<u64>,
    /// Log of the mount; with a block device or without a cache it must be named
    /// [config: mount.log] [default: the cache file's name + .log; none in the foreground]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<PathBuf>,
    /// Threads that serve requests, at most [config: mount.threads] [default: 128]
    #[arg(long)]
    pub(crate) threads: Option<u32>,
    /// Serve files that bypass the tier too, rather than let the kernel do it on base itself; they
    /// are then counted [config: mount.passthrough]
    #[arg(long)]
    pub(crate) no_passthrough: bool,
    /// How requests come from the kernel [config: mount.transport] [default: auto]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Transport>,
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
}

/// Everything that was decided before anything is started.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Settings: file and command line.
    pub(crate) config: Config,
    /// Directories and cache file, absolute.
    pub(crate) places: Places,
    /// The device the base is slowed down to, and the bytes that fill it.
    pub(crate) emulated: Option<(Model, u64)>,
    /// Trace file, absolute.
    pub(crate) record: Option<PathBuf>,
    /// Whether to make the cache anew.
    pub(crate) format: bool,
    /// How many pages newer than base that may give up.
    pub(crate) discard_dirty: Option<u64>,
    /// Whether faults of the flash device can be scripted.
    pub(crate) faults: bool,
    /// What is allowed where base's mark stands in the way.
    pub(crate) leave: Leave,
    /// Whether to stay in the foreground.
    pub(crate) foreground: bool,
    /// Where the log is; only in the foreground there may be none.
    pub(crate) log: Option<PathBuf>,
    /// Whether the user said where.
    pub(crate) log_named: bool,
}

/// Mounts; returns once it serves, or in the foreground once it was unmounted.
pub(crate) fn run(args: &MountArgs) -> Outcome {
    let plan = plan(args)?;
    free(&plan)?;
    let log = match &plan.log {
        Some(log) if !plan.foreground => log,
        log => {
            log.as_deref().map_or(Ok(()), log::copy_to)?;
            let outcome = serve(&plan, |_| ());
            return outcome.inspect_err(|failure| log::copy(&format!("{failure}\n")));
        }
    };
    match daemon::leave(log, plan.log_named)? {
        Side::Parent(outcome) => {
            outcome?;
            println!(
                "{} is mounted; log: {}",
                describe(&plan.places),
                log.display()
            );
            Ok(())
        }
        Side::Child(report) => serve(&plan, |outcome| report.send(outcome)),
    }
}

/// Refuses a cache whose user can be asked: before this process writes into the log they share.
fn free(plan: &Plan) -> Outcome {
    let cache = plan.places.cache.as_deref();
    match cache.filter(|cache| beacon::of_cache(cache).is_some()) {
        None => Ok(()),
        Some(cache) => {
            let path = cache.display().to_string();
            Err(thermocline::Error::CacheInUse { path }.into())
        }
    }
}

/// Settings and checks.
fn plan(args: &MountArgs) -> Result<Plan, Failure> {
    let mut config = settings(args)?;
    let aside = set_aside(args);
    if config.tier.policy == NO_TIER && !aside.is_empty() {
        eprintln!("policy none serves everything from base: set aside are {aside}");
    }
    let cache = match (
        &*config.tier.policy,
        config.tier.cache.as_os_str().is_empty(),
    ) {
        (NO_TIER, _) => None,
        (_, false) => Some(config.tier.cache.as_path()),
        (_, true) => {
            return Err(Failure::usage("no cache file was named")
                .advise("--cache FILE, on flash; or --policy none to serve from base alone"));
        }
    };
    let places = preflight::check(&args.base, &args.mountpoint, cache)?;
    let named = !config.mount.log.as_os_str().is_empty();
    let log = match args.foreground && !named {
        true => None,
        false => Some(log_path(&config, &places)?),
    };
    let record = Some(&config.trace.record).filter(|path| !path.as_os_str().is_empty());
    let record = record.map(|path| absolute(path)).transpose()?;
    config.trace.record = record.clone().unwrap_or_default();
    for (setting, words) in [
        (&mut config.warm.list, ["auto", "off"]),
        (&mut config.warm.from, ["auto", ""]),
        (&mut config.mount.hints, ["off", ""]),
        (&mut config.mount.mariadb_login, ["", ""]),
    ] {
        if !words.iter().any(|word| setting.as_os_str() == *word) {
            *setting = absolute(setting)?;
        }
    }
    let list = Some(&config.warm.list).filter(|list| list.is_absolute());
    for (what, path) in [
        ("log", log.as_ref()),
        ("trace", record.as_ref()),
        ("list of hot pages", list),
    ] {
        path.map_or(Ok(()), |path| preflight::apart(what, path, &places))?;
    }
    config.tier.cache = places.cache.clone().unwrap_or_default();
    config.mount.log = log.clone().unwrap_or_default();
    Ok(Plan {
        places,
        emulated: emulated(args, &config)?,
        record,
        format: args.format,
        discard_dirty: args.discard_dirty,
        foreground: args.foreground,
        faults: args.faults,
        leave: claiming::leave(&args.claim, args.format),
        log,
        log_named: named,
        config,
    })
}

/// Options that mean nothing where there is no tier, of those given, in words; empty for none. They
/// are taken all the same: in need somebody adds `--policy none` to the usual command.
fn set_aside(args: &MountArgs) -> String {
    let given = [
        ("--cache", args.cache.is_some()),
        ("--size", args.size.is_some()),
        ("--write-back", args.write_back),
        ("--format", args.format),
        ("--warm-from", args.warm_from.is_some()),
        ("--faults", args.faults),
    ];
    let given = given.into_iter().filter(|(_, given)| *given);
    let given: Vec<&str> = given.map(|(option, _)| option).collect();
    given.join(", ")
}

/// The configuration file with the command line over it.
fn settings(args: &MountArgs) -> Result<Config, Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    if let Some(model) = model(args)? {
        config.assume_base(&model)?;
    }
    overlay(&mut config.tier.cache, args.cache.as_ref());
    overlay(&mut config.tier.size, args.size.as_ref());
    overlay(&mut config.tier.policy, args.policy.as_ref());
    overlay(&mut config.tier.page_size, args.page_size.as_ref());
    overlay(&mut config.pool.size, args.pool.as_ref());
    config.tier.write_back |= args.write_back;
    overlay(
        &mut config.tier.drive_writes_per_day,
        args.drive_writes_per_day.as_ref(),
    );
    overlay(&mut config.trace.record, args.record.as_ref());
    overlay(&mut config.warm.from, args.warm_from.as_ref());
    overlay(&mut config.mount.log, args.log.as_ref());
    overlay(&mut config.mount.threads, args.threads.as_ref());
    config.mount.passthrough &= !args.no_passthrough;
    overlay(&mut config.mount.transport, args.transport.as_ref());
    config.check()?;
    Ok(config)
}

fn overlay<T: Clone>(setting: &mut T, option: Option<&T>) {
    if let Some(value) = option {
        setting.clone_from(value);
    }
}

/// The model of the base that is emulated, with the limits that were given.
fn model(args: &MountArgs) -> Result<Option<Model>, Failure> {
    let Some(model) = args.emulate_base.as_deref().and_then(Model::preset) else {
        return Ok(None);
    };
    if args.emulate_requests.is_none() && args.emulate_rate.is_none() {
        return Ok(Some(model));
    }
    let Model::Network(network) = &model else {
        let fact = "--emulate-requests and --emulate-rate are limits of a network volume";
        return Err(Failure::usage(fact).advise("--emulate-base network"));
    };
    let mut parameters = *network.parameters();
    if let Some(requests) = args.emulate_requests {
        parameters.requests_per_second = requests;
    }
    if let Some(Size::Bytes(rate)) = args.emulate_rate {
        parameters.rate = rate;
    }
    let pages = matches!(args.emulate_rate, Some(Size::Pages(_)));
    // A request takes a nanosecond at least.
    let accepted = 1..=1_000_000_000;
    let fine = accepted.contains(&parameters.requests_per_second) && parameters.rate > 0;
    match fine && !pages {
        true => Ok(Some(Model::Network(NetworkModel::new(parameters)))),
        false => Err(Failure::usage(
            "--emulate-requests is 1 to 1000000000, --emulate-rate is bytes, above 0",
        )),
    }
}

/// The device to slow the base down to.
fn emulated(args: &MountArgs, config: &Config) -> Result<Option<(Model, u64)>, Failure> {
    let Some(model) = model(args)? else {
        return Ok(None);
    };
    let capacity = match args.emulate_capacity {
        None => model.capacity(),
        Some(size) => size
            .bytes(config.page_size()?)
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| {
                Failure::usage(format!(
                    "--emulate-capacity {size} is not accepted: above 0"
                ))
            })?,
    };
    Ok(Some((model, capacity)))
}

/// Where the background process writes: the setting, or beside the cache file.
fn log_path(config: &Config, places: &Places) -> Result<PathBuf, Failure> {
    if !config.mount.log.as_os_str().is_empty() {
        return absolute(&config.mount.log);
    }
    match &places.cache {
        Some(cache) if !cache.starts_with("/dev") => {
            let mut name = cache.clone().into_os_string();
            name.push(".log");
            Ok(PathBuf::from(name))
        }
        _ => Err(
            Failure::usage("there is no place for the log of a mount in the background")
                .advise("--log FILE, or --foreground"),
        ),
    }
}

/// The path of a log, a trace or a list, from anywhere.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let found = std::path::absolute(path).map_err(|e| Failure::io("find", path, &e))?;
    preflight::utf8("the path", &found, "a file whose whole path is")?;
    Ok(found)
}

/// Serves until unmounted. `report` is told how the start went, once.
fn serve(plan: &Plan, report: impl FnOnce(&Outcome)) -> Outcome {
    // Both before the first thread.
    let prepared = signals::outlive_file_limit().and_then(|()| Signals::block());
    let started = prepared.map_err(Failure::from).and_then(|signals| {
        let serving = Serving::start(plan)?;
        signals.watch(serving.unmounter())?;
        Ok(serving)
    });
    match started {
        Err(failure) => {
            let outcome = Err(failure);
            report(&outcome);
            outcome
        }
        Ok(serving) => {
            log::line(&format!("serving {}", describe(&plan.places)));
            report(&Ok(()));
            serving.finish()
        }
    }
}

fn describe(places: &Places) -> String {
    format!(
        "{} on {}",
        places.base.display(),
        places.mountpoint.display()
    )
}

impl Plan {
    /// The size asked for; `None` for the size the cache has.
    pub(crate) fn cache_size(&self) -> Result<Option<u64>, Failure> {
        let size = self.config.tier.size;
        if size == Size::ZERO {
            return Ok(None);
        }
        let page_size = self.config.page_size()?;
        let bytes = size.bytes(page_size);
        bytes.map(Some).ok_or_else(|| {
            Failure::new(
                Code::Usage,
                format!("a cache of {size} is more than 16 EiB"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    fn mount_args(line: &str) -> MountArgs {
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("parses");
        let Command::Mount(args) = cli.command else {
            panic!("not mount")
        };
        *args
    }

    #[test]
    fn options_override_the_file() {
        let directory = tempfile::tempdir().expect("dir");
        let file = directory.path().join("t.toml");
        std::fs::write(
            &file,
            "[tier]\npolicy = \"lru\"\nsize = \"1GiB\"\ncache = \"/ssd/a\"\n",
        )
        .expect("write");
        let line = format!(
            "thermocline mount /a /b --size 2GiB --config {}",
            file.display()
        );
        let config = settings(&mount_args(&line)).expect("settings");
        assert_eq!(config.tier.size, Size::Bytes(2 << 30));
        assert_eq!(config.tier.policy, "lru");
        assert_eq!(config.tier.cache, PathBuf::from("/ssd/a"));
    }

    #[test]
    fn an_allowance_in_the_file_may_have_its_policy_on_the_command_line() {
        let directory = tempfile::tempdir().expect("dir");
        let file = directory.path().join("t.toml");
        std::fs::write(&file, "[tier]\ndrive_writes_per_day = 2\n").expect("write");
        let line = format!("thermocline mount /a /b --config {}", file.display());
        settings(&mount_args(&line)).expect_err("a policy that knows none");
        let line = format!("{line} --policy value");
        settings(&mount_args(&line)).expect("settings");
    }

    #[test]
    fn an_emulated_base_brings_its_costs_unless_some_are_set() {
        let line = "thermocline mount /a /b --cache /c --emulate-base network";
        let config = settings(&mount_args(line)).expect("settings");
        let network = Model::preset("network").expect("model");
        let expected = Config::default().costs;
        assert_ne!(
            config.costs.base_random_read_us,
            expected.base_random_read_us
        );
        assert_eq!(config.costs.flash_read_us, expected.flash_read_us);
        assert!(network.name().len() > 3);
        let directory = tempfile::tempdir().expect("dir");
        let file = directory.path().join("t.toml");
        std::fs::write(&file, "[costs]\nbase_random_read_us = 77.0\n").expect("write");
        let line = format!("{line} --config {}", file.display());
        let config = settings(&mount_args(&line)).expect("settings");
        assert_eq!(config.costs.base_random_read_us, 77.0);
    }

    #[test]
    fn the_limits_of_a_network_volume_can_be_set() {
        let of = |options: &str| {
            let line = format!("thermocline mount /a /b --cache /c {options}");
            model(&mount_args(&line))
        };
        let set = of("--emulate-base network --emulate-requests 500 --emulate-rate 10MiB");
        let Model::Network(network) = set.expect("accepted").expect("a model") else {
            panic!("a network volume");
        };
        let parameters = network.parameters();
        assert_eq!(parameters.requests_per_second, 500);
        assert_eq!(parameters.rate, 10 << 20);
        assert_eq!(parameters.round_trip, 1_000_000, "as it was");
        for refused in [
            "--emulate-base hdd --emulate-requests 500",
            "--emulate-base network --emulate-requests 0",
            "--emulate-base network --emulate-rate 0",
            "--emulate-base network --emulate-rate 7p",
        ] {
            assert!(of(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn lists_of_hot_pages_are_found_from_anywhere() {
        let base = tempfile::tempdir().expect("base");
        let (a, b) = (base.path().join("a"), base.path().join("b"));
        std::fs::create_dir_all(&a).expect("base");
        std::fs::create_dir_all(&b).expect("mountpoint");
        let at = |from: &str| {
            let line = format!(
                "thermocline mount {} {} --cache {} --warm-from {from}",
                a.display(),
                b.display(),
                base.path().join("c").display()
            );
            plan(&mount_args(&line)).expect("a plan").config.warm
        };
        assert_eq!(at("auto").from, PathBuf::from("auto"));
        assert_eq!(at("auto").list, PathBuf::from("auto"));
        let here = std::env::current_dir().expect("here");
        assert_eq!(at("x/hot").from, here.join("x/hot"));
    }

    #[test]
    fn paths_that_cannot_be_told_are_refused() {
        let root = tempfile::tempdir().expect("directory");
        let at = |name: &[u8]| root.path().join(OsStr::from_bytes(name));
        for name in [&b"a"[..], b"b", b"\xe9", b"\xff"] {
            std::fs::create_dir(at(name)).expect("directory");
        }
        let of = |base: &[u8], mountpoint: &[u8], option: &str, file: &[u8]| {
            let mut line: Vec<OsString> = vec!["thermocline".into(), "mount".into()];
            line.extend([at(base).into(), at(mountpoint).into(), "--cache".into()]);
            line.extend([at(b"tier").into(), option.into(), at(file).into()]);
            let cli = Cli::try_parse_from(line).expect("parses");
            let Command::Mount(args) = cli.command else {
                panic!("not mount")
            };
            plan(&args)
        };
        of(b"a", b"b", "--log", b"log").expect("accepted");
        for (base, mountpoint, option, file) in [
            (&b"\xe9"[..], &b"b"[..], "--log", &b"log"[..]),
            (b"a", b"\xff", "--log", b"log"),
            (b"a", b"b", "--log", b"\xe9/log"),
            (b"a", b"b", "--record", b"t\xff"),
            (b"a", b"b", "--warm-from", b"l\xff"),
        ] {
            let failure = of(base, mountpoint, option, file).expect_err(option);
            assert_eq!(failure.code, Code::Usage);
            assert!(failure.message.contains("is not UTF-8"), "{failure}");
            assert!(failure.advice.is_some(), "{failure}");
        }
    }

    #[test]
    fn a_tier_needs_a_cache_and_a_background_mount_a_log() {
        let failure = plan(&mount_args("thermocline mount /a /b")).expect_err("refused");
        assert!(failure.message.contains("cache"), "{failure}");
        let places = Places {
            base: "/a".into(),
            mountpoint: "/b".into(),
            cache: None,
        };
        assert!(log_path(&Config::default(), &places).is_err());
        let places = Places {
            cache: Some("/ssd/tier".into()),
            ..places
        };
        let path = log_path(&Config::default(), &places).expect("path");
        assert_eq!(path, PathBuf::from("/ssd/tier.log"));
    }

    #[test]
    fn sizes_in_pages_follow_the_page_size() {
        let line = "thermocline mount /a /b --cache /c --size 100p --page-size 16k";
        let config = settings(&mount_args(line)).expect("settings");
        let places = Places {
            base: "/a".into(),
            mountpoint: "/b".into(),
            cache: None,
        };
        let plan = Plan {
            config,
            places,
            emulated: None,
            record: None,
            format: false,
            discard_dirty: None,
            foreground: true,
            faults: false,
            leave: Leave::default(),
            log: None,
            log_named: false,
        };
        assert_eq!(plan.cache_size().expect("size"), Some(1_638_400));
    }
}
