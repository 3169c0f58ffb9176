//! The configuration file: TOML, every setting optional, unknown ones refused.
//!
//! `thermocline.example.toml` documents every setting with its default; a test keeps the two
//! equal. Order of precedence: command line, file, default.

use crate::failure::{Failure, Outcome};
use crate::units::Size;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use thermocline::EngineConfig;
use thermocline::classify::{Rule, Rules};
use thermocline::config::{
    CacSettings, ClicSettings, CostSettings, DirtySettings, PrioritySettings, TacSettings,
};
use thermocline_core::model::{IoOp, Model, Pattern};

/// Policies a mount can start with: those of the tier, and `none` for base only.
pub(crate) fn policies() -> impl Iterator<Item = &'static str> {
    thermocline_core::policy::NAMES
        .iter()
        .copied()
        .chain([thermocline_core::policy::DEFAULT, NO_TIER])
}

/// The documented defaults, as `thermocline config --defaults` prints them.
pub(crate) const EXAMPLE: &str = include_str!("../../../thermocline.example.toml");

/// The policy of a mount without a tier.
pub(crate) const NO_TIER: &str = "none";

/// Smallest page size of any database served (SQLite).
pub(crate) const PAGE_SIZE_MIN: u64 = 512;
/// Largest page size of any database served (InnoDB, SQLite).
pub(crate) const PAGE_SIZE_MAX: u64 = 65_536;

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) mount: MountSection,
    pub(crate) tier: TierSection,
    pub(crate) tac: TacSettings,
    /// Parameters of the policies that learn from hints.
    pub(crate) clic: ClicSettings,
    pub(crate) cac: CacSettings,
    pub(crate) priority: PrioritySettings,
    pub(crate) pool: PoolSection,
    /// How dirty pages are kept and written back.
    pub(crate) dirty: DirtySettings,
    /// The list of what is hot on flash, and warming from one.
    pub(crate) warm: WarmSection,
    pub(crate) costs: CostSettings,
    /// What stays out of the tier, or is let in: first match wins, before the built-in rules.
    pub(crate) rules: Vec<Rule>,
    pub(crate) trace: TraceSection,
}

/// How the mount serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MountSection {
    /// Threads that serve requests, at most.
    pub(crate) threads: u32,
    /// Whether users other than the one who mounts may use it.
    pub(crate) allow_other: bool,
    /// Whether the kernel may serve files that bypass the tier from base itself.
    pub(crate) passthrough: bool,
    /// How requests come from the kernel.
    pub(crate) transport: Transport,
    /// Where PostgreSQL's extension publishes plans; empty for a file in /dev/shm, `off` for none.
    pub(crate) hints: PathBuf,
    /// Option file of a login at a server that does not name its threads; empty for none.
    pub(crate) mariadb_login: PathBuf,
    /// Seconds after which a copy of the cache, or of base, is an old one.
    pub(crate) opening_s: f64,
    /// Log of a mount in the background; empty for the cache file's name + `.log`.
    pub(crate) log: PathBuf,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// Over io_uring where the kernel offers it, else through /dev/fuse
    #[default]
    Auto,
    /// Through /dev/fuse
    Device,
}

/// The flash tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TierSection {
    /// The cache file or block device; empty when the command line names it.
    pub(crate) cache: PathBuf,
    /// Its size; 0 for the size it already has.
    pub(crate) size: Size,
    /// Replacement policy.
    pub(crate) policy: String,
    /// Memory that `auto`, `value` and `value-time` may take; 0 for a 32nd of the machine's.
    pub(crate) policy_memory: Size,
    /// Page size of the database.
    pub(crate) page_size: Size,
    /// Memory for admissions waiting to be written to flash.
    pub(crate) write_buffer: Size,
    /// Bytes of a sequential stream that are read ahead at once, at most; 0 for none.
    pub(crate) read_ahead: Size,
    /// Threads that write admissions to flash, at most; the measured speed decides how many work.
    pub(crate) writers_max: u32,
    /// Whether policies other than TAC may admit a page when it is written.
    pub(crate) admit_on_write: bool,
    /// Whether writes stay off base where they can.
    pub(crate) write_back: bool,
    /// Whole writes of the cache a day that `value` and `value-time` steer towards; 0 for no limit.
    pub(crate) drive_writes_per_day: f64,
    /// Seed of the policies that draw lots.
    pub(crate) seed: u64,
    /// Directories that hold a database each.
    pub(crate) clients: Vec<String>,
    /// Files whose pages are loaded and never evicted.
    pub(crate) pin: Vec<String>,
}

