//! A policy is told the time: an allowance by time, as `value` has, works on a mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thermocline::clock::{Clock, SharedClock};
use thermocline::{Engine, EngineConfig, Store, StoreOptions};
use thermocline_core::policy::{PolicyOptions, TierPolicy, build};

const PAGE: u32 = 512;

/// A clock that is set by hand.
#[derive(Debug, Default)]
struct ByHand(AtomicU64);

impl Clock for ByHand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
    fn wall_ns(&self) -> i64 {
        0
    }
    fn pass(&self, _time: Duration) {}
}

/// LRU that notes what time it was told last.
struct Told {
    policy: Box<dyn TierPolicy>,
    last: Arc<AtomicU64>,
}

impl TierPolicy for Told {
    fn on_time(&mut self, now_ms: u64) {
        self.last.store(now_ms, Ordering::Relaxed);
        self.policy.on_time(now_ms);
    }
    thermocline_core::pass_on!(policy: name, on_request, on_aside, decide, surplus, on_admit,
        on_found, on_remove, on_trim, on_pool_hits, on_pool, on_written, on_reserve, dirty_pages,
        keeps_outdated, on_dirty, on_clean, write_buffer, is_buffered, is_synchronous, worth,
        taught, learned, bytes, bytes_full, assert_invariants);
}

fn engine(inline: bool, clock: Option<&Arc<ByHand>>, last: &Arc<AtomicU64>) -> Arc<Engine> {
    let directory = tempfile::tempdir().expect("directory");
    let options = StoreOptions {
        page_size: PAGE,
        size: Some(Store::length_for(60, PAGE)),
        ..StoreOptions::default()
    };
    let store = Store::open(&directory.path().join("cache"), &options).expect("cache");
    let mut config = EngineConfig {
        page_size: PAGE,
        policy: "lru".into(),
        inline,
        ..EngineConfig::default()
    };
    if let Some(clock) = clock {
        config.clock = SharedClock::new(clock.clone());
    }
    let last = Arc::clone(last);
    let policy = move |options: &PolicyOptions| -> Box<dyn TierPolicy> {
        let policy = build("lru", options).expect("lru");
        Box::new(Told { policy, last })
    };
    Engine::start_with_policy(config, Some(store), policy).expect("starts")
}

#[test]
fn threads_tell_the_policy_the_time() {
    let last = Arc::new(AtomicU64::new(0));
    let engine = engine(false, None, &last);
    let begun = Instant::now();
    while last.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed().as_secs() < 60, "nobody tells the time");
        std::thread::sleep(Duration::from_millis(10));
    }
    engine.stop().expect("stops");
}

#[test]
fn steps_tell_the_policy_the_time_of_the_clock() {
    let (clock, last) = (Arc::new(ByHand::default()), Arc::new(AtomicU64::new(0)));
    let engine = engine(true, Some(&clock), &last);
    clock.0.store(123_456, Ordering::Relaxed);
    (0..1000).for_each(|_| _ = engine.step());
    assert_eq!(last.load(Ordering::Relaxed), 123_456);
    engine.stop().expect("stops");
}
