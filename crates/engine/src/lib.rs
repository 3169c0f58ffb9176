//! See the crate description.

pub mod device;