/// The pool of pages in memory above the tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PoolSection {
    /// Memory it may use; 0 for none.
    pub(crate) size: Size,
    /// Which page leaves first.
    pub(crate) policy: String,
}

/// The list of what is hot on flash, and warming from one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WarmSection {
    /// Where the list is kept: `auto` for beside base, `off` for nowhere.
    pub(crate) list: PathBuf,
    /// Seconds between two.
    pub(crate) every_s: f64,
    /// The list whose pages a mount brings to flash: `auto` for that beside base, empty for none.
    pub(crate) from: PathBuf,
    /// Share of the time in which a request for them may be under way.
    pub(crate) share: f64,
    /// Such requests a second, at most; 0 for no limit.
    pub(crate) requests_per_s: f64,
}

/// Recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TraceSection {
    /// Trace file to record to; empty for none.
    pub(crate) record: PathBuf,
}

impl Default for MountSection {
    fn default() -> Self {
        Self {
            threads: 128,
            allow_other: true,
            passthrough: true,
            transport: Transport::Auto,
            hints: PathBuf::new(),
            mariadb_login: PathBuf::new(),
            opening_s: 600.0,
            log: PathBuf::new(),
        }
    }
}

impl Default for TierSection {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            cache: PathBuf::new(),
            size: Size::ZERO,
            page_size: Size::Bytes(engine.page_size.into()),
            write_buffer: Size::Pages(engine.write_buffer_pages.into()),
            read_ahead: Size::Bytes(engine.read_ahead.into()),
            writers_max: engine.writers_max,
            admit_on_write: engine.admit_on_write,
            write_back: engine.write_back,
            drive_writes_per_day: engine.drive_writes_per_day,
            seed: engine.seed,
            clients: engine.clients,
            pin: Vec::new(),
            policy: engine.policy,
            policy_memory: Size::ZERO,
        }
    }
}

impl Default for WarmSection {
    fn default() -> Self {
        Self {
            list: "auto".into(),
            every_s: 300.0,
            from: PathBuf::new(),
            share: 0.5,
            requests_per_s: 0.0,
        }
    }
}

impl Default for PoolSection {
    fn default() -> Self {
        Self {
            size: Size::ZERO,
            policy: EngineConfig::default().pool_policy,
        }
    }
}

/// Whether temporary files are in the tier under `policy`: only the priority groups know what to do
/// with them (hStorage-DB rule 3).
pub(crate) fn takes_temporary(policy: &str) -> bool {
    policy == "priority"
}

