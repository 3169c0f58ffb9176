#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline_trace::CsvColumns;

fuzz_target!(|text: &str| {
    let _ = text.parse::<CsvColumns>();
});
