#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;

use thermocline_trace::{ImportOptions, open, summarise};

fuzz_target!(|data: &[u8]| {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    file.write_all(data).expect("room in memory");
    let options = ImportOptions {
        format: Some(thermocline_trace::Format::Parquet),
        ..ImportOptions::default()
    };
    if let Ok(source) = open(file.path(), &options) {
        // Few rows need many bytes: a directory that promises billions of rows is not followed.
        if source.meta().rows.is_some_and(|rows| rows < 100_000) {
            let _ = summarise(source, 5, Some(512));
        }
    }
});
