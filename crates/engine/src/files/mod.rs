//! Base files: which id belongs to which file ([`registry`]), what is known of an open one
//! ([`object`]), and what happens to files: opened and closed ([`open`]), renamed and removed
//! ([`names`]), cut and punched ([`cut`], [`fate`]), pinned ([`pins`]), and warmed ([`warm`]) from
//! a list of hot pages ([`hot_list`]); and whose they are ([`clients`]). [`plain`] makes objects of
//! plain files.

pub(crate) mod clients;
pub(crate) mod cut;
pub(crate) mod extents;
pub(crate) mod fate;
pub(crate) mod growth;
pub(crate) mod hot_list;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod open;
pub(crate) mod pins;
mod plain;
pub(crate) mod registry;
mod room;
pub(crate) mod warm;
