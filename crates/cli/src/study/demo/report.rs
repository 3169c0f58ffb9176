//! What the demo says in words, its table and its notes.

use super::outcome::{Outcome, share};
use super::run::Plan;
use crate::show::table::Table;
use crate::units::{show_bytes, show_count};
use anyhow::Result;

/// Column names of the table.
pub(crate) const COLUMNS: [&str; 9] = [
    "configuration",
    "tx/s",
    "DRAM",
    "flash",
    "base",
    "base reads",
    "base writes",
    "flash",
    "speed-up",
];

/// The table as printed.
pub(crate) fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&COLUMNS);
    outcomes
        .iter()
        .for_each(|outcome| table.row(cells(outcome)));
    table
}

/// One row: rate, where the reads were served, device time a transaction, speed-up.
pub(crate) fn cells(run: &Outcome) -> [String; COLUMNS.len()] {
    let total = run.reads.total();
    let percent = |part: u64| format!("{:.1} %", 100.0 * share(part, total));
    let tiered = !run.flash.is_empty();
    let ms = |value: f64| format!("{value:.1} ms");
    let if_tiered = |text: String| if tiered { text } else { "-".to_owned() };
    [
        run.configuration.clone(),
        rate(run.transactions_per_second),
        percent(run.reads.pool),
        if_tiered(percent(run.reads.flash)),
        percent(run.reads.base),
        ms(run.base_read_ms_per_transaction),
        ms(run.base_write_ms_per_transaction),
        if_tiered(ms(run.flash_ms_per_transaction)),
        run.speed_up
            .map_or_else(|| "-".to_owned(), |times| format!("{times:.1}×")),
    ]
}

fn rate(per_second: f64) -> String {
    if per_second < 100.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

/// What runs on what: the lines before the runs.
pub(crate) fn summary(plan: &Plan) -> Result<Vec<String>> {
    let bytes = std::fs::metadata(&plan.template)?.len();
    let dram = plan.pool_bytes + plan.cache_bytes;
    let clock = match plan.real_time {
        true => "the runs wait for it",
        false => "its time is computed and added to the clock, not waited for",
    };
    let busy = match plan.scale.skew > 0.0 {
        true => format!("unequally busy (1/n^{})", plan.scale.skew),
        false => "equally busy".to_owned(),
    };
    Ok(vec![
        format!(
            "database  {} of TPC-C-shaped tables in SQLite, {} pages; {} warehouses, {busy}",
            show_bytes(bytes),
            show_bytes(u64::from(plan.page_size)),
            plan.scale.warehouses,
        ),
        format!(
            "memory    {} for pages, in SQLite and in the pool below it",
            show_bytes(dram)
        ),
        format!(
            "flash     {} in a file in {}, as fast as that is; TAC regions of {} pages",
            show_bytes(plan.flash_bytes),
            plan.directory.parent().unwrap_or(&plan.directory).display(),
            plan.region_pages,
        ),
        format!("base      an emulated 7200-rpm disk: {clock}"),
        format!(
            "runs      {} transactions each, the last {} measured; one client; the log is beside \
             the flash file in all of them",
            show_count(plan.warm_up + plan.transactions),
            show_count(plan.transactions),
        ),
    ])
}

/// What a reader of the table has to know.
pub(crate) fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = vec![
        "tx/s is by the emulated disk's time plus the measured time of everything else.".to_owned(),
        "%: where the page reads were served that SQLite's own cache did not; ms: device time a \
         transaction."
            .to_owned(),
        "The tier is write-through: it saves reads of the disk, not writes.".to_owned(),
    ];
    for run in outcomes.iter().filter(|run| run.cut_short) {
        let done = show_count(run.transactions);
        notes.push(match run.warm_up_transactions {
            0 => format!(
                "{}: cut short in its warm-up, which is what is shown",
                run.configuration
            ),
            _ => format!(
                "{}: cut short after {done} measured transactions",
                run.configuration
            ),
        });
    }
    notes
}
