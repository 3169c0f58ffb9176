//! Split-block filters on the SSD, one for each region of the hashes, with a buffer of hashes each:
//! a full buffer reads its region, applies all, and writes it.

use super::{Aligned, Scratch};
use crate::Outcome;

/// Bytes of a region, as of a page of the Buffered Bloom filter.
const REGION: usize = 2 << 20;

/// See the module text.
pub(crate) struct Regions {
    pub(crate) scratch: Scratch,
    buffers: Vec<Vec<u64>>,
    /// Hashes a buffer holds.
    room: usize,
    bytes: Aligned,
    /// Times a "maybe" was answered.
    pub(crate) found: u64,
}

impl Regions {
    /// `bits` on `path`, with `memory` bytes of buffers.
    pub(crate) fn create(path: &str, bits: u64, memory: u64) -> Outcome<Self> {
        let count = bits.div_ceil(8 * REGION as u64).max(1) as usize;
        let room = (memory as usize / count / 8).max(1);
        let mut scratch = Scratch::create(path)?;
        let bytes = Aligned::zeroed(REGION);
        for region in 0..count {
            scratch.write(bytes.get(), (region * REGION) as u64)?;
        }
        (scratch.writes, scratch.written) = (0, 0);
        Ok(Self {
            scratch,
            buffers: vec![Vec::with_capacity(room); count],
            room,
            bytes,
            found: 0,
        })
    }

    /// A hash to insert, or to ask for.
    pub(crate) fn put(&mut self, hash: u64, insert: bool) -> Outcome<()> {
        let region = ((u128::from(hash) * self.buffers.len() as u128) >> 64) as usize;
        self.buffers[region].push(hash);
        if self.buffers[region].len() < self.room {
            return Ok(());
        }
        self.empty(region, insert)
    }

    /// The last hashes too.
    pub(crate) fn finish(&mut self, insert: bool) -> Outcome<()> {
        (0..self.buffers.len()).try_for_each(|region| self.empty(region, insert))
    }

    fn empty(&mut self, region: usize, insert: bool) -> Outcome<()> {
        let offset = (region * REGION) as u64;
        self.scratch.read(self.bytes.get_mut(), offset)?;
        let filter = sbbf_rs_safe::Filter::from_bytes(self.bytes.get());
        let mut filter = filter.ok_or("a region is whole blocks")?;
        // The region took the hash's first bits, the filter would take them again.
        let inner = |hash: &u64| hash.rotate_left(32);
        match insert {
            true => {
                for hash in &self.buffers[region] {
                    filter.insert_hash(inner(hash));
                }
                self.bytes.get_mut().copy_from_slice(filter.as_bytes());
                self.scratch.write(self.bytes.get(), offset)?;
            }
            false => {
                let asked = self.buffers[region].iter();
                let found = asked.filter(|hash| filter.contains_hash(inner(hash)));
                self.found += found.count() as u64;
            }
        }
        self.buffers[region].clear();
        Ok(())
    }
}
