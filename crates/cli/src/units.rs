//! Sizes, counts and times as people write and read them.
//!
//! Written forms follow GNU `dd`: `k`, `K` and `KiB` are 1,024; `kB` and `KB` are 1,000; likewise
//! M, G, T. A bare number is bytes; `4096p` is pages where a page size is known.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thermocline_trace::Sample;

/// The forms a size may take, for error messages and help.
pub(crate) const SIZE_FORMS: &str = "512, 8k, 512M, 8GiB, 1.5T, 100MB (decimal), or 4096p (pages)";

const BINARY_UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// An amount of storage, in bytes or in pages of a size known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Bytes.
    Bytes(u64),
    /// Pages; how many bytes that is depends on the page size.
    Pages(u64),
}

/// A size that could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SizeError {
    text: String,
    reason: &'static str,
}

/// The longest time that can be written.
const SECONDS_MAX: u64 = 31 * 24 * 3600;

/// Reads a time: 90, 90s, 5m, 2h or 1d.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600)];
    let text = text.trim();
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(*unit));
    let number = unit.map_or(text, |(unit, _)| text.trim_end_matches(*unit));
    let count: Option<u64> = number.trim().parse().ok();
    let seconds = count.and_then(|count| count.checked_mul(unit.map_or(1, |(_, each)| *each)));
    match seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(format!(
            "\"{text}\" is not a time; write 90s, 5m, 2h or 1d, at most 31d"
        )),
    }
}

impl Size {
    /// No storage.
    pub(crate) const ZERO: Self = Self::Bytes(0);

    /// The amount in bytes; `None` when that exceeds 64 bits.
    pub(crate) fn bytes(self, page_size: u32) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Pages(pages) => pages.checked_mul(u64::from(page_size)),
        }
    }

    /// The amount in whole pages, rounded down.
    pub(crate) fn pages(self, page_size: u32) -> u64 {
        assert!(page_size > 0);
        match self {
            Self::Bytes(bytes) => bytes / u64::from(page_size),
            Self::Pages(pages) => pages,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pages(pages) => write!(out, "{pages}p"),
            Self::Bytes(0) => write!(out, "0"),
            Self::Bytes(bytes) => {
                match BINARY_UNITS
                    .iter()
                    .find(|(_, unit)| bytes.is_multiple_of(*unit))
                {
                    Some((name, unit)) => write!(out, "{}{name}", bytes / unit),
                    None => write!(out, "{bytes}"),
                }
            }
        }
    }
}

impl fmt::Display for SizeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "\"{}\" is not a size: {}; write {SIZE_FORMS}",
            self.text, self.reason
        )
    }
}

impl std::error::Error for SizeError {}

/// Bytes in one unit of `suffix`; pages are handled by the caller.
fn unit_bytes(suffix: &str) -> Option<u64> {
    let (letter, rest) = suffix.split_at_checked(1)?;
    let power = match letter {
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return None,
    };
    match rest {
        "" | "iB" | "ib" | "i" => 1_u64.checked_shl(10 * power),
        "B" | "b" => 1_000_u64.checked_pow(power),
        _ => None,
    }
}

/// `whole.fraction` times `unit`: `None` when out of range. What is less than a whole byte is left
/// out; a fraction of what has no parts (`unit` 1) is none.
fn scale(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = whole.parse().ok()?;
    let mut total = u128::from(whole) * u128::from(unit);
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scaled = fraction
            .parse::<u128>()
            .ok()?
            .checked_mul(u128::from(unit))?;
        if unit == 1 {
            return None;
        }
        total += scaled / divisor;
    }
    u64::try_from(total).ok()
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let fail = |reason| SizeError {
            text: text.to_string(),
            reason,
        };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = trimmed.split_at(digits.unwrap_or(trimmed.len()));
        let suffix = suffix.trim_start();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
            return Err(fail("it has no number in front"));
        }
        if matches!(suffix, "p" | "P" | "pages" | "page") {
            let pages = scale(whole, fraction, 1).ok_or_else(|| fail("pages are whole"))?;
            return Ok(Self::Pages(pages));
        }
        let unit = match suffix {
            "" | "B" | "b" => 1,
            other => unit_bytes(other).ok_or_else(|| fail("the unit is unknown"))?,
        };
        let bytes = scale(whole, fraction, unit);
        bytes
            .map(Self::Bytes)
            .ok_or_else(|| fail("not a whole number of bytes below 16 EiB"))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// Accepts a number of bytes or any of [`SIZE_FORMS`] as text.
struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a size such as {SIZE_FORMS}")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size::Bytes(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        let bytes = u64::try_from(bytes).map_err(|_| E::custom("a size is not negative"))?;
        Ok(Size::Bytes(bytes))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }
}

