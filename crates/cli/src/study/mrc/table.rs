//! Curves as text: a picture, the figures, and what they say.

use super::MrcArgs;
use crate::failure::Outcome;
use crate::show::curve_page::{self, Page};
use crate::show::plot::{self, Axes};
use crate::show::table::Table;
use crate::study::parameters::changed;
use crate::units::{show_bytes, show_count, show_share};
use std::fmt::Write;
use std::path::Path;
use thermocline_sim::Workload;
use thermocline_sim::mrc::{Curve, Method, Point};

/// A miniature with fewer slots says little.
const SLOTS_FEW: u64 = 50;
/// Share of the hits of the largest size that is called enough.
const ENOUGH: f64 = 0.9;

/// Everything.
pub(super) fn text(args: &MrcArgs, workload: &Workload, curves: &[Curve]) -> String {
    let page = u64::from(workload.facts().page_size);
    let mut out = heading(args, workload, curves);
    let names: Vec<String> = curves.iter().map(|curve| curve.policy.clone()).collect();
    if let Ok(options) = args.parameters.options() {
        out += &changed(&names, &options);
    }
    out += "\n";
    out += &picture(curves, page);
    out += "\n";
    out += &figures(curves, page).to_string();
    out += &notes(curves);
    out + "\n" + &sentences(curves, page)
}

/// The same as an HTML file at `path`.
pub(super) fn page(args: &MrcArgs, workload: &Workload, curves: &[Curve], path: &Path) -> Outcome {
    let page = u64::from(workload.facts().page_size);
    let line = |curve: &Curve| {
        let share = |point: &Point| {
            let pages = 100.0 * point.capacity_pages as f64;
            let misses = 100.0 * point.read_miss_ratio.unwrap_or(0.0);
            (pages / curve.distinct_pages.max(1) as f64, misses)
        };
        plot::Curve {
            name: curve.policy.clone(),
            points: curve.points.iter().map(share).collect(),
        }
    };
    let lines: Vec<plot::Curve> = best_first(curves).into_iter().map(line).collect();
    let title = args.reading.input.title();
    curve_page::write(
        path,
        &Page {
            title: &format!("{title}: reads that miss, by size of the tier"),
            heading: &heading(args, workload, curves),
            sentence: &sentences(curves, page).replace('\n', ". "),
            curves: &lines,
            x_title: "size of the tier, % of the trace's pages",
            y_title: "page reads that miss, %",
            figures: &(figures(curves, page).to_string() + &notes(curves)),
        },
    )
}

/// The curves, those with fewest misses over all sizes first: of many only the first are drawn.
fn best_first(curves: &[Curve]) -> Vec<&Curve> {
    let misses = |curve: &Curve| -> u128 {
        let points = curve.points.iter();
        points.map(|point| u128::from(point.read_misses)).sum()
    };
    let mut sorted: Vec<&Curve> = curves.iter().collect();
    sorted.sort_by_key(|curve| misses(curve));
    sorted
}

fn sentences(curves: &[Curve], page: u64) -> String {
    let bytes = |pages: u64| show_bytes(pages.saturating_mul(page));
    curves.iter().map(|curve| enough(curve, &bytes)).collect()
}

fn heading(args: &MrcArgs, workload: &Workload, curves: &[Curve]) -> String {
    let mut out = format!("trace     {}\n", args.reading.input.title());
    let facts = workload.facts();
    let page = u64::from(facts.page_size);
    let bytes = |pages: u64| show_bytes(pages.saturating_mul(page));
    let _ = writeln!(
        out,
        "requests  {} for pages of {}: {} reads, {} writes\n\
         pages     {} different ({})",
        show_count(facts.requests),
        show_bytes(page),
        show_count(facts.reads),
        show_count(facts.writes),
        show_count(facts.distinct_pages),
        bytes(facts.distinct_pages),
    );
    if let Some(curve) = curves.first() {
        out += &sampled(curve);
    }
    out
}

