//! Settings of the priority groups: {N, t, b} and the policy assignment table of hStorage-DB (§2 to
//! §5) as a user writes them.
//!
//! ```toml
//! [priority]
//! table = "postgres"
//! [[priority.rule]]
//! match = { file_kind = "index", page_type = ["btree-inner", "btree-meta"] }
//! priority = 1
//! ```
//!
//! Rules match hints that have names in every trace and database: the kind of file, the type of
//! request, the type of page, the caller's role and what a query plan says. Which *object* a
//! request is for is a number
//! that the frontend gives as it meets files; it means nothing in a configuration, so no rule
//! matches it. To treat one file otherwise give it a `kind` by path (`[[rules]]`) and match that.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thermocline_core::hint::{FileKind, PageType, PlanAccess, PlanLevel, PlanOperator};
use thermocline_core::hint::{RequestType, Role, hint_type};
use thermocline_core::policy::{
    Assignment, BuiltIn, Condition, Parameters, PriorityConfig, PriorityRule,
};

/// Parameters of the policy `priority`; see [`Assignment`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrioritySettings {
    /// Number of priorities, N, 3 to 32.
    pub priorities: u8,
    /// t: this priority and later ones never cache; 0 for N − 1, else 2 to N.
    pub threshold: u8,
    /// b: the share of the policy's pages that updates may take from any other (write-back); past
    /// it all of them are written to base.
    pub write_buffer: f64,
    /// `synchronous`: a read is answered when the page it brought in is on flash; `asynchronous`:
    /// at once.
    pub allocation: String,
    /// The built-in table that comes after the rules.
    pub table: String,
    /// Priority of what no rule matches.
    pub default: u8,
    /// Rules, the first that matches wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<RuleSettings>,
}

impl Default for PrioritySettings {
    fn default() -> Self {
        let core = PriorityConfig::default();
        let settings = Self {
            priorities: 8,
            threshold: core.threshold,
            write_buffer: core.write_buffer,
            allocation: "asynchronous".into(),
            table: BuiltIn::default().name().into(),
            default: 5,
            rule: Vec::new(),
        };
        debug_assert_eq!(settings.to_core().ok(), Some(core));
        settings
    }
}

/// One rule: requests whose hints are these have the priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Value or values by hint type; all hint types named must match.
    #[serde(rename = "match")]
    pub hints: BTreeMap<String, Values>,
    /// From 1, the best, to N.
    pub priority: u8,
}

/// One value of a hint type, or any of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// This one.
    One(String),
    /// Any of these.
    Any(Vec<String>),
}

impl Values {
    fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Any(names) => names,
        }
    }
}

/// Hint types that rules can match.
const TYPES: &str = "file_kind, request, page_type, role, plan_level, plan_access, plan_operator";

impl PrioritySettings {
    /// What these settings describe.
    ///
    /// # Errors
    /// [`Error::PriorityRule`] with the number of the rule, counted from 1, and what is wrong with
    /// it; [`Error::Setting`].
    pub fn to_core(&self) -> Result<PriorityConfig, Error> {
        let mut config = PriorityConfig {
            table: self.assignment()?,
            threshold: self.threshold,
            write_buffer: self.write_buffer,
            synchronous: false,
        };
        config.check().map_err(Error::Parameter)?;
        if self.threshold == 1 || self.threshold > self.priorities {
            return Err(Error::Setting {
                name: "priority.threshold",
                value: self.threshold.to_string(),
                rule: "2 to priority.priorities, or 0 for priority.priorities - 1",
            });
        }
        if let Some(row) = PriorityConfig::parameter("allocation") {
            let wrong = |rule| {
                let text = &self.allocation;
                Error::Parameter(format!("priority.allocation = {text}: {rule}"))
            };
            row.parse(&mut config, &self.allocation).map_err(wrong)?;
        }
        Ok(config)
    }

    fn assignment(&self) -> Result<Assignment, Error> {
        let setting = |name, value: String, rule| Error::Setting { name, value, rule };
        if !(3..=32).contains(&self.priorities) {
            let value = self.priorities.to_string();
            return Err(setting("priority.priorities", value, "3 to 32"));
        }
        let table = BuiltIn::from_name(&self.table).ok_or_else(|| {
            let names = "general, postgres, mariadb or sqlite";
            setting("priority.table", self.table.clone(), names)
        })?;
        if !(1..=self.priorities).contains(&self.default) {
            let value = self.default.to_string();
            return Err(setting(
                "priority.default",
                value,
                "1 to priority.priorities",
            ));
        }
        let mut rules = Vec::with_capacity(self.rule.len());
        for (rule, number) in self.rule.iter().zip(1..) {
            let why = |why| Error::PriorityRule { number, why };
            rules.push(rule.to_core(self.priorities).map_err(why)?);
        }
        debug_assert_eq!(rules.len(), self.rule.len(), "no rule is left out");
        let table = Assignment::built_in(table, self.priorities);
        Ok(table.preceded_by(rules).with_default(self.default))
    }
}

impl RuleSettings {
    fn to_core(&self, priorities: u8) -> Result<PriorityRule, String> {
        if !(1..=priorities).contains(&self.priority) {
            let priority = self.priority;
            return Err(format!("priority {priority} is not from 1 to {priorities}"));
        }
        let conditions = self.hints.iter();
        let conditions = conditions.map(|(hint_type, values)| condition(hint_type, values));
        Ok(PriorityRule {
            conditions: conditions.collect::<Result<_, _>>()?,
            priority: self.priority,
        })
    }
}

