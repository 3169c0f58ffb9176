//! Base between two openings of a cache: served with another one, or with none; written by a
//! program that asks nobody; rolled back to a snapshot; without its mark.
//!
//! # What is promised
//! 1. Base is served with another cache, or with none, only if it has everything. Then reads give
//!    what they would have given before.
//! 2. A cache that comes back shows nothing older than base.
//! 3. After base went back to a snapshot of an earlier opening, exactly that is served, or the
//!    start is refused because base does not wait for the cache's dirty pages. A snapshot of the
//!    *same* opening is not noticed: that is documented, and not tried.
//! 4. A cache that was given up by its id is not written to base later.

use crate::model::{Broken, pattern};
use crate::run::Run;
use crate::serve::NoStart;
use crate::setup::{FLASH, Mode, SPARE};
use crate::step::With;
use crate::tracked::Tracked;
use crate::world::{Snapshot, World};
use std::time::Duration;
use thermocline::clock::Clock;
use thermocline::device::Device;
use thermocline::{Engine, Error};

/// Who had base, and how it was.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// Counts openings.
    opening: u64,
    /// The last opening of the cache that is in use, and of the other one.
    last: [u64; 2],
    snapshot: Option<Saved>,
    /// What the other cache holds may have been given up.
    given_up: bool,
    /// Base had lost its mark when it was opened.
    is_unmarked: bool,
}

/// A snapshot of base, and the files it has.
struct Saved {
    opening: u64,
    base: Snapshot,
    files: Vec<Tracked>,
}

/// An error in words.
struct Why(String);

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl Elsewhere {
    /// Base is served by a new opening, of the cache in use unless it is `bare`.
    pub(crate) fn note_opening(&mut self, bare: bool) {
        self.opening += 1;
        if !bare {
            self.last[0] = self.opening;
        }
    }
}

impl Run {
    /// Write-back or write-through from now on, as a mount does it: base is marked before a write
    /// may stay off it.
    pub(crate) fn write_back(&mut self, back: bool) -> Result<(), String> {
        if back && let Err(refused) = self.claim.follow(&self.engine, true) {
            return self.excuse(Err(std::io::Error::other(refused.to_string())));
        }
        self.engine.set_write_back(back);
        self.settle()
    }

