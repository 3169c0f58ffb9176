//! Curves in the terminal, drawn with characters.

use std::fmt::Write;

/// One for each curve, in order; more curves are not drawn, for nobody could tell them apart.
const MARKS: [char; 8] = ['●', '○', '▲', '△', '■', '□', '◆', '◇'];

/// A curve: at least one point, x above 0 and rising.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What the axes say. The x axis is logarithmic, the y axis begins at 0.
pub(crate) struct Axes<'a> {
    /// Above the y axis.
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a dyn Fn(f64) -> String,
    pub(crate) y_label: &'a dyn Fn(f64) -> String,
    pub(crate) y_max: f64,
}

/// Columns and rows of the plotting area.
const COLUMNS: usize = 72;
const ROWS: usize = 15;
/// Columns from one x label to the next.
const LABEL_EVERY: usize = 18;
/// Rows from one y label to the next.
const ROW_LABEL_EVERY: usize = 7;

/// The picture, with a legend below, of as many curves as there are marks. Where curves meet the
/// first one is seen.
pub(crate) fn draw(curves: &[Curve], axes: &Axes) -> String {
    let left_out = curves.len().saturating_sub(MARKS.len());
    let curves = &curves[..curves.len() - left_out];
    let xs = || curves.iter().flat_map(|curve| &curve.points).map(|p| p.0);
    let (low, high) = (xs().fold(f64::MAX, f64::min), xs().fold(0.0, f64::max));
    assert!(low > 0.0 && high < f64::MAX, "sizes above 0");
    let x_at = |column: usize| low * (high / low).powf(column as f64 / (COLUMNS - 1) as f64);
    let mut grid = vec![vec![' '; COLUMNS]; ROWS];
    for (at, curve) in curves.iter().enumerate().rev() {
        let row = |y: f64| {
            let share = (y / axes.y_max).clamp(0.0, 1.0);
            ((1.0 - share) * (ROWS - 1) as f64).round() as usize
        };
        let mut last = None;
        for column in 0..COLUMNS {
            let Some(y) = between(&curve.points, x_at(column)) else {
                continue;
            };
            let to = row(y);
            // A steep piece is drawn whole, from beside the last mark to this one.
            let from = last.map_or(to, |last: usize| match last.cmp(&to) {
                std::cmp::Ordering::Less => last + 1,
                std::cmp::Ordering::Equal => to,
                std::cmp::Ordering::Greater => last - 1,
            });
            for cells in &mut grid[from.min(to)..=from.max(to)] {
                cells[column] = MARKS[at];
            }
            last = Some(to);
        }
    }
    framed(&grid, axes, &x_at) + &legend(curves, left_out)
}

/// y at `x`, between the points on a logarithmic x axis; `None` beside them.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    // The ends are computed with rounding.
    if x < first.0 * (1.0 - 1e-9) || x > last.0 * (1.0 + 1e-9) {
        return None;
    }
    let after = points.iter().position(|point| point.0 >= x);
    let Some(after) = after else {
        return Some(last.1);
    };
    let (right, left) = (points[after], points[after.saturating_sub(1)]);
    if right.0 <= left.0 {
        return Some(right.1);
    }
    let share = (x / left.0).ln() / (right.0 / left.0).ln();
    Some(left.1 + share * (right.1 - left.1))
}

