//! Thermocline as a library: a flash tier, and a DRAM pool above it, over files on slow storage.
//! This crate is for the author of a database engine. `docs/library.md` says more, and
//! `examples/embed.rs` is a whole program.
//!
//! A **base** directory on slow storage holds the files. A **cache** ([`Store`]) is one file on an
//! SSD. An [`Engine`] serves requests for pages of the files: from its pool in memory, from the
//! cache, or from base, whichever has the newest bytes at the least cost. A **policy** decides what
//! the cache keeps. **Hints** ([`HintSet`]) tell it what a request is for; they change speed, never
//! contents.
//!
//! ```
//! use std::path::Path;
//! use thermocline::{Claim, Engine, EngineConfig, FileKind, HintSet, ObjectSpec, Request};
//! use thermocline::{Error, Leave, Store, StoreOptions, stamp_of};
//!
//! fn tour(base: &Path, cache: &Path) -> Result<(), Box<dyn std::error::Error>> {
//!     // Nobody else on this host serves the base, and the cache is the right one for it.
//!     let claim = Claim::take(base)?;
//!     claim.admit(&|| stamp_of(cache), &Leave::default())?;
//!     let (size, base_id) = (Some(8 << 20), claim.identity());
//!     let options = StoreOptions { size, base: base_id, ..StoreOptions::default() };
//!     let config = EngineConfig { pool_bytes: 1 << 20, ..EngineConfig::default() };
//!     let engine = Engine::start(config, Some(Store::open(cache, &options)?))?;
//!     // What an earlier run left on flash is compared with the files as they are now.
//!     let kind = FileKind::Relation;
//!     engine.adopt(&|which, name, _| ObjectSpec::find(base, name, kind, which), false)?;
//!
//!     let table = engine.open_object(ObjectSpec::of_file(base, "table", kind)?)?;
//!     let hints = HintSet::UNKNOWN;
//!     let at = |page: u64| Request { object: &table, offset: page * 8192, hints, client: 0 };
//!     let mut page = [0; 8192];
//!     engine.write(&at(0), &[7; 8192])?; // with base when it returns
//!     engine.sync(&table, true)?; // durable when it returns
//!     assert_eq!(engine.read(&at(0), &mut page)?, 8192);
//!     assert_eq!(page, [7; 8192]);
//!
//!     engine.close_object(&table); // once for each open
//!     engine.stop()?; // the next start is warm
//!     Ok(())
//! }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #     let dir = tempfile::tempdir()?;
//! #     std::fs::create_dir(dir.path().join("base"))?;
//! #     std::fs::write(dir.path().join("base/table"), "")?;
//! #     tour(&dir.path().join("base"), &dir.path().join("cache"))?;
//! #     tour(&dir.path().join("base"), &dir.path().join("cache"))
//! # }
//! ```
//!
//! An [`Engine`] may be used by any number of threads at once. Errors of requests are
//! [`std::io::Error`] and come from base; a cache that fails is left alone, and the engine goes on
//! without it. Errors of starting and stopping are [`Error`] and [`claim::Refusal`].
//!
//! Decisions are made in `thermocline_core`; this crate carries them out. Names without
//! documentation here belong to the project's own frontends and testers and change without notice.

pub mod calibrate;
pub mod claim;
pub mod classify;
#[doc(hidden)]
pub mod clock;
pub mod device;
mod durable;
mod engine;
mod error;
mod files;
mod flock;
mod frames;
mod lifecycle;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod mutant;
mod observe;
mod request;
mod settings;
mod state;
#[doc(hidden)]
pub mod store;
mod writeback;

pub use claim::{Claim, Leave};
pub use durable::lease::LEASE;
#[doc(hidden)]
pub use durable::sync::Told;
pub use engine::{Engine, Request};
pub use error::{Behind, Error, Refused};
#[doc(hidden)]
pub use files::extents::DirtyPages;
pub use files::hot_list::{HotList, HotListError, HotPart};
pub use files::object::{Grave, Identity, Object, ObjectSpec, Stamp, StampFn, TouchFn, untouched};
pub use files::pins::Pins;
pub use files::warm::{WarmEnd, WarmPace, Warmed};
pub use lifecycle::restart::{Discard, Opener};
pub use observe::histogram::{Histogram, Latency};
pub use observe::learned::{FinalistRow, LearnedRow, LearnedTable, LearnedType, RaceTable};
pub use observe::stats::{ClientStats, LostPage, ObjectStats, PoolStats, Stats, TierStats};
#[doc(hidden)]
pub use request::halves::{FailedRead, FlashRead, ReadEnded, ReadStarted};
pub use settings::config;
pub use settings::config::{EngineConfig, Shares};
#[doc(hidden)]
pub use store::MapLoad;
pub use store::{BaseIdentity, CacheStamp, Store, StoreOptions, stamp_of};
pub use writeback::flush::FlushProgress;
// What `Request::hints` is made of, and what the signatures above name.
pub use thermocline_core::hint::{FileKind, PageType, RequestType, Role};
pub use thermocline_core::hint::{HintSchema, HintSet, hint_type};
pub use thermocline_core::hint::{PlanAccess, PlanLevel, PlanOperator};
pub use thermocline_core::{ObjectId, PageId};
// What `Engine::set_recorder` takes.
pub use thermocline_trace::{Recorder, RecorderOptions};

// The guide's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;
