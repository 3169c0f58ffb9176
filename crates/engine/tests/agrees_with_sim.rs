//! One policy implementation serves the live engine and the simulator: the same requests and the
//! same seed give the same actions in both, for every policy.

use std::sync::{Arc, Mutex, PoisonError};
use thermocline::classify::Dialect;
use thermocline::device::{Device, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, ObjectSpec, Request, Stamp, Store, StoreOptions,
};
use thermocline_core::hash::mix;
use thermocline_core::policy::{
    self, Access, Decision, Op, Opportunity, PolicyOptions, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{FileKind, HintSet, ObjectId, PageId, SlotId};
use thermocline_sim::tier::PolicyTier;

const PAGE: u32 = 512;
/// Slots at least; the cache's structures are rounded up.
const SLOTS: u32 = 32;
const PAGES: u64 = 120;
const OBJECTS: u32 = 3;

/// Everything a policy is told and everything it answers.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Request(PageId, Op, Option<SlotId>),
    Decision(PageId, Opportunity, Decision),
    Admit(PageId, SlotId),
    Remove(PageId, SlotId, Removal),
    Trim(ObjectId, u64),
    PoolHits(PageId, u32),
}

type Log = Arc<Mutex<Vec<Event>>>;

/// A policy that keeps a log of its life.
struct Logged {
    policy: Box<dyn TierPolicy>,
    log: Log,
}

impl Logged {
    fn note(&self, event: Event) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(event);
    }
}

impl TierPolicy for Logged {
    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.note(Event::Request(access.page, access.op, resident));
        self.policy.on_request(access, resident);
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let decision = self.policy.decide(access, why, slots);
        self.note(Event::Decision(access.page, why, decision));
        decision
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.note(Event::Admit(access.page, slot));
        self.policy.on_admit(access, slot);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        self.note(Event::Remove(page, slot, why));
        self.policy.on_remove(page, slot, why);
    }

    fn on_trim(&mut self, object: ObjectId, first: u64) {
        self.note(Event::Trim(object, first));
        self.policy.on_trim(object, first);
    }

    fn on_pool_hits(&mut self, page: PageId, hits: u32) {
        self.note(Event::PoolHits(page, hits));
        self.policy.on_pool_hits(page, hits);
    }

    thermocline_core::pass_on!(policy: name, on_aside, surplus, on_found, on_pool, on_reserve,
        on_time, on_written, dirty_pages, keeps_outdated, on_dirty, on_clean, write_buffer,
        is_buffered, is_synchronous, worth, taught, learned, bytes, bytes_full, assert_invariants);
}

/// One request of the common stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many pages from one on.
    Read(ObjectId, u64, u64, HintSet),
    Write(ObjectId, u64, HintSet),
    Truncate(ObjectId, u64),
}

/// Hot pages, a loop, writes, and now and then a truncation; hints that mean something.
fn stream(objects: &[ObjectId]) -> Vec<Step> {
    let step = |at: u64| {
        let draw = mix(3, at);
        let object = objects[(draw % u64::from(OBJECTS)) as usize];
        let page = match draw >> 8 & 3 {
            0 => at / 2 % PAGES,
            1 => draw >> 20 & 7,
            _ => draw % PAGES * (draw >> 12 & 1),
        };
        let mut hints = HintSet::UNKNOWN;
        for position in 0..5 {
            // Never 0: the engine fills in what is unknown.
            hints.set(
                position,
                (mix(draw >> 10 & 15, position as u64) % 5) as u32 + 1,
            );
        }
        match draw >> 32 & 63 {
            0 => Step::Truncate(object, page),
            1..=16 => Step::Write(object, page, hints),
            // One of four is of several pages, some of which may be on flash and some not.
            rest if rest % 4 == 0 => Step::Read(object, page, 2 + draw % 5, hints),
            _ => Step::Read(object, page, 1, hints),
        }
    };
    (0..6000).map(step).collect()
}

fn options() -> PolicyOptions {
    PolicyOptions {
        seed: 9,
        ..PolicyOptions::new(slots())
    }
}

fn logged(name: &str, options: &PolicyOptions) -> (Box<dyn TierPolicy>, Log) {
    let log = Log::default();
    let policy = policy::build(name, options).expect("a known policy");
    let logged = Logged {
        policy,
        log: log.clone(),
    };
    (Box::new(logged), log)
}

fn open(engine: &Engine, inode: u64) -> Arc<thermocline::Object> {
    let device = Arc::new(MemoryDevice::new());
    device
        .set_len(PAGES * u64::from(PAGE))
        .expect("memory grows");
    let spec = ObjectSpec {
        name: format!("file{inode}"),
        group: format!("file{inode}"),
        identity: Identity {
            device: 1,
            inode,
            generation: 1,
        },
        base: device,
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    };
    engine.open_object(spec).expect("opens")
}

/// Blocks of the cache.
fn blocks() -> u32 {
    EngineConfig::default().blocks_for(SLOTS)
}

