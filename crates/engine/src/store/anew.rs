//! Making a cache anew over one that is there. A page that base does not have may not be destroyed
//! by a word in a command: whoever makes a cache anew says how many such pages it gives up.

use super::open::read_superblock;
use super::recover;
use super::superblock::{Invalid, SUPERBLOCK_BYTES, Superblock};
use crate::device::Device;
use crate::error::Error;
use crate::mutant::Mutant;
use std::io;

/// The last format version without pages newer than base.
const WRITE_THROUGH_VERSION: u32 = 1;

/// What a cache holds that base does not have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    /// Dirty pages that are known.
    dirty: u64,
    /// Why there may be more.
    unknown: Option<String>,
    /// The base they belong to.
    base: String,
}

/// Refuses to make the cache on `device` anew while pages in it are dirty, unless `discard` is
/// their number. Where damage hides some, `discard` must be the number of those that are known.
pub(super) fn check(
    device: &dyn Device,
    name: &str,
    found: u64,
    discard: Option<u64>,
) -> Result<(), Error> {
    let held = held(device, name, found)?;
    let agreed = match discard {
        Some(said) => said == held.dirty,
        None => held.dirty == 0 && held.unknown.is_none(),
    };
    match agreed {
        true => Ok(()),
        false => Err(Error::HoldsDirty {
            path: name.into(),
            pages: held.dirty,
            more: held
                .unknown
                .map_or_else(String::new, |why| format!(", and there may be more: {why}")),
            base: match held.base.is_empty() {
                true => "BASE".into(),
                false => held.base,
            },
        }),
    }
}

fn held(device: &dyn Device, name: &str, found: u64) -> Result<Held, Error> {
    let unknown = |why: &str| Held {
        unknown: Some(why.into()),
        ..Held::default()
    };
    let superblock = match read_superblock(device, name, found) {
        Ok(superblock) => superblock,
        Err(Error::Version { found, .. }) if found <= WRITE_THROUGH_VERSION => {
            return Ok(Held::default());
        }
        Err(Error::Version { found, .. }) => {
            return Ok(unknown(&format!(
                "format version {found} is not understood"
            )));
        }
        Err(Error::NotACache { .. }) if was_cache(device) => {
            return Ok(unknown("both copies of the superblock are damaged"));
        }
        Err(Error::NotACache { .. }) => return Ok(Held::default()),
        Err(other) => return Err(other),
    };
    let mut held = Held {
        base: superblock.base.path.clone(),
        ..Held::default()
    };
    match recover::read(device, &superblock, Mutant::None, &mut |_| {}) {
        Ok(reading) => {
            let entries = &reading.recovered.entries;
            held.dirty = entries.iter().filter(|(_, entry)| entry.dirty).count() as u64;
            let damage = reading.recovered.lost.iter().find(|lost| lost.is_damage());
            held.unknown = damage.map(ToString::to_string);
        }
        Err(error) => held.unknown = Some(format!("its map cannot be read ({error})")),
    }
    if found < superblock.layout.length {
        held.unknown = Some("the file was cut".into());
    }
    Ok(held)
}

/// Whether either copy of a superblock began as one.
fn was_cache(device: &dyn Device) -> bool {
    let begins = |copy: u64| -> io::Result<bool> {
        let mut block = [0; SUPERBLOCK_BYTES];
        let read = device.read_at(&mut block, copy * SUPERBLOCK_BYTES as u64)?;
        Ok(read == block.len() && Superblock::decode(&block) != Err(Invalid::Magic))
    };
    (0..2).any(|copy| begins(copy).unwrap_or(true))
}
