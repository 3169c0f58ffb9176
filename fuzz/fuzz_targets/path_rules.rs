#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline::classify::glob::matches;
use thermocline::classify::{Rules, path::object_group};

// A pattern, a path and the beginning of a file, split at line ends.
fuzz_target!(|text: &str| {
    let mut parts = text.splitn(3, '\n');
    let (Some(pattern), Some(path)) = (parts.next(), parts.next()) else {
        return;
    };
    let _ = matches(pattern, path);
    let head = parts.next().unwrap_or("").as_bytes().to_vec();
    let Ok(rules) = Rules::new(Vec::new()) else {
        panic!("no rules are fine rules");
    };
    let class = rules.class(path, || head);
    let _ = object_group(path, class.dialect);
});
