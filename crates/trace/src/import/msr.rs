//! The MSR Cambridge traces (SNIA 388): CSV without a header,
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Timestamp and response time are in 100 ns, the former since 1601 (Windows file time); offset
//! and size in bytes. The object is `hostname.disk`.

use super::number::{natural, shown, text, times};
use super::{Decoded, Decoder, Opened, Unit, object, read_of};
use crate::catalog::Catalog;
use crate::record::Op;

/// Nanoseconds per tick.
const TICK: u64 = 100;

/// 1601-01-01 to 1970-01-01, ticks.
const EPOCH: u64 = 116_444_736_000_000_000;

const COLUMNS: [&str; 7] = [
    "timestamp",
    "hostname",
    "disk number",
    "type",
    "offset",
    "size",
    "response time",
];

pub(super) fn open() -> Opened {
    let decoder = Msr {
        origin: None,
        name: String::new(),
    };
    Opened::bytes(decoder, Unit::Line)
}

struct Msr {
    /// Time of the first record, ticks.
    origin: Option<u64>,
    name: String,
}

impl Decoder for Msr {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        let line = unit.trim_ascii();
        if line.is_empty() {
            return Ok(Decoded::Nothing);
        }
        let [timestamp, host, disk, kind, offset, size, response] = cells(line)?;
        let number = |column: usize, cell: &[u8]| {
            natural(cell).map_err(|reason| format!("{}: {reason}", COLUMNS[column]))
        };
        let ticks = number(0, timestamp)?;
        let disk = number(2, disk)?;
        self.name.clear();
        self.name.push_str(text(host)?);
        self.name.push('.');
        self.name.push_str(&disk.to_string());
        let (start, length) = (number(4, offset)?, number(5, size)?);
        if start.checked_add(length).is_none() {
            return Err("the request ends beyond 2^64 bytes".into());
        }
        let mut record = read_of(object(catalog, &self.name)?, start, length);
        record.op = operation(kind)?;
        let origin = *self.origin.get_or_insert(ticks);
        record.time_ns = times(ticks.saturating_sub(origin), TICK, timestamp)?;
        record.latency_ns = times(number(6, response)?, TICK, response)?;
        Ok(Decoded::Record(record))
    }

    fn start_unix_ns(&self) -> Option<u64> {
        self.origin?.checked_sub(EPOCH)?.checked_mul(TICK)
    }
}

fn cells(line: &[u8]) -> Result<[&[u8]; 7], String> {
    let mut cells: [&[u8]; 7] = [&[]; 7];
    let mut found = 0;
    for cell in line.split(|&byte| byte == b',') {
        if let Some(place) = cells.get_mut(found) {
            *place = cell.trim_ascii();
        }
        found += 1;
    }
    if found != cells.len() {
        return Err(format!("{found} columns, expected {}", cells.len()));
    }
    Ok(cells)
}

fn operation(cell: &[u8]) -> Result<Op, String> {
    if cell.eq_ignore_ascii_case(b"read") {
        return Ok(Op::Read);
    }
    if cell.eq_ignore_ascii_case(b"write") {
        return Ok(Op::Write);
    }
    Err(format!("type: {} is not Read or Write", shown(cell)))
}
