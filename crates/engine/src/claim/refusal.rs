//! Why a base may not be served. Each says who stands in the way, and the way out.

use super::mark::Mark;
use std::io;
use std::path::{Path, PathBuf};

/// Why a base may not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Somebody on this host has it.
    #[error("base {base} is in use by {by}; end that one first (thermocline umount MOUNTPOINT)")]
    Locked {
        /// The base.
        base: PathBuf,
        /// Who, as far as it can be found.
        by: String,
    },
    /// A directory above is served, or owed newest bytes.
    #[error(
        "base {base} lies inside {above}, which is {mark}; serve only one of the two: end \
         that mount, or thermocline recover {above} CACHE"
    )]
    Above {
        /// The base.
        base: PathBuf,
        /// The directory above.
        above: PathBuf,
        /// What its mark says.
        mark: Box<Mark>,
    },
    /// A mount serves a directory above or below.
    #[error(
        "base {base} and base {other}, mounted on {mountpoint}, contain each other; serve only one \
         of the two: thermocline umount {mountpoint}"
    )]
    Overlaps {
        /// The base.
        base: PathBuf,
        /// The other mount's base.
        other: PathBuf,
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
    /// The base is what a mount shows.
    #[error(
        "base {base} lies on the Thermocline mount {mountpoint}: a mount of a mount would keep two \
         copies of everything; name the directory behind it, {behind}"
    )]
    OnMount {
        /// The base.
        base: PathBuf,
        /// The mount.
        mountpoint: PathBuf,
        /// Its base.
        behind: PathBuf,
    },
    /// The mark makes no sense.
    #[error(
        "the mark of base {base} cannot be read: {why}; a newer version may have written it. If no \
         cache holds newer bytes of this directory, remove it: {way}"
    )]
    Unreadable {
        /// The base.
        base: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The command that removes it.
        way: String,
    },
    /// Another cache has the newest bytes.
    #[error(
        "base {base} is {mark}; mount it with that cache, or thermocline recover {base} {cache}. \
         If that cache is lost for good, --abandon-dirty {id:016x} serves the old bytes that base \
         has: every write since the last flush is then gone, and a database may not start",
        cache = mark.claimant.cache_path,
        id = mark.cache
    )]
    OtherCache {
        /// The base.
        base: PathBuf,
        /// What its mark says.
        mark: Box<Mark>,
    },
    /// The cache file is older than the one the base was last served with.
    #[error(
        "cache {cache} is an old copy: it was opened {found} times, and base was last served with \
         opening {epoch} of it ({path} on host {host}). Use that file; if base needs nothing from \
         it, --format makes this one anew",
        epoch = mark.epoch,
        path = mark.claimant.cache_path,
        host = mark.claimant.host.name
    )]
    OldCopy {
        /// The cache.
        cache: String,
        /// Its opening.
        found: u64,
        /// What the mark says.
        mark: Box<Mark>,
    },
    /// Another host serves.
    #[error(
        "base {base} is served by another host, or was until that crashed: {claimant}. End it \
         there; or --take-over makes the other one stop, and waits until it has",
        claimant = mark.claimant
    )]
    OtherHost {
        /// The base.
        base: PathBuf,
        /// What its mark says.
        mark: Box<Mark>,
    },
    /// Somebody else took the base over while we did.
    #[error("base {base} was taken over by somebody else at the same time; see who serves it now")]
    Contested {
        /// The base.
        base: PathBuf,
    },
    /// The cache belongs to another base.
    #[error(
        "cache {cache} belongs to base {recorded}, not to {base}; name another cache file. If it \
         is the same directory, restored or mounted in another way, --same-base says so"
    )]
    OtherBase {
        /// The cache.
        cache: String,
        /// The base it knows.
        recorded: String,
        /// The base asked for.
        base: PathBuf,
    },
    /// The cache has pages that base does not wait for.
    #[error(
        "cache {cache} holds {dirty} pages newer than base, but base {base} does not wait for \
         them: they were given up, or base is an older copy (a snapshot, a backup with \
         its attributes). --same-base writes them to it all the same; --format --discard-dirty \
         {dirty} gives them up and makes the cache anew"
    )]
    NotAwaited {
        /// The cache.
        cache: String,
        /// Its dirty pages.
        dirty: u64,
        /// The base.
        base: PathBuf,
    },
    /// The cache cannot be read.
    #[error(transparent)]
    Cache(#[from] crate::Error),
    /// The system refused.
    #[error("cannot claim base {base}: {source}")]
    Io {
        /// The base.
        base: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Refusal {
    pub(super) fn io(base: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io {
            base: base.into(),
            source,
        }
    }
}
