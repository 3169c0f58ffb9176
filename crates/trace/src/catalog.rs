//! Names behind the numbers of the records a reader yields.

use std::collections::HashMap;
use std::path::Path;

use thermocline_core::hint::HINT_TYPES_MAX;
use thermocline_core::{FileKind, HintSchema, ObjectId, PageType, RequestType, Role, hint_type};
use thermocline_core::{PlanAccess, PlanLevel, PlanOperator};

use crate::error::ReadError;

/// Object names, hint types and hint values of a trace, numbered in order of appearance.
///
/// The numbers are the reader's own: they differ from those of the engine that recorded, except
/// for the values of the built-in domains, which keep theirs. A text a built-in domain does not
/// know gets a number beyond the domain: classifiers see unknown, learning policies see a value.
#[derive(Clone, Debug)]
pub struct Catalog {
    schema: HintSchema,
    objects: Interner,
    values: Vec<Interner>,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        let schema = HintSchema::default();
        let values = (0..schema.names().len())
            .map(Interner::for_hint_type)
            .collect();
        Self {
            schema,
            objects: Interner::default(),
            values,
        }
    }

    /// The hint types, in the order of positions in a hint set.
    #[must_use]
    pub fn schema(&self) -> &HintSchema {
        &self.schema
    }

    /// The name of an object of this trace.
    #[must_use]
    pub fn object_name(&self, object: ObjectId) -> Option<&str> {
        self.objects.name(object.0)
    }

    /// Number of objects seen so far; their ids are 0 up to this.
    #[must_use]
    pub fn objects(&self) -> u32 {
        self.objects.len()
    }

    /// The name of a hint value; that of value 0 is "unknown".
    #[must_use]
    pub fn value_name(&self, position: usize, value: u32) -> Option<&str> {
        self.values.get(position)?.name(value)
    }

    /// Number of values known of a hint type, the unknown one included.
    #[must_use]
    pub fn values(&self, position: usize) -> u32 {
        self.values.get(position).map_or(0, Interner::len)
    }

    pub(crate) fn position(&self, column: &str) -> Option<usize> {
        self.schema.names().iter().position(|name| name == column)
    }

    /// Gives every column not known yet the next free position.
    pub(crate) fn add_hint_columns(
        &mut self,
        path: &Path,
        columns: &[String],
    ) -> Result<(), ReadError> {
        let custom = self.schema.names()[hint_type::FIRST_CUSTOM..]
            .iter()
            .cloned();
        let new = columns
            .iter()
            .filter(|name| self.position(name).is_none())
            .cloned();
        let custom: Vec<String> = custom.chain(new).collect();
        let found = hint_type::FIRST_CUSTOM + custom.len();
        let Some(schema) = HintSchema::with_custom(custom.iter().cloned()) else {
            return Err(ReadError::TooManyHints {
                path: path.to_path_buf(),
                found,
                max: HINT_TYPES_MAX,
                column: custom[HINT_TYPES_MAX - hint_type::FIRST_CUSTOM].clone(),
            });
        };
        self.schema = schema;
        self.values
            .extend((self.values.len()..found).map(Interner::for_hint_type));
        assert_eq!(self.values.len(), self.schema.names().len());
        Ok(())
    }

    /// The id of the object called `name`; `None` when ids are used up.
    pub(crate) fn object(&mut self, name: &str) -> Option<ObjectId> {
        self.objects.intern(name).map(ObjectId)
    }

    /// The number of a hint value; `None` when numbers are used up.
    pub(crate) fn value(&mut self, position: usize, text: &str) -> Option<u32> {
        self.values[position].intern(text)
    }
}

/// Texts numbered in order of appearance.
#[derive(Clone, Debug, Default)]
struct Interner {
    numbers: HashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Interner {
    /// Knows "unknown" as 0 and, for a built-in domain, its values.
    fn for_hint_type(position: usize) -> Self {
        let mut interner = Self::default();
        let mut fill = |names: &mut dyn Iterator<Item = &'static str>| {
            for name in names {
                interner.intern(name);
            }
        };
        match position {
            hint_type::FILE_KIND => fill(&mut FileKind::ALL.iter().map(|v| v.name())),
            hint_type::REQUEST => fill(&mut RequestType::ALL.iter().map(|v| v.name())),
            hint_type::PAGE_TYPE => fill(&mut PageType::ALL.iter().map(|v| v.name())),
            hint_type::ROLE => fill(&mut Role::ALL.iter().map(|v| v.name())),
            hint_type::PLAN_LEVEL => fill(&mut PlanLevel::ALL.iter().map(|v| v.name())),
            hint_type::PLAN_ACCESS => fill(&mut PlanAccess::ALL.iter().map(|v| v.name())),
            hint_type::PLAN_OPERATOR => fill(&mut PlanOperator::ALL.iter().map(|v| v.name())),
            _ => fill(&mut ["unknown"].into_iter()),
        }
        interner
    }

    fn len(&self) -> u32 {
        u32::try_from(self.texts.len()).unwrap_or(u32::MAX)
    }

    fn name(&self, number: u32) -> Option<&str> {
        self.texts.get(number as usize).map(AsRef::as_ref)
    }

    fn intern(&mut self, text: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(text) {
            return Some(number);
        }
        let number = u32::try_from(self.texts.len()).ok()?;
        self.numbers.insert(text.into(), number);
        self.texts.push(text.into());
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_values_keep_their_numbers() {
        let mut catalog = Catalog::new();
        for &role in Role::ALL {
            assert_eq!(
                catalog.value(hint_type::ROLE, role.name()),
                Some(role.value())
            );
        }
        let foreign = catalog.value(hint_type::ROLE, "time traveller").unwrap();
        assert_eq!(Role::from_value(foreign), Role::Unknown);
        assert_eq!(
            catalog.value_name(hint_type::ROLE, foreign),
            Some("time traveller")
        );
        assert_eq!(catalog.value_name(hint_type::OBJECT, 0), Some("unknown"));
    }

    #[test]
    fn columns_get_positions_once_and_too_many_are_named() {
        let mut catalog = Catalog::new();
        let columns = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let path = Path::new("t");
        catalog
            .add_hint_columns(path, &columns(&["role", "a", "b"]))
            .unwrap();
        catalog
            .add_hint_columns(path, &columns(&["b", "c"]))
            .unwrap();
        assert_eq!(
            catalog.schema().names()[hint_type::FIRST_CUSTOM..],
            ["a", "b", "c"]
        );
        let many = columns(&["d", "e", "f", "g", "h"]);
        match catalog.add_hint_columns(path, &many).unwrap_err() {
            ReadError::TooManyHints { found, column, .. } => {
                assert_eq!((found, column.as_str()), (16, "h"));
            }
            other => panic!("{other}"),
        }
    }
}
