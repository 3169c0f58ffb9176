//! One file per command (or per pair that shares its whole mechanism).

pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod flush;
pub(crate) mod generate;
pub(crate) mod mount;
pub(crate) mod pin;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod reshape;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod umount;
