//! The rules of both text formats, for tests: what a reader that is strict refuses.
//!
//! OpenMetrics 1.0, sections "Overall Structure", "MetricFamily", "Counter", "Histogram", "Info",
//! "Text format"; Prometheus' exposition formats, "Text-based format". Only what we write is known:
//! no timestamps, exemplars, units or created times.

use super::exposition::Format;
use std::collections::{BTreeMap, BTreeSet};

/// A sample line: its name, its labels in order, its value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

/// A family as its lines say.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

/// Refuses `text` with the line and the rule; else the number of samples.
pub(super) fn check(text: &str, format: Format) -> Result<usize, String> {
    let families = families(text, format)?;
    let mut names = BTreeSet::new();
    for family in &families {
        // No two families may have names of samples in common, whether they occur or not.
        for suffix in suffixes(family.kind, format)? {
            let name = format!("{}{suffix}", family.name);
            if !names.insert(name.clone()) {
                return Err(format!("{name} belongs to two families"));
            }
        }
        // Nor may one be called as the samples of another.
        let is_called_so = suffixes(family.kind, format)?.contains(&"");
        if !is_called_so && !names.insert(family.name.to_string()) {
            return Err(format!("{} is a sample of another family", family.name));
        }
        of_family(family, format)?;
    }
    Ok(families.iter().map(|family| family.samples.len()).sum())
}

fn families(text: &str, format: Format) -> Result<Vec<Family<'_>>, String> {
    let mut lines: Vec<&str> = text
        .strip_suffix('\n')
        .ok_or("no end of line")?
        .split('\n')
        .collect();
    if format == Format::OpenMetrics && lines.pop() != Some("# EOF") {
        return Err("the last line is not # EOF".into());
    }
    let mut families: Vec<Family> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, _] if is_name(name, true) => families.push(Family {
                name,
                ..Family::default()
            }),
            ["#", "TYPE", name, kind] => match families.last_mut() {
                Some(family) if family.name == name && family.kind.is_empty() => family.kind = kind,
                _ => return Err(format!("TYPE apart from HELP: {line}")),
            },
            _ => {
                let sample = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
                let family = families.last_mut().ok_or("a sample without a family")?;
                family.samples.push(sample);
            }
        }
    }
    Ok(families)
}

/// What names of samples add to that of their family.
fn suffixes(kind: &str, format: Format) -> Result<&'static [&'static str], String> {
    match (kind, format) {
        ("gauge", _) | ("counter", Format::Prometheus) => Ok(&[""]),
        ("counter", Format::OpenMetrics) => Ok(&["_total", "_created"]),
        ("histogram", Format::OpenMetrics) => Ok(&["_bucket", "_count", "_sum", "_created"]),
        ("histogram", Format::Prometheus) => Ok(&["_bucket", "_count", "_sum"]),
        ("info", Format::OpenMetrics) => Ok(&["_info"]),
        _ => Err(format!("no type {kind}")),
    }
}

fn of_family(family: &Family, format: Format) -> Result<(), String> {
    let allowed = suffixes(family.kind, format)?;
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let name = sample.name;
        let suffix = name.strip_prefix(family.name);
        if !suffix.is_some_and(|suffix| allowed.contains(&suffix)) {
            let (family, kind) = (family.name, family.kind);
            return Err(format!("{name} is no sample of the {kind} {family}"));
        }
        if !seen.insert((name, &sample.labels)) {
            return Err(format!("{name} {:?} twice", sample.labels));
        }
        let sound = match family.kind {
            "gauge" => !sample.value.is_nan(),
            "info" => sample.value == 1.0,
            _ => sample.value.is_finite() && sample.value >= 0.0,
        };
        if !sound {
            return Err(format!("{name} is {}", sample.value));
        }
    }
    match family.kind {
        "histogram" => of_histogram(family),
        _ => Ok(()),
    }
}

