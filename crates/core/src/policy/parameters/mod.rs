//! The parameters of the policies that have any: one typed table for each of TAC, CLIC, CAC and
//! the priority groups.
//!
//! Whoever reads, checks or prints a parameter asks its table: the configuration of a mount, the
//! command line of a simulation, `thermocline policies`. A row has name, unit, range, the value
//! its paper gives, and where it does so; the default is that of the structure it describes.
//!
//! A *section* is what a table holds for: `tac` for TAC and its variants, `clic` for all that
//! learns from hints, `cac` for CAC and CC, `priority` for the priority groups. A *setting* is
//! written `POLICY.PARAMETER=VALUE`. It holds for the one policy it names, or, where that is the
//! name of a section, for all of it.
//! `POLICY:paper` is the policy with its paper's values. Order of precedence: settings of the one
//! policy, settings of its section (of either, the latest first), the paper's values,
//! [`PolicyOptions`].

mod cac;
mod clic;
mod priority;
mod tac;

use super::{NAMES, PolicyOptions};
use std::fmt;

/// What follows a policy's name to ask for its paper's values.
pub const PAPER: &str = ":paper";

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Integer(u64),
    /// A factor or a share.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// One of a few words.
    Word(&'static str),
}

impl Value {
    /// A parameter of 32 bits; its range is within them.
    fn small(self) -> u32 {
        u32::try_from(self.integer()).unwrap_or(u32::MAX)
    }

    fn integer(self) -> u64 {
        match self {
            Self::Integer(value) => value,
            _ => wrong_kind(),
        }
    }

    fn real(self) -> f64 {
        match self {
            Self::Real(value) => value,
            _ => wrong_kind(),
        }
    }

    fn flag(self) -> bool {
        match self {
            Self::Flag(value) => value,
            _ => wrong_kind(),
        }
    }
}

/// A row of a table says one kind of value and reads another.
fn wrong_kind() -> ! {
    unreachable!("a value is of the kind of its range")
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(u64::MAX) => write!(out, "never"),
            Self::Integer(value) => write!(out, "{value}"),
            Self::Real(value) => write!(out, "{}", *value as f32),
            Self::Flag(value) => write!(out, "{value}"),
            Self::Word(value) => write!(out, "{value}"),
        }
    }
}

/// The values that a parameter may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// A count between two, both allowed. Up to 2^64 - 1 it may be `never`.
    Integers(u64, u64),
    /// Between two, both allowed.
    Reals(f64, f64),
    /// Above 0 and at most 1.
    Share,
    /// Yes or no.
    Flag,
    /// One of these.
    Words(&'static [&'static str]),
}

impl Range {
    /// Whether `value` is in it.
    #[must_use]
    pub fn holds(&self, value: Value) -> bool {
        match (self, value) {
            (Self::Integers(least, most), Value::Integer(v)) => (least..=most).contains(&&v),
            (Self::Reals(least, most), Value::Real(v)) => (least..=most).contains(&&v),
            (Self::Share, Value::Real(v)) => v > 0.0 && v <= 1.0,
            (Self::Flag, Value::Flag(_)) => true,
            (Self::Words(words), Value::Word(v)) => words.contains(&v),
            _ => false,
        }
    }

    /// The value written as `text`, if it is one and in the range.
    #[must_use]
    pub fn parse(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        let value = match self {
            Self::Integers(_, u64::MAX) if text == "never" => Some(Value::Integer(u64::MAX)),
            Self::Integers(..) => text.replace('_', "").parse().ok().map(Value::Integer),
            Self::Reals(..) | Self::Share => text.parse().ok().map(Value::Real),
            Self::Flag => text.parse().ok().map(Value::Flag),
            Self::Words(words) => words.iter().find(|w| **w == text).map(|w| Value::Word(w)),
        };
        value.filter(|value| self.holds(*value))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integers(least, u64::MAX) => write!(out, "{least} or more, or never"),
            Self::Integers(least, most) => write!(out, "{least} to {most}"),
            Self::Reals(least, most) => write!(out, "{least} to {most}"),
            Self::Share => write!(out, "above 0 and at most 1"),
            Self::Flag => write!(out, "true or false"),
            Self::Words(words) => write!(out, "{}", words.join(" or ")),
        }
    }
}

