//! Advice by a sample: simulated at the size that fits the sample, told at that of the whole.
//!
//! With a share R of all extents, a tier of R times the bytes does to them what the whole tier does
//! to all, so a gain in per cent stays as it is. What is bought costs 1/R as much a byte meanwhile;
//! bytes, pages and requests of the outcome are those of the sample over R. An object that is
//! wholly on flash takes R times its pages of it, so that the policy keeps its share.

use super::{Advice, Line, Question, State, id};
use crate::placement::{Accesses, ObjectProfile};
use crate::plan::Choice;
use crate::workload::Facts;

pub(super) struct Scale<'a> {
    share: f64,
    page: u64,
    /// Pages of each object, to the page: addresses of the sample are those of the whole.
    extents: &'a [u64],
    /// The size there is, to the byte, and what it becomes.
    now: [u64; 2],
}

impl<'a> Scale<'a> {
    pub(super) fn new(facts: &'a Facts, now: u64) -> Self {
        let mut scale = Self {
            share: facts.share,
            page: u64::from(facts.page_size),
            extents: &facts.extents,
            now: [now; 2],
        };
        scale.now[1] = scale.down(now);
        scale
    }

    /// So many bytes of the sample.
    fn down(&self, bytes: u64) -> u64 {
        match bytes {
            0 => 0,
            bytes => self.whole_pages(bytes as f64 * self.share),
        }
    }

    /// So many bytes of all.
    fn up(&self, bytes: u64) -> u64 {
        match bytes {
            0 => 0,
            bytes if bytes == self.now[1] => self.now[0],
            bytes => self.whole_pages(bytes as f64 / self.share),
        }
    }

    fn whole_pages(&self, bytes: f64) -> u64 {
        (bytes / self.page as f64).round().max(1.0) as u64 * self.page
    }

    fn count(&self, sampled: u64) -> u64 {
        (sampled as f64 / self.share).round() as u64
    }

    pub(super) fn state_of_sample(&self, state: &State) -> State {
        State {
            flash_bytes: self.down(state.flash_bytes),
            memory_bytes: self.down(state.memory_bytes),
            ..state.clone()
        }
    }

    /// The question at the size of the sample.
    pub(super) fn question(&self, question: &Question) -> Question {
        let mut asked = question.clone();
        asked.now = self.state_of_sample(&question.now);
        let pages = |pages: &u32| (f64::from(*pages) * self.share).round().max(1.0) as u32;
        asked.sizes = question.sizes.iter().map(pages).collect();
        asked.sizes.dedup();
        asked.prices.flash_per_gib /= self.share;
        asked.prices.dram_per_gib /= self.share;
        asked
    }

    /// The advice at the size of the whole.
    pub(super) fn advice(&self, question: &Question, mut advice: Advice) -> Advice {
        advice.lines.iter_mut().for_each(|line| self.line(line));
        let options = advice.plan.options.iter_mut();
        options.for_each(|choice| self.choice(choice));
        advice.plan.prices = question.prices;
        for (bytes, _) in &mut advice.sizes {
            *bytes = self.up(*bytes);
        }
        for way in &mut advice.placements {
            way.flash_bytes = self.up(way.flash_bytes);
        }
        advice.profiles.iter_mut().for_each(|row| self.profile(row));
        advice
    }

    fn line(&self, line: &mut Line) {
        for state in [&mut line.now, &mut line.then] {
            state.flash_bytes = self.up(state.flash_bytes);
            state.memory_bytes = self.up(state.memory_bytes);
        }
        if let Some(row) = &mut line.object {
            self.profile(row);
        }
        line.dirty_bytes = line.dirty_bytes.map(|bytes| self.up(bytes));
        line.base_requests_saved = line.base_requests_saved.map(|saved| saved / self.share);
        line.id = id(line.kind, &line.then, line.object.as_ref());
    }

    fn choice(&self, choice: &mut Choice) {
        choice.flash_bytes = self.up(choice.flash_bytes);
        choice.flash_pages = choice.flash_bytes / self.page;
        choice.pool_bytes = self.up(choice.pool_bytes);
        choice.metadata_bytes = self.count(choice.metadata_bytes);
        choice.flash_bytes_per_day = choice.flash_bytes_per_day.map(|bytes| bytes / self.share);
    }

    fn profile(&self, row: &mut ObjectProfile) {
        row.pages = self.extents[row.object.0 as usize];
        let Accesses {
            random_reads,
            sequential_reads,
            random_writes,
            sequential_writes,
        } = &mut row.accesses;
        for count in [
            random_reads,
            sequential_reads,
            random_writes,
            sequential_writes,
        ] {
            *count = self.count(*count);
        }
    }
}
