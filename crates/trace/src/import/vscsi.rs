//! Records of VMware's `vscsiStats`, little-endian.
//!
//! | field | version 1 (32 bytes) | version 2 (40 bytes) |
//! |---|---|---|
//! | serial number u32 | 0 | 4 |
//! | length in bytes u32 | 4 | 8 |
//! | scatter-gather elements u32 | 8 | 12 |
//! | SCSI command u16 | 12 | 0 |
//! | version u16, in its upper byte | 14 | 2 |
//! | first block of 512 bytes u64 | 16 | 16 |
//! | time in microseconds u64 | 24 | 24 |
//! | response time in microseconds u64 | | 32 |
//!
//! The version is read from the first record and must be the same in all. Commands that move no
//! data of the disk (inquiries, reservations ...) are left out and counted.

use super::number::le;
use super::{Decoded, Decoder, Input, Opened, Unit, object, read_of};
use crate::catalog::Catalog;
use crate::error::ReadError;
use crate::record::Op;

const BLOCK: u64 = 512;

const OBJECT: &str = "disk";

/// Where the fields are.
#[derive(Clone, Copy)]
struct Layout {
    version: u16,
    record: usize,
    length_at: usize,
    command_at: usize,
    version_at: usize,
    response_at: Option<usize>,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        version: 1,
        record: 32,
        length_at: 4,
        command_at: 12,
        version_at: 14,
        response_at: None,
    },
    Layout {
        version: 2,
        record: 40,
        length_at: 8,
        command_at: 0,
        version_at: 2,
        response_at: Some(32),
    },
];

const BLOCK_AT: usize = 16;
const TIME_AT: usize = 24;

pub(super) fn open(input: &mut Input) -> Result<Opened, ReadError> {
    let head = input.head()?;
    let fits = |layout: &&Layout| {
        head.len() >= layout.version_at + 2
            && le::u16(head, layout.version_at) >> 8 == layout.version
    };
    let Some(layout) = LAYOUTS.iter().find(fits) else {
        return Err(ReadError::Record {
            path: input.path().to_path_buf(),
            record: 0,
            byte: 0,
            reason: "neither version 1 nor version 2 of the vscsi format".into(),
        });
    };
    let decoder = Vscsi {
        layout: *layout,
        origin: None,
    };
    Ok(Opened::bytes(decoder, Unit::Bytes(layout.record)))
}

struct Vscsi {
    layout: Layout,
    /// Time of the first record, microseconds.
    origin: Option<u64>,
}

impl Decoder for Vscsi {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        let layout = self.layout;
        let version = le::u16(unit, layout.version_at);
        if version >> 8 != layout.version {
            let first = layout.version;
            return Err(format!(
                "version field {version:#06x} in a trace of version {first}"
            ));
        }
        let time = le::u64(unit, TIME_AT);
        let origin = *self.origin.get_or_insert(time);
        let Some(op) = operation(le::u16(unit, layout.command_at)) else {
            return Ok(Decoded::Skipped);
        };
        let block = le::u64(unit, BLOCK_AT);
        let length = u64::from(le::u32(unit, layout.length_at));
        let offset = block.checked_mul(BLOCK);
        let Some(offset) = offset.filter(|offset| offset.checked_add(length).is_some()) else {
            return Err(format!("block {block} is beyond 2^64 bytes"));
        };
        let mut record = read_of(object(catalog, OBJECT)?, offset, length);
        record.op = op;
        record.time_ns = nanoseconds(time.saturating_sub(origin))?;
        if let Some(at) = layout.response_at {
            record.latency_ns = nanoseconds(le::u64(unit, at))?;
        }
        Ok(Decoded::Record(record))
    }
}

fn nanoseconds(microseconds: u64) -> Result<u64, String> {
    let ns = microseconds.checked_mul(1000);
    ns.ok_or_else(|| format!("a time of {microseconds} us does not fit"))
}

/// Reads and writes of 6, 10, 12 and 16 bytes.
fn operation(command: u16) -> Option<Op> {
    match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a => Some(Op::Write),
        _ => None,
    }
}
