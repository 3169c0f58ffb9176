//! Settings of the engine, with their defaults. `thermocline.example.toml` documents each.

use crate::claim::TICK;
use crate::clock::SharedClock;
use crate::error::Error;
use crate::files::clients::are_apart;
use crate::files::pins::Pins;
use crate::mutant::Mutant;
use crate::request::ahead::CHUNK_MAX;
use crate::settings::machine;
pub use crate::settings::policy_section::{CacSettings, ClicSettings, PolicySection, TacSettings};
pub use crate::settings::policy_table::PrioritySettings;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thermocline_core::policy::{DEFAULT, NAMES, PolicyOptions, ValueConfig};
use thermocline_core::{Costs, Watermarks};

/// Policies may take one part in so many of the machine's memory, where nothing else is said.
const MEMORY_SHARE: u64 = 32;
/// Frames at most: their numbers are 32 bits long, and the largest means none.
const FRAMES_MAX: u64 = u32::MAX as u64 - 1;

/// All settings of an engine.
///
/// ```
/// use thermocline::EngineConfig;
///
/// let config = EngineConfig { policy: "lru".into(), ..EngineConfig::default() };
/// config.check()?;
/// let wrong = EngineConfig { page_size: 1000, ..config };
/// assert!(wrong.check().is_err_and(|error| error.to_string().contains("page_size")));
/// # Ok::<(), thermocline::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Bytes per page: a power of two from 512 to 1 MiB.
    pub page_size: u32,
    /// Tier policy; [`thermocline_core::policy::DEFAULT`] for `auto` where it fits, else `tac`.
    pub policy: String,
    /// Bytes that `auto`, `value` and `value-time` may take; 0 for a 32nd of the machine's memory.
    pub policy_memory: u64,
    /// Bytes of the DRAM pool; 0 for none.
    pub pool_bytes: u64,
    /// Policy of the DRAM pool: lru, clock or gd2l.
    pub pool_policy: String,
    /// Whether writes stay off base where they can; false is write-through.
    pub write_back: bool,
    /// Whole writes of the cache a day that `value` and `value-time` steer towards; 0 for no limit.
    pub drive_writes_per_day: f64,
    /// How dirty pages are kept and written back.
    pub dirty: DirtySettings,
    /// Pages the write buffer holds at most.
    pub write_buffer_pages: u32,
    /// Bytes of a sequential stream that are read ahead at once, at most; 0 reads nothing ahead,
    /// 16 MiB is the most.
    pub read_ahead: u32,
    /// Background writers at most; how many work follows the measured write speed.
    pub writers_max: u32,
    /// Whether policies other than TAC may admit a page when it is written.
    pub admit_on_write: bool,
    /// Seed of the policies that draw lots.
    pub seed: u64,
    /// Directories below the base that hold a database each: clients whose hints are told apart.
    /// None lies in another.
    pub clients: Vec<String>,
    /// Parameters of TAC.
    pub tac: TacSettings,
    /// Parameters of the policies that learn from hints.
    pub clic: ClicSettings,
    /// Parameters of CAC and CC.
    pub cac: CacSettings,
    /// The policy assignment table of the priority groups.
    pub priority: PrioritySettings,
    /// Device costs.
    pub costs: CostSettings,
    /// Files whose pages are never evicted.
    #[serde(skip)]
    pub pins: Pins,
    /// No threads of its own: background work is done by [`crate::Engine::step`] and by requests
    /// that wait for it. For deterministic tests.
    #[doc(hidden)]
    #[serde(skip)]
    pub inline: bool,
    /// A change of a base file within this time after another one may leave the same stamp.
    #[serde(skip)]
    pub stamp_granularity: Duration,
    /// What to add to the wall clock to have the one that base stamps its files by.
    #[serde(skip)]
    pub clock_offset_ns: i64,
    /// What time it is.
    #[doc(hidden)]
    #[serde(skip)]
    pub clock: SharedClock,
    /// A bug on purpose, for the testers' own tests.
    #[doc(hidden)]
    #[serde(skip)]
    pub planted: Mutant,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            page_size: 8192,
            policy: DEFAULT.into(),
            policy_memory: 0,
            pool_bytes: 0,
            pool_policy: "lru".into(),
            write_back: false,
            drive_writes_per_day: 0.0,
            dirty: DirtySettings::default(),
            write_buffer_pages: 256,
            read_ahead: 1 << 20,
            writers_max: 4,
            admit_on_write: true,
            seed: 1,
            clients: Vec::new(),
            tac: TacSettings::default(),
            clic: ClicSettings::default(),
            cac: CacSettings::default(),
            priority: PrioritySettings::default(),
            costs: CostSettings::default(),
            pins: Pins::default(),
            inline: false,
            stamp_granularity: TICK,
            clock_offset_ns: 0,
            clock: SharedClock::default(),
            planted: Mutant::None,
        }
    }
}