    /// Base is marked as whole once nothing is left to write back, as a mount does it.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        match self.claim.settle(&self.engine) {
            Ok(settled) => {
                self.tally.settled += u64::from(settled);
                Ok(())
            }
            Err(refused) => self.excuse(Err(std::io::Error::other(refused.to_string()))),
        }
    }

    /// Another opening of the cache while it is served, as a mount begins one now and then.
    pub(crate) fn renew_opening(&mut self) -> Result<(), String> {
        let before = self.engine.cache_stamp().map(|stamp| stamp.epoch);
        let renewed = self.claim.renew(&self.engine);
        let stamp = self.engine.cache_stamp();
        // Unless the mark and the cache both know of it, what was before need not be noticed.
        if stamp.is_some_and(|now| Some(now.epoch) != before && now.marked == now.epoch) {
            self.tally.renewed += 1;
            self.elsewhere.note_opening(false);
        }
        self.excuse(renewed.map_err(|refused| std::io::Error::other(refused.to_string())))
    }

    /// Uses flash again, as a mount does it.
    pub(crate) fn tier_on(&mut self) -> Result<(), String> {
        if self.engine.tier_state().is_ok() {
            return Ok(());
        }
        let follow = |dirty| {
            let followed = self.claim.follow(&self.engine, dirty);
            followed.map_err(|refused| Why(refused.to_string()))
        };
        let put_back = |engine: &Engine| Ok(engine.tier_on()?);
        let on = self.engine.take_turns(|_| true, follow, put_back);
        if self.engine.tier_state().is_ok() {
            self.world.forgive(FLASH);
            self.elsewhere.note_opening(false);
        }
        self.excuse(on.map_err(|Why(why)| std::io::Error::other(why)))
    }

    /// Base is served with something else, if its mark lets that be.
    pub(crate) fn serve_elsewhere(&mut self, with: With, clean: bool) -> Result<(), String> {
        let clean = self.leave(clean)?;
        self.verify_captured()?;
        let whole = clean && self.engine.dirty_pages() == 0;
        if self.is_admitted(with, whole)? {
            self.change_to(with);
        }
        self.go_on(clean)
    }

    /// Whether base may be served `with` that now. A refusal is right only while base may lack
    /// something.
    fn is_admitted(&mut self, with: With, whole: bool) -> Result<bool, String> {
        let world = self.world.crash(self.draw.bits());
        let setup = self.setup.clone();
        self.change_in(&world, with);
        let started = self.setup.start(&world, false);
        self.setup = setup;
        self.tally.elsewhere += 1;
        let given_up = self.elsewhere.given_up && with != With::Nothing;
        match started {
            Ok(_) => Ok(true),
            Err(_) if with == With::This && !self.setup.bare => Ok(true),
            Err(NoStart::OtherCache(_)) if !whole && self.setup.mode == Mode::Back => {
                self.tally.refused_elsewhere += 1;
                Ok(false)
            }
            Err(NoStart::NotAwaited) if given_up => Ok(false),
            // What a failed device holds was written to base without it.
            Err(NoStart::NotAwaited) if world.failed_at(FLASH).is_some() => Ok(false),
            Err(refused) => Err(format!("not served {with:?}: {refused:?}")),
        }
    }

    /// From now on the world's base is served `with` that.
    fn change_to(&mut self, with: With) {
        let world = self.world.clone();
        self.change_in(&world, with);
        if with == With::Other {
            self.elsewhere.last.swap(0, 1);
        }
    }

    fn change_in(&mut self, world: &World, with: With) {
        self.setup.bare = with == With::Nothing;
        if with == With::Other {
            world.exchange(FLASH, SPARE);
        }
    }

    /// Recovers from an image with another cache, or with none.
    pub(crate) fn verify_elsewhere(&mut self, image: &World) -> Result<(), String> {
        if self.elsewhere.is_unmarked {
            return Ok(());
        }
        let with = self.draw.one(&[With::Other, With::Other, With::Nothing]);
        let other = image.crash(self.draw.bits());
        let setup = self.setup.clone();
        self.change_in(&other, with);
        let found = self.recover(&other, false);
        self.setup = setup;
        self.tally.elsewhere += 1;
        let at = |what| format!("{with:?}: {what}");
        match found.map_err(at)? {
            Ok(found) => self.check_found(&found).map_err(at),
            Err(NoStart::OtherCache(_)) if self.setup.mode == Mode::Back => {
                self.tally.refused_elsewhere += 1;
                Ok(())
            }
            Err(NoStart::NotAwaited) if self.elsewhere.given_up => Ok(()),
            Err(NoStart::NotAwaited) if image.failed_at(SPARE).is_some() => Ok(()),
            Err(refused) => Err(at(format!("{refused:?}"))),
        }
    }

    /// Base does not wait for the pages of a cache that had failed: then base has everything.
    pub(crate) fn verify_given_up(&mut self, image: &World) -> Result<(), String> {
        let again = image.crash(self.draw.bits());
        again.empty(FLASH);
        let found = self.recover(&again, false)?;
        let found = found.map_err(|e| format!("base is not whole: {e:?}"))?;
        self.check_found(&found)
            .map_err(|what| format!("without what it holds: {what}"))
    }

    /// A program that asks nobody writes a page of a file after a clean stop.
    pub(crate) fn behind(&mut self, at: usize, page: u64, ms: u32) -> Result<(), String> {
        let clean = self.leave(true)?;
        self.verify_captured()?;
        if clean && self.engine.dirty_pages() == 0 {
            self.world.observe(None);
            let time = Duration::from_millis(u64::from(ms));
            self.world.clock().pass(time);
            self.must_be_whole(at)?;
            self.writes += 1;
            let size = u64::from(self.setup.page_size);
            let file = self.world.device(self.files[at].file);
            let data = pattern(self.writes, page * size, size as usize);
            let written = file.write_at(&data, page * size);
            let synced = written.and_then(|()| file.sync(false));
            synced.map_err(|error| format!("base itself: {error}"))?;
            self.as_base_is(at);
        }
        self.go_on(clean)
    }

    /// Base itself has the newest bytes of a file.
    fn must_be_whole(&mut self, at: usize) -> Result<(), String> {
        let tracked = &mut self.files[at];
        let found = self.world.contents(tracked.file);
        let checked = tracked.model.check_read(0, found.len(), &found);
        checked.map_err(|Broken(what)| format!("base is not whole, object {at}: {what}"))
    }

    /// What base holds of a file now is what is to be served.
    fn as_base_is(&mut self, at: usize) {
        let bytes = self.world.contents(self.files[at].file);
        self.files[at].model = self.setup.model(&bytes);
    }

    /// Base is kept as it is now.
    pub(crate) fn take_snapshot(&mut self) {
        let files = self.files.iter();
        let files = files.map(|tracked| {
            let mut saved = Tracked::holding(
                tracked.file,
                tracked.identity,
                tracked.name().into(),
                tracked.model.clone(),
            );
            saved.promised = true;
            saved
        });
        self.elsewhere.snapshot = Some(Saved {
            opening: self.elsewhere.opening,
            base: self.world.snapshot(),
            files: files.collect(),
        });
    }

    /// Base goes back to the snapshot, if there is one and no cache is of the same opening.
    pub(crate) fn roll_back(&mut self, clean: bool) -> Result<(), String> {
        if self.elsewhere.snapshot.is_none() {
            self.take_snapshot();
        }
        let clean = self.leave(clean)?;
        self.verify_captured()?;
        let opening = self.elsewhere.opening;
        let last = self.elsewhere.last;
        let fits = |saved: &mut Saved| saved.opening < opening && !last.contains(&saved.opening);
        let Some(saved) = self.elsewhere.snapshot.take_if(fits) else {
            return self.go_on(clean);
        };
        self.tally.rolled_back += 1;
        self.world.observe(None);
        let whole = clean && self.engine.dirty_pages() == 0;
        self.world.roll_back(&saved.base);
        self.files = saved.files;
        self.ghosts.clear();
        self.removed.clear();
        (0..self.files.len()).for_each(|at| self.as_base_is(at));
        self.make_way(whole)?;
        let gone_on = self.go_on(true);
        self.setup.leave.abandon = None;
        gone_on
    }

    /// What stands in the way of serving a base that went back is given up, as a person would do
    /// it.
    fn make_way(&mut self, whole: bool) -> Result<(), String> {
        // A new cache, and after that what base waits for.
        for _ in 0..3 {
            let world = self.world.crash(self.draw.bits());
            match self.setup.start(&world, false) {
                Ok(_) => return Ok(()),
                Err(NoStart::NotAwaited) if !whole || self.elsewhere.given_up => {
                    self.world.empty(FLASH);
                }
                Err(NoStart::NotAwaited) if world.failed_at(FLASH).is_some() => {
                    self.world.empty(FLASH);
                }
                Err(NoStart::OtherCache(id)) if self.setup.mode == Mode::Back => {
                    self.setup.leave.abandon = Some(id);
                    self.elsewhere.given_up = true;
                }
                Err(refused) => return Err(format!("base went back: {refused:?}")),
            }
            self.tally.refused_starts += 1;
        }
        Err("base went back, and is never served again".into())
    }

    /// Base loses its mark, as by a copy without attributes.
    pub(crate) fn lose_mark(&mut self, clean: bool) -> Result<(), String> {
        let clean = self.leave(clean)?;
        self.verify_captured()?;
        if self.setup.bare {
            // Another cache would not know whether it is the one with the newest bytes.
            return self.go_on(clean);
        }
        self.world.observe(None);
        let lost = self.world.set_mark(None);
        let lost = lost.and_then(|_| self.world.sync_directory());
        lost.map_err(|error| format!("base itself: {error}"))?;
        self.watch();
        self.elsewhere.is_unmarked = true;
        let gone_on = self.go_on(clean);
        self.elsewhere.is_unmarked = false;
        gone_on
    }
}
