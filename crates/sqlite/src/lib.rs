//! SQLite frontend: a VFS in process, over one [`thermocline::Engine`].
//!
//! [`register`] puts a VFS under a name; open a database with it and its pages go through the
//! engine (DRAM pool, flash tier, base). Keep SQLite's own cache small (`PRAGMA cache_size`): the
//! pool below the VFS is shared by all connections and survives foreign commits.
//!
//! What goes where:
//!
//! | file | object | cached |
//! |---|---|---|
//! | main database | one per (device, inode), shared by all connections of the process | yes |
//! | rollback journal, WAL, super-journal | kind *log* | no |
//! | temporary database, sorter, statement journal | kind *temporary* | no |
//!
//! Writes are write-through: whatever SQLite synced is on the base device. The file stays a plain
//! SQLite file. One process at a time: the first lock on a database takes SQLite's own lock bytes
//! for the whole process and keeps them until the last connection closes, so another process, with
//! this VFS or the stock one, gets `SQLITE_BUSY`. There is no shared memory: WAL needs
//! `PRAGMA locking_mode=exclusive` before `PRAGMA journal_mode=wal`.

mod backing;
mod ffi;
mod file;
mod lock;
mod open;
mod oslock;
mod registry;
mod vfs;

pub use open::BaseFile;
pub use registry::{OpenBase, Registration, register};

// The guide's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sqlite.md")]
struct Guide;
