//! PostgreSQL page types from `PageHeaderData` and the special space behind it.
//!
//! The header (24 bytes, `src/include/storage/bufpage.h`): `pd_lsn` 0, `pd_checksum` 8,
//! `pd_flags` 10, `pd_lower` 12, `pd_upper` 14, `pd_special` 16, `pd_pagesize_version` 18,
//! `pd_prune_xid` 20. A heap page has no special space. Every index access method has one, and
//! all but B-tree and GIN mark its last two bytes with a page id of their own. Free-space and
//! visibility maps look like heap pages; only the file's name tells them apart.

use thermocline_core::hint::{FileKind, PageType};

use super::{le16, le32};

const HEADER_LEN: usize = 24;
const LAYOUT_VERSION: u16 = 4;
/// B-tree vacuum cycle ids end here, so that the page ids above never look like one.
const BTREE_CYCLE_MAX: u16 = 0xff7f;
const SEQUENCE_MAGIC: u32 = 0x1717;
const BTP_LEAF: u16 = 1;
const BTP_META: u16 = 8;

// The page ids of the other index methods begin at 0xff80 (hash).
const _: () = assert!(BTREE_CYCLE_MAX < 0xff80);

/// The type of one page. `kind` tells maps, which look like heap pages, from tables.
#[must_use]
pub fn page_type(page: &[u8], kind: FileKind) -> PageType {
    if page.len() < HEADER_LEN {
        return PageType::Unknown;
    }
    if le16(page, 14) == 0 {
        // PageIsNew(): pd_upper is 0. Anything else in the header means it is no page.
        return if le32(page, 0) == 0 && le16(page, 18) == 0 {
            PageType::Empty
        } else {
            PageType::Unknown
        };
    }
    let Some(special) = special_start(page) else {
        return PageType::Unknown;
    };
    if kind == FileKind::Map {
        return PageType::Map;
    }
    debug_assert!((HEADER_LEN..=page.len()).contains(&special));
    by_special_space(&page[special..])
}

/// Where the special space starts, or `None` when the header is not one of a page this long.
fn special_start(page: &[u8]) -> Option<usize> {
    let (lower, upper) = (usize::from(le16(page, 12)), usize::from(le16(page, 14)));
    let (special, size_version) = (usize::from(le16(page, 16)), le16(page, 18));
    let size = usize::from(size_version & 0xff00);
    let ordered = HEADER_LEN <= lower && lower <= upper && upper <= special && special <= size;
    (size_version & 0xff == LAYOUT_VERSION && size == page.len() && ordered).then_some(special)
}

fn by_special_space(special: &[u8]) -> PageType {
    debug_assert!(special.len() <= 1 << 15, "pages are at most 32 KiB");
    match special.len() {
        0 => PageType::Heap,
        16 => match le16(special, 14) {
            cycle if cycle <= BTREE_CYCLE_MAX => btree(le16(special, 12)),
            _ => PageType::OtherIndex, // hash 0xff80, GiST 0xff81
        },
        8 if le32(special, 0) == SEQUENCE_MAGIC && le32(special, 4) == 0 => PageType::Sequence,
        8 => PageType::OtherIndex, // GIN, SP-GiST 0xff82, BRIN 0xf091..=0xf093, bloom 0xff83
        _ => PageType::Unknown,
    }
}

fn btree(flags: u16) -> PageType {
    const { assert!(BTP_LEAF & BTP_META == 0) };
    if flags & BTP_META != 0 {
        PageType::BtreeMeta
    } else if flags & BTP_LEAF != 0 {
        PageType::BtreeLeaf
    } else {
        PageType::BtreeInner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(special: &[u8]) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let start = 8192 - special.len();
        page[12..14].copy_from_slice(&24_u16.to_le_bytes());
        page[14..16].copy_from_slice(&(start as u16).to_le_bytes());
        page[16..18].copy_from_slice(&(start as u16).to_le_bytes());
        page[18..20].copy_from_slice(&(8192_u16 | 4).to_le_bytes());
        page[start..].copy_from_slice(special);
        page
    }

    fn special16(flags: u16, id: u16) -> Vec<u8> {
        let mut special = vec![0_u8; 16];
        special[12..14].copy_from_slice(&flags.to_le_bytes());
        special[14..16].copy_from_slice(&id.to_le_bytes());
        special
    }

    #[test]
    fn every_access_method_is_told_apart() {
        let relation = |special: &[u8]| page_type(&page(special), FileKind::Relation);
        assert_eq!(relation(&[]), PageType::Heap);
        assert_eq!(relation(&special16(1, 0)), PageType::BtreeLeaf);
        assert_eq!(relation(&special16(1 | 2, 7)), PageType::BtreeLeaf);
        assert_eq!(relation(&special16(0, 0)), PageType::BtreeInner);
        assert_eq!(relation(&special16(8, 0)), PageType::BtreeMeta);
        assert_eq!(relation(&special16(1, 0xff80)), PageType::OtherIndex);
        assert_eq!(relation(&special16(1, 0xff81)), PageType::OtherIndex);
        assert_eq!(
            relation(&[0x17, 0x17, 0, 0, 0, 0, 0, 0]),
            PageType::Sequence
        );
        assert_eq!(
            relation(&[0, 0, 0, 0, 0, 0, 0x93, 0xf0]),
            PageType::OtherIndex
        );
        assert_eq!(page_type(&page(&[]), FileKind::Map), PageType::Map);
    }

    #[test]
    fn a_header_of_another_size_or_version_is_unknown() {
        let mut half = page(&[]);
        half.truncate(4096);
        assert_eq!(page_type(&half, FileKind::Relation), PageType::Unknown);
        let mut version = page(&[]);
        version[18] = 5;
        assert_eq!(page_type(&version, FileKind::Relation), PageType::Unknown);
    }
}
