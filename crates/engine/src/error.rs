//! What can go wrong when a tier is started or changed. Each error says what was found, what was
//! wanted and what to do. I/O errors of requests stay `std::io::Error`: they belong to base.

use std::io;

/// Errors of starting, configuring and stopping an engine.
///
/// Each says what to do, in the words of the command line:
///
/// ```
/// use thermocline::{Error, Store, StoreOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("letters");
/// std::fs::write(&path, "x".repeat(100_000))?;
/// let error = Store::open(&path, &StoreOptions::default()).expect_err("no cache");
/// assert!(matches!(error, Error::NotACache { .. }));
/// assert!(error.to_string().contains("name another cache file"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter of a policy is out of its range; the text says which and what is allowed.
    #[error("{0}")]
    Parameter(String),
    /// More is to be pinned than may be.
    #[error(
        "{pages} pages of {page_size} bytes are to be pinned, and at most {most} can be: the cache \
         has {slots} slots, of which the policy keeps a tenth; pin less, or make the cache larger \
         (thermocline resize)"
    )]
    PinnedTooMuch {
        /// Pages to be pinned.
        pages: u32,
        /// How many can be.
        most: u32,
        /// Slots of the cache.
        slots: u32,
        /// Bytes of a page.
        page_size: u32,
    },
    /// The cache file cannot be opened, made or locked.
    #[error("cannot use cache file {path}: {source}")]
    CacheIo {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the cache file open.
    #[error("cache file {path} is in use by another mount; unmount that one first")]
    CacheInUse {
        /// The file.
        path: String,
    },
    /// Neither copy of the superblock is readable as one.
    #[error(
        "{path} does not hold a cache, or its superblock is damaged ({reason}); name another cache \
         file, or start with --format if this one may be overwritten"
    )]
    NotACache {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The cache was written by another format version.
    #[error(
        "cache file {path} has format version {found}, this program reads versions {oldest} to \
         {newest}; use the program that wrote it, or name another cache file"
    )]
    Version {
        /// The file.
        path: String,
        /// Version found.
        found: u32,
        /// The oldest version understood.
        oldest: u32,
        /// The newest one.
        newest: u32,
    },
    /// The cache has another page size than asked for.
    #[error(
        "cache file {path} has pages of {found} bytes, {wanted} were asked for; use \
         --page-size {found}, or name another cache file"
    )]
    PageSize {
        /// The file.
        path: String,
        /// Bytes per page in the file.
        found: u32,
        /// Bytes per page asked for.
        wanted: u32,
    },
    /// The cache belongs to another base.
    #[error(
        "cache file {path} belongs to base {found}, not to {wanted}; name another cache file, or \
         use it with the base it belongs to"
    )]
    OtherBase {
        /// The file.
        path: String,
        /// Base recorded in it.
        found: String,
        /// Base asked for.
        wanted: String,
    },
    /// The cache has another size than asked for.
    #[error(
        "cache file {path} was made with {found} bytes, {wanted} were asked for; leave --size \
         away, and use `thermocline resize` once it is mounted"
    )]
    Size {
        /// The file.
        path: String,
        /// Bytes recorded.
        found: u64,
        /// Bytes asked for.
        wanted: u64,
    },
    /// The file is shorter than its superblock says.
    #[error(
        "cache file {path} has {found} bytes, its superblock speaks of {expected}: it was \
         truncated; put the whole file back, or name another cache file: what this one had newer \
         than base must come from a backup"
    )]
    Truncated {
        /// The file.
        path: String,
        /// Bytes there.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// The size leaves no room for pages.
    #[error("a cache of {size} bytes is too small: {least} bytes are the least for this page size")]
    TooSmall {
        /// Bytes asked for.
        size: u64,
        /// Least bytes that work.
        least: u64,
    },
    /// No size was given for a cache that is to be made.
    #[error("cache file {path} does not exist yet; say how large it may be with --size")]
    NoSize {
        /// The file.
        path: String,
    },
    /// The cache would be made anew over pages that base does not have.
    #[error(
        "cache {path} holds {pages} pages that base does not have yet{more}; `thermocline recover \
         {base} {path}` writes them to base, and so does a mount without --format; --format \
         --discard-dirty {pages} gives them up for good"
    )]
    HoldsDirty {
        /// The file.
        path: String,
        /// Dirty pages that are known.
        pages: u64,
        /// Why there may be more, as the end of a clause; empty when there cannot.
        more: String,
        /// The base they belong to.
        base: String,
    },
    /// Somebody else may have made the file, or may change it.
    #[error("cache file {path} is not to be trusted: {why}; {advice}")]
    Untrusted {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
        /// What to do.
        advice: String,
    },
    /// The device of the cache has no room for it.
    #[error("no room for a cache of {size} bytes at {path}: the device is full{}", fitting(*room))]
    NoRoom {
        /// The file.
        path: String,
        /// Bytes asked for.
        size: u64,
        /// Bytes that it could have, where that is known.
        room: Option<u64>,
    },
    /// Files were changed or removed while dirty pages of theirs were waiting on flash.
    #[error(
        "cache {path} holds newer pages of {} files that were changed without it: {}; bring those \
         files back as they were, or give up their pages", files.len(), in_words(files)
    )]
    ChangedBehind {
        /// The cache.
        path: String,
        /// The files, and what happened to each.
        files: Vec<Refused>,
    },
    /// The tier cannot start from empty while pages are on their way to or from it.
    #[error(
        "cache {path} still holds pages, or pages are under way to it; try again in a moment, and \
         see `thermocline status` for pages that only it has"
    )]
    StillInUse {
        /// The cache.
        path: String,
    },
    /// The map is being read: the tier takes no other shape or place before that is over.
    #[error("the map of cache {path} is being read: {percent} %; try again when that is over")]
    Loading {
        /// The cache.
        path: String,
        /// How far it is.
        percent: u32,
    },
    /// The tier must work for that, and is off.
    #[error("the tier is off: {reason}; switch it on first, or replace the cache")]
    TierOff {
        /// Why.
        reason: String,
    },
    /// Base belongs to somebody else, and the cache may too.
    #[error("cache {path} is left as it is: {why}; use the mount that serves base now")]
    Fenced {
        /// The cache.
        path: String,
        /// Who has base, or why that cannot be told.
        why: String,
    },
    /// A write to the part of a cache that is to go failed, and may still be to come.
    #[error(
        "a write near the end of cache {path} did not end well, and may still reach the device; \
         unmount and mount again before making it shorter, or replace it"
    )]
    LateWrite {
        /// The cache.
        path: String,
    },
    /// The device of a cache has not answered requests that were given up.
    #[error(
        "{requests} requests to cache {path} were given up and have not ended: a write among them \
         may still reach it; try again when it has answered, or replace it"
    )]
    Late {
        /// The cache.
        path: String,
        /// How many.
        requests: u32,
    },
    /// Dirty pages could not be written to base.
    #[error("{pages} pages could not be written back to base: {source}")]
    WriteBack {
        /// How many are dirty.
        pages: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Whoever asked for it wants it no more.
    #[error("stopped on request; the tier is as it was")]
    Stopped,
    /// A base file cannot be opened or written.
    #[error("cannot use base file {path}: {source}")]
    BaseIo {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Dirty pages could be written nowhere: base refuses them, and flash failed or takes none.
    #[error(
        "{pages} pages of cache {path} are newer than base and could not be written back: {files}"
    )]
    Unsaved {
        /// The cache.
        path: String,
        /// How many.
        pages: u64,
        /// The files and the numbers of their pages, as far as there is room.
        files: String,
    },
    /// A setting is out of its range.
    #[error("{name} = {value} is not allowed: {rule}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would be allowed.
        rule: &'static str,
    },
    /// The system gives the engine no thread to work in the background.
    #[error(
        "cannot start a thread: {source}; raise the limit of threads (ulimit -u, pids.max of the \
         control group, TasksMax= of the service) or end other programs, and start again"
    )]
    Threads {
        /// What the system said.
        source: io::Error,
    },
    /// A rule of the policy assignment table cannot be used.
    #[error("priority rule {number}: {why}")]
    PriorityRule {
        /// Its number, from 1, in the order they are written.
        number: u32,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] thermocline_core::hierarchy::UnknownPolicy),
    /// There is no flash tier to do that with.
    #[error("there is no flash tier: the engine was started without a cache file")]
    NoTier,
    /// The map could not be saved; the next start is as after a crash.
    #[error(
        "the map of {path} could not be saved ({source}); mount again: it recovers what was synced"
    )]
    Save {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A file that dirty pages wait for, and that is no longer the one they were made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name, relative to base.
    pub name: String,
    /// What happened to it.
    pub why: Behind,
    /// The numbers of its dirty pages, ascending: the first [`Refused::LISTED`].
    pub pages: Vec<u64>,
    /// How many dirty pages it has in all.
    pub total: u64,
}

