//! The simulator: the tier's own decisions over recorded requests, without devices.
//!
//! A [`Workload`] is one trace, or several interleaved, split into page requests. [`run`] puts
//! every policy at every size through it, several at a time, and returns one [`RunResult`] each.
//! docs/simulator.md says what is counted and how time is modelled.
//!
//! | module | holds |
//! |---|---|
//! | [`request`] | the page request, 24 bytes |
//! | `source`, `merge`, `split` | records of one trace, of several, and their pages |
//! | [`workload`] | the page requests in memory, or read again for every run; what is in them |
//! | [`tier`] | policy + slot table + pool with instant I/O: the decisions of the live tier |
//! | [`opt`], `outlook`, `bits` | the offline optimum, and the future it looks into |
//! | [`device`], [`closed_loop`] | how long it would take: device models, queues, clients |
//! | `meter`, [`result`](mod@result) | counting |
//! | [`experiment`] | policies × sizes in parallel |
//! | [`joint`] | DRAM pool and tier managed together, in write-back: the live state machine |
//! | [`mrc`] | miss-ratio curves from one pass over a sample |
//! | [`advice`] | what to change about a tier, with gains and their uncertainty |
//! | [`placement`] | which objects belong on flash, whole or in part |
//! | [`plan`](mod@plan) | which sizes are worth their money |
#![forbid(unsafe_code)]

pub mod advice;
mod bits;
pub mod closed_loop;
pub mod device;
mod error;
pub mod experiment;
pub mod joint;
mod merge;
mod meter;
pub mod mrc;
pub mod noise;
pub mod opt;
mod outlook;
mod parallel;
pub mod placement;
pub mod plan;
mod reach;
pub mod request;
pub mod result;
mod source;
mod split;
pub mod tier;
pub mod workload;

pub use error::SimError;
pub use experiment::{Experiment, run};
pub use merge::Interleave;
pub use noise::Noise;
pub use request::{Kind, PageRequest};
pub use result::RunResult;
pub use source::{Opener, Records, VecRecords, opener, part, sampled};
pub use split::{Bypassed, Writes};
pub use workload::{Workload, WorkloadOptions};
