//! Dirty pages on their way down: from DRAM to flash or base ([`clean`]), from flash to base in the
//! background ([`destage`]) or on request ([`flush`]).

pub(crate) mod clean;
pub(crate) mod destage;
pub(crate) mod flush;
