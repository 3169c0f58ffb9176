//! The clock that a base's file system stamps files with: how fine it is, and how it stands to
//! ours. A server has its own clock, and some keep whole seconds only.

use super::mark::Mark;
use super::place::Place;
use crate::clock::Clock;
use std::io;
use std::time::Duration;

/// The granularity of a local file system: the kernel's tick, generously.
pub const TICK: Duration = Duration::from_millis(20);
/// Stamps that are looked at.
const STAMPS: u32 = 3;
const SECOND_NS: i64 = 1_000_000_000;

/// What is known of base's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// A change within this time after another one may leave the same stamp.
    pub granularity: Duration,
    /// What to add to our wall clock to have base's; 0 when the two agree as far as can be told.
    pub offset_ns: i64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            granularity: TICK,
            offset_ns: 0,
        }
    }
}

/// One stamp, in ns since 1970, and our time before and after it was made.
#[derive(Clone, Copy, Debug)]
struct Sample {
    before: i64,
    stamp: i64,
    after: i64,
}

/// Writes `mark` some times and looks at the stamps it gets. Each time with another token: what is
/// written as it was gets no new stamp.
pub(super) fn measure(place: &Place, mark: &mut Mark, clock: &dyn Clock) -> io::Result<Clocks> {
    let mut samples = Vec::new();
    for number in 0..STAMPS {
        let before = clock.wall_ns();
        mark.claimant.token = format!("{before:016x}{number:016x}");
        let stamp = place.stamp(mark)?;
        samples.push(Sample {
            before,
            stamp,
            after: clock.wall_ns(),
        });
        // Not a whole number of any unit, so that a fine clock shows it.
        clock.pass(Duration::from_micros(3_137));
    }
    place.sync()?;
    Ok(judge(&samples))
}

fn judge(samples: &[Sample]) -> Clocks {
    let whole = |unit: i64| samples.iter().all(|sample| sample.stamp % unit == 0);
    let granularity = match (whole(2 * SECOND_NS), whole(SECOND_NS), whole(10_000_000)) {
        // Even seconds by chance are taken for what is coarser.
        (true, ..) => Duration::from_secs(2),
        (_, true, _) => Duration::from_secs(1),
        (_, _, true) => TICK * 2,
        _ => TICK,
    };
    let fuzz = i64::try_from(granularity.as_nanos()).unwrap_or(i64::MAX);
    // The stamp was made between `before` and `after`, and cut down to the granularity.
    let least = samples.iter().map(|s| s.stamp - s.after).max();
    let most = samples.iter().map(|s| s.stamp + fuzz - s.before).min();
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let offset_ns = match least <= 0 && most >= 0 {
        true => 0,
        false => least / 2 + most / 2,
    };
    Clocks {
        granularity,
        offset_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_763_000_000 * SECOND_NS + 123_456_789;

    fn samples(offset: i64, unit: i64) -> Vec<Sample> {
        (0..3)
            .map(|n| {
                let now = NOW + n * 4_000_000;
                Sample {
                    before: now,
                    stamp: (now + offset + 100_000) / unit * unit,
                    after: now + 200_000,
                }
            })
            .collect()
    }

    #[test]
    fn a_local_clock_is_fine_and_ours() {
        assert_eq!(judge(&samples(0, 4_000_000)), Clocks::default());
        assert_eq!(judge(&samples(0, 1)), Clocks::default());
    }

    #[test]
    fn whole_seconds_and_a_server_ahead_are_noticed() {
        let odd = judge(&samples(SECOND_NS, SECOND_NS));
        assert!(odd.granularity >= Duration::from_secs(1));
        for offset in [-90 * SECOND_NS, 7 * SECOND_NS, 3600 * SECOND_NS] {
            for unit in [1, 4_000_000, SECOND_NS] {
                let found = judge(&samples(offset, unit));
                let error = (found.offset_ns - offset).abs();
                let fuzz = found.granularity.as_nanos() as i64;
                assert!(error <= fuzz, "{offset} by {unit}: {found:?}");
            }
        }
    }
}
