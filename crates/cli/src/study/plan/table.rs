//! The plan as text: a picture, the efficient options, and a sentence.

use super::PlanArgs;
use crate::failure::Outcome;
use crate::show::curve_page::{self, Page};
use crate::show::plot::{self, Axes};
use crate::show::report::text::show_duration;
use crate::show::table::Table;
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
         prices    flash {} {currency}/GiB{}, memory {} {currency}/GiB{}\n\
         wear      a drive as large as the tier, rated for {} drive writes a day{}, {} years{}",
        args.devices.clients,
        money(plan.prices.flash_per_gib),
        assumed(args.flash_price),
        money(plan.prices.dram_per_gib),
        assumed(args.dram_price),
        plan.endurance.drive_writes_per_day,
        assumed(args.dwpd),
        plan.endurance.years,
        assumed(args.years),
    );
    let from = args.policy.join(", ");
    let _ = writeln!(
        out,
        "policy    {}, the fastest over all sizes of: {from}",
        plan.policy
    );
    out
}

/// What is said beside a number that nobody gave.
fn assumed(given: Option<f64>) -> &'static str {
    match given {
        Some(_) => "",
        None => " (assumed)",
    }
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

/// What to do, in a few sentences; the last says how far they are to be trusted.
pub(super) fn recommendation(args: &PlanArgs, plan: &Plan) -> String {
    what_to_do(args, plan) + " " + &caution(plan)
}

fn caution(plan: &Plan) -> String {
    let wear = match plan.tells_wear {
        true => "",
        false => ", too little to tell wear from",
    };
    let of = match plan.seconds > 0.0 {
        true => format!("{} of requests{wear}", show_duration(plan.seconds.ceil())),
        false => "a trace without times, which tells no wear".to_string(),
    };
    format!(
        "Be careful: this is a model of {of}; record a busy day and try the size with `thermocline \
         replay` before you pay."
    )
}

fn what_to_do(args: &PlanArgs, plan: &Plan) -> String {
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
    out += &drive(args, plan, choice);
    out
}

/// Sizes in which drives are sold, GB.
const DRIVES_GB: [u64; 9] = [240, 480, 960, 1_920, 3_840, 7_680, 15_360, 30_720, 61_440];

/// The smallest drive sold that holds the tier, and the smallest that lasts as long as it is rated.
fn drive(args: &PlanArgs, plan: &Plan, choice: &Choice) -> String {
    let sold = |bytes: f64| DRIVES_GB.iter().find(|gb| **gb as f64 * 1e9 >= bytes);
    let tier = choice.flash_bytes as f64;
    let Some(smallest) = sold(tier).filter(|_| tier > 0.0) else {
        return String::new();
    };
    let price = *smallest as f64 * 1e9 / (1_u64 << 30) as f64 * plan.prices.flash_per_gib;
    let (price, currency) = (money(price), &args.currency);
    let mut out =
        format!(" The smallest drive sold that holds it has {smallest} GB ({price} {currency}).");
    let Some(left) = choice.endurance_years else {
        return out;
    };
    let _ = write!(
        out,
        " At the trace's pace the rated writes of a drive as large as the tier last {}",
        years(left)
    );
    let rated = plan.endurance.years;
    let needed = tier * rated / left;
    out += &match (left < rated, sold(needed)) {
        (false, _) => ".".to_string(),
        (true, Some(gb)) => format!(
            "; on one of {gb} GB, of which the tier is a part, {}.",
            years(left * *gb as f64 * 1e9 / tier)
        ),
        (true, None) => format!("; no one drive sold lasts {}.", years(rated)),
    };
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
    let whole = |number: f64, unit: &str| match number.round() {
        1.0 => format!("1 {unit}"),
        number => format!("{number:.0} {unit}s"),
    };
    match years {
        ..0.005 => whole(365.0 * 24.0 * years, "hour"),
        0.005..0.1 => whole(365.0 * years, "day"),
        0.1..1.0 => whole(12.0 * years, "month"),
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
        let hour = 1.0 / 24.0 / 365.0;
        assert_eq!([hour, 1.9 * hour].map(years), ["1 hour", "2 hours"]);
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
