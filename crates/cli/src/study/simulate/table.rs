//! The results as text.

use super::SimulateArgs;
use super::conclusion::Ranking;
use crate::show::table::Table;
use crate::study::parameters::changed;
use crate::units::{show_bytes, show_count, show_nanoseconds, show_share};
use clap::ValueEnum;
use std::fmt::Write;
use thermocline_sim::experiment::{Experiment, Results};
use thermocline_sim::result::{LearnedTable, RaceTable, WorthRow};
use thermocline_sim::{RunResult, Workload};

/// Hint sets listed for each policy.
const LEARNED_ROWS: usize = 20;

/// What was simulated, then one table for each size.
pub(super) fn text(
    args: &SimulateArgs,
    workload: &Workload,
    experiment: &Experiment,
    results: &Results,
    ranking: &Ranking,
) -> String {
    let mut out = format!("trace     {}\n", args.reading.input.title());
    for line in facts(workload, experiment) {
        let _ = writeln!(out, "{line}");
    }
    let mode = args.reading.writes.to_possible_value();
    let mode = mode.as_ref().map_or("", |value| value.get_name());
    let _ = writeln!(
        out,
        "writes    {mode}; warm-up {} page requests",
        experiment.warm_up
    );
    out += &changed(&experiment.policies, &experiment.policy_options);
    for &capacity in &experiment.capacities {
        let of_size = |run: &&RunResult| run.capacity_pages == u64::from(capacity);
        let runs: Vec<&RunResult> = results.runs.iter().filter(of_size).collect();
        out += &size_heading(workload, capacity);
        out += &rows(best_first(runs), &results.base_only).to_string();
    }
    for run in &results.runs {
        if let Some(learned) = &run.learned {
            out += &learned_table(run, learned);
        }
    }
    out + "\n" + &ranking.sentence + "\n"
}

/// What is in the trace and what it ran on, a line each: a word, two spaces, the rest.
pub(super) fn facts(workload: &Workload, experiment: &Experiment) -> Vec<String> {
    let facts = workload.facts();
    let page_size = match facts.counts_pages {
        true => format!(
            "pages (of {} where time is told)",
            show_bytes(facts.page_size.into())
        ),
        false => format!("pages of {}", show_bytes(facts.page_size.into())),
    };
    let touched = facts
        .distinct_pages
        .saturating_mul(u64::from(facts.page_size));
    let mut lines = vec![
        format!(
            "requests  {} I/Os, split into {} requests for {page_size}: {} reads, {} writes",
            show_count(facts.ios),
            show_count(facts.requests),
            show_count(facts.reads),
            show_count(facts.writes),
        ),
        format!(
            "pages     {} different ({}); {} of reads are the first request of their page and miss \
             in any tier",
            show_count(facts.distinct_pages),
            show_bytes(touched),
            show_share(facts.first_touch_reads, facts.reads),
        ),
    ];
    if facts.skipped_bypassed > 0 {
        let skipped = show_count(facts.skipped_bypassed);
        lines.push(format!(
            "left out  {skipped} requests recorded past the tier"
        ));
    }
    if let Some(devices) = &experiment.devices {
        lines.push(format!(
            "devices   base {}, flash {}; {} client(s) in a closed loop, virtual time",
            devices.base.describe(),
            devices.flash.describe(),
            experiment.clients
        ));
    }
    if experiment.frames > 0 {
        let frames = u64::from(experiment.frames);
        lines.push(format!("pool      {} pages (LRU)", show_count(frames)));
    }
    lines
}

fn size_heading(workload: &Workload, capacity: u32) -> String {
    let facts = workload.facts();
    let capacity = u64::from(capacity);
    let bytes = capacity.saturating_mul(u64::from(facts.page_size));
    format!(
        "\nflash {} pages, {}, {} of the trace's pages\n",
        show_count(capacity),
        show_bytes(bytes),
        show_share(capacity, facts.distinct_pages)
    )
}

/// Column names of the tables, in text and HTML.
pub(super) const COLUMNS: [&str; 12] = [
    "policy",
    "read hits",
    "by I/O",
    "pool",
    "flash",
    "base reads",
    "flash writes",
    "wear",
    "device time",
    "I/O/s",
    "speed-up",
    "of OPT",
];

