//! Prometheus text format, version 0.0.4: families of samples with HELP and TYPE lines.

use std::fmt::Write;

/// What a family's values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, from 0 at the mount.
    Counter,
    /// May go either way.
    Gauge,
}

/// Text under construction.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

impl Exposition {
    /// Starts the family `name`; its samples follow.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        assert!(name.starts_with("thermocline_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {word}");
        Family {
            name,
            text: &mut self.text,
        }
    }

    /// The whole text.
    pub(crate) fn finish(self) -> String {
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
        self.text.push_str(self.name);
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
    #[should_panic(expected = "thermocline_reads")]
    fn a_counter_without_its_suffix_is_refused() {
        Exposition::default().family("thermocline_reads", Kind::Counter, "Page reads.");
    }
}
