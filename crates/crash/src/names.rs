//! What a run does to names and attributes of base files, as a mount does it; and which files are
//! there after a power failure.

use crate::model::Broken;
use crate::run::Run;
use crate::tracked::{BASE_DEVICE, Tracked, contents, identity, open};
use std::sync::Arc;
use thermocline::clock::Clock;
use thermocline::{Grave, Identity};

impl Run {
    /// A change of metadata that the engine is told of.
    fn change(&self, identity: &Identity, change: impl FnOnce()) {
        let stamp = || self.stamp_of(identity);
        let changed = self.engine.change_metadata(identity, stamp, || {
            change();
            Ok(())
        });
        debug_assert!(changed.is_ok(), "the change says so");
    }

    fn stamp_of(&self, identity: &Identity) -> Option<thermocline::Stamp> {
        let mut all = self.files.iter().chain(&self.ghosts);
        let found = all.find(|tracked| tracked.identity == *identity)?;
        self.world.stamp(found.file)
    }

    /// What takes its last name from the file `victim`, as a mount does it.
    fn losing_name(&self, victim: &Identity, change: impl FnOnce()) {
        self.engine.before_unlink(victim);
        self.change(victim, change);
        let world = self.world.clone();
        let grave = Grave {
            kept: None,
            directory: (BASE_DEVICE, 1),
            sync: Arc::new(move || world.sync_directory()),
        };
        self.engine.unlinked(victim, grave);
    }

    fn new_name(&mut self, at: usize) -> String {
        self.renames += 1;
        self.setup.name_of(at, self.renames)
    }

    /// A new file, not synced, in place `at`; what was there lives on without a name.
    fn replace_with_new(&mut self, at: usize) -> Tracked {
        let name = self.new_name(at);
        let identity = identity(at, self.renames + 1);
        let file = self.world.make(&name, identity);
        let new = Tracked::holding(file, identity, name, self.setup.model(&[]));
        std::mem::replace(&mut self.files[at], new)
    }

    fn note_removed(&mut self, old: Tracked) {
        let now = self.world.clock().wall_ns();
        let names = old.names.iter();
        let removed = names.map(|name| (name.clone(), old.file, now));
        self.removed.extend(removed);
        self.ghosts.push(old);
    }

    /// The file loses its name; whoever has it open goes on using it. Another takes its place.
    pub(crate) fn unlink(&mut self, at: usize) -> Result<(), String> {
        let (name, identity) = (self.files[at].name().to_string(), self.files[at].identity);
        let world = self.world.clone();
        self.losing_name(&identity, || world.unlink(&name));
        let old = self.replace_with_new(at);
        self.note_removed(old);
        self.verify_captured()
    }

    /// The file in place `at` gets the name of that in place `over`, which loses it.
    pub(crate) fn replace(&mut self, at: usize, over: usize) -> Result<(), String> {
        if at == over {
            return Ok(());
        }
        let [from, to] = [at, over].map(|at| self.files[at].name().to_string());
        let [mover, victim] = [at, over].map(|at| self.files[at].identity);
        let world = self.world.clone();
        self.change(&mover, || {
            self.losing_name(&victim, || world.rename(&from, &to));
        });
        if let Some(object) = &self.files[at].object {
            self.engine.rename(object, &to);
        }
        self.files[at].names.push(to);
        let mover = self.replace_with_new(at);
        let old = std::mem::replace(&mut self.files[over], mover);
        self.note_removed(old);
        self.verify_captured()
    }

    /// Another name in one step, or by a link and an unlink.
    pub(crate) fn rename(&mut self, at: usize, linked: bool) {
        let name = self.new_name(at);
        let (old, identity) = (self.files[at].name().to_string(), self.files[at].identity);
        let (world, file) = (self.world.clone(), self.files[at].file);
        match linked {
            true => {
                self.change(&identity, || world.link(file, &name));
                self.change(&identity, || world.unlink(&old));
            }
            false => self.change(&identity, || world.rename(&old, &name)),
        }
        if let Some(object) = &self.files[at].object {
            self.engine.rename(object, &name);
        }
        self.files[at].names.push(name);
    }

    /// Attributes change, whether the file is open or not.
    pub(crate) fn attributes(&mut self, at: usize) {
        let (world, file) = (self.world.clone(), self.files[at].file);
        let identity = self.files[at].identity;
        self.change(&identity, || world.change_attributes(file));
    }

    /// The last user of a file without a name closes it; one that a power failure gave its name
    /// back loses it again.
    pub(crate) fn bury(&mut self) -> Result<(), String> {
        if let Some(ghost) = self.ghosts.iter_mut().find(|ghost| ghost.object.is_some()) {
            if let Some(object) = ghost.object.take() {
                self.engine.close_object(&object);
            }
        } else if let Some(at) = (0..self.ghosts.len()).find(|at| self.is_back(*at)) {
            let (world, identity) = (self.world.clone(), self.ghosts[at].identity);
            let name = self.ghosts[at].name().to_string();
            self.losing_name(&identity, || world.unlink(&name));
        }
        self.verify_captured()?;
        let world = &self.world;
        self.ghosts
            .retain(|ghost| ghost.object.is_some() || world.may_come_back(ghost.file));
        Ok(())
    }

    fn is_back(&self, ghost: usize) -> bool {
        self.world.has_name(self.ghosts[ghost].file)
    }

    /// After a power failure, or a stop: files are where base has them. A file that was made and
    /// not synced may be gone, one that lost its name may be back.
    pub(crate) fn find_files(&mut self) -> Result<(), String> {
        let world = self.world.clone();
        self.ghosts.retain(|ghost| world.has_name(ghost.file));
        let mut lost = Vec::new();
        for at in 0..self.files.len() {
            if !world.has_name(self.files[at].file) {
                self.check_gone(at)?;
                match self.ghosts.pop() {
                    Some(back) => self.files[at] = back,
                    None => lost.push(at),
                }
            }
        }
        let mut extra = Vec::new();
        for tracked in self.files.iter_mut().chain(&mut self.ghosts) {
            tracked.object = None;
            let mut names = world.names_of(tracked.file);
            if let Some(name) = names.pop().filter(|name| name != tracked.name()) {
                tracked.names.push(name);
            }
            // A start begins with a sync of base.
            tracked.promised = true;
            extra.extend(names.into_iter().map(|name| (tracked.identity, name)));
        }
        // A link is there whose old name had not gone yet.
        for (identity, name) in extra {
            self.change(&identity, || world.unlink(&name));
        }
        lost.into_iter()
            .for_each(|at| drop(self.replace_with_new(at)));
        Ok(())
    }

    fn check_gone(&self, at: usize) -> Result<(), String> {
        let gone = &self.files[at];
        match gone.promised {
            true => Err(format!("{} was synced and is gone", gone.name())),
            false => Ok(()),
        }
    }

    /// Compares what a new engine has of files that are back without a place.
    pub(crate) fn compare_ghosts(&mut self, whole: bool) -> Result<(), String> {
        for ghost in &mut self.ghosts {
            let object = open(&self.engine, &self.world, ghost)?;
            let found = contents(&self.engine, &self.world, ghost.file, &object)?;
            self.engine.close_object(&object);
            let checked = ghost.model.check_crash(&found);
            if let (true, Err(Broken(what))) = (whole, checked) {
                return Err(format!("came back, {}: {what}", ghost.name()));
            }
            ghost.model = self.setup.model(&found);
        }
        Ok(())
    }
}
