//! `config`: the documented defaults, or the settings a file results in.

use crate::config::{Config, EXAMPLE};
use crate::failure::{Code, Failure, Outcome};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Shown at the end of `config --help`.
pub(crate) const HELP: &str = "\
Without options it prints the defaults alone. The settings of a mount that is at work are in its
MOUNTPOINT/.thermocline/config.
  thermocline config --defaults > tier.toml
  thermocline config --check tier.toml";

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

/// Prints the settings.
pub(crate) fn run(args: &ConfigArgs) -> Outcome {
    if args.defaults {
        print!("{EXAMPLE}");
        return Ok(());
    }
    let config = Config::load(args.check.as_deref())?;
    config.check().map_err(|mut failure| {
        if let Some(path) = &args.check {
            failure.message = format!("{}: {}", path.display(), failure.message);
        }
        failure
    })?;
    let fail = |e: String| Failure::new(Code::Failure, format!("cannot print the settings: {e}"));
    if args.json {
        let text = serde_json::to_string_pretty(&config).map_err(|e| fail(e.to_string()))?;
        println!("{text}");
    } else {
        let text = toml::to_string(&config).map_err(|e| fail(e.to_string()))?;
        print!("{text}");
    }
    Ok(())
}
