//! One page number per line, as the LIRS paper's traces (Jiang & Zhang, SIGMETRICS 2002). Lines
//! with `*` mark phases and are passed over. Every request counts as a read at time 0.

use super::number::natural;
use super::oracle_general::OBJECT;
use super::{Decoded, Decoder, Opened, Unit, object, read_of};
use crate::catalog::Catalog;

pub(super) fn open() -> Opened {
    Opened::pages(Ids, Unit::Line)
}

struct Ids;

impl Decoder for Ids {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        let cell = unit.trim_ascii();
        if cell.is_empty() || cell == b"*" {
            return Ok(Decoded::Nothing);
        }
        let id = natural(cell)?;
        Ok(Decoded::Record(read_of(object(catalog, OBJECT)?, id, 1)))
    }
}
