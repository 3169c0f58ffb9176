#![no_main]

use libfuzzer_sys::fuzz_target;
use thermocline::HotList;
use twox_hash::XxHash3_64;

// A list with a checksum that is right: what it says is bounded all the same.
fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    bytes.extend(XxHash3_64::oneshot(data).to_le_bytes());
    let length = bytes.len();
    let Ok(list) = HotList::decode(bytes) else {
        return;
    };
    assert_eq!(list.bytes().len(), length);
    let (mut pages, mut worth) = (0u64, u8::MAX);
    for part in list.parts() {
        assert!(part.worth <= worth && !part.name.starts_with('/'));
        worth = part.worth;
        let mut end = 0;
        for range in part.ranges() {
            assert!(range.start >= end && range.end > range.start);
            end = range.end;
            pages = pages.saturating_add(range.end - range.start);
        }
    }
    assert_eq!(pages, list.pages());
});
