//! How long something will still take, from how fast it lately went.

use std::collections::VecDeque;
use std::time::Duration;

/// How far back is looked.
const WINDOW: Duration = Duration::from_secs(10);
/// Shorter than this nothing is said: a few steps are no rate.
const LEAST: Duration = Duration::from_millis(500);

/// What is left, sampled over the last seconds.
///
/// Pages may become dirty while others are written back, so the rate is that of what is *left*: a
/// flush that does not gain on its database has no end, and this says so.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    samples: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// At `elapsed` since the start this much is left.
    pub(crate) fn note(&mut self, elapsed: Duration, left: u64) {
        self.samples.push_back((elapsed, left));
        // One sample older than the window stays, so that the window is covered.
        while self.samples.len() > 2 && elapsed.saturating_sub(self.samples[1].0) >= WINDOW {
            self.samples.pop_front();
        }
    }

    /// The time what is left will take at this rate; none when it does not become less, or when
    /// there is no rate yet.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let (rate, left) = self.rate()?;
        (rate > 0.0).then(|| Duration::from_secs_f64((left as f64 / rate).min(1e9)))
    }

    /// Less a second, and what is left.
    fn rate(&self) -> Option<(f64, u64)> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let took = last.0.saturating_sub(first.0);
        let gone = first.1 as f64 - last.1 as f64;
        (took >= LEAST).then(|| (gone / took.as_secs_f64(), last.1))
    }

    /// The same in words.
    pub(crate) fn describe(&self) -> String {
        match (self.rate(), self.remaining()) {
            (Some((rate, _)), Some(rest)) => {
                format!("{} left at {rate:.0} pages/s", show(rest))
            }
            (Some(_), None) => "no end in sight: as much comes in as goes out".into(),
            (None, _) => "measuring".into(),
        }
    }
}

fn show(rest: Duration) -> String {
    let seconds = rest.as_secs_f64().ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(samples: &[(u64, u64)]) -> Pace {
        let mut pace = Pace::default();
        for (ms, left) in samples {
            pace.note(Duration::from_millis(*ms), *left);
        }
        pace
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let steady = pace(&[(0, 1000), (1000, 900), (2000, 800)]);
        assert_eq!(steady.remaining(), Some(Duration::from_secs(8)));
        // Fast at first, ten times slower lately: the estimate follows.
        let samples: Vec<(u64, u64)> = (0..=10)
            .map(|s| (s * 1000, 100_000 - 1000 * s))
            .chain((11..=40).map(|s| (s * 1000, 90_000 - 100 * (s - 10))))
            .collect();
        let slower = pace(&samples).remaining().expect("a rate");
        assert_eq!(slower, Duration::from_secs(870));
    }

    #[test]
    fn without_gain_there_is_no_end() {
        let chased = pace(&[(0, 100), (1000, 100), (2000, 120)]);
        assert_eq!(chased.remaining(), None);
        assert!(chased.describe().contains("no end in sight"));
        assert_eq!(pace(&[(0, 10), (100, 5)]).describe(), "measuring");
    }

    #[test]
    fn times_are_rounded_up() {
        let shown = [1, 59_001, 61_000, 7_260_000].map(|ms| show(Duration::from_millis(ms)));
        assert_eq!(shown, ["1 s", "1 min 0 s", "1 min 1 s", "2 h 1 min"]);
    }
}