fn condition(hint_type: &str, values: &Values) -> Result<Condition, String> {
    let names = values.names();
    match hint_type {
        "file_kind" => any_of(hint_type::FILE_KIND, names, FileKind::ALL, FileKind::name),
        "request" => any_of(
            hint_type::REQUEST,
            names,
            RequestType::ALL,
            RequestType::name,
        ),
        "page_type" => any_of(hint_type::PAGE_TYPE, names, PageType::ALL, PageType::name),
        "role" => any_of(hint_type::ROLE, names, Role::ALL, Role::name),
        "plan_level" => any_of(
            hint_type::PLAN_LEVEL,
            names,
            PlanLevel::ALL,
            PlanLevel::name,
        ),
        "plan_access" => any_of(
            hint_type::PLAN_ACCESS,
            names,
            PlanAccess::ALL,
            PlanAccess::name,
        ),
        "plan_operator" => {
            let all = PlanOperator::ALL;
            any_of(hint_type::PLAN_OPERATOR, names, all, PlanOperator::name)
        }
        _ => {
            return Err(format!(
                "no hint type is called '{hint_type}'; there are {TYPES}"
            ));
        }
    }
    .map_err(|why| format!("{hint_type} {why}"))
}

/// The condition that the hint at `position` has one of the values of `domain` with `names`. A
/// value's number is its place in its domain.
fn any_of<V: Copy>(
    position: usize,
    names: &[String],
    domain: &[V],
    name_of: fn(V) -> &'static str,
) -> Result<Condition, String> {
    if names.is_empty() {
        return Err("has no values".into());
    }
    let mut numbers = Vec::with_capacity(names.len());
    for name in names {
        let found = domain
            .iter()
            .zip(0u32..)
            .find(|(v, _)| name_of(**v) == name);
        let Some((_, number)) = found else {
            let all: Vec<&str> = domain.iter().map(|v| name_of(*v)).collect();
            return Err(format!("is never '{name}'; it is {}", all.join(", ")));
        };
        numbers.push(number);
    }
    debug_assert_eq!(numbers.len(), names.len(), "every name has a number");
    Ok(Condition::new(position, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::HintSet;

    fn rule(text: &str) -> PrioritySettings {
        let rule: RuleSettings = toml::from_str(text).expect("toml");
        PrioritySettings {
            rule: vec![rule],
            ..PrioritySettings::default()
        }
    }

    #[test]
    fn rules_come_before_the_table() {
        let settings = rule(
            "match = { file_kind = \"index\", page_type = [\"btree-inner\", \"heap\"] }\n\
             priority = 1",
        );
        let table = settings.to_core().expect("a table").table;
        let index = HintSet::UNKNOWN.with(hint_type::FILE_KIND, FileKind::Index.value());
        let page = |page: PageType| index.with(hint_type::PAGE_TYPE, page.value());
        assert_eq!(table.priority(&page(PageType::BtreeInner)), 1);
        assert_eq!(table.priority(&page(PageType::Heap)), 1);
        assert_eq!(table.priority(&page(PageType::BtreeLeaf)), 3, "built in");
        assert_eq!(table.priority(&HintSet::UNKNOWN), 5);
    }

    #[test]
    fn n_t_and_b_are_checked() {
        let parse = |text: &str| {
            let settings: PrioritySettings = toml::from_str(text).expect("toml");
            settings.to_core()
        };
        let config = parse("priorities = 7\nthreshold = 5\nwrite_buffer = 0.3\ndefault = 4");
        let config = config.expect("in range");
        assert_eq!((config.table.priorities(), config.threshold()), (7, 5));
        assert_eq!((config.write_buffer, config.synchronous), (0.3, false));
        let waits = parse("allocation = \"synchronous\"").expect("known");
        assert!(waits.synchronous && waits.threshold() == 7);
        for (text, part) in [
            ("threshold = 1", "priority.threshold"),
            ("threshold = 9", "priority.threshold"),
            ("write_buffer = 1.5", "priority.write_buffer = 1.5"),
            ("allocation = \"later\"", "asynchronous or synchronous"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn every_value_is_the_number_it_has_in_a_hint_set() {
        for kind in RequestType::ALL {
            let settings = rule(&format!(
                "match = {{ request = \"{}\" }}\npriority = 8",
                kind.name()
            ));
            let table = settings.to_core().expect("a table").table;
            let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, kind.value());
            assert_eq!(table.priority(&hints), 8, "{}", kind.name());
        }
    }

    #[test]
    fn errors_name_the_rule_and_the_value() {
        let cases = [
            (
                "match = { file_kind = \"wal\" }\npriority = 1",
                "file_kind is never 'wal'",
            ),
            (
                "match = { table = \"x\" }\npriority = 1",
                "no hint type is called 'table'",
            ),
            ("match = { role = [] }\npriority = 1", "role has no values"),
            ("match = {}\npriority = 9", "priority 9 is not from 1 to 8"),
        ];
        for (text, expected) in cases {
            let error = rule(text).to_core().expect_err(text).to_string();
            assert!(error.starts_with("priority rule 1: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        let settings = PrioritySettings {
            table: "oracle".into(),
            ..PrioritySettings::default()
        };
        let error = settings.to_core().expect_err("no such table").to_string();
        assert!(
            error.contains("priority.table") && error.contains("oracle"),
            "{error}"
        );
    }
}
