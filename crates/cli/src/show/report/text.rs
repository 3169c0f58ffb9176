//! The report as a person reads it: what is served from where, what was refused and why.

use super::{DeviceFacts, IoFacts, Report};
use crate::show::table::Table;
use crate::study::plan::{DWPD, YEARS};
use crate::units::{show_bytes, show_count, show_nanoseconds, show_share, show_short};
use std::collections::BTreeMap;
use std::fmt::Write;
use thermocline::{FinalistRow, Latency, LearnedTable, LostPage, PoolStats, TierStats};

/// Characters in a line: a terminal's.
const COLUMNS: usize = 80;
/// Where lines go on that do not fit: under what follows their first word.
const INDENT: usize = 10;

/// Objects listed at most.
const OBJECTS: usize = 20;

/// Lost pages listed at most.
const LOST: usize = 20;

/// Hint sets listed at most.
const HINT_SETS: usize = 15;

/// The names of the places a page can be served from, nearest first.
const PLACES: [&str; 4] = ["pool", "buffer", "flash", "base"];

/// The whole report. With an `earlier` one of the same mount, rates are those in between.
pub(crate) fn render(report: &Report, earlier: Option<&Report>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut out, report);
    let _ = reads(&mut out, report, earlier);
    let _ = writes(&mut out, report);
    if let Some(tier) = &report.stats.tier {
        let _ = flow(
            &mut out,
            tier,
            earlier.and_then(|earlier| earlier.stats.tier.as_ref()),
        );
    }
    let learned = report
        .stats
        .tier
        .as_ref()
        .and_then(|tier| tier.learned.as_ref());
    if let Some(learned) = learned {
        let _ = self::learned(&mut out, learned);
    }
    let _ = devices(&mut out, report, earlier);
    let _ = super::clients::clients(&mut out, report);
    let _ = objects(&mut out, report);
    folded(&out)
}

/// The same with lines that go on below where they are too long. Tables fit already.
fn folded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut used = 0;
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if used + length > COLUMNS && used > INDENT {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out += &" ".repeat(INDENT);
                used = INDENT;
            }
            out += word;
            used += word.chars().count();
        }
        out.push('\n');
    }
    out
}

fn head(out: &mut String, report: &Report) -> std::fmt::Result {
    let (mount, stats) = (&report.mount, &report.stats);
    let since = show_duration(stats.uptime_s);
    writeln!(
        out,
        "mount     {} on {}",
        mount.base.display(),
        mount.mountpoint.display()
    )?;
    writeln!(
        out,
        "process   {}, version {}, for {since}",
        mount.pid, mount.version
    )?;
    if mount.asked_to_end {
        writeln!(
            out,
            "ENDING    asked to end; waits for open files, a second signal detaches"
        )?;
    }
    match &stats.tier {
        None => writeln!(out, "tier      none: everything from base")?,
        Some(tier) => {
            tier_head(out, tier)?;
            if !mount.not_loaded.is_empty() {
                writeln!(out, "PINS      not loaded: {}", mount.not_loaded)?;
            }
            super::warm::render(out, &report.warm)?;
        }
    }
    if stats.pool.frames > 0 {
        pool(out, &stats.pool)?;
    }
    if !mount.not_recorded.is_empty() {
        writeln!(out, "record    STOPPED: {}", mount.not_recorded)?;
    }
    if let Some(dropped) = stats.trace_dropped {
        let file = mount.record.display();
        writeln!(
            out,
            "record    {file}, {} requests lost",
            show_count(dropped)
        )?;
    }
    Ok(())
}

