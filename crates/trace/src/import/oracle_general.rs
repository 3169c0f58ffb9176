//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | time, seconds |
//! | 4–11 | object |
//! | 12–15 | size of the object, bytes |
//! | 16–23 | number of the next request for the object, counted from 1; −1 for none |
//!
//! The object is a page of its own, whatever its size; there is no operation, so that every
//! request counts as a read. The next access is not used: what is yet to come is worked out from
//! the trace, for every format alike.

use super::number::le;
use super::{Decoded, Decoder, Opened, Unit, object, read_of};
use crate::catalog::Catalog;

/// Bytes per record.
pub(crate) const RECORD: usize = 24;

/// The name of the one object whose pages the numbers are.
pub(super) const OBJECT: &str = "ids";

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn open() -> Opened {
    Opened::pages(OracleGeneral { origin: None }, Unit::Bytes(RECORD))
}

struct OracleGeneral {
    /// Time of the first record, seconds.
    origin: Option<u32>,
}

impl Decoder for OracleGeneral {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        let seconds = le::u32(unit, 0);
        let next = le::u64(unit, 16).cast_signed();
        if next < -1 {
            return Err(format!("next access {next} is neither a request nor -1"));
        }
        let origin = *self.origin.get_or_insert(seconds);
        let mut record = read_of(object(catalog, OBJECT)?, le::u64(unit, 4), 1);
        record.time_ns = u64::from(seconds.saturating_sub(origin)) * SECOND_NS;
        Ok(Decoded::Record(record))
    }
}
