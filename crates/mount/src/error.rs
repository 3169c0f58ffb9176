//! Why a mount could not be started or ended. Every message names the value and the way out.

use std::io;
use std::path::PathBuf;

/// Why a mount could not be started or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The base does not exist.
    #[error("base {0} does not exist; create it or correct the path")]
    BaseMissing(PathBuf),
    /// The base is a file.
    #[error("base {0} is not a directory; give the directory whose files the tier is for")]
    BaseNotDirectory(PathBuf),
    /// The base's file system is mounted read-only.
    #[error("base {0} is on a read-only file system; remount it with `mount -o remount,rw`")]
    BaseReadOnly(PathBuf),
    /// The base could not be examined or opened.
    #[error("base {0} cannot be used: {1}")]
    Base(PathBuf, #[source] io::Error),
    /// The option file of MariaDB's login cannot be used.
    #[error("{0}")]
    Login(#[source] io::Error),
    /// Another mount stands in the way.
    #[error("{0}")]
    Claim(#[source] Box<thermocline::claim::Refusal>),
    /// The tier holds pages that cannot be given to their files.
    #[error("{0}")]
    Tier(#[source] Box<thermocline::Error>),
    /// The mountpoint does not exist.
    #[error("mountpoint {0} does not exist; create it with `mkdir -p {0}`")]
    MountpointMissing(PathBuf),
    /// The mountpoint is a file.
    #[error("mountpoint {0} is not a directory; give an empty directory")]
    MountpointNotDirectory(PathBuf),
    /// The mountpoint has entries, which the mount would hide.
    #[error("mountpoint {0} is not empty; give an empty directory")]
    MountpointNotEmpty(PathBuf),
    /// The mountpoint lies in the base (or is it): the mount would serve itself.
    #[error("mountpoint {mountpoint} is inside base {base}; choose one outside of it")]
    MountpointInsideBase {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The base.
        base: PathBuf,
    },
    /// The base lies in the mountpoint and would be hidden by the mount.
    #[error("base {base} is inside mountpoint {mountpoint}; choose another mountpoint")]
    BaseInsideMountpoint {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The base.
        base: PathBuf,
    },
    /// Something is mounted there already.
    #[error("{0} is a Thermocline mount already; end it with `thermocline umount {0}`")]
    AlreadyMounted(PathBuf),
    /// A FUSE mount without a process behind it.
    #[error("mountpoint {0} is a dead mount: its process is gone; remove it with `umount -l {0}`")]
    StaleMount(PathBuf),
    /// The mountpoint could not be examined.
    #[error("mountpoint {0} cannot be used: {1}")]
    Mountpoint(PathBuf, #[source] io::Error),
    /// The kernel has no FUSE, or the container was not given it.
    #[error(
        "no FUSE device: /dev/fuse does not exist; load it with `modprobe fuse`, or give the \
         container the device (`--device /dev/fuse --cap-add SYS_ADMIN`)"
    )]
    NoFuseDevice,
    /// The device is there but may not be opened.
    #[error("no permission to open /dev/fuse: {0}; run as root or join the device's group")]
    FusePermission(#[source] io::Error),
    /// The kernel or the mount program refused.
    #[error("mounting on {0} failed: {1}; without root, `fusermount3` must be installed")]
    Mount(PathBuf, #[source] io::Error),
    /// Files are open.
    #[error("{0} is in use; stop the database and leave the directory first (`fuser -vm {0}`)")]
    Busy(PathBuf),
    /// Unmounting failed for another reason.
    #[error("unmounting {0} failed: {1}")]
    Unmount(PathBuf, #[source] io::Error),
    /// The session ended with an error.
    #[error("serving {0} failed: {1}")]
    Serve(PathBuf, #[source] io::Error),
}