/// One parameter of the structure `C`.
#[derive(Debug)]
pub struct Parameter<C> {
    /// As configuration and command line write it.
    pub name: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// What 0 stands for where it is no count; else empty.
    pub zero: &'static str,
    /// The values it may have.
    pub range: Range,
    /// The paper's value, where it gives one.
    pub paper: Option<Value>,
    /// Where it does, or speaks of it.
    pub source: &'static str,
    get: fn(&C) -> Value,
    set: fn(&mut C, Value),
}

impl<C> Parameter<C> {
    /// Its value in `config`.
    #[must_use]
    pub fn get(&self, config: &C) -> Value {
        (self.get)(config)
    }

    /// Gives it the value written as `text`. What is too small for the bits it is kept in is 0.
    ///
    /// # Errors
    /// What is allowed, when `text` is not; `config` is as before.
    pub fn parse(&self, config: &mut C, text: &str) -> Result<(), String> {
        let value = self.range.parse(text);
        let value = value.ok_or_else(|| format!("must be {}", self.range))?;
        let before = self.get(config);
        (self.set)(config, value);
        if self.range.holds(self.get(config)) {
            return Ok(());
        }
        (self.set)(config, before);
        Err(format!("must be {}", self.range))
    }
}

/// A structure of parameters with their table.
pub trait Parameters: Default + 'static {
    /// Name of the section.
    const SECTION: &'static str;
    /// Its parameters, in the order they are listed to people.
    const TABLE: &'static [Parameter<Self>];

    /// The parameter called `name`.
    #[must_use]
    fn parameter(name: &str) -> Option<&'static Parameter<Self>> {
        Self::TABLE.iter().find(|parameter| parameter.name == name)
    }

    /// The first parameter that is not in its range, as `section.name = value must be range`.
    ///
    /// # Errors
    /// That text.
    fn check(&self) -> Result<(), String> {
        let mut rows = Self::TABLE.iter();
        match rows.find(|row| !row.range.holds(row.get(self))) {
            None => Ok(()),
            Some(row) => {
                let (value, range) = (row.get(self), &row.range);
                let section = Self::SECTION;
                Err(format!("{section}.{} = {value}: must be {range}", row.name))
            }
        }
    }

    /// Takes the paper's values.
    fn take_papers(&mut self) {
        for row in Self::TABLE {
            if let Some(value) = row.paper {
                (row.set)(self, value);
            }
        }
    }
}

/// The sections there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// TAC and its variants.
    Tac,
    /// CLIC, DP-CLIC and their variants.
    Clic,
    /// CAC and CC.
    Cac,
    /// The priority groups.
    Priority,
}

/// A row of a table as it is listed to people.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// See [`Parameter::name`].
    pub name: &'static str,
    /// See [`Parameter::unit`].
    pub unit: &'static str,
    /// See [`Parameter::zero`].
    pub zero: &'static str,
    /// See [`Parameter::range`].
    pub range: Range,
    /// The default.
    pub default: Value,
    /// See [`Parameter::paper`].
    pub paper: Option<Value>,
    /// See [`Parameter::source`].
    pub source: &'static str,
    /// The value in the options at hand.
    pub value: Value,
}

impl Section {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tac, Self::Clic, Self::Cac, Self::Priority];

    /// The section of the policy called `name`; `None` where it has no parameters.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "cac" | "cc" => Some(Self::Cac),
            "priority" => Some(Self::Priority),
            "tac" | "tac-bands-lru" | "tac-bands-mru" | "tac-mixed" | "tac-blocks" => {
                Some(Self::Tac)
            }
            "clic" | "clic-topk" | "clic-hybrid" => Some(Self::Clic),
            "dp-clic" | "dp-clic-topk" | "dp-clic-hybrid" => Some(Self::Clic),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tac => super::TacConfig::SECTION,
            Self::Clic => super::ClicConfig::SECTION,
            Self::Cac => super::CacConfig::SECTION,
            Self::Priority => super::PriorityConfig::SECTION,
        }
    }

    /// Its table, with the values in `options`.
    #[must_use]
    pub fn rows(self, options: &PolicyOptions) -> Vec<Row> {
        match self {
            Self::Tac => rows(&options.tac),
            Self::Clic => rows(&options.clic),
            Self::Cac => rows(&options.cac),
            Self::Priority => rows(&options.priority),
        }
    }

    fn parse(self, options: &mut PolicyOptions, name: &str, text: &str) -> Result<(), String> {
        match self {
            Self::Tac => parse(&mut options.tac, name, text),
            Self::Clic => parse(&mut options.clic, name, text),
            Self::Cac => parse(&mut options.cac, name, text),
            Self::Priority => parse(&mut options.priority, name, text),
        }
    }

    fn take_papers(self, options: &mut PolicyOptions) {
        match self {
            Self::Tac => options.tac.take_papers(),
            Self::Clic => options.clic.take_papers(),
            Self::Cac => options.cac.take_papers(),
            Self::Priority => options.priority.take_papers(),
        }
    }
}

