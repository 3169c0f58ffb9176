//! Curves as one HTML file: inline SVG, no scripts, nothing fetched.

use crate::failure::Outcome;
use crate::show::beside;
use crate::show::chart::{Chart, end_of_axis, escape};
use crate::show::plot::Curve;
use std::fmt::Write;
use std::path::Path;

/// Line colours, dark enough for text on white; the first five stay apart for colour-blind readers
/// (Okabe and Ito).
const COLOURS: [&str; 10] = [
    "#c2410c", "#1d6fa5", "#0f8a5f", "#8a4f9e", "#7a6a00", "#b3245a", "#4b5a66", "#3f51b5",
    "#7f3d17", "#0b7285",
];
/// Curves in colour where there are more curves than colours.
const SEEN: usize = 5;
/// Of all other curves, which are named below the picture.
const GREY: &str = "#b9c3ca";

const STYLE: &str = "
body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:#1c2730;background:#fff;
max-width:1120px;margin:32px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px}p{margin:12px 0;max-width:80ch}
pre{font:13px/1.45 'DejaVu Sans Mono',monospace;color:#3d4c57;overflow-x:auto}
svg{display:block;width:100%;height:auto;font:12.5px system-ui,'DejaVu Sans',sans-serif}
.grid{stroke:#e3e8ec}.mark{stroke:#8796a1}.tick{fill:#3d4c57}.title{fill:#1c2730;font-size:13px}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.lead{fill:none;stroke-width:.8;opacity:.6}
.name{font-weight:600;font-size:13.5px}
";

/// What is on the page, from top to bottom.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    /// What was done, as in the terminal.
    pub(crate) heading: &'a str,
    /// What it comes to, in a sentence.
    pub(crate) sentence: &'a str,
    pub(crate) curves: &'a [Curve],
    pub(crate) x_title: &'a str,
    pub(crate) y_title: &'a str,
    /// The figures, as in the terminal.
    pub(crate) figures: &'a str,
}

/// Writes `page` to the file at `path`.
pub(crate) fn write(path: &Path, page: &Page) -> Outcome {
    beside::write(path, &html(page))
}

fn html(page: &Page) -> String {
    let [title, heading, sentence, figures] =
        [page.title, page.heading, page.sentence, page.figures].map(escape);
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width'>\
         <title>{title}</title><style>{STYLE}</style>\
         <h1>{title}</h1><pre>{heading}</pre><p>{sentence}</p>{}{}<pre>{figures}</pre></html>\n",
        svg(page),
        in_grey(page)
    )
}

/// How many curves, from the first, have a colour.
fn in_colour(page: &Page) -> usize {
    match page.curves.len() {
        all if all <= COLOURS.len() => all,
        _ => SEEN,
    }
}

fn in_grey(page: &Page) -> String {
    let names = page.curves.iter().skip(in_colour(page));
    let names: Vec<String> = names.map(|curve| escape(&curve.name)).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("<p>In grey: {}.</p>", names.join(", ")),
    }
}

fn svg(page: &Page) -> String {
    let points = || page.curves.iter().flat_map(|curve| &curve.points);
    let above = |value: f64| if value > 0.0 { value } else { 1.0 };
    let chart = Chart {
        left: 84.0,
        top: 14.0,
        width: 840.0,
        height: 360.0,
        x_max: above(points().fold(0.0, |max, point| point.0.max(max))),
        y_max: end_of_axis(above(points().fold(0.0, |max, point| point.1.max(max)))),
    };
    // Names stand beside the chart, about 8 units a character.
    let named = page.curves.iter().take(in_colour(page));
    let names = named.map(|curve| curve.name.chars().count());
    let right = chart.left + chart.width + 14.0;
    let width = (right + 8.0 * names.max().unwrap_or(0) as f64).max(1080.0);
    let mut out = format!("<svg viewBox='0 0 {width:.0} 430' role='img' aria-label='chart'>");
    out += &chart.axes(page.x_title, page.y_title, crate::show::chart::thousands);
    let mut free = chart.top;
    let seen = in_colour(page);
    let looks = COLOURS[..seen].iter().chain(std::iter::repeat(&GREY));
    // What is in colour lies over what is grey.
    let lines: Vec<_> = page.curves.iter().zip(looks).collect();
    let (seen, grey) = lines.split_at(seen);
    let mut alone = Vec::new();
    for (curve, colour) in grey.iter().chain(seen) {
        let place = |point: &(f64, f64)| (chart.x(point.0), chart.y(point.1));
        let mut places: Vec<(f64, f64)> = curve.points.iter().map(place).collect();
        if let [place] = &mut places[..] {
            *place = beside(*place, &mut alone);
        }
        out += &drawn(curve, &places, colour);
        if *colour == &GREY {
            continue;
        }
        free += 18.0;
        if let [(x, y)] = places[..] {
            // From the point to its name.
            let (to, middle) = (right - 4.0, free - 4.0);
            let _ = write!(
                out,
                "<path class='lead' stroke='{colour}' d='M{x:.1} {y:.1}L{to:.1} {middle:.1}'/>"
            );
        }
        let name = escape(&curve.name);
        let _ = write!(
            out,
            "<text class='name' x='{right:.1}' y='{free:.1}' fill='{colour}'>{name}</text>"
        );
    }
    out + "</svg>"
}