/// Bytes rounded for reading: `1.5 GiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    match BINARY_UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// A count with thousands separated: `12,345,678`.
pub(crate) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A count of at most ten characters or so: from ten millions on in millions, `12,346 M`.
pub(crate) fn show_short(count: u64) -> String {
    match count {
        ..10_000_000 => show_count(count),
        _ => show_count((count as f64 / 1e6).round() as u64) + " M",
    }
}

/// A duration in nanoseconds rounded for reading: `85 µs`, `7.2 ms`, `1.5 s`.
pub(crate) fn show_nanoseconds(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0 => "0".to_string(),
        1..1_000 => format!("{nanoseconds} ns"),
        1_000..10_000 => format!("{:.1} µs", value / 1e3),
        10_000..1_000_000 => format!("{:.0} µs", value / 1e3),
        1_000_000..100_000_000 => format!("{:.1} ms", value / 1e6),
        100_000_000..1_000_000_000 => format!("{:.0} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
    }
}

/// `part` of `whole` as `93.4 %`; a dash when there is no whole.
pub(crate) fn show_share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_string();
    }
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

/// The number before the sign in `text`: without one it could be meant as a fraction.
pub(crate) fn in_percent(text: &str) -> Option<f64> {
    text.trim().strip_suffix('%')?.trim().parse().ok()
}

/// A sample of all extents, its share written in per cent.
pub(crate) fn sample(text: &str) -> Result<Sample, String> {
    let sample = in_percent(text).and_then(|percent| Sample::of(percent / 100.0));
    sample.ok_or_else(|| format!("\"{text}\" is not a share; write 12.5%: above 0%, at most 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_people_write() {
        let cases = [
            ("0", Size::Bytes(0)),
            ("512", Size::Bytes(512)),
            ("8k", Size::Bytes(8192)),
            ("8KiB", Size::Bytes(8192)),
            ("8 KiB", Size::Bytes(8192)),
            ("512M", Size::Bytes(512 << 20)),
            ("8GiB", Size::Bytes(8 << 30)),
            ("8g", Size::Bytes(8 << 30)),
            ("1.5T", Size::Bytes(3 << 39)),
            ("44.2MiB", Size::Bytes(46_347_059)),
            ("100MB", Size::Bytes(100_000_000)),
            ("100kB", Size::Bytes(100_000)),
            ("4096p", Size::Pages(4096)),
            ("4096 pages", Size::Pages(4096)),
        ];
        for (text, size) in cases {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
    }

    #[test]
    fn errors_name_the_value_and_the_forms() {
        for text in [
            "",
            "GiB",
            "8X",
            "-1",
            "1.2.3",
            "8.",
            "1.3",
            "0.5p",
            "99999999T",
            "8 G iB",
        ] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
            assert!(error.contains("8GiB") && error.contains("4096p"), "{error}");
        }
    }

    #[test]
    fn pages_and_bytes_convert() {
        assert_eq!(Size::Pages(3).bytes(8192), Some(24576));
        assert_eq!(Size::Pages(u64::MAX).bytes(8192), None);
        assert_eq!(Size::Bytes(24577).pages(8192), 3);
    }

    #[test]
    fn numbers_for_reading() {
        assert_eq!(show_count(0), "0");
        assert_eq!(show_count(999), "999");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_short(9_999_999), "9,999,999");
        assert_eq!(show_short(12_345_678_901), "12,346 M");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
        assert_eq!(show_nanoseconds(85_000), "85 µs");
        assert_eq!(show_nanoseconds(7_240_000), "7.2 ms");
        assert_eq!(show_share(1, 3), "33.3 %");
        assert_eq!(show_share(0, 0), "-");
    }

    #[test]
    fn shares_have_their_sign() {
        assert_eq!(
            (in_percent("12.5%"), in_percent("50 %")),
            (Some(12.5), Some(50.0))
        );
        assert_eq!(sample("50%"), Sample::of(0.5).ok_or(String::new()));
        for text in ["0.5", "50", "%", "x%", "50%%", ""] {
            assert_eq!(in_percent(text), None, "{text}");
            assert!(sample(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_size_survives_printing(bytes: u64, pages: u64, shift in 0_u32..50) {
            let round = bytes >> shift << shift;
            for size in [Size::Bytes(bytes), Size::Bytes(round), Size::Pages(pages)] {
                prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = text.parse::<Size>().map(|size| size.bytes(8192));
        }

        #[test]
        fn grouped_digits_are_the_digits(count: u64) {
            prop_assert_eq!(show_count(count).replace(',', ""), count.to_string());
        }
    }
}
