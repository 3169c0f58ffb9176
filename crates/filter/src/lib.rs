//! The Buffered Bloom filter: a set of keys larger than memory, kept on flash.
//!
//! Storage Class Memory Aware Data Management (IEEE Data Eng. Bulletin 2010), section 3. The
//! bits lie on flash as δ *pages*, and each page is a Bloom filter of its own: a *sub-filter*. A
//! key belongs to one page. Memory holds a *block* for each page. A key that is added, or asked
//! for, waits in the block of its page; when the block is full the page is read once for all
//! keys in it. So answers come later than questions, in batches, each with the caller's *ticket*.
//!
//! - [`Builder`] makes a filter; [`Filter`] opens one.
//! - [`Probe`] asks a filter: [`Probe::ask`] hands in a key and a ticket, and a closure gets the
//!   answers. [`Filter::sift`] hides that behind an iterator.
//!
//! An answer "no" is always right. An answer "yes" is wrong with the probability that
//! [`Summary::expected_false_positives`] tells. A page that is not what was written, a file that
//! was cut, and a filter whose build never ended are errors. docs/filter-format.md has the bytes.
//!
//! ```
//! use std::sync::Arc;
//! use thermocline::device::MemoryDevice;
//! use thermocline_filter::{BuildOptions, Builder, Filter, Key, Lanes};
//!
//! # fn main() -> Result<(), thermocline_filter::FilterError> {
//! let device = Arc::new(MemoryDevice::new());
//! let options = BuildOptions { page_bytes: 4096, ..BuildOptions::default() };
//! let mut builder = Builder::create(device.clone(), &options)?;
//! for order in ["A-1", "A-2"] {
//!     builder.insert(Key::Text(order.as_bytes()))?;
//! }
//! builder.finish()?;
//!
//! let filter = Filter::open(device)?;
//! let rows = ["A-2", "A-7"];
//! let mut known = Vec::new();
//! let lanes = Lanes::default();
//! for answer in filter.sift(rows.into_iter(), |row| Key::Text(row.as_bytes()), &lanes)? {
//!     let (row, may_be_in) = answer?;
//!     if may_be_in {
//!         known.push(row);
//!     }
//! }
//! assert!(known.contains(&"A-2"));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod build;
mod error;
mod key;
mod lanes;
mod layout;
mod probe;
mod sift;

pub use build::{BuildOptions, Builder, Built};
pub use error::FilterError;
pub use key::{Key, KeyKind};
pub use lanes::Lanes;
pub use layout::{MAGIC, PAGE_BYTES_MAX, PAGES_MAX, Summary};
pub use probe::{Filter, Probe, ProbeCounts};
pub use sift::Sift;

/// Version of the format that this program reads and writes.
pub const FORMAT_VERSION: u32 = 1;
