//! What the columns of a CSV file mean.

use std::str::FromStr;

use super::SECOND_NS;

/// What the columns of a CSV file mean, written as `WHAT=COLUMN,...`:
///
/// | what | column |
/// |---|---|
/// | `time_ns`, `time_us`, `time_ms`, `time_s` | time in this unit; fractions are fine |
/// | `time` | time in the unit its column's name ends with (`ts_us`), otherwise in seconds |
/// | `op` | `read`, `write`, `trim`, `sync`; `r`, `w`, `t`, `s`; every request a read without |
/// | `object` | name of the object; several columns as `object=rel+fork`; one object without |
/// | `offset`, `length` | in bytes |
/// | `page`, `pages` | in pages; one page without `pages` |
/// | `client` | a number |
/// | `latency_ns`, `served` | as in the native format |
/// | `hint:NAME` | a hint type called NAME; `hint:NAME` alone when the column has that name |
/// | `skip:COLUMN=VALUE` | rows with this value in this column are left out |
///
/// A column is named as in the header, or by its number from 1 as `#3`. A file has a header
/// unless all columns are given by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns {
    fields: Vec<(Field, Place)>,
}

/// What a column is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Time, in a unit of this many nanoseconds.
    Time(u64),
    Client,
    Op,
    /// The object's name, or a part of it.
    Object,
    Offset,
    Length,
    Page,
    Pages,
    Latency,
    Served,
    /// A hint type of this name.
    Hint(String),
    /// Rows with this value are left out.
    Skip(String),
}

/// Which column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Named(String),
    /// From 1.
    Number(usize),
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(number) = text.strip_prefix('#') else {
            return Ok(Self::Named(text.to_string()));
        };
        let number = number.parse().ok().filter(|&number| number > 0);
        number
            .map(Self::Number)
            .ok_or_else(|| format!("{text:?} is no column number (#1, #2, ...)"))
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Named(name) => name.clone(),
            Self::Number(number) => format!("#{number}"),
        }
    }

    /// The index of the column in a row.
    pub(super) fn find(&self, header: &[&str]) -> Option<usize> {
        match self {
            Self::Named(name) => header.iter().position(|column| column == name),
            Self::Number(number) => {
                let there = header.is_empty() || *number <= header.len();
                there.then_some(number - 1)
            }
        }
    }
}

/// Columns of a native trace in CSV, by header. `page` and `pages` stand in for offset and
/// length where a trace counts in pages.
const NATIVE: [(&str, Field); 10] = [
    ("time_ns", Field::Time(1)),
    ("client", Field::Client),
    ("operation", Field::Op),
    ("object", Field::Object),
    ("offset", Field::Offset),
    ("length", Field::Length),
    ("page", Field::Page),
    ("pages", Field::Pages),
    ("latency_ns", Field::Latency),
    ("served", Field::Served),
];

/// The column our writer adds for other simulators: it says nothing that offset does not.
pub(crate) const PAGE_ID: &str = "page_id";

/// Whether a column of this name is read as something else than a hint type.
pub(crate) fn is_no_hint(name: &str) -> bool {
    name == PAGE_ID || NATIVE.iter().any(|(native, _)| *native == name)
}

impl CsvColumns {
    /// What the names in a header mean by themselves: those of the native format what they mean
    /// there, all others hint types.
    pub(super) fn of_header(names: &[&str]) -> Self {
        let mut fields = Vec::new();
        for &name in names {
            if name.is_empty() || name == PAGE_ID || name.starts_with("__") {
                continue;
            }
            let native = NATIVE.iter().find(|(native, _)| *native == name);
            let field = match native {
                Some((_, field)) => field.clone(),
                None => Field::Hint(name.to_string()),
            };
            fields.push((field, Place::Named(name.to_string())));
        }
        Self { fields }
    }

    pub(super) fn fields(&self) -> &[(Field, Place)] {
        &self.fields
    }

    /// Whether the first line names the columns.
    pub(super) fn has_header(&self) -> bool {
        let named = |(_, place): &(Field, Place)| matches!(place, Place::Named(_));
        self.fields.iter().any(named)
    }

    /// Whether requests are given by page numbers.
    pub(super) fn in_pages(&self) -> bool {
        self.has(&Field::Page)
    }

    /// Hint types in order.
    pub(super) fn hint_names(&self) -> Vec<String> {
        let hints = self.fields.iter().filter_map(|(field, _)| match field {
            Field::Hint(name) => Some(name.clone()),
            _ => None,
        });
        hints.collect()
    }

