//! The summary as text.

use std::fmt::Write;

use crate::sample::EXTENT_PAGES;

use crate::record::printable;

use super::{HintCounts, LatencySummary, ObjectSummary, OpSummary, TraceInfo};

impl TraceInfo {
    /// The summary as a table for a terminal, about 90 columns wide.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_head(&mut out);
        let _ = self.write_operations(&mut out, "operation", &self.operations, self.rows);
        let reads = self.reads_by_place.iter().map(|place| place.requests).sum();
        let _ = self.write_operations(&mut out, "reads served by", &self.reads_by_place, reads);
        let _ = self.write_objects(&mut out);
        for hint in &self.hints {
            let _ = write_hint(&mut out, hint, self.rows);
        }
        out
    }

    fn write_head(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "rows      {} in {} part(s), {}, {}",
            self.rows,
            self.parts,
            self.format,
            size(self.file_bytes)
        )?;
        writeln!(out, "dropped   {}", self.dropped)?;
        if self.skipped > 0 {
            writeln!(
                out,
                "left out  {} (as asked, or no request for data)",
                self.skipped
            )?;
        }
        match self.duration_ns {
            0 => writeln!(out, "duration  unknown: no times, or all the same")?,
            ns => {
                let seconds = ns as f64 / 1e9;
                let rate = self.rows as f64 / seconds;
                writeln!(out, "duration  {seconds:.3} s, {rate:.0} requests/s")?;
            }
        }
        writeln!(out, "clients   {}", self.clients)?;
        self.write_pages(out)?;
        if self.sample < 1.0 {
            let share = 100.0 * self.sample;
            writeln!(
                out,
                "sample    {share:.2} % of the extents of {EXTENT_PAGES} pages"
            )?;
        }
        if let Some(product) = &self.product {
            writeln!(out, "by        {}", printable(product))?;
        }
        Ok(())
    }

    fn write_pages(&self, out: &mut String) -> std::fmt::Result {
        let pages = self.distinct_pages;
        if self.counts_pages() {
            return writeln!(out, "pages     {pages} different ones, of unknown size");
        }
        let page_size = self.page_size;
        let touched = size(pages.saturating_mul(u64::from(page_size)));
        writeln!(
            out,
            "pages     {pages} different ones of {page_size} B: {touched}"
        )
    }

    /// Whether requests are for pages of unknown size.
    fn counts_pages(&self) -> bool {
        self.addressed_in == "pages"
    }

    /// What [`Self::amount`] is in.
    fn unit(&self) -> &'static str {
        if self.counts_pages() {
            "pages"
        } else {
            "bytes"
        }
    }

    fn amount(&self, count: u64) -> String {
        if self.counts_pages() {
            count.to_string()
        } else {
            size(count)
        }
    }

    fn write_operations(
        &self,
        out: &mut String,
        title: &str,
        rows: &[OpSummary],
        total: u64,
    ) -> std::fmt::Result {
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{title:<16}{:>12}{:>8}{:>12}{:>10}{:>10}{:>10}{:>10}",
            "requests",
            "share",
            self.unit(),
            "p50",
            "p95",
            "p99",
            "max"
        )?;
        for row in rows {
            let LatencySummary {
                p50_ns,
                p95_ns,
                p99_ns,
                max_ns,
            } = row.latency;
            writeln!(
                out,
                "{:<16}{:>12}{:>8}{:>12}{:>10}{:>10}{:>10}{:>10}",
                row.name,
                row.requests,
                share(row.requests, total),
                self.amount(row.bytes),
                time(p50_ns),
                time(p95_ns),
                time(p99_ns),
                time(max_ns)
            )?;
        }
        Ok(())
    }

    fn write_objects(&self, out: &mut String) -> std::fmt::Result {
        let objects: &[ObjectSummary] = &self.objects;
        let total = self.objects_total;
        let title = format!("objects ({} of {total})", objects.len());
        writeln!(
            out,
            "\n{title:<40}{:>12}{:>12}{:>12}{:>12}",
            "reads", "read", "writes", "written"
        )?;
        for object in objects {
            writeln!(
                out,
                "{:<40}{:>12}{:>12}{:>12}{:>12}",
                printable(&object.name),
                object.reads,
                self.amount(object.read_bytes),
                object.writes,
                self.amount(object.written_bytes)
            )?;
        }
        Ok(())
    }
}

fn write_hint(out: &mut String, hint: &HintCounts, rows: u64) -> std::fmt::Result {
    if hint.distinct == 0 {
        return writeln!(out, "\nhint {}: always unknown", printable(&hint.name));
    }
    let name = printable(&hint.name);
    writeln!(out, "\nhint {name} ({} values)", hint.distinct)?;
    for (value, count) in &hint.values {
        let value = printable(value);
        writeln!(out, "  {value:<38}{count:>12}{:>8}", share(*count, rows))?;
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

/// Bytes in the largest binary unit that leaves at least 1.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = bytes.checked_ilog2().unwrap_or(0) / 10;
    match unit {
        0 => format!("{bytes} B"),
        _ => format!(
            "{:.1} {}",
            bytes as f64 / f64::powi(1024.0, unit as i32),
            UNITS[unit as usize - 1]
        ),
    }
}

/// Nanoseconds in a unit a person reads; 0 is not known.
fn time(ns: u64) -> String {
    match ns {
        0 => "-".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(time(0), "-");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_500), "1.5 µs");
        assert_eq!(time(2_000_000_000), "2.0 s");
        assert_eq!(share(1, 0), "-");
        assert_eq!(share(1, 4), "25.0 %");
    }

    fn table_of(name: &str, text: &'static str) -> String {
        let reader = std::io::Cursor::new(text);
        let source = crate::open_reader(name, reader, &crate::ImportOptions::default());
        let info = crate::summarise(source.unwrap(), 3, None);
        info.unwrap().table()
    }

    #[test]
    fn what_a_trace_does_not_say_is_not_made_up() {
        let pages = table_of("t.ids", "1\n2\n1\n");
        assert!(pages.contains("duration  unknown"), "{pages}");
        let (_, counts) = pages.split_once('\n').unwrap();
        assert!(
            !counts.contains("bytes") && !counts.contains(" B"),
            "{pages}"
        );
        let bytes = table_of(
            "t.csv",
            "time_ns,offset,length\n0,0,512\n2000000000,512,512\n",
        );
        assert!(bytes.contains("duration  2.000 s, 1 requests/s"), "{bytes}");
        assert!(bytes.contains("1.0 KiB"), "{bytes}");
    }

    #[test]
    fn names_of_a_trace_move_no_cursor() {
        let text = "object,page,hint:role\n\u{1b}[31mr\u{1b}]0;t\u{7},1,\u{1b}[2J\u{9b}a\n";
        let table = table_of("t.csv", text);
        let control = |c: char| c.is_control() && c != '\n';
        assert!(!table.contains(control), "{table:?}");
        assert!(table.contains("\\u{1b}[31mr\\u{1b}]0;t\\u{7}  "), "{table}");
        assert!(table.contains("\\u{1b}[2J\\u{9b}a"), "{table}");
    }
}
