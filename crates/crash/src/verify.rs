//! What a fresh engine finds after a power cut, compared with what may be left.

use crate::draw::Draw;
use crate::image::SECTOR;
use crate::model::Broken;
use crate::run::{Captured, DEPTH_MAX, Recovered, Run, lock};
use crate::serve::NoStart;
use crate::setup::FLASH;
use crate::tracked::{Tracked, contents, open};
use crate::world::{DIRECTORY, FileId, World};
use std::sync::Arc;
use thermocline::{Behind, Engine};

impl Run {
    /// Recovers from `image` and compares every byte; crashes again meanwhile, and afterwards.
    pub(crate) fn verify(&mut self, image: World, depth: u32) -> Result<(), String> {
        if depth == 1 && self.draw.chance(1, 16) {
            self.verify_elsewhere(&image)?;
        }
        let during = Captured::default();
        if depth < DEPTH_MAX {
            self.watch_recovery(&image, &during);
        }
        let found = match self.recover(&image, false)? {
            Ok(found) => found,
            Err(refused) => return self.verify_refused(&image, &refused),
        };
        self.check_found(&found)
            .map_err(|what| format!("crash {depth}, {what}"))?;
        let again = std::mem::take(&mut *lock(&during));
        for image in again {
            self.tally.second_crashes += 1;
            self.verify(image, depth + 1)?;
        }
        if depth < DEPTH_MAX && self.draw.chance(1, 8) {
            self.tally.second_crashes += 1;
            let again = image.crash(self.draw.bits());
            self.verify_same(&again, &found)?;
        }
        Ok(())
    }