impl Refused {
    /// Pages listed at most.
    pub const LISTED: usize = 20;
}

/// What happened to a file behind the tier's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// It is gone.
    Gone,
    /// It is not what it was: its times, ns since 1970, where they can be read.
    Changed(Option<i64>),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self.why {
            Behind::Gone => "gone",
            Behind::Changed(_) => "changed",
        };
        let word = if self.total == 1 { "page" } else { "pages" };
        let pages: Vec<String> = self.pages.iter().map(u64::to_string).collect();
        let listed = pages.join(", ");
        write!(out, "{} ({why}; {} {word}: {listed}", self.name, self.total)?;
        match self.total.saturating_sub(self.pages.len() as u64) {
            0 => write!(out, ")"),
            more => write!(out, " and {more} more)"),
        }
    }
}

fn in_words(files: &[Refused]) -> String {
    let files: Vec<String> = files.iter().map(ToString::to_string).collect();
    files.join(", ")
}

/// What would fit, and what to do.
fn fitting(room: Option<u64>) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let Some(room) = room else {
        return "; choose a smaller --size or another device".into();
    };
    // A little is for the file system's own: which blocks the file has.
    let fits = (room - room / 256).saturating_sub(64 * KIB);
    let fits = match fits {
        0..KIB => return format!(" ({room} bytes are free); free some, or use another device"),
        KIB..MIB => format!("{}KiB", fits / KIB),
        _ => format!("{}MiB", fits / MIB),
    };
    format!(" ({room} bytes are free); --size {fits} would fit, or use another device")
}
