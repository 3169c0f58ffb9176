//! Which objects belong on flash: the Object Placement Advisor (Canim, Bhattacharjee, Mihaila,
//! Lang, Ross: "Storage Class Memory Aware Data Management", IEEE Data Engineering Bulletin 2010,
//! §2.1; "An Object Placement Advisor for DB2 Using Solid State Storage", PVLDB 2(2), 2009).
//!
//! 1. [`profile`](fn@profile): of each object the pages read and written, at random and in
//!    sequence, the time base needs for them, and the *benefit*: the time saved were it on flash.
//! 2. [`greedy`] takes objects by *access density* (benefit per page); [`optimum`] is the exact
//!    answer for few objects; [`indexes_only`] is the plan that the paper calls naive.
//! 3. [`divide`] gives objects parts of flash, by what each further page would save.
//! 4. [`Fixed`] is what was chosen, for a run: objects influence each other through the disk's arm
//!    and the queues, which the sum of benefits does not know. The simulator does.
//!
//! Times are those of [`Costs`](thermocline_core::Costs): a device's model, or what
//! `thermocline calibrate` measured.

mod choose;
mod fixed;
mod partial;
mod profile;

pub use choose::{Chosen, Fill, Item, OPTIMUM_MAX, greedy, indexes_only, optimum};
pub(crate) use fixed::FixedTier;
pub use fixed::{Fixed, Share};
pub use partial::{Curve, curves, divide, hull};
pub use profile::{Accesses, Holding, ObjectKind, ObjectProfile, items, profile};
