//! Making an open cache longer or shorter.
//!
//! Journal and object areas stay where they are; blocks are added or taken away at their end, and
//! the map, which lies behind them, moves. Order: checkpoint (the map in place is whole) → the
//! whole map at its new place, which the old layout uses for nothing → sync → superblock with the
//! new layout → sync → a shorter file is cut. A crash leaves the old layout or the new one.
//! Commits go on meanwhile: they are in the journal, which serves either map.

use super::checkpoint::Purpose;
use super::layout::{Layout, UNIT};
use super::map::{self, ENTRIES, SECTOR_BYTES};
use super::open::{Ours, clear, reserve};
use super::superblock::Superblock;
use super::{BlockId, Store};
use crate::device::AlignedBuf;
use crate::error::Error;
use std::io;
use std::sync::atomic::Ordering;

/// Bytes of map copied at once.
const CHUNK: u64 = 1 << 20;

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Store {
    /// Makes the cache `length` bytes long; the number of blocks after that. Costs a checkpoint
    /// and a copy of the map. For less length, the caller has emptied all blocks past
    /// [`Store::blocks_at`] in committed batches and writes none of them meanwhile.
    ///
    /// # Errors
    /// `InvalidInput` with the least or largest length that works, or when a block past the new
    /// end still holds a page; nothing has changed then. Those of the device poison the store
    /// only where the superblock may have been written.
    #[doc(hidden)]
    pub fn resize(&self, length: u64) -> Result<u32, Error> {
        self.resize_while(length, &|| Ok(()))
    }

    /// The same; `ours` is asked before the checkpoint, before each part of the map is copied, for
    /// a long one takes its time, and before the new layout counts. Where it fails the old one
    /// counts.
    pub(crate) fn resize_while(&self, length: u64, ours: &Ours<'_>) -> Result<u32, Error> {
        let _one = self.one_checkpoint();
        let resized = match length.cmp(&self.length()) {
            std::cmp::Ordering::Equal => Ok(self.blocks()),
            std::cmp::Ordering::Greater => self.grow(length, ours)?,
            std::cmp::Ordering::Less => self.shrink(length, ours),
        };
        resized.map_err(|source| self.io_error(source))
    }

    /// How many blocks a cache of this one's kind has at `length` bytes; `None` when it is too
    /// short for any.
    #[doc(hidden)]
    #[must_use]
    pub fn blocks_at(&self, length: u64) -> Option<u32> {
        let layout = self.layout().with_length(length);
        layout.map(|l| l.blocks)
    }

    /// The number of blocks that [`Store::resize`] would leave; nothing is changed.
    ///
    /// # Errors
    /// `InvalidInput` with the least or largest length that works.
    #[doc(hidden)]
    pub fn resizable(&self, length: u64) -> Result<u32, Error> {
        let layout = match length.cmp(&self.length()) {
            std::cmp::Ordering::Equal => Ok(self.layout()),
            std::cmp::Ordering::Greater => self.longer(length),
            std::cmp::Ordering::Less => self.shorter(length),
        };
        layout
            .map(|layout| layout.blocks)
            .map_err(|source| self.io_error(source))
    }

    pub(super) fn layout(&self) -> Layout {
        self.state().superblock.layout
    }

    fn longer(&self, length: u64) -> io::Result<Layout> {
        let old = self.layout();
        let end = old.map_offset + old.map_bytes();
        let fits = |length| {
            let new = old.with_length(length);
            new.filter(|n| n.map_offset >= end && n.blocks >= old.blocks)
        };
        fits(length).ok_or_else(|| {
            let least = (1..)
                .map(|i| old.length + i * UNIT)
                .find(|&l| fits(l).is_some());
            let least = least.unwrap_or(u64::MAX);
            refused(format!(
                "{length} bytes are too little more: {least} are the least"
            ))
        })
    }

    fn shorter(&self, length: u64) -> io::Result<Layout> {
        let old = self.layout();
        let new = old
            .with_length(length)
            .filter(|n| n.length <= old.map_offset);
        new.ok_or_else(|| {
            let (least, most) = (Layout::least(old.page_size), old.map_offset);
            refused(format!(
                "a shorter cache has {least} to {most} bytes, not {length}"
            ))
        })
    }

    /// The outer error is that of reserving room.
    fn grow(&self, length: u64, ours: &Ours<'_>) -> Result<io::Result<u32>, Error> {
        let old = self.layout();
        let new = match self.longer(length) {
            Ok(new) => new,
            Err(refused) => return Ok(Err(refused)),
        };
        let longer = ours().and_then(|()| self.lengthen(&new, ours));
        if let (Ok(()), Some(file)) = (&longer, &self._lock) {
            reserve(file, length, &self.name).inspect_err(|_| {
                let _ = self.device.set_len(old.length);
            })?;
        }
        Ok(longer.and_then(|()| self.move_map(&old, &new, ours)))
    }

    fn lengthen(&self, new: &Layout, ours: &Ours<'_>) -> io::Result<()> {
        if self.device.len()? < new.length {
            self.device.set_len(new.length)?;
        }
        clear(&*self.device, new.map_offset, new.map_bytes(), ours)
    }

    fn shrink(&self, length: u64, ours: &Ours<'_>) -> io::Result<u32> {
        let old = self.layout();
        let new = self.shorter(length)?;
        self.blocks.store(new.blocks, Ordering::Release);
        let moved = self.move_map(&old, &new, ours);
        if moved.is_err() {
            self.blocks.store(self.layout().blocks, Ordering::Release);
        }
        let blocks = moved?;
        // A block device keeps its length; a longer file than the layout says is no harm.
        let _ = self.device.set_len(new.length);
        Ok(blocks)
    }

    fn move_map(&self, old: &Layout, new: &Layout, ours: &Ours<'_>) -> io::Result<u32> {
        debug_assert_eq!(new.check(), Ok(()));
        debug_assert_eq!(old.data_offset(), new.data_offset());
        let (old_end, new_end) = (
            old.map_offset + old.map_bytes(),
            new.map_offset + new.map_bytes(),
        );
        debug_assert!(
            new.map_offset >= old_end || new_end <= old.map_offset,
            "both are whole"
        );
        ours()?;
        self.write_back(Purpose::Running)?;
        self.copy_map(old, new, ours)?;
        // Once before the last look: it may take long, the next one does not.
        self.sync_device(&self.one_sync(), false)?;
        ours()?;
        let alone = self.one_sync();
        self.sync_device(&alone, false)?;
        // Nobody else syncs, or changes what the journal says, before the new layout counts.
        let mut state = self.state();
        state.usable()?;
        if let Some((&block, _)) = state.pending.range(new.blocks..).next() {
            let text = format!("block {block} was changed while the cache was made shorter");
            return Err(refused(text));
        }
        let superblock = Superblock {
            layout: *new,
            generation: state.superblock.generation + 1,
            ..state.superblock.clone()
        };
        let written = self.put_superblock(&superblock);
        let written = written.and_then(|()| self.device.sync(true));
        written.inspect_err(|e| state.poison(e))?;
        debug_assert!(superblock.generation > state.superblock.generation);
        state.superblock = superblock;
        self.blocks.store(new.blocks, Ordering::Release);
        self.length.store(new.length, Ordering::Release);
        state.assert_invariants();
        Ok(new.blocks)
    }

    /// Copies the sectors that both layouts have; the others must be empty.
    fn copy_map(&self, old: &Layout, new: &Layout, ours: &Ours<'_>) -> io::Result<()> {
        let id = self.state().superblock.format_id;
        let total = old.map_bytes();
        let mut chunk = AlignedBuf::new(CHUNK.min(total) as usize);
        let mut done = 0;
        while done < total {
            let length = (total - done).min(CHUNK) as usize;
            let bytes = &mut chunk[..length];
            if self.device.read_at(bytes, old.map_offset + done)? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let first = (done / SECTOR_BYTES as u64) as u32;
            for (i, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
                check_vacated(sector, id, first + i as u32, new.blocks)?;
            }
            let keep = new.map_bytes().saturating_sub(done).min(length as u64) as usize;
            if keep > 0 {
                ours()?;
                self.device
                    .write_at(&bytes[..keep], new.map_offset + done)?;
            }
            done += length as u64;
        }
        debug_assert_eq!(done, total, "the whole map");
        Ok(())
    }
}

/// That no block of a sector past `blocks` holds a page.
fn check_vacated(bytes: &[u8], id: u64, number: u32, blocks: u32) -> io::Result<()> {
    let first = number.saturating_mul(ENTRIES as u32);
    if first.saturating_add(ENTRIES as u32) <= blocks {
        return Ok(());
    }
    let entries = map::decode(bytes, id, number).unwrap_or_default();
    let beyond = blocks.saturating_sub(first) as usize;
    match entries.iter().skip(beyond).position(Option::is_some) {
        None => Ok(()),
        Some(at) => {
            let block = BlockId(first + (beyond + at) as u32);
            Err(refused(format!("block {} still holds a page", block.0)))
        }
    }
}
