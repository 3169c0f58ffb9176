//! The decisions of Thermocline.
//!
//! Events go in, actions come out; time and seeds are arguments. There are no files, sockets,
//! threads, locks, clocks or random sources in this crate, so the live engine, the simulator
//! and the crash tester all run exactly this code.
#![forbid(unsafe_code)]

pub mod by_object;
pub mod cost;
pub mod counters;
pub mod ghost;
pub mod hash;
pub mod health;
pub mod heap;
pub mod hierarchy;
pub mod hint;
pub mod inflight;
pub mod ledger;
pub mod list;
pub mod model;
pub mod noise;
pub mod page;
pub mod policy;
pub mod pool;
pub mod sketch;
pub mod tier;
pub mod writers;

pub use cost::Costs;
pub use counters::{Counters, Source};
pub use health::Fault;
pub use hierarchy::{
    Absorbed, Action, Calm, CleanJob, Cleaned, DestageJob, Hierarchy, HierarchyOptions, ReadStart,
    Touched, Warming, Watermarks, WriteJob,
};
pub use hint::{FileKind, HintSchema, HintSet, PageType, RequestType, Role, hint_type};
pub use hint::{PlanAccess, PlanLevel, PlanOperator};
pub use ledger::{Doubtful, Intent, MapChange, MapEntry};
pub use page::{BlockId, FrameId, ObjectId, PageId, RegionId, SlotId};
