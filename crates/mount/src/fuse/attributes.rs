//! Attributes: `stat`, mode, owner, times, length, extended attributes, file system statistics.

use std::io;
use std::time::Duration;

use super::{Call, REQUEST_MAX, off_t};
use crate::fs::{Entry, SetAttr, Time};
use crate::inode::ROOT;
use crate::protocol::{
    Attr, AttrOut, EntryOut, GetxattrIn, GetxattrOut, SetattrIn, SetxattrIn, StatfsOut, fattr,
    malformed, put,
};
use crate::sys::{self, Stat};

/// How long the kernel may keep names and attributes. Changes through the mount are seen at
/// once whatever this is; it only bounds how late changes made on the base directly are seen.
const TTL: Duration = Duration::from_secs(1);
/// Node ids are never reused for another inode while the kernel knows them.
const GENERATION: u64 = 0;

impl Call<'_> {
    pub(super) fn getattr(&self, out: &mut [u8]) -> io::Result<usize> {
        Ok(put_attr(out, &self.fs.getattr(self.node())?))
    }

    pub(super) fn setattr(&self, out: &mut [u8]) -> io::Result<usize> {
        let set = changes(&self.args()?)?;
        Ok(put_attr(out, &self.fs.setattr(self.node(), &set)?))
    }

    pub(super) fn statfs(&self, out: &mut [u8]) -> io::Result<usize> {
        let found = self.fs.statfs()?;
        let answer = StatfsOut {
            blocks: found.f_blocks,
            bfree: found.f_bfree,
            bavail: found.f_bavail,
            files: found.f_files,
            ffree: found.f_ffree,
            bsize: found.f_bsize as u32,
            namelen: found.f_namemax as u32,
            frsize: found.f_frsize as u32,
            ..StatfsOut::default()
        };
        Ok(put(out, &answer))
    }

    pub(super) fn setxattr(&self) -> io::Result<usize> {
        let args: SetxattrIn = self.args()?;
        let (name, value) = self.request.name()?;
        let value = value.get(..args.size as usize).ok_or_else(malformed)?;
        let (caller, node) = (self.caller(), self.node());
        self.fs
            .setxattr(caller, node, name, value, args.flags)
            .map(|()| 0)
    }

    pub(super) fn getxattr(&self, out: &mut [u8]) -> io::Result<usize> {
        let (args, (name, _)): (GetxattrIn, _) = (self.args()?, self.request.name()?);
        let size = at_most(args.size);
        Ok(put_xattr(
            out,
            size,
            self.fs.getxattr(self.node(), name, size)?,
        ))
    }

    pub(super) fn listxattr(&self, out: &mut [u8]) -> io::Result<usize> {
        let args: GetxattrIn = self.args()?;
        let size = at_most(args.size);
        let listed = self.fs.listxattr(self.caller(), self.node(), size)?;
        Ok(put_xattr(out, size, listed))
    }

    pub(super) fn removexattr(&self) -> io::Result<usize> {
        let (name, _) = self.request.name()?;
        self.fs
            .removexattr(self.caller(), self.node(), name)
            .map(|()| 0)
    }
}

/// Room for an extended attribute; the kernel asks for 64 KiB at most.
fn at_most(size: u32) -> u32 {
    size.min(REQUEST_MAX as u32)
}

/// With a `size` of 0 the length alone was asked for.
fn put_xattr(out: &mut [u8], size: u32, (len, value): (usize, Vec<u8>)) -> usize {
    if size == 0 {
        let answer = GetxattrOut {
            size: len as u32,
            padding: 0,
        };
        return put(out, &answer);
    }
    assert!(value.len() <= size as usize, "more than was asked for");
    out[..value.len()].copy_from_slice(&value);
    value.len()
}

fn put_attr(out: &mut [u8], stat: &Stat) -> usize {
    let answer = AttrOut {
        attr_valid: TTL.as_secs(),
        attr_valid_nsec: TTL.subsec_nanos(),
        dummy: 0,
        attr: attr(stat.st_ino, stat),
    };
    put(out, &answer)
}

/// A name that was found or made.
pub(super) fn entry_out(entry: &Entry) -> EntryOut {
    EntryOut {
        nodeid: entry.id,
        generation: GENERATION,
        entry_valid: TTL.as_secs(),
        attr_valid: TTL.as_secs(),
        entry_valid_nsec: TTL.subsec_nanos(),
        attr_valid_nsec: TTL.subsec_nanos(),
        attr: attr(entry.id, &entry.stat),
    }
}

fn attr(id: u64, stat: &Stat) -> Attr {
    assert!(id >= ROOT, "0 is no node");
    // A damaged base may say anything.
    let length = |length: i64| length.max(0).unsigned_abs();
    let nanos = |nanos: i64| nanos.clamp(0, 999_999_999) as u32;
    Attr {
        ino: id,
        size: length(stat.st_size),
        blocks: length(stat.st_blocks),
        atime: stat.st_atime,
        mtime: stat.st_mtime,
        ctime: stat.st_ctime,
        atimensec: nanos(stat.st_atime_nsec),
        mtimensec: nanos(stat.st_mtime_nsec),
        ctimensec: nanos(stat.st_ctime_nsec),
        mode: known_kind(stat.st_mode) | (stat.st_mode & 0o7777),
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// The kind of file in a mode; what no kernel knows is a file.
fn known_kind(mode: u32) -> u32 {
    match mode & libc::S_IFMT {
        kind @ (libc::S_IFDIR | libc::S_IFLNK | libc::S_IFIFO | libc::S_IFSOCK) => kind,
        kind @ (libc::S_IFBLK | libc::S_IFCHR) => kind,
        _ => libc::S_IFREG,
    }
}

/// What a `SETATTR` sets.
fn changes(args: &SetattrIn) -> io::Result<SetAttr> {
    let given = |bit| args.valid & bit != 0;
    let size = match given(fattr::SIZE) {
        true => Some(off_t(args.size)?),
        false => None,
    };
    let time = |bit, now, seconds, nanos| match (given(bit), given(now)) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(Time::Now)),
        (true, false) if nanos < 1_000_000_000 => Ok(Some(Time::At(seconds, nanos))),
        (true, false) => Err(sys::errno(libc::EINVAL)),
    };
    Ok(SetAttr {
        mode: given(fattr::MODE).then_some(args.mode),
        uid: given(fattr::UID).then_some(args.uid),
        gid: given(fattr::GID).then_some(args.gid),
        size,
        strip: given(fattr::SIZE) && given(fattr::KILL_SUIDGID),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, args.atime, args.atimensec)?,
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, args.mtime, args.mtimensec)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn whatever_base_says_of_lengths_is_an_answer() {
        let mut stat = sys::stat_path(Path::new("/")).unwrap();
        stat.st_blocks = -1;
        stat.st_size = i64::MIN;
        let told = attr(ROOT, &stat);
        assert_eq!((told.size, told.blocks), (0, 0));
    }
}
