//! How many background writers should be at work (TAC §3.3: the number "can be adjusted
//! dynamically by monitoring the write performance").
//!
//! By Little's law the writes under way are arrivals per second times seconds per write; a backlog
//! above half the buffer asks for one more. Time is an argument, in nanoseconds.

/// Length of a measuring window.
const WINDOW_NS: u64 = 100_000_000;
/// Weight of the newest observation.
const WEIGHT: f64 = 0.2;

/// Measured write speed and arrival rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriterPace {
    window_start_ns: u64,
    finished_in_window: u64,
    backlog_at_start: u32,
    arrivals_per_ns: f64,
    write_ns: f64,
}

impl WriterPace {
    /// A write took `write_ns` and ended at `now_ns`, with `backlog` pages still waiting.
    pub fn finished(&mut self, now_ns: u64, write_ns: u64, backlog: u32) {
        self.write_ns += WEIGHT * (write_ns as f64 - self.write_ns);
        self.finished_in_window += 1;
        let elapsed = now_ns.saturating_sub(self.window_start_ns);
        if elapsed < WINDOW_NS {
            return;
        }
        let grown = i64::from(backlog) - i64::from(self.backlog_at_start);
        let arrived = (self.finished_in_window as i64 + grown).max(0);
        let rate = arrived as f64 / elapsed as f64;
        self.arrivals_per_ns += WEIGHT * (rate - self.arrivals_per_ns);
        self.window_start_ns = now_ns;
        self.finished_in_window = 0;
        self.backlog_at_start = backlog;
    }

    /// Writers to keep at work: 1 to `max`.
    #[must_use]
    pub fn wanted(&self, backlog: u32, buffer: u32, max: u32) -> u32 {
        let busy = (self.arrivals_per_ns * self.write_ns).ceil() as u32;
        let behind = u32::from(backlog > buffer / 2);
        (busy + behind).clamp(1, max.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rate` writes a second for five seconds, each taking `write_ns`.
    fn paced(rate: u64, write_ns: u64) -> WriterPace {
        let mut pace = WriterPace::default();
        for i in 0..rate * 5 {
            pace.finished(i * 1_000_000_000 / rate, write_ns, 0);
        }
        pace
    }

    #[test]
    fn writers_follow_rate_and_speed() {
        assert_eq!(paced(1000, 50_000).wanted(0, 256, 8), 1);
        assert_eq!(paced(1000, 3_500_000).wanted(0, 256, 8), 4);
        assert_eq!(paced(1000, 90_000_000).wanted(0, 256, 8), 8);
        assert_eq!(paced(1000, 50_000).wanted(200, 256, 8), 2);
        assert_eq!(WriterPace::default().wanted(0, 256, 8), 1);
    }
}
