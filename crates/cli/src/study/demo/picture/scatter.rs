//! Pages read over time, in the manner of the TAC paper's figure 1.
//!
//! One dot a page read that DRAM did not serve: orange when flash did, blue when base did. To
//! the left the tables, to the right how often each region was read.

use crate::show::chart::{Chart, thousands};
use crate::study::demo::outcome::{Band, Outcome, PageRead};
use std::fmt::Write;

/// Dots at most; beyond, every n-th read is drawn.
const DOTS_MAX: usize = 40_000;
/// Bands thinner than this many pixels get no name.
const NAMED_PIXELS: f64 = 11.0;

/// The chart of one run, `width` × `height` pixels.
pub(super) fn svg(run: &Outcome, bands: &[Band], region: u32, width: f64, height: f64) -> String {
    let seconds = run
        .page_reads
        .iter()
        .map(|read| read.seconds)
        .fold(1.0, f64::max);
    let pages = run
        .page_reads
        .iter()
        .map(|read| read.page + 1)
        .max()
        .unwrap_or(1);
    let chart = Chart {
        left: 84.0,
        top: 16.0,
        width: width - 84.0 - 200.0,
        height: height - 76.0,
        x_max: seconds,
        y_max: pages as f64,
    };
    let mut svg =
        format!("<svg viewBox='0 0 {width} {height}' role='img' aria-label='pages read'>");
    shade(&mut svg, &chart, bands);
    svg += &chart.axes(
        "seconds on the run's clock",
        "page of the database file",
        thousands,
    );
    let every = run.page_reads.len().div_ceil(DOTS_MAX).max(1);
    for (flash, class) in [(false, "base"), (true, "flash")] {
        let _ = write!(svg, "<path class='dots {class}' d='");
        for read in run
            .page_reads
            .iter()
            .step_by(every)
            .filter(|read| read.flash == flash)
        {
            let (x, y) = (chart.x(read.seconds), chart.y(read.page as f64 + 0.5));
            let _ = write!(svg, "M{x:.1} {y:.1}h0");
        }
        svg += "'/>";
    }
    name(&mut svg, &chart, bands);
    heat(&mut svg, &chart, &run.page_reads, u64::from(region));
    svg + "</svg>"
}

/// Every other table is lightly shaded.
fn shade(svg: &mut String, chart: &Chart, bands: &[Band]) {
    for band in bands.iter().step_by(2) {
        let (top, bottom) = (chart.y(band.last as f64 + 1.0), chart.y(band.first as f64));
        let _ = write!(
            svg,
            "<rect class='band' x='{:.1}' y='{top:.1}' width='{:.1}' height='{:.1}'/>",
            chart.left,
            chart.width,
            bottom - top
        );
    }
}

fn name(svg: &mut String, chart: &Chart, bands: &[Band]) {
    let x = chart.left + chart.width + 46.0;
    for band in bands {
        let (top, bottom) = (chart.y(band.last as f64 + 1.0), chart.y(band.first as f64));
        let name = &band.name;
        if bottom - top >= NAMED_PIXELS {
            let y = (top + bottom) / 2.0 + 4.0;
            let _ = write!(
                svg,
                "<text class='tick' x='{x:.1}' y='{y:.1}'>{name}</text>"
            );
        }
    }
}

/// A strip with one cell per region, darker the more it was read.
fn heat(svg: &mut String, chart: &Chart, reads: &[PageRead], region: u64) {
    let cells = (chart.y_max as u64).div_ceil(region);
    let mut counts = vec![0_u64; cells as usize];
    for read in reads {
        counts[(read.page / region) as usize] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let x = chart.left + chart.width + 10.0;
    for (first, count) in (0..).step_by(region as usize).zip(counts) {
        let end = ((first + region) as f64).min(chart.y_max);
        let (top, bottom) = (chart.y(end), chart.y(first as f64));
        let warmth = (count as f64 / most).sqrt();
        let last = first + region - 1;
        let _ = write!(
            svg,
            "<rect x='{x:.1}' y='{top:.2}' width='26' height='{:.2}' fill='#b3261e' \
             fill-opacity='{warmth:.2}'>\
             <title>pages {first} to {last}: {count} reads</title></rect>",
            bottom - top + 0.15
        );
    }
    let (middle, bottom) = (x + 13.0, chart.top + chart.height);
    let _ = write!(
        svg,
        "<rect class='frame' x='{x:.1}' y='{:.1}' width='26' height='{:.1}'/>\
         <text class='tick' x='{middle:.1}' y='{:.1}' text-anchor='middle'>heat</text>",
        chart.top,
        chart.height,
        bottom + 19.0
    );
}
