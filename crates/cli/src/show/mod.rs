//! What people and programs see: the report of a mount, tables, pictures, pages, progress, man
//! pages.

pub(crate) mod beside;
pub(crate) mod chart;
pub(crate) mod config;
pub(crate) mod curve_page;
pub(crate) mod generate;
pub(crate) mod pace;
pub(crate) mod plot;
pub(crate) mod report;
pub(crate) mod shell;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod terminal;
