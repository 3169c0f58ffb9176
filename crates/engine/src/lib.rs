//! Thermocline as a library: a flash tier, and a DRAM pool above it, over files on slow storage.
//!
//! [`Engine`] serves reads and writes of base files; [`FlashStore`] is a cache file on an SSD;
//! [`device`] holds what both stand on. Decisions are made in `thermocline_core`; this crate
//! carries them out.

pub mod calibrate;
pub mod classify;
pub mod config;
pub mod device;
mod engine;
mod error;
pub mod flash;
mod frames;
mod histogram;
mod io;
mod learned;
pub mod mutant;
mod object;
mod policy_table;
mod registry;
mod stats;
pub mod store;
mod writer;

pub use config::EngineConfig;
pub use engine::{Engine, Request};
pub use error::Error;
pub use flash::{BaseIdentity, FlashOptions, FlashStore};
pub use histogram::{Histogram, Latency};
pub use learned::{LearnedRow, LearnedTable, LearnedType};
pub use object::{Identity, ObjectSpec, Stamp, StampFn};
pub use stats::{ObjectStats, PoolStats, Stats, TierStats};
