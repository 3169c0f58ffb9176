//! A section of the configuration that holds a policy's parameters, read and written by the table
//! of the parameters in core ([`thermocline_core::policy::parameters`]).

use crate::error::Error;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use thermocline_core::policy::parameters::Value;
use thermocline_core::policy::{CacConfig, ClicConfig, Parameters, TacConfig};

/// Parameters of TAC.
pub type TacSettings = PolicySection<TacConfig>;
/// Parameters of CLIC, DP-CLIC and their variants.
pub type ClicSettings = PolicySection<ClicConfig>;
/// Parameters of CAC and CC.
pub type CacSettings = PolicySection<CacConfig>;

/// See the module text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicySection<C>(pub C);

impl<C> Deref for PolicySection<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.0
    }
}

impl<C> DerefMut for PolicySection<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.0
    }
}

impl<C: Parameters> PolicySection<C> {
    /// Refuses values out of their range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.check().map_err(Error::Parameter)
    }
}

impl<C: Parameters> Serialize for PolicySection<C> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(C::TABLE.len()))?;
        for row in C::TABLE {
            match row.get(&self.0) {
                // TOML has no integer so large; it is the word "never".
                never @ Value::Integer(u64::MAX) => {
                    map.serialize_entry(row.name, &never.to_string())?;
                }
                Value::Integer(value) => {
                    let value = i64::try_from(value).map_err(S::Error::custom)?;
                    map.serialize_entry(row.name, &value)?;
                }
                Value::Real(value) => map.serialize_entry(row.name, &value)?,
                Value::Flag(value) => map.serialize_entry(row.name, &value)?,
                Value::Word(value) => map.serialize_entry(row.name, value)?,
            }
        }
        map.end()
    }
}

impl<'de, C: Parameters> Deserialize<'de> for PolicySection<C> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Rows(PhantomData))
    }
}

/// Reads a section.
struct Rows<C>(PhantomData<C>);

impl<'de, C: Parameters> Visitor<'de> for Rows<C> {
    type Value = PolicySection<C>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the parameters of {}", C::SECTION)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut section = C::default();
        while let Some(name) = map.next_key::<String>()? {
            let Some(row) = C::parameter(&name) else {
                let names: Vec<_> = C::TABLE.iter().map(|row| row.name).collect();
                let (names, section) = (names.join(", "), C::SECTION);
                return Err(de::Error::custom(format!(
                    "unknown field `{name}`; {section} has {names}"
                )));
            };
            let Written(text) = map.next_value()?;
            let done = row.parse(&mut section, &text);
            done.map_err(|rule| {
                de::Error::custom(format!("{}.{name} = {text}: {rule}", C::SECTION))
            })?;
        }
        Ok(PolicySection(section))
    }
}

/// A value as it is written.
struct Written(String);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Written;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "a number, true, false or a word")
            }

            fn visit_i64<E>(self, value: i64) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Written, E> {
                Ok(Written(value.to_string()))
            }
        }
        from.deserialize_any(Any)
    }
}
