//! What `joint` prints: one table for each size of the database.

use super::JointArgs;
use crate::failure::Outcome;
use crate::show::curve_page::{self, Page};
use crate::show::plot::Curve;
use crate::show::table::Table;
use crate::study::parameters::changed;
use crate::units::{show_bytes, show_count, show_share};
use std::fmt::Write as _;
use std::path::Path;
use thermocline_sim::Workload;
use thermocline_sim::joint::{JointExperiment, JointResult};

/// What was simulated, then the tables.
pub(super) fn text(
    args: &JointArgs,
    workload: &Workload,
    experiment: &JointExperiment,
    results: &[JointResult],
) -> String {
    let mut out = format!("trace     {}\n", args.reading.input.title());
    for line in facts(workload, experiment) {
        let _ = writeln!(out, "{line}");
    }
    let tiers = experiment.combinations.iter().map(|pair| &pair.tier);
    out += &changed(
        tiers.collect::<std::collections::BTreeSet<_>>(),
        &experiment.policy_options,
    );
    for &database in &experiment.databases {
        let of_size = |run: &&JointResult| run.database == database;
        let runs: Vec<&JointResult> = results.iter().filter(of_size).collect();
        out += &heading(workload, database, &runs);
        out += &costs(&runs).to_string();
        out += "\n";
        out += &pages(&runs).to_string();
        if !experiment.zones.is_empty() {
            out += "\n";
            out += &maps(&runs).to_string();
        }
    }
    out
}

/// The same as an HTML file at `path`, with device time by size of the database.
pub(super) fn page(args: &JointArgs, results: &[JointResult], text: &str, path: &Path) -> Outcome {
    let of_each = |run: &JointResult| match run.ms_per_transaction {
        Some(ms) => ms,
        None => 1000.0 * run.device_ms / run.requests.max(1) as f64,
    };
    let name = |run: &JointResult| format!("{}, pool {:.0} %", run.combination, 100.0 * run.pool);
    let mut curves: Vec<Curve> = Vec::new();
    for run in results {
        let point = (run.database, of_each(run));
        match curves.iter_mut().find(|curve| curve.name == name(run)) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                name: name(run),
                points: vec![point],
            }),
        }
    }
    let sum = |curve: &Curve| curve.points.iter().map(|point| point.1).sum::<f64>();
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves.sort_by(|a, b| sum(a).total_cmp(&sum(b)));
    let title = args.reading.input.title();
    let y_title = match args.transactions {
        Some(_) => "device time a transaction, ms",
        None => "device time of 1,000 page requests, ms",
    };
    curve_page::write(
        path,
        &Page {
            title: &format!("{title}: pool and tier together"),
            heading: "",
            sentence: "Time that base and flash together spend serving: less is better. The first \
                       name is the best over all sizes.",
            curves: &curves,
            x_title: "size of the database, times the tier",
            y_title,
            figures: text,
        },
    )
}

fn facts(workload: &Workload, experiment: &JointExperiment) -> Vec<String> {
    let facts = workload.facts();
    let page = u64::from(facts.page_size);
    let mut lines = vec![
        format!(
            "requests  {} I/Os, split into {} requests for pages of {}: {} reads, {} writes",
            show_count(facts.ios),
            show_count(facts.requests),
            show_bytes(page),
            show_count(facts.reads),
            show_count(facts.writes),
        ),
        format!(
            "database  {} different pages ({}); warm-up {} page requests",
            show_count(facts.distinct_pages),
            show_bytes(facts.distinct_pages.saturating_mul(page)),
            show_count(experiment.warm_up),
        ),
    ];
    if let Some(devices) = &experiment.devices {
        lines.push(format!(
            "devices   base {}, flash {}; {} client(s) in a closed loop, virtual time",
            devices.base.describe(),
            devices.flash.describe(),
            experiment.clients
        ));
    }
    lines
}

fn heading(workload: &Workload, database: f64, runs: &[&JointResult]) -> String {
    let page = u64::from(workload.facts().page_size);
    let tier = runs.iter().map(|run| run.tier_pages).max().unwrap_or(0);
    format!(
        "\ndatabase {database} times the tier: flash {} pages, {}\n",
        show_count(tier),
        show_bytes(tier.saturating_mul(page)),
    )
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}

fn percent(share: Option<f64>, digits: usize) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.digits$}", 100.0 * share))
}

/// The columns of tables 6.12 to 6.18 of the thesis.
fn costs(runs: &[&JointResult]) -> Table {
    let per_transaction = runs.iter().any(|run| run.transactions.is_some());
    let (base, flash, total) = match per_transaction {
        true => ("base ms/tx", "flash ms/tx", "total ms/tx"),
        false => ("base ms/read", "flash ms/read", "total ms/read"),
    };
    let mut table = Table::new(&[
        "combination",
        "pool",
        "base util %",
        base,
        "flash util %",
        flash,
        total,
        "pool misses %",
        "on flash %",
        "off flash %",
        "tx/min",
    ]);
    for run in runs {
        let each = |ms: f64, of_transaction: Option<f64>| match per_transaction {
            true => number(of_transaction, 2),
            false => number((run.reads > 0).then(|| ms / run.reads as f64), 3),
        };
        table.row([
            run.combination.clone(),
            format!("{:.0} %", 100.0 * run.pool),
            percent(run.base_utilisation, 0),
            each(run.base_device_ms, run.base_ms_per_transaction),
            percent(run.flash_utilisation, 0),
            each(run.flash_device_ms, run.flash_ms_per_transaction),
            each(run.device_ms, run.ms_per_transaction),
            percent(run.miss_rate, 2),
            percent(run.miss_rate_on_flash, 2),
            percent(run.miss_rate_off_flash, 2),
            number(run.transactions_per_minute, 0),
        ]);
    }
    table
}

/// Where pages went.
fn pages(runs: &[&JointResult]) -> Table {
    let mut table = Table::new(&[
        "pages",
        "pool",
        "read from base",
        "from flash",
        "reads on flash",
        "to flash",
        "to base",
        "at once",
        "from pool",
        "destaged",
        "in I/Os",
    ]);
    for run in runs {
        let on_flash = run.reads_on_flash.unwrap_or(0.0);
        table.row([
            run.combination.clone(),
            format!("{:.0} %", 100.0 * run.pool),
            show_count(run.base_reads),
            show_count(run.flash_reads),
            show_share((on_flash * 1e6) as u64, 1_000_000),
            show_count(run.flash_writes),
            show_count(run.base_writes),
            show_count(run.writes_through),
            show_count(run.cleaned_to_base),
            show_count(run.destage_writes),
            show_count(run.destage_ios),
        ]);
    }
    table
}

/// The map's journal beside eviction zones.
fn maps(runs: &[&JointResult]) -> Table {
    let mut table = Table::new(&[
        "map",
        "pool",
        "kept by",
        "written",
        "bytes",
        "per data byte",
    ]);
    for run in runs {
        let pool = format!("{:.0} %", 100.0 * run.pool);
        let bytes = run.journal_bytes + run.checkpoint_bytes;
        table.row([
            run.combination.clone(),
            pool.clone(),
            "journal".into(),
            show_count(run.commits),
            show_count(bytes),
            number(run.map_bytes_per_data_byte, 5),
        ]);
        for zone in &run.zones {
            table.row([
                run.combination.clone(),
                pool.clone(),
                format!("zone {} %", zone.percent),
                show_count(zone.checkpoints),
                show_count(zone.bytes),
                number(zone.per_data_byte, 5),
            ]);
        }
    }
    table
}
