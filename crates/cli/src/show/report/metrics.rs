//! The report as Prometheus metrics: names stay as they are, new ones may come.

use super::exposition::{Exposition, Family, Format, Kind};
use super::{DeviceFacts, IoFacts, Report};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use thermocline::{Latency, ObjectStats, TierStats};

/// Objects listed at most: enough for dashboards, bounded for their storage.
const OBJECTS: usize = 20;

/// The metrics of a mount.
pub(crate) fn render(report: &Report, format: Format) -> String {
    let mut out = Exposition::new(format);
    mount(&mut out, report);
    requests(&mut out, report);
    tier_on(&mut out, report.stats.tier.as_ref());
    if let Some(tier) = &report.stats.tier {
        tier_state(&mut out, tier);
        tier_flow(&mut out, tier);
        write_back(&mut out, tier);
        warm(&mut out, report, tier);
    }
    pool(&mut out, report);
    devices(&mut out, &report.devices);
    objects(&mut out, report);
    out.finish()
}

fn mount(out: &mut Exposition, report: &Report) {
    let (mount, stats) = (&report.mount, &report.stats);
    let (base, mountpoint) = (
        mount.base.to_string_lossy(),
        mount.mountpoint.to_string_lossy(),
    );
    let labels: [(&str, &str); 3] = [
        ("version", &mount.version),
        ("base", &base),
        ("mountpoint", &mountpoint),
    ];
    out.family(
        "thermocline_mount_info",
        Kind::Info,
        "What is mounted where; always 1.",
    )
    .sample(&labels, 1.0);
    out.family(
        "thermocline_uptime_seconds",
        Kind::Gauge,
        "Time since the mount.",
    )
    .value(stats.uptime_s);
    if let Some(dropped) = stats.trace_dropped {
        let help = "Requests that the trace being recorded lacks: its writer fell behind.";
        out.family("thermocline_trace_dropped_total", Kind::Counter, help)
            .value(dropped as f64);
    }
}

fn requests(out: &mut Exposition, report: &Report) {
    let stats = &report.stats;
    by_name(
        out,
        "thermocline_page_reads_total",
        "Page reads of cached objects by where they were served.",
        "served",
        &stats.page_reads,
    );
    if let Some(tier) = &stats.tier {
        let help =
            "Page reads counted as of flash whose bytes came from base with their neighbours'.";
        out.family("thermocline_bridged_page_reads_total", Kind::Counter, help)
            .value(tier.bridged as f64);
    }
    let help = "Page writes of cached objects.";
    out.family("thermocline_page_writes_total", Kind::Counter, help)
        .value(stats.page_writes as f64);
    let help = "Page writes that updated a copy on flash.";
    out.family("thermocline_page_write_hits_total", Kind::Counter, help)
        .value(stats.write_hits as f64);
    let help = "Requests of objects that are not cached.";
    out.family("thermocline_bypassed_requests_total", Kind::Counter, help)
        .sample(&[("operation", "read")], stats.bypassed_reads as f64)
        .sample(&[("operation", "write")], stats.bypassed_writes as f64);
    let help = "Bytes read and written by users of the mount.";
    out.family("thermocline_request_bytes_total", Kind::Counter, help)
        .sample(&[("operation", "read")], stats.read_bytes as f64)
        .sample(&[("operation", "write")], stats.write_bytes as f64);
    let help = "Requests whose latency was measured.";
    let mut family = out.family("thermocline_requests_total", Kind::Counter, help);
    for (served, latency) in &stats.read_latency {
        family.sample(
            &[("operation", "read"), ("served", served)],
            latency.count as f64,
        );
    }
    family.sample(
        &[("operation", "write"), ("served", "base")],
        stats.write_latency.count as f64,
    );
    let help = "Time requests took, as users saw it. Served bypass: past the tier; mixed: from \
                several places; unknown: nothing was there to read, at the end of a file.";
    let name = "thermocline_request_latency_seconds";
    let mut family = out.family(name, Kind::Histogram, help);
    for (served, latency) in &stats.read_latency {
        took(
            &mut family,
            &[("operation", "read"), ("served", served)],
            latency,
        );
    }
    let labels = [("operation", "write"), ("served", "base")];
    took(&mut family, &labels, &stats.write_latency);
}

fn took(family: &mut Family<'_>, labels: &[(&str, &str)], latency: &Latency) {
    let sum = latency.mean_us * latency.count as f64 / 1e6;
    let bounds = Latency::bounds_s().zip(latency.below);
    family.histogram(labels, bounds, (latency.count, sum));
}