fn rows<C: Parameters>(config: &C) -> Vec<Row> {
    let default = C::default();
    let row = |parameter: &Parameter<C>| Row {
        name: parameter.name,
        unit: parameter.unit,
        zero: parameter.zero,
        range: parameter.range,
        default: parameter.get(&default),
        paper: parameter.paper,
        source: parameter.source,
        value: parameter.get(config),
    };
    C::TABLE.iter().map(row).collect()
}

fn parse<C: Parameters>(config: &mut C, name: &str, text: &str) -> Result<(), String> {
    match C::parameter(name) {
        Some(parameter) => parameter.parse(config, text),
        None => {
            let names: Vec<_> = C::TABLE.iter().map(|row| row.name).collect();
            Err(format!("no such parameter; there are {}", names.join(", ")))
        }
    }
}

/// One `POLICY.PARAMETER=VALUE` that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    policy: String,
    parameter: String,
    value: String,
}

impl Setting {
    /// What `text` says.
    ///
    /// # Errors
    /// What is wrong with it, and what there is instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = || format!("\"{text}\" is not POLICY.PARAMETER=VALUE; write clic.window=100000");
        let (place, value) = text.split_once('=').ok_or_else(form)?;
        let (policy, parameter) = place.split_once('.').ok_or_else(form)?;
        let Some(section) = Section::of(policy) else {
            return Err(no_parameters(policy));
        };
        let setting = Self {
            policy: policy.into(),
            parameter: parameter.into(),
            value: value.trim().into(),
        };
        let parsed = section.parse(&mut PolicyOptions::new(1), parameter, value);
        parsed.map_err(|error| format!("{setting}: {error}"))?;
        Ok(setting)
    }

    /// Whether it holds for the policy called `name`, which may have `:paper` at its end.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        let name = name.strip_suffix(PAPER).unwrap_or(name);
        let section = Section::of(name).map(Section::name);
        self.policy == name || section == Some(self.policy.as_str())
    }

    /// Whether it names a section, not one policy of it.
    fn is_wide(&self) -> bool {
        Section::ALL.iter().any(|s| s.name() == self.policy)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}={}", self.policy, self.parameter, self.value)
    }
}

/// Why nothing can be set of `policy`.
fn no_parameters(policy: &str) -> String {
    let have: Vec<_> = having().collect();
    let why = match NAMES.contains(&policy) {
        true => "has no parameters",
        false => "is no policy",
    };
    format!(
        "{policy} {why}; those with parameters are {}",
        have.join(", ")
    )
}

/// The policies that have parameters.
pub fn having() -> impl Iterator<Item = &'static str> {
    NAMES
        .iter()
        .copied()
        .filter(|name| Section::of(name).is_some())
}

/// The names with `:paper` at their ends, for the policies that have parameters.
pub const PAPERS: &[&str] = &[
    "tac:paper",
    "tac-bands-lru:paper",
    "tac-bands-mru:paper",
    "priority:paper",
    "clic:paper",
    "clic-topk:paper",
    "clic-hybrid:paper",
    "dp-clic:paper",
    "dp-clic-topk:paper",
    "dp-clic-hybrid:paper",
    "cac:paper",
    "cc:paper",
    "tac-mixed:paper",
    "tac-blocks:paper",
];

