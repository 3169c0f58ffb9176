//! Parameters of policies on the command line, for the commands that compare policies.

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::show::table::Table;
use clap::{Args, ValueEnum, ValueHint};
use std::fmt::Write;
use std::path::PathBuf;
use thermocline_core::policy::parameters::{PAPER, PAPERS, Row, Section, Setting};
use thermocline_core::policy::{NAMES, PolicyOptions, resolve};

/// How parameters are given.
#[derive(Args, Debug, Default)]
pub(crate) struct ParameterArgs {
    /// Give a policy's parameter a value, such as clic.window=100000; may be given several times.
    /// tac, clic and cac hold for all their variants, unless one is named itself. `thermocline
    /// policies` lists all parameters
    #[arg(long = "set", value_name = "POLICY.PARAMETER=VALUE", value_parser = Setting::parse)]
    pub(crate) settings: Vec<Setting>,
    /// Run each policy that has parameters once more, with its paper's values, as NAME:paper.
    /// NAME:paper among the policies does the same for one
    #[arg(long, value_enum, value_name = "PRESET")]
    pub(crate) preset: Option<Preset>,
    /// Take the parameters of [tac], [clic] and [cac] from this configuration file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// `--preset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// What the paper of each policy gives
    Paper,
}

/// Names a tier policy may have on the command line.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().chain(PAPERS).copied()
}

impl ParameterArgs {
    /// Options of all policies: the file's parameters, and the settings over them.
    pub(crate) fn options(&self) -> Result<PolicyOptions, Failure> {
        let config = Config::load(self.config.as_deref())?;
        Ok(PolicyOptions {
            tac: config.tac.0,
            clic: config.clic.0,
            cac: config.cac.0,
            settings: self.settings.clone(),
            ..PolicyOptions::new(0)
        })
    }

    /// `policies`, each followed by its `:paper` where the preset asks for it. `tier` is the name
    /// of the tier policy in one of them.
    ///
    /// # Errors
    /// What was asked for holds for none of the policies.
    pub(crate) fn beside<T: Clone + PartialEq>(
        &self,
        policies: Vec<T>,
        tier: impl Fn(&mut T) -> &mut String,
    ) -> Result<Vec<T>, Failure> {
        let mut out: Vec<T> = Vec::new();
        let mut names = Vec::new();
        for mut policy in policies {
            let name = tier(&mut policy).clone();
            names.push(name.clone());
            let mut add = |policy: T| match out.contains(&policy) {
                true => {}
                false => out.push(policy),
            };
            add(policy.clone());
            if self.preset.is_some() && Section::of(&name).is_some() {
                tier(&mut policy).push_str(PAPER);
                add(policy);
            }
        }
        self.check_used(&names)?;
        Ok(out)
    }

    /// Refuses what would change nothing: whoever gave it believes otherwise.
    fn check_used(&self, policies: &[String]) -> Result<(), Failure> {
        let idle = |setting: &&Setting| !policies.iter().any(|name| setting.concerns(name));
        if let Some(setting) = self.settings.iter().find(idle) {
            let fact = format!("--set {setting} holds for none of the policies that would run");
            return Err(Failure::usage(fact).advise("its policy among them, or leave it out"));
        }
        let plain = |name: &String| resolve(name, &PolicyOptions::new(0)).map(|found| found.0);
        let mut plain = policies.iter().filter_map(plain);
        if self.preset.is_some() && !plain.any(|name| Section::of(name).is_some()) {
            let fact = "--preset paper: none of the policies that would run has parameters";
            return Err(Failure::usage(fact).advise("thermocline policies lists those that have"));
        }
        Ok(())
    }
}

