//! Finds the lines.

use super::{
    Advice, GAIN_MIN, Gain, Kind, Line, Placement, Question, Simulator, State, WEAR_SECONDS_MIN,
    id, pages, run_states,
};
use crate::error::SimError;
use crate::experiment::{NO_TIER, Progress, Setting, run_each};
use crate::mrc::Rate;
use crate::placement::{
    self, Chosen, Fill, Fixed, Holding, Item, ObjectProfile, curves, divide, greedy, indexes_only,
    items,
};
use crate::plan::{self, Choice, Plan, PlanOptions};
use crate::result::RunResult;
use crate::workload::Workload;
use thermocline_core::{Costs, ObjectId};

const GIB: f64 = (1u64 << 30) as f64;
/// Objects that are tried for a pin, and for a bypass.
const TRIED: usize = 5;
/// Pages in the sample of the curves of objects.
const SAMPLE: u64 = 1 << 16;
/// Flash writes that an object must waste for its bypass to be tried, and that a bypass must save
/// for a line; per cent of the virtual time that it may cost.
const BYPASS_TRIED: f64 = 0.02;
const BYPASS_SAVES: f64 = 0.1;
const BYPASS_COSTS: f64 = 1.0;

/// Whether the gain is sure, and large enough for a line.
fn is_worth_it(line: &Line) -> bool {
    line.gain.is_sure() && line.gain.percent >= GAIN_MIN
}

/// One advice in the making: runs are kept by their state.
pub(super) struct Adviser<'a> {
    workload: &'a Workload,
    question: &'a Question,
    progress: &'a Progress,
    rows: Vec<ObjectProfile>,
    costs: Costs,
    options: PlanOptions,
    days: f64,
    runs: Vec<(Simulator, State, RunResult)>,
}

