//! Several databases on one engine: their requests are counted apart, their hints are their own,
//! and a recording names them.
#![cfg(not(feature = "shuttle"))]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Engine, EngineConfig, FileKind, Grave, HintSchema, HintSet, Object, ObjectSpec};
use thermocline::{Recorder, RecorderOptions, Request, Store, StoreOptions};
use thermocline_trace::{DATABASE, open};

const PAGE: usize = 8192;
const PAGES: u64 = 16;

fn start(directory: &Path, clients: &[&str]) -> Arc<Engine> {
    let options = StoreOptions {
        size: Some(4 << 20),
        ..StoreOptions::default()
    };
    let store = Store::open(&directory.join("cache"), &options).expect("a cache");
    let config = EngineConfig {
        policy: "clic".into(),
        clients: clients.iter().map(ToString::to_string).collect(),
        ..EngineConfig::default()
    };
    Engine::start(config, Some(store)).expect("starts")
}

/// Three files of the same kind, one below each directory, the last of no client.
fn files(engine: &Engine, base: &Path) -> Vec<Arc<Object>> {
    let names = ["orders/base/5/16384", "reports/base/5/16384", "other/file"];
    let open = |name: &str| {
        let path = base.join(name);
        fs::create_dir_all(path.parent().expect("below base")).expect("a directory");
        fs::write(&path, vec![1; PAGES as usize * PAGE]).expect("a file");
        let mut spec = ObjectSpec::of_file(base, name, FileKind::Relation).expect("opens");
        // The same name from two clients: what tells their hint sets apart is the client alone.
        spec.group = "base/5/16384".into();
        engine.open_object(spec).expect("opens")
    };
    names.map(open).to_vec()
}

fn read_all(engine: &Engine, object: &Object, times: u64) {
    let mut buffer = vec![0; PAGE];
    for at in 0..times * PAGES {
        let request = Request {
            object,
            offset: at % PAGES * PAGE as u64,
            hints: HintSet::UNKNOWN,
            client: 77,
        };
        engine.read(&request, &mut buffer).expect("reads");
    }
}

#[test]
fn databases_are_counted_learned_and_recorded_apart() {
    let directory = tempfile::tempdir().expect("directory");
    let engine = start(directory.path(), &["orders", "reports"]);
    let trace = directory.path().join("trace.parquet");
    let options = RecorderOptions {
        page_size: PAGE as u32,
        schema: HintSchema::with_custom([DATABASE]).expect("one type"),
        ..RecorderOptions::default()
    };
    engine.set_recorder(Some(Recorder::create(&trace, options).expect("records")));
    let objects = files(&engine, directory.path());
    for (object, times) in objects.iter().zip(2..) {
        read_all(&engine, object, times);
    }
    let clients = engine.stats().clients;
    let counted: Vec<_> = clients.iter().map(|c| (c.name.as_str(), c.reads)).collect();
    let expected = [
        ("orders", 2 * PAGES),
        ("reports", 3 * PAGES),
        ("", 4 * PAGES),
    ];
    assert_eq!(counted, expected);
    assert!(
        clients.iter().all(|c| c.resident == PAGES && c.hits > 0),
        "{clients:?}"
    );

    let recorder = engine.set_recorder(None).expect("it recorded");
    recorder.finish().expect("written");
    let mut source = open(&trace, &Default::default()).expect("a trace");
    let mut named = BTreeSet::new();
    while let Some(record) = source.next() {
        let record = record.expect("a record");
        let catalog = source.catalog();
        let names = catalog.schema().names();
        let at = names
            .iter()
            .position(|name| name == DATABASE)
            .expect("a column");
        let database = catalog.value_name(at, record.hints.get(at)).expect("named");
        let object = catalog.object_name(record.object).expect("named");
        named.insert((object.to_string(), database.to_string()));
    }
    let pair = |object: &str, database: &str| (object.to_string(), database.to_string());
    let expected = [
        pair("orders/base/5/16384", "orders"),
        pair("other/file", "unknown"),
        pair("reports/base/5/16384", "reports"),
    ];
    assert!(named.iter().eq(&expected), "{named:?}");
    objects
        .iter()
        .for_each(|object| engine.close_object(object));
    engine.stop().expect("stops");
}

