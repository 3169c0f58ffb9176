//! Directories: open, list, sync.

use std::io;

use super::Call;
use crate::protocol::{FSYNC_FDATASYNC, FsyncIn, Listing, OpenOut, ReadIn, put};

impl Call<'_> {
    pub(super) fn opendir(&self, out: &mut [u8]) -> io::Result<usize> {
        let answer = OpenOut {
            fh: self.fs.opendir(self.node())?,
            ..OpenOut::default()
        };
        Ok(put(out, &answer))
    }

    pub(super) fn readdir(&self, out: &mut [u8]) -> io::Result<usize> {
        let args: ReadIn = self.args()?;
        let size = (args.size as usize).min(out.len());
        let mut listing = Listing::new(&mut out[..size]);
        self.fs
            .readdir(args.fh, args.offset, &mut |entry| listing.push(&entry))?;
        assert!(listing.len() <= size, "{} of {size} bytes", listing.len());
        Ok(listing.len())
    }

    pub(super) fn fsyncdir(&self) -> io::Result<usize> {
        let args: FsyncIn = self.args()?;
        let data_only = args.fsync_flags & FSYNC_FDATASYNC != 0;
        self.fs.fsyncdir(args.fh, data_only).map(|()| 0)
    }
}
