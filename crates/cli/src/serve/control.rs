//! What the files of `.thermocline/` in the mount's root say and do.
//!
//! | file         | reading                       | writing                      |
//! |--------------|-------------------------------|------------------------------|
//! | `stats`      | the report for people         |                              |
//! | `stats.json` | the report                    |                              |
//! | `metrics`    | Prometheus text format        |                              |
//! | `config`     | the settings in effect (TOML) |                              |
//! | `hints`      | where plans are published     |                              |
//! | `policy`     | the policy's name             | a name: switches the policy  |
//! | `tier`       | `on`, or `off: ` and why      | `on` or `off`                |
//! | `write_back` | `on` or `off`                 | `on` or `off`                |
//! | `flush`      | `dirty N of M`, and its state | see [`Flushing::command`]    |
//! | `cache`      | how a change of it stands     | see [`Reshaping::command`]   |
//! | `record`     | how a recording stands        | see [`Recording::command`]   |
//! | `faults`     | how many struck, by kind      | a script: makes flash fail   |
//!
//! `hints` is there unless it was switched off.
//!
//! `faults` is there only when asked for; its language is that of [`FaultScript`].

use crate::config::{self, Config};
use crate::failure::Code;
use crate::serve::ending::Ending;
use crate::serve::flushing::Flushing;
use crate::serve::log;
use crate::serve::recording::Recording;
use crate::serve::reshaping::Reshaping;
use crate::serve::serving::{Counted, note_policy};
use crate::serve::warming::Warming;
use crate::show::report::exposition::Format;
use crate::show::report::{DeviceFacts, IoFacts, MountFacts, Report, metrics, text};
use crate::units::Size;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use thermocline::Engine;
use thermocline::classify::Rules;
use thermocline::device::{FaultScript, OperationMeter};
use thermocline_mount::{ControlFile, ControlFiles};

/// The control files of one mount.
pub(crate) struct Control {
    facts: MountFacts,
    /// The file that query plans are read from.
    hints: Option<PathBuf>,
    /// Set once the mount is there.
    ending: Arc<OnceLock<Arc<Ending>>>,
    config: Config,
    rules: Rules,
    devices: Vec<Counted>,
    faults: Option<Arc<FaultScript>>,
    engine: Arc<Engine>,
    flushing: Arc<Flushing>,
    reshaping: Arc<Reshaping>,
    recording: Arc<Recording>,
    warming: Arc<Warming>,
}

impl Control {
    /// Those of the mount of `facts`, started with `config`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one mount")]
    pub(crate) fn new(
        facts: MountFacts,
        hints: Option<PathBuf>,
        ending: Arc<OnceLock<Arc<Ending>>>,
        config: Config,
        rules: Rules,
        devices: Vec<Counted>,
        faults: Option<Arc<FaultScript>>,
        engine: Arc<Engine>,
        flushing: Arc<Flushing>,
        reshaping: Arc<Reshaping>,
        recording: Arc<Recording>,
        warming: Arc<Warming>,
    ) -> Self {
        Self {
            facts,
            hints,
            ending,
            config,
            rules,
            devices,
            faults,
            engine,
            flushing,
            reshaping,
            recording,
            warming,
        }
    }

    fn report(&self) -> Report {
        let stats = self.engine.stats();
        let devices = self.devices.iter().map(device_facts);
        let mut devices: Vec<DeviceFacts> = devices.collect();
        let mut mount = self.facts.clone();
        mount.record = self.recording.path();
        mount.not_recorded = self.recording.failure();
        mount.not_loaded = self.reshaping.not_loaded();
        mount.asked_to_end = self.ending.get().is_some_and(|ending| ending.is_asked());
        if let Some(tier) = &stats.tier {
            // Another one may have taken its place.
            mount.cache = self.engine.cache_name().into();
            let flash = devices.iter_mut().filter(|device| device.role == "flash");
            flash.for_each(|device| device.label.clone_from(&tier.device));
        }
        Report {
            mount,
            devices,
            stats,
            warm: self.warming.facts(),
        }
    }

    fn config(&self) -> io::Result<String> {
        let mut config = self.config.clone();
        if !self.facts.cache.as_os_str().is_empty() {
            config.tier.policy = self.engine.policy_asked();
            config.tier.write_back = self.engine.is_write_back();
            config.tier.cache = self.engine.cache_name().into();
            if let Some(tier) = self.engine.stats().tier {
                config.tier.size = Size::Bytes(tier.bytes);
            }
            config.tier.pin = self.engine.pins().paths;
        }
        toml::to_string(&config).map_err(io::Error::other)
    }

    /// The path, for the extension; it has no line feed, which ends it there.
    fn hints(&self) -> io::Result<String> {
        let path = self.hints.as_ref().and_then(|path| path.to_str());
        Ok(format!("{}\n", path.ok_or(io::ErrorKind::NotFound)?))
    }

    fn tier(&self) -> String {
        match self.engine.tier_state() {
            Ok(()) => "on\n".to_string(),
            Err(reason) => format!("off: {reason}\n"),
        }
    }

    /// Refuses what is for a tier where there is none.
    fn needs_tier(&self) -> io::Result<()> {
        match self.facts.cache.as_os_str().is_empty() {
            false => Ok(()),
            true => Err(refused(thermocline::Error::NoTier)),
        }
    }

