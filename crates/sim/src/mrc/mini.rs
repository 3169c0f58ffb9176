//! A miniature simulation: the tier of one size over the sample.

use super::{Misses, Rate};
use crate::error::SimError;
use crate::request::{Kind, PageRequest};
use crate::tier::{PolicyTier, Tier};
use thermocline_core::HintSet;
use thermocline_core::counters::Source;
use thermocline_core::policy::{self, PolicyOptions};

/// The fewest requests of a learning window.
const WINDOW_MIN: u64 = 100;

/// See the module text.
pub(super) struct Mini {
    tier: PolicyTier,
    slots: u32,
    misses: Misses,
}

impl Mini {
    /// The miniature of a tier of `size` pages at `rate`.
    pub(super) fn new(
        name: &str,
        size: u32,
        rate: Rate,
        options: &PolicyOptions,
    ) -> Result<Self, SimError> {
        let slots = rate.slots(size);
        let unknown = || SimError::UnknownPolicy(name.to_string());
        let (plain, own) = policy::resolve(name, options).ok_or_else(unknown)?;
        let options = scaled(&own, size, slots, rate);
        let built = policy::build(plain, &options).ok_or_else(unknown)?;
        Ok(Self {
            tier: PolicyTier::new(built, slots, 0),
            slots,
            misses: Misses::default(),
        })
    }

    /// Serves a request of the sample; `measured` unless it only warms up.
    pub(super) fn request(&mut self, request: &PageRequest, hints: &HintSet, measured: bool) {
        if request.kind() == Kind::Trim {
            self.tier.trim(0, request);
            return;
        }
        let effect = self.tier.serve(0, request, hints);
        if measured {
            let miss = request.kind() == Kind::Read && effect.source == Source::Base;
            self.misses.reads += u64::from(miss);
            self.misses.flash_writes += u64::from(effect.flash_writes);
        }
    }

    pub(super) fn slots(&self) -> u64 {
        u64::from(self.slots)
    }

    pub(super) fn misses(&self) -> Misses {
        self.misses
    }
}

/// Intervals that are counted in requests, at the pace of the sample.
fn scaled(options: &PolicyOptions, size: u32, slots: u32, rate: Rate) -> PolicyOptions {
    let mut options = options.clone();
    options.capacity = slots;
    if rate != Rate::ALL {
        let pace = |requests: u64| (requests as f64 * rate.share()).round() as u64;
        options.clic.window = pace(options.clic.window_of(size)).max(WINDOW_MIN);
        if options.tac.ageing_requests > 0 {
            options.tac.ageing_requests = pace(options.tac.ageing_requests).max(1);
        }
        for given in [
            &mut options.cac.rate_requests,
            &mut options.cac.fade_requests,
        ] {
            if *given > 0 && *given < u64::MAX {
                *given = pace(*given).max(1);
            }
        }
    }
    options
}
