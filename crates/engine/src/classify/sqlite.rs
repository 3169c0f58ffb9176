//! SQLite page types from the b-tree page header.
//!
//! The first byte of a b-tree page says which of four it is (file format, "B-tree Pages"); on
//! page 1 it follows the 100-byte file header. Overflow, freelist and pointer-map pages have
//! no header and cannot be told from bytes alone, so they are unknown.

use thermocline_core::hint::{FileKind, PageType};

use super::{be16, is_zero};

/// What every SQLite database file starts with.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const FILE_HEADER_LEN: usize = 100;
/// More fragmented free bytes than this never stay on a page.
const FRAGMENTED_MAX: u8 = 60;

const _: () = assert!(MAGIC.len() < FILE_HEADER_LEN && MAGIC[MAGIC.len() - 1] == 0);

/// The type of one page. A buffer longer than the database's page is typed by its first page.
#[must_use]
pub fn page_type(page: &[u8], _kind: FileKind) -> PageType {
    let header_at = if page.starts_with(MAGIC) {
        FILE_HEADER_LEN
    } else {
        0
    };
    let Some(header) = page.get(header_at..) else {
        return PageType::Unknown;
    };
    if header.len() < 32 {
        return PageType::Unknown;
    }
    let (inner, page_type) = match header[0] {
        13 => (false, PageType::Heap),
        10 => (false, PageType::BtreeLeaf),
        5 | 2 => (true, PageType::BtreeInner),
        0 if is_zero(page) => return PageType::Empty,
        _ => return PageType::Unknown,
    };
    if plausible(header, header_at, inner) {
        page_type
    } else {
        PageType::Unknown
    }
}

/// Whether the rest of the b-tree header can belong to a page: cell pointers end before the
/// cells begin, and the fragment count is within its limit.
fn plausible(header: &[u8], header_at: usize, inner: bool) -> bool {
    debug_assert!(header_at == 0 || header_at == FILE_HEADER_LEN);
    debug_assert!(header.len() >= 12, "the longest b-tree header");
    let cells = usize::from(be16(header, 3));
    let content = match be16(header, 5) {
        0 => 65536,
        at => usize::from(at),
    };
    let pointers_end = header_at + if inner { 12 } else { 8 } + 2 * cells;
    pointers_end <= content && header[7] <= FRAGMENTED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(flag: u8, cells: u16, content: u16) -> Vec<u8> {
        let mut page = vec![0_u8; 4096];
        page[0] = flag;
        page[3..5].copy_from_slice(&cells.to_be_bytes());
        page[5..7].copy_from_slice(&content.to_be_bytes());
        page
    }

    #[test]
    fn four_flags_and_the_first_page() {
        let kind = |page: &[u8]| page_type(page, FileKind::Relation);
        assert_eq!(kind(&page(13, 3, 4000)), PageType::Heap);
        assert_eq!(kind(&page(10, 3, 4000)), PageType::BtreeLeaf);
        assert_eq!(kind(&page(5, 3, 4000)), PageType::BtreeInner);
        assert_eq!(kind(&page(2, 3, 4000)), PageType::BtreeInner);
        assert_eq!(kind(&page(13, 3000, 4000)), PageType::Unknown);
        assert_eq!(kind(&page(7, 0, 0)), PageType::Unknown);
        let mut first = page(0, 0, 0);
        first[..16].copy_from_slice(MAGIC);
        first[100..].copy_from_slice(&page(13, 1, 4000)[..3996]);
        assert_eq!(kind(&first), PageType::Heap);
    }
}