fn tier_head(out: &mut String, tier: &TierStats) -> std::fmt::Result {
    let state = match &tier.off {
        None => "on".to_string(),
        Some(reason) => format!("OFF: {reason}"),
    };
    writeln!(
        out,
        "tier      {}, policy {}, {}",
        state, tier.policy, tier.device
    )?;
    if let Some(remark) = &tier.policy_remark {
        writeln!(out, "policy    {remark}")?;
    }
    if let Some(percent) = tier.loading {
        writeln!(
            out,
            "loading   the map: {percent} %; until that is over everything is served from base"
        )?;
    }
    let (used, all) = (u64::from(tier.resident), u64::from(tier.slots));
    writeln!(
        out,
        "slots     {} of {} used ({}), {}; {} to be written; {} of DRAM",
        show_count(used),
        show_count(all),
        show_share(used, all),
        show_bytes(tier.bytes),
        show_count(tier.staged.into()),
        show_bytes(tier.memory_bytes),
    )?;
    if tier.pinned_slots > 0 {
        writeln!(
            out,
            "pinned    {} of {} slots set aside for pinned files; {} page reads",
            show_count(tier.pinned.into()),
            show_count(tier.pinned_slots.into()),
            show_count(tier.pinned_hits),
        )?;
    }
    if tier.restored > 0 || tier.stale_objects > 0 {
        writeln!(
            out,
            "start     {} pages were found on flash; {} files had changed and lost theirs",
            show_count(tier.restored.into()),
            show_count(tier.stale_objects.into()),
        )?;
    }
    if tier.unnamed_files > 0 {
        writeln!(
            out,
            "files     {} opened without room in the cache's table of files: served from base",
            show_count(tier.unnamed_files.into()),
        )?;
    }
    wear(out, tier)?;
    doubts(out, tier)?;
    dirty(out, tier)
}

/// How fast the cache is written, and how long a drive would last.
fn wear(out: &mut String, tier: &TierStats) -> std::fmt::Result {
    let allowed = tier.drive_writes_allowed;
    let Some(pace) = tier.drive_writes_per_day else {
        return match allowed > 0.0 {
            true => writeln!(out, "wear      {allowed} drive writes a day allowed"),
            false => Ok(()),
        };
    };
    let rating = if allowed > 0.0 { allowed } else { DWPD };
    let lasts = match pace > 0.0 {
        true => format!("{:.1} years", (rating * YEARS / pace).min(999.0)),
        false => "for ever".to_string(),
    };
    writeln!(
        out,
        "wear      {pace:.2} drive writes a day since the start{}; a drive as large, rated for \
         {rating} a day and {YEARS} years, lasts {lasts}",
        match allowed > 0.0 {
            true => format!(", {allowed} allowed"),
            false => String::new(),
        },
    )
}

/// Where the newest bytes are.
pub(super) fn mode(tier: &TierStats) -> String {
    let dirty = show_count(tier.dirty.into());
    match (tier.write_back, tier.dirty) {
        (false, 0) => "write-through: base is whole".into(),
        (false, _) => format!("write-through: {dirty} pages are still to be written back to base"),
        (true, 0) if tier.off.is_some() => {
            "write-back: base is whole; it is written at once while the tier is off".into()
        }
        (true, 0) => "write-back: base is whole now, and will not be after the next write".into(),
        (true, _) => "write-back: base is whole only together with the cache".into(),
    }
}

/// What became of the clean pages that a crash left in doubt.
fn doubts(out: &mut String, tier: &TierStats) -> std::fmt::Result {
    if tier.doubted == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "in doubt  {} pages after a crash: {} are what base holds, {} given up, {} to be compared",
        show_count(tier.doubted.into()),
        show_count(tier.verified),
        show_count(tier.given_up),
        show_count(tier.in_doubt.into()),
    )
}

