//! Pinned files: their pages have slots set aside, come in whenever they are at hand, and are never
//! evicted ([`thermocline_core::hierarchy::Hierarchy::set_pinned`]).
//!
//! Files are pinned by their names. How many slots are set aside is fixed when pins are set: a file
//! that grows past it has its newest pages treated like any other's until pins are set again, or
//! until the next start. The policy keeps a tenth of the slots whatever is pinned.

use crate::classify::glob;
use crate::engine::{Engine, Request};
use crate::error::Error;
use crate::files::object::Object;
use crate::request::RUN_BYTES_MAX;
use crate::writeback::flush::FlushProgress;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thermocline_core::{HintSet, ObjectId, RequestType, hint_type};

/// How long a load waits for the write buffer before it looks again.
const BUFFER_WAIT: Duration = Duration::from_millis(2);

/// Which files are pinned, and how many slots are set aside for their pages.
///
/// ```
/// use thermocline::Pins;
///
/// let pins = Pins { paths: vec!["base/5/16384".into(), "base/5/16384.*".into()], pages: 1000 };
/// assert!(pins.matches("base/5/16384.1"));
/// assert!(!pins.matches("base/5/163840"));
/// assert_eq!(pins.slots_of(800), 720, "the policy keeps a tenth");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Patterns for names of files, relative to the base: `*` and `?` stay within a component, `**`
    /// spans any number; a pattern without a slash is for the file's name alone.
    pub paths: Vec<String>,
    /// Pages that these files have.
    pub pages: u32,
}

impl Pins {
    /// Whether the file called `name` is pinned. O(patterns).
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.paths.iter().any(|path| glob::matches(path, name))
    }

    /// The most slots of `slots` that can be set aside.
    #[must_use]
    pub fn most_of(slots: u32) -> u32 {
        slots - slots.div_ceil(10).min(slots)
    }

    /// How many of `slots` slots are set aside.
    #[must_use]
    pub fn slots_of(&self, slots: u32) -> u32 {
        self.pages.min(Self::most_of(slots))
    }
}

impl Engine {
    /// Which files are pinned.
    #[must_use]
    pub fn pins(&self) -> Pins {
        self.pins.read().clone()
    }

    /// Pins the files that `pins` names, and only those, while requests go on: dirty pages are
    /// written back, and the tier gets a new shape as in [`Engine::resize`]. Pages of these files
    /// that are on flash already are kept from then on; [`Engine::load`] brings the rest. Files
    /// that bypass the tier enter it when they are opened anew. How many slots are set aside.
    ///
    /// # Errors
    /// [`Error::PinnedTooMuch`], and those of [`Engine::resize`]. What was pinned before then stays
    /// so.
    pub fn set_pins(
        &self,
        pins: Pins,
        mut progress: impl FnMut(FlushProgress) -> bool,
    ) -> Result<u32, Error> {
        let _one = self.reshaping();
        let store = self.store().ok_or(Error::NoTier)?;
        self.must_be_on()?;
        let slots = self.config.shares(store.blocks()).slots;
        let kept = pins.slots_of(slots);
        if kept < pins.pages {
            return Err(Error::PinnedTooMuch {
                pages: pins.pages,
                most: Pins::most_of(slots),
                slots,
                page_size: self.config.page_size,
            });
        }
        let before = std::mem::replace(&mut *self.pins.write(), pins);
        let reshaped = self.reshape_pinned(store.blocks(), &self.pinned_ids(), &mut progress);
        if reshaped.is_err() {
            *self.pins.write() = before;
            let ids = self.pinned_ids();
            let mut inner = self.inner();
            self.decide(&mut inner, &[], |hierarchy, out| {
                // Files that were opened meanwhile may have pages in kept slots.
                ids.iter()
                    .for_each(|(id, pinned)| hierarchy.set_pinned(*id, *pinned, out));
            });
        }
        reshaped.map(|()| kept)
    }

    /// Every file that is known, and whether it is pinned. One that is opened from now on is asked
    /// about then.
    fn pinned_ids(&self) -> Vec<(ObjectId, bool)> {
        let pins = self.pins();
        let closed = self.registry().to_save();
        let closed = closed.iter().map(|o| (o.id, pins.matches(&o.name)));
        let mut ids: Vec<_> = closed.collect();
        let open = self.all_objects();
        ids.extend(open.iter().map(|o| (o.id, pins.matches(&o.name()))));
        ids
    }

    /// Reads the pages of a pinned file that are not on flash from base, so that they come there.
    /// At most half of the time is spent reading. `go_on` is told how many bytes were looked at,
    /// and false ends it. How many pages of the file are on flash then. Not recorded, and counted
    /// as page reads only.
    ///
    /// # Errors
    /// Those of base.
    pub fn load(&self, object: &Object, mut go_on: impl FnMut(u64) -> bool) -> io::Result<u32> {
        let object = self.still_open(object)?;
        let size = self.page_size() as u64;
        let buffer = u64::from(self.config.write_buffer_pages);
        let step = (RUN_BYTES_MAX as u64 / size).min(buffer / 2).max(1);
        let mut bytes = vec![0; (step * size) as usize];
        let mut first = 0;
        // A length that shrinks meanwhile ends it.
        let wanted = || self.is_paged(object) && !object.unlinked.load(Ordering::Acquire);
        while first * size < object.length() && wanted() && !self.is_off() {
            let pages = first..(first + step).min(object.length().div_ceil(size));
            if self.lacks(object.id, pages.clone()) {
                let started = Instant::now();
                let request = Request {
                    object,
                    offset: first * size,
                    hints: HintSet::UNKNOWN
                        .with(hint_type::REQUEST, RequestType::SequentialRead.value()),
                    client: 0,
                };
                self.read_paged(object, &request, &mut bytes)?;
                std::thread::sleep(started.elapsed());
            }
            first = pages.end;
            if !go_on((first * size).min(object.length())) {
                break;
            }
            while u64::from(self.inner().hierarchy.staged()) > buffer / 2 && !self.is_off() {
                std::thread::sleep(BUFFER_WAIT);
            }
        }
        Ok(self.inner().hierarchy.resident_of(object.id))
    }

    /// Whether some of the pages would have to be read from base.
    fn lacks(&self, id: ObjectId, pages: std::ops::Range<u64>) -> bool {
        let inner = self.inner();
        let there = inner
            .hierarchy
            .slots()
            .in_range(id, pages.start, pages.end - 1);
        (there.len() as u64) < pages.end - pages.start
    }
}
