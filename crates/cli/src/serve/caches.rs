//! Opening the cache of a mount, and another one in its place.

use crate::failure::Failure;
use crate::serve::claiming::Claiming;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline::device::{FaultScript, Faulty, Metered, Meters};
use thermocline::{BaseIdentity, Store, StoreOptions};

/// The longest a flash I/O may take before the request goes to base instead.
const FLASH_DEADLINE: Duration = Duration::from_secs(2);

/// What the caches of one mount have in common.
pub(crate) struct Caches {
    /// Bytes per page.
    pub(crate) page_size: u32,
    /// The base they belong to.
    pub(crate) base: BaseIdentity,
    /// Its claim.
    pub(crate) claiming: Arc<Claiming>,
    /// Counts their I/O.
    pub(crate) meters: Arc<Meters>,
    /// Makes it fail on command.
    pub(crate) faults: Option<Arc<FaultScript>>,
}

impl Caches {
    /// The cache at `path`, opened, or made where there is none or with `format`: then `discard` is
    /// the number of pages newer than base that are given up.
    pub(crate) fn open(
        &self,
        path: &Path,
        size: Option<u64>,
        format: bool,
        discard: Option<u64>,
    ) -> Result<Store, Failure> {
        let options = StoreOptions {
            page_size: self.page_size,
            size,
            base: self.base.clone(),
            format: false,
            deadline: Some(FLASH_DEADLINE),
            ..StoreOptions::default()
        };
        match format {
            true => Ok(Store::make_anew(path, &options, discard)?),
            false => Ok(Store::open(path, &options)?),
        }
    }

    /// The same cache with its I/O counted, and perhaps made to fail.
    pub(crate) fn watched(&self, mut store: Store) -> Store {
        if let Some(script) = &self.faults {
            let script = Arc::clone(script);
            store =
                store.wrapped(|device| Arc::new(Faulty::new(device, script, Some(FLASH_DEADLINE))));
        }
        let meters = Arc::clone(&self.meters);
        store.wrapped(|device| Arc::new(Metered::sharing(device, meters)))
    }
}