/// What write-back keeps on flash, and what it lost.
fn dirty(out: &mut String, tier: &TierStats) -> std::fmt::Result {
    writeln!(out, "mode      {}", mode(tier))?;
    if !tier.write_back && tier.dirty == 0 && tier.destaged == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "dirty     {} pages newer than base, {} of {} in reserve; {} written back; {} commits",
        show_count(tier.dirty.into()),
        show_count(tier.reserved.into()),
        show_count(tier.reserve.into()),
        show_count(tier.destaged),
        show_count(tier.commits),
    )?;
    if tier.lost.is_empty() {
        return Ok(());
    }
    let lost = show_count(tier.lost.len() as u64);
    let fails = match &tier.off {
        None => "reading them fails until they are written again",
        Some(_) => "reading and writing them fails",
    };
    writeln!(out, "LOST      {lost} pages; {fails}")?;
    for LostPage { object, offset } in tier.lost.iter().take(LOST) {
        writeln!(out, "          {object} at byte {offset}")?;
    }
    match tier.lost.len().saturating_sub(LOST) {
        0 => Ok(()),
        more => writeln!(out, "          and {more} more"),
    }
}

fn pool(out: &mut String, pool: &PoolStats) -> std::fmt::Result {
    let (filled, frames) = (
        show_count(pool.filled.into()),
        show_count(pool.frames.into()),
    );
    write!(
        out,
        "pool      {filled} of {frames} frames used, policy {}",
        pool.policy
    )?;
    let to_flash: u64 = pool.cleaned_to_flash.values().sum();
    let to_base: u64 = pool.cleaned_to_base.values().sum();
    if pool.dirty > 0 || to_flash + to_base > 0 {
        let (dirty, to_flash) = (show_count(pool.dirty.into()), show_count(to_flash));
        let to_base = show_count(to_base);
        write!(
            out,
            ", {dirty} dirty; {to_flash} cleaned to flash, {to_base} to base"
        )?;
    }
    writeln!(out)
}

fn reads(out: &mut String, report: &Report, earlier: Option<&Report>) -> std::fmt::Result {
    let (hits, all) = (report.page_hits(), report.page_reads());
    let now = earlier.map_or(String::new(), |earlier| {
        let hits = hits.saturating_sub(earlier.page_hits());
        format!(
            ", now {}",
            show_share(hits, all.saturating_sub(earlier.page_reads()))
        )
    });
    writeln!(
        out,
        "\nreads     {} pages, hit ratio {}{now}",
        show_count(all),
        show_share(hits, all)
    )?;
    let mut table = Table::new(&[
        "served by",
        "pages",
        "share",
        "pages/s",
        "mean",
        "p50",
        "p95",
        "p99",
    ])
    .within(COLUMNS);
    let seconds = seconds(report, earlier);
    for place in PLACES {
        let count = |report: &Report| report.stats.page_reads.get(place).copied().unwrap_or(0);
        let (pages, before) = (count(report), earlier.map_or(0, count));
        let latency = report
            .stats
            .read_latency
            .get(place)
            .copied()
            .unwrap_or_default();
        let [mean, p50, p95, p99] = latencies(&latency);
        let rate = show_rate(pages.saturating_sub(before), seconds);
        let share = show_share(pages, all);
        table.row([
            place.to_string(),
            show_short(pages),
            share,
            rate,
            mean,
            p50,
            p95,
            p99,
        ]);
    }
    write!(out, "{table}")
}

fn writes(out: &mut String, report: &Report) -> std::fmt::Result {
    let stats = &report.stats;
    let [mean, p50, _, p99] = latencies(&stats.write_latency);
    writeln!(
        out,
        "\nwrites    {} pages, {} updated a copy on flash; mean {mean}, p50 {p50}, p99 {p99}",
        show_count(stats.page_writes),
        show_count(stats.write_hits),
    )?;
    writeln!(
        out,
        "bypassed  {} reads and {} writes of files that are not cached",
        show_count(stats.bypassed_reads),
        show_count(stats.bypassed_writes),
    )?;
    let by_kernel = stats.objects.iter().filter(|object| object.passthrough);
    match by_kernel.count() {
        0 => Ok(()),
        open => writeln!(
            out,
            "          {} more such files are served by the kernel, and not counted",
            show_count(open as u64),
        ),
    }
}

