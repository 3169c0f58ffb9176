//! Starting and ending a mount.
//!
//! States of a mount: *serving* (the kernel sends requests) and *ended* (unmounted by us, by
//! `umount`, or by `umount -l`, whoever comes first). [`Mount::start`] → serving;
//! [`MountHandle::unmount`] and anybody's `umount` → ended, after which all threads that served
//! have returned and every file is closed.
//!
//! `fuser` mounts, agrees with the kernel on what the mount can do, and unmounts what is still
//! mounted when nobody serves it any more. Requests are served without it.
//!
//! Invariant: what is unmounted is this mount. It is done by path, where others may be as well.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::{Config, MountOption, Session, SessionACL};
use thermocline::Engine;
use thermocline::claim::mounts;
use thermocline::classify::Rules;
use thermocline::device::{FileDevice, FileOptions};

use crate::control::ControlFiles;
use crate::error::Error;
use crate::fs::Fs;
use crate::fuse::{Frontend, Handshake};
use crate::object::DeviceFactory;
use crate::passthrough::Passthrough;
use crate::place::{Place, Seen};
use crate::plans::PlanSource;
use crate::prune;
use crate::sys;
use crate::transport::{self, Server};

/// What to mount where, and how.
pub struct MountConfig {
    /// The directory with the files.
    pub base: PathBuf,
    /// Where they appear.
    pub mountpoint: PathBuf,
    /// Makes the devices of base files.
    pub devices: DeviceFactory,
    /// Kinds of files, and which are cached.
    pub rules: Rules,
    /// The content of `.thermocline/`; `None` for a mount without it.
    pub control: Option<Arc<dyn ControlFiles>>,
    /// Threads that serve requests: the most base reads in flight at once.
    pub threads: usize,
    /// Whether other users than the mounter may use the mount. Databases run as their own
    /// user, so this is wanted whenever the mounter is root; others need `user_allow_other`
    /// in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Whether the kernel may read and write files that bypass the tier on base itself, where it
    /// can (Linux 6.9, root, a base that one host has). `devices` does not see those requests.
    pub passthrough: bool,
    /// How requests come.
    pub transport: Transport,
    /// Give up dirty pages of the tier whose files are gone or were changed meanwhile.
    pub discard: bool,
    /// Where query plans are published; `None` for nowhere.
    pub plans: Option<PlanSource>,
    /// The option file of a login at a MariaDB or MySQL server that does not name its threads, as
    /// for `mariadb --defaults-file`; empty for none.
    pub mariadb_login: PathBuf,
    /// The most inodes that the kernel may hold before it is asked to forget some, each with a
    /// descriptor of this process; `None` for three eighths of the process's limit on open files.
    pub inodes_max: Option<usize>,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring where the kernel offers it (Linux 6.14, `fuse.enable_uring`), else through
    /// `/dev/fuse`.
    #[default]
    Auto,
    /// Through `/dev/fuse`.
    Device,
}

impl MountConfig {
    /// `base` on `mountpoint` with built-in rules and defaults.
    #[must_use]
    pub fn new(base: impl Into<PathBuf>, mountpoint: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            mountpoint: mountpoint.into(),
            devices: file_devices(),
            rules: Rules::default(),
            control: None,
            threads: 128,
            allow_other: sys::effective_uid() == 0,
            passthrough: true,
            transport: Transport::default(),
            discard: false,
            plans: None,
            mariadb_login: PathBuf::new(),
            inodes_max: None,
        }
    }
}

/// Base files as they are: past the page cache if the tier caches them, through it if not.
#[must_use]
pub fn file_devices() -> DeviceFactory {
    Arc::new(|file, known| {
        let options = FileOptions {
            direct: known.class.cached,
            ..FileOptions::default()
        };
        let device = FileDevice::from_file(file, known.name, options)?;
        Ok(Arc::new(device))
    })
}

/// Mounts.
#[derive(Debug)]
pub struct Mount;

impl Mount {
    /// Checks what can be checked without starting anything; base and mountpoint, canonical.
    ///
    /// # Errors
    /// Those of directories that cannot be used, and of a missing or forbidden FUSE device.
    pub fn check(base: &Path, mountpoint: &Path) -> Result<(PathBuf, PathBuf), Error> {
        let base = check_base(base)?;
        mounts::check(&base).map_err(|refusal| Error::Claim(Box::new(refusal)))?;
        // Before emptiness: that base is not empty is no reason against it as a mountpoint.
        if let Ok(mountpoint) = mountpoint.canonicalize() {
            check_apart(&base, &mountpoint)?;
        }
        let mountpoint = check_mountpoint(mountpoint)?;
        check_device()?;
        assert!(base.is_absolute() && mountpoint.is_absolute());
        assert_ne!(base, mountpoint, "a mount over its own base");
        Ok((base, mountpoint))
    }

