//! The life of an engine: made ([`start`]), given what a former run left ([`restart`]), at work
//! ([`load`], [`background`], [`verify`]), given another size or device ([`reshape`]), ended
//! ([`stop`]).

pub(crate) mod background;
pub(crate) mod load;
pub(crate) mod reshape;
pub(crate) mod restart;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod verify;