/// Where the point of a curve that has no other is drawn: left of those that would hide it.
fn beside((mut x, y): (f64, f64), alone: &mut Vec<(f64, f64)>) -> (f64, f64) {
    /// Across a mark and a gap.
    const APART: f64 = 9.0;
    let hides = |x: f64| {
        let near = |other: &(f64, f64)| (x - other.0).hypot(y - other.1) < APART;
        alone.iter().any(near)
    };
    while hides(x) {
        x -= APART;
    }
    alone.push((x, y));
    (x, y)
}

/// A curve with its points at `places`.
fn drawn(curve: &Curve, places: &[(f64, f64)], colour: &str) -> String {
    let path = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
    let (path, name) = (path.collect::<Vec<_>>().join("L"), escape(&curve.name));
    let mut out = format!("<path class='line' stroke='{colour}' d='M{path}'/>");
    let radius = if places.len() == 1 { 4 } else { 3 };
    for ((x, y), point) in places.iter().zip(&curve.points) {
        let _ = write!(
            out,
            "<circle cx='{x:.1}' cy='{y:.1}' r='{radius}' fill='{colour}'><title>{name}: {:.4}, \
             {:.2}</title></circle>",
            point.0, point.1
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_have_room() {
        let curves = [Curve {
            name: "objects moved by access density".into(),
            points: vec![(1.0, 50.0)],
        }];
        let page = Page {
            title: "",
            heading: "",
            sentence: "",
            curves: &curves,
            x_title: "",
            y_title: "",
            figures: "",
        };
        // 938 + 31 characters of 8.
        assert!(svg(&page).contains("viewBox='0 0 1186 430'"));
    }

    #[test]
    fn five_curves_are_told_apart_and_the_rest_is_grey() {
        let curve = |at: u32| Curve {
            name: format!("c{at}"),
            points: vec![(1.0, 70.0), (2.0, f64::from(at))],
        };
        let curves: Vec<Curve> = (0..11).map(curve).collect();
        let page = Page {
            title: "",
            heading: "",
            sentence: "",
            curves: &curves,
            x_title: "",
            y_title: "",
            figures: "",
        };
        let html = html(&page);
        for colour in &COLOURS[..SEEN] {
            let line = format!("<path class='line' stroke='{colour}'");
            assert_eq!(html.matches(&line).count(), 1, "{html}");
        }
        assert_eq!(html.matches(&format!("stroke='{GREY}'")).count(), 6);
        assert_eq!(html.matches("class='name'").count(), 5);
        assert!(
            html.contains("<p>In grey: c5, c6, c7, c8, c9, c10.</p>"),
            "{html}"
        );
        assert!(
            html.contains(">80</text>"),
            "the axis ends with a label: {html}"
        );
    }

    #[test]
    fn points_that_would_hide_one_another_stand_side_by_side() {
        let point = |name: &str, y| Curve {
            name: name.into(),
            points: vec![(8.0, y)],
        };
        let line = Curve {
            name: "line".into(),
            points: vec![(1.0, 10.0), (8.0, 44.0)],
        };
        let curves = [line, point("a", 44.0), point("b", 43.9), point("c", 44.0)];
        let page = Page {
            title: "",
            heading: "",
            sentence: "",
            curves: &curves,
            x_title: "",
            y_title: "",
            figures: "",
        };
        let svg = svg(&page);
        let circles = svg.split("<circle cx='").skip(3);
        let places = circles.filter_map(|rest| rest.split('\'').next());
        let places: Vec<f64> = places.filter_map(|x| x.parse().ok()).collect();
        assert_eq!(places.len(), 3, "{svg}");
        assert!(places[0] - places[1] > 8.0 && places[1] - places[2] > 8.0);
        assert!(svg.contains("<title>c: 8.0000, 44.00</title>"), "{svg}");
        assert_eq!(svg.matches("class='lead'").count(), 3, "each has its line");
    }

    #[test]
    fn a_page_stands_alone_and_names_are_escaped() {
        let curves = [Curve {
            name: "a<b".into(),
            points: vec![(1.0, 50.0), (2.0, 0.0)],
        }];
        let page = Page {
            title: "x & y",
            heading: "",
            sentence: "buy",
            curves: &curves,
            x_title: "size",
            y_title: "misses",
            figures: "1 2",
        };
        let html = html(&page);
        for part in [
            "x &amp; y",
            "a&lt;b",
            "<path",
            "<p>buy</p>",
            "<pre>1 2</pre>",
        ] {
            assert!(html.contains(part), "{part} not in: {html}");
        }
        assert!(html.contains("viewBox='0 0 1080 430'"), "{html}");
        assert!(
            !html.contains("http") && !html.contains("<script"),
            "{html}"
        );
    }
}
