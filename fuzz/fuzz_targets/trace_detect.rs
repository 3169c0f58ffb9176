#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline_fuzz::read_trace;

// The format found out, compression taken off.
fuzz_target!(|data: &[u8]| read_trace(data, None, None));
