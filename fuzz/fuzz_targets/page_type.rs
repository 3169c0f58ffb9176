#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline::classify::{Dialect, page_type};
use thermocline_core::FileKind;

const DIALECTS: [Dialect; 4] = [
    Dialect::Postgres,
    Dialect::InnoDb,
    Dialect::Sqlite,
    Dialect::None,
];

// The beginning of a page and its last 64 bytes, in every page size a tier can have.
fuzz_target!(|data: &[u8]| {
    let (head, tail) = data.split_at(data.len().saturating_sub(64));
    for size in [512, 1024, 4096, 8192, 16384, 65536] {
        let mut page = head.to_vec();
        page.resize(size - tail.len(), 0);
        page.extend_from_slice(tail);
        for dialect in DIALECTS {
            for &kind in FileKind::ALL {
                let _ = page_type(dialect, &page, kind);
            }
        }
    }
});