fn flow(out: &mut String, tier: &TierStats, earlier: Option<&TierStats>) -> std::fmt::Result {
    let more = earlier.map_or(String::new(), |earlier| {
        let fresh = tier.admissions.saturating_sub(earlier.admissions);
        format!(" (+{})", show_count(fresh))
    });
    writeln!(
        out,
        "\nadmitted  {}{more} pages; {} page writes to flash",
        show_count(tier.admissions),
        show_count(tier.flash_writes)
    )?;
    reasons(out, "refused", &tier.refusals)?;
    reasons(out, "left", &tier.removals)?;
    reasons(out, "faults", &tier.faults)
}

/// What the policy learned about hints: which requests leave a page worth keeping.
fn learned(out: &mut String, learned: &LearnedTable) -> std::fmt::Result {
    writeln!(
        out,
        "\nlearned   {} windows of {} requests, {} hint sets",
        show_count(learned.windows),
        show_count(learned.window),
        show_count(learned.hint_sets_known)
    )?;
    if let Some(race) = &learned.race {
        let of = |of: &FinalistRow| {
            let mark = if of.leads { " leads" } else { "" };
            let lead = match of.leads {
                true => String::new(),
                false => format!(", ahead by {:.0} of {:.0}", of.ahead, of.needed),
            };
            format!("{}{mark} ({:.1} %{lead})", of.name, 100.0 * of.score)
        };
        let finalists: Vec<String> = race.finalists.iter().map(of).collect();
        writeln!(
            out,
            "race      {}; {} changes",
            finalists.join(", "),
            show_count(race.changes)
        )?;
    }
    if !learned.hint_types.is_empty() {
        let types = learned.hint_types.iter().map(|of| {
            let mark = if of.used { "" } else { " (not used)" };
            format!("{} {:.2e}{mark}", of.name, of.impurity)
        });
        let types: Vec<String> = types.collect();
        writeln!(out, "types     {} by impurity", types.join(", "))?;
    }
    let header = ["priority", "N", "Nr", "D", "on flash", "hint set"];
    let mut table = Table::new(&header).within(COLUMNS);
    for set in learned.hint_sets.iter().take(HINT_SETS) {
        table.row([
            format!("{:.2e}", set.priority),
            format!("{:.0}", set.requests),
            format!("{:.0}", set.rereads),
            format!("{:.0}", set.distance),
            show_count(set.resident.into()),
            set.hints.clone(),
        ]);
    }
    write!(out, "{table}")
}

/// A reason as people read it, where its name alone says too little.
fn in_words(reason: &str) -> &str {
    match reason {
        // A policy that admits pages as they leave the pool, say, is asked at reads too.
        "opportunity" => "not yet (the policy admits at another moment)",
        other => other,
    }
}

/// The counts that are not zero, most first.
fn reasons(out: &mut String, title: &str, counts: &BTreeMap<String, u64>) -> std::fmt::Result {
    let mut list: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    list.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let list: Vec<String> = list
        .iter()
        .map(|(name, count)| format!("{} {}", show_count(**count), in_words(name)))
        .collect();
    let shown = if list.is_empty() {
        "none".to_string()
    } else {
        list.join(", ")
    };
    writeln!(out, "{title:<9} {shown}")
}

