//! A database engine's use of the tier: a base file on slow storage, a cache file on an SSD, hints,
//! a sync, figures. Run it twice: the second run finds its pages in the cache.
//!
//! `cargo run --release -p thermocline --example embed -- BASE_DIRECTORY CACHE_FILE`

use std::{env, error::Error, fs, path::Path};
use thermocline::{Claim, Engine, EngineConfig, Identity, Leave, Store, StoreOptions, stamp_of};
use thermocline::{FileKind, HintSet, ObjectSpec, Request, RequestType, hint_type};

const PAGE: u64 = 8192;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let [_, base, cache] = &arguments[..] else {
        return Err("usage: embed BASE_DIRECTORY CACHE_FILE".into());
    };
    run(Path::new(base), Path::new(cache))
}

fn run(base: &Path, cache: &Path) -> Result<(), Box<dyn Error>> {
    // 1. Nobody else on this host serves the base, and the cache is the right one for it.
    let claim = Claim::take(base)?;
    claim.admit(&|| stamp_of(cache), &Leave::default())?;
    // 2. A cache of 16 MiB, and 1 MiB of memory above it. Pages have 8 KiB.
    let options = StoreOptions {
        size: Some(16 << 20),
        base: claim.identity(),
        ..StoreOptions::default()
    };
    let config = EngineConfig {
        pool_bytes: 1 << 20,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(Store::open(cache, &options)?))?;
    // 3. What an earlier run left in the cache is compared with the files as they are now.
    let kind = FileKind::Relation;
    let find = |file: &Identity, name: &str, _: bool| ObjectSpec::find(base, name, kind, file);
    engine.adopt(&find, false)?;
    // 4. Open a file of base, which must be there.
    if !base.join("table").exists() {
        fs::write(base.join("table"), [])?;
    }
    let table = engine.open_object(ObjectSpec::of_file(base, "table", kind)?)?;
    let request = |page: u64, why: RequestType| Request {
        object: &table,
        offset: page * PAGE,
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, why.value()),
        client: 0,
    };
    // 5. Write pages, make them durable, read them again in another order.
    for page in 0..1000 {
        let bytes = [page as u8; PAGE as usize];
        engine.write(&request(page, RequestType::ReplacementWrite), &bytes)?;
    }
    engine.sync(&table, true)?;
    let mut bytes = [0; PAGE as usize];
    for page in (0..1000).map(|step| step * 7 % 1000) {
        engine.read(&request(page, RequestType::Read), &mut bytes)?;
        assert_eq!(bytes, [page as u8; PAGE as usize]);
    }
    // 6. Say where pages were read from; close and stop, so that the next run is warm.
    println!("page reads: {:?}", engine.stats().page_reads);
    engine.close_object(&table);
    Ok(engine.stop()?)
}

#[cfg(test)]
#[path = "embed/tests.rs"]
mod tests;
