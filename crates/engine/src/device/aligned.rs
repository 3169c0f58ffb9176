//! Memory aligned for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Alignment of memory, offset and length for direct I/O, in bytes. Every disk sold uses
/// logical blocks of 512 or 4096 bytes; 4096 suits both.
pub const ALIGNMENT: usize = 4096;

const _: () = assert!(ALIGNMENT.is_power_of_two() && ALIGNMENT.is_multiple_of(512));

/// Buffers of this length on are mapped: they take memory only where they are touched, and give it
/// back when they are dropped.
const MAPPED: usize = 256 << 10;

/// Bytes of a huge page, and its alignment.
const HUGE: usize = 2 << 20;

/// Whether `value` (an offset or a length) is a multiple of [`ALIGNMENT`].
#[must_use]
pub const fn is_aligned(value: u64) -> bool {
    value.is_multiple_of(ALIGNMENT as u64)
}

/// Zero-initialised bytes whose address is a multiple of [`ALIGNMENT`].
///
/// Costs one allocation of the length rounded up to [`ALIGNMENT`] (at least one unit); a long one
/// takes no memory before it is touched.
///
/// ```
/// use thermocline::device::{ALIGNMENT, AlignedBuf};
///
/// let page = AlignedBuf::new(8192);
/// assert_eq!(page.as_ptr() as usize % ALIGNMENT, 0);
/// ```
pub struct AlignedBuf {
    pointer: NonNull<u8>,
    len: usize,
    /// What the bytes are part of; `None`: an allocation, or a mapping, of their own.
    region: Option<Arc<Region>>,
}

/// A mapping whose parts are buffers.
struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the address of a mapping, which is nobody's but its parts'; nothing is tied to a thread.
unsafe impl Send for Region {}
// SAFETY: it is only dropped, by its last part.
unsafe impl Sync for Region {}

// SAFETY: the buffer owns its memory alone, like a `Box<[u8]>`; nothing is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: through `&AlignedBuf` the memory can only be read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes. Aborts when memory is out, as `Vec` does.
    ///
    /// # Panics
    /// When `len` rounded up overflows `isize`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        let pointer = match layout.size() >= MAPPED {
            true => map(layout.size()),
            // SAFETY: the layout's size is at least ALIGNMENT, so not zero.
            false => unsafe { alloc_zeroed(layout) },
        };
        let Some(pointer) = NonNull::new(pointer) else {
            handle_alloc_error(layout)
        };
        assert!(pointer.as_ptr().addr().is_multiple_of(ALIGNMENT));
        Self {
            pointer,
            len,
            region: None,
        }
    }

    /// As many buffers of `len` zero bytes as a huge page has room for, one at least, in huge
    /// pages where the kernel has them: to a device that is one segment, where other memory is one
    /// every 4 KiB. The page takes its 2 MiB when the first byte of it is touched.
    ///
    /// # Panics
    /// When `len` rounded up overflows `isize`.
    #[must_use]
    pub fn in_huge_pages(len: usize) -> Vec<Self> {
        let each = Self::layout(len).size();
        let size = each.next_multiple_of(HUGE);
        let layout = Self::layout(size + HUGE);
        let Some(start) = NonNull::new(map(layout.size())) else {
            handle_alloc_error(layout)
        };
        let region = Arc::new(Region {
            start,
            len: layout.size(),
        });
        let skipped = start.as_ptr().addr().next_multiple_of(HUGE) - start.as_ptr().addr();
        assert!(skipped + size <= region.len, "room to align it");
        // SAFETY: `skipped + size` bytes from `start` on are within the mapping. A kernel without
        // huge pages says so, and maps others.
        let first = unsafe {
            let first = start.add(skipped);
            libc::madvise(first.as_ptr().cast(), size, libc::MADV_HUGEPAGE);
            first
        };
        let part = |at: usize| Self {
            // SAFETY: `size / each` parts of `each` bytes fit into `size`, and none overlap.
            pointer: unsafe { first.add(at * each) },
            len,
            region: Some(Arc::clone(&region)),
        };
        (0..size / each).map(part).collect()
    }

    /// One buffer as [`AlignedBuf::in_huge_pages`] has them.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn in_huge_page(len: usize) -> Self {
        match Self::in_huge_pages(len).into_iter().next() {
            Some(buf) => buf,
            None => unreachable!("one at least"),
        }
    }

    /// The layout a buffer of `len` bytes is allocated with.
    fn layout(len: usize) -> Layout {
        let rounded = len.max(1).next_multiple_of(ALIGNMENT);
        debug_assert!(rounded >= len && rounded > 0);
        match Layout::from_size_align(rounded, ALIGNMENT) {
            Ok(layout) => layout,
            Err(_) => panic!("buffer of {len} bytes exceeds the address space"),
        }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        debug_assert!(is_aligned(self.pointer.as_ptr().addr() as u64));
        if self.region.is_some() {
            return; // the last part unmaps it
        }
        let (pointer, layout) = (self.pointer.as_ptr(), Self::layout(self.len));
        if layout.size() >= MAPPED {
            // SAFETY: mapped with this very length by `map`, and given back once.
            let unmapped = unsafe { libc::munmap(pointer.cast(), layout.size()) };
            assert_eq!(unmapped, 0, "a mapping of our own");
        } else {
            // SAFETY: `pointer` came from `alloc_zeroed` with this very layout and is freed once.
            unsafe { dealloc(pointer, layout) }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped with this very length by `map`; no part is left.
        let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        assert_eq!(unmapped, 0, "a mapping of our own");
    }
}