/// `runs` of one size, those with most I/Os per second first, then those with most hits.
pub(super) fn best_first(mut runs: Vec<&RunResult>) -> Vec<&RunResult> {
    let order = |run: &RunResult| {
        (
            run.ios_per_s.unwrap_or(0.0),
            run.read_hit_ratio.unwrap_or(0.0),
        )
    };
    runs.sort_by(|a, b| {
        let (a, b) = (order(a), order(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    runs
}

fn rows(runs: Vec<&RunResult>, base_only: &RunResult) -> Table {
    let mut table = Table::new(&COLUMNS);
    for run in runs.into_iter().chain([base_only]) {
        table.row(cells(run));
    }
    table
}

/// One row under [`COLUMNS`].
pub(super) fn cells(run: &RunResult) -> [String; 12] {
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.1} %", 100.0 * share),
        None => "-".into(),
    };
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".into(),
    };
    let rate = run.ios_per_s.map(|rate| match rate < 100.0 {
        true => format!("{rate:.1}"),
        false => show_count(rate.round() as u64),
    });
    [
        run.policy.clone(),
        percent(run.read_hit_ratio),
        percent(run.io_read_hit_ratio),
        show_share(run.pool_hits, run.reads),
        show_share(run.flash_reads, run.reads),
        show_count(run.base_reads),
        show_count(run.flash_writes),
        number(run.wear, 2),
        show_nanoseconds((run.device_ms * 1e6) as u64),
        rate.unwrap_or_else(|| "-".into()),
        number(run.speedup, 2),
        percent(run.opt_share),
    ]
}

fn learned_table(run: &RunResult, learned: &LearnedTable) -> String {
    let mut out = format!(
        "\nlearned by {} with {} pages: {} hint sets after {} windows of {} requests\n",
        run.policy,
        show_count(run.capacity_pages),
        learned.hint_sets.len(),
        learned.windows,
        show_count(learned.window)
    );
    let mut table = Table::new(&["hint set", "N", "Nr", "D", "priority", "on flash"]);
    for row in learned.hint_sets.iter().take(LEARNED_ROWS) {
        let client = match row.client {
            0 => String::new(),
            client => format!("client {client}: "),
        };
        table.row([
            format!("{client}{}", row.hints),
            format!("{:.0}", row.requests),
            format!("{:.0}", row.rereads),
            format!("{:.0}", row.distance),
            format!("{:.3e}", row.priority),
            show_count(u64::from(row.resident)),
        ]);
    }
    out += &table.to_string();
    if learned.hint_sets.len() > LEARNED_ROWS {
        let more = learned.hint_sets.len() - LEARNED_ROWS;
        let _ = writeln!(out, "  ({more} more: --json lists all)");
    }
    if let Some(race) = &learned.race {
        out += &race_table(race);
    }
    out += &worth_table(learned);
    if !learned.hint_types.is_empty() {
        let mut table = Table::new(&["hint type", "impurity", "used"]);
        for hint_type in &learned.hint_types {
            let used = if hint_type.used { "yes" } else { "no" };
            let impurity = format!("{:.2e}", hint_type.impurity);
            table.row([hint_type.name.clone(), impurity, used.to_string()]);
        }
        out += &table.to_string();
    }
    out
}

/// Who leads, by how much, and what the others lack to take over.
fn race_table(race: &RaceTable) -> String {
    let mut out = format!(
        "\nwho leads: {} requests of the sample, {} slots each, {} changes\n",
        show_count(race.requests),
        show_count(u64::from(race.slots)),
        race.changes
    );
    let head = [
        "",
        "read hits",
        "flash writes",
        "score",
        "lead",
        "takes over at",
    ];
    let mut table = Table::new(&head);
    for of in &race.finalists {
        table.row([
            format!("{}{}", of.name, if of.leads { " (leads)" } else { "" }),
            format!("{:.2}%", 100.0 * of.hits),
            format!("{:.2}%", 100.0 * of.flash_writes),
            format!("{:.2}%", 100.0 * of.score),
            format!("{:.0}", of.ahead),
            if of.leads {
                "-".to_string()
            } else {
                format!("{:.0}", of.needed)
            },
        ]);
    }
    out += &table.to_string();
    out
}

/// What a page is worth by hint set, most requests first, and age; nothing where that is not kept.
fn worth_table(learned: &LearnedTable) -> String {
    /// Requests since the last one: of every fourth power of two.
    const AGES: [u64; 5] = [0, 15, 255, 4095, 65_535];
    if learned.worth.is_empty() {
        return String::new();
    }
    let mut sets: Vec<_> = learned.hint_sets.iter().collect();
    sets.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    let mut out =
        "\nworth of a page (1: read at once, 0: never, or written first) by age\n".to_string();
    let names = AGES.map(|age| format!("{} requests", show_count(age)));
    let [a, b, c, d, e] = names.each_ref().map(String::as_str);
    let mut table = Table::new(&["hint set", a, b, c, d, e]);
    for set in sets.iter().take(LEARNED_ROWS) {
        let worth = |age: u64| {
            let same = |row: &&WorthRow| {
                (&row.hints, row.client, row.age) == (&set.hints, set.client, age)
            };
            let row = learned.worth.iter().find(same);
            row.map_or("-".to_string(), |row| format!("{:.3}", row.worth))
        };
        let [a, b, c, d, e] = AGES.map(worth);
        table.row([set.hints.clone(), a, b, c, d, e]);
    }
    out += &table.to_string();
    out
}
