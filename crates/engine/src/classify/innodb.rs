//! InnoDB page types from `FIL_PAGE_TYPE` (offset 24), `PAGE_LEVEL` (offset 64) and
//! `PAGE_MAX_TRX_ID` (offset 56).
//!
//! Clustered and secondary indexes share one page type. Leaves of the clustered index hold the
//! rows and are table data; the others are B-tree leaves. `PAGE_MAX_TRX_ID` tells them apart: it
//! is kept for leaves of secondary indexes and zero elsewhere. The exception is the root of a
//! clustered index with an auto-increment counter, which is a leaf only while the table has one
//! page; it is taken for an index. The change buffer's tree, which keeps no id either, has an
//! index id of its own. Values from `fil0fil.h` and `page0page.h` of MariaDB 10.11.

use thermocline_core::hint::{FileKind, PageType};

use super::{be16, is_zero};

const TYPE_OFFSET: usize = 24;
const MAX_TRX_ID_OFFSET: usize = 56;
const LEVEL_OFFSET: usize = 64;
const INDEX_ID_OFFSET: usize = 66;
/// `FIL_PAGE_DATA` plus the index page header up to `PAGE_INDEX_ID`.
const HEADER_LEN: usize = 74;
/// First four bytes of the index id of the change buffer (`DICT_IBUF_ID_MIN`).
const CHANGE_BUFFER: [u8; 4] = [0xFF; 4];

const _: () = assert!(TYPE_OFFSET + 2 <= MAX_TRX_ID_OFFSET);
const _: () = assert!(MAX_TRX_ID_OFFSET + 8 == LEVEL_OFFSET);
const _: () = assert!(LEVEL_OFFSET + 2 == INDEX_ID_OFFSET && INDEX_ID_OFFSET + 8 == HEADER_LEN);

/// The type of one page; the kind of file is not needed.
#[must_use]
pub fn page_type(page: &[u8], _kind: FileKind) -> PageType {
    if page.len() < HEADER_LEN {
        return PageType::Unknown;
    }
    match be16(page, TYPE_OFFSET) {
        17855 | 18 => index(page), // INDEX; INSTANT: a root after instant ALTER
        17854 => PageType::OtherIndex, // RTREE
        2 => PageType::Undo,       // UNDO_LOG
        4 | 5 | 8 | 9 => PageType::Map, // IBUF_FREE_LIST, IBUF_BITMAP, FSP_HDR, XDES
        3 | 6 | 7 | 17853 => PageType::System, // INODE, SYS, TRX_SYS, SDI
        10..=12 => PageType::Overflow, // BLOB, ZBLOB, ZBLOB2
        0 if is_zero(page) => PageType::Empty,
        _ => PageType::Unknown, // page-compressed and encrypted pages among others
    }
}

fn index(page: &[u8]) -> PageType {
    debug_assert!(page.len() >= HEADER_LEN);
    let change_buffer = page[INDEX_ID_OFFSET..INDEX_ID_OFFSET + 4] == CHANGE_BUFFER;
    match be16(page, LEVEL_OFFSET) {
        0 if change_buffer => PageType::BtreeLeaf,
        0 if is_zero(&page[MAX_TRX_ID_OFFSET..LEVEL_OFFSET]) => PageType::Heap,
        0 => PageType::BtreeLeaf,
        1..=64 => PageType::BtreeInner, // BTR_MAX_LEVELS is 100; no real tree gets there
        _ => PageType::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(kind: u16, level: u16) -> PageType {
        page_of(kind, level, 0)
    }

    fn page_of(kind: u16, level: u16, max_trx_id: u64) -> PageType {
        let mut page = vec![0_u8; 16384];
        page[24..26].copy_from_slice(&kind.to_be_bytes());
        page[56..64].copy_from_slice(&max_trx_id.to_be_bytes());
        page[64..66].copy_from_slice(&level.to_be_bytes());
        page[100] = 1;
        page_type(&page, FileKind::Relation)
    }

    #[test]
    fn leaves_with_rows_are_told_from_leaves_with_entries() {
        assert_eq!(page_of(17855, 0, 0), PageType::Heap);
        assert_eq!(page_of(17855, 0, 1 << 40), PageType::BtreeLeaf);
        assert_eq!(page_of(17855, 0, 1), PageType::BtreeLeaf);
        assert_eq!(page_of(17855, 1, 0), PageType::BtreeInner);
        assert_eq!(page_of(17855, 1, 7), PageType::BtreeInner);
    }

    #[test]
    fn types_and_levels() {
        assert_eq!(page(17855, 2), PageType::BtreeInner);
        assert_eq!(page(17855, 60000), PageType::Unknown);
        assert_eq!(page(2, 0), PageType::Undo);
        assert_eq!(page(8, 0), PageType::Map);
        assert_eq!(page(7, 0), PageType::System);
        assert_eq!(page(10, 0), PageType::Overflow);
        assert_eq!(page(0, 0), PageType::Unknown);
        assert_eq!(page(4711, 0), PageType::Unknown);
    }
}
