//! Orders of threads that a scheduler chooses: a crowd of clients before an engine whose threads,
//! locks and devices are the scheduler's. The same seeds give the same orders.
//!
//! `scripts/test.sh` runs it; alone, with `RUSTFLAGS='--cfg shuttle'`:
//! `cargo test -p thermocline --test shuttle --target-dir target/shuttle`.
#![cfg(shuttle)]

mod crowd;

use crowd::{Crowd, Size};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline::mutant::Mutant;

/// Everything at once.
const MIXED: Size = Size {
    names: 3,
    clients: 3,
    steps: 8,
    opens: 4,
    planted: Mutant::None,
};

/// Mostly opens and closes, of files that pass by too: ids are given out again and again.
const OPENS: Size = Size {
    names: 4,
    clients: 3,
    steps: 12,
    opens: 9,
    planted: Mutant::None,
};

fn run(scheduler: impl Scheduler + 'static, size: Size) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::Print;
    let number = AtomicU64::new(0);
    let runner = Runner::new(scheduler, config);
    runner.run(move || Crowd::new(size).run(number.fetch_add(1, Ordering::Relaxed)));
}

#[test]
fn a_crowd_in_random_orders() {
    run(RandomScheduler::new_from_seed(1, 1_500), MIXED);
    run(RandomScheduler::new_from_seed(2, 1_500), OPENS);
}

#[test]
fn a_crowd_in_orders_by_priority() {
    run(PctScheduler::new_from_seed(3, 3, 1_500), MIXED);
    run(PctScheduler::new_from_seed(4, 3, 1_500), OPENS);
}

/// Two open files shared one object id (see `Mutant::SharedId`): the bug that PostgreSQL's
/// regression suite met.
#[test]
fn ids_given_out_twice_are_found() {
    let planted = Size {
        planted: Mutant::SharedId,
        ..OPENS
    };
    let found = |scheduler: Box<dyn Fn()>| catch_unwind(AssertUnwindSafe(scheduler)).is_err();
    let random = found(Box::new(move || {
        run(RandomScheduler::new_from_seed(5, 3_000), planted)
    }));
    assert!(random, "random orders do not find the planted bug");
}