    /// Compares what was found of every file with what a crash may leave.
    pub(crate) fn check_found(&self, found: &[Option<Vec<u8>>]) -> Result<(), String> {
        let named = self.files.len();
        let all = self.files.iter().chain(&self.ghosts);
        for (at, (tracked, found)) in all.zip(found).enumerate() {
            let (name, identity) = (tracked.name(), tracked.identity);
            match found {
                Some(found) => {
                    let checked = tracked.model.check_crash(found);
                    checked.map_err(|Broken(what)| format!("{name} {identity:?}: {what}"))?;
                }
                None if tracked.promised && at < named => {
                    return Err(format!("{name} {identity:?} was synced and is gone"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Another crash with nothing written: what was read is read again.
    fn verify_same(&mut self, image: &World, before: &[Option<Vec<u8>>]) -> Result<(), String> {
        let found = self.recover(image, false)?;
        let found = found.map_err(|refused| format!("refused at the second time: {refused:?}"))?;
        for (at, (found, before)) in found.iter().zip(before).enumerate() {
            let (Some(found), Some(before)) = (found, before) else {
                match found.is_some() == before.is_some() {
                    true => continue,
                    false => return Err(format!("object {at} came or went")),
                }
            };
            let checked = self.setup.model(before).check_crash(found);
            checked.map_err(|Broken(what)| format!("read, then crashed: object {at}: {what}"))?;
        }
        Ok(())
    }

    /// The start from `image` was refused: rightly so? What is served after the dirty pages were
    /// given up must be base's own bytes, and no more of it may be older than was promised than
    /// those pages.
    fn verify_refused(&mut self, image: &World, refused: &NoStart) -> Result<(), String> {
        self.judge_refusal(image, refused)?;
        self.tally.refused_starts += 1;
        if *refused == NoStart::NotAwaited {
            return self.verify_given_up(image);
        }
        let NoStart::Refused { files, dirty } = refused else {
            return Err(format!("{refused:?}"));
        };
        let again = image.crash(self.draw.bits());
        let found = self.recover(&again, true)?;
        let found = found.map_err(|e| format!("gives up no dirty pages: {e:?}"))?;
        let mut older = 0;
        for (tracked, found) in self.files.iter().chain(&self.ghosts).zip(&found) {
            let Some(found) = found else { continue };
            let checked = tracked.model.broken_after_crash(found);
            let given_up = files.iter().any(|file| tracked.names.contains(&file.name));
            // A name may have been that of several, one after another.
            let has = |other: &&Tracked| files.iter().any(|file| other.names.contains(&file.name));
            let sure = given_up && self.files.iter().chain(&self.ghosts).filter(has).count() == 1;
            if sure && *found != image.contents(tracked.file) {
                return Err(format!("{}: given up, and not as base is", tracked.name()));
            }
            match checked {
                Ok(sectors) if given_up => older += sectors,
                Ok(0) => {}
                Ok(sectors) => return Err(format!("{}: {sectors} sectors", tracked.name())),
                Err(Broken(what)) => return Err(format!("given up, {}: {what}", tracked.name())),
            }
        }
        let page = u64::from(self.setup.page_size);
        match older <= dirty * (page / SECTOR as u64) {
            true => Ok(()),
            false => Err(format!("{older} sectors are old, {dirty} pages were dirty")),
        }
    }

    /// A refusal is right only where flash had failed, and each file it names was changed or
    /// removed after that. (Until the lease of the last commit has run out base is not written
    /// then.)
    pub(crate) fn judge_refusal(&self, image: &World, refused: &NoStart) -> Result<(), String> {
        let wrong = || Err(format!("{refused:?}"));
        let Some(failed) = image.failed_at(FLASH) else {
            return wrong();
        };
        let files = match refused {
            NoStart::Refused { files, .. } => files,
            // Base has everything; flash did not take that in.
            NoStart::NotAwaited => return Ok(()),
            _ => return wrong(),
        };
        let late = |file: FileId| {
            let stamp = image.stamp(file);
            stamp.is_some_and(|stamp| stamp.mtime_ns.max(stamp.ctime_ns) >= failed)
        };
        for named in files {
            let gone = named.why == Behind::Gone;
            let mut tracked = self.files.iter().chain(&self.ghosts);
            let changed =
                tracked.any(|tracked| tracked.names.contains(&named.name) && late(tracked.file));
            let removed = self.removed.iter().any(|(name, file, at)| {
                let known = *name == named.name;
                known && if gone { *at >= failed } else { late(*file) }
            });
            if !(removed || changed && !gone) {
                return wrong();
            }
        }
        Ok(())
    }

    /// Takes images of some of the boundaries of a recovery.
    fn watch_recovery(&mut self, world: &World, images: &Captured) {
        let mut draw = Draw::new(self.draw.bits());
        let images = Arc::clone(images);
        world.observe(Some(Box::new(move |state, io| {
            // Base's mark is written again and again.
            let one_in = if io.file == DIRECTORY { 36 } else { 9 };
            if !io.done && draw.chance(1, one_in) {
                lock(&images).push(state.crash(draw.bits()));
            }
        })));
    }

    /// What a fresh engine on `world` reads of every tracked object, or why it does not start.
    pub(crate) fn recover(&mut self, world: &World, discard: bool) -> Result<Recovered, String> {
        self.tally.recoveries += 1;
        let engine = match self.setup.start(world, discard) {
            Ok(engine) => engine,
            Err(NoStart::Failed(what)) => return Err(what),
            Err(refused) => {
                world.power_off();
                return Ok(Err(refused));
            }
        };
        self.load(&engine);
        let mut all = Vec::new();
        for tracked in self.files.iter().chain(&self.ghosts) {
            if !world.has_name(tracked.file) {
                all.push(None);
                continue;
            }
            let id = open(&engine, world, tracked)?;
            let found = contents(&engine, world, tracked.file, &id)?;
            self.tally.bytes += found.len() as u64;
            all.push(Some(found));
        }
        world.power_off();
        Ok(Ok(all))
    }

    /// Has the engine read its map to the end, if it serves without.
    pub(crate) fn load(&mut self, engine: &Engine) {
        if engine.loading().is_some() {
            self.tally.loads += 1;
            while engine.loading().is_some() && engine.step() {}
        }
    }
}
