//! Thermocline as a library: a flash tier, and a DRAM pool above it, over files on slow storage.
//!
//! [`Engine`] serves reads and writes of base files; [`Store`] is a cache file on an SSD;
//! [`device`] holds what both stand on. Decisions are made in `thermocline_core`; this crate
//! carries them out.

mod background;
pub mod calibrate;
pub mod claim;
pub mod classify;
pub mod clock;
pub mod commit;
pub mod config;
mod destage;
pub mod device;
mod engine;
mod error;
mod frames;
mod histogram;
mod io;
mod learned;
pub mod mutant;
mod object;
mod objects;
mod policy_table;
mod registry;
mod reshape;
mod restart;
mod stats;
pub mod store;

pub use config::{EngineConfig, Shares};
pub use destage::FlushProgress;
pub use engine::{Engine, Request};
pub use error::Error;
pub use histogram::{Histogram, Latency};
pub use learned::{LearnedRow, LearnedTable, LearnedType};
pub use object::{Identity, ObjectSpec, Stamp, StampFn};
pub use restart::Opener;
pub use stats::{LostPage, ObjectStats, PoolStats, Stats, TierStats};
pub use store::{BaseIdentity, Store, StoreOptions};
