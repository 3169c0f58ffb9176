//! The example that authors start from: it leaves a warm cache, and the guide shows it.

use super::*;

const EXAMPLE: &str = include_str!("../embed.rs");
const GUIDE: &str = include_str!("../../../../docs/library.md");

#[test]
fn the_example_leaves_a_warm_cache() {
    let dir = tempfile::tempdir().expect("a directory");
    let (base, cache) = (dir.path().join("base"), dir.path().join("cache"));
    fs::create_dir(&base).expect("makes base");
    run(&base, &cache).expect("runs");
    let stamp = stamp_of(&cache).expect("reads").expect("is there");
    run(&base, &cache).expect("runs again");
    let later = stamp_of(&cache).expect("reads").expect("is there");
    assert_eq!(later.format_id, stamp.format_id, "not made anew");
    let options = StoreOptions {
        base: stamp.base,
        ..StoreOptions::default()
    };
    let store = Store::open(&cache, &options).expect("opens");
    let found = store.recovered().expect("holds something");
    assert!(found.clean_stop);
    assert_eq!(found.entries.len(), 1000, "a page each, all on flash");
    let table = fs::read(base.join("table")).expect("reads");
    let right = |(page, bytes): (usize, &[u8])| bytes.iter().all(|byte| *byte == page as u8);
    assert!(
        table.chunks(8192).enumerate().all(right),
        "base has every page"
    );
    assert_eq!(table.len(), 1000 * 8192);
}

#[test]
fn the_guide_shows_the_example_as_it_is() {
    let code = &EXAMPLE[EXAMPLE.find("use std").expect("has code")..];
    let code = &code[..code.find("\n#[cfg(test)]").expect("ends with tests")];
    assert!(
        GUIDE.contains(code),
        "docs/library.md shows another program"
    );
}
