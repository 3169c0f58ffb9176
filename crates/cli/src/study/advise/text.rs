//! The advice for people: in the terminal, and as a page.

use super::AdviseArgs;
use super::line::{commands, flash, memory, side_effects};
use crate::failure::Outcome;
use crate::show::curve_page::{self, Page};
use crate::show::plot::Curve;
use crate::show::table::Table;
use crate::study::plan::table::{money, years};
use crate::units::{show_bytes, show_count};
use std::cmp::Reverse;
use std::fmt::Write;
use std::path::Path;
use thermocline_sim::Workload;
use thermocline_sim::advice::{Advice, Gain, Kind, Line, Placement, Question, State};
use thermocline_trace::printable;

/// Everything.
pub(super) fn text(
    args: &AdviseArgs,
    workload: &Workload,
    question: &Question,
    advice: &Advice,
) -> String {
    let mut out = heading(args, workload, question);
    out += "\n";
    out += &lines(args, advice);
    out += "\n";
    out + &figures(args, advice)
}

fn heading(args: &AdviseArgs, workload: &Workload, question: &Question) -> String {
    let facts = workload.facts();
    let devices = question.experiment.devices.as_ref();
    let devices = devices.map_or_else(Default::default, |devices| {
        format!(
            "base {}, flash {}",
            devices.base.describe(),
            devices.flash.describe()
        )
    });
    let seconds = facts.duration_ms as f64 / 1e3;
    let mut out = format!(
        "trace     {}: {} page reads, {} page writes in {seconds:.0} s\n",
        args.reading.input.title(),
        show_count(facts.reads),
        show_count(facts.writes),
    );
    if facts.share < 1.0 {
        let share = 100.0 * facts.share;
        let _ = writeln!(
            out,
            "sample    the extents of {share:.1} %; all below is of the whole"
        );
    }
    let _ = writeln!(
        out,
        "pages     {} different ({})\n\
         tier now  {}\n\
         devices   {devices}; {} client(s), virtual time\n\
         prices    flash {} {currency}/GiB, memory {} {currency}/GiB, {} drive writes a day for \
         {} years",
        show_count(facts.all_pages()),
        show_bytes(facts.all_pages() * u64::from(facts.page_size)),
        state(&question.now),
        args.devices.clients,
        money(args.flash_price),
        money(args.dram_price),
        args.dwpd,
        args.years,
        currency = args.currency,
    );
    out
}

fn state(state: &State) -> String {
    let pool = match state.memory_bytes {
        0 => String::new(),
        bytes => format!(", below a pool of {}", show_bytes(bytes)),
    };
    let tier = match state.flash_bytes {
        0 => "none".into(),
        bytes => {
            let mode = if state.write_back { "back" } else { "through" };
            let policy = &state.policy;
            format!("{}, policy {policy}, write-{mode}", show_bytes(bytes))
        }
    };
    tier + &pool
}

/// The numbered lines, and what they come to together.
fn lines(args: &AdviseArgs, advice: &Advice) -> String {
    let mut out = String::new();
    for (line, number) in advice.lines.iter().zip(1..) {
        let (command, undo) = commands(args, line);
        let _ = writeln!(out, "{number} {}", sentence(args, line));
        for effect in side_effects(args, line) {
            let _ = writeln!(out, "    {effect}");
        }
        for (at, row) in command.lines().enumerate() {
            let _ = writeln!(out, "    {} {row}", if at == 0 { "do:  " } else { "     " });
        }
        let _ = writeln!(out, "    undo: {undo}");
    }
    if advice.lines.is_empty() {
        out += "Nothing to change: nothing tried gains more than its uncertainty.\n";
    }
    if let Some(gain) = &advice.together {
        let _ = writeln!(out, "All of them{}: {}", but(advice), show(gain));
    }
    out
}

/// The lines that are not part of what all come to.
fn but(advice: &Advice) -> &'static str {
    let has = |kind| advice.lines.iter().any(|line| line.kind == kind);
    match (has(Kind::Memory), has(Kind::WriteBack)) {
        (false, false) => "",
        (true, false) => " but MEMORY",
        (false, true) => " but WRITE-BACK",
        (true, true) => " but MEMORY and WRITE-BACK",
    }
}

/// What a line is, gains and costs.
fn sentence(args: &AdviseArgs, line: &Line) -> String {
    let name = line.object.as_ref().map_or("", |object| &object.name);
    let name = printable(name);
    let what = match line.kind {
        Kind::Size => {
            let size = show_bytes(line.then.flash_bytes);
            match line.now.flash_bytes {
                0 => format!("a tier of {size}"),
                bytes => format!("{} → {size}", show_bytes(bytes)),
            }
        }
        Kind::Policy => format!("{} instead of {}", line.then.policy, line.now.policy),
        Kind::Pin => format!("{name}, {}", show_bytes(flash(line))),
        Kind::Bypass => name.to_string(),
        Kind::WriteBack => "writes stay on flash, base gets them later".to_string(),
        Kind::Memory => format!("{} for the database's buffers", show_bytes(memory(line))),
    };
    let kind = match line.kind {
        Kind::WriteBack => "WRITE-BACK".to_string(),
        kind => format!("{kind:?}").to_uppercase(),
    };
    let mut out = format!("{kind:6} {what}: {}", show(&line.gain));
    if line.cost > 0.0 {
        let _ = write!(out, ", for {} {}", money(line.cost), args.currency);
    }
    match line.years {
        [_, Some(then)] if line.kind == Kind::Size => {
            let _ = write!(out, ", lasts {}", years(then));
        }
        [Some(now), Some(then)] if line.kind == Kind::Bypass => {
            let _ = write!(out, ", lasts {} instead of {}", years(then), years(now));
        }
        _ => {}
    }
    let saved = line.base_requests_saved.filter(|saved| *saved >= 1.0);
    if let (Kind::Size, Some(saved)) = (line.kind, saved) {
        let saved = show_count(saved as u64);
        let _ = write!(out, ", {saved} requests/s less to base");
    }
    out
}

