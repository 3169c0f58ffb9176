//! Names: look up, make, remove, link, rename.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::Call;
use super::attributes::entry_out;
use crate::fs::Entry;
use crate::protocol::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, put};

impl Call<'_> {
    fn name(&self) -> io::Result<&OsStr> {
        Ok(self.request.name()?.0)
    }

    pub(super) fn lookup(&self, out: &mut [u8]) -> io::Result<usize> {
        let entry = self.fs.lookup(self.node(), self.name()?)?;
        Ok(put_entry(out, &entry))
    }

    pub(super) fn mknod(&self, out: &mut [u8]) -> io::Result<usize> {
        let (args, name): (MknodIn, _) = (self.args()?, self.name()?);
        let device = u64::from(args.rdev);
        let entry = self
            .fs
            .mknod(self.caller(), self.node(), name, args.mode, device)?;
        Ok(put_entry(out, &entry))
    }

    pub(super) fn mkdir(&self, out: &mut [u8]) -> io::Result<usize> {
        let (args, name): (MkdirIn, _) = (self.args()?, self.name()?);
        let entry = self.fs.mkdir(self.caller(), self.node(), name, args.mode)?;
        Ok(put_entry(out, &entry))
    }

    pub(super) fn symlink(&self, out: &mut [u8]) -> io::Result<usize> {
        let (name, target) = self.request.two_names()?;
        let entry = self.fs.symlink(self.caller(), self.node(), name, target)?;
        Ok(put_entry(out, &entry))
    }

    /// The request is about the directory; what is linked is in its struct.
    pub(super) fn link(&self, out: &mut [u8]) -> io::Result<usize> {
        let (args, name): (LinkIn, _) = (self.args()?, self.name()?);
        let entry = self.fs.link(args.oldnodeid, self.node(), name)?;
        Ok(put_entry(out, &entry))
    }

    pub(super) fn unlink(&self) -> io::Result<usize> {
        self.fs.unlink(self.node(), self.name()?).map(|()| 0)
    }

    pub(super) fn rmdir(&self) -> io::Result<usize> {
        self.fs.rmdir(self.node(), self.name()?).map(|()| 0)
    }

    pub(super) fn rename(&self) -> io::Result<usize> {
        let args: RenameIn = self.args()?;
        self.move_name(args.newdir, 0)
    }

    pub(super) fn rename2(&self) -> io::Result<usize> {
        let args: Rename2In = self.args()?;
        self.move_name(args.newdir, args.flags)
    }

    fn move_name(&self, new_parent: u64, flags: u32) -> io::Result<usize> {
        let (old, new) = self.request.two_names()?;
        let (from, to) = ((self.node(), old), (new_parent, new));
        self.fs.rename(from, to, flags).map(|()| 0)
    }

    pub(super) fn readlink(&self, out: &mut [u8]) -> io::Result<usize> {
        let target = self.fs.readlink(self.node())?;
        let target = target.as_bytes();
        assert!(
            target.len() < out.len(),
            "a target of {} bytes",
            target.len()
        );
        out[..target.len()].copy_from_slice(target);
        Ok(target.len())
    }
}

fn put_entry(out: &mut [u8], entry: &Entry) -> usize {
    put(out, &entry_out(entry))
}
