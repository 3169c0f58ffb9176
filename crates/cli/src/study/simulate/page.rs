//! The results as one HTML file: inline SVG, no scripts, nothing fetched.

use super::conclusion::Ranking;
use super::table;
use crate::show::chart::{Chart, end_of_axis, escape};
use crate::units::{show_bytes, show_count};
use std::fmt::Write;
use thermocline_sim::experiment::{Experiment, Results};
use thermocline_sim::{RunResult, Workload, opt};

/// Line colours that stay apart for colour-blind readers (Okabe and Ito), darkened for text: of the
/// best policies, best first. More cannot be told apart.
const COLOURS: [&str; 5] = ["#c2410c", "#1d6fa5", "#0f8a5f", "#8a4f9e", "#7a6a00"];
/// Of all other policies.
const GREY: &str = "#b9c3ca";
/// Of what knows the future.
const DARK: &str = "#1c2730";

const STYLE: &str = "
body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:#1c2730;background:#fff;
max-width:1120px;margin:32px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 0}
h3{font-size:15px;margin:20px 0 0}
p{margin:4px 0 12px;color:#3d4c57;max-width:80ch}
p.fact{margin:1px 0;max-width:none;padding-left:92px;text-indent:-92px}
p.fact b{display:inline-block;width:92px;text-indent:0}
table{border-collapse:collapse;margin:10px 0 20px;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:4px 11px;text-align:right;border-bottom:1px solid #e3e8ec;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{font-weight:600;color:#3d4c57}
svg{display:block;width:100%;height:auto;font:12.5px system-ui,'DejaVu Sans',sans-serif}
.grid{stroke:#e3e8ec}.mark{stroke:#8796a1}.tick{fill:#3d4c57}.title{fill:#1c2730;font-size:13px}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.name{font-weight:600;font-size:13.5px}
.grey{stroke-width:1.2}p.said{color:#1c2730;margin:14px 0}
.until{stroke:#8796a1;stroke-dasharray:4 4}.bound{stroke-width:2.6;stroke-dasharray:2 3}
";

/// One line of a chart.
struct Line<'a> {
    name: &'a str,
    /// x, y, and what a pointer over it shows.
    points: Vec<(f64, f64, String)>,
    look: Look,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// One of the best, in this of [`COLOURS`].
    Colour(usize),
    /// One that knows the future.
    Dark,
    /// One of the others: without a name.
    Grey,
}

impl Look {
    fn of(name: &str, ranking: &Ranking) -> Self {
        if opt::is_opt(name) {
            return Self::Dark;
        }
        let place = ranking.names.iter().position(|other| other == name);
        match place {
            Some(place) if place < COLOURS.len() => Self::Colour(place),
            _ => Self::Grey,
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Colour(place) => COLOURS[place],
            Self::Dark => DARK,
            Self::Grey => GREY,
        }
    }
}

impl<'a> Line<'a> {
    fn new(name: &'a str, ranking: &Ranking, points: Vec<(f64, f64, String)>) -> Self {
        Self {
            name,
            points,
            look: Look::of(name, ranking),
        }
    }
}

/// The whole page.
pub(super) fn html(
    title: &str,
    workload: &Workload,
    experiment: &Experiment,
    results: &Results,
    ranking: &Ranking,
) -> String {
    let mut page = format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width'>\
         <title>{0}: thermocline simulate</title><style>{STYLE}</style>\
         <h1>{0}</h1>",
        escape(title)
    );
    for line in table::facts(workload, experiment) {
        let (word, rest) = line.split_once("  ").unwrap_or(("", &line));
        let (word, rest) = (escape(word), escape(rest.trim()));
        let _ = write!(page, "<p class='fact'><b>{word}</b>{rest}</p>");
    }
    let _ = write!(page, "<p class='said'>{}</p>", escape(&ranking.sentence));
    page += "<h2>Read hit ratio by size of the tier</h2>\
             <p>Page reads that base did not serve. The dotted line is the best any policy can do: \
             opt-bypass, which knows the future.";
    page += &in_grey(experiment, ranking);
    page += "</p>";
    page += &by_size(workload, experiment, results, ranking);
    page += "<h2>Read hit ratio over time</h2>\
             <p>Of each hundredth of the trace, in order of its page requests.</p>";
    for &capacity in &experiment.capacities {
        let shown = show_count(u64::from(capacity));
        let _ = write!(page, "<h3>{shown} pages</h3>");
        page += &over_time(experiment, results, ranking, capacity);
    }
    page += "<h2>Figures</h2>";
    for &capacity in &experiment.capacities {
        page += &figures(workload, results, capacity);
    }
    page + "</html>\n"
}

/// Which lines have no name of their own.
fn in_grey(experiment: &Experiment, ranking: &Ranking) -> String {
    let lines = experiment.policies.iter();
    let grey = lines.filter(|name| Look::of(name, ranking) == Look::Grey);
    let grey: Vec<String> = grey.map(|name| escape(name)).collect();
    match grey.is_empty() {
        true => String::new(),
        false => format!(
            " In colour the {} policies that were fastest, in grey all others: {}.",
            COLOURS.len(),
            grey.join(", ")
        ),
    }
}

fn by_size(
    workload: &Workload,
    experiment: &Experiment,
    results: &Results,
    ranking: &Ranking,
) -> String {
    let distinct = workload.facts().distinct_pages.max(1) as f64;
    let page_size = u64::from(workload.facts().page_size);
    let share = |run: &RunResult| 100.0 * run.capacity_pages as f64 / distinct;
    let point = |run: &RunResult| {
        let hits = 100.0 * run.read_hit_ratio.unwrap_or(0.0);
        let (pages, bytes) = (run.capacity_pages, run.capacity_pages * page_size);
        let (pages, bytes) = (show_count(pages), show_bytes(bytes));
        (
            share(run),
            hits,
            format!("{}: {hits:.1} % with {pages} pages, {bytes}", run.policy),
        )
    };
    let points = |runs: &mut dyn Iterator<Item = &RunResult>| {
        let mut points: Vec<_> = runs.map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let mut lines = Vec::new();
    for name in &experiment.policies {
        if name == opt::OPT_BYPASS && !results.bound.is_empty() {
            continue;
        }
        let mut runs = results.runs.iter().filter(|run| run.policy == *name);
        lines.push(Line::new(name, ranking, points(&mut runs)));
    }
    let bound = points(&mut results.bound.iter());
    lines.push(Line::new(opt::OPT_BYPASS, ranking, bound));
    let sizes = experiment.capacities.iter().max().copied().unwrap_or(1);
    let x_max = 100.0 * f64::from(sizes) / distinct;
    svg(
        &lines,
        x_max,
        "size of the tier, % of the trace's pages",
        420.0,
        None,
    )
}

fn over_time(
    experiment: &Experiment,
    results: &Results,
    ranking: &Ranking,
    capacity: u32,
) -> String {
    let of_size = |run: &&RunResult| run.capacity_pages == u64::from(capacity);
    let mut lines = Vec::new();
    let mut x_max = 1.0_f64;
    for name in &experiment.policies {
        let mut runs = results.runs.iter().filter(of_size);
        let Some(run) = runs.find(|run| run.policy == *name) else {
            continue;
        };
        let read = run.samples.iter().filter(|sample| sample.reads > 0);
        let points = read.map(|sample| {
            let hits = 100.0 * sample.read_hits as f64 / sample.reads as f64;
            let text = format!("{name}: {hits:.1} % up to {}", show_count(sample.requests));
            (sample.requests as f64, hits, text)
        });
        let points: Vec<_> = points.collect();
        x_max = points.iter().fold(x_max, |x, point| x.max(point.0));
        lines.push(Line::new(name, ranking, points));
    }
    let warm_up = (experiment.warm_up > 0).then_some(experiment.warm_up as f64);
    svg(&lines, x_max, "page requests", 300.0, warm_up)
}

/// A chart of `lines` with a legend at their ends; few points get marks to point at.
fn svg(lines: &[Line], x_max: f64, x_title: &str, height: f64, warm_up: Option<f64>) -> String {
    const WIDTH: f64 = 1080.0;
    let all = lines.iter().flat_map(|line| &line.points);
    let top = all.fold(1.0_f64, |top, point| top.max(point.1));
    let chart = Chart {
        left: 76.0,
        top: 14.0,
        width: WIDTH - 76.0 - 150.0,
        height: height - 66.0,
        x_max,
        y_max: end_of_axis(top),
    };
    let mut out = format!("<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='chart'>");
    out += &chart.axes(x_title, "page reads that hit, %", |value| {
        format!("{value:.0}")
    });
    if let Some(until) = warm_up {
        let (x, bottom) = (chart.x(until), chart.top + chart.height);
        let _ = write!(
            out,
            "<line class='until' x1='{x:.1}' x2='{x:.1}' y1='{:.1}' y2='{bottom:.1}'>\
             <title>counted from here on</title></line>",
            chart.top
        );
    }
    // What is in colour lies over what is grey.
    let (grey, seen): (Vec<&Line>, Vec<&Line>) = lines
        .iter()
        .filter(|line| !line.points.is_empty())
        .partition(|line| line.look == Look::Grey);
    for line in grey.into_iter().chain(seen) {
        draw(&mut out, &chart, line);
    }
    out + &legend(lines, &chart) + "</svg>"
}

fn draw(out: &mut String, chart: &Chart, line: &Line) {
    let place = |point: &(f64, f64, String)| (chart.x(point.0), chart.y(point.1));
    let path: Vec<String> = line
        .points
        .iter()
        .map(place)
        .map(|(x, y)| format!("{x:.1} {y:.1}"))
        .collect();
    let (path, colour, name) = (path.join("L"), line.look.colour(), escape(line.name));
    let class = match (line.name, line.look) {
        (opt::OPT_BYPASS, _) => "line bound",
        (_, Look::Grey) => "line grey",
        _ => "line",
    };
    let _ = write!(
        out,
        "<path class='{class}' stroke='{colour}' d='M{path}'><title>{name}</title></path>"
    );
    for point in &line.points {
        let (x, y) = place(point);
        let radius = if line.points.len() > 30 { 1.6 } else { 3.6 };
        let _ = write!(
            out,
            "<circle cx='{x:.1}' cy='{y:.1}' r='{radius}' fill='{colour}'><title>{}</title>\
             </circle>",
            escape(&point.2)
        );
    }
}

/// Names at the ends of their lines, moved apart where they would overlap.
fn legend(lines: &[Line], chart: &Chart) -> String {
    const APART: f64 = 16.0;
    let end = |line: &Line| line.points.last().map(|point| chart.y(point.1));
    let named = lines.iter().filter(|line| line.look != Look::Grey);
    let mut labels: Vec<_> = named.filter_map(|l| Some((end(l)?, l))).collect();
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out = String::new();
    let x = chart.x(chart.x_max) + 12.0;
    let mut free = chart.top;
    let mut left = labels.len() as f64;
    for (y, line) in labels {
        // So low at most that the labels still to come end above the axis.
        let lowest = chart.top + chart.height - APART * (left - 1.0);
        let y = y.min(lowest).max(free);
        free = y + APART;
        left -= 1.0;
        let _ = write!(
            out,
            "<text class='name' x='{x:.1}' y='{:.1}' fill='{}'>{}</text>",
            y + 4.0,
            line.look.colour(),
            escape(line.name)
        );
    }
    out
}

fn figures(workload: &Workload, results: &Results, capacity: u32) -> String {
    let of_size = |run: &&RunResult| run.capacity_pages == u64::from(capacity);
    let facts = workload.facts();
    let capacity = u64::from(capacity);
    let mut out = format!(
        "<h3>{} pages, {}</h3><table><tr>",
        show_count(capacity),
        show_bytes(capacity.saturating_mul(u64::from(facts.page_size)))
    );
    for name in table::COLUMNS {
        let _ = write!(out, "<th>{name}</th>");
    }
    out += "</tr>";
    let runs = table::best_first(results.runs.iter().filter(of_size).collect());
    for run in runs.into_iter().chain([&results.base_only]) {
        out += "<tr>";
        for cell in table::cells(run) {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out += "</tr>";
    }
    out + "</table>"
}