fn sampled(curve: &Curve) -> String {
    let first = format!(
        "floor     {} of reads are the first of their page and miss in any tier\n",
        show_share(curve.compulsory_misses, curve.reads)
    );
    let sample = match curve.rate >= 1.0 {
        true => "sample    every page: the counts are exact\n".to_string(),
        false => format!(
            "sample    {:.2} % of the pages, {} of {} reads: the curves are estimates\n",
            100.0 * curve.rate,
            show_count(curve.sampled_reads),
            show_count(curve.reads)
        ),
    };
    first + &sample
}

fn picture(curves: &[Curve], page: u64) -> String {
    let ratio = |point: &Point| 100.0 * point.read_miss_ratio.unwrap_or(0.0);
    let line = |curve: &Curve| plot::Curve {
        name: curve.policy.clone(),
        points: curve
            .points
            .iter()
            .map(|point| ((point.capacity_pages * page) as f64, ratio(point)))
            .collect(),
    };
    let lines: Vec<plot::Curve> = best_first(curves).into_iter().map(line).collect();
    let axes = Axes {
        title: "reads that miss, by size of the tier",
        x_label: &|bytes| show_bytes(bytes as u64),
        y_label: &|percent| format!("{percent:.0} %"),
        y_max: 100.0,
    };
    plot::draw(&lines, &axes)
}

fn figures(curves: &[Curve], page: u64) -> Table {
    let names = curves.iter().map(|curve| curve.policy.as_str());
    let header: Vec<&str> = ["size", "pages", "of all"]
        .into_iter()
        .chain(names)
        .collect();
    let mut table = Table::new(&header).left(0);
    let points = curves.first().map_or(&[][..], |curve| &curve.points);
    for (at, point) in points.iter().enumerate() {
        let pages = point.capacity_pages;
        let mut row = vec![
            show_bytes(pages * page),
            show_count(pages),
            show_share(pages, curves[0].distinct_pages),
        ];
        row.extend(curves.iter().map(|curve| cell(curve, at)));
        table.row(row);
    }
    table
}

fn cell(curve: &Curve, at: usize) -> String {
    let point = &curve.points[at];
    let few = if few(curve, point) { "~" } else { "" };
    match point.read_miss_ratio {
        Some(ratio) => format!("{few}{:.1} %", 100.0 * ratio),
        None => "-".into(),
    }
}

fn few(curve: &Curve, point: &Point) -> bool {
    curve.rate < 1.0 && point.sample_slots < SLOTS_FEW
}

fn notes(curves: &[Curve]) -> String {
    let rough = |curve: &Curve| curve.points.iter().any(|point| few(curve, point));
    match curves.iter().any(rough) {
        true => format!("  ~ rough: fewer than {SLOTS_FEW} sampled pages; raise --rate\n"),
        false => String::new(),
    }
}

/// The smallest size with most of the hits that the largest has.
fn enough(curve: &Curve, bytes: &dyn Fn(u64) -> String) -> String {
    let hits = |point: &Point| curve.reads - point.read_misses;
    let Some(largest) = curve.points.last().filter(|point| hits(point) > 0) else {
        return format!("{}: no size listed has a hit\n", curve.policy);
    };
    let wanted = ENOUGH * hits(largest) as f64;
    let smallest = curve
        .points
        .iter()
        .find(|point| hits(point) as f64 >= wanted);
    let smallest = smallest.unwrap_or(largest);
    if smallest.capacity_pages == largest.capacity_pages {
        return format!(
            "{}: no listed size below {} has {:.0} % of its hits\n",
            curve.policy,
            bytes(largest.capacity_pages),
            100.0 * ENOUGH
        );
    }
    let how = match curve.method {
        Method::StackDistance => "stack distances",
        Method::Miniature => "a small tier for each size",
    };
    format!(
        "{}: {} ({} of the pages) has {} of the hits that {} has; from {how}\n",
        curve.policy,
        bytes(smallest.capacity_pages),
        show_share(smallest.capacity_pages, curve.distinct_pages),
        show_share(hits(smallest), hits(largest)),
        bytes(largest.capacity_pages),
    )
}
