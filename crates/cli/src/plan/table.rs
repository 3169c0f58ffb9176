//! The plan as text: a picture, the efficient options, and a sentence.

use super::PlanArgs;
use crate::curve_page::{self, Page};
use crate::failure::Outcome;
use crate::plot::{self, Axes};
use crate::table::Table;
use crate::units::{show_bytes, show_count, show_nanoseconds, show_share};
use std::fmt::Write;
use std::path::Path;
use thermocline_sim::Workload;
use thermocline_sim::plan::{Choice, Plan, PlanOptions, Reason};

/// Everything.
pub(super) fn text(
    args: &PlanArgs,
    workload: &Workload,
    options: &PlanOptions,
    plan: &Plan,
) -> String {
    let mut out = heading(args, workload, options, plan);
    let dearer = plan.options.iter().any(|choice| choice.cost > 0.0);
    if dearer {
        out += "\n";
        out += &picture(args, plan);
    }
    out += "\n";
    out += &figures(args, plan).to_string();
    let left_out = plan
        .options
        .iter()
        .filter(|choice| !choice.efficient)
        .count();
    if left_out > 0 {
        let _ = writeln!(
            out,
            "  ({left_out} more that cost more without being faster: --json lists all)"
        );
    }
    out + "\n" + &recommendation(args, plan) + "\n"
}

fn heading(args: &PlanArgs, workload: &Workload, options: &PlanOptions, plan: &Plan) -> String {
    let facts = workload.facts();
    let page = u64::from(facts.page_size);
    let [base, flash] = models(options);
    let currency = &args.currency;
    let mut out = format!("trace     {}\n", args.reading.input.title());
    let _ = writeln!(
        out,
        "requests  {} I/Os of {} pages: {} reads, {} writes; the first {} only warm up\n\
         pages     {} different ({}), of {}",
        show_count(facts.ios),
        show_count(facts.requests),
        show_count(facts.reads),
        show_count(facts.writes),
        show_count(options.experiment.warm_up),
        show_count(facts.distinct_pages),
        show_bytes(facts.distinct_pages.saturating_mul(page)),
        show_bytes(page),
    );
    let _ = writeln!(
        out,
        "devices   base {base}, flash {flash}; {} client(s) in a closed loop, virtual time\n\
         prices    flash {} {currency}/GiB, memory {} {currency}/GiB (defaults are assumed)\n\
         wear      a drive as large as the tier, rated for {} drive writes a day, {} years (same)",
        args.devices.clients,
        money(args.flash_price),
        money(args.dram_price),
        args.dwpd,
        args.years
    );
    let from = args.policy.join(", ");
    let _ = writeln!(
        out,
        "policy    {}, the fastest over all sizes of: {from}",
        plan.policy
    );
    out
}

/// The names of base's and flash's models.
pub(super) fn models(options: &PlanOptions) -> [String; 2] {
    let devices = options.experiment.devices.as_ref();
    devices.map_or_else(Default::default, |devices| {
        [devices.base.describe(), devices.flash.describe()]
    })
}

/// The same as an HTML file at `path`.
pub(super) fn page(
    args: &PlanArgs,
    workload: &Workload,
    options: &PlanOptions,
    plan: &Plan,
    path: &Path,
) -> Outcome {
    let highest = plan
        .options
        .iter()
        .fold(0.0, |max: f64, choice| max.max(choice.cost));
    // Axes have one digit after the point.
    let (unit, name) = match highest {
        ..0.01 => (1e6, "1/1,000,000 "),
        0.01..10.0 => (1e3, "1/1,000 "),
        _ => (1.0, ""),
    };
    let place = |choice: &Choice| (choice.cost * unit, choice.ios_per_s);
    let efficient = plan.options.iter().filter(|choice| choice.efficient);
    let base = plan.options[0].ios_per_s;
    let curves = [
        plot::Curve {
            name: "efficient".into(),
            points: efficient.map(place).collect(),
        },
        plot::Curve {
            name: "base alone".into(),
            points: vec![(0.0, base), (highest * unit, base)],
        },
        plot::Curve {
            name: "recommended".into(),
            points: vec![place(&plan.options[plan.recommended])],
        },
    ];
    let title = args.reading.input.title();
    curve_page::write(
        path,
        &Page {
            title: &format!("{title}: which sizes are worth their money"),
            heading: &heading(args, workload, options, plan),
            sentence: &recommendation(args, plan),
            curves: &curves,
            x_title: &format!("cost, {name}{}", args.currency),
            y_title: "I/Os per second (model)",
            figures: &figures(args, plan).to_string(),
        },
    )
}