/// How dirty pages are kept and written back (write-back only).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirtySettings {
    /// Share of the cache set aside for dirty pages that the policy does not hold, 0 to 0.9. At
    /// most 1/64 where the policy keeps its write buffer among its own pages (`priority`).
    pub reserve: f64,
    /// Share of the reserve in use at which it is written back, down to half of that.
    pub reserve_high: f64,
    /// Share of the policy's pages that are dirty at which they are written back, down to a tenth
    /// less.
    pub dirty_high: f64,
    /// Seconds after which a page that is dirty in DRAM is written out.
    pub recovery_s: f64,
    /// Pages written back a second at most while less than nine tenths of the reserve are in
    /// use; 0 for no limit.
    pub rate: u32,
}

impl Default for DirtySettings {
    fn default() -> Self {
        Self {
            reserve: 0.1,
            reserve_high: 0.5,
            dirty_high: 0.8,
            recovery_s: 30.0,
            rate: 0,
        }
    }
}

impl DirtySettings {
    fn check(self) -> Result<(), Error> {
        let share = |name, value: f64, most: f64, rule| {
            need((0.0..=most).contains(&value), name, value, rule)
        };
        share("dirty.reserve", self.reserve, 0.9, "0 to 0.9")?;
        share("dirty.reserve_high", self.reserve_high, 1.0, "0 to 1")?;
        share("dirty.dirty_high", self.dirty_high, 1.0, "0 to 1")?;
        share("dirty.recovery_s", self.recovery_s, 1e6, "0 to 1000000")
    }

    pub(crate) fn watermarks(self) -> Watermarks {
        Watermarks {
            reserve_high: self.reserve_high,
            reserve_low: self.reserve_high / 2.0,
            dirty_high: self.dirty_high,
            dirty_low: (self.dirty_high - 0.1).max(0.0),
        }
    }
}

/// How the blocks of a cache are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Slots of the tier policy.
    pub slots: u32,
    /// Slots of the reserve.
    pub reserve: u32,
}

/// Device costs in microseconds per page; see [`Costs`]. `thermocline calibrate` measures them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostSettings {
    /// R_D.
    pub base_random_read_us: f64,
    /// S_D.
    pub base_sequential_read_us: f64,
    /// W_D.
    pub base_random_write_us: f64,
    /// R_S.
    pub flash_read_us: f64,
    /// W_S.
    pub flash_write_us: f64,
}

impl Default for CostSettings {
    fn default() -> Self {
        let core = Costs::default();
        let settings = Self {
            base_random_read_us: core.base_random_read / 1000.0,
            base_sequential_read_us: core.base_sequential_read / 1000.0,
            base_random_write_us: core.base_random_write / 1000.0,
            flash_read_us: core.flash_read / 1000.0,
            flash_write_us: core.flash_write / 1000.0,
        };
        let back = settings.to_core();
        debug_assert!(
            (back.flash_write - core.flash_write).abs() < 1.0,
            "same unit"
        );
        debug_assert!((back.base_random_read - core.base_random_read).abs() < 1.0);
        settings
    }
}

