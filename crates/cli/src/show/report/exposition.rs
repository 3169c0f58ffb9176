//! Families of samples with HELP and TYPE lines: Prometheus text 0.0.4, or OpenMetrics 1.0.
//!
//! Samples are the same in both. Where they differ: OpenMetrics names a family without the
//! suffixes of its samples, knows the type `info`, and ends with `# EOF`. Prometheus' own format
//! has no such type, and its readers find the type of a sample only under the sample's name.

use std::fmt::Write;

/// What a family's values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, from 0 at the mount.
    Counter,
    /// May go either way.
    Gauge,
    /// Counts by what is at most each bound.
    Histogram,
    /// Always 1: what counts is in the labels.
    Info,
}

impl Kind {
    /// What the name of a sample ends with, and that of a family in OpenMetrics does not.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// Which of the two formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus text format, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Text under construction.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// An empty text.
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
        }
    }

    /// Starts the family `name`; its samples follow.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        assert!(name.starts_with("thermocline_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), kind == Kind::Info, "{name}");
        let word = match (kind, self.format) {
            (Kind::Counter, _) => "counter",
            (Kind::Info, Format::OpenMetrics) => "info",
            (Kind::Gauge | Kind::Info, _) => "gauge",
            (Kind::Histogram, _) => "histogram",
        };
        let family = match self.format {
            Format::Prometheus => name,
            Format::OpenMetrics => name.strip_suffix(kind.suffix()).unwrap_or(name),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {word}");
        Family {
            name,
            text: &mut self.text,
        }
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A family whose samples are being added.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Family<'_> {
    /// Adds one sample.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.line("", labels, value)
    }

    /// Adds the samples of one histogram: how many were below each of `bounds`, how many in all,
    /// and their sum.
    pub(crate) fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        bounds: impl Iterator<Item = (f64, u64)>,
        (count, sum): (u64, f64),
    ) -> &mut Self {
        let all = std::iter::once(("+Inf".to_string(), count));
        for (bound, below) in bounds
            .map(|(bound, below)| (bound.to_string(), below))
            .chain(all)
        {
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.line("_bucket", &labels, below as f64);
        }
        self.line("_count", labels, count as f64);
        self.line("_sum", labels, sum)
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (position, (label, text)) in labels.iter().enumerate() {
            let open = if position == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"{}\"", escape(text));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    /// Adds one sample without labels.
    pub(crate) fn value(&mut self, value: f64) -> &mut Self {
        self.sample(&[], value)
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_carry_help_type_and_escaped_labels() {
        let mut out = Exposition::default();
        let mut family = out.family("thermocline_reads_total", Kind::Counter, "Page reads.");
        family
            .sample(&[("served", "flash")], 12.0)
            .sample(&[("served", "a\"b\\c\nd")], 0.5);
        out.family("thermocline_slots", Kind::Gauge, "Slots.")
            .value(1e9);
        let expected = "# HELP thermocline_reads_total Page reads.\n\
                        # TYPE thermocline_reads_total counter\n\
                        thermocline_reads_total{served=\"flash\"} 12\n\
                        thermocline_reads_total{served=\"a\\\"b\\\\c\\nd\"} 0.5\n\
                        # HELP thermocline_slots Slots.\n\
                        # TYPE thermocline_slots gauge\n\
                        thermocline_slots 1000000000\n";
        assert_eq!(out.finish(), expected);
    }

    #[test]
    fn openmetrics_names_families_without_suffixes_and_ends() {
        let mut out = Exposition::new(Format::OpenMetrics);
        out.family("thermocline_reads_total", Kind::Counter, "Page reads.")
            .value(1.0);
        out.family("thermocline_mount_info", Kind::Info, "What.")
            .sample(&[("base", "/b")], 1.0);
        out.family("thermocline_wait_seconds", Kind::Histogram, "How long.")
            .histogram(&[("at", "x")], [(0.5, 2)].into_iter(), (3, 1.5));
        let expected = "# HELP thermocline_reads Page reads.\n\
                        # TYPE thermocline_reads counter\n\
                        thermocline_reads_total 1\n\
                        # HELP thermocline_mount What.\n\
                        # TYPE thermocline_mount info\n\
                        thermocline_mount_info{base=\"/b\"} 1\n\
                        # HELP thermocline_wait_seconds How long.\n\
                        # TYPE thermocline_wait_seconds histogram\n\
                        thermocline_wait_seconds_bucket{at=\"x\",le=\"0.5\"} 2\n\
                        thermocline_wait_seconds_bucket{at=\"x\",le=\"+Inf\"} 3\n\
                        thermocline_wait_seconds_count{at=\"x\"} 3\n\
                        thermocline_wait_seconds_sum{at=\"x\"} 1.5\n\
                        # EOF\n";
        assert_eq!(out.finish(), expected);
    }

    #[test]
    #[should_panic(expected = "thermocline_reads")]
    fn a_counter_without_its_suffix_is_refused() {
        Exposition::default().family("thermocline_reads", Kind::Counter, "Page reads.");
    }
}
