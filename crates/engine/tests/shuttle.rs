//! Orders of threads that a scheduler chooses: a crowd of clients before an engine whose threads,
//! locks and devices are the scheduler's. The same seeds give the same orders.
//!
//! `scripts/test.sh` runs it; alone: `cargo test -p thermocline --features shuttle --test shuttle`.

mod crowd;

use crowd::{Crowd, Size};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline::mutant::Mutant;

/// Everything at once.
const MIXED: Size = Size {
    names: 3,
    clients: 3,
    steps: 8,
    opens: 4,
    late: 0,
    planted: Mutant::None,
};

/// Mostly opens and closes, of files that pass by too: ids are given out again and again.
const OPENS: Size = Size {
    names: 4,
    clients: 3,
    steps: 12,
    opens: 9,
    late: 0,
    planted: Mutant::None,
};

/// How many requests of flash were given up, and how often the tier was put back.
fn run(scheduler: impl Scheduler + 'static, size: Size) -> (u64, u64) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::Print;
    let number = AtomicU64::new(0);
    let late = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let counted = Arc::clone(&late);
    let runner = Runner::new(scheduler, config);
    runner.run(move || {
        let seed = number.fetch_add(1, Ordering::Relaxed);
        let crowd = Crowd::new(size, seed);
        crowd.run(seed);
        let (given_up, put_back) = crowd.late();
        counted.0.fetch_add(given_up, Ordering::Relaxed);
        counted.1.fetch_add(put_back, Ordering::Relaxed);
    });
    (
        late.0.load(Ordering::Relaxed),
        late.1.load(Ordering::Relaxed),
    )
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

/// What a device gave up arrives while others write, commit, and put the tier back.
#[test]
fn what_flash_answers_late_hits_nothing() {
    let late = Size {
        late: 8,
        steps: 16,
        ..MIXED
    };
    let random = run(RandomScheduler::new_from_seed(6, 1_500), late);
    let ordered = run(PctScheduler::new_from_seed(7, 3, 1_500), late);
    println!("given up and put back: {random:?}, {ordered:?}");
    assert!(random.0 > 0 && random.1 > 0 && ordered.0 > 0);
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
        run(RandomScheduler::new_from_seed(5, 3_000), planted);
    }));
    assert!(random, "random orders do not find the planted bug");
}

/// What base gave for a page that a read passed over is believed (see `Mutant::BaseBelieved`).
#[test]
fn bytes_of_base_over_a_hole_are_found() {
    let planted = Size {
        planted: Mutant::BaseBelieved,
        opens: 2,
        ..MIXED
    };
    let found = |scheduler: Box<dyn Fn()>| catch_unwind(AssertUnwindSafe(scheduler)).is_err();
    let random = found(Box::new(move || {
        run(RandomScheduler::new_from_seed(8, 3_000), planted);
    }));
    assert!(random, "random orders do not find the planted bug");
}
