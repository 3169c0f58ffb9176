//! Planted bugs are found, and without one nothing is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use thermocline::mutant::Mutant;
use thermocline_crash::{Fault, Mode, Options, Tally, run, run_store};

/// The first seed, from 1, whose run fails; panics of the engine count.
fn caught(seeds: u64, options: &Options) -> Option<u64> {
    let fails = |seed: &u64| {
        let mut tally = Tally::default();
        let run = || run_store(*seed, options, &mut tally).is_err();
        catch_unwind(AssertUnwindSafe(run)).unwrap_or(true)
    };
    (1..=seeds).find(fails)
}

/// The same of the whole engine.
fn caught_in_engine(seeds: u64, options: &Options) -> Option<u64> {
    let fails = |seed: &u64| {
        let mut tally = Tally::default();
        let run = || run(*seed, options, &mut tally).is_err();
        catch_unwind(AssertUnwindSafe(run)).unwrap_or(true)
    };
    (1..=seeds).find(fails)
}

#[test]
fn the_engine_without_a_bug_passes() {
    for mode in [Mode::Through, Mode::Back] {
        assert_eq!(caught_in_engine(12, &Options::of(mode)), None, "{mode:?}");
    }
}

#[test]
fn bugs_planted_in_the_engine_are_caught() {
    let planted = [
        Mutant::SilentTrim,
        Mutant::CleanBeforeSync,
        Mutant::UnleasedMetadata,
        Mutant::SilentUnlink,
        Mutant::UnsyncedPromise,
        Mutant::EarlyGrave,
        Mutant::BaseBelieved,
        Mutant::UnsyncedGrowth,
        Mutant::EarlyBatch,
    ];
    for mutant in planted {
        let options = Options {
            mutant,
            ..Options::of(Mode::Back)
        };
        let seed = caught_in_engine(400, &options);
        println!("{mutant:?}: caught by seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not caught by 400 seeds");
    }
}

#[test]
fn bugs_planted_in_reading_the_map_later_are_caught() {
    // `UnmarkedCut` needs a cut and a crash within the few steps of the loading: 400 seeds have
    // none. The engine's own test of it, `load`, finds it.
    let planted = [Mutant::TouchedKept, Mutant::MarksForgotten];
    for mutant in planted {
        let options = Options {
            mutant,
            ..Options::of(Mode::Through)
        };
        let seed = caught_in_engine(400, &options);
        println!("{mutant:?}: caught by seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not caught by 400 seeds");
    }
}

/// Base is served elsewhere, goes back, loses its mark; and the order of mark and superblock.
/// `CleanBelieved`, `UnmarkedWhole`, `StaleMark`, `EarlyRenewal` and `HalfTakenServed` need more
/// in a row than a run has as a rule, or two hosts: `claims` finds them.
#[test]
fn bugs_planted_in_the_claim_of_base_are_caught() {
    let planted = [
        (Mutant::ServedElsewhere, Mode::Through),
        (Mutant::BaseWentBack, Mode::Back),
        (Mutant::EarlyNote, Mode::Back),
        (Mutant::EarlyWhole, Mode::Back),
    ];
    for (mutant, mode) in planted {
        let options = Options {
            mutant,
            ..Options::of(mode)
        };
        let seed = caught_in_engine(400, &options);
        println!("{mutant:?}, {mode:?}: caught by seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not caught by 400 seeds");
    }
}

fn store(mutant: Mutant) -> Options {
    Options {
        steps: 60,
        mutant,
        ..Options::of(Mode::Store)
    }
}

#[test]
fn the_store_without_a_bug_passes() {
    assert_eq!(caught(10, &store(Mutant::None)), None);
}

#[test]
fn bugs_planted_in_the_store_are_caught() {
    let planted = [
        Mutant::EarlyAcknowledge,
        Mutant::UncheckedJournal,
        Mutant::UnverifiedTail,
        Mutant::EarlyTruncation,
        Mutant::DoubleRecovery,
        Mutant::TailAsOne,
    ];
    for mutant in planted {
        let seed = caught(400, &store(mutant));
        println!("{mutant:?}: caught by seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not caught by 400 seeds");
    }
}

/// A device that says it synced and did not: nothing can survive that, and the tester must say so.
#[test]
fn a_lying_device_is_caught() {
    let options = Options {
        flash_fault: Some(Fault::LieOnSync),
        ..store(Mutant::None)
    };
    assert!(caught(10, &options).is_some());
}
