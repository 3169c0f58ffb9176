//! The demo's picture: one HTML file with inline SVG, no scripts, nothing fetched.

mod lines;
mod scatter;

use super::outcome::{Band, Outcome};
use crate::show::chart::escape;

const STYLE: &str = "
body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:#22303a;background:#fff;
max-width:1080px;margin:32px auto;padding:0 20px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 0}
p{margin:4px 0 12px;color:#4a5a66;max-width:75ch}
p.fact{margin:1px 0;max-width:none;padding-left:92px;text-indent:-92px}
p.fact b{display:inline-block;width:92px;text-indent:0}
table{border-collapse:collapse;margin:16px 0;font-variant-numeric:tabular-nums}
th,td{padding:5px 14px;text-align:right;border-bottom:1px solid #e3e8ec}
th:first-child,td:first-child{text-align:left}th{font-weight:600;color:#4a5a66}
svg{display:block;width:100%;height:auto;font:12.5px system-ui,'DejaVu Sans',sans-serif}
.grid{stroke:#e3e8ec}.mark{stroke:#8796a1}.tick{fill:#4a5a66}.title{fill:#22303a;font-size:13px}
.note{fill:#6b7a85;font-style:italic}.name{font-weight:600;font-size:13.5px}
.until{stroke:#8796a1;stroke-dasharray:4 4}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.dots{fill:none;stroke-width:1.7;stroke-linecap:round;stroke-opacity:.5}
.base{stroke:#2b6ea6}.flash{stroke:#e8710a}
.key{font-weight:600}.key.k-flash{color:#c25c05}.key.k-base{color:#2b6ea6}
.band{fill:#f4f7f9}.frame{fill:none;stroke:#c3ccd3}
";

/// The whole page. `summary` says what ran on what, in plain sentences.
pub(crate) fn html(
    outcomes: &[Outcome],
    bands: &[Band],
    summary: &[String],
    region: u32,
) -> String {
    let tiered: Vec<&Outcome> = outcomes
        .iter()
        .filter(|run| !run.flash.is_empty())
        .collect();
    let sentences: String = summary.iter().map(|line| sentence(line)).collect();
    let mut page = format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width'>\
         <title>Thermocline demo</title><style>{STYLE}</style>\
         <h1>A flash tier above an emulated hard disk</h1>{sentences}{}",
        table(outcomes)
    );
    if !tiered.is_empty() {
        page += "<h2>Read hit ratio of the flash tier</h2>\
                 <p>Of the page reads that DRAM did not serve, those found on flash, while the \
                 same transactions run under each policy.</p>";
        page += &lines::svg(&tiered, 1040.0, 380.0);
    }
    let drawn = tiered
        .iter()
        .find(|run| run.name == "auto")
        .or(tiered.first());
    if let Some(run) = drawn.copied().or(outcomes.first()) {
        page += &format!(
            "<h2>Pages read over time, {}</h2>\
             <p>One dot is one page read that DRAM did not serve: <span class='key k-flash'>from \
             flash</span> or <span class='key k-base'>from the disk</span>. Horizontal bands are \
             regions of the file that are hot or cold; the strip on the right adds them up. A \
             short upright stroke is a Stock-Level transaction, which looks through the stock of \
             one warehouse.</p>",
            escape(&run.configuration)
        );
        page += &scatter::svg(run, bands, region, 1040.0, 620.0);
    }
    page + "</html>\n"
}

fn table(outcomes: &[Outcome]) -> String {
    let head = super::report::COLUMNS;
    let head: String = head.map(|cell| format!("<th>{cell}</th>")).concat();
    let rows: String = outcomes
        .iter()
        .map(|run| {
            let cells = super::report::cells(run);
            let cells: String = cells
                .iter()
                .map(|c| format!("<td>{}</td>", escape(c)))
                .collect();
            format!("<tr>{cells}</tr>")
        })
        .collect();
    format!("<table><tr>{head}</tr>{rows}</table>")
}

/// A line of the summary: a word, spaces, the rest.
fn sentence(line: &str) -> String {
    let (word, rest) = line.split_once("  ").unwrap_or(("", line));
    format!(
        "<p class='fact'><b>{}</b>{}</p>",
        escape(word),
        escape(rest.trim())
    )
}
