//! Sizes of a tier that is not there yet, and amounts of a trace.

use crate::units::{SIZE_FORMS, Size};
use std::fmt;
use std::str::FromStr;

/// A size of the tier: a share of the trace's different pages, or a plain size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TierSize {
    /// Per cent of the different pages.
    Share(f64),
    /// Bytes or pages.
    Size(Size),
}

impl TierSize {
    /// The size in pages, rounded down; `None` when they are too many to number.
    pub(crate) fn pages(&self, distinct: u64, page_size: u32) -> Option<u32> {
        let pages = match self {
            Self::Share(percent) => (distinct as f64 * percent / 100.0) as u64,
            Self::Size(size) => size.pages(page_size),
        };
        u32::try_from(pages).ok()
    }
}

impl FromStr for TierSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().strip_suffix('%') {
            Some(number) => percent(text, number).map(Self::Share),
            None => text.parse().map(Self::Size).map_err(|_| {
                format!("\"{text}\" is not a size; write 5% (of the pages), {SIZE_FORMS}")
            }),
        }
    }
}

impl fmt::Display for TierSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(percent) => write!(out, "{percent}%"),
            Self::Size(size) => size.fmt(out),
        }
    }
}

/// Some of a trace: page requests, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// Per cent.
    Share(f64),
    /// A number.
    Number(u64),
}

impl Amount {
    /// How many of `whole` that is, rounded down.
    pub(crate) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Share(percent) => (whole as f64 * percent / 100.0) as u64,
            Self::Number(number) => number,
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().strip_suffix('%') {
            Some(number) => percent(text, number).map(Self::Share),
            None => text.trim().parse().map(Self::Number).map_err(|_| {
                format!("\"{text}\" is not an amount; write page requests (50000) or 20%")
            }),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(percent) => write!(out, "{percent}%"),
            Self::Number(number) => number.fmt(out),
        }
    }
}

fn percent(text: &str, number: &str) -> Result<f64, String> {
    let value: f64 = number.trim().parse().unwrap_or(f64::NAN);
    match (0.0..=100.0).contains(&value) {
        true => Ok(value),
        false => Err(format!("\"{text}\" is not a share; write 0% to 100%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_all_kinds() {
        let pages = |text: &str| text.parse::<TierSize>().expect(text).pages(48_974, 4096);
        assert_eq!(pages("1%"), Some(489));
        assert_eq!(pages("20%"), Some(9794));
        assert_eq!(pages("0.5%"), Some(244));
        assert_eq!(pages("4096p"), Some(4096));
        assert_eq!(pages("2MiB"), Some(512));
        assert_eq!(pages("99999999p").and_then(|_| pages("9999999999p")), None);
        for text in ["x%", "101%", "-1%", "NaN%", "abc", ""] {
            let error = text.parse::<TierSize>().expect_err(text);
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
    }

    #[test]
    fn amounts_are_numbers_or_shares() {
        let of = |text: &str| text.parse::<Amount>().expect(text).of(1000);
        assert_eq!((of("20%"), of("123"), of("0")), (200, 123, 0));
        assert!("half".parse::<Amount>().is_err());
    }
}