/// `len` zero bytes of memory of their own; null when there are none.
fn map(len: usize) -> *mut u8 {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new anonymous mapping touches no memory that is in use.
    let mapped = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return null_mut();
    }
    // Huge pages would take up all of it at the first byte. A kernel without them says so.
    // SAFETY: the range is the mapping made above.
    unsafe { libc::madvise(mapped, len, libc::MADV_NOHUGEPAGE) };
    mapped.cast()
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes (zeroed at least) owned by `self`, borrowed with it.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_zeroed_and_exact() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().addr() % ALIGNMENT, 0);
            assert!(buf.iter().all(|&b| b == 0));
            buf.fill(7);
            assert!(buf.iter().all(|&b| b == 7));
        }
    }

    #[test]
    fn parts_of_a_huge_page_are_buffers_of_their_own() {
        for (len, parts) in [
            (1, 512),
            (256 << 10, 8),
            (1 << 20, 2),
            (3 << 19, 1),
            (2 << 20, 1),
            (3 << 20, 1),
        ] {
            let mut bufs = AlignedBuf::in_huge_pages(len);
            assert_eq!(bufs.len(), parts, "{len}");
            assert_eq!(bufs[0].as_ptr().addr() % HUGE, 0);
            let word = |at: usize| (at % 251 + 1) as u8;
            for (at, buf) in bufs.iter_mut().enumerate() {
                assert_eq!((buf.len(), buf.as_ptr().addr() % ALIGNMENT), (len, 0));
                assert!(buf.iter().all(|&b| b == 0));
                buf.fill(word(at));
            }
            // Those that stay keep their bytes when others go.
            bufs.truncate(parts.div_ceil(2));
            for (at, buf) in bufs.iter().enumerate() {
                assert!(buf.iter().all(|&b| b == word(at)));
            }
        }
        assert_eq!(AlignedBuf::in_huge_page(9).len(), 9);
    }

    #[test]
    fn alignment_of_offsets() {
        assert!(is_aligned(0) && is_aligned(8192));
        assert!(!is_aligned(1) && !is_aligned(4095));
    }

    #[test]
    fn moves_between_threads() {
        let mut buf = AlignedBuf::new(10);
        buf[3] = 9;
        let back = std::thread::spawn(move || buf).join().unwrap();
        assert_eq!(back[3], 9);
    }
}
