//! The system calls a file system over a directory needs, each relative to a descriptor.
//!
//! Nothing here takes a path with a slash in it except through `/proc/self/fd`, so no name
//! can leave the base directory. Every function maps -1 to the thread's `errno`.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What `stat` tells.
pub(crate) type Stat = libc::stat64;

const EMPTY: &CStr = c"";

/// Tells whoever started the process, as `eprintln!` does. But where nobody can be told (the
/// terminal is closed, the disk of the log is full) the thread goes on: it serves others.
pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "thermocline: {what}");
}

/// An error with this `errno`.
pub(crate) fn errno(code: i32) -> io::Error {
    debug_assert!(code > 0);
    io::Error::from_raw_os_error(code)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn check_fd(result: libc::c_int) -> io::Result<OwnedFd> {
    check(result)?;
    assert!(result >= 0, "{result} is no descriptor");
    // SAFETY: the call succeeded, so the descriptor is open and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Threads that wait long at the same time for a descriptor, at most; none before a mount says.
static PATIENT_MOST: AtomicUsize = AtomicUsize::new(0);
/// Those that wait now.
static PATIENT: AtomicUsize = AtomicUsize::new(0);
/// How long one waits, and how long one more than may wait does.
const PATIENCE: [Duration; 2] = [Duration::from_secs(5), Duration::from_millis(100)];

/// Lets so many threads wait long for a descriptor when the process has as many as it may have. The
/// kernel tells of a close after the fact: descriptors come back when other threads serve what it
/// tells.
pub(crate) fn allow_patience(threads: usize) {
    PATIENT_MOST.store(threads, Ordering::Release);
}

/// Opens, and waits for a while where the process has as many descriptors as it may have.
fn patient(mut open: impl FnMut() -> libc::c_int) -> io::Result<OwnedFd> {
    let first = check_fd(open());
    let is_full = |result: &io::Result<OwnedFd>| {
        let error = result.as_ref().err();
        error.is_some_and(|error| error.raw_os_error() == Some(libc::EMFILE))
    };
    if !is_full(&first) {
        return first;
    }
    let waiting = PATIENT.fetch_add(1, Ordering::AcqRel);
    let patience = PATIENCE[usize::from(waiting >= PATIENT_MOST.load(Ordering::Acquire))];
    let mut last = first;
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    while is_full(&last) && begun.elapsed() < patience {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
        last = check_fd(open());
    }
    PATIENT.fetch_sub(1, Ordering::AcqRel);
    last
}

fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A name as the kernel wants it. A name is one component: a slash in it is refused.
fn name_of(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') || bytes == b"." || bytes == b".." {
        return Err(errno(libc::EINVAL));
    }
    if bytes.len() > 255 {
        return Err(errno(libc::ENAMETOOLONG));
    }
    CString::new(bytes).map_err(|_| errno(libc::EINVAL))
}

fn text_of(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| errno(libc::EINVAL))
}

/// `/proc/self/fd/N`: the way to reopen an `O_PATH` descriptor.
fn proc_path(fd: RawFd) -> CString {
    assert!(fd >= 0, "{fd} is no descriptor");
    let mut text = format!("/proc/self/fd/{fd}").into_bytes();
    text.push(0);
    CString::from_vec_with_nul(text).unwrap_or_default()
}

/// Makes durable whatever was written to the file system that `path` is on.
pub(crate) fn sync_file_system(path: &Path) -> io::Result<()> {
    sync_file_system_of(&std::fs::File::open(path)?)
}

