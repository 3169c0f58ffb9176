//! Which pages of the file belong to which table or index.

use super::outcome::Band;
use anyhow::Result;
use rusqlite::Connection;
use std::path::Path;

/// Runs shorter than this share of the file are counted to the run before: a picture could not
/// show them.
const SHORTEST: f64 = 0.004;

/// The bands of a database file, in page order.
pub(crate) fn of(path: &Path) -> Result<Vec<Band>> {
    let db = Connection::open(path)?;
    let mut pages = db.prepare("SELECT name, pageno FROM dbstat ORDER BY pageno")?;
    let rows = pages.query_map([], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)? as u64 - 1))
    })?;
    let pages: Vec<(String, u64)> = rows.collect::<rusqlite::Result<_>>()?;
    let shortest = (pages.len() as f64 * SHORTEST) as u64;
    Ok(merge(runs(pages), shortest))
}

/// Consecutive pages of one name.
fn runs(pages: Vec<(String, u64)>) -> Vec<Band> {
    let mut runs: Vec<Band> = vec![];
    for (name, page) in pages {
        match runs.last_mut() {
            Some(run) if run.name == name => run.last = page,
            _ => runs.push(Band {
                name,
                first: page,
                last: page,
            }),
        }
    }
    runs
}

/// Short runs join their predecessor, then neighbours of one name each other.
fn merge(runs: Vec<Band>, shortest: u64) -> Vec<Band> {
    let mut bands: Vec<Band> = vec![];
    for run in runs {
        match bands.last_mut() {
            Some(band) if band.name == run.name => band.last = run.last,
            Some(band) if run.last - run.first + 1 < shortest => band.last = run.last,
            _ => bands.push(run),
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_interruptions_do_not_split_a_band() {
        let name = |page: u64| {
            if page == 50 {
                "schema"
            } else if page < 70 {
                "a"
            } else {
                "b"
            }
        };
        let pages = (0..100).map(|page| (name(page).to_owned(), page)).collect();
        let bands = merge(runs(pages), 5);
        let seen: Vec<_> = bands
            .iter()
            .map(|b| (b.name.as_str(), b.first, b.last))
            .collect();
        assert_eq!(seen, [("a", 0, 69), ("b", 70, 99)]);
    }
}
