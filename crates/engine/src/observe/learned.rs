//! What the policy learned about hints, with the names people know them by.
//!
//! The fields are those of `thermocline simulate --json --learned`.

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use thermocline_core::policy::{Learned, LearnedRace};
use thermocline_core::{FileKind, HintSchema, HintSet, PageType, RequestType, Role, hint_type};
use thermocline_core::{PlanAccess, PlanLevel, PlanOperator};

/// Hint sets reported at most, the most valuable first: with thousands the rest is noise.
const ROWS_MAX: usize = 40;

/// What a policy has learned (thesis §3.2, §5.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedTable {
    /// Windows of requests closed.
    pub windows: u64,
    /// Requests in one window.
    pub window: u64,
    /// Hint sets, most valuable first; at most 40 of them.
    pub hint_sets: Vec<LearnedRow>,
    /// Hint sets known in all.
    pub hint_sets_known: u64,
    /// Hint types, purest first; empty where the policy does not choose among them.
    pub hint_types: Vec<LearnedType>,
    /// Who leads; absent where the policy follows no other.
    #[serde(default)]
    pub race: Option<RaceTable>,
}

/// How a policy that `auto` may follow does in its race (see
/// [`thermocline_core::policy::LearnedFinalist`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FinalistRow {
    /// The policy.
    pub name: String,
    /// Whether it decides now.
    pub leads: bool,
    /// Read hits a request of the sample.
    pub hits: f64,
    /// Pages written to flash a request.
    pub flash_writes: f64,
    /// Base's time saved less the price of flash writes, random reads a request.
    pub score: f64,
    /// How far its miniature is ahead of the tier since it last was behind, in random reads.
    pub ahead: f64,
    /// The lead that decides.
    pub needed: f64,
}

/// The race of the policies that `auto` may follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RaceTable {
    /// The policies.
    pub finalists: Vec<FinalistRow>,
    /// Changes of leader.
    pub changes: u64,
    /// Requests of the sample.
    pub requests: u64,
    /// Slots of each miniature.
    pub slots: u32,
}

impl From<&LearnedRace> for RaceTable {
    fn from(race: &LearnedRace) -> Self {
        let finalists = race.finalists.iter().map(|of| FinalistRow {
            name: of.name.to_string(),
            leads: of.leads,
            hits: of.hits,
            flash_writes: of.flash_writes,
            score: of.score,
            ahead: of.ahead,
            needed: of.needed,
        });
        Self {
            finalists: finalists.collect(),
            changes: race.changes,
            requests: race.requests,
            slots: race.slots,
        }
    }
}

/// One hint set H.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRow {
    /// The hint values that are known, `type=value`.
    pub hints: String,
    /// N(H): requests with H in the last window.
    pub requests: f64,
    /// Nr(H): those whose page was read next.
    pub rereads: f64,
    /// D(H): their mean distance, in requests.
    pub distance: f64,
    /// Pr(H).
    pub priority: f64,
    /// Pages on flash whose last request carried H.
    pub resident: u32,
}

/// One hint type, as the hybrid policies see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedType {
    /// Its name.
    pub name: String,
    /// Weighted impurity; lower separates priorities better.
    pub impurity: f64,
    /// Whether hint sets are told apart by it.
    pub used: bool,
}

/// The names of objects by the value of their hint.
type Groups = BTreeMap<u32, String>;

impl Engine {
    /// What the policy has learned; `None` where it learns nothing.
    pub(crate) fn learned(&self) -> Option<LearnedTable> {
        let learned = self.inner().hierarchy.policy().learned()?;
        let objects = self.objects.read();
        let groups = objects.iter().flatten();
        let groups = groups
            .map(|object| (object.hint, object.group.clone()))
            .collect();
        drop(objects);
        Some(name(&learned, &groups))
    }
}

