//! FUSE frontend of Thermocline: the files of a base directory, with the tier in between.
//!
//! [`Fs`] has the operations and can be tested without a mount; [`Mount`] serves them to the
//! kernel. The mount never decides what is cached: it translates requests, adds hints (object,
//! file kind, request type, role, what query plans say) and gives them to the engine.

mod acting;
mod control;
mod error;
mod fs;
mod fuse;
mod handle;
mod inode;
mod lock;
mod mount;
mod object;
mod passthrough;
mod place;
mod plans;
mod protocol;
mod prune;
mod roles;
mod search;
mod serving;
mod sys;
mod transport;

pub use control::{CONTROL_DIR, ControlFile, ControlFiles};
pub use error::Error;
pub use fs::{Caller, Entry, Fs, Listed, Opened, SetAttr, Time, WriteOptions};
pub use inode::ROOT;
pub use mount::{Mount, MountConfig, MountHandle, Transport, file_devices, is_gone};
pub use object::{BaseFile, DeviceFactory};
pub use place::{Place, Seen};
pub use plans::PlanSource;
pub use sys::raise_open_files;