    /// Mounts and serves. Returns when the kernel has accepted the mount.
    ///
    /// # Errors
    /// Every [`Error`] but those of ending.
    pub fn start(config: MountConfig, engine: Arc<Engine>) -> Result<MountHandle, Error> {
        let (base, mountpoint) = Self::check(&config.base, &config.mountpoint)?;
        let base_error = |error| Error::Base(base.clone(), error);
        let open_files = sys::raise_open_files().map_err(base_error)?;
        let [nodes, lingering] = prune::shares_of(open_files);
        engine.limit_objects(lingering);
        // What flash copies from base must not be lost by a power cut before it is.
        sys::sync_file_system(&base).map_err(base_error)?;
        let fs = Fs::new(
            base.clone(),
            engine,
            config.devices,
            config.rules,
            config.control,
        );
        let fs = fs.and_then(|fs| fs.with_plans(config.plans));
        let fs = fs.map_err(base_error)?;
        let fs = match config.mariadb_login.as_os_str().is_empty() {
            true => fs,
            false => fs.with_login(&config.mariadb_login).map_err(Error::Login)?,
        };
        let inodes_max = config.inodes_max.unwrap_or(nodes);
        let fs = Arc::new(fs.with_inodes_max(inodes_max));
        fs.adopt_dirty(config.discard)
            .map_err(|error| Error::Tier(Box::new(error)))?;
        let directory = sys::open_base(&base).map_err(base_error)?;
        let passthrough = Passthrough::new(config.passthrough, directory.as_raw_fd());
        let mount_error = |error| Error::Mount(mountpoint.clone(), error);
        let ring = config.transport != Transport::Device && transport::has_ring();
        let handshake = Handshake::new(ring, passthrough.is_wanted());
        let options = options(&base, config.allow_other);
        let session =
            Session::new(handshake.clone(), &mountpoint, &options).map_err(mount_error)?;
        let place = Place::of(&mountpoint);
        let agreed = handshake.agreed();
        assert!(ring || !agreed.ring, "what was not asked for is not agreed");
        let device = session.as_fd().try_clone_to_owned().map_err(mount_error)?;
        let device = Arc::new(File::from(device));
        let owner = (!config.allow_other).then(sys::effective_uid);
        let (served, kernel) = (Arc::clone(&fs), Arc::clone(&device));
        let server = Server {
            frontend: Arc::new(Frontend::new(served, passthrough, agreed, kernel, owner)),
            device,
            threads: config.threads.max(1),
            ring: agreed.ring,
            place: place.clone(),
        };
        let ours = place.clone();
        let serve = move || {
            let end = server.run();
            leave(session, &ours, end.is_ok());
            end
        };
        let serving = std::thread::Builder::new()
            .name("mount".into())
            .spawn(serve)
            .map_err(|error| Error::Serve(mountpoint, error))?;
        Ok(MountHandle {
            place: Box::new(place),
            fs,
            ring: agreed.ring,
            serving: Some(serving),
        })
    }
}

/// A mount that serves until it is unmounted. Dropping it unmounts if nothing is open there;
/// a mount in use goes on.
#[derive(Debug)]
pub struct MountHandle {
    place: Box<Place>,
    fs: Arc<Fs>,
    ring: bool,
    serving: Option<JoinHandle<io::Result<()>>>,
}

impl MountHandle {
    /// Where it is mounted, canonical.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        self.place.mountpoint()
    }

    /// Where it is mounted, and which mount it is.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether requests come over io_uring.
    #[must_use]
    pub fn is_over_io_uring(&self) -> bool {
        self.ring
    }

    /// The file system behind it.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Unmounts and waits for the end.
    ///
    /// # Errors
    /// [`Error::Busy`] while files are open or something is mounted over it; the mount goes on. The
    /// handle comes back with it.
    pub fn unmount(mut self) -> Result<(), (Self, Error)> {
        let mountpoint = self.mountpoint().to_path_buf();
        let unmounted = match self.place.seen() {
            Seen::OnTop => sys::umount(&mountpoint),
            Seen::Hidden => Err(io::Error::from_raw_os_error(libc::EBUSY)),
            // Somebody else unmounted it first.
            Seen::Gone => Ok(()),
        };
        match unmounted {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err((self, Error::Busy(mountpoint)));
            }
            // EINVAL: somebody else did meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err((self, Error::Unmount(mountpoint, error))),
        }
        self.join().map_err(|error| (self, error))
    }

    /// Waits until somebody unmounts.
    ///
    /// # Errors
    /// [`Error::Serve`] when the session broke.
    pub fn wait(mut self) -> Result<(), Error> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        let Some(serving) = self.serving.take() else {
            return Ok(());
        };
        let result = serving.join();
        self.fs.close_all();
        let result = result.unwrap_or_else(|_| Err(io::Error::other("a handler panicked")));
        result.map_err(|error| Error::Serve(self.mountpoint().to_path_buf(), error))
    }
}

