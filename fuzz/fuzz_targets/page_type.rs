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

// Filled up, or cut, to every page size a tier can have.
fuzz_target!(|data: &[u8]| {
    let mut page = data.to_vec();
    for size in [65536, 16384, 8192, 4096, 512] {
        page.resize(size, 0);
        for dialect in DIALECTS {
            for &kind in FileKind::ALL {
                let _ = page_type(dialect, &page, kind);
            }
        }
    }
});