/// Slots of the policy.
fn slots() -> u32 {
    let length = Store::length_for(blocks(), PAGE);
    let options = store_options(length);
    let store = Store::with_device(Arc::new(MemoryDevice::new()), "memory", &options);
    let blocks = store.expect("opens").blocks();
    EngineConfig::default().shares(blocks).slots
}

fn store_options(length: u64) -> StoreOptions {
    StoreOptions {
        page_size: PAGE,
        size: Some(length),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format: false,
        deadline: None,
        ..StoreOptions::default()
    }
}

fn engine(name: &str) -> (Arc<Engine>, Log) {
    let config = EngineConfig {
        // The simulator reads nothing ahead.
        read_ahead: 0,
        page_size: PAGE,
        policy: name.into(),
        // Room for all pages of a request: the simulator needs none.
        write_buffer_pages: 8,
        writers_max: 1,
        // A writer of the engine's would have pages under way that some policy wants to evict.
        inline: true,
        seed: 9,
        ..EngineConfig::default()
    };
    let store = store_options(Store::length_for(blocks(), PAGE));
    let store = Store::with_device(Arc::new(MemoryDevice::new()), "memory", &store);
    let mut log = None;
    let build = |options: &PolicyOptions| {
        let (policy, of) = logged(name, options);
        log = Some(of);
        policy
    };
    let engine = Engine::start_with_policy(config, Some(store.expect("opens")), build);
    (engine.expect("starts"), log.expect("a policy was built"))
}

/// Waits until nothing is on its way to flash: the simulator's flash writes take no time.
fn settle(engine: &Engine) {
    while engine.stats().tier.is_some_and(|tier| tier.staged > 0) {
        engine.step();
    }
}

/// What the live engine's policy was told and answered.
fn live(name: &str) -> Vec<Event> {
    let (engine, log) = engine(name);
    let opened: Vec<_> = (0..OBJECTS)
        .map(|i| open(&engine, u64::from(i) + 1))
        .collect();
    let objects: Vec<ObjectId> = opened.iter().map(|object| object.id()).collect();
    let of = |id: ObjectId| &opened[id.0 as usize];
    let request = |id, page: u64, hints| Request {
        object: of(id),
        offset: page * u64::from(PAGE),
        hints,
        client: 1,
    };
    let bytes = [0; PAGE as usize];
    let mut many = [0; 6 * PAGE as usize];
    for step in stream(&objects) {
        match step {
            Step::Read(object, page, pages, hints) => {
                let bytes = &mut many[..pages as usize * PAGE as usize];
                engine
                    .read(&request(object, page, hints), bytes)
                    .expect("reads");
            }
            Step::Write(object, page, hints) => {
                engine
                    .write(&request(object, page, hints), &bytes)
                    .expect("writes");
            }
            Step::Truncate(object, page) => {
                engine
                    .truncate(of(object), page * u64::from(PAGE))
                    .expect("truncates");
                let whole = PAGES * u64::from(PAGE);
                engine.truncate(of(object), whole).expect("grows again");
            }
        }
        settle(&engine);
    }
    let events = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let bridged = engine.stats().tier.map(|tier| tier.bridged);
    assert!(bridged > Some(0), "{name}: reads pass over pages on flash");
    engine.stop().expect("stops");
    events
}

/// The same of the simulator's.
fn simulated(name: &str, objects: &[ObjectId]) -> Vec<Event> {
    let (policy, log) = logged(name, &options());
    let mut tier = PolicyTier::new(policy, slots(), 0);
    for step in stream(objects) {
        match step {
            Step::Read(object, page, pages, hints) => {
                for page in page..(page + pages).min(PAGES) {
                    tier.read(PageId::new(object, page), &hints);
                }
            }
            Step::Write(object, page, hints) => {
                tier.write(PageId::new(object, page), &hints, true);
            }
            Step::Truncate(object, page) => {
                tier.forget(object, page, u64::MAX);
                // The live file grows again, which is a truncation past its end.
                tier.forget(object, PAGES, u64::MAX);
            }
        }
    }
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[test]
fn every_policy_acts_the_same_live_and_simulated() {
    let (probe, _) = engine("lru");
    let objects: Vec<ObjectId> = (0..OBJECTS)
        .map(|i| open(&probe, u64::from(i) + 1).id())
        .collect();
    for name in policy::NAMES {
        let (live, simulated) = (live(name), simulated(name, &objects));
        assert!(live.len() > 6000, "{name} was asked");
        let admitted = live
            .iter()
            .filter(|event| matches!(event, Event::Admit(..)));
        assert!(admitted.count() > 50, "{name} admits");
        let first = live.iter().zip(&simulated).position(|(a, b)| a != b);
        if let Some(at) = first {
            let (a, b) = (&live[at], &simulated[at]);
            panic!("{name}: event {at} differs: live {a:?}, simulated {b:?}");
        }
        assert_eq!(live.len(), simulated.len(), "{name}");
    }
}