impl<'a> Adviser<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        question: &'a Question,
        progress: &'a Progress,
    ) -> Result<Self, SimError> {
        let devices = question.experiment.devices.as_ref();
        let costs = devices.map(|devices| devices.costs(workload.facts().page_size));
        Ok(Self {
            workload,
            question,
            progress,
            rows: placement::profile(workload)?,
            costs: costs.unwrap_or_default(),
            options: PlanOptions {
                experiment: question.experiment.clone(),
                flash: question.sizes.clone(),
                pools: Vec::new(),
                prices: question.prices,
                endurance: question.endurance,
                worth: question.worth,
                target: None,
            },
            days: plan::days(workload, question.experiment.warm_up),
            runs: Vec::new(),
        })
    }

    pub(super) fn advise(mut self) -> Result<Advice, SimError> {
        let now = self.question.now.clone();
        let (plan, sizes) = self.sizes()?;
        let wanted = self.wanted(&plan);
        let mut lines: Vec<Line> = self.size(&now, wanted)?.into_iter().collect();
        let memory = match lines.first() {
            Some(size) => self.memory(&size.clone())?,
            None => None,
        };
        let (mut placements, mut write_back) = (Vec::new(), None);
        let from = lines.last().map_or(&now, |line| &line.then).clone();
        if from.flash_bytes > 0 {
            placements = self.placements(from.flash_bytes, &from.policy)?;
            lines.extend(self.policy(&from)?);
            let from = lines.last().map_or(&now, |line| &line.then).clone();
            write_back = self.write_back(&from)?;
            let finders = [Self::pin, Self::pin, Self::bypass, Self::bypass];
            for find in finders {
                let from = lines.last().map_or(&now, |line| &line.then).clone();
                lines.extend(find(&mut self, &from)?);
            }
        }
        let together = self.together(&lines)?;
        lines.extend(memory);
        lines.extend(write_back);
        Ok(Advice {
            lines,
            together,
            plan,
            sizes,
            placements,
            tells_wear: self.days * 86_400.0 >= WEAR_SECONDS_MIN,
            profiles: self.rows,
        })
    }

    /// The runs of `states`; what was run before is not run again.
    fn runs(&mut self, states: &[State]) -> Result<Vec<RunResult>, SimError> {
        let mut all: Vec<&State> = states.iter().collect();
        all.push(&self.question.now);
        let by = Simulator::of(&all);
        let known = |state: &State| {
            let mut runs = self.runs.iter();
            runs.any(|(other, of, _)| (*other, of) == (by, state))
        };
        let mut new: Vec<&State> = Vec::new();
        for state in states {
            if !known(state) && !new.contains(&state) {
                new.push(state);
            }
        }
        let experiment = &self.question.experiment;
        let found = run_states(
            self.workload,
            experiment,
            &self.rows,
            &new,
            by,
            self.progress,
        )?;
        let found = new.into_iter().cloned().zip(found);
        self.runs.extend(found.map(|(state, run)| (by, state, run)));
        let run = |state: &State| {
            let mut all = self.runs.iter();
            all.find(|(other, of, _)| (*other, of) == (by, state))
                .map(|(_, _, run)| run.clone())
        };
        Ok(states.iter().filter_map(run).collect())
    }

    /// Base alone, below the pool there is.
    fn alone(&self) -> State {
        State {
            policy: self.question.now.policy.clone(),
            memory_bytes: self.question.now.memory_bytes,
            ..State::default()
        }
    }

    /// What a run would cost; the pool there is costs nothing.
    fn choice(&self, run: &RunResult) -> Choice {
        let mut choice = plan::choice(run, &self.options, self.days);
        let there = self.question.now.memory_bytes.min(choice.pool_bytes);
        choice.pool_bytes -= there;
        choice.cost -= there as f64 * self.options.prices.dram_per_gib / GIB;
        choice
    }

    /// The size that is worth its money, bytes, going up from what there is. What was bought is not
    /// weighed again: from nothing the way up may end before it.
    fn wanted(&self, plan: &Plan) -> u64 {
        let now = self.question.now.flash_bytes;
        let from_now = plan.options.iter().filter(|c| c.flash_bytes >= now);
        let from_now = from_now.cloned().collect();
        let wanted = plan::decide(plan.policy.clone(), from_now, &self.options);
        wanted.options[wanted.recommended].flash_bytes
    }

    /// All sizes under the policy there is, and what each gains.
    fn sizes(&mut self) -> Result<(Plan, Vec<(u64, Gain)>), SimError> {
        let page = u64::from(self.workload.facts().page_size);
        let now = self.question.now.clone();
        let sized = |pages: &u32| State {
            flash_bytes: u64::from(*pages) * page,
            ..now.clone()
        };
        let mut states: Vec<State> = self.question.sizes.iter().map(sized).collect();
        if now.flash_bytes > 0 && !states.contains(&now) {
            states.push(now.clone());
        }
        states.sort_by_key(|state| state.flash_bytes);
        states.insert(0, self.alone());
        let runs = self.runs(&states)?;
        let gain = |run: &RunResult| (run.capacity_pages * page, Gain::between(&runs[0], run));
        let gains = runs.iter().map(gain).collect();
        let choices = runs.iter().map(|run| self.choice(run));
        let plan = plan::decide(now.policy.clone(), choices.collect(), &self.options);
        Ok((plan, gains))
    }

    /// The size that is wanted, when it is larger than what there is.
    fn size(&mut self, now: &State, wanted: u64) -> Result<Option<Line>, SimError> {
        let then = State {
            flash_bytes: wanted,
            ..now.clone()
        };
        if then.flash_bytes <= now.flash_bytes {
            return Ok(None);
        }
        let from = if now.flash_bytes == 0 {
            self.alone()
        } else {
            now.clone()
        };
        let line = self.line(Kind::Size, &from, then, None)?;
        Ok(Some(line).filter(is_worth_it))
    }

    /// The same money as `size` in memory, when that gains more.
    fn memory(&mut self, size: &Line) -> Result<Option<Line>, SimError> {
        let price = self.question.prices.dram_per_gib;
        let others = !size.now.pinned.is_empty() || !size.now.bypassed.is_empty();
        if price <= 0.0 || others || size.now.write_back {
            return Ok(None);
        }
        let page = u64::from(self.workload.facts().page_size);
        let frames = (size.cost / price * GIB) as u64 / page;
        let then = State {
            memory_bytes: size.now.memory_bytes + frames * page,
            ..size.now.clone()
        };
        if frames == 0 {
            return Ok(None);
        }
        let line = self.line(Kind::Memory, &size.now, then, None)?;
        let better = line.gain.percent > size.gain.percent && is_worth_it(&line);
        Ok(better.then_some(line))
    }

    /// The fastest policy, when it is surely faster.
    fn policy(&mut self, from: &State) -> Result<Option<Line>, SimError> {
        let with = |policy: &String| State {
            policy: policy.clone(),
            ..from.clone()
        };
        let states: Vec<State> = self.question.policies.iter().map(with).collect();
        let runs = self.runs(&states)?;
        let timed = states.into_iter().zip(runs);
        let best = timed.min_by(|a, b| a.1.elapsed_ms.total_cmp(&b.1.elapsed_ms));
        let Some((then, _)) = best.filter(|(then, _)| then.policy != from.policy) else {
            return Ok(None);
        };
        let line = self.line(Kind::Policy, from, then, None)?;
        Ok(Some(line).filter(is_worth_it))
    }

    /// Writes that stay on flash, when that is surely faster; nothing where they do already.
    fn write_back(&mut self, from: &State) -> Result<Option<Line>, SimError> {
        if from.write_back || self.workload.facts().writes == 0 {
            return Ok(None);
        }
        let then = State {
            write_back: true,
            ..from.clone()
        };
        let line = self.line(Kind::WriteBack, from, then, None)?;
        Ok(Some(line).filter(is_worth_it))
    }

    /// The object whose pin gains most, when it gains surely: those with most time lost on base
    /// per page are tried.
    fn pin(&mut self, from: &State) -> Result<Option<Line>, SimError> {
        let run = self.run(from)?;
        let page = u64::from(self.workload.facts().page_size);
        let taken: u64 = self.named(&from.pinned).map(|row| row.pages).sum();
        // A tenth stays with the policy, or `pin` refuses.
        let slots = from.flash_bytes / page;
        let room = (slots - slots.div_ceil(10)).saturating_sub(taken);
        let lost = |row: &ObjectProfile| self.lost(row, &run) / row.pages.max(1) as f64;
        let free = |row: &&ObjectProfile| {
            row.pages <= room && !from.pinned.contains(&row.path) && self.lost(row, &run) > 0.0
        };
        let mut rows: Vec<ObjectProfile> = self.rows.iter().filter(free).cloned().collect();
        rows.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
        rows.truncate(TRIED);
        let pinned = |row: &ObjectProfile| {
            let mut then = from.clone();
            then.bypassed.retain(|path| *path != row.path);
            then.pinned.push(row.path.clone());
            then
        };
        let mut lines = self.tried(Kind::Pin, from, rows, pinned)?;
        lines.retain(is_worth_it);
        let best = |a: &Line, b: &Line| a.gain.percent.total_cmp(&b.gain.percent);
        Ok(lines.into_iter().max_by(best))
    }

    /// The object that wears the flash most and hardly hits.
    fn bypass(&mut self, from: &State) -> Result<Option<Line>, SimError> {
        let run = self.run(from)?;
        let useless = |row: &ObjectProfile| {
            let totals = run.by_object[row.object.0 as usize];
            totals.flash_writes.saturating_sub(totals.read_hits)
        };
        let free = |row: &&ObjectProfile| {
            let named = from.pinned.contains(&row.path) || from.bypassed.contains(&row.path);
            !named && useless(row) as f64 >= BYPASS_TRIED * run.flash_writes as f64
        };
        let mut rows: Vec<ObjectProfile> = self.rows.iter().filter(free).cloned().collect();
        rows.retain(|row| useless(row) > 0);
        rows.sort_by_key(|row| std::cmp::Reverse(useless(row)));
        rows.truncate(TRIED);
        let bypassed = |row: &ObjectProfile| {
            let mut then = from.clone();
            then.bypassed.push(row.path.clone());
            then
        };
        let mut lines = self.tried(Kind::Bypass, from, rows, bypassed)?;
        lines.retain(|line| {
            let saves = line
                .more_flash_writes
                .is_some_and(|more| more <= -BYPASS_SAVES);
            saves && line.gain.percent - line.gain.shown() >= -BYPASS_COSTS
        });
        let more = |line: &Line| line.more_flash_writes.unwrap_or(0.0);
        Ok(lines.into_iter().min_by(|a, b| more(a).total_cmp(&more(b))))
    }

    /// A line for each of `rows`; all are run at the same time.
    fn tried(
        &mut self,
        kind: Kind,
        from: &State,
        rows: Vec<ObjectProfile>,
        then: impl Fn(&ObjectProfile) -> State,
    ) -> Result<Vec<Line>, SimError> {
        let states: Vec<State> = rows.iter().map(then).collect();
        self.runs(&states)?;
        let lines = states.into_iter().zip(rows);
        lines
            .map(|(then, row)| self.line(kind, from, then, Some(row)))
            .collect()
    }

    fn line(
        &mut self,
        kind: Kind,
        now: &State,
        then: State,
        object: Option<ObjectProfile>,
    ) -> Result<Line, SimError> {
        let runs = self.runs(&[now.clone(), then.clone()])?;
        let [before, after] = [&runs[0], &runs[1]];
        let seconds = self.days * 86_400.0;
        let years = |run: &RunResult| {
            let years = self.choice(run).endurance_years;
            years.filter(|_| seconds >= WEAR_SECONDS_MIN)
        };
        let cost = |run: &RunResult| self.choice(run).cost;
        let bought = match kind {
            Kind::Size | Kind::Memory => cost(after) - cost(before),
            Kind::Policy | Kind::Pin | Kind::Bypass | Kind::WriteBack => 0.0,
        };
        let saved = before.base_ios as f64 - after.base_ios as f64;
        Ok(Line {
            id: id(kind, &then, object.as_ref()),
            kind,
            gain: Gain::between(before, after),
            page_size: u64::from(self.workload.facts().page_size),
            cost: bought.max(0.0),
            loser: self.loser(before, after),
            more_flash_writes: (before.flash_writes > 0)
                .then(|| after.flash_writes as f64 / before.flash_writes as f64 - 1.0),
            years: [years(before), years(after)],
            dirty_bytes: then.write_back.then_some(after.dirty_bytes),
            base_requests_saved: (seconds > 0.0).then(|| saved / seconds),
            now: now.clone(),
            then,
            object,
        })
    }

    /// The object whose reads lose most time on base: its share of the time of all reads before,
    /// those from flash included.
    fn loser(&self, before: &RunResult, after: &RunResult) -> Option<(String, f64)> {
        let more = |row: &ObjectProfile| self.lost(row, after) - self.lost(row, before);
        let took = |row: &ObjectProfile| {
            let reads = before.by_object[row.object.0 as usize].reads;
            reads as f64 * self.costs.flash_read + self.lost(row, before)
        };
        let all: f64 = self.rows.iter().map(took).sum();
        let worst = self
            .rows
            .iter()
            .max_by(|a, b| more(a).total_cmp(&more(b)))?;
        let share = 100.0 * more(worst) / all;
        (share.is_finite() && share > 0.05).then(|| (worst.name.clone(), share))
    }

    /// Time that reads of an object lost on base in `run`, ns, by costs; none where flash is
    /// slower.
    fn lost(&self, row: &ObjectProfile, run: &RunResult) -> f64 {
        let totals = run.by_object[row.object.0 as usize];
        let reads = row.accesses.reads().max(1) as f64;
        let saved = row.benefit(&self.costs, Holding::Copied) / reads;
        (totals.reads - totals.read_hits) as f64 * saved.max(0.0)
    }

    fn run(&mut self, state: &State) -> Result<RunResult, SimError> {
        let mut runs = self.runs(std::slice::from_ref(state))?;
        Ok(runs.remove(0))
    }

    fn named<'b>(&'b self, paths: &'b [String]) -> impl Iterator<Item = &'b ObjectProfile> {
        self.rows.iter().filter(|row| paths.contains(&row.path))
    }

    /// All lines, one after another.
    fn together(&mut self, lines: &[Line]) -> Result<Option<Gain>, SimError> {
        let [first, .., last] = lines else {
            return Ok(None);
        };
        let runs = self.runs(&[first.now.clone(), last.then.clone()])?;
        Ok(Some(Gain::between(&runs[0], &runs[1])))
    }

    /// Ways to use `bytes` of flash, each in a run of its own: OPA, its rivals, and caches.
    ///
    /// In write-back a copy and a cache absorb writes, as the tier does. Objects that were moved
    /// have no copy to absorb for, and parts with an LRU each no mode: these are left out.
    fn placements(&mut self, bytes: u64, policy: &str) -> Result<Vec<Placement>, SimError> {
        let page = u64::from(self.workload.facts().page_size);
        let mut ways = self.ways(bytes / page, policy)?;
        let alone = Setting {
            policy: NO_TIER.into(),
            frames: self.frames(),
            ..Setting::default()
        };
        let mut placements = Vec::new();
        if self.question.now.write_back {
            placements = self.written_back(&ways, policy)?;
            ways.retain(|(_, setting)| !setting.fixed.moved.is_empty());
        }
        let settings = ways.iter().map(|(_, setting)| setting.clone());
        let settings: Vec<Setting> = std::iter::once(alone).chain(settings).collect();
        let experiment = &self.question.experiment;
        let runs = run_each(self.workload, experiment, &settings, self.progress)?;
        let row = |((name, setting), run): (&(&str, Setting), &RunResult)| Placement {
            name: (*name).to_string(),
            flash_bytes: u64::from(setting.capacity) * page,
            gain: Gain::between(&runs[0], run),
            objects: self.paths(&setting.fixed),
        };
        let moved: Vec<Placement> = ways.iter().zip(&runs[1..]).map(row).collect();
        Ok(moved.into_iter().chain(placements).collect())
    }

    /// The copies and caches of `ways`, with writes that stay on flash.
    fn written_back(
        &mut self,
        ways: &[(&'static str, Setting)],
        policy: &str,
    ) -> Result<Vec<Placement>, SimError> {
        let page = u64::from(self.workload.facts().page_size);
        let mut placements = Vec::new();
        for (name, setting) in ways {
            let fixed = &setting.fixed;
            if !fixed.moved.is_empty() || !fixed.shares.is_empty() || setting.capacity == 0 {
                continue;
            }
            let state = State {
                flash_bytes: u64::from(setting.capacity) * page,
                policy: policy.to_string(),
                pinned: self.paths(fixed),
                write_back: true,
                ..self.alone()
            };
            let runs = self.runs(&[self.alone(), state.clone()])?;
            placements.push(Placement {
                name: (*name).to_string(),
                flash_bytes: state.flash_bytes,
                gain: Gain::between(&runs[0], &runs[1]),
                objects: state.pinned,
            });
        }
        Ok(placements)
    }

    /// Frames of the pool there is.
    fn frames(&self) -> u32 {
        let page_size = self.workload.facts().page_size;
        pages(self.question.now.memory_bytes, page_size)
    }

    /// Names of the objects that are wholly on flash.
    fn paths(&self, fixed: &Fixed) -> Vec<String> {
        let whole = fixed.moved.iter().chain(&fixed.pinned);
        let path = |object: &ObjectId| self.rows.iter().find(|row| row.object == *object);
        whole.filter_map(path).map(|row| row.path.clone()).collect()
    }

    /// Names and settings of the ways to use `capacity` pages.
    fn ways(&self, capacity: u64, policy: &str) -> Result<Vec<(&'static str, Setting)>, SimError> {
        let [moved, copied] = [Holding::Moved, Holding::Copied]
            .map(|holding| items(&self.rows, &self.costs, holding));
        let opa = |items: &[Item]| greedy(items, capacity, Fill::Seeded);
        let objects = |chosen: Chosen| -> Vec<ObjectId> {
            let positions = chosen.items.into_iter();
            positions.map(|at| self.rows[at].object).collect()
        };
        let on_flash = |moved| Fixed {
            moved,
            ..Fixed::default()
        };
        let pinned = |pinned| Fixed {
            pinned,
            ..Fixed::default()
        };
        let rate = Rate::for_pages(self.workload.facts().distinct_pages, SAMPLE);
        let curves = curves(self.workload, &self.rows, &self.costs, rate, self.progress)?;
        let shares = Fixed {
            shares: divide(&curves, capacity),
            ..Fixed::default()
        };
        let facts = self.workload.facts();
        let cached = |capacity: u64, fixed| Setting {
            policy: policy.to_string(),
            capacity: u32::try_from(capacity).unwrap_or(u32::MAX),
            frames: self.frames(),
            fixed,
        };
        // Nothing is left for the policy.
        let alone = |fixed: Fixed| cached(fixed.pages(facts), fixed);
        let best = pinned(objects(opa(&copied)));
        Ok(vec![
            (
                "indexes moved to flash",
                alone(on_flash(objects(indexes_only(&moved, capacity)))),
            ),
            (
                "objects moved by access density",
                alone(on_flash(objects(opa(&moved)))),
            ),
            (
                "indexes copied",
                alone(pinned(objects(indexes_only(&copied, capacity)))),
            ),
            ("objects copied by access density", alone(best.clone())),
            ("objects copied in part, LRU each", alone(shares)),
            ("cache", cached(capacity, Fixed::default())),
            ("objects copied, cache in the rest", cached(capacity, best)),
        ])
    }
}