    fn set_policy(&self, name: &str) -> io::Result<()> {
        self.needs_tier()?;
        self.engine.set_policy(name).map_err(refused)?;
        self.rules
            .let_temporary(config::takes_temporary(&self.engine.policy()));
        log::line(&format!("policy {name}"));
        note_policy(&self.engine);
        Ok(())
    }

    fn faults(&self) -> String {
        let counts = self
            .faults
            .as_ref()
            .map(|script| script.counts())
            .unwrap_or_default();
        format!(
            "{} failed, {} corrupted, {} shortened, {} lost, {} delayed, {} hung\n",
            counts.failed,
            counts.corrupted,
            counts.shortened,
            counts.lost,
            counts.delayed,
            counts.hung
        )
    }

    fn set_faults(&self, script: &str) -> io::Result<()> {
        let faults = self.faults.as_ref().ok_or(io::ErrorKind::NotFound)?;
        faults.load(script).map_err(|error| {
            log::refused(&error.to_string());
            io::Error::from(io::ErrorKind::InvalidInput)
        })?;
        log::line(&format!("faults: {}", script.replace('\n', "; ")));
        Ok(())
    }

    fn set_write_back(&self, word: &str) -> io::Result<()> {
        let back = match word {
            "on" => true,
            "off" => false,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        if let (true, Err(reason)) = (back, self.engine.tier_state()) {
            log::refused(&format!(
                "write-back needs the tier, which is off: {reason}"
            ));
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.reshaping.set_write_back(back)?;
        log::line(&format!("write-back {word}"));
        Ok(())
    }

    fn set_tier(&self, word: &str) -> io::Result<()> {
        self.needs_tier()?;
        match word {
            "on" => self.reshaping.tier_on().map_err(|failure| {
                log::refused(&failure.message);
                match failure.code {
                    Code::Usage | Code::Cache => io::ErrorKind::InvalidInput.into(),
                    _ => io::Error::from_raw_os_error(libc::EIO),
                }
            })?,
            "off" => self
                .reshaping
                .tier_off()
                .inspect_err(|error| log::refused(&error.to_string()))?,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        log::line(&format!("tier {word}"));
        Ok(())
    }
}

/// The system's error for one of the engine's; the words go to the log.
fn refused(error: thermocline::Error) -> io::Error {
    log::refused(&error.to_string());
    match error {
        thermocline::Error::CacheIo { source, .. } => source,
        _ => io::ErrorKind::InvalidInput.into(),
    }
}

fn device_facts(counted: &Counted) -> DeviceFacts {
    let meter = counted.meters.read(counted.label.clone());
    DeviceFacts {
        role: counted.role.to_string(),
        label: meter.label,
        busy_s: meter.busy_ns as f64 / 1e9,
        reads: io_facts(&meter.read),
        writes: io_facts(&meter.write),
        syncs: io_facts(&meter.sync),
    }
}

fn io_facts(meter: &OperationMeter) -> IoFacts {
    IoFacts {
        count: meter.requests,
        errors: meter.errors,
        bytes: meter.bytes,
        p50_us: meter.p50_ns as f64 / 1e3,
        p95_us: meter.p95_ns as f64 / 1e3,
        p99_us: meter.p99_ns as f64 / 1e3,
    }
}

impl ControlFiles for Control {
    fn files(&self) -> Vec<ControlFile> {
        let readable = ["stats", "stats.json", "metrics", "openmetrics", "config"];
        let hints = self.hints.as_ref().map(|_| "hints");
        let readable = readable.into_iter().chain(hints);
        let readable = readable.map(|name| ControlFile {
            name,
            writable: false,
        });
        let mut writable = vec!["policy", "tier", "write_back", "flush", "cache", "record"];
        writable.extend(self.faults.as_ref().map(|_| "faults"));
        let writable = writable.into_iter().map(|name| ControlFile {
            name,
            writable: true,
        });
        readable.chain(writable).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let content = match name {
            "stats" => text::render(&self.report(), None),
            "stats.json" => {
                serde_json::to_string_pretty(&self.report()).map_err(io::Error::other)? + "\n"
            }
            "metrics" => metrics::render(&self.report(), Format::Prometheus),
            "openmetrics" => metrics::render(&self.report(), Format::OpenMetrics),
            "config" => self.config()?,
            "hints" => self.hints()?,
            "policy" => self.engine.policy() + "\n",
            "tier" => self.tier(),
            "write_back" if self.engine.is_write_back() => "on\n".to_string(),
            "write_back" => "off\n".to_string(),
            "flush" => self.flushing.describe(),
            "cache" => self.reshaping.describe(),
            "record" => self.recording.describe(),
            "faults" => self.faults(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(content.into_bytes())
    }

    fn write(&self, name: &str, command: &str) -> io::Result<()> {
        match name {
            "policy" => self.set_policy(command.trim()),
            "tier" => self.set_tier(command.trim()),
            "write_back" => self.set_write_back(command.trim()),
            "flush" => self.flushing.command(command.trim()),
            // A name may end with a space.
            "cache" => self.reshaping.command(command),
            "record" => self.recording.command(command),
            "faults" => self.set_faults(command),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}
