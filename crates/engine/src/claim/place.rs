//! Where a mark is kept, durably.
//!
//! As the extended attribute [`ATTRIBUTE`] of the base directory: it moves with the directory, goes
//! into backups that keep attributes, and needs no name. In the namespace `user`, which ordinary
//! users, network and user-space file systems have too; `trusted` has none of these. Where there
//! are no such attributes, a file beside the base, `.NAME.thermocline`; where the base is the root
//! of its file system, `.thermocline` in it (a mount shows its control files there), because a
//! mark on another file system is not seen by other hosts. The attribute counts when both are
//! there.

use super::host::Host;
use super::lock;
use super::mark::{Mark, State};
use super::refusal::Refusal;
use crate::store::CacheStamp;
use std::ffi::{CStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the extended attribute.
pub const ATTRIBUTE: &str = "user.thermocline";
const NAME: &CStr = c"user.thermocline";
/// Bytes a mark may have.
const MARK_MAX: usize = 4096;

/// What keeps the text of one mark: a file system, or what a tester has instead of one.
#[doc(hidden)]
pub trait Keep: Send + Sync {
    /// The text as far as this host knows, or `fresh`: as the file system's server has it, whatever
    /// this host has kept of it.
    ///
    /// # Errors
    /// Those of the system: what cannot be read may be there.
    fn text(&self, fresh: bool) -> io::Result<Option<String>>;

    /// Writes the text; durable when this returns.
    ///
    /// # Errors
    /// Those of the system: the text is then as it was, or the new one.
    fn write(&self, text: &str) -> io::Result<()>;

    /// Writes the text, perhaps not durably yet: when, by base's clock, in ns since 1970.
    ///
    /// # Errors
    /// As [`Keep::write`].
    fn stamp(&self, text: &str) -> io::Result<i64>;

    /// Makes durable what [`Keep::stamp`] wrote.
    ///
    /// # Errors
    /// As [`Keep::write`].
    fn sync(&self) -> io::Result<()>;

    /// The command that takes the text away.
    fn way(&self) -> String;
}

/// The mark of one base.
pub(super) struct Place {
    base: PathBuf,
    keep: Box<dyn Keep>,
}

/// Keeps a mark on a file system.
pub(super) struct OnDisk {
    base: PathBuf,
    directory: File,
    /// The file, where there are no attributes.
    beside: PathBuf,
}

/// What the mark of `base` says, for people; `None` when it has none.
///
/// # Errors
/// [`Refusal::Unreadable`], and those of the system.
pub fn mark_of(base: &Path) -> Result<Option<String>, Refusal> {
    let place = Place::of(base).map_err(Refusal::io(base))?;
    let mark = place.read()?;
    Ok(mark.map(|mark| {
        let is_here = mark.claimant.is_serving() && Host::this().is_of(&mark.claimant);
        match mark.state {
            State::Serving if is_here && !lock::is_held(base) => format!(
                "without a mount: {}, which served it with {}, is gone; mount it with that again",
                mark.claimant,
                mark.cache_in_words()
            ),
            State::Dirty if is_here && !lock::is_held(base) => {
                format!("{mark}, which is gone: {}", mark.state.meaning())
            }
            _ => format!("{mark}: {}", mark.state.meaning()),
        }
    }))
}

/// Whether the mark of the directory that a cache names as its base waits for dirty pages of it;
/// `None` when it has no mark, or is another base by now.
///
/// # Errors
/// [`Refusal::Unreadable`], and those of the system.
pub fn awaits(cache: &CacheStamp) -> Result<Option<bool>, Refusal> {
    let base = Path::new(&cache.base.path);
    let place = Place::of(base).map_err(Refusal::io(base))?;
    let mark = place.read()?.filter(|mark| mark.base == cache.base.id);
    Ok(mark.map(|mark| mark.state == State::Dirty && mark.is_of_newest(cache)))
}

/// How a base stands by its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What base has.
    pub state: State,
    /// Who serves it, or died serving it; 0 for a process that ended in good order.
    pub pid: u32,
}

