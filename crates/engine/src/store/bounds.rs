//! What a number or a name read from a cache may be at most. A cache file can be damaged, or made
//! by somebody who wants the mount to do harm: what is past these bounds is damage, wherever it is
//! decoded, and is never written.

use thermocline_core::{Intent, ObjectId, PageId};

/// Object ids are below this: tables indexed by them stay small. Ids are given out from 0 on and
/// again after use, so this bounds the files that are open or have pages on flash at one time.
pub const OBJECT_END: u32 = 1 << 24;
/// No file is longer: offsets are signed in the system's calls.
pub(crate) const LENGTH_MAX: u64 = i64::MAX as u64;
/// Page numbers are below this with the smallest pages, of 512 bytes.
const PAGE_END: u64 = 1 << 54;
/// Names have at most this many bytes.
pub(crate) const NAME_MAX: usize = 4096;

const _: () = assert!(PAGE_END * 512 == LENGTH_MAX + 1);

pub(crate) fn object_fits(id: ObjectId) -> bool {
    id.0 < OBJECT_END
}

/// Whether the page can be one of a file, whatever the size of pages.
pub(crate) fn page_fits(page: PageId) -> bool {
    object_fits(page.object) && page.index < PAGE_END
}

/// Whether a file can be so long that it has this page, of `page_size` bytes.
pub(crate) fn in_a_file(page: PageId, page_size: u32) -> bool {
    page.index < (LENGTH_MAX + 1) / u64::from(page_size)
}

pub(crate) fn intent_fits(intent: &Intent) -> bool {
    object_fits(intent.object) && intent.region < PAGE_END
}

/// Whether a name stays below the base directory: relative, and no part of it is empty, `.` or
/// `..`. The empty name says that none is known.
pub(crate) fn name_stays_below(name: &[u8]) -> bool {
    let part = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    let whole = name.len() <= NAME_MAX && !name.contains(&0);
    name.is_empty() || whole && name.split(|&byte| byte == b'/').all(part)
}

/// The name as it is kept: of one that would not be read back, the last part, or none. A file is
/// found by its identity then.
pub(crate) fn kept_name(name: &str) -> &str {
    let last = || name.rsplit('/').next().unwrap_or_default();
    let below = |name: &&str| name_stays_below(name.as_bytes());
    Some(name)
        .filter(below)
        .or_else(|| Some(last()).filter(below))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_leave_base_are_told() {
        for name in ["", "a", "base/5/16384", "a b", "...", "a/..b", ".hidden"] {
            assert!(name_stays_below(name.as_bytes()), "{name}");
            assert_eq!(kept_name(name), name);
        }
        for name in [
            "/",
            "/etc/passwd",
            "..",
            "a/../../b",
            "./a",
            "a//b",
            "a/",
            "a\0b",
        ] {
            assert!(!name_stays_below(name.as_bytes()), "{name}");
        }
        assert_eq!(kept_name("/moved/base/5/16384"), "16384");
        assert_eq!(kept_name("a/.."), "");
        let long = format!("{}/relation", "d".repeat(NAME_MAX));
        assert_eq!(kept_name(&long), "relation");
        assert_eq!(kept_name(&"d".repeat(NAME_MAX + 1)), "");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_back(name in "(/|\\.|\\.\\.|a|\\x00){0,9}") {
            prop_assert!(name_stays_below(kept_name(&name).as_bytes()));
        }
    }

    #[test]
    fn the_last_page_of_the_longest_file() {
        let page = |index| PageId::new(ObjectId(1), index);
        for size in [512, 8192, 1 << 31] {
            let end = (LENGTH_MAX + 1) / u64::from(size);
            assert!(in_a_file(page(end - 1), size) && !in_a_file(page(end), size));
        }
        assert!(page_fits(page(PAGE_END - 1)) && !page_fits(page(PAGE_END)));
        assert!(!page_fits(PageId::new(ObjectId(OBJECT_END), 0)));
    }
}