fn name(learned: &Learned, groups: &Groups) -> LearnedTable {
    let rows = learned.hint_sets.iter().take(ROWS_MAX);
    let rows = rows.map(|set| LearnedRow {
        hints: describe(&set.hints, groups),
        requests: set.requests,
        rereads: set.rereads,
        distance: set.distance,
        priority: set.priority,
        resident: set.resident,
    });
    let schema = HintSchema::default();
    let types = learned.hint_types.iter().map(|of| LearnedType {
        name: type_name(&schema, of.position),
        impurity: of.impurity,
        used: of.used,
    });
    LearnedTable {
        windows: learned.windows,
        window: learned.window,
        hint_sets: rows.collect(),
        hint_sets_known: learned.hint_sets.len() as u64,
        hint_types: types.collect(),
        race: learned.race.as_ref().map(Into::into),
    }
}

fn describe(hints: &HintSet, groups: &Groups) -> String {
    let schema = HintSchema::default();
    let values = hints.values().iter().enumerate();
    let known = values.filter(|(_, value)| **value != 0);
    let named: Vec<String> = known
        .map(|(position, &value)| {
            let type_name = type_name(&schema, position);
            format!("{type_name}={}", value_name(position, value, groups))
        })
        .collect();
    let text = match named.is_empty() {
        true => "no hint".into(),
        false => named.join(" "),
    };
    // Its place in the setting, from 1.
    match hints.client() {
        0 => text,
        client => format!("client={client} {text}"),
    }
}

fn type_name(schema: &HintSchema, position: usize) -> String {
    let name = schema.names().get(position);
    name.cloned().unwrap_or_else(|| format!("hint {position}"))
}

fn value_name(position: usize, value: u32, groups: &Groups) -> String {
    debug_assert_ne!(value, 0, "0 is unknown and not shown");
    match position {
        hint_type::OBJECT => groups.get(&value).cloned(),
        hint_type::FILE_KIND => Some(FileKind::from_value(value).name().into()),
        hint_type::REQUEST => Some(RequestType::from_value(value).name().into()),
        hint_type::PAGE_TYPE => Some(PageType::from_value(value).name().into()),
        hint_type::ROLE => Some(Role::from_value(value).name().into()),
        hint_type::PLAN_LEVEL => Some(PlanLevel::from_value(value).name().into()),
        hint_type::PLAN_ACCESS => Some(PlanAccess::from_value(value).name().into()),
        hint_type::PLAN_OPERATOR => Some(PlanOperator::from_value(value).name().into()),
        _ => None,
    }
    .unwrap_or_else(|| format!("#{value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::policy::{LearnedHintSet, LearnedHintType};

    #[test]
    fn hint_sets_and_types_have_names() {
        let hints = HintSet::UNKNOWN
            .with(hint_type::OBJECT, 77)
            .with(hint_type::REQUEST, RequestType::ReplacementWrite.value())
            .with(hint_type::FIRST_CUSTOM, 3);
        let set = |hints| LearnedHintSet {
            hints,
            requests: 10.0,
            rereads: 5.0,
            distance: 100.0,
            priority: 0.005,
            resident: 4,
        };
        let learned = Learned {
            windows: 2,
            window: 1000,
            hint_sets: vec![set(hints), set(HintSet::UNKNOWN)],
            hint_types: vec![LearnedHintType {
                position: hint_type::ROLE,
                impurity: 0.5,
                used: true,
            }],
            worth: Vec::new(),
            race: None,
        };
        let groups = Groups::from([(77, "stock".to_string())]);
        let table = name(&learned, &groups);
        assert_eq!(
            table.hint_sets[0].hints,
            "hint_object=stock request=replacement-write hint 8=#3"
        );
        assert_eq!(table.hint_sets[1].hints, "no hint");
        assert_eq!(table.hint_sets_known, 2);
        assert_eq!(table.hint_types[0].name, "role");
    }

    #[test]
    fn thousands_of_hint_sets_are_cut_and_counted() {
        let set = LearnedHintSet {
            hints: HintSet::UNKNOWN,
            requests: 1.0,
            rereads: 0.0,
            distance: 0.0,
            priority: 0.0,
            resident: 0,
        };
        let learned = Learned {
            hint_sets: vec![set; 5000],
            ..Learned::default()
        };
        let table = name(&learned, &Groups::new());
        assert_eq!(table.hint_sets.len(), ROWS_MAX);
        assert_eq!(table.hint_sets_known, 5000);
    }
}
