//! Thermocline as a library: a flash tier, and a DRAM pool above it, over files on slow storage.
//!
//! [`Engine`] serves reads and writes of base files; [`Store`] is a cache file on an SSD;
//! [`device`] holds what both stand on. Decisions are made in `thermocline_core`; this crate
//! carries them out.

pub mod calibrate;
pub mod claim;
pub mod classify;
pub mod clock;
pub mod device;
mod durable;
mod engine;
mod error;
mod files;
mod frames;
mod lifecycle;
pub mod lock;
#[doc(hidden)]
pub mod mutant;
mod observe;
mod request;
mod settings;
mod state;
pub mod store;
mod writeback;

pub use durable::lease::LEASE;
pub use engine::{Engine, Request};
pub use error::{Behind, Error, Refused};
pub use files::extents::DirtyPages;
pub use files::object::{Grave, Identity, Object, ObjectSpec, Stamp, StampFn, TouchFn, untouched};
pub use lifecycle::restart::{Discard, Opener};
pub use observe::histogram::{Histogram, Latency};
pub use observe::learned::{FinalistRow, LearnedRow, LearnedTable, LearnedType, RaceTable};
pub use observe::stats::{LostPage, ObjectStats, PoolStats, Stats, TierStats};
pub use request::halves::{FailedRead, FlashRead, ReadEnded, ReadStarted};
pub use settings::config;
pub use settings::config::{EngineConfig, Shares};
pub use store::{BaseIdentity, Store, StoreOptions};
pub use writeback::flush::FlushProgress;
// What `Engine::set_recorder` takes.
pub use thermocline_trace::{Recorder, RecorderOptions};
