//! Numbers in text, with reasons a person can act on.

/// The cell as text; formats are ASCII but names may be any UTF-8.
pub(super) fn text(cell: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(cell).map_err(|_| format!("{} is not UTF-8 text", shown(cell)))
}

/// A whole number that is not negative, decimal.
pub(super) fn natural(cell: &[u8]) -> Result<u64, String> {
    let mut number = 0u64;
    for &byte in cell {
        let digit = byte.wrapping_sub(b'0');
        let next = number.checked_mul(10).filter(|_| digit < 10);
        let Some(next) = next.and_then(|next| next.checked_add(u64::from(digit))) else {
            return Err(unnatural(cell));
        };
        number = next;
    }
    if cell.is_empty() {
        return Err(unnatural(cell));
    }
    Ok(number)
}

fn unnatural(cell: &[u8]) -> String {
    let digits = |cell: &[u8]| !cell.is_empty() && cell.iter().all(u8::is_ascii_digit);
    match cell {
        [] => "a number is missing".into(),
        [b'-', rest @ ..] if digits(rest) => format!("{} is negative", shown(cell)),
        _ if digits(cell) => format!("{} is larger than 18446744073709551615", shown(cell)),
        _ => format!("{} is not a whole number", shown(cell)),
    }
}

/// A decimal number with an optional fraction, times `unit` (a power of ten), rounded down.
pub(super) fn scaled(cell: &[u8], unit: u64) -> Result<u64, String> {
    debug_assert!(unit > 0 && 10u64.pow(unit.ilog10()) == unit);
    let (whole, fraction) = match cell.iter().position(|&byte| byte == b'.') {
        Some(at) => (&cell[..at], &cell[at + 1..]),
        None => return times(natural(cell)?, unit, cell),
    };
    let mut result = times(natural(whole)?, unit, cell)?;
    let mut step = unit;
    for &byte in fraction {
        if !byte.is_ascii_digit() {
            return Err(format!("{} is not a number", shown(cell)));
        }
        step /= 10;
        let part = step * u64::from(byte - b'0');
        result = result
            .checked_add(part)
            .ok_or_else(|| too_large(cell, unit))?;
    }
    Ok(result)
}

/// `number` × `unit`, refused when it does not fit; `cell` is what was written.
pub(super) fn times(number: u64, unit: u64, cell: &[u8]) -> Result<u64, String> {
    number
        .checked_mul(unit)
        .ok_or_else(|| too_large(cell, unit))
}

fn too_large(cell: &[u8], unit: u64) -> String {
    format!("{} times {unit} does not fit 64 bits", shown(cell))
}

/// A cell in quotes, cut to a length a message can carry.
pub(super) fn shown(cell: &[u8]) -> String {
    const MAX: usize = 40;
    let text = String::from_utf8_lossy(&cell[..cell.len().min(MAX)]);
    let rest = if cell.len() > MAX { "..." } else { "" };
    format!("{text:?}{rest}")
}

/// Little-endian integers at fixed places of a record. The record has the size the format says.
pub(super) mod le {
    pub(in crate::import) fn u16(record: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(take(record, at))
    }

    pub(in crate::import) fn u32(record: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(take(record, at))
    }

    pub(in crate::import) fn u64(record: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(take(record, at))
    }

    fn take<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&record[at..at + N]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_and_their_reasons() {
        assert_eq!(natural(b"0042"), Ok(42));
        assert_eq!(natural(b"18446744073709551615"), Ok(u64::MAX));
        for (cell, reason) in [
            ("", "missing"),
            ("-3", "negative"),
            ("18446744073709551616", "larger"),
            ("1.5", "not a whole number"),
            ("-", "not a whole number"),
            ("0x10", "not a whole number"),
        ] {
            let error = natural(cell.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{cell:?}: {error}");
        }
    }

    #[test]
    fn fractions_are_cut_at_the_unit() {
        assert_eq!(scaled(b"1.5", 1_000_000_000), Ok(1_500_000_000));
        assert_eq!(scaled(b"0.0000000019", 1_000_000_000), Ok(1));
        assert_eq!(scaled(b"7", 1_000), Ok(7_000));
        assert_eq!(scaled(b"7.", 1), Ok(7));
        assert!(scaled(b"1e5", 1).is_err());
        assert!(scaled(b"1.-5", 1_000).unwrap_err().contains("not a number"));
        assert!(
            scaled(b"18446744073709551615", 1_000)
                .unwrap_err()
                .contains("fit")
        );
        let most = b"18446744073.709551616";
        assert!(scaled(most, 1_000_000_000).unwrap_err().contains("fit"));
    }

    #[test]
    fn long_cells_are_cut_in_messages() {
        let error = natural(&[b'x'; 1000]).unwrap_err();
        assert!(error.len() < 100, "{error}");
    }
}
