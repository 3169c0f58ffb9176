//! The layouts and numbers of the kernel's `include/uapi/linux/fuse.h`, as of protocol 7.31 to
//! 7.45, as far as this mount uses them: numbers in the machine's own byte order.
//!
//! A struct has the header's name without `fuse_` and its fields' names; the header says what
//! each is for.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Declares structs of the protocol, each with the size the header gives it.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// Before every request.
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before every answer; `error` is 0 or an `errno` with a minus.
    OutHeader: 16 { len: u32, error: i32, unique: u64, }

    /// Of `NOTIFY_INVAL_ENTRY`; the name and its NUL follow.
    NotifyInvalEntryOut: 16 { parent: u64, namelen: u32, flags: u32, }

    /// Of `NOTIFY_PRUNE`; as many node ids follow.
    NotifyPruneOut: 16 { count: u32, padding: u32, spare: u64, }

    ForgetIn: 8 { nlookup: u64, }
    ForgetOne: 16 { nodeid: u64, nlookup: u64, }
    BatchForgetIn: 8 { count: u32, dummy: u32, }
    GetattrIn: 16 { getattr_flags: u32, dummy: u32, fh: u64, }
    SetattrIn: 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn: 8 { mode: u32, umask: u32, }
    RenameIn: 8 { newdir: u64, }
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32, }
    LinkIn: 8 { oldnodeid: u64, }
    OpenIn: 8 { flags: i32, open_flags: u32, }
    CreateIn: 16 { flags: i32, mode: u32, umask: u32, open_flags: u32, }
    /// Of `READ` and `READDIR`.
    ReadIn: 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: i32,
        padding: u32,
    }
    WriteIn: 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: i32,
        padding: u32,
    }
    ReleaseIn: 24 { fh: u64, flags: i32, release_flags: u32, lock_owner: u64, }
    FsyncIn: 16 { fh: u64, fsync_flags: u32, padding: u32, }
    FlushIn: 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// Without what `FUSE_SETXATTR_EXT` would add, which the mount does not ask for.
    SetxattrIn: 8 { size: u32, flags: i32, }
    /// Of `GETXATTR` and `LISTXATTR`.
    GetxattrIn: 8 { size: u32, padding: u32, }
    AccessIn: 8 { mask: i32, padding: u32, }
    InterruptIn: 8 { unique: u64, }
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: i32, padding: u32, }
    LseekIn: 24 { fh: u64, offset: i64, whence: i32, padding: u32, }
    CopyFileRangeIn: 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }

    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut: 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    OpenOut: 16 { fh: u64, open_flags: u32, backing_id: u32, }
    /// What `CREATE` is answered with: two structs one after the other.
    CreateOut: 144 { entry: EntryOut, open: OpenOut, }
    WriteOut: 8 { size: u32, padding: u32, }
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut: 8 { size: u32, padding: u32, }
    LseekOut: 8 { offset: i64, }
    /// Followed by the name, and zeros up to a multiple of eight bytes.
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32, }
}

/// Declares the operations: number, and the struct that a request begins with.
macro_rules! opcodes {
    ($($name:ident = $number:literal, $args:ty;)*) => {
        /// The operations that the mount knows; the others it has not learned (`ENOSYS`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Opcode {
            $($name = $number,)*
        }

        impl Opcode {
            /// The operation with this number, if the mount knows it.
            pub(crate) fn new(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Bytes of the struct that a request begins with, which comes apart from the rest
            /// where the kernel splits requests.
            pub(crate) fn args_len(self) -> usize {
                match self {
                    $(Self::$name => size_of::<$args>(),)*
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, ();
    Forget = 2, ForgetIn;
    Getattr = 3, GetattrIn;
    Setattr = 4, SetattrIn;
    Readlink = 5, ();
    Symlink = 6, ();
    Mknod = 8, MknodIn;
    Mkdir = 9, MkdirIn;
    Unlink = 10, ();
    Rmdir = 11, ();
    Rename = 12, RenameIn;
    Link = 13, LinkIn;
    Open = 14, OpenIn;
    Read = 15, ReadIn;
    Write = 16, WriteIn;
    Statfs = 17, ();
    Release = 18, ReleaseIn;
    Fsync = 20, FsyncIn;
    Setxattr = 21, SetxattrIn;
    Getxattr = 22, GetxattrIn;
    Listxattr = 23, GetxattrIn;
    Removexattr = 24, ();
    Flush = 25, FlushIn;
    Init = 26, ();
    Opendir = 27, OpenIn;
    Readdir = 28, ReadIn;
    Releasedir = 29, ReleaseIn;
    Fsyncdir = 30, FsyncIn;
    Access = 34, AccessIn;
    Create = 35, CreateIn;
    Interrupt = 36, InterruptIn;
    Destroy = 38, ();
    BatchForget = 42, BatchForgetIn;
    Fallocate = 43, FallocateIn;
    Rename2 = 45, Rename2In;
    Lseek = 46, LseekIn;
    CopyFileRange = 47, CopyFileRangeIn;
}

/// `SetattrIn::valid`: which attributes to set.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    /// With `SIZE`: set-id bits are to go.
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `OpenOut::open_flags`.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    /// No `FLUSH` at a close (Linux 5.16; before it means nothing).
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// `OutHeader::error` of a notice, whose `unique` is 0: a name is not valid any more.
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
/// `OutHeader::error` of a notice: inodes that nobody uses are to be forgotten (Linux 6.18).
pub(crate) const NOTIFY_PRUNE: i32 = 9;

/// `WriteIn::write_flags`: from the page cache, so of nobody in particular.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `WriteIn::write_flags`: the writer may not keep set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FsyncIn::fsync_flags`: as `fdatasync`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