/// Also of a mount without a cache: it is off there.
fn tier_on(out: &mut Exposition, tier: Option<&TierStats>) {
    let policy = tier.map_or("none", |tier| tier.policy.as_str());
    let on = tier.is_some_and(|tier| tier.off.is_none());
    let help = "Whether the tier is in use: 1 on, 0 off.";
    out.family("thermocline_tier_on", Kind::Gauge, help)
        .sample(&[("policy", policy)], f64::from(u8::from(on)));
}

fn tier_state(out: &mut Exposition, tier: &TierStats) {
    out.family("thermocline_tier_bytes", Kind::Gauge, "Bytes of the cache.")
        .value(tier.bytes as f64);
    out.family("thermocline_tier_slots", Kind::Gauge, "Slots of the tier.")
        .value(f64::from(tier.slots));
    out.family(
        "thermocline_tier_slots_used",
        Kind::Gauge,
        "Slots that hold a page.",
    )
    .value(f64::from(tier.resident));
    let help = "Admitted pages not yet written to flash.";
    out.family("thermocline_tier_write_buffer_pages", Kind::Gauge, help)
        .value(f64::from(tier.staged));
    let help = "Memory of map, checksums and policy.";
    out.family("thermocline_tier_memory_bytes", Kind::Gauge, help)
        .value(tier.memory_bytes as f64);
    let help = "Pages that were warm when the mount began.";
    out.family("thermocline_tier_restored_pages", Kind::Gauge, help)
        .value(f64::from(tier.restored));
    let help = "Pages that a crash left in doubt and that were not compared with base yet.";
    out.family("thermocline_tier_doubted_pages", Kind::Gauge, help)
        .value(f64::from(tier.in_doubt));
    let help = "Pages in doubt that were what base holds.";
    out.family("thermocline_tier_verified_pages_total", Kind::Counter, help)
        .value(tier.verified as f64);
    let help = "Files found changed while not mounted; what flash held of them was dropped.";
    out.family("thermocline_tier_stale_objects_total", Kind::Counter, help)
        .value(f64::from(tier.stale_objects));
}

fn tier_flow(out: &mut Exposition, tier: &TierStats) {
    out.family(
        "thermocline_admissions_total",
        Kind::Counter,
        "Pages admitted to flash.",
    )
    .value(tier.admissions as f64);
    let (name, help) = (
        "thermocline_refusals_total",
        "Pages not admitted, by reason.",
    );
    by_name(out, name, help, "reason", &tier.refusals);
    let (name, help) = (
        "thermocline_removals_total",
        "Pages that left flash, by reason.",
    );
    by_name(out, name, help, "reason", &tier.removals);
    let (name, help) = (
        "thermocline_flash_faults_total",
        "Flash I/Os that failed, by kind.",
    );
    by_name(out, name, help, "kind", &tier.faults);
    out.family(
        "thermocline_flash_page_writes_total",
        Kind::Counter,
        "Pages written to flash.",
    )
    .value(tier.flash_writes as f64);
}

