//! This host, as a mark names it.

use super::mark::Claimant;
use std::fs::{self, File};
use std::io::{self, Read};

/// A host: what of it is in a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name, for people.
    pub name: String,
    /// What `/etc/machine-id` says; empty where there is none.
    pub machine: String,
    /// The kernel's boot id: another one after each start.
    pub boot: String,
}

impl Host {
    /// The one this process runs on.
    #[must_use]
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().into();
        Self {
            name: read("/proc/sys/kernel/hostname"),
            machine: read("/etc/machine-id"),
            boot: read("/proc/sys/kernel/random/boot_id"),
        }
    }

    /// Whether `claimant` ran here, before or after a reboot.
    pub(super) fn is_of(&self, claimant: &Claimant) -> bool {
        let other = &claimant.host;
        if !self.boot.is_empty() && self.boot == other.boot {
            return true;
        }
        match self.machine.is_empty() || other.machine.is_empty() {
            true => self.name == other.name,
            false => self.machine == other.machine,
        }
    }
}

/// 128 random bits.
pub(super) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
