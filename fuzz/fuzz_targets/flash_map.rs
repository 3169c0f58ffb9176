#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline::flash::SavedMap;

// What can be read can be written, and is the same when read again.
fuzz_target!(|data: &[u8]| {
    if let Some(map) = SavedMap::decode(data) {
        assert_eq!(SavedMap::decode(&map.encode()), Some(map));
    }
});