fn write_back(out: &mut Exposition, tier: &TierStats) {
    let gauges: [(&'static str, &str, u64); 7] = [
        (
            "thermocline_tier_write_back",
            "Whether writes stay off base where they can: 1 yes, 0 no.",
            u64::from(tier.write_back),
        ),
        (
            "thermocline_tier_dirty_pages",
            "Pages on flash that are newer than base.",
            tier.dirty.into(),
        ),
        (
            "thermocline_tier_reserve_slots",
            "Slots for dirty pages that the policy does not hold.",
            tier.reserve.into(),
        ),
        (
            "thermocline_tier_reserve_slots_used",
            "Those that hold a page.",
            tier.reserved.into(),
        ),
        (
            "thermocline_tier_pinned_slots",
            "Slots set aside for pinned files.",
            tier.pinned_slots.into(),
        ),
        (
            "thermocline_tier_pinned_slots_used",
            "Those that hold a page.",
            tier.pinned.into(),
        ),
        (
            "thermocline_tier_lost_pages",
            "Dirty pages that flash does not give back; reading them fails.",
            tier.lost.len() as u64,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(name, Kind::Gauge, help).value(value as f64);
    }
    let help = "Dirty pages written back from flash to base.";
    out.family("thermocline_destaged_pages_total", Kind::Counter, help)
        .value(tier.destaged as f64);
    let help = "Commits of the map; one sync of the flash device each.";
    out.family("thermocline_commits_total", Kind::Counter, help)
        .value(tier.commits as f64);
}

/// Warming from a list, and the list that is kept.
fn warm(out: &mut Exposition, report: &Report, tier: &TierStats) {
    let warm = &report.warm;
    let gauges = [
        (
            "thermocline_warming",
            "Whether pages of a list are being brought to flash.",
            u64::from(warm.state == "reading"),
        ),
        (
            "thermocline_warming_listed_pages",
            "Pages of that list.",
            warm.listed,
        ),
        (
            "thermocline_warming_seen_pages",
            "Those that were looked at.",
            warm.seen,
        ),
        (
            "thermocline_hot_list_pages",
            "Pages of the list that is kept beside base.",
            warm.kept_pages,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(name, Kind::Gauge, help).value(value as f64);
    }
    let counters = [
        (
            "thermocline_warmed_pages_total",
            "Pages brought to flash from a list.",
            tier.warmed,
        ),
        (
            "thermocline_warming_requests_total",
            "Reads of base for them.",
            warm.requests,
        ),
        (
            "thermocline_warming_bytes_total",
            "Bytes of these reads.",
            warm.bytes,
        ),
    ];
    for (name, help, value) in counters {
        out.family(name, Kind::Counter, help).value(value as f64);
    }
}

fn by_name(
    out: &mut Exposition,
    name: &'static str,
    help: &str,
    label: &str,
    counts: &BTreeMap<String, u64>,
) {
    let mut family = out.family(name, Kind::Counter, help);
    for (value, count) in counts {
        family.sample(&[(label, value)], *count as f64);
    }
}

fn pool(out: &mut Exposition, report: &Report) {
    let pool = &report.stats.pool;
    out.family(
        "thermocline_pool_frames",
        Kind::Gauge,
        "Frames of the pool in memory.",
    )
    .value(f64::from(pool.frames));
    out.family(
        "thermocline_pool_frames_used",
        Kind::Gauge,
        "Frames that hold a page.",
    )
    .value(f64::from(pool.filled));
    out.family(
        "thermocline_pool_evictions_total",
        Kind::Counter,
        "Pages that left the pool.",
    )
    .value(pool.evictions as f64);
    let help = "Frames whose page is written out later.";
    out.family("thermocline_pool_dirty_frames", Kind::Gauge, help)
        .value(f64::from(pool.dirty));
    let help = "Dirty pages written out of the pool, by where to and why.";
    let mut family = out.family("thermocline_pool_cleaned_pages_total", Kind::Counter, help);
    for (to, counts) in [
        ("flash", &pool.cleaned_to_flash),
        ("base", &pool.cleaned_to_base),
    ] {
        for (why, count) in counts {
            family.sample(&[("to", to), ("why", why)], *count as f64);
        }
    }
}

/// The kinds of I/O of a device, by name.
fn kinds(device: &DeviceFacts) -> [(&'static str, &IoFacts); 3] {
    [
        ("read", &device.reads),
        ("write", &device.writes),
        ("sync", &device.syncs),
    ]
}

/// One figure of a kind of I/O.
type Value = fn(&IoFacts) -> u64;

fn devices(out: &mut Exposition, devices: &[DeviceFacts]) {
    let help = "Time in which the device had something to do.";
    let mut family = out.family("thermocline_device_busy_seconds_total", Kind::Counter, help);
    for device in devices {
        family.sample(
            &[("device", &device.role), ("label", &device.label)],
            device.busy_s,
        );
    }
    let families: [(&'static str, &str, Value); 3] = [
        (
            "thermocline_device_ios_total",
            "I/Os of the device.",
            |io| io.count,
        ),
        (
            "thermocline_device_errors_total",
            "I/Os of the device that failed.",
            |io| io.errors,
        ),
        (
            "thermocline_device_bytes_total",
            "Bytes the device moved.",
            |io| io.bytes,
        ),
    ];
    for (name, help, value) in families {
        let mut family = out.family(name, Kind::Counter, help);
        for device in devices {
            for (operation, io) in kinds(device) {
                let labels = [("device", device.role.as_str()), ("operation", operation)];
                family.sample(&labels, value(io) as f64);
            }
        }
    }
}

fn objects(out: &mut Exposition, report: &Report) {
    let all = by_labels(&report.stats.objects);
    let top = &all[..all.len().min(OBJECTS)];
    let help = "Pages on flash of the objects that have most there.";
    let mut family = out.family("thermocline_object_flash_pages", Kind::Gauge, help);
    for (labels, resident, _) in top {
        family.sample(labels, *resident as f64);
    }
    let help = "Pages of these objects.";
    let mut family = out.family("thermocline_object_pages", Kind::Gauge, help);
    for (labels, _, pages) in top {
        family.sample(labels, *pages as f64);
    }
}

/// Labels of an object, its pages on flash, and its pages.
type Named<'a> = ([(&'static str, &'a str); 2], u64, u64);

/// Objects by what the labels say, those with most pages on flash first. A file that was removed
/// while it is open keeps its name, and a new one may have it too: a series is there once.
fn by_labels(objects: &[ObjectStats]) -> Vec<Named<'_>> {
    let mut sums: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
    for object in objects {
        let sum = sums
            .entry((&object.name, object.kind.as_str()))
            .or_default();
        sum.0 += u64::from(object.resident);
        sum.1 += object.pages;
    }
    let mut all: Vec<_> = sums
        .into_iter()
        .map(|((name, kind), (resident, pages))| {
            ([("object", name), ("kind", kind)], resident, pages)
        })
        .collect();
    all.sort_unstable_by_key(|&(labels, resident, _)| (Reverse(resident), labels));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::report::{rules, sample};

    #[test]
    fn both_formats_follow_their_rules() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = render(&sample::report(), format);
            let samples = rules::check(&text, format).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert!(samples > 100, "{samples}");
        }
    }

    #[test]
    fn files_of_one_name_are_one_series() {
        let mut report = sample::report();
        let of = |name: &str, kind: &str, resident| ObjectStats {
            name: name.into(),
            kind: kind.into(),
            pages: 100,
            resident,
            ..ObjectStats::default()
        };
        // One was removed while it is open, and there is a new one.
        report.stats.objects = vec![
            of("t", "relation", 30),
            of("u", "relation", 25),
            of("t", "other", 9),
            of("t", "relation", 4),
        ];
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = render(&report, format);
            rules::check(&text, format).unwrap_or_else(|e| panic!("{e}\n{text}"));
            for (labels, resident, pages) in [
                ("object=\"t\",kind=\"relation\"", 34, 200),
                ("object=\"u\",kind=\"relation\"", 25, 100),
                ("object=\"t\",kind=\"other\"", 9, 100),
            ] {
                let flash = format!("thermocline_object_flash_pages{{{labels}}} {resident}\n");
                let all = format!("thermocline_object_pages{{{labels}}} {pages}\n");
                assert!(
                    text.contains(&flash) && text.contains(&all),
                    "{labels}\n{text}"
                );
            }
        }
    }

    #[test]
    fn openmetrics_readers_refuse_the_other_format() {
        let text = render(&sample::report(), Format::Prometheus) + "# EOF\n";
        let refused = rules::check(&text, Format::OpenMetrics).expect_err("counters are named so");
        assert!(refused.contains("_total"), "{refused}");
    }

    #[test]
    fn latencies_can_be_rated_and_added_up() {
        let text = render(&sample::report(), Format::Prometheus);
        let line = |part: &str| text.lines().find(|line| line.contains(part));
        let name = "thermocline_request_latency_seconds";
        let found = line(&format!(
            "{name}_bucket{{operation=\"read\",served=\"flash\",le=\"+Inf\"}}"
        ));
        assert!(found.is_some_and(|line| line.ends_with(" 890")), "{text}");
        assert!(text.contains(&format!("# TYPE {name} histogram")), "{text}");
        assert!(!text.contains("quantile"), "{text}");
        assert!(
            line(&format!("# HELP {name} ")).is_some_and(|line| line.contains("unknown")),
            "what served=unknown is"
        );
    }

    #[test]
    fn values_are_those_of_the_report() {
        let text = render(&sample::report(), Format::Prometheus);
        for line in [
            "thermocline_page_reads_total{served=\"flash\"} 890",
            "thermocline_refusals_total{reason=\"cold\"} 4321",
            "thermocline_tier_on{policy=\"tac\"} 1",
            "thermocline_tier_slots_used 250000",
            "thermocline_device_busy_seconds_total{device=\"base\",\
             label=\"emulated 7200-rpm disk\"} 1200.5",
            "thermocline_object_flash_pages{object=\"base/5/16384\",kind=\"relation\"} 250",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in\n{text}"
            );
        }
    }

    #[test]
    fn a_mount_without_a_tier_says_that_it_is_off_and_nothing_else_of_it() {
        let mut report = sample::report();
        report.stats.tier = None;
        let text = render(&report, Format::OpenMetrics);
        let of_tier = |line: &&str| line.starts_with("thermocline_tier");
        let found: Vec<&str> = text.lines().filter(of_tier).collect();
        assert_eq!(found, ["thermocline_tier_on{policy=\"none\"} 0"]);
    }
}
