#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline_fuzz::read_trace;
use thermocline_trace::Format;

const MAPPINGS: [Option<&str>; 4] = [
    None,
    Some("time=a,op=b,object=c+d,page=e,pages=f,hint:role=g,skip:h=x"),
    Some("time_s=#1,offset=#2,length=#3,hint:kind=#4"),
    Some("page=#1"),
];

// The first byte chooses how the columns are known.
fuzz_target!(|data: &[u8]| {
    if let Some((first, rest)) = data.split_first() {
        let mapping = MAPPINGS[usize::from(*first) % MAPPINGS.len()];
        read_trace(rest, Some(Format::Csv), mapping);
    }
});
