//! The traces of the ARC paper (Megiddo & Modha, FAST 2003): four numbers per line, start and
//! count of 512-byte blocks, a field that is ignored, the number of the request.
//!
//! There is no time and no operation: every request counts as a read at time 0. For traces
//! whose unit is a page of another size (OLTP), [`ImportOptions::unit`] sets the unit.

use super::number::{natural, times};
use super::{Decoded, Decoder, Opened, Unit, object, read_of};
use crate::catalog::Catalog;
use crate::source::ImportOptions;

/// Bytes per block when not said otherwise.
const BLOCK: u32 = 512;

const OBJECT: &str = "disk";

pub(super) fn open(options: &ImportOptions) -> Opened {
    let block = options.unit.unwrap_or(BLOCK);
    let decoder = Lis {
        block: u64::from(block),
    };
    Opened {
        page_size: Some(block),
        ..Opened::bytes(decoder, Unit::Line)
    }
}

struct Lis {
    block: u64,
}

impl Decoder for Lis {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        let mut words = unit
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let Some(start) = words.next() else {
            return Ok(Decoded::Nothing);
        };
        let count = words.next().ok_or("one number, expected four")?;
        for what in ["third", "fourth"] {
            let word = words
                .next()
                .ok_or_else(|| format!("the {what} number is missing"))?;
            natural(word)?;
        }
        if words.next().is_some() {
            return Err("more than four numbers".into());
        }
        let offset = times(natural(start)?, self.block, start)?;
        let length = times(natural(count)?, self.block, count)?;
        if length == 0 {
            return Err("a request of 0 blocks".into());
        }
        if offset.checked_add(length).is_none() {
            return Err("the request ends beyond 2^64 bytes".into());
        }
        Ok(Decoded::Record(read_of(
            object(catalog, OBJECT)?,
            offset,
            length,
        )))
    }
}
