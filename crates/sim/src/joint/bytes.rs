//! Which bytes are where: nothing is kept in simulations, versions of pages in tests.

use thermocline_core::{BlockId, FrameId, PageId, SlotId};

/// A place that holds the bytes of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Those of the request being served.
    Hand,
    /// A frame of the DRAM pool.
    Frame(FrameId),
    /// The write buffer.
    Buffer(SlotId),
    /// A block of the flash device.
    Block(BlockId),
    /// Base.
    Base(PageId),
}

/// Follows the bytes that a simulation would move.
pub trait Bytes {
    /// The request at hand writes `page`.
    fn renew(&mut self, page: PageId);
    /// Bytes are copied.
    fn copy(&mut self, from: At, to: At);
    /// A place is empty now.
    fn clear(&mut self, at: At);
    /// The request at hand gives its caller what it read of `page`.
    fn give(&mut self, page: PageId);
    /// Pages `first..=last` of the object of `first` are gone.
    fn forget(&mut self, first: PageId, last: u64);
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unfollowed;

impl Bytes for Unfollowed {
    fn renew(&mut self, _page: PageId) {}
    fn copy(&mut self, _from: At, _to: At) {}
    fn clear(&mut self, _at: At) {}
    fn give(&mut self, _page: PageId) {}
    fn forget(&mut self, _first: PageId, _last: u64) {}
}
