//! A commit under way: what is staged meanwhile is written by those who wait for the next one.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use thermocline::classify::Dialect;
use thermocline::device::{Device, MemoryDevice, Transfer};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions,
};
use thermocline_core::{FileKind, HintSet};

const PAGE: usize = 4096;
const MANY: u64 = 40;
/// Longer than any wait that ends.
const EVER: Duration = Duration::from_secs(20);

/// A device whose next sync, once it is armed, ends when pages are written while it lasts.
struct Gate {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: bool,
    syncing: bool,
    writes: usize,
    /// Page writes that came while the sync lasted.
    meanwhile: Option<usize>,
}

impl Gate {
    fn count(&self, writes: usize) {
        self.state.lock().unwrap().writes += writes;
        self.changed.notify_all();
    }
}

impl Device for Gate {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.count(1);
        self.device.write_at(buf, offset)
    }
    fn transfer(&self, batch: &mut [Transfer<'_>]) {
        self.count(batch.len());
        self.device.transfer(batch);
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if std::mem::take(&mut state.armed) {
            (state.syncing, state.writes) = (true, 0);
            self.changed.notify_all();
            let none = |state: &mut State| state.writes < 16;
            let waited = self.changed.wait_timeout_while(state, EVER, none);
            state = waited.unwrap().0;
            state.meanwhile = Some(state.writes);
        }
        drop(state);
        self.device.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.punch(offset, len)
    }
    fn label(&self) -> String {
        self.device.label()
    }
}

fn write(engine: &Engine, object: &Arc<Object>, page: u64, version: u8) {
    let request = Request {
        object,
        offset: page * PAGE as u64,
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    engine.write(&request, &[version; PAGE]).unwrap();
}

#[test]
fn pages_are_written_while_a_commit_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(Store::length_for(512, PAGE as u32)),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        ..StoreOptions::default()
    };
    let store = Store::open(&dir.path().join("cache"), &options).unwrap();
    let mut gate = None;
    let store = store.wrapped(|device| {
        let made = Arc::new(Gate {
            device,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        gate = Some(Arc::clone(&made));
        made
    });
    let gate = gate.unwrap();
    let config = EngineConfig {
        page_size: PAGE as u32,
        policy: "lc".into(),
        write_back: true,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(store)).unwrap();
    let base = Arc::new(MemoryDevice::new());
    base.set_len(MANY * PAGE as u64).unwrap();
    let spec = ObjectSpec {
        name: "file".into(),
        group: "file".into(),
        identity: Identity {
            device: 1,
            inode: 7,
            generation: 1,
        },
        base,
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    };
    let object = engine.open_object(spec).unwrap();
    for page in 0..MANY {
        write(&engine, &object, page, 1);
    }
    engine.sync(&object, true).unwrap();

    gate.state.lock().unwrap().armed = true;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write(&engine, &object, 0, 2);
            engine.sync(&object, true).unwrap();
        });
        let state = gate.state.lock().unwrap();
        let waits = |state: &mut State| !state.syncing;
        drop(gate.changed.wait_timeout_while(state, EVER, waits).unwrap());
        for page in 1..MANY {
            write(&engine, &object, page, 2);
        }
        engine.sync(&object, true).unwrap();
    });
    let meanwhile = gate.state.lock().unwrap().meanwhile;
    assert!(
        meanwhile.is_some_and(|writes| writes >= 16),
        "{meanwhile:?}"
    );
    let mut bytes = vec![0; PAGE];
    for page in 0..MANY {
        let request = Request {
            object: &object,
            offset: page * PAGE as u64,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        engine.read(&request, &mut bytes).unwrap();
        assert_eq!(bytes, [2; PAGE], "page {page}");
    }
    assert_eq!(engine.stats().tier.unwrap().staged, 0, "all was settled");
    engine.stop().unwrap();
}
