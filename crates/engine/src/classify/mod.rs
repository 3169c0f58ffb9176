//! What a file and a page are, told from their names and bytes alone.
//!
//! Everything here is a pure function or a small state machine without I/O: the frontends ask
//! it, and it never asks back. The answers are hints. A wrong one costs speed, never contents,
//! so a classifier says [`PageType::Unknown`] rather than guess and never fails or panics,
//! whatever bytes it is given.

#[doc(hidden)]
pub mod glob;
#[doc(hidden)]
pub mod innodb;
#[doc(hidden)]
pub mod path;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod postgres;
#[doc(hidden)]
pub mod sqlite;
#[doc(hidden)]
pub mod stream;

use thermocline_core::hint::{FileKind, PageType};

pub use path::{FileClass, Rule, RuleError, Rules};
pub use stream::{Access, Streams};

/// Whose page layout a file has.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Deserialize,
    serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// None that is known: pages are not typed.
    #[default]
    None,
    /// PostgreSQL, 8 KiB pages with `PageHeaderData`.
    Postgres,
    /// InnoDB tablespaces, `FIL_PAGE_TYPE`.
    InnoDb,
    /// SQLite database files.
    Sqlite,
}

/// The type of `page`, the bytes of one page of a file of this dialect and kind.
#[must_use]
pub fn page_type(dialect: Dialect, page: &[u8], kind: FileKind) -> PageType {
    match dialect {
        Dialect::None => PageType::Unknown,
        Dialect::Postgres => postgres::page_type(page, kind),
        Dialect::InnoDb => innodb::page_type(page, kind),
        Dialect::Sqlite => sqlite::page_type(page, kind),
    }
}

/// Two bytes at `at`, little-endian as PostgreSQL on every machine the mount runs on; 0 when
/// the page is too short.
fn le16(page: &[u8], at: usize) -> u16 {
    page.get(at..at + 2)
        .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// Four little-endian bytes at `at`; 0 when the page is too short.
fn le32(page: &[u8], at: usize) -> u32 {
    page.get(at..at + 4)
        .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Two big-endian bytes at `at`; 0 when the page is too short.
fn be16(page: &[u8], at: usize) -> u16 {
    page.get(at..at + 2)
        .map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Whether every byte is zero.
fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIALECTS: [Dialect; 4] = [
        Dialect::None,
        Dialect::Postgres,
        Dialect::InnoDb,
        Dialect::Sqlite,
    ];

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]
        #[test]
        fn no_bytes_make_a_classifier_panic(
            page in prop::collection::vec(any::<u8>(), 0..9000),
            kind in 0..FileKind::ALL.len(),
        ) {
            for dialect in DIALECTS {
                let kind = FileKind::ALL[kind];
                let first = page_type(dialect, &page, kind);
                prop_assert_eq!(first, page_type(dialect, &page, kind));
            }
        }
    }

    #[test]
    fn a_zero_page_is_empty_in_every_dialect_that_types_pages() {
        for dialect in &DIALECTS[1..] {
            let kind = page_type(*dialect, &[0; 8192], FileKind::Relation);
            assert_eq!(kind, PageType::Empty, "{dialect:?}");
        }
        assert_eq!(
            page_type(Dialect::None, &[0; 8192], FileKind::Relation),
            PageType::Unknown
        );
    }

    #[test]
    fn a_page_too_short_for_its_header_is_unknown() {
        for dialect in DIALECTS {
            for len in 0..24 {
                let page = vec![0x0d; len];
                let kind = page_type(dialect, &page, FileKind::Relation);
                assert!(
                    kind == PageType::Unknown || len == 0,
                    "{dialect:?} {len}: {kind:?}"
                );
            }
        }
    }
}
