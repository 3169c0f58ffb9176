//! The report as one screen that is refreshed: what matters most comes first, and nothing scrolls
//! or wraps. What has no room is in `status --once`.

use super::{Report, text};
use crate::units::{show_bytes, show_count, show_share};
use std::fmt::Write;
use thermocline::TierStats;

/// A screen's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Characters in a line.
    pub(crate) columns: usize,
    /// Lines.
    pub(crate) lines: usize,
}

/// One screen at most; with an `earlier` report of the same mount, rates are those in between.
pub(crate) fn render(report: &Report, earlier: Option<&Report>, screen: Screen) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = summary(&mut out, report, earlier);
    let mut full = text::render(report, earlier);
    // The first block is here already, but for what is below.
    if let Some(end) = full.find("\nreads ") {
        full.drain(..end);
    }
    let mut lines: Vec<&str> = out.lines().chain(full.lines()).collect();
    // The last line is the foot's; what has one line only has no foot.
    let room = screen.lines.saturating_sub(1).max(1);
    if lines.len() > room {
        lines.truncate(room);
        if room > 2 {
            lines[room - 1] = "...";
        }
    }
    if screen.lines > 1 {
        lines.push("q ends, `status --once` says all");
    }
    let cut = |line: &&str| line.chars().take(screen.columns).collect::<String>();
    let lines: Vec<String> = lines.iter().map(cut).collect();
    lines.join("\n")
}

fn summary(out: &mut String, report: &Report, earlier: Option<&Report>) -> std::fmt::Result {
    let (hits, all) = (report.page_hits(), report.page_reads());
    write!(out, "hit ratio {}", show_share(hits, all))?;
    if let Some(earlier) = earlier {
        let hits = hits.saturating_sub(earlier.page_hits());
        let all = all.saturating_sub(earlier.page_reads());
        write!(out, ", now {}", show_share(hits, all))?;
    }
    let tier = report.stats.tier.as_ref();
    let dirty = tier.map_or(0, |tier| tier.dirty.into());
    writeln!(
        out,
        "; {} dirty pages; {}",
        show_count(dirty),
        state(report)
    )?;
    let (base, mountpoint) = (
        report.mount.base.display(),
        report.mount.mountpoint.display(),
    );
    writeln!(
        out,
        "mount     {base} on {mountpoint}, process {}",
        report.mount.pid
    )?;
    match tier {
        None => writeln!(out, "tier      none: everything from base"),
        Some(tier) => of_tier(out, tier),
    }
}

fn of_tier(out: &mut String, tier: &TierStats) -> std::fmt::Result {
    writeln!(out, "mode      {}", text::mode(tier))?;
    let (used, slots) = (u64::from(tier.resident), u64::from(tier.slots));
    let share = show_share(used, slots);
    let size = show_bytes(tier.bytes);
    writeln!(out, "tier      {}, {share} of {size} used", tier.policy)?;
    match tier.lost.len() as u64 {
        0 => Ok(()),
        lost => writeln!(
            out,
            "LOST      {} pages: `status --once` lists them",
            show_count(lost)
        ),
    }
}

fn state(report: &Report) -> String {
    let tier = report.stats.tier.as_ref();
    match tier.and_then(|tier| tier.off.as_ref()) {
        _ if report.mount.asked_to_end => "asked to end; waits for open files".into(),
        Some(reason) => format!("TIER OFF: {reason}"),
        None => "serving".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::report::sample;

    const SMALL: Screen = Screen {
        columns: 80,
        lines: 24,
    };

    fn first_line(report: &Report) -> String {
        let page = render(report, None, SMALL);
        page.lines().next().unwrap_or_default().to_string()
    }

    #[test]
    fn it_fits_whatever_the_screen() {
        let mut report = sample::report();
        report.mount.base = "/a/very/long/path".repeat(9).into();
        for (columns, lines) in [(80, 24), (40, 10), (200, 70), (1, 1), (80, 2)] {
            let screen = Screen { columns, lines };
            let page = render(&report, Some(&sample::report()), screen);
            assert!(page.lines().count() <= lines.max(1), "{page}");
            assert!(
                page.lines().all(|line| line.chars().count() <= columns),
                "{page}"
            );
            assert!(!page.ends_with('\n'), "a last line feed would scroll");
        }
    }

    #[test]
    fn the_first_line_says_what_matters() {
        let mut report = sample::report();
        assert_eq!(
            first_line(&report),
            "hit ratio 90.0 %; 0 dirty pages; serving"
        );
        let page = render(&report, None, SMALL);
        assert!(page.contains("write-through: base is whole"), "{page}");
        assert!(page.contains("served by"), "{page}");
        let tier = report.stats.tier.as_mut().expect("tier");
        (tier.write_back, tier.dirty) = (true, 1_234);
        report.mount.asked_to_end = true;
        let said = "hit ratio 90.0 %; 1,234 dirty pages; asked to end; waits for open files";
        assert_eq!(first_line(&report), said);
        report.mount.asked_to_end = false;
        let tier = report.stats.tier.as_mut().expect("tier");
        tier.off = Some("16 read-error".into());
        assert!(first_line(&report).ends_with("TIER OFF: 16 read-error"));
    }
}
