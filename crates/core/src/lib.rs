//! The decisions of Thermocline.
//!
//! Events go in, actions come out; time and seeds are arguments. There are no files, sockets,
//! threads, locks, clocks or random sources in this crate, so the live engine, the simulator
//! and the crash tester all run exactly this code.
#![forbid(unsafe_code)]

pub mod hint;
pub mod page;

pub use hint::{FileKind, HintSchema, HintSet, PageType, RequestType, Role, hint_type};
pub use page::{FrameId, ObjectId, PageId, RegionId, SlotId};