impl CostSettings {
    fn to_core(self) -> Costs {
        Costs {
            base_random_read: self.base_random_read_us * 1000.0,
            base_sequential_read: self.base_sequential_read_us * 1000.0,
            base_random_write: self.base_random_write_us * 1000.0,
            flash_read: self.flash_read_us * 1000.0,
            flash_write: self.flash_write_us * 1000.0,
        }
    }

    /// No page takes as long as twenty minutes, and sums of such costs stay exact enough.
    fn check(self) -> Result<(), Error> {
        let costs = [
            ("costs.base_random_read_us", self.base_random_read_us),
            (
                "costs.base_sequential_read_us",
                self.base_sequential_read_us,
            ),
            ("costs.base_random_write_us", self.base_random_write_us),
            ("costs.flash_read_us", self.flash_read_us),
            ("costs.flash_write_us", self.flash_write_us),
        ];
        let holds = |cost: f64| (0.0..=1e9).contains(&cost);
        costs.into_iter().try_for_each(|(name, cost)| {
            need(
                holds(cost),
                name,
                format!("{cost:?}"),
                "0 to 1000000000 microseconds",
            )
        })
    }
}

/// An error unless `holds`.
fn need(
    holds: bool,
    name: &'static str,
    value: impl ToString,
    rule: &'static str,
) -> Result<(), Error> {
    match holds {
        true => Ok(()),
        false => Err(Error::Setting {
            name,
            value: value.to_string(),
            rule,
        }),
    }
}

/// The first of many names.
fn shown(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
    let more = if names.len() > first.len() {
        ", ..."
    } else {
        ""
    };
    first.join(", ") + more
}

impl EngineConfig {
    /// See [`Costs::bridge_pages`].
    pub(crate) fn bridge_pages(&self) -> u64 {
        self.costs.to_core().bridge_pages()
    }

    /// Nanoseconds since 1970 by the clock that base stamps its files by.
    pub(crate) fn base_wall_ns(&self) -> i64 {
        let ours = self.clock.wall_ns();
        ours.saturating_add(self.clock_offset_ns)
    }

    /// Checks every range.
    ///
    /// # Errors
    /// [`Error::Setting`] for the first setting out of range, [`Error::Policy`].
    pub fn check(&self) -> Result<(), Error> {
        let page = self.page_size;
        let page_ok = page.is_power_of_two() && (512..=1 << 20).contains(&page);
        need(
            page_ok,
            "page_size",
            page,
            "a power of two from 512 to 1 MiB",
        )?;
        need(
            self.write_buffer_pages > 0,
            "write_buffer_pages",
            0,
            "at least 1",
        )?;
        need(
            self.read_ahead <= CHUNK_MAX,
            "read_ahead",
            self.read_ahead,
            "at most 16 MiB; 0 reads nothing ahead",
        )?;
        need(
            (1..=64).contains(&self.writers_max),
            "writers_max",
            self.writers_max,
            "1 to 64",
        )?;
        let writes = self.drive_writes_per_day;
        need(
            writes.is_finite() && writes >= 0.0,
            "drive_writes_per_day",
            writes,
            "at least 0; 0 for no limit",
        )?;
        need(
            are_apart(&self.clients),
            "clients",
            shown(&self.clients),
            "at most 4096 directories below the base, none in another",
        )?;
        self.tac.check()?;
        self.clic.check()?;
        self.cac.check()?;
        self.dirty.check()?;
        self.priority.to_core()?;
        self.costs.check()?;
        let unknown = thermocline_core::hierarchy::UnknownPolicy::of_tier(&self.policy);
        if self.policy != DEFAULT && !NAMES.contains(&self.policy.as_str()) {
            return Err(unknown.into());
        }
        let pool = thermocline_core::hierarchy::UnknownPolicy::of_pool(&self.pool_policy);
        match thermocline_core::pool::NAMES.contains(&self.pool_policy.as_str()) {
            true => Ok(()),
            false => Err(pool.into()),
        }
    }

