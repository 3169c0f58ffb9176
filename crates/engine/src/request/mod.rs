//! Requests of any offset and length, split into pages and put together again.

use crate::classify::{self, Dialect};
use crate::device::AlignedBuf;
use crate::engine::{Engine, Request};
use crate::files::object::Object;
use crate::state::page_of;
#[cfg(feature = "shuttle")]
use shuttle::thread_local;
use std::cell::RefCell;
use std::ops::Range;
use thermocline_core::{HintSet, PageId, hint_type};

pub(crate) mod ahead;
pub(crate) mod halves;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod write;

#[cfg(test)]
mod tests;

/// Pages read from base in one I/O at most.
pub(crate) const RUN_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Whole pages of requests that want only parts of them.
    static SCRATCH: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::new(0));
}

/// Runs `with` on a scratch buffer of `len` bytes of this thread.
pub(crate) fn with_scratch<R>(len: usize, with: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with(|scratch| {
        let mut scratch = scratch.borrow_mut();
        if scratch.len() < len {
            *scratch = AlignedBuf::new(len);
        }
        with(&mut scratch[..len])
    })
}

/// The part of one page that a request wants.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) page: PageId,
    /// Bytes within the page.
    pub(crate) inside: Range<usize>,
    /// The same bytes within the request's buffer.
    pub(crate) outside: Range<usize>,
}

impl Part {
    fn of(
        object: &Object,
        request: &Request<'_>,
        length: usize,
        page_size: usize,
        index: u64,
    ) -> Self {
        let (start, size) = (request.offset, page_size as u64);
        let from = start.max(index * size);
        let to = (start + length as u64).min((index + 1) * size);
        debug_assert!(from < to, "every page of a request has bytes of it");
        Self {
            page: page_of(object, index),
            inside: (from - index * size) as usize..(to - index * size) as usize,
            outside: (from - start) as usize..(to - start) as usize,
        }
    }
}

impl Engine {
    /// Hints as the policies see them: what the engine knows is filled in.
    pub(crate) fn complete(
        &self,
        hints: &HintSet,
        object: &Object,
        page: Option<&[u8]>,
    ) -> HintSet {
        let mut hints = match object.client {
            0 => *hints,
            client => hints.from_client(client),
        };
        let mut fill = |position: usize, value: u32| {
            if hints.get(position) == 0 {
                hints.set(position, value);
            }
        };
        fill(hint_type::OBJECT, object.hint);
        fill(hint_type::FILE_KIND, object.kind.value());
        if let (Some(page), true) = (page, object.dialect != Dialect::None) {
            let page_type = classify::page_type(object.dialect, page, object.kind);
            fill(hint_type::PAGE_TYPE, page_type.value());
        }
        hints
    }
}