    /// Checks that the columns make a trace; names the column and the reason when not.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let (offset, page) = (self.has(&Field::Offset), self.has(&Field::Page));
        if !offset && !page {
            return Err(("offset", "neither this nor page is there: say which it is"));
        }
        if offset && page {
            return Err(("page", "given beside offset"));
        }
        if offset != self.has(&Field::Length) {
            return Err(("length", "offset and length go together"));
        }
        if self.has(&Field::Pages) && !page {
            return Err(("pages", "given without page"));
        }
        Ok(())
    }

    pub(super) fn has(&self, field: &Field) -> bool {
        self.fields.iter().any(|(found, _)| found == field)
    }

    /// Refuses what is there twice, except parts of an object and values to leave out.
    fn add(&mut self, field: Field, place: Place) -> Result<(), String> {
        let same = |found: &Field| match (found, &field) {
            (Field::Time(_), Field::Time(_)) => true,
            (Field::Hint(a), Field::Hint(b)) => a == b,
            (Field::Object | Field::Skip(_), _) => false,
            (a, b) => a == b,
        };
        if self.fields.iter().any(|(found, _)| same(found)) {
            return Err(format!("column {:?}: given twice", place.name()));
        }
        self.fields.push((field, place));
        Ok(())
    }

    fn add_item(&mut self, item: &str) -> Result<(), String> {
        let (what, column) = match item.split_once('=') {
            Some((what, column)) => (what.trim(), column.trim()),
            None => (item, item.strip_prefix("hint:").unwrap_or("")),
        };
        if column.is_empty() {
            return Err(format!("{item:?} is not WHAT=COLUMN"));
        }
        if let Some(name) = what.strip_prefix("hint:") {
            if name.is_empty() {
                return Err(format!("{item:?}: the hint type has no name"));
            }
            return self.add(Field::Hint(name.to_string()), Place::parse(column)?);
        }
        if let Some(name) = what.strip_prefix("skip:") {
            return self.add(Field::Skip(column.to_string()), Place::parse(name)?);
        }
        if what == "object" {
            let parts = column.split('+').map(str::trim);
            return parts
                .map(Place::parse)
                .try_for_each(|place| self.add(Field::Object, place?));
        }
        let field = field_of(what, column).ok_or_else(|| {
            format!(
                "{what:?} is not one of time, time_ns, time_us, time_ms, time_s, op, object, \
                 offset, length, page, pages, client, latency_ns, served, hint:NAME, skip:COLUMN"
            )
        })?;
        self.add(field, Place::parse(column)?)
    }
}

fn field_of(what: &str, column: &str) -> Option<Field> {
    Some(match what {
        "time" => Field::Time(unit_of(column)),
        "time_ns" | "time_us" | "time_ms" | "time_s" => Field::Time(unit_of(what)),
        "op" | "operation" => Field::Op,
        "offset" => Field::Offset,
        "length" => Field::Length,
        "page" => Field::Page,
        "pages" => Field::Pages,
        "client" => Field::Client,
        "latency_ns" => Field::Latency,
        "served" => Field::Served,
        _ => return None,
    })
}

/// Nanoseconds of the unit a name ends with; seconds when it ends with none.
fn unit_of(name: &str) -> u64 {
    match name.rsplit_once('_') {
        Some((_, "ns")) => 1,
        Some((_, "us")) => 1_000,
        Some((_, "ms")) => 1_000_000,
        _ => SECOND_NS,
    }
}

impl FromStr for CsvColumns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = Self { fields: Vec::new() };
        for item in text.split(',').map(str::trim) {
            columns.add_item(item)?;
        }
        columns
            .check()
            .map_err(|(column, reason)| format!("{column}: {reason}"))?;
        Ok(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_read_back() {
        let text = "time=ts_us, op=rw,object=rel+#4,page=blk,hint:table=tbl,hint:role,skip:k=wal";
        let columns: CsvColumns = text.parse().unwrap();
        let named = |name: &str| Place::Named(name.into());
        assert_eq!(
            columns.fields,
            [
                (Field::Time(1000), named("ts_us")),
                (Field::Op, named("rw")),
                (Field::Object, named("rel")),
                (Field::Object, Place::Number(4)),
                (Field::Page, named("blk")),
                (Field::Hint("table".into()), named("tbl")),
                (Field::Hint("role".into()), named("role")),
                (Field::Skip("wal".into()), named("k")),
            ]
        );
        assert!(columns.has_header());
        assert!(!"page=#1".parse::<CsvColumns>().unwrap().has_header());
    }

    #[test]
    fn mappings_that_make_no_sense_are_explained() {
        for (text, reason) in [
            ("", "is not WHAT=COLUMN"),
            ("page", "is not WHAT=COLUMN"),
            ("page=", "is not WHAT=COLUMN"),
            ("pgae=x", "is not one of time"),
            ("op=rw", "neither this nor page"),
            ("offset=o", "go together"),
            ("page=p,offset=o,length=l", "beside offset"),
            ("offset=o,length=l,pages=p", "without page"),
            ("page=p,page=q", "given twice"),
            ("page=p,hint:a=x,hint:a=y", "given twice"),
            ("page=p,hint:=x", "no name"),
            ("page=#0", "no column number"),
        ] {
            let error = text.parse::<CsvColumns>().unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }
}