    /// Refuses a pool that is larger than what this process may use here. Settings may be checked
    /// on another machine, so [`Self::check`] does not ask.
    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        let fits = machine::memory().is_none_or(|bytes| self.pool_bytes <= bytes);
        need(
            fits,
            "pool_bytes",
            self.pool_bytes,
            "no more than the memory that this process may use",
        )
    }

    /// Share of the reserve. The priority groups keep updates among their own pages (hStorage-DB
    /// §4.2.4): a dirty page of a temporary file that they evict is all that passes through it.
    fn reserve(&self) -> f64 {
        match self.policy.as_str() {
            "priority" => self.dirty.reserve.min(1.0 / 64.0),
            _ => self.dirty.reserve,
        }
    }

    /// How a cache of `blocks` blocks is used: one in 64 and at least one takes new bytes of pages
    /// whose old ones are still needed; write-back sets a reserve aside.
    #[must_use]
    pub fn shares(&self, blocks: u32) -> Shares {
        let spare = blocks.div_ceil(64).min(blocks);
        let rest = blocks - spare;
        let reserve = match self.write_back {
            true => (f64::from(rest) * self.reserve()).ceil() as u32,
            false => 0,
        };
        // A cache of one block has nothing to spare.
        let slots = (rest - reserve.min(rest)).max(u32::from(blocks > 0));
        Shares {
            slots,
            reserve: rest.saturating_sub(slots),
        }
    }

    /// The least number of blocks that gives the policy `slots` slots.
    #[must_use]
    pub fn blocks_for(&self, slots: u32) -> u32 {
        let enough = |blocks: &u32| self.shares(*blocks).slots >= slots;
        (slots..).find(enough).unwrap_or(u32::MAX)
    }

    pub(crate) fn policy_options(&self, capacity: u32) -> PolicyOptions {
        debug_assert!(self.check().is_ok(), "settings are checked before use");
        PolicyOptions {
            capacity,
            costs: self.costs.to_core(),
            admit_on_write: self.admit_on_write,
            seed: self.seed,
            tac: self.tac.0,
            clic: self.clic.0,
            cac: self.cac.0,
            value: ValueConfig {
                drive_writes_per_day: (self.drive_writes_per_day > 0.0)
                    .then_some(self.drive_writes_per_day),
                ..ValueConfig::default()
            },
            memory: match self.policy_memory {
                0 => machine::memory().map(|bytes| bytes / MEMORY_SHARE),
                bytes => Some(bytes),
            },
            settings: Vec::new(),
            priority: self.priority.to_core().unwrap_or_default(),
        }
    }

    pub(crate) fn frames(&self) -> u32 {
        debug_assert!(self.page_size.is_power_of_two(), "settings are checked");
        let frames = (self.pool_bytes / u64::from(self.page_size)).min(FRAMES_MAX);
        debug_assert!(frames * u64::from(self.page_size) <= self.pool_bytes);
        frames as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_allowed_and_nonsense_is_not() {
        assert!(EngineConfig::default().check().is_ok());
        let odd = EngineConfig {
            page_size: 5000,
            ..EngineConfig::default()
        };
        assert!(odd.check().is_err());
        let ahead = |read_ahead| EngineConfig {
            read_ahead,
            ..EngineConfig::default()
        };
        assert!(ahead(0).check().is_ok() && ahead(CHUNK_MAX).check().is_ok());
        assert!(ahead(CHUNK_MAX + 1).check().is_err());
        let unknown = EngineConfig {
            policy: "lfu".into(),
            ..EngineConfig::default()
        };
        let message = unknown.check().map_err(|e| e.to_string());
        let names = thermocline_core::policy::NAMES.join(", ");
        assert_eq!(
            message,
            Err(format!("no policy is called 'lfu'; there are {names}"))
        );
    }
}
