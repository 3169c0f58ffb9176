//! Settings of an engine, and tables of priorities.

pub mod config;
pub(crate) mod machine;
pub(crate) mod policy_section;
pub(crate) mod policy_table;
