//! The directory of base: its mark, its snapshots, and the caches beside it.

use super::{BARE_DEVICE, DIRECTORY, Failing, File, FileId, Io, IoKind, State, World, strikes};
use crate::directory::{Directory, Mark};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thermocline::claim::Keep;
use thermocline::clock::Clock;

/// Base as it was at some moment: files, names, times and mark.
#[derive(Clone)]
pub struct Snapshot {
    files: BTreeMap<FileId, File>,
    directory: Directory,
}

impl World {
    /// Syncs the directory of base: all changes of names and of the mark are durable.
    ///
    /// # Errors
    /// When the power is off, and planned ones.
    pub fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        state.in_directory(IoKind::Sync, Failing::Syncs, |directory| directory.sync())
    }

    /// The text of base's mark.
    #[must_use]
    pub fn mark(&self) -> Option<String> {
        let mark = self.state().directory.mark();
        mark.map(|text| text.to_string())
    }

    /// The mark as a claim is given it.
    #[must_use]
    pub fn keep(&self) -> Box<dyn Keep> {
        Box::new(Attribute(self.clone()))
    }

    /// Gives base's mark another text, or takes it away; durable after a sync of the directory or
    /// of a base file. When, by the clock of base.
    ///
    /// # Errors
    /// As [`World::sync_directory`]; the mark is then as it was.
    pub fn set_mark(&self, text: Option<&str>) -> io::Result<i64> {
        let mark: Mark = text.map(Arc::from);
        let mut state = self.state();
        let set = |directory: &mut Directory| directory.set_mark(mark);
        state.in_directory(IoKind::Write, Failing::Writes, set)?;
        let now = state.clock.wall_ns();
        state.clock.pass(Duration::from_micros(1));
        Ok(now)
    }

    /// Each of two caches is from now on where the other one was.
    ///
    /// # Panics
    /// If one of them is a base file, or not there.
    pub fn exchange(&self, one: FileId, other: FileId) {
        let mut state = self.state();
        let cache = |file: Option<File>| {
            let file = file.filter(|file| file.identity.device == BARE_DEVICE);
            file.expect("a cache is there")
        };
        let (first, second) = (state.files.remove(&one), state.files.remove(&other));
        state.files.insert(one, cache(second));
        state.files.insert(other, cache(first));
    }

    /// Forgets all that a cache holds: it is an empty file.
    pub fn empty(&self, file: FileId) {
        let mut state = self.state();
        let now = state.clock.wall_ns();
        if let Some(file) = state.files.get_mut(&file) {
            *file = File::new(file.identity, now);
        }
    }

    /// Base as it is read now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let of_base = state.files.iter().filter(|(_, file)| file.is_of_base());
        let mut directory = state.directory.clone();
        directory.sync();
        Snapshot {
            files: of_base.map(|(id, file)| (*id, file.settled())).collect(),
            directory,
        }
    }

    /// Rolls base back to `snapshot`; caches stay as they are.
    pub fn roll_back(&self, snapshot: &Snapshot) {
        let mut state = self.state();
        state.files.retain(|_, file| !file.is_of_base());
        let files = snapshot.files.iter();
        let files = files.map(|(id, file)| (*id, file.clone()));
        state.files.extend(files);
        state.directory = snapshot.directory.clone();
    }
}

impl State {
    /// Carries out a change of the directory, telling the observer before and after.
    fn in_directory(
        &mut self,
        kind: IoKind,
        what: Failing,
        change: impl FnOnce(&mut Directory),
    ) -> io::Result<()> {
        let io = |done| Io {
            file: DIRECTORY,
            kind,
            offset: 0,
            length: 0,
            done,
        };
        self.tell(io(false));
        if self.off {
            return Err(super::Refusal::Gone.error());
        }
        if let Some(refusal) = strikes(&mut self.directory_faults, what) {
            return Err(refusal.error());
        }
        change(&mut self.directory);
        self.tell(io(true));
        Ok(())
    }
}

impl File {
    fn is_of_base(&self) -> bool {
        self.identity.device != BARE_DEVICE
    }

    fn settled(&self) -> Self {
        Self {
            image: self.image.settled(),
            old_times: self.times,
            faults: Vec::new(),
            failed_at: None,
            ..self.clone()
        }
    }
}

/// The mark of a world's base.
struct Attribute(World);

impl Keep for Attribute {
    fn text(&self, _fresh: bool) -> io::Result<Option<String>> {
        let off = self.0.state().off;
        match off {
            true => Err(super::Refusal::Gone.error()),
            false => Ok(self.0.mark()),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        self.0.set_mark(Some(text))?;
        self.0.sync_directory()
    }

    fn stamp(&self, text: &str) -> io::Result<i64> {
        self.0.set_mark(Some(text))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_directory()
    }

    fn way(&self) -> String {
        "nothing takes it away".into()
    }
}
