//! What `status` says of the list of what is hot on flash, and of warming from one.

use super::WarmFacts;
use crate::units::{show_bytes, show_count};
use std::fmt::Write;

/// A line where there is something to say.
pub(super) fn render(out: &mut String, warm: &WarmFacts) -> std::fmt::Result {
    let count = |number: u64| show_count(number);
    let (seen, listed) = (count(warm.seen), count(warm.listed));
    let came = format!(
        "{} came, by {} reads of base ({})",
        count(warm.came),
        count(warm.requests),
        show_bytes(warm.bytes)
    );
    match warm.state.as_str() {
        "" | "none" => {}
        "reading" => writeln!(out, "warming   {seen} of {listed} pages; {came}")?,
        "full" => writeln!(out, "warmed    until flash was full; {came}")?,
        "off" => writeln!(out, "warmed    until the tier went off; {came}")?,
        "done" | "ended" => writeln!(out, "warmed    {seen} of {listed} pages; {came}")?,
        why => writeln!(out, "warmed    NOT from {}: {why}", warm.from.display())?,
    }
    if warm.failed > 0 {
        let failed = count(warm.failed);
        writeln!(out, "          {failed} parts of files could not be read")?;
    }
    if warm.kept > 0 {
        let (pages, list) = (count(warm.kept_pages), warm.list.display());
        writeln!(out, "hot list  {pages} pages in {list}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(state: &str) -> String {
        let warm = WarmFacts {
            list: "/bulk/.pg.thermocline-hot".into(),
            kept: 1,
            kept_pages: 5000,
            from: "/x".into(),
            state: state.into(),
            listed: 9000,
            seen: 4000,
            came: 3000,
            requests: 70,
            bytes: 40 << 20,
            failed: 2,
            ..WarmFacts::default()
        };
        let mut out = String::new();
        render(&mut out, &warm).expect("a string");
        out
    }

    #[test]
    fn every_state_says_how_far_it_came() {
        for (state, part) in [
            (
                "reading",
                "warming   4,000 of 9,000 pages; 3,000 came, by 70 reads",
            ),
            ("done", "warmed    4,000 of 9,000"),
            ("ended", "warmed    4,000 of 9,000"),
            ("full", "warmed    until flash was full; 3,000 came"),
            ("off", "warmed    until the tier went off"),
            ("failed: no such file", "NOT from /x: failed: no such file"),
        ] {
            let text = text(state);
            assert!(text.contains(part), "{state}: {text}");
            assert!(text.contains("hot list  5,000 pages in /bulk/.pg.thermocline-hot"));
            assert!(text.contains("2 parts of files"), "{text}");
        }
        assert!(!text("none").contains("warm"), "nothing to say");
        let mut none = String::new();
        render(&mut none, &WarmFacts::default()).expect("a string");
        assert_eq!(none, "");
    }
}
