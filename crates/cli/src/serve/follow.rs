//! Following what a command started in the process that serves.
//!
//! The control files that tell of it (`flush`, `cache`, `record`) begin alike: `WHAT N of M`, then
//! `state HOW`. Further lines are each file's own.

use crate::failure::{Code, Failure};
use crate::serve::ask::PATIENCE;
use crate::serve::client;
use crate::show::pace::Pace;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often is asked.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How long is waited for an answer once one was late.
const LONG: Duration = Duration::from_secs(3600);

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Standing<'a> {
    /// What is left or over, of `total`.
    pub(crate) count: u64,
    /// All of it.
    pub(crate) total: u64,
    /// `idle`, `running`, `done` and the like, in some files with more behind it.
    pub(crate) state: &'a str,
    /// Further lines.
    pub(crate) more: Vec<&'a str>,
}

impl<'a> Standing<'a> {
    /// What the text of a control file says.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut lines = text.lines();
        let (_, counts) = lines.next()?.split_once(' ')?;
        let (count, total) = counts.split_once(" of ")?;
        Some(Self {
            count: count.parse().ok()?,
            total: total.parse().ok()?,
            state: lines.next()?.strip_prefix("state ")?,
            more: lines.collect(),
        })
    }
}

/// Asks control file `name` until `look` has an outcome.
pub(crate) fn follow<T>(
    mountpoint: &Path,
    name: &str,
    mut look: impl FnMut(&Standing<'_>) -> Option<T>,
) -> Result<T, Failure> {
    let mut patience = PATIENCE;
    loop {
        let text = match client::read_within(patience, mountpoint, name) {
            // What was started goes on, and may be what keeps it from answering.
            Err(failure) if failure.code == Code::Hung => {
                eprintln!("{failure}\n  or wait: the work goes on where it can");
                // Each who asks in vain stays until there is an answer.
                patience = LONG;
                continue;
            }
            text => text?,
        };
        patience = PATIENCE;
        let now = Standing::parse(&text).ok_or_else(|| client::not_understood(&text))?;
        if let Some(outcome) = look(&now) {
            return Ok(outcome);
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// A bar of pages of which `count` are left, with the time that they will take.
pub(crate) struct PagesBar {
    bar: ProgressBar,
    pace: Pace,
    begun: Instant,
}

impl PagesBar {
    /// Of pages that are called `pages`.
    pub(crate) fn new(pages: &str) -> Self {
        let template = format!("{{bar:40}} {{pos}} of {{len}} {pages}, {{msg}}");
        let style = ProgressStyle::with_template(&template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: ProgressBar::new(0).with_style(style),
            pace: Pace::default(),
            begun: Instant::now(),
        }
    }

    /// Shows how it stands.
    pub(crate) fn note(&mut self, now: &Standing<'_>) {
        self.pace.note(self.begun.elapsed(), now.count);
        self.bar.set_length(now.total);
        self.bar.set_position(now.total.saturating_sub(now.count));
        self.bar.set_message(self.pace.describe());
    }

    /// Takes it off the screen; the seconds since it began.
    pub(crate) fn end(self) -> f64 {
        self.bar.finish_and_clear();
        self.begun.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_files_are_understood() {
        let running = Standing {
            count: 3,
            total: 10,
            state: "running",
            more: Vec::new(),
        };
        let text = "dirty 3 of 10\nstate running\n";
        assert_eq!(Standing::parse(text), Some(running));
        let text = "seconds 0 of 0\nstate failed: disk full\n/x\ny\n";
        let failed = Standing::parse(text).expect("parses");
        assert_eq!(failed.state, "failed: disk full");
        assert_eq!(failed.more, ["/x", "y"]);
        for text in [
            "",
            "dirty 3\n",
            "dirty 3 of 4",
            "dirty x of 3\nstate idle\n",
        ] {
            assert_eq!(Standing::parse(text), None, "{text}");
        }
    }
}
