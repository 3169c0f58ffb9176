//! Aligned columns for terminals: the first column to the left, the others to the right.

use std::fmt;
use thermocline_trace::printable;

/// A table of text cells under a title and a header row.
#[derive(Debug, Default)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    left: usize,
    /// Characters in a line at most, if there is a most.
    within: Option<usize>,
}

/// Characters between columns, and before the first.
const GAP: usize = 3;
const GAP_SMALL: usize = 2;
const MARGIN: usize = 2;

impl Table {
    /// An empty table with these column names; one left-aligned column.
    pub(crate) fn new(header: &[&str]) -> Self {
        assert!(!header.is_empty());
        Self {
            header: header.iter().map(ToString::to_string).collect(),
            rows: vec![],
            left: 1,
            within: None,
        }
    }

    /// Keeps lines within `columns` characters: by smaller gaps, then by shorter cells in the
    /// widest column.
    #[must_use]
    pub(crate) fn within(mut self, columns: usize) -> Self {
        self.within = Some(columns);
        self
    }

    /// Aligns the first `columns` columns to the left.
    #[must_use]
    pub(crate) fn left(mut self, columns: usize) -> Self {
        self.left = columns;
        self
    }

    /// Adds one row, of as many cells as the header has. A file may be called anything: control
    /// characters are shown as escapes, so that no name ends a line or speaks to the terminal.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| printable(&cell).into_owned())
            .collect();
        assert_eq!(cells.len(), self.header.len(), "cells under header");
        self.rows.push(cells);
    }

    /// Whether no row was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.header.len()];
        for cells in std::iter::once(&self.header).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

/// Widths of columns of text of `widths`, and the gaps between them, within so many characters.
fn fitted(mut widths: Vec<usize>, within: Option<usize>) -> (Vec<usize>, usize) {
    let gaps = widths.len() - 1;
    let total = |widths: &[usize], gap| MARGIN + widths.iter().sum::<usize>() + gaps * gap;
    let Some(within) = within.filter(|within| total(&widths, GAP) > *within) else {
        return (widths, GAP);
    };
    let over = total(&widths, GAP_SMALL).saturating_sub(within);
    if let Some(widest) = widths.iter_mut().max() {
        *widest = widest.saturating_sub(over).max(1);
    }
    (widths, GAP_SMALL)
}

/// The beginning and the end of `cell`, `width` characters in all.
fn shortened(cell: &str, width: usize) -> String {
    let length = cell.chars().count();
    if length <= width {
        return cell.to_string();
    }
    let (first, last) = ((width - 1) / 2, width / 2);
    let mut short: String = cell.chars().take(first).collect();
    short.push('…');
    short.extend(cell.chars().skip(length - last));
    short
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (widths, gap) = fitted(self.widths(), self.within);
        for cells in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::new();
            for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                line += &" ".repeat(if column == 0 { MARGIN } else { gap });
                let cell = &shortened(cell, width);
                let pad = " ".repeat(width - cell.chars().count());
                let (before, after) = if column < self.left {
                    ("", pad.as_str())
                } else {
                    (pad.as_str(), "")
                };
                line.extend([before, cell, after]);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut table = Table::new(&["served by", "reads", "p50"]);
        table.row(["flash", "1,204", "85 µs"].map(String::from));
        table.row(["base", "7", "7.2 ms"].map(String::from));
        let expected = "  served by   reads      p50\n  \
                          flash       1,204    85 µs\n  \
                          base            7   7.2 ms\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_table_keeps_within_its_width() {
        let mut table = Table::new(&["object", "reads", "hits"]).within(30);
        table.row(["pg_tblspc/16401/PG_15/16384/2619", "12,345", "1"].map(String::from));
        table.row(["short", "1", "1"].map(String::from));
        let expected = "  object           reads  hits\n  \
                          pg_tbl…84/2619  12,345     1\n  \
                          short                1     1\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn names_end_no_line() {
        let mut table = Table::new(&["name"]);
        table.row(["base/a\n\u{1b}[31m".to_string()]);
        assert_eq!(table.to_string(), "  name\n  base/a\\n\\u{1b}[31m\n");
    }

    #[test]
    #[should_panic(expected = "cells under header")]
    fn a_ragged_row_is_refused() {
        Table::new(&["a", "b"]).row(["1".to_string()]);
    }
}