/// The policy that `name` names without `:paper`, with its options: those given, the paper's
/// values where the name asks for them, and the settings that concern it. `None` when there is no
/// such policy.
#[must_use]
pub fn resolve(name: &str, options: &PolicyOptions) -> Option<(&'static str, PolicyOptions)> {
    let (plain, paper) = match name.strip_suffix(PAPER) {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    let plain = NAMES.iter().copied().find(|known| *known == plain)?;
    let section = Section::of(plain);
    if paper && section.is_none() {
        return None;
    }
    let mut own = options.clone();
    let settings = std::mem::take(&mut own.settings);
    if let Some(section) = section {
        if paper {
            section.take_papers(&mut own);
        }
        let mut settings: Vec<&Setting> = settings.iter().filter(|s| s.concerns(plain)).collect();
        settings.sort_by_key(|setting| !setting.is_wide());
        for setting in settings {
            let done = section.parse(&mut own, &setting.parameter, &setting.value);
            debug_assert!(done.is_ok(), "settings were checked: {setting}");
        }
    }
    Some((plain, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ClicConfig, TacConfig, Ties};

    fn options(settings: &[&str]) -> PolicyOptions {
        let settings = settings
            .iter()
            .map(|text| Setting::parse(text).expect(text));
        PolicyOptions {
            settings: settings.collect(),
            ..PolicyOptions::new(100)
        }
    }

    fn each<C: Parameters + Clone + PartialEq + fmt::Debug>() {
        let mut names: Vec<_> = C::TABLE.iter().map(|row| row.name).collect();
        assert_eq!(C::default().check(), Ok(()));
        for row in C::TABLE {
            for value in [Some(row.get(&C::default())), row.paper]
                .into_iter()
                .flatten()
            {
                let mut config = C::default();
                row.parse(&mut config, &value.to_string()).expect(row.name);
                assert_eq!(row.get(&config), value, "{} reads what it wrote", row.name);
                (row.set)(&mut config, row.get(&C::default()));
                assert_eq!(config, C::default(), "{} writes nothing else", row.name);
            }
            assert!(!row.source.is_empty() && !row.unit.is_empty());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), C::TABLE.len(), "a name names one parameter");
    }

    #[test]
    fn rows_read_and_write_their_own_field() {
        each::<TacConfig>();
        each::<ClicConfig>();
        each::<super::super::CacConfig>();
        each::<super::super::PriorityConfig>();
    }

    #[test]
    fn every_policy_with_parameters_has_a_paper() {
        let names: Vec<_> = having().map(|name| format!("{name}{PAPER}")).collect();
        assert_eq!(names, PAPERS);
    }

    #[test]
    fn settings_hold_for_a_policy_or_its_section() {
        let options = options(&["dp-clic.window=900", "clic.window=500", "clic.k=7"]);
        let window = |name| resolve(name, &options).expect(name).1.clic.window;
        assert_eq!(window("clic"), 500);
        assert_eq!(window("clic-topk"), 500);
        assert_eq!(window("dp-clic"), 900);
        assert_eq!(window("lru"), 0, "it has no window");
        assert_eq!(resolve("dp-clic", &options).expect("known").1.clic.k, 7);
    }

    #[test]
    fn the_paper_is_below_settings_and_above_the_rest() {
        let mut options = options(&["clic.k=7"]);
        options.clic.window = 3;
        options.clic.k = 4;
        let (name, own) = resolve("clic:paper", &options).expect("known");
        assert_eq!(name, "clic");
        assert_eq!(
            (own.clic.window, own.clic.r, own.clic.k),
            (1_000_000, 1.0, 7)
        );
        assert_eq!(own.clic.ties, Ties::Refuse);
        assert_eq!(resolve("clic", &options).expect("known").1.clic.window, 3);
        for name in ["lru:paper", "magic", "clic:", "clic:papers"] {
            assert!(resolve(name, &options).is_none(), "{name}");
        }
    }

    #[test]
    fn errors_name_what_there_is() {
        for (text, part) in [
            ("clic.window", "POLICY.PARAMETER=VALUE"),
            ("window=3", "POLICY.PARAMETER=VALUE"),
            (
                "magic.window=3",
                "magic is no policy; those with parameters are tac",
            ),
            ("lru.window=3", "lru has no parameters"),
            ("clic.widow=3", "there are window, smoothing"),
            ("clic.window=x", "must be 0 to"),
            ("clic.smoothing=0", "above 0 and at most 1"),
            ("clic.smoothing=NaN", "above 0 and at most 1"),
            ("tac.region_pages=99999", "must be"),
            ("tac.labels=maybe", "hint or window"),
            ("tac.ageing_factor=1e-46", "above 0 and at most 1"),
            ("cac.writes_expand=2", "true or false"),
        ] {
            let error = Setting::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
