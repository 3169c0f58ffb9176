//! What an engine says of itself: statistics ([`stats`], [`histogram`]), what the policy learned
//! ([`learned`]), and requests for a trace ([`record`]).

pub(crate) mod histogram;
pub(crate) mod learned;
pub(crate) mod record;
pub(crate) mod stats;