impl Drop for MountHandle {
    fn drop(&mut self) {
        let ours = self.serving.is_some() && self.place.is_on_top();
        if ours && sys::umount(self.mountpoint()).is_ok() {
            // Nobody is left to tell of an error at the very end.
            let _ = self.join();
        }
    }
}

/// Unmounts what ended otherwise than by an unmount: a mount that is still seen, and dead. A
/// session that is dropped unmounts by path, whatever is there, as it cannot tell that its own
/// mount has gone. One that is not keeps a descriptor that nothing uses, until the process ends.
fn leave(session: Session<Handshake>, place: &Place, ended: bool) {
    // A newer mount may have the number of this one; it answers.
    let is_dead = || fs::metadata(place.mountpoint()).is_err_and(|error| is_gone(&error));
    match place.is_on_top() && (!ended || is_dead()) {
        true => drop(session),
        false => std::mem::forget(session),
    }
}

fn options(base: &Path, allow_other: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source(base)),
        MountOption::CUSTOM("subtype=thermocline".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    config.acl = if allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config
}

/// What the kernel's table names as what is mounted. Where `fusermount3` mounts, it is one of a
/// list with commas, in which a backslash has the next character stand for itself.
fn source(base: &Path) -> String {
    let name = base.to_string_lossy();
    match sys::may_mount() {
        true => name.into_owned(),
        false => name.replace('\\', r"\\").replace(',', r"\,"),
    }
}

fn check_base(base: &Path) -> Result<PathBuf, Error> {
    let path = base.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::BaseMissing(base.into()),
        _ => Error::Base(base.into(), error),
    })?;
    if !path.is_dir() {
        return Err(Error::BaseNotDirectory(path));
    }
    let read_only = sys::open_base(&path)
        .and_then(|fd| sys::statvfs(std::os::fd::AsRawFd::as_raw_fd(&fd)))
        .map_err(|error| Error::Base(path.clone(), error))?
        .f_flag
        & libc::ST_RDONLY
        != 0;
    if read_only {
        Err(Error::BaseReadOnly(path))
    } else {
        Ok(path)
    }
}

/// Whether a request to a mount failed because its process is gone, or just going: while the kernel
/// takes the process apart, requests that came over io_uring are cancelled.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    let codes = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf, Error> {
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT) => Error::MountpointMissing(mountpoint.into()),
        _ if is_gone(&error) => Error::StaleMount(mountpoint.into()),
        _ => Error::Mountpoint(mountpoint.into(), error),
    };
    // A dead mount answers no stat, so the parent is resolved and the name added back.
    fs::symlink_metadata(mountpoint).map_err(refused)?;
    let path = mountpoint.canonicalize().map_err(refused)?;
    if !path.is_dir() {
        return Err(Error::MountpointNotDirectory(path));
    }
    if is_mounted(&path) {
        return Err(Error::AlreadyMounted(path));
    }
    let mut entries = fs::read_dir(&path).map_err(refused)?;
    if entries.next().is_some() {
        Err(Error::MountpointNotEmpty(path))
    } else {
        Ok(path)
    }
}

fn check_apart(base: &Path, mountpoint: &Path) -> Result<(), Error> {
    let (base, mountpoint) = (base.to_path_buf(), mountpoint.to_path_buf());
    if mountpoint.starts_with(&base) {
        Err(Error::MountpointInsideBase { mountpoint, base })
    } else if base.starts_with(&mountpoint) {
        Err(Error::BaseInsideMountpoint { mountpoint, base })
    } else {
        Ok(())
    }
}

fn check_device() -> Result<(), Error> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    match opened.map_err(|error| (error.raw_os_error(), error)) {
        Ok(_) => Ok(()),
        Err((Some(libc::ENOENT | libc::ENODEV | libc::ENXIO), _)) => Err(Error::NoFuseDevice),
        Err((_, error)) => Err(Error::FusePermission(error)),
    }
}

/// Whether one of our mounts is on this very directory.
fn is_mounted(path: &Path) -> bool {
    mounts::all().iter().any(|mount| mount.mountpoint == path)
}