/// What the mark of `base` says, for whoever waited for the end of its mount; `None` without one.
///
/// # Errors
/// [`Refusal::Unreadable`], and those of the system.
pub fn standing_of(base: &Path) -> Result<Option<Standing>, Refusal> {
    let place = Place::of(base).map_err(Refusal::io(base))?;
    let mark = place.read()?;
    Ok(mark.map(|mark| Standing {
        state: mark.state,
        pid: mark.claimant.pid,
    }))
}

/// A file of the tier beside `base`, on the same file system: `.NAME.thermocline-WORD`, or
/// where the base is the root of its file system, `.thermocline-WORD` in it. Without a `word`, the
/// mark's.
#[must_use]
pub fn beside(base: &Path, word: &str) -> PathBuf {
    let dash = if word.is_empty() { "" } else { "-" };
    let suffix = format!(".thermocline{dash}{word}");
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let parent = base.parent();
    let parent = parent.filter(|parent| device(parent).is_some_and(|d| Some(d) == device(base)));
    match (parent, base.file_name()) {
        (Some(parent), Some(name)) => {
            let mut file = OsString::from(".");
            file.push(name);
            file.push(suffix);
            parent.join(file)
        }
        _ => base.join(suffix),
    }
}

impl Place {
    pub(super) fn of(base: &Path) -> io::Result<Self> {
        Ok(Self::kept(base, Box::new(OnDisk::of(base)?)))
    }

    pub(super) fn kept(base: &Path, keep: Box<dyn Keep>) -> Self {
        let base = base.into();
        Self { base, keep }
    }

    /// The mark, as far as this host knows.
    pub(super) fn read(&self) -> Result<Option<Mark>, Refusal> {
        let text = self.keep.text(false).map_err(Refusal::io(&self.base))?;
        let mark = text.map(|text| Mark::decode(&text)).transpose();
        mark.map_err(|why| Refusal::Unreadable {
            base: self.base.clone(),
            why,
            way: self.keep.way(),
        })
    }

    /// The mark as the file system's server has it, whatever this host has kept of it.
    pub(super) fn read_fresh(&self) -> io::Result<Option<Mark>> {
        let text = self.keep.text(true)?;
        let mark = text.map(|text| Mark::decode(&text)).transpose();
        mark.map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidData, format!("mark of base: {why}"))
        })
    }

    /// Writes the mark; durable when this returns.
    pub(super) fn write(&self, mark: &Mark) -> io::Result<()> {
        let text = mark.encode();
        debug_assert!(Mark::decode(&text).is_ok(), "whoever comes next reads it");
        self.keep.write(&text)
    }

    /// As [`Keep::stamp`].
    pub(super) fn stamp(&self, mark: &Mark) -> io::Result<i64> {
        self.keep.stamp(&mark.encode())
    }

    /// As [`Keep::sync`].
    pub(super) fn sync(&self) -> io::Result<()> {
        self.keep.sync()
    }
}

impl OnDisk {
    pub(super) fn of(base: &Path) -> io::Result<Self> {
        let directory = File::open(base)?;
        Ok(Self {
            base: base.into(),
            directory,
            beside: beside(base, ""),
        })
    }

