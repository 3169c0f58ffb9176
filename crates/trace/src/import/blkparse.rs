//! The text `blkparse` prints by default, one event per line:
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//! device  CPU  sequence        seconds   PID action RWBS sector + sectors [process]
//! ```
//!
//! One action per request is taken: queued (`Q`) unless another letter is asked for; `D` gives
//! what reached the device after merging. The object is the device, the client the process id.
//! Reading ends at the summary (`CPU0 (...)`, `Total (...)`).

use super::number::{natural, scaled, shown, text, times};
use super::{Decoded, Decoder, Opened, Unit, object, read_of};
use crate::catalog::Catalog;
use crate::record::Op;
use crate::source::ImportOptions;

const SECTOR: u64 = 512;

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn open(options: &ImportOptions) -> Opened {
    let mut action = [0; 4];
    let action = options.blkparse_action.encode_utf8(&mut action);
    let decoder = Blkparse {
        action: action.as_bytes().to_vec(),
    };
    Opened::bytes(decoder, Unit::Line)
}

struct Blkparse {
    action: Vec<u8>,
}

impl Decoder for Blkparse {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        let mut words = unit
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let Some(device) = words.next() else {
            return Ok(Decoded::Nothing);
        };
        if device.starts_with(b"CPU") || device == b"Total" {
            return Ok(Decoded::End);
        }
        check_device(device)?;
        let mut next = |what: &str| words.next().ok_or_else(|| format!("the {what} is missing"));
        natural(next("CPU")?)?;
        natural(next("sequence number")?)?;
        let time_ns = scaled(next("time")?, SECOND_NS)?;
        let pid = next("process id")?;
        let client = natural(pid)?;
        if next("action")? != self.action {
            return Ok(Decoded::Nothing);
        }
        let flags = next("kind (RWBS)")?;
        let placed = words.clone().nth(1) == Some(b"+");
        let Some(op) = operation(flags, placed) else {
            return Ok(Decoded::Skipped);
        };
        let client = u32::try_from(client).map_err(|_| format!("process {client}"))?;
        let (offset, length) = match op {
            Op::Sync => (0, 0),
            _ => extent(&mut words)?,
        };
        // A flush alone may have a place, of no length.
        let op = match (op, length) {
            (Op::Write, 0) if flags.starts_with(b"F") => Op::Sync,
            _ => op,
        };
        let mut record = read_of(object(catalog, text(device)?)?, offset, length);
        (record.op, record.time_ns, record.client) = (op, time_ns, client);
        Ok(Decoded::Record(record))
    }
}

fn check_device(word: &[u8]) -> Result<(), String> {
    let mut numbers = word.split(|&byte| byte == b',');
    let both = numbers.next().zip(numbers.next());
    let fine = both.is_some_and(|(major, minor)| natural(major).and(natural(minor)).is_ok());
    if fine && numbers.next().is_none() {
        return Ok(());
    }
    Err(format!("{} is not a device (major,minor)", shown(word)))
}

/// What the RWBS letters ask for, of a request that has a place or none; `None` for events that are
/// no request for data (`N`). An `F` in front is a flush, which comes before the data of a write.
fn operation(flags: &[u8], placed: bool) -> Option<Op> {
    let has = |letter: u8| flags.contains(&letter);
    if has(b'R') {
        return Some(Op::Read);
    }
    if has(b'D') {
        return Some(Op::Trim);
    }
    if has(b'W') && (placed || !flags.starts_with(b"F")) {
        return Some(Op::Write);
    }
    has(b'F').then_some(Op::Sync)
}

fn extent<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<(u64, u64), String> {
    let mut next = |what: &str| words.next().ok_or_else(|| format!("the {what} is missing"));
    let (sector, plus) = (next("sector")?, next("+")?);
    let sectors = next("number of sectors")?;
    if plus != b"+" {
        return Err(format!("{} where + is expected", shown(plus)));
    }
    let offset = times(natural(sector)?, SECTOR, sector)?;
    let length = times(natural(sectors)?, SECTOR, sectors)?;
    if offset.checked_add(length).is_none() {
        return Err("the request ends beyond 2^64 bytes".into());
    }
    Ok((offset, length))
}