/// Buckets rise with their bounds up to +Inf, which has the count; a sum is beside them.
fn of_histogram(family: &Family) -> Result<(), String> {
    let mut points: BTreeMap<Vec<(&str, String)>, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        let labels = sample.labels.iter().filter(|(label, _)| *label != "le");
        points
            .entry(labels.cloned().collect())
            .or_default()
            .push(sample);
    }
    for samples in points.values() {
        let (mut bound, mut below) = (f64::NEG_INFINITY, 0.0);
        let (mut count, mut sums) = (None, 0);
        for sample in samples {
            let le = sample.labels.iter().find(|(label, _)| *label == "le");
            match (sample.name.rsplit('_').next(), le) {
                (Some("bucket"), Some((_, text))) => {
                    let le: f64 = text.parse().map_err(|_| format!("le {text}"))?;
                    if le <= bound || sample.value < below {
                        return Err(format!("{} falls at le {text}", sample.name));
                    }
                    (bound, below) = (le, sample.value);
                }
                (Some("count"), None) => count = Some(sample.value),
                (Some("sum"), None) => sums += 1,
                _ => return Err(format!("{}: le is for buckets", sample.name)),
            }
        }
        if bound != f64::INFINITY || count != Some(below) || sums != 1 {
            return Err(format!("{}: not a whole histogram", family.name));
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (vec![], rest),
    };
    let value = value.strip_prefix(' ')?;
    let plain = !value.is_empty() && value.bytes().all(|byte| b"0123456789.eE+-".contains(&byte));
    let value = value.parse().ok().filter(|_| plain)?;
    is_name(name, true).then_some(Sample {
        name,
        labels,
        value,
    })
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels: Vec<(&str, String)> = Vec::new();
    loop {
        let (label, text) = rest.split_once("=\"")?;
        if !is_name(label, false) || labels.iter().any(|(other, _)| *other == label) {
            return None;
        }
        let mut value = String::new();
        let mut characters = text.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    same @ ('"' | '\\') => same,
                    _ => return None,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((label, value));
        rest = &text[end + 1..];
        match rest.split_at_checked(1)? {
            ("}", after) => return Some((labels, after)),
            (",", after) => rest = after,
            _ => return None,
        }
    }
}

fn is_name(name: &str, colon: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (colon && c == ':');
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

#[test]
fn what_breaks_a_rule_is_found() {
    let histogram = "# HELP h x\n# TYPE h histogram\n";
    for (text, rule) in [
        ("# HELP a x\n# TYPE a gauge\na 1\n", "EOF"),
        ("a 1\n# EOF\n", "without a family"),
        ("# HELP a x\n# TYPE b gauge\n# EOF\n", "apart"),
        ("# HELP a x\n# TYPE a gauge\nb 1\n# EOF\n", "no sample of"),
        ("# HELP a x\n# TYPE a gauge\na 1\na 2\n# EOF\n", "twice"),
        (
            "# HELP a x\n# TYPE a gauge\na{b=\"\\x\"} 1\n# EOF\n",
            "no sample:",
        ),
        (
            "# HELP a x\n# TYPE a gauge\na{b=\"1\",b=\"2\"} 1\n# EOF\n",
            "no sample:",
        ),
        ("# HELP a x\n# TYPE a gauge\na inf\n# EOF\n", "no sample:"),
        ("# HELP a x\n# TYPE a counter\na_total -1\n# EOF\n", "is -1"),
        (
            "# HELP a x\n# TYPE a counter\n# HELP a_total x\n# TYPE a_total gauge\n# EOF\n",
            "two families",
        ),
        (
            "# HELP a x\n# TYPE a counter\n# HELP a x\n# TYPE a gauge\n# EOF\n",
            "two families",
        ),
        (
            &format!("{histogram}h_count 1\nh_sum 1\n# EOF\n"),
            "not a whole",
        ),
        (
            &format!("{histogram}h_bucket{{le=\"1\"}} 2\nh_bucket{{le=\"+Inf\"}} 1\n# EOF\n"),
            "falls",
        ),
    ] {
        let found = check(text, Format::OpenMetrics).expect_err(text);
        assert!(found.contains(rule), "{text}: {found}");
    }
}
