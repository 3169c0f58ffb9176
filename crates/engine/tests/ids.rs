//! A crowd of clients on real threads opens, closes, renames and unlinks few files for some
//! seconds; and the id bug that once was (`Mutant::SharedId`) is found that way when it is planted.
#![cfg(not(feature = "shuttle"))]

mod aloud;
mod crowd;

use aloud::panic_aloud;
use crowd::{Crowd, Size};
use std::process::Command;
use std::time::{Duration, Instant};
use thermocline::mutant::Mutant;

/// Set for the process that is to fail.
const KEY: &str = "THERMOCLINE_TEST_PLANTED";

const SIZE: Size = Size {
    names: 4,
    clients: 6,
    steps: 2_000,
    opens: 8,
    late: 0,
    planted: Mutant::None,
};

/// Crowds one after another for so long; each by a seed of its own.
fn crowds(size: Size, most: Duration) -> u64 {
    panic_aloud();
    let started = Instant::now();
    let mut seed = 0;
    while started.elapsed() < most {
        seed += 1;
        Crowd::new(size, seed).run(seed);
    }
    seed
}

#[test]
fn an_id_means_one_file_at_a_time() {
    let ran = crowds(SIZE, Duration::from_secs(6));
    println!("{ran} crowds");
    assert!(ran > 0);
}

/// A flash device that gives up writes of batches, which arrive over later ones, costs nothing that
/// was written: also when the tier is put back again and again. Each time the tier goes off the
/// clients wait for the lease to end, so there are few crowds; `shuttle.rs` has many.
#[test]
fn what_flash_answers_late_hits_nothing() {
    let size = Size {
        steps: 60,
        opens: 4,
        late: 40,
        ..SIZE
    };
    let started = Instant::now();
    let (mut seed, mut given_up, mut put_back) = (0, 0, 0);
    while started.elapsed() < Duration::from_secs(10) || put_back == 0 {
        seed += 1;
        let crowd = Crowd::new(size, seed);
        crowd.run(seed);
        let late = crowd.late();
        given_up += late.0;
        put_back += late.1;
    }
    println!("{seed} crowds, {given_up} requests given up, put back {put_back} times");
}

/// The planted bug ends the process, or a client: both in a process of its own.
#[test]
fn ids_given_out_twice_are_found() {
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program)
        // Its output is kept, as that of any test: what ends the process says so all the same.
        .args(["--exact", "the_planted_bug"])
        .env(KEY, "1")
        .output()
        .expect("runs itself");
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(
        !run.status.success(),
        "the planted bug is not found: {said}"
    );
    // Whatever of this notices it first.
    let notices = ["invariant", "reads", "only cached objects"];
    assert!(notices.iter().any(|text| said.contains(text)), "{said}");
}

/// Fails on purpose where `ids_given_out_twice_are_found` runs it, and does nothing elsewhere.
#[test]
fn the_planted_bug() {
    if std::env::var_os(KEY).is_none() {
        return;
    }
    let planted = Size {
        planted: Mutant::SharedId,
        ..SIZE
    };
    crowds(planted, Duration::from_secs(30));
}
