//! See the crate description.

pub mod classify;
pub mod device;