/// As [`sync_file_system`], of the one that an open file is on.
pub(crate) fn sync_file_system_of(file: &std::fs::File) -> io::Result<()> {
    // SAFETY: the descriptor is open through the call.
    check(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// An `O_PATH` descriptor of a whole path; only for the base directory itself.
pub(crate) fn open_base(path: &Path) -> io::Result<OwnedFd> {
    let path = text_of(path.as_os_str())?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` is NUL-terminated and lives through the call.
    check_fd(unsafe { libc::open(path.as_ptr(), flags) })
}

/// An `O_PATH` descriptor of `name` itself, a symbolic link included.
pub(crate) fn open_node(parent: RawFd, name: &OsStr) -> io::Result<OwnedFd> {
    let name = name_of(name)?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `name` is NUL-terminated and lives through the call.
    patient(|| unsafe { libc::openat(parent, name.as_ptr(), flags) })
}

/// Creates the regular file `name`, which must not exist.
pub(crate) fn create(parent: RawFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    let name = name_of(name)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: `name` is NUL-terminated and lives through the call.
    patient(|| unsafe { libc::openat(parent, name.as_ptr(), flags, mode) })
}

/// Opens the inode behind an `O_PATH` descriptor for I/O.
pub(crate) fn reopen(fd: RawFd, flags: i32) -> io::Result<OwnedFd> {
    let path = proc_path(fd);
    // SAFETY: `path` is NUL-terminated and lives through the call.
    patient(|| unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// `fstat`, also of `O_PATH` descriptors.
pub(crate) fn stat(fd: RawFd) -> io::Result<Stat> {
    let mut stat = MaybeUninit::<Stat>::uninit();
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the buffer is a `stat64`, and is initialised when the call succeeds.
    unsafe {
        check(libc::fstatat64(
            fd,
            EMPTY.as_ptr(),
            stat.as_mut_ptr(),
            flags,
        ))?;
        Ok(stat.assume_init())
    }
}

/// The inode's generation: what tells a reused inode number from the first use of it.
///
/// A number made of the file handle a network file server would give out, which names the inode
/// and its generation and is to be had without opening the file. File systems without such
/// handles are asked for the birth time instead; 0 when neither is there.
///
/// A user-space file system numbers its handles anew each time it is mounted, so they say nothing.
pub(crate) fn generation(fd: RawFd) -> u64 {
    let handle = match is_fuse(fd) {
        true => None,
        false => file_handle(fd),
    };
    handle.or_else(|| birth(fd)).unwrap_or(0)
}

fn is_fuse(fd: RawFd) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    file_system(fd) == Some(FUSE_SUPER_MAGIC)
}

/// Whether the file system of a descriptor may give an inode's number to another one while an
/// `O_PATH` descriptor of it is open, as those in user space and of servers do: they do not hear of
/// it. An overlay holds the inodes that it is made of.
pub(crate) fn frees_numbers(fd: RawFd) -> bool {
    const OVERLAYFS: i64 = 0x794C_7630;
    !is_of_one_host(fd) && file_system(fd) != Some(OVERLAYFS)
}

/// Whether the file system of a descriptor may put files aside that are open, instead of removing
/// them.
pub(crate) fn puts_aside(fd: RawFd) -> bool {
    !is_of_one_host(fd)
}

/// Whether the file system of a descriptor is one that a single host has mounted at a time.
pub(crate) fn is_of_one_host(fd: RawFd) -> bool {
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683E;
    const F2FS: i64 = 0xF2F5_2010;
    const ZFS: i64 = 0x2FC1_2FC1;
    const BCACHEFS: i64 = 0xCA45_1A4E;
    let known = [
        libc::EXT4_SUPER_MAGIC,
        libc::TMPFS_MAGIC,
        XFS,
        BTRFS,
        F2FS,
        ZFS,
        BCACHEFS,
    ];
    file_system(fd).is_some_and(|magic| known.contains(&magic))
}

/// The magic number of a descriptor's file system.
fn file_system(fd: RawFd) -> Option<i64> {
    let mut buf = MaybeUninit::<libc::statfs64>::uninit();
    // SAFETY: the buffer is a `statfs64`, and is initialised when the call succeeds.
    let got = unsafe { libc::fstatfs64(fd, buf.as_mut_ptr()) } == 0;
    // SAFETY: the call succeeded.
    got.then(|| unsafe { buf.assume_init() }.f_type)
}

/// A number made of the handle that the file system names the inode by.
pub(crate) fn file_handle(fd: RawFd) -> Option<u64> {
    /// `struct file_handle` with room for the longest handle (`MAX_HANDLE_SZ`).
    #[repr(C)]
    struct Handle {
        len: u32,
        kind: i32,
        bytes: [u8; 128],
    }
    let mut handle = Handle {
        len: 128,
        kind: 0,
        bytes: [0; 128],
    };
    let mut mount_id = 0_i32;
    // SAFETY: `handle` has the layout of `struct file_handle` with the room it says, `mount_id`
    // is an int, and the empty path is a static NUL-terminated string.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd,
            EMPTY.as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return None;
    }
    let bytes = handle.bytes.get(..handle.len as usize)?;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    Some(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)) // FNV-1a
}

fn birth(fd: RawFd) -> Option<u64> {
    let mut buf = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the buffer is a zeroed `statx`, for which all zero is a valid value.
    let buf = unsafe {
        let flags = libc::AT_EMPTY_PATH;
        let result = libc::statx(
            fd,
            EMPTY.as_ptr(),
            flags,
            libc::STATX_BTIME,
            buf.as_mut_ptr(),
        );
        check(result).ok()?;
        buf.assume_init()
    };
    let time = buf.stx_btime;
    (buf.stx_mask & libc::STATX_BTIME != 0)
        .then(|| (time.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(time.tv_nsec))
}

/// Whether an error of opening a file says that it may be read all the same.
pub(crate) fn refuses_writers(error: &io::Error) -> bool {
    let codes = [libc::EROFS, libc::ETXTBSY, libc::EPERM, libc::EACCES];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// A descriptor of the directory behind `fd` that lives for itself.
pub(crate) fn open_directory(fd: RawFd) -> io::Result<OwnedFd> {
    reopen(fd, libc::O_PATH | libc::O_DIRECTORY)
}

/// A short path of whatever a descriptor stands for, while it is open.
pub(crate) fn descriptor_path(fd: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

/// Gives this thread a file mode creation mask of its own, an empty one: the kernel has applied
/// the caller's. False where the system does not let it, and new modes are the stricter for it.
pub(crate) fn own_umask() -> bool {
    thread_local! {
        static OWN: bool = {
            // SAFETY: the working directory and the mask of this thread become its own; no
            // memory is concerned.
            let own = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
            if own {
                // SAFETY: the call always succeeds.
                unsafe { libc::umask(0) };
            }
            own
        };
    }
    OWN.with(|own| *own)
}

/// Changes the user whose files this thread makes; the one before.
pub(crate) fn set_fs_user(user: u32) -> u32 {
    // SAFETY: no memory is passed; the kernel's call is about one thread.
    unsafe { libc::setfsuid(user) }.cast_unsigned()
}

/// Changes the group of files this thread makes; the one before.
pub(crate) fn set_fs_group(group: u32) -> u32 {
    // SAFETY: as above.
    unsafe { libc::setfsgid(group) }.cast_unsigned()
}

/// The user whose files this thread makes.
pub(crate) fn fs_user() -> u32 {
    set_fs_user(u32::MAX) // no user: nothing is changed
}

/// The group of files this thread makes.
pub(crate) fn fs_group() -> u32 {
    set_fs_group(u32::MAX)
}

/// Whether a crash of the process may leave a core dump.
pub(crate) fn is_dumpable() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) == 1 }
}

/// Lets a crash of the process leave a core dump.
pub(crate) fn set_dumpable() {
    // SAFETY: no memory is passed. It cannot fail for this value.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

/// `struct __user_cap_data_struct`, twice: effective, permitted, inheritable.
pub(crate) type Capabilities = [[u32; 3]; 2];

/// `_LINUX_CAPABILITY_VERSION_3`, for this thread.
const CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];

/// What this thread may.
pub(crate) fn capabilities() -> io::Result<Capabilities> {
    let (mut header, mut found) = (CAPABILITY_HEADER, Capabilities::default());
    // SAFETY: both have the layouts of this version and live through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), found.as_mut_ptr()) };
    check(result as libc::c_int)?;
    Ok(found)
}

/// Whether this thread may mount by itself (`CAP_SYS_ADMIN`); where that is not known, as root.
pub(crate) fn may_mount() -> bool {
    const SYS_ADMIN: u32 = 21;
    match capabilities() {
        Ok([[effective, ..], _]) => effective & (1 << SYS_ADMIN) != 0,
        Err(_) => effective_uid() == 0,
    }
}

/// Takes back capabilities that this thread had before.
pub(crate) fn set_capabilities(wanted: &Capabilities) -> io::Result<()> {
    let within = wanted
        .iter()
        .all(|[effective, permitted, _]| effective & !permitted == 0);
    assert!(within, "nothing is taken that was not permitted");
    let mut header = CAPABILITY_HEADER;
    // SAFETY: both have the layouts of this version and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), wanted.as_ptr()) };
    check(result as libc::c_int)
}

/// Attributes of what is at `path`, a symbolic link included.
pub(crate) fn stat_path(path: &Path) -> io::Result<Stat> {
    let path = text_of(path.as_os_str())?;
    let mut stat = MaybeUninit::<Stat>::uninit();
    // SAFETY: `path` is NUL-terminated; the buffer is a `stat64`, and is initialised when the call
    // succeeds.
    unsafe {
        check(libc::lstat64(path.as_ptr(), stat.as_mut_ptr()))?;
        Ok(stat.assume_init())
    }
}

/// Where the descriptor's name is now, and whether that name has been removed.
pub(crate) fn path(fd: RawFd) -> io::Result<PathBuf> {
    let link = readlink_at(libc::AT_FDCWD, &proc_path(fd))?;
    Ok(PathBuf::from(link))
}

/// The target of the symbolic link behind an `O_PATH` descriptor.
pub(crate) fn readlink(fd: RawFd) -> io::Result<OsString> {
    // With an empty path the kernel reports a node that is no link as missing.
    readlink_at(fd, EMPTY).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => errno(libc::EINVAL),
        _ => error,
    })
}

fn readlink_at(fd: RawFd, path: &CStr) -> io::Result<OsString> {
    let mut buf = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: `buf` has the length given, `path` is NUL-terminated.
    let len = check_size(unsafe {
        libc::readlinkat(fd, path.as_ptr(), buf.as_mut_ptr().cast(), buf.len())
    })?;
    assert!(len <= buf.len(), "a target of {len} bytes does not fit");
    buf.truncate(len);
    Ok(OsString::from_vec(buf))
}

/// `mknodat`.
pub(crate) fn mknod(parent: RawFd, name: &OsStr, mode: u32, rdev: u64) -> io::Result<()> {
    let name = name_of(name)?;
    // SAFETY: `name` is NUL-terminated and lives through the call.
    check(unsafe { libc::mknodat(parent, name.as_ptr(), mode, rdev) })
}

/// `mkdirat`.
pub(crate) fn mkdir(parent: RawFd, name: &OsStr, mode: u32) -> io::Result<()> {
    let name = name_of(name)?;
    // SAFETY: `name` is NUL-terminated and lives through the call.
    check(unsafe { libc::mkdirat(parent, name.as_ptr(), mode) })
}

/// `symlinkat`.
pub(crate) fn symlink(target: &OsStr, parent: RawFd, name: &OsStr) -> io::Result<()> {
    let (target, name) = (text_of(target)?, name_of(name)?);
    // SAFETY: both strings are NUL-terminated and live through the call.
    check(unsafe { libc::symlinkat(target.as_ptr(), parent, name.as_ptr()) })
}

/// `unlinkat`: of a directory when `directory`.
pub(crate) fn unlink(parent: RawFd, name: &OsStr, directory: bool) -> io::Result<()> {
    let name = name_of(name)?;
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: `name` is NUL-terminated and lives through the call.
    check(unsafe { libc::unlinkat(parent, name.as_ptr(), flags) })
}

/// `renameat2`.
pub(crate) fn rename(from: (RawFd, &OsStr), to: (RawFd, &OsStr), flags: u32) -> io::Result<()> {
    let (name, new_name) = (name_of(from.1)?, name_of(to.1)?);
    // SAFETY: both names are NUL-terminated and live through the call.
    check(unsafe { libc::renameat2(from.0, name.as_ptr(), to.0, new_name.as_ptr(), flags) })
}

/// Another name for the inode behind an `O_PATH` descriptor.
pub(crate) fn link(fd: RawFd, parent: RawFd, name: &OsStr) -> io::Result<()> {
    let name = name_of(name)?;
    // SAFETY: `name` is NUL-terminated and lives through the call.
    let direct = check(unsafe {
        libc::linkat(
            fd,
            EMPTY.as_ptr(),
            parent,
            name.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    });
    match direct {
        // Without CAP_DAC_READ_SEARCH the empty path is refused as if it did not exist.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            let path = proc_path(fd);
            let flags = libc::AT_SYMLINK_FOLLOW;
            // SAFETY: both strings are NUL-terminated and live through the call.
            check(unsafe {
                libc::linkat(libc::AT_FDCWD, path.as_ptr(), parent, name.as_ptr(), flags)
            })
        }
        other => other,
    }
}

/// `fchmod`, also of `O_PATH` descriptors. Mode bits only.
pub(crate) fn chmod(fd: RawFd, mode: u32) -> io::Result<()> {
    let path = proc_path(fd);
    // SAFETY: `path` is NUL-terminated and lives through the call.
    check(unsafe { libc::fchmodat(libc::AT_FDCWD, path.as_ptr(), mode & 0o7777, 0) })
}

/// `fchown`, also of symbolic links. `None` leaves an id as it is.
pub(crate) fn chown(fd: RawFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
    // SAFETY: the empty path is a static NUL-terminated string.
    check(unsafe { libc::fchownat(fd, EMPTY.as_ptr(), uid, gid, flags) })
}

/// `utimensat`, also of symbolic links: access and modification time.
pub(crate) fn set_times(fd: RawFd, times: [libc::timespec; 2]) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: `times` has the two elements the call reads.
    check(unsafe { libc::utimensat(fd, EMPTY.as_ptr(), times.as_ptr(), flags) })
}

/// `fstatvfs`, also of `O_PATH` descriptors.
pub(crate) fn statvfs(fd: RawFd) -> io::Result<libc::statvfs64> {
    let mut buf = MaybeUninit::<libc::statvfs64>::uninit();
    // SAFETY: the buffer is a `statvfs64`, and is initialised when the call succeeds.
    unsafe {
        check(libc::fstatvfs64(fd, buf.as_mut_ptr()))?;
        Ok(buf.assume_init())
    }
}

/// `fallocate`.
pub(crate) fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` lives.
    check(unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, len) })
}