fn devices(out: &mut String, report: &Report, earlier: Option<&Report>) -> std::fmt::Result {
    if report.devices.is_empty() {
        return Ok(());
    }
    let header = [
        "device", "busy", "I/O", "count", "per s", "bytes", "errors", "p50", "p99",
    ];
    let mut table = Table::new(&header).within(COLUMNS);
    let seconds = seconds(report, earlier);
    for (position, device) in report.devices.iter().enumerate() {
        let before = earlier.and_then(|earlier| earlier.devices.get(position));
        let busy = (device.busy_s - before.map_or(0.0, |before| before.busy_s)) / seconds;
        let mut name = (
            device.role.clone(),
            format!("{:.0} %", 100.0 * busy.clamp(0.0, 1.0)),
        );
        for (kind, io, before) in kinds(device, before) {
            if io.count == 0 {
                continue;
            }
            let (role, busy) = std::mem::take(&mut name);
            let rate = show_rate(io.count.saturating_sub(before.count), seconds);
            let [p50, p99] = [io.p50_us, io.p99_us].map(show_microseconds);
            let (count, bytes) = (show_short(io.count), show_bytes(io.bytes));
            let errors = show_count(io.errors);
            table.row([
                role,
                busy,
                kind.to_string(),
                count,
                rate,
                bytes,
                errors,
                p50,
                p99,
            ]);
        }
    }
    writeln!(out)?;
    for device in &report.devices {
        writeln!(out, "{:<9} {}", device.role, device.label)?;
    }
    if table.is_empty() {
        Ok(())
    } else {
        write!(out, "{table}")
    }
}