impl Config {
    /// The settings of the file at `path`, checked; defaults without one.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = fs::read_to_string(path).map_err(|e| Failure::io("read", path, &e))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// The settings written in `text`, each checked; `origin` names the file in errors. Whether a
    /// mount may begin with them [`Config::check`] says: the command line may change some yet, and
    /// those in effect are of a mount that began with another policy.
    pub(crate) fn parse(text: &str, origin: &str) -> Result<Self, Failure> {
        let advice = "thermocline config --defaults lists every setting";
        let config: Self = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(String::new(), |span| {
                format!(" line {}", text[..span.start].matches('\n').count() + 1)
            });
            Failure::usage(format!("{origin}{place}: {}", error.message())).advise(advice)
        })?;
        config.check_values().map_err(|mut failure| {
            failure.message = format!("{origin}: {}", failure.message);
            failure
        })?;
        Ok(config)
    }

    /// Refuses what no mount may begin with.
    pub(crate) fn check(&self) -> Outcome {
        self.check_values()?;
        let (writes, policy) = (self.tier.drive_writes_per_day, &self.tier.policy);
        if writes > 0.0 && !["value", "value-time"].contains(&policy.as_str()) {
            let fact = format!("{writes} drive writes a day are no matter of the policy {policy}");
            return Err(Failure::usage(fact)
                .advise("--policy value (tier.policy), or no --drive-writes-per-day"));
        }
        Ok(())
    }

    /// Refuses values no part of the program can work with.
    fn check_values(&self) -> Outcome {
        self.engine()?;
        self.rules()?;
        if self.mount.threads == 0 {
            return Err(wrong("mount.threads", 0, "1 or more"));
        }
        let warm = &self.warm;
        let (day, many) = (86_400.0, 1e9);
        if !(1.0..=day).contains(&self.mount.opening_s) {
            return Err(wrong("mount.opening_s", self.mount.opening_s, "1 to 86400"));
        }
        if !(1.0..=day).contains(&warm.every_s) {
            return Err(wrong("warm.every_s", warm.every_s, "1 to 86400"));
        }
        if !(0.001..=1.0).contains(&warm.share) {
            return Err(wrong("warm.share", warm.share, "0.001 to 1"));
        }
        if !(0.0..=many).contains(&warm.requests_per_s) {
            let accepted = "0 (no limit) to 1000000000";
            return Err(wrong("warm.requests_per_s", warm.requests_per_s, accepted));
        }
        if warm.list.as_os_str().is_empty() {
            let accepted = "auto, off, or a file";
            return Err(wrong("warm.list", "\"\"", accepted));
        }
        Ok(())
    }

    /// The rules by path over the built-in ones.
    pub(crate) fn rules(&self) -> Result<Rules, Failure> {
        let rules = Rules::new(self.rules.clone());
        let rules = rules.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(rules.with_temporary(takes_temporary(&self.tier.policy)))
    }

    /// The settings of the engine, within their ranges.
    pub(crate) fn engine(&self) -> Result<EngineConfig, Failure> {
        let page_size = self.page_size()?;
        let bytes = |name, size: Size| {
            size.bytes(page_size)
                .ok_or_else(|| wrong(name, size, "below 16 EiB"))
        };
        let mut engine = EngineConfig {
            page_size,
            pool_bytes: bytes("pool.size", self.pool.size)?,
            pool_policy: self.pool.policy.clone(),
            policy_memory: bytes("tier.policy_memory", self.tier.policy_memory)?,
            write_back: self.tier.write_back,
            drive_writes_per_day: self.tier.drive_writes_per_day,
            dirty: self.dirty,
            write_buffer_pages: whole_u32(self.tier.write_buffer.pages(page_size)),
            read_ahead: whole_u32(bytes("tier.read_ahead", self.tier.read_ahead)?),
            writers_max: self.tier.writers_max,
            admit_on_write: self.tier.admit_on_write,
            seed: self.tier.seed,
            clients: self.tier.clients.clone(),
            tac: self.tac,
            clic: self.clic,
            cac: self.cac,
            priority: self.priority.clone(),
            costs: self.costs,
            ..EngineConfig::default()
        };
        // Without a tier the policy has nothing to decide.
        if self.tier.policy != NO_TIER {
            check_policy(&self.tier.policy)?;
            engine.policy.clone_from(&self.tier.policy);
        }
        engine.check()?;
        Ok(engine)
    }

    /// Takes the costs of base from `model`, unless the file sets costs.
    pub(crate) fn assume_base(&mut self, model: &Model) -> Outcome {
        if self.costs != CostSettings::default() {
            return Ok(());
        }
        let page = u64::from(self.page_size()?);
        let cost = |op, pattern, bytes| model.expected(op, pattern, bytes) as f64 / 1e3;
        // A page's share of a large sequential request, as calibration measures it.
        let stretch = 1 << 20;
        let share = page as f64 / stretch as f64;
        self.costs.base_random_read_us = cost(IoOp::Read, Pattern::Random, page);
        self.costs.base_random_write_us = cost(IoOp::Write, Pattern::Random, page);
        self.costs.base_sequential_read_us = share * cost(IoOp::Read, Pattern::Sequential, stretch);
        Ok(())
    }

    /// The page size of the tier in bytes.
    pub(crate) fn page_size(&self) -> Result<u32, Failure> {
        page_size("tier.page_size", self.tier.page_size)
    }
}