/// `lseek`.
pub(crate) fn lseek(fd: RawFd, offset: i64, whence: i32) -> io::Result<i64> {
    // SAFETY: no memory is passed.
    let result = unsafe { libc::lseek64(fd, offset, whence) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Makes durable what names the directory behind an `O_PATH` descriptor has; where directories
/// cannot be synced, its whole file system.
pub(crate) fn sync_directory(fd: RawFd) -> io::Result<()> {
    let open = reopen(fd, libc::O_RDONLY | libc::O_DIRECTORY)?;
    sync_listed(open.as_raw_fd(), false)
}

/// The same for a directory that is open for listing; `fdatasync` when `data_only`.
pub(crate) fn sync_listed(fd: RawFd, data_only: bool) -> io::Result<()> {
    match sync(fd, data_only) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
            // SAFETY: no memory is passed.
            check(unsafe { libc::syncfs(fd) })
        }
        other => other,
    }
}

/// `fsync`, or `fdatasync` when `data_only`.
pub(crate) fn sync(fd: RawFd, data_only: bool) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe {
        if data_only {
            libc::fdatasync(fd)
        } else {
            libc::fsync(fd)
        }
    })
}

/// The next directory entries in the kernel's own layout; 0 bytes at the end.
pub(crate) fn getdents(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` has the length given.
    let result = unsafe { libc::syscall(libc::SYS_getdents64, fd, buf.as_mut_ptr(), buf.len()) };
    let len = check_size(result as libc::ssize_t)?;
    assert!(len <= buf.len(), "entries of {len} bytes do not fit");
    Ok(len)
}

/// `setxattr` on the inode behind an `O_PATH` descriptor.
pub(crate) fn setxattr(fd: RawFd, name: &OsStr, value: &[u8], flags: i32) -> io::Result<()> {
    let (path, name) = (proc_path(fd), text_of(name)?);
    // SAFETY: the strings are NUL-terminated and `value` has the length given.
    check(unsafe {
        let data = value.as_ptr().cast();
        libc::setxattr(path.as_ptr(), name.as_ptr(), data, value.len(), flags)
    })
}

/// `getxattr`; with an empty `buf` the size that would be needed.
pub(crate) fn getxattr(fd: RawFd, name: &OsStr, buf: &mut [u8]) -> io::Result<usize> {
    let (path, name) = (proc_path(fd), text_of(name)?);
    // SAFETY: the strings are NUL-terminated and `buf` has the length given.
    let len = check_size(unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            buf.as_mut_ptr().cast(),
            buf.len(),
        )
    })?;
    assert!(buf.is_empty() || len <= buf.len(), "{len} bytes do not fit");
    Ok(len)
}

/// Whether an attribute of this name is there; one that may not be asked for counts as there.
pub(crate) fn has_xattr(fd: RawFd, name: &OsStr) -> bool {
    match getxattr(fd, name, &mut []) {
        Ok(_) => true,
        Err(error) => !matches!(error.raw_os_error(), Some(libc::ENODATA | libc::ENOTSUP)),
    }
}

/// `listxattr`; with an empty `buf` the size that would be needed.
pub(crate) fn listxattr(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    let path = proc_path(fd);
    // SAFETY: the path is NUL-terminated and `buf` has the length given.
    let len = unsafe { libc::listxattr(path.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) };
    let len = check_size(len)?;
    assert!(buf.is_empty() || len <= buf.len(), "{len} bytes do not fit");
    Ok(len)
}

/// `removexattr`.
pub(crate) fn removexattr(fd: RawFd, name: &OsStr) -> io::Result<()> {
    let (path, name) = (proc_path(fd), text_of(name)?);
    // SAFETY: both strings are NUL-terminated and live through the call.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })
}

/// Registers a file that the kernel may read and write for a mount; its number.
pub(crate) fn backing_open(device: &File, file: &File) -> io::Result<u32> {
    /// `struct fuse_backing_map`.
    #[repr(C)]
    struct Map {
        fd: i32,
        flags: u32,
        padding: u64,
    }
    /// `FUSE_DEV_IOC_BACKING_OPEN`.
    const OPEN: libc::Ioctl = libc::_IOW::<Map>(229, 1);
    let map = Map {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: `map` has the layout that the call reads and lives through it.
    let number = unsafe { libc::ioctl(device.as_raw_fd(), OPEN, &raw const map) };
    check(number)?;
    Ok(number.cast_unsigned())
}

/// Takes back [`backing_open`].
pub(crate) fn backing_close(device: &File, number: u32) -> io::Result<()> {
    /// `FUSE_DEV_IOC_BACKING_CLOSE`.
    const CLOSE: libc::Ioctl = libc::_IOW::<u32>(229, 2);
    // SAFETY: the call reads the one number, which lives through it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), CLOSE, &raw const number) })
}

/// The user the process acts as.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: the call always succeeds.
    unsafe { libc::geteuid() }
}

/// `umount2` without flags: refuses while files are open.
pub(crate) fn umount(mountpoint: &Path) -> io::Result<()> {
    let path = text_of(mountpoint.as_os_str())?;
    // SAFETY: `path` is NUL-terminated and lives through the call.
    check(unsafe { libc::umount2(path.as_ptr(), 0) })
}

/// `umount2` that ends the connection of a FUSE mount and takes the mount away whoever uses it.
pub(crate) fn abort(mountpoint: &Path) -> io::Result<()> {
    let path = text_of(mountpoint.as_os_str())?;
    let flags = libc::MNT_FORCE | libc::MNT_DETACH;
    // SAFETY: as in `umount`.
    check(unsafe { libc::umount2(path.as_ptr(), flags) })
}

/// Raises the limit on open files as far as the system lets this process; returns the limit.
///
/// # Errors
/// When the system does not tell the limit.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid `rlimit` in all three calls.
    unsafe { check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))? };
    assert!(
        limit.rlim_cur <= limit.rlim_max,
        "the limits of the process"
    );
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(limit.rlim_max);
    for max in [most.max(limit.rlim_max), limit.rlim_max] {
        debug_assert!(max >= limit.rlim_cur, "a limit is never lowered");
        let wanted = libc::rlimit {
            rlim_cur: max,
            rlim_max: max,
        };
        // SAFETY: as above.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } == 0 {
            return Ok(max);
        }
    }
    Ok(limit.rlim_cur)
}
