//! What can go wrong when a tier is started or changed. Each error says what was found, what was
//! wanted and what to do. I/O errors of requests stay `std::io::Error`: they belong to base.

use std::io;

/// Errors of starting, configuring and stopping an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
        "{path} does not hold a cache, or its superblock is damaged ({reason}); if it may be \
         overwritten, start with --format"
    )]
    NotACache {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The cache was written by another format version.
    #[error(
        "cache file {path} has format version {found}, this program reads version {expected}; \
         start with --format to make it anew"
    )]
    Version {
        /// The file.
        path: String,
        /// Version found.
        found: u32,
        /// Version understood.
        expected: u32,
    },
    /// The cache has another page size than asked for.
    #[error(
        "cache file {path} has pages of {found} bytes, {wanted} were asked for; use \
         --page-size {found}, or --format to make it anew"
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
         start with --format to make this one anew"
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
         away, or start with --format to make it anew"
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
         truncated; start with --format to make it anew"
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
    /// The device of the cache has no room for it.
    #[error(
        "no room for a cache of {size} bytes at {path}: the device is full; choose a smaller \
         --size or another device"
    )]
    NoRoom {
        /// The file.
        path: String,
        /// Bytes asked for.
        size: u64,
    },
    /// Files were changed or removed while dirty pages of theirs were waiting on flash.
    #[error(
        "cache {path} holds newer pages of files that were changed without it: {files}; \
         `thermocline recover BASE {path} --discard` gives those pages up and keeps the files as \
         they are now, `thermocline check {path}` shows how many they are"
    )]
    ChangedBehind {
        /// The cache.
        path: String,
        /// The files, and what happened to each.
        files: String,
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
    /// The tier must work for that, and is off.
    #[error("the tier is off: {reason}; switch it on first, or replace the cache")]
    TierOff {
        /// Why.
        reason: String,
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
    /// The flash device failed, and dirty pages could be written nowhere.
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
    /// Flash failed while the map was saved; the next start will be cold.
    #[error("the map of {path} could not be saved ({source}); the next start will be cold")]
    Save {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}