fn picture(args: &PlanArgs, plan: &Plan) -> String {
    let paid = plan.options.iter().filter(|choice| choice.cost > 0.0);
    let costs = || paid.clone().map(|choice| choice.cost);
    let (low, high) = (
        costs().fold(f64::MAX, f64::min),
        costs().fold(0.0, f64::max),
    );
    let base = plan.options[0].ios_per_s;
    // Efficient options hold until the next: steps.
    let mut points = Vec::new();
    let mut best = base;
    for choice in paid.clone().filter(|choice| choice.efficient) {
        if choice.cost > low {
            points.push((choice.cost * (1.0 - 1e-6), best));
        }
        best = choice.ios_per_s;
        points.push((choice.cost, best));
    }
    points.push((high.max(low * 1.01), best));
    let curves = [
        plot::Curve {
            name: "the fastest for the money".into(),
            points,
        },
        plot::Curve {
            name: "base alone".into(),
            points: vec![(low, base), (high.max(low * 1.01), base)],
        },
    ];
    let axes = Axes {
        title: "I/Os per second (model), by cost",
        x_label: &|cost| format!("{} {}", money(cost), args.currency),
        y_label: &rate,
        y_max: best,
    };
    plot::draw(&curves, &axes)
}

fn figures(args: &PlanArgs, plan: &Plan) -> Table {
    let header = [
        "",
        "flash",
        "pool",
        "cost",
        "I/O/s",
        "speed-up",
        "per I/O",
        "read hits",
        "written a day",
        "lasts",
    ];
    let mut table = Table::new(&header);
    for (at, choice) in plan.options.iter().enumerate() {
        if choice.efficient || at == plan.recommended {
            let mark = if at == plan.recommended { "→" } else { "" };
            table.row(cells(args, mark, choice));
        }
    }
    table
}

fn cells(args: &PlanArgs, mark: &str, choice: &Choice) -> [String; 10] {
    let size = |bytes: u64| match bytes {
        0 => "-".to_string(),
        bytes => show_bytes(bytes),
    };
    let written = choice.flash_bytes_per_day.filter(|bytes| *bytes >= 1.0);
    [
        mark.to_string(),
        size(choice.flash_bytes),
        size(choice.pool_bytes),
        format!("{} {}", money(choice.cost), args.currency),
        rate(choice.ios_per_s),
        format!("{:.2}", choice.speedup),
        time(choice.mean_io_ms),
        choice.read_hit_ratio.map_or("-".into(), |ratio| {
            show_share((1e4 * ratio).round() as u64, 10_000)
        }),
        written.map_or("-".into(), |bytes| show_bytes(bytes as u64)),
        choice.endurance_years.map_or("-".into(), years),
    ]
}

