//! Hit ratio over the run, one line per policy.

use crate::show::chart::Chart;
use crate::study::demo::outcome::{Outcome, Sample};
use std::fmt::Write;

/// Line colours that stay apart for colour-blind readers (Okabe and Ito), darkened for text.
const COLOURS: [&str; 5] = ["#c2410c", "#1d6fa5", "#0f8a5f", "#8a4f9e", "#7a6a00"];

/// The chart of all runs that had a tier, `width` × `height` pixels.
pub(super) fn svg(runs: &[&Outcome], width: f64, height: f64) -> String {
    let last = |run: &&Outcome| run.samples.last().map_or(1, |sample| sample.transactions);
    let x_max = runs.iter().map(last).max().unwrap_or(1) as f64;
    let chart = Chart {
        left: 84.0,
        top: 16.0,
        width: width - 84.0 - 150.0,
        height: height - 76.0,
        x_max,
        y_max: 100.0,
    };
    let mut svg =
        format!("<svg viewBox='0 0 {width} {height}' role='img' aria-label='read hit ratio'>");
    svg += &chart.axes("transactions", "reads served by flash, %", |v| {
        format!("{v:.0}")
    });
    if let Some(run) = runs.first() {
        warm_up(&mut svg, &chart, run.warm_up_transactions as f64);
    }
    let mut labels: Vec<(f64, &str, String)> = vec![];
    for (run, colour) in runs.iter().zip(COLOURS.iter().cycle()) {
        let points = ratios(&run.samples);
        let path: Vec<String> = points
            .iter()
            .map(|(x, ratio)| format!("{:.1} {:.1}", chart.x(*x), chart.y(100.0 * ratio)))
            .collect();
        let title = format!(
            "{}: {:.1} %",
            run.configuration,
            100.0 * run.flash_hit_ratio
        );
        let _ = write!(
            svg,
            "<path class='line' stroke='{colour}' d='M{}'><title>{title}</title></path>",
            path.join("L")
        );
        let at = points
            .last()
            .map_or(0.0, |(_, ratio)| chart.y(100.0 * ratio));
        let label = format!(
            "{} {:.0} %",
            run.name.to_uppercase(),
            100.0 * run.flash_hit_ratio
        );
        labels.push((at, colour, label));
    }
    svg += &place(labels, chart.x(x_max) + 10.0);
    svg + "</svg>"
}

/// Hit ratio of each interval, placed at the interval's end.
fn ratios(samples: &[Sample]) -> Vec<(f64, f64)> {
    let interval = |pair: &[Sample]| {
        let reads = pair[1].reads.since(&pair[0].reads);
        (pair[1].transactions as f64, reads.flash_hit_ratio())
    };
    samples.windows(2).map(interval).collect()
}

fn warm_up(svg: &mut String, chart: &Chart, until: f64) {
    let (x, bottom) = (chart.x(until), chart.top + chart.height);
    let _ = write!(
        svg,
        "<line class='until' x1='{x:.1}' x2='{x:.1}' y1='{:.1}' y2='{bottom:.1}'/>\
         <text class='note' x='{:.1}' y='{:.1}' text-anchor='end'>warm-up</text>\
         <text class='note' x='{:.1}' y='{:.1}'>measured</text>",
        chart.top,
        x - 6.0,
        bottom - 8.0,
        x + 6.0,
        bottom - 8.0
    );
}

/// Labels at the lines' ends, moved apart where they would overlap.
fn place(mut labels: Vec<(f64, &str, String)>, x: f64) -> String {
    const APART: f64 = 18.0;
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut svg = String::new();
    let mut free = f64::MIN;
    for (y, colour, label) in labels {
        let y = y.max(free);
        free = y + APART;
        let _ = write!(
            svg,
            "<text class='name' x='{x:.1}' y='{:.1}' fill='{colour}'>{label}</text>",
            y + 4.0
        );
    }
    svg
}