/// The page size in bytes: a power of two a database can have. `name` names it in errors.
pub(crate) fn page_size(name: &str, size: Size) -> Result<u32, Failure> {
    let range = PAGE_SIZE_MIN..=PAGE_SIZE_MAX;
    match size {
        Size::Bytes(bytes) if bytes.is_power_of_two() && range.contains(&bytes) => {
            u32::try_from(bytes).map_err(|_| Failure::usage("page size out of range"))
        }
        _ => Err(wrong(name, size, "a power of two from 512 to 64KiB")
            .advise("8KiB for PostgreSQL, 16KiB for InnoDB, 4KiB for SQLite")),
    }
}

/// `count`, or the most that fits.
fn whole_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Refuses a policy there is none of.
fn check_policy(name: &str) -> Outcome {
    let known: Vec<&str> = policies().collect();
    if known.contains(&name) {
        return Ok(());
    }
    Err(wrong(
        "tier.policy",
        format!("\"{name}\""),
        &format!("one of {}", known.join(", ")),
    ))
}

/// The failure for setting `name` with `value`, when only `accepted` is.
fn wrong(name: &str, value: impl std::fmt::Display, accepted: &str) -> Failure {
    Failure::usage(format!("{name} = {value} is not accepted: {accepted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_the_defaults() {
        let example = Config::parse(EXAMPLE, "example").expect("example parses");
        assert_eq!(example, Config::default());
    }

    #[test]
    fn the_example_names_every_setting() {
        let example: toml::Table = toml::from_str(EXAMPLE).expect("toml");
        let defaults = toml::Table::try_from(Config::default()).expect("toml");
        assert!(EXAMPLE.contains("# [[rules]]"), "no rule shown");
        for (section, settings) in defaults.iter().filter(|(name, _)| *name != "rules") {
            for name in settings.as_table().expect("section").keys() {
                let named = example[section]
                    .as_table()
                    .is_some_and(|t| t.contains_key(name));
                assert!(named, "{section}.{name} is not in the example");
            }
        }
    }

    #[test]
    fn the_commented_rules_of_the_example_are_rules() {
        let start = EXAMPLE.find("# [[rules]]").expect("rules");
        let end = EXAMPLE.find("[trace]").expect("trace");
        let config = Config::parse(&uncommented(&EXAMPLE[start..end]), "rules").expect("parses");
        assert_eq!(config.rules.len(), 2);
    }

    #[test]
    fn the_commented_priority_rules_of_the_example_are_rules() {
        let start = EXAMPLE.find("# [[priority.rule]]").expect("rules");
        let end = EXAMPLE.find("[pool]").expect("pool");
        let text = uncommented(EXAMPLE[start..end].split("\n\n").next().expect("text"));
        let config = Config::parse(&text, "rules").expect("parses");
        assert_eq!(config.priority.rule.len(), 2);
    }

    fn uncommented(text: &str) -> String {
        let lines: Vec<&str> = text.lines().map(|l| l.trim_start_matches("# ")).collect();
        lines.join("\n")
    }

    #[test]
    fn every_setting_of_the_example_is_commented() {
        let mut above = "";
        for line in EXAMPLE.lines() {
            if line.contains(" = ") && !line.starts_with('#') {
                assert!(above.starts_with('#'), "no comment above: {line}");
            }
            above = line;
        }
    }

    #[test]
    fn unknown_settings_are_refused_with_their_line() {
        let failure = Config::parse("[tier]\npolicy = \"lru\"\npolcy = 1\n", "c.toml").unwrap_err();
        assert!(
            failure.message.starts_with("c.toml line 3: "),
            "{}",
            failure.message
        );
        assert!(failure.message.contains("polcy"), "{}", failure.message);
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let cases = [
            ("[tier]\npage_size = 5000", "tier.page_size"),
            ("[tier]\npage_size = \"2p\"", "tier.page_size"),
            ("[tier]\npage_size = \"1MiB\"", "tier.page_size"),
            ("[tier]\npolicy = \"magic\"", "tier.policy"),
            ("[tac]\nregion_pages = 7", "tac.region_pages"),
            ("[tac]\nageing_factor = 1.5", "tac.ageing_factor"),
            ("[tac]\nwindow = 0", "tac.window"),
            ("[tac]\nmargin = nan", "tac.margin"),
            ("[clic]\nsmoothing = 0.0", "clic.smoothing"),
            ("[clic]\nk = 0", "clic.k"),
            ("[cac]\nbands = 0", "cac.bands"),
            ("[tac]\nblock_pages = 0", "tac.block_pages"),
            ("[priority]\npriorities = 2", "priority.priorities"),
            ("[priority]\ndefault = 9", "priority.default"),
            (
                "[[priority.rule]]\nmatch = { role = \"king\" }\npriority = 1",
                "king",
            ),
            ("[costs]\nflash_read_us = -1.0", "costs"),
            ("[costs]\nbase_random_read_us = inf", "costs"),
            ("[tier]\nwrite_buffer = 0", "write_buffer_pages"),
            ("[tier]\nwriters_max = 65", "writers_max"),
            ("[pool]\nsize = \"18446744073709551615p\"", "pool.size"),
            ("[[rules]]\npath = \"x\"\nkind = \"wal\"", "wal"),
            ("[[rules]]\npath = \"\"", "path"),
            ("[[rules]]\npath = \"x\"\ndialect = \"oracle\"", "oracle"),
            ("[mount]\nthreads = 0", "mount.threads"),
            ("[mount]\nopening_s = 0.5", "mount.opening_s"),
            ("[warm]\nevery_s = 0.5", "warm.every_s"),
            ("[warm]\nevery_s = nan", "warm.every_s"),
            ("[warm]\nshare = 0", "warm.share"),
            ("[warm]\nshare = 1.5", "warm.share"),
            ("[warm]\nrequests_per_s = -1", "warm.requests_per_s"),
            ("[warm]\nlist = \"\"", "warm.list"),
            ("[pool]\nsize = \"many\"", "many"),
        ];
        for (text, name) in cases {
            let failure = Config::parse(text, "c.toml").expect_err(text);
            assert!(
                failure.message.contains(name),
                "{text}: {}",
                failure.message
            );
            assert_eq!(failure.code, crate::failure::Code::Usage);
        }
    }

    #[test]
    fn sizes_may_be_written_either_way() {
        let config = Config::parse("[pool]\nsize = 4096\n[tier]\nsize = \"8GiB\"", "c").unwrap();
        assert_eq!(config.pool.size, Size::Bytes(4096));
        assert_eq!(config.tier.size, Size::Bytes(8 << 30));
    }

    #[test]
    fn settings_survive_printing() {
        let text = toml::to_string(&Config::default()).expect("toml");
        assert_eq!(
            Config::parse(&text, "printed").expect("parses"),
            Config::default()
        );
    }
}