/// What to do, in a sentence or two.
pub(super) fn recommendation(args: &PlanArgs, plan: &Plan) -> String {
    let choice = &plan.options[plan.recommended];
    let base = &plan.options[0];
    let what = what(choice);
    let gain = format!(
        "{:.1} times the I/Os per second of base alone ({} instead of {}), {} an I/O in the mean \
         instead of {}",
        choice.speedup,
        rate(choice.ios_per_s),
        rate(base.ios_per_s),
        time(choice.mean_io_ms),
        time(base.mean_io_ms)
    );
    let cost = format!("{} {}", money(choice.cost), args.currency);
    let first = match plan.reason {
        Reason::Nothing => {
            return format!(
                "Buy nothing (model): no size tried gains {:.0} % for each doubling of its cost.",
                100.0 * args.worth
            );
        }
        Reason::Target if plan.recommended == 0 => {
            return "Buy nothing (model): base alone reaches the target.".into();
        }
        Reason::Target => format!("The cheapest that reaches the target (model) is {what}"),
        Reason::Missed => format!("No size tried reaches the target (model); fastest is {what}"),
        Reason::Knee | Reason::Largest => format!("Buy {what} (model)"),
    };
    let mut out = format!("{first}, for {cost}: {gain}.");
    out += &more(args, plan);
    if let Some(left) = choice.endurance_years {
        let _ = write!(
            out,
            " At the trace's pace its rated writes last {}",
            years(left)
        );
        let needed = choice.flash_bytes as f64 * args.years / left;
        out += &match left < args.years && needed.is_finite() {
            true => format!(
                "; a drive of {}, of which the tier is a part, lasts {}.",
                show_bytes(needed as u64),
                years(args.years)
            ),
            false => ".".to_string(),
        };
    }
    out
}

fn what(choice: &Choice) -> String {
    let flash = format!("{} of flash", show_bytes(choice.flash_bytes));
    let pool = format!("{} of memory for a pool", show_bytes(choice.pool_bytes));
    match (choice.flash_bytes, choice.pool_bytes) {
        (0, 0) => "base alone".into(),
        (0, _) => pool,
        (_, 0) => flash,
        _ => format!("{flash} and {pool}"),
    }
}

/// What the next doubling would bring.
fn more(args: &PlanArgs, plan: &Plan) -> String {
    let choice = &plan.options[plan.recommended];
    let Some(next) = plan.next.map(|at| &plan.options[at]) else {
        return match plan.reason {
            Reason::Missed => String::new(),
            Reason::Largest => " No dearer size was tried: more may gain more.".into(),
            _ => " Nothing up to twice the cost was tried.".into(),
        };
    };
    let gain = next.ios_per_s / choice.ios_per_s - 1.0;
    let cost = format!("{} {}", money(next.cost), args.currency);
    match gain >= 0.005 {
        true => format!(
            " Up to twice the cost gains {:.0} % more ({cost}).",
            100.0 * gain
        ),
        false => " Up to twice the cost gains nothing.".into(),
    }
}

/// Two digits after the point, or two that mean something.
pub(crate) fn money(amount: f64) -> String {
    let digits = match amount {
        amount if amount > 0.0 && amount < 1.0 => 1 - amount.log10().floor() as i32,
        _ => 2,
    };
    format!("{amount:.*}", digits.clamp(2, 9) as usize)
}

fn rate(ios_per_s: f64) -> String {
    match ios_per_s < 100.0 {
        true => format!("{ios_per_s:.1}"),
        false => show_count(ios_per_s.round() as u64),
    }
}

fn time(ms: f64) -> String {
    show_nanoseconds((ms * 1e6) as u64)
}

pub(crate) fn years(years: f64) -> String {
    match years {
        ..0.005 => format!("{:.0} hours", 365.0 * 24.0 * years),
        0.005..0.1 => format!("{:.0} days", 365.0 * years),
        0.1..1.0 => format!("{:.0} months", 12.0 * years),
        1.0..100.0 => format!("{years:.1} years"),
        _ => "over 100 years".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sums_keep_two_digits() {
        let shown = [0.0, 12.0, 1.5, 0.1, 0.034, 0.000_123].map(money);
        assert_eq!(shown, ["0.00", "12.00", "1.50", "0.10", "0.034", "0.00012"]);
    }

    #[test]
    fn times_to_come_are_readable() {
        let shown = [0.001, 0.05, 0.5, 4.25, 1000.0].map(years);
        assert_eq!(
            shown,
            [
                "9 hours",
                "18 days",
                "6 months",
                "4.2 years",
                "over 100 years"
            ]
        );
    }
}