    /// Asks the server for the directory's attributes: should they have changed, what is kept of
    /// its extended attributes goes.
    fn revalidate(&self) -> io::Result<()> {
        let mut buf = MaybeUninit::<libc::statx>::zeroed();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
        let fd = self.directory.as_raw_fd();
        // SAFETY: the descriptor is open, the path is a terminated string, and the buffer is a
        // statx that outlives the call.
        let result =
            unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_CTIME, buf.as_mut_ptr()) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The text of the file.
    fn file(&self) -> io::Result<Option<String>> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&self.beside);
        let file = match opened {
            Ok(file) => file,
            Err(error) if absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        // What somebody else put there says nothing.
        if !found.is_file() || ![0, effective_uid()].contains(&found.uid()) {
            return Ok(None);
        }
        let mut text = String::new();
        file.take(MARK_MAX as u64).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    fn attribute(&self) -> io::Result<Option<String>> {
        let mut value = vec![0u8; MARK_MAX];
        let fd = self.directory.as_raw_fd();
        // SAFETY: the descriptor is open, the name terminated, the buffer as long as said.
        let length =
            unsafe { libc::fgetxattr(fd, NAME.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        match usize::try_from(length) {
            Ok(length) => {
                value.truncate(length);
                Ok(Some(String::from_utf8_lossy(&value).into_owned()))
            }
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Sets the attribute, not durably yet; false where there are none.
    fn put(&self, text: &str) -> io::Result<bool> {
        debug_assert!(text.len() <= MARK_MAX, "paths in it are cut");
        let fd = self.directory.as_raw_fd();
        let data = text.as_ptr().cast();
        // SAFETY: the descriptor is open, the name terminated, the value as long as said.
        let result = unsafe { libc::fsetxattr(fd, NAME.as_ptr(), data, text.len(), 0) };
        match result {
            0 => Ok(true),
            _ => match io::Error::last_os_error() {
                error if no_attributes(&error) => Ok(false),
                error => Err(error),
            },
        }
    }

    pub(super) fn write_file(&self, text: &str) -> io::Result<()> {
        let mut new = self.beside.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        match fs::remove_file(&new) {
            Err(error) if !absent(&error) => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.beside)?;
        let parent = self.beside.parent().unwrap_or(Path::new("/"));
        File::open(parent)?.sync_all()?;
        self.take_attribute_away().inspect_err(|_| {
            // The attribute counts still.
            let _ = fs::remove_file(&self.beside);
        })
    }

    /// An attribute from before would count. Where a file system refuses to remove it, for whatever
    /// reason, it is looked for: some say so (`EPERM`) though they have none.
    fn take_attribute_away(&self) -> io::Result<()> {
        let fd = self.directory.as_raw_fd();
        // SAFETY: the descriptor is open, the name terminated.
        if unsafe { libc::fremovexattr(fd, NAME.as_ptr()) } == 0 {
            return self.directory.sync_all();
        }
        let refused = io::Error::last_os_error();
        match self.attribute() {
            Ok(None) => Ok(()),
            Err(error) if unsupported(&error) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(refused),
        }
    }

    /// The time base gave the text that was last written.
    fn written_at(&self) -> io::Result<i64> {
        self.revalidate()?;
        let found = match self.attribute() {
            Ok(Some(_)) => self.directory.metadata()?,
            _ => fs::metadata(&self.beside)?,
        };
        let seconds = found.ctime().saturating_mul(1_000_000_000);
        Ok(seconds.saturating_add(found.ctime_nsec()))
    }
}

impl Keep for OnDisk {
    fn text(&self, fresh: bool) -> io::Result<Option<String>> {
        if fresh {
            self.revalidate()?;
        }
        match self.attribute() {
            Ok(Some(text)) => return Ok(Some(text)),
            // One that may not be read is there, perhaps, and counts.
            Err(error) if !unsupported(&error) => return Err(error),
            Ok(None) | Err(_) => {}
        }
        self.file()
    }

    fn write(&self, text: &str) -> io::Result<()> {
        match self.put(text)? {
            true => {
                self.directory.sync_all()?;
                // The attribute counts from here on.
                match fs::remove_file(&self.beside) {
                    Err(error) if !absent(&error) => Err(error),
                    _ => Ok(()),
                }
            }
            false => self.write_file(text),
        }
    }

    fn stamp(&self, text: &str) -> io::Result<i64> {
        if !self.put(text)? {
            self.write(text)?;
        }
        self.written_at()
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn way(&self) -> String {
        match self.attribute() {
            Ok(Some(_)) => format!("setfattr -x {ATTRIBUTE} {}", self.base.display()),
            _ => format!("rm {}", self.beside.display()),
        }
    }
}

/// Whether there are no attributes there at all.
fn unsupported(error: &io::Error) -> bool {
    let codes = [libc::EOPNOTSUPP, libc::ENOSYS];
    let code = error.raw_os_error();
    code.is_some_and(|code| codes.contains(&code))
}

/// Whether attributes cannot be kept there: not at all, not by this user, or not that many.
fn no_attributes(error: &io::Error) -> bool {
    let codes = [
        libc::EOPNOTSUPP,
        libc::ENOSYS,
        libc::EPERM,
        libc::EACCES,
        libc::E2BIG,
        libc::ENOSPC,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

fn absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
    )
}

fn effective_uid() -> u32 {
    // SAFETY: the call always succeeds.
    unsafe { libc::geteuid() }
}