fn framed(grid: &[Vec<char>], axes: &Axes, x_at: &dyn Fn(usize) -> f64) -> String {
    let mut out = format!("  {}\n", axes.title);
    let y_at = |row: usize| axes.y_max * (1.0 - row as f64 / (ROWS - 1) as f64);
    for (row, cells) in grid.iter().enumerate() {
        let labelled = row.is_multiple_of(ROW_LABEL_EVERY);
        let label = if labelled {
            (axes.y_label)(y_at(row))
        } else {
            String::new()
        };
        let edge = if labelled { '┤' } else { '│' };
        let cells: String = cells.iter().collect();
        let line = format!("{label:>9} {edge}{cells}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let mut edge = String::new();
    let mut labels = String::new();
    for column in 0..COLUMNS {
        let labelled = column.is_multiple_of(LABEL_EVERY) || column == COLUMNS - 1;
        edge.push(if labelled { '┬' } else { '─' });
        if labelled {
            let label = (axes.x_label)(x_at(column));
            let taken = labels.chars().count();
            let start = column
                .saturating_sub(label.chars().count() / 2)
                .max(taken + 1);
            labels += &" ".repeat(start - taken);
            labels += &label;
        }
    }
    let _ = writeln!(out, "{:>9} └{edge}\n{:>9}  {}", "", "", labels.trim_end());
    out
}

fn legend(curves: &[Curve], left_out: usize) -> String {
    let names = curves.iter().zip(MARKS);
    let names = names.map(|(curve, mark)| format!("{mark} {}", curve.name));
    let more = match left_out {
        0 => String::new(),
        more => format!("   and {more} more, in the table only"),
    };
    format!(
        "{:>9}  {}{more}\n",
        "",
        names.collect::<Vec<_>>().join("   ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(curves: &[Curve]) -> Vec<String> {
        let axes = Axes {
            title: "misses",
            x_label: &|x| format!("{x:.0}p"),
            y_label: &|y| format!("{y:.0} %"),
            y_max: 100.0,
        };
        draw(curves, &axes).lines().map(String::from).collect()
    }

    fn curve(name: &str, points: &[(f64, f64)]) -> Curve {
        Curve {
            name: name.into(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn a_falling_curve_falls() {
        let lines = drawn(&[curve("lru", &[(1.0, 100.0), (10.0, 50.0), (100.0, 0.0)])]);
        assert_eq!(lines[0], "  misses");
        assert!(lines[1].starts_with("    100 % ┤●"), "{}", lines[1]);
        assert!(
            lines[8].starts_with("     50 % ┤") && lines[8].contains('●'),
            "{lines:?}"
        );
        assert!(
            lines[15].starts_with("      0 % ┤") && lines[15].ends_with('●'),
            "{lines:?}"
        );
        assert!(
            lines[17].contains("1p") && lines[17].ends_with("100p"),
            "{lines:?}"
        );
        assert_eq!(lines[18].trim(), "● lru");
        let columns = |line: &String| line.chars().count() <= 11 + COLUMNS + 4;
        assert!(lines.iter().all(columns), "{lines:?}");
    }

    #[test]
    fn a_cliff_has_no_gaps_and_curves_have_marks_of_their_own() {
        let cliff = [(1.0, 100.0), (10.0, 100.0), (10.1, 0.0), (100.0, 0.0)];
        let lines = drawn(&[
            curve("a", &cliff),
            curve("b", &[(1.0, 20.0), (100.0, 20.0)]),
        ]);
        let marked = |line: &String| line.contains('●');
        assert!(lines[1..=15].iter().all(marked), "{lines:?}");
        assert!(lines.iter().filter(|line| line.contains('○')).count() >= 2);
        assert!(lines[18].contains("● a   ○ b"), "{lines:?}");
    }

    #[test]
    fn no_two_curves_have_one_mark() {
        let curves: Vec<Curve> = (0..11)
            .map(|at| curve(&format!("c{at}"), &[(1.0, f64::from(at)), (9.0, 5.0)]))
            .collect();
        let legend = drawn(&curves).pop().expect("a legend");
        for mark in MARKS {
            assert_eq!(legend.matches(mark).count(), 1, "{legend}");
        }
        assert!(
            legend.ends_with("◇ c7   and 3 more, in the table only"),
            "{legend}"
        );
    }

    #[test]
    fn one_point_is_enough() {
        let lines = drawn(&[curve("a", &[(5.0, 40.0)])]);
        assert!(lines.iter().any(|line| line.contains('●')), "{lines:?}");
    }
}
