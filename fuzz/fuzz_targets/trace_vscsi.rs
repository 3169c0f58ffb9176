#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline_fuzz::read_trace;
use thermocline_trace::Format;

fuzz_target!(|data: &[u8]| read_trace(data, Some(Format::Vscsi), None));