/// What was counted of a database stays when its files close, go, or are given up, and is counted
/// once.
#[test]
fn counts_of_a_database_outlive_its_files() {
    let directory = tempfile::tempdir().expect("directory");
    let base = directory.path();
    let engine = start(base, &["orders", "reports"]);
    let reads = || -> Vec<(String, u64, u64, u64)> {
        let clients = engine.stats().clients.into_iter();
        clients
            .map(|c| (c.name, c.reads, c.hits, c.resident))
            .collect()
    };
    let row = |name: &str, reads: u64, hits: u64, resident: u64| {
        (
            name.to_string(),
            reads * PAGES,
            hits * PAGES,
            resident * PAGES,
        )
    };
    let open = |name: &str, cached: bool| {
        let mut spec = ObjectSpec::of_file(base, name, FileKind::Relation).expect("opens");
        spec.cached = cached;
        engine.open_object(spec).expect("opens")
    };
    for object in files(&engine, base) {
        read_all(&engine, &object, 2);
        engine.close_object(&object);
    }
    let first = reads();
    let of_two = |name: &str| first.iter().find(|row| row.0 == name).expect("a row").1;
    assert_eq!(of_two("orders"), 2 * PAGES);

    // One that leaves nothing on flash when it closes, twice.
    fs::write(base.join("orders/log"), vec![1; PAGES as usize * PAGE]).expect("a file");
    for times in [3, 4] {
        let log = open("orders/log", false);
        read_all(&engine, &log, times);
        engine.close_object(&log);
    }
    let hits = |name: &str| reads().iter().find(|row| row.0 == name).expect("a row").2 / PAGES;
    let (orders, reports, rest) = (hits("orders"), hits("reports"), hits(""));
    let expected = [
        row("orders", 2 + 3 + 4, orders, 1),
        row("reports", 2, reports, 1),
        row("", 2, rest, 1),
    ];
    assert_eq!(reads(), expected);

    // One whose last name goes while it is open, and one that goes when it is closed.
    let open_file = open("reports/base/5/16384", true);
    for name in ["reports/base/5/16384", "other/file"] {
        let identity = ObjectSpec::of_file(base, name, FileKind::Relation).expect("a file");
        engine.before_unlink(&identity.identity);
        fs::remove_file(base.join(name)).expect("removed");
        let grave = Grave {
            kept: None,
            directory: (0, 0),
            sync: Arc::new(|| Ok(())),
        };
        engine.unlinked(&identity.identity, grave);
    }
    read_all(&engine, &open_file, 1);
    engine.close_object(&open_file);
    drop(open_file);
    let expected = [
        row("orders", 2 + 3 + 4, orders, 1),
        row("reports", 3, hits("reports"), 0),
        row("", 2, rest, 0),
    ];
    assert_eq!(reads(), expected);
    engine.stop().expect("stops");
}

/// Hint sets that are the same but for the database are learned apart, and alike without it.
#[test]
fn hint_sets_of_two_databases_are_two() {
    for (clients, sets) in [(&["orders", "reports"][..], 3), (&[], 1)] {
        let directory = tempfile::tempdir().expect("directory");
        let engine = start(directory.path(), clients);
        let objects = files(&engine, directory.path());
        for object in objects.iter().cycle().take(90) {
            read_all(&engine, object, 10);
        }
        let learned = engine.stats().tier.and_then(|tier| tier.learned);
        let learned = learned.expect("CLIC learns");
        let texts: BTreeSet<&str> = learned.hint_sets.iter().map(|set| &*set.hints).collect();
        let lengths = (texts.len(), learned.hint_sets.len());
        assert_eq!(lengths, (sets, sets), "{learned:?}");
        objects
            .iter()
            .for_each(|object| engine.close_object(object));
        engine.stop().expect("stops");
    }
}
