//! Names of objects and of hint values while a trace is recorded.

use std::collections::HashMap;

use thermocline_core::{FileKind, ObjectId, PageType, RequestType, Role, hint_type};
use thermocline_core::{PlanAccess, PlanLevel, PlanOperator};

use super::NAMES_MAX;

/// What numbers in records are called in the file.
#[derive(Debug)]
pub(super) struct Names {
    objects: HashMap<ObjectId, Box<str>>,
    /// One table per hint type; empty for the built-in domains, whose values name themselves.
    values: Vec<HashMap<u32, Box<str>>>,
}

impl Names {
    pub(super) fn new(hint_types: usize) -> Self {
        Self {
            objects: HashMap::new(),
            values: vec![HashMap::new(); hint_types],
        }
    }

    /// Beyond [`NAMES_MAX`] new names are not kept: the memory of a recorder is bounded.
    pub(super) fn name_object(&mut self, object: ObjectId, name: &str) {
        if self.objects.len() < NAMES_MAX || self.objects.contains_key(&object) {
            self.objects.insert(object, name.into());
        }
    }

    pub(super) fn name_value(&mut self, position: usize, value: u32, name: &str) {
        let Some(table) = self.values.get_mut(position) else {
            return;
        };
        if table.len() < NAMES_MAX || table.contains_key(&value) {
            table.insert(value, name.into());
        }
    }

    pub(super) fn object(&self, object: ObjectId) -> String {
        self.objects
            .get(&object)
            .map_or_else(|| format!("#{}", object.0), ToString::to_string)
    }

    /// The text of `value` of the hint type at `position`; `value` is not 0.
    pub(super) fn value(&self, position: usize, value: u32) -> String {
        debug_assert!(value != 0, "unknown is written as null");
        let own = builtin_name(position, value).map(str::to_string);
        let given = || {
            self.values
                .get(position)?
                .get(&value)
                .map(ToString::to_string)
        };
        own.or_else(given).unwrap_or_else(|| format!("#{value}"))
    }
}

/// The name of a value of a built-in domain; `None` outside the domains.
fn builtin_name(position: usize, value: u32) -> Option<&'static str> {
    let at = value as usize;
    match position {
        hint_type::FILE_KIND => FileKind::ALL.get(at).map(|v| v.name()),
        hint_type::REQUEST => RequestType::ALL.get(at).map(|v| v.name()),
        hint_type::PAGE_TYPE => PageType::ALL.get(at).map(|v| v.name()),
        hint_type::ROLE => Role::ALL.get(at).map(|v| v.name()),
        hint_type::PLAN_LEVEL => PlanLevel::ALL.get(at).map(|v| v.name()),
        hint_type::PLAN_ACCESS => PlanAccess::ALL.get(at).map(|v| v.name()),
        hint_type::PLAN_OPERATOR => PlanOperator::ALL.get(at).map(|v| v.name()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_name_counts_and_numbers_stand_in_for_missing_ones() {
        let custom = hint_type::FIRST_CUSTOM;
        let mut names = Names::new(custom + 1);
        assert_eq!(names.object(ObjectId(7)), "#7");
        names.name_object(ObjectId(7), "base/5/1259");
        names.name_object(ObjectId(7), "base/5/1260");
        assert_eq!(names.object(ObjectId(7)), "base/5/1260");
        assert_eq!(names.value(custom, 3), "#3");
        names.name_value(custom, 3, "nested loop");
        names.name_value(99, 3, "no such type");
        assert_eq!(names.value(custom, 3), "nested loop");
        assert_eq!(
            names.value(hint_type::ROLE, Role::Backend.value()),
            "backend"
        );
        assert_eq!(names.value(hint_type::ROLE, 1000), "#1000");
    }
}