/// Each kind of I/O of a device, with what it was earlier.
fn kinds(
    device: &DeviceFacts,
    earlier: Option<&DeviceFacts>,
) -> [(&'static str, IoFacts, IoFacts); 3] {
    let before = earlier.cloned().unwrap_or_default();
    [
        ("read", device.reads, before.reads),
        ("write", device.writes, before.writes),
        ("sync", device.syncs, before.syncs),
    ]
}

fn objects(out: &mut String, report: &Report) -> std::fmt::Result {
    let objects = &report.stats.objects;
    if objects.is_empty() {
        return Ok(());
    }
    let header = [
        "object", "kind", "on flash", "covered", "reads", "hits", "writes",
    ];
    let mut table = Table::new(&header).left(2).within(COLUMNS);
    for object in objects.iter().take(OBJECTS) {
        let resident = u64::from(object.resident);
        let counted = |count| match object.passthrough {
            true => "kernel".to_string(), // it serves the file, and nobody counts
            false => show_short(count),
        };
        table.row([
            object.name.clone(),
            or_dash(&object.kind),
            show_short(resident),
            show_share(resident.min(object.pages), object.pages),
            counted(object.reads),
            show_share(object.hits, object.reads),
            counted(object.writes),
        ]);
    }
    write!(out, "\n{table}")?;
    match objects.len().saturating_sub(OBJECTS) {
        0 => Ok(()),
        more => writeln!(out, "  and {} more objects", show_count(more as u64)),
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_string()
    } else {
        text.to_string()
    }
}

/// Seconds the rates are taken over; never 0.
fn seconds(report: &Report, earlier: Option<&Report>) -> f64 {
    let start = earlier.map_or(0.0, |earlier| earlier.stats.uptime_s);
    (report.stats.uptime_s - start).max(1e-3)
}

fn show_rate(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    if rate > 0.0 && rate < 10.0 {
        format!("{rate:.1}")
    } else {
        show_count(rate.round() as u64)
    }
}

fn latencies(latency: &Latency) -> [String; 4] {
    [
        latency.mean_us,
        latency.p50_us,
        latency.p95_us,
        latency.p99_us,
    ]
    .map(|microseconds| {
        if latency.count == 0 {
            "-".to_string()
        } else {
            show_microseconds(microseconds)
        }
    })
}

fn show_microseconds(microseconds: f64) -> String {
    show_nanoseconds((microseconds * 1000.0).round() as u64)
}

pub(crate) fn show_duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::report::sample;

    #[test]
    fn says_which_files_the_kernel_serves() {
        let mut report = sample::report();
        report.stats.objects[0].passthrough = true;
        let text = render(&report, None);
        assert!(
            text.contains("1 more such files are served by the kernel"),
            "{text}"
        );
        assert_eq!(
            text.matches(" kernel ").count(),
            1,
            "reads, in the middle\n{text}"
        );
    }

    #[test]
    fn says_what_a_person_asks_first() {
        let text = render(&sample::report(), None);
        for part in [
            "/bulk/pg on /srv/pg",
            "for 1 h 2 min",
            "hit ratio 90.0 %",
            "250,000 of 1,000,000 used (25.0 %)",
            "tier      on, policy tac, file /ssd/tier",
            "4,321 cold",
            "faults    1 corrupt",
            "emulated 7200-rpm disk",
            "base/5/16384",
            "25.0 %",
        ] {
            assert!(text.contains(part), "no \"{part}\" in\n{text}");
        }
        assert!(!text.contains("kernel"), "nothing is served by it\n{text}");
        assert!(
            !text.contains("pinned"),
            "reasons that never happened are left out\n{text}"
        );
    }

    #[test]
    fn a_tier_that_is_off_says_why() {
        let mut report = sample::report();
        if let Some(tier) = &mut report.stats.tier {
            tier.off = Some("too many flash faults: 16 read-error".into());
        }
        assert!(render(&report, None).contains("OFF: too many flash faults: 16 read-error"));
        report.stats.tier = None;
        assert!(render(&report, None).contains("tier      none"));
    }

    #[test]
    fn dirty_and_lost_pages_are_shown() {
        let mut report = sample::report();
        let text = render(&report, None);
        assert!(!text.contains("\ndirty "), "nothing is dirty");
        assert!(
            text.contains("\nmode      write-through: base is whole\n"),
            "{text}"
        );
        let tier = report.stats.tier.as_mut().expect("a tier");
        tier.write_back = true;
        (tier.dirty, tier.reserve, tier.reserved) = (1_234, 500, 20);
        tier.lost = (0..22)
            .map(|page| LostPage {
                object: "base/5/16384".into(),
                offset: page * 8192,
            })
            .collect();
        report.stats.pool.policy = "gd2l".into();
        report.stats.pool.dirty = 9;
        let text = render(&report, None);
        for part in [
            "mode      write-back: base is whole only together with the cache",
            "dirty     1,234 pages newer than base, 20 of 500 in reserve",
            "LOST      22 pages",
            "base/5/16384 at byte 155648",
            "and 2 more",
            "policy gd2l, 9 dirty",
        ] {
            assert!(text.contains(part), "no \"{part}\" in\n{text}");
        }
        assert!(
            !text.contains("at byte 163840"),
            "the list is bounded\n{text}"
        );
    }

    #[test]
    fn rates_are_those_since_the_earlier_report() {
        let earlier = sample::report();
        let mut later = earlier.clone();
        later.stats.uptime_s += 2.0;
        later.stats.page_reads.insert("flash".into(), 890 + 500);
        later.stats.page_reads.insert("base".into(), 100 + 500);
        let text = render(&later, Some(&earlier));
        assert!(text.contains("now 50.0 %"), "{text}");
        let flash = text
            .lines()
            .find(|line| line.starts_with("  flash"))
            .expect("flash row");
        assert!(flash.contains(" 250 "), "{flash}");
    }

    /// A mount that has worked for months, with everything to be said.
    fn busy() -> Report {
        let mut report = sample::report();
        let stats = &mut report.stats;
        stats.uptime_s = 9_000_000.0;
        stats.page_reads = PLACES.map(|at| (at.to_string(), 12_345_678_901)).into();
        stats.page_writes = 12_345_678_901;
        stats.bypassed_reads = 123_456_789;
        stats.bypassed_writes = 123_456_789;
        let mut latency = stats.write_latency;
        latency.p95_us = 123_400.0;
        stats.read_latency = PLACES.map(|at| (at.to_string(), latency)).into();
        stats.pool.policy = "gd2l".into();
        (stats.pool.frames, stats.pool.filled, stats.pool.dirty) = (4_194_304, 4_194_304, 99_999);
        let cleaned = || [("recovery".to_string(), 987_654_321)].into();
        (stats.pool.cleaned_to_flash, stats.pool.cleaned_to_base) = (cleaned(), cleaned());
        stats.objects[0].name = "pg_tblspc/16401/PG_15_202209061/16384/2619_fsm.17".into();
        (stats.objects[0].pages, stats.objects[0].resident) = (131_072_000, 131_072_000);
        (stats.objects[0].reads, stats.objects[0].writes) = (12_345_678_901, 12_345_678_901);
        let tier = stats.tier.as_mut().expect("a tier");
        (tier.slots, tier.resident, tier.staged) = (134_217_728, 134_217_728, 16_384);
        (tier.restored, tier.stale_objects, tier.bytes) = (134_217_728, 1_234, 1 << 40);
        (tier.doubted, tier.in_doubt) = (1_234_567, 1_234_567);
        (tier.verified, tier.given_up) = (1_234_567, 1_234_567);
        tier.write_back = true;
        (tier.dirty, tier.reserved, tier.reserve) = (99_999_999, 9_999_999, 9_999_999);
        (tier.destaged, tier.commits) = (12_345_678_901, 1_234_567_890);
        tier.admissions = 12_345_678_901;
        tier.flash_writes = 12_345_678_901;
        let reasons = ["cold", "pinned", "opportunity", "scan", "priority", "busy"];
        tier.refusals = reasons
            .map(|name| (name.to_string(), 12_345_678_901))
            .into();
        let device = DeviceFacts {
            role: "flash".into(),
            label: "file /var/lib/thermocline/cache/on/a/long/path/tier.cache, direct I/O".into(),
            busy_s: 8_999_999.0,
            reads: IoFacts {
                count: 12_345_678_901,
                errors: 12_345,
                bytes: 999 << 40,
                p50_us: 123.0,
                p95_us: 123_400.0,
                p99_us: 99_900.0,
            },
            ..DeviceFacts::default()
        };
        report.devices.push(device);
        report
    }

    #[test]
    fn every_line_fits_a_terminal() {
        for (report, earlier) in [(sample::report(), None), (busy(), Some(sample::report()))] {
            let text = render(&report, earlier.as_ref());
            let long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{text}");
        }
    }

    #[test]
    fn wear_is_told_with_how_long_a_drive_lasts() {
        let mut tier = TierStats::default();
        let told = |tier: &TierStats| {
            let mut out = String::new();
            wear(&mut out, tier).expect("writes to a string");
            out
        };
        assert_eq!(told(&tier), "");
        tier.drive_writes_per_day = Some(2.0);
        let text = told(&tier);
        assert!(
            text.contains("2.00 drive writes a day since the start;"),
            "{text}"
        );
        assert!(
            text.contains("rated for 1 a day and 5 years, lasts 2.5 years"),
            "{text}"
        );
        tier.drive_writes_allowed = 4.0;
        let text = told(&tier);
        assert!(text.contains("since the start, 4 allowed;"), "{text}");
        assert!(
            text.contains("rated for 4 a day and 5 years, lasts 10.0 years"),
            "{text}"
        );
        tier.drive_writes_per_day = None;
        assert_eq!(told(&tier), "wear      4 drive writes a day allowed\n");
    }

    #[test]
    fn pins_that_were_not_loaded_say_why() {
        let mut report = sample::report();
        assert!(!render(&report, None).contains("PINS"));
        report.mount.not_loaded = "cannot read x".into();
        let text = render(&report, None);
        assert!(
            text.contains("\nPINS      not loaded: cannot read x\n"),
            "{text}"
        );
    }

    #[test]
    fn durations_keep_two_units() {
        assert_eq!(show_duration(7.9), "7 s");
        assert_eq!(show_duration(61.0), "1 min 1 s");
        assert_eq!(show_duration(90_061.0), "1 d 1 h");
    }
}
