//! What is found out about a load without the mount it came from: traces read, simulated, replayed,
//! advised on; and the demo and the filter, which bring data of their own.

pub(crate) mod advise;
pub(crate) mod demo;
pub(crate) mod filter;
pub(crate) mod import;
pub(crate) mod joint;
pub(crate) mod modelled;
pub(crate) mod mrc;
pub(crate) mod parameters;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod simulate;
pub(crate) mod trace;
