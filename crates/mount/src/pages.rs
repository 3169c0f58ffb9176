//! Buffers of whole pages that take up no memory before they are touched.
//!
//! Every serving thread has room for the largest request and the largest answer, and most threads
//! see neither. The allocator may give memory that was used before, and must clear it then.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed memory, aligned to a page.
pub(crate) struct Pages {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is owned alone, like a `Box<[u8]>`; nothing is tied to a thread.
unsafe impl Send for Pages {}

impl Pages {
    /// `len` bytes, all zero.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        assert!(len > 0, "nothing needs no memory");
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping of memory alone; no other is touched.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Huge pages would take up all of it at the first byte. A kernel without them says so.
        // SAFETY: the range is the mapping made above.
        unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
        let at = NonNull::new(at.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        assert!(
            at.addr().get().is_multiple_of(4096),
            "mappings are of pages"
        );
        Ok(Self { at, len })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nobody borrows from it any more.
        let result = unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
        assert_eq!(result, 0, "a whole mapping can be unmapped");
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes owned by `self`, borrowed with it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the buffer's pages are in memory.
    fn resident(pages: &Pages) -> usize {
        let mut found = vec![0_u8; pages.len().div_ceil(4096)];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let result =
            unsafe { libc::mincore(pages.at.as_ptr().cast(), pages.len, found.as_mut_ptr()) };
        assert_eq!(result, 0, "mincore");
        found.iter().filter(|&&page| page & 1 != 0).count()
    }

    #[test]
    fn only_what_is_touched_takes_up_memory() {
        let mut pages = Pages::new(1 << 20).unwrap();
        assert_eq!(resident(&pages), 0);
        assert_eq!(pages[5], 0);
        pages[(1 << 20) - 1] = 1;
        assert!(resident(&pages) <= 2, "{} of 256", resident(&pages));
        assert_eq!(pages.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 1);
    }
}