/// A line for each of `policies` with parameters that are not at their defaults; empty where all
/// are.
pub(crate) fn changed<'a>(
    policies: impl IntoIterator<Item = &'a String>,
    options: &PolicyOptions,
) -> String {
    let mut out = String::new();
    for name in policies {
        let Some((plain, own)) = resolve(name, options) else {
            continue;
        };
        let rows = Section::of(plain).map_or(Vec::new(), |section| section.rows(&own));
        let other = rows.iter().filter(|row| row.value != row.default);
        let other: Vec<String> = other
            .map(|row| format!("{} {} (default {})", row.name, row.value, default(row)))
            .collect();
        if !other.is_empty() {
            let _ = writeln!(out, "{name:<9} {}", other.join(", "));
        }
    }
    out
}

fn default(row: &Row) -> String {
    match row.zero.is_empty() || row.default.to_string() != "0" {
        true => row.default.to_string(),
        false => format!("0: {}", row.zero),
    }
}

/// `thermocline policies`.
pub(crate) fn list() -> Outcome {
    let mut out = String::new();
    let options = PolicyOptions::new(0);
    for section in Section::ALL {
        let members = NAMES
            .iter()
            .filter(|name| Section::of(name) == Some(section));
        let members: Vec<&str> = members.copied().collect();
        let _ = writeln!(out, "[{}] for {}", section.name(), members.join(", "));
        let mut table = Table::new(&["parameter", "unit", "default", "paper", "range", "source"]);
        for row in section.rows(&options) {
            let paper = row.paper.map_or("-".into(), |paper| paper.to_string());
            let (unit, source) = (row.unit.to_string(), row.source.to_string());
            let range = row.range.to_string();
            table.row([
                row.name.to_string(),
                unit,
                default(&row),
                paper,
                range,
                source,
            ]);
        }
        let _ = writeln!(out, "{table}");
    }
    let rest = NAMES.iter().filter(|name| Section::of(name).is_none());
    let rest: Vec<&str> = rest.copied().collect();
    let _ = writeln!(out, "without parameters: {}", rest.join(", "));
    crate::show::status::print(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preset_stands_beside_the_default() {
        let args = ParameterArgs {
            preset: Some(Preset::Paper),
            ..ParameterArgs::default()
        };
        let named = ["lru", "clic", "clic:paper", "tac"].map(String::from);
        let beside = |args: &ParameterArgs, named: &[String]| {
            args.beside(named.to_vec(), |name| name)
                .map_err(|error| error.message)
        };
        let all = beside(&args, &named).expect("used");
        assert_eq!(all, ["lru", "clic", "clic:paper", "tac", "tac:paper"]);
        let none = ParameterArgs::default();
        assert_eq!(beside(&none, &named).expect("used"), named);
        let error = beside(&args, &named[..1]).expect_err("nothing to stand beside");
        assert!(error.contains("none of the policies"), "{error}");
        assert!(beside(&none, &named[..1]).is_ok());
    }

    #[test]
    fn what_would_change_nothing_is_refused() {
        let with = |setting: &str, policy: &str| {
            let args = ParameterArgs {
                settings: vec![Setting::parse(setting).expect("a setting")],
                ..ParameterArgs::default()
            };
            args.beside(vec![policy.to_string()], |name| name).is_ok()
        };
        assert!(with("clic.k=3", "clic") && with("clic.k=3", "dp-clic"));
        assert!(with("dp-clic.k=3", "dp-clic:paper"));
        assert!(
            !with("dp-clic.k=3", "clic") && !with("clic.k=3", "tac") && !with("cac.bands=3", "lru")
        );
    }

    #[test]
    fn what_differs_from_the_defaults_is_said() {
        let setting = Setting::parse("clic.window=500").expect("a setting");
        let args = ParameterArgs {
            settings: vec![setting],
            ..ParameterArgs::default()
        };
        let options = args.options().expect("options");
        let names = ["lru", "tac", "clic", "dp-clic:paper"].map(String::from);
        let text = changed(&names, &options);
        assert!(
            text.contains("clic      window 500 (default 0: 2 a slot"),
            "{text}"
        );
        assert!(text.contains("buckets 3000 (default 256)"), "{text}");
        assert!(!text.contains("lru") && !text.contains("tac"), "{text}");
    }
}
