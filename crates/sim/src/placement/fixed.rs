//! Decisions about whole objects, made ahead of a run and carried out in it.

use crate::request::{Kind, PageRequest};
use crate::tier::{Effect, PolicyTier, Tier};
use crate::workload::Facts;
use std::collections::BTreeMap;
use thermocline_core::counters::Source;
use thermocline_core::policy::{self, PolicyOptions};
use thermocline_core::{HintSet, ObjectId};

/// Flash of its own for an object: an LRU tier of so many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The object.
    pub object: ObjectId,
    /// Pages.
    pub pages: u32,
}

/// Objects the tier's policy does not decide about. Where one is named twice the first place in
/// the order of the fields counts. Pinned, moved and shared pages are taken off the tier's size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// Wholly on flash from the beginning; writes go to base and renew the copy.
    pub pinned: Vec<ObjectId>,
    /// Never on flash.
    pub bypassed: Vec<ObjectId>,
    /// On flash instead of base, writes as well: the paper's placement, without a cache.
    pub moved: Vec<ObjectId>,
    /// With flash of their own.
    pub shares: Vec<Share>,
}

impl Fixed {
    /// Whether the policy decides about all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pages of flash that are taken of a tier for a workload of these facts.
    #[must_use]
    pub fn pages(&self, facts: &Facts) -> u64 {
        let whole = self.pinned.iter().chain(&self.moved);
        let shares = self.shares.iter().map(|share| u64::from(share.pages));
        whole.map(|object| facts.pages_of(*object)).sum::<u64>() + shares.sum::<u64>()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Pinned,
    Bypassed,
    Moved,
    Shared,
}

/// A tier beside whose policy some objects have their place.
pub(crate) struct FixedTier<T> {
    tier: T,
    places: Vec<Place>,
    shares: BTreeMap<ObjectId, PolicyTier>,
}

impl<T: Tier> FixedTier<T> {
    /// `tier` for all objects of `objects` that `fixed` leaves free.
    pub(crate) fn new(tier: T, fixed: &Fixed, objects: usize) -> Self {
        let mut places = vec![Place::Free; objects];
        let shared: Vec<ObjectId> = fixed.shares.iter().map(|share| share.object).collect();
        let lists = [
            (&shared, Place::Shared),
            (&fixed.moved, Place::Moved),
            (&fixed.bypassed, Place::Bypassed),
            (&fixed.pinned, Place::Pinned),
        ];
        for (list, place) in lists {
            for object in list {
                if let Some(at) = places.get_mut(object.0 as usize) {
                    *at = place;
                }
            }
        }
        let lru = |share: &Share| {
            let built = policy::build("lru", &PolicyOptions::new(share.pages))?;
            Some((share.object, PolicyTier::new(built, share.pages, 0)))
        };
        Self {
            tier,
            places,
            shares: fixed.shares.iter().filter_map(lru).collect(),
        }
    }

    /// The tier of the other objects.
    pub(crate) fn into_inner(self) -> T {
        self.tier
    }
}

impl<T: Tier> Tier for FixedTier<T> {
    fn serve(&mut self, at: u64, request: &PageRequest, hints: &HintSet) -> Effect {
        let writes = u32::from(request.kind() != Kind::Read);
        let on_flash = |moved| Effect {
            source: Source::Flash,
            flash_writes: writes,
            moved,
        };
        match self.places[request.object.0 as usize] {
            Place::Pinned => on_flash(false),
            Place::Moved => on_flash(true),
            Place::Bypassed => Effect {
                source: Source::Base,
                flash_writes: 0,
                moved: false,
            },
            Place::Shared => match self.shares.get_mut(&request.object) {
                Some(share) => share.serve(at, request, hints),
                None => self.tier.serve(at, request, hints),
            },
            Place::Free => self.tier.serve(at, request, hints),
        }
    }

    fn trim(&mut self, at: u64, trim: &PageRequest) {
        match self.shares.get_mut(&trim.object) {
            Some(share) => share.trim(at, trim),
            None => self.tier.trim(at, trim),
        }
    }
}
