//! Progress as lines, for logs and pipes: where a bar would not be seen.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

/// From one line to the next.
const EVERY: Duration = Duration::from_secs(10);

/// What was said, and when the next line is due.
#[derive(Debug)]
pub(super) struct Notes {
    what: String,
    next: Duration,
}

impl Notes {
    /// Nothing said yet.
    pub(super) fn new(what: &str) -> Self {
        Self {
            what: what.to_string(),
            next: Duration::ZERO,
        }
    }

    /// Writes a line to standard error when one is due and a bar is not seen.
    pub(super) fn print(&mut self, elapsed: Duration, done: u64, total: u64) {
        if let Some(line) = self
            .due(elapsed, done, total)
            .filter(|_| !stderr().is_terminal())
        {
            // A reader that has gone away does not end the work.
            let _gone = writeln!(stderr(), "{line}");
        }
    }

    /// The next line, when it is due.
    fn due(&mut self, elapsed: Duration, done: u64, total: u64) -> Option<String> {
        if elapsed < self.next || total == 0 {
            return None;
        }
        self.next = elapsed + EVERY;
        let share = done.min(total) as f64 / total as f64;
        let passed = elapsed.as_secs();
        let left = match share > 0.0 {
            true => {
                let left = elapsed.as_secs_f64() * (1.0 - share) / share;
                format!(", about {} s left", left.ceil())
            }
            false => String::new(),
        };
        let what = &self.what;
        Some(format!(
            "{what}: {:.0} % after {passed} s{left}",
            100.0 * share
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_every_ten_seconds_says_how_far_it_is() {
        let mut notes = Notes::new("lru");
        let mut due = |seconds, done| notes.due(Duration::from_secs(seconds), done, 200);
        let first = due(2, 50).expect("the first");
        assert_eq!(first, "lru: 25 % after 2 s, about 6 s left");
        assert_eq!(due(11, 60), None);
        assert_eq!(due(12, 0).as_deref(), Some("lru: 0 % after 12 s"));
        assert_eq!(notes.due(Duration::from_secs(99), 0, 0), None, "of nothing");
    }
}