fn show(gain: &Gain) -> String {
    let word = if gain.percent >= 0.0 { "less" } else { "more" };
    format!(
        "{:.1} % {word} I/O time (±{:.1})",
        gain.percent.abs(),
        gain.plus_minus
    )
}

/// Sizes, and other ways to use the same flash.
fn figures(args: &AdviseArgs, advice: &Advice) -> String {
    let mut sizes = Table::new(&["size", "I/O time", "", "cost", "lasts"]);
    let percent = |gain: &Gain| {
        [
            // No gain is no minus 0.
            format!("{:+.1} %", 0.0 - gain.percent),
            format!("±{:.1}", gain.plus_minus),
        ]
    };
    for (bytes, gain) in advice.sizes.iter().filter(|(bytes, _)| *bytes > 0) {
        let mut options = advice.plan.options.iter();
        let option = options.find(|option| option.flash_bytes == *bytes);
        let [less, uncertain] = percent(gain);
        let lasts = option.and_then(|option| option.endurance_years);
        sizes.row([
            show_bytes(*bytes),
            less,
            uncertain,
            option.map_or_else(String::new, |option| {
                format!("{} {}", money(option.cost), args.currency)
            }),
            lasts
                .filter(|_| advice.tells_wear)
                .map_or("-".into(), years),
        ]);
    }
    let mut out = sizes.to_string();
    if advice.placements.is_empty() {
        return out;
    }
    let mut ways = Table::new(&["the same flash used for", "fills", "I/O time", ""]);
    for way in &advice.placements {
        let [less, uncertain] = percent(&way.gain);
        ways.row([
            way.name.clone(),
            show_bytes(way.flash_bytes),
            less,
            uncertain,
        ]);
    }
    let _ = write!(out, "\n{ways}");
    let mut listed: Vec<&[String]> = vec![&[]];
    for way in &advice.placements {
        if !listed.contains(&&way.objects[..]) {
            let _ = writeln!(out, "\n  {}:\n    {}", way.name, names(advice, way));
            listed.push(&way.objects);
        }
    }
    out
}

/// The objects that a placement puts on flash, as people call them: the largest.
fn names(advice: &Advice, way: &Placement) -> String {
    const SHOWN: usize = 4;
    let profiles = advice.profiles.iter();
    let mut objects: Vec<_> = profiles
        .filter(|row| way.objects.contains(&row.path))
        .collect();
    objects.sort_by_key(|row| Reverse(row.pages));
    let names = objects.iter().take(SHOWN).map(|row| printable(&row.name));
    let names = names.collect::<Vec<_>>().join(", ");
    match objects.len().saturating_sub(SHOWN) {
        0 => names,
        more => format!("{names} and {more} smaller ones (--placements)"),
    }
}

/// The same as an HTML file at `path`.
pub(super) fn page(
    args: &AdviseArgs,
    workload: &Workload,
    question: &Question,
    advice: &Advice,
    path: &Path,
) -> Outcome {
    const MIB: f64 = (1u64 << 20) as f64;
    let curve = |name: &str, value: &dyn Fn(&Gain) -> f64| Curve {
        name: name.to_string(),
        points: advice
            .sizes
            .iter()
            .map(|(bytes, gain)| (*bytes as f64 / MIB, value(gain).clamp(0.0, 100.0)))
            .collect(),
    };
    let mut curves = vec![
        curve(&format!("cache, {}", question.now.policy), &|gain| {
            gain.percent
        }),
        curve("… at least (95 %)", &|gain| {
            gain.percent - gain.plus_minus
        }),
        curve("… at most (95 %)", &|gain| gain.percent + gain.plus_minus),
    ];
    // The cache's point lies on its curve.
    for way in advice.placements.iter().filter(|way| way.name != "cache") {
        curves.push(Curve {
            name: way.name.clone(),
            points: vec![(way.flash_bytes as f64 / MIB, way.gain.percent.max(0.0))],
        });
    }
    let title = args.reading.input.title();
    curve_page::write(
        path,
        &Page {
            title: &format!("{title}: advice on a flash tier"),
            heading: &(heading(args, workload, question) + "\n" + &lines(args, advice)),
            sentence: "I/O time that a tier saves against base alone, by its size. Points with a \
                       thin line to their names are other ways to use flash; where two would \
                       lie on one another, one is drawn further left.",
            curves: &curves,
            x_title: "size of flash, MiB",
            y_title: "I/O time saved, %",
            figures: &figures(args, advice),
        },
    )
}
