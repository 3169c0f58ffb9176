//! The list of what is hot on flash, which a mount keeps beside base, and warming from such a list.
//!
//! Two threads, each of which may be missing: one writes the list every so often, one reads the
//! pages of a list: of another mount's when the mount begins, and of its own after another cache
//! took the place of the one there was, or the tier came on again. The list is read before anything
//! writes one.
//!
//! States of warming: *none* → *reading* → *done*, *full* (no slot is free), *off* (the tier is),
//! *ended* (the mount is) or *failed* (there is no list to follow); from each of these → *reading*
//! when flash was emptied. None of them keeps a mount from starting, or from serving.
//!
//! Rules
//! 1. A list is written only while base is ours, the tier is on and its map was read.
//! 2. A list that has more pages is not replaced by one of a tier that still has room, in the first
//!    hour of a mount or after flash was emptied: it may be what is left of a cache that was lost.
//! 3. One list is followed at a time: who begins has the one before end.

use crate::config::WarmSection;
use crate::failure::Failure;
use crate::serve::claiming::Claiming;
use crate::serve::log;
use crate::show::report::WarmFacts;
use crate::units::show_count;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thermocline::claim::beside;
use thermocline::{Engine, HotList, WarmEnd, WarmPace, Warmed};
use thermocline_mount::Fs;

/// Rule 2 holds for so long.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// How often it is looked whether the map was read.
const LOOK: Duration = Duration::from_millis(100);
/// Errors of base that are told one by one.
const TOLD_MAX: u64 = 5;

/// The list and the warming of one mount.
pub(crate) struct Warming {
    engine: Arc<Engine>,
    claiming: Arc<Claiming>,
    settings: WarmSection,
    /// Where the list is kept, if it is.
    list: Option<PathBuf>,
    /// Whose pages are read.
    from: Option<PathBuf>,
    /// Opens its files; set once it is served. Weak: its control files are made of this.
    files: OnceLock<Weak<Fs>>,
    state: Mutex<State>,
    /// Held while a list is written.
    writing: Mutex<()>,
    /// The mount ends.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    stop: bool,
    facts: WarmFacts,
    threads: Vec<JoinHandle<()>>,
    /// How often a warming began; the last one may go on (rule 3).
    turns: u64,
    /// A warming has not ended.
    reading: bool,
    /// Flash is about to be emptied, or was.
    emptied: Option<Instant>,
    /// The last list could not be written; said once.
    unkept: bool,
}

/// The file that a setting means: `auto` is beside base, a word that means none is none.
pub(crate) fn named(setting: &Path, none: &str, base: &Path) -> Result<Option<PathBuf>, Failure> {
    match setting.to_str() {
        Some(word) if word == none => Ok(None),
        Some("auto") => Ok(Some(beside(base, "hot"))),
        _ => {
            let path = std::path::absolute(setting);
            Ok(Some(path.map_err(|e| Failure::io("find", setting, &e))?))
        }
    }
}

impl Warming {
    /// Those of the mount of `base`; nothing is begun.
    pub(crate) fn new(
        engine: Arc<Engine>,
        claiming: Arc<Claiming>,
        settings: WarmSection,
        base: &Path,
    ) -> Result<Arc<Self>, Failure> {
        let list = named(&settings.list, "off", base)?;
        let from = named(&settings.from, "", base)?;
        let has_tier = engine.stats().tier.is_some();
        let list = list.filter(|_| has_tier);
        let from = from.filter(|_| has_tier);
        let facts = WarmFacts {
            list: list.clone().unwrap_or_default(),
            from: from.clone().unwrap_or_default(),
            state: if from.is_some() { "reading" } else { "none" }.into(),
            ..WarmFacts::default()
        };
        Ok(Arc::new(Self {
            engine,
            claiming,
            settings,
            list,
            from,
            files: OnceLock::new(),
            writing: Mutex::default(),
            state: Mutex::new(State {
                facts,
                ..State::default()
            }),
            ended: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the report.
    pub(crate) fn facts(&self) -> WarmFacts {
        self.state().facts.clone()
    }

    /// The mount serves: what is to be done in the background begins.
    pub(crate) fn served(self: &Arc<Self>, files: &Arc<Fs>) {
        self.files.get_or_init(|| Arc::downgrade(files));
        // Before a list is written to the same place.
        if let Some(from) = &self.from {
            self.follow(HotList::read(from));
        }
        if self.list.is_some() {
            let warming = Arc::clone(self);
            self.begin("tc-hot", move || warming.keep());
        }
    }

    /// Flash is about to be emptied: what is hot on it now is listed, as far as the rules allow it,
    /// and rule 2 keeps that list.
    pub(crate) fn emptying(&self) {
        // Where it may not be written the last one counts.
        let _not_now = self.write();
        self.state().emptied = Some(Instant::now());
    }

    /// Flash was emptied, and serves: what the list says is hot comes back.
    pub(crate) fn emptied(self: &Arc<Self>) {
        let Some(list) = self.list.as_ref().filter(|list| list.exists()) else {
            return;
        };
        self.state().facts.from.clone_from(list);
        self.follow(HotList::read(list));
    }

    /// Begins to follow a list, when the one before has ended (rule 3).
    fn follow(self: &Arc<Self>, list: io::Result<HotList>) {
        let Some(files) = self.files.get().cloned() else {
            return;
        };
        let mut state = self.state();
        state.turns += 1;
        state.facts.state = "reading".into();
        let turn = state.turns;
        drop(state);
        let warming = Arc::clone(self);
        self.begin("tc-warm", move || {
            if !warming.takes_turn(turn) {
                return;
            }
            let ended = list.map_err(|error| error.to_string());
            let ended = ended.and_then(|list| warming.warm(&list, &files, turn));
            warming.note_end(&ended, turn);
        });
    }

    /// Waits until the warming before has ended; false when another one came after, or the mount
    /// ends.
    fn takes_turn(&self, turn: u64) -> bool {
        while self.state().reading {
            if !self.rest(LOOK) {
                return false;
            }
        }
        let mut state = self.state();
        if state.stop || state.reading || state.turns != turn {
            return false;
        }
        state.reading = true;
        let facts = &mut state.facts;
        (facts.listed, facts.seen, facts.came) = (0, 0, 0);
        (facts.requests, facts.bytes, facts.failed) = (0, 0, 0);
        true
    }

    fn begin(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        match std::thread::Builder::new().name(name.into()).spawn(work) {
            Ok(thread) => self.state().threads.push(thread),
            Err(error) => log::line(&format!("{name} does not run: {error}")),
        }
    }

    /// Rests; false when the mount ends.
    fn rest(&self, length: Duration) -> bool {
        let state = self.state();
        let ended = self.ended.wait_timeout_while(state, length, |s| !s.stop);
        !ended.unwrap_or_else(PoisonError::into_inner).0.stop
    }

    /// Brings the pages of `list` to flash.
    fn warm(&self, list: &HotList, files: &Weak<Fs>, turn: u64) -> Result<&'static str, String> {
        let page_size = self.engine.stats().page_size;
        if list.page_size() != page_size {
            let found = list.page_size();
            return Err(format!("its pages have {found} bytes, not {page_size}"));
        }
        self.state().facts.listed = list.pages();
        log::line(&format!(
            "warming from a list of {} pages",
            show_count(list.pages())
        ));
        while self.engine.loading().is_some() {
            if !self.rest(LOOK) {
                return Ok("ended");
            }
        }
        let pace = WarmPace {
            share: self.settings.share,
            requests_per_s: self.settings.requests_per_s,
        };
        let (mut tally, mut failed) = (Warmed::default(), 0);
        for part in list.parts() {
            let Some(files) = files.upgrade() else {
                return Ok("ended");
            };
            // A file that went is no longer hot.
            let object = match files.open_named(part.name) {
                Ok(Some(object)) => object,
                Ok(None) => continue,
                Err(error) => {
                    self.tell_failed(part.name, &error, &mut failed);
                    continue;
                }
            };
            let go_on = |tally: &Warmed| self.note(tally, turn);
            let ended = (self.engine).warm(&object, part.ranges(), &pace, &mut tally, go_on);
            self.engine.close_aside(&object);
            match ended {
                Ok(WarmEnd::Done) => {}
                Ok(WarmEnd::Full) => return Ok("full"),
                Ok(WarmEnd::Off) => return Ok("off"),
                Ok(WarmEnd::Stopped) => return Ok("ended"),
                Err(error) => self.tell_failed(part.name, &error, &mut failed),
            }
            if !self.note(&tally, turn) {
                return Ok("ended");
            }
        }
        Ok("done")
    }

    fn tell_failed(&self, name: &str, error: &io::Error, failed: &mut u64) {
        *failed += 1;
        if *failed <= TOLD_MAX {
            log::line(&format!("warming: {name}: {error}"));
        }
        self.state().facts.failed = *failed;
    }

    fn note(&self, tally: &Warmed, turn: u64) -> bool {
        let mut state = self.state();
        state.facts.seen = tally.seen;
        state.facts.came = tally.came;
        state.facts.requests = tally.requests;
        state.facts.bytes = tally.bytes;
        !state.stop && state.turns == turn
    }

    fn note_end(&self, ended: &Result<&'static str, String>, turn: u64) {
        let mut state = self.state();
        state.reading = false;
        if state.turns == turn {
            state.facts.state = match ended {
                Ok(word) => (*word).into(),
                Err(why) => format!("failed: {why}"),
            };
        }
        let facts = state.facts.clone();
        drop(state);
        let came = show_count(facts.came);
        log::line(&match ended {
            Ok(word) => format!(
                "warming {word}: {came} of {} pages came, by {} requests",
                show_count(facts.listed),
                show_count(facts.requests)
            ),
            Err(why) => format!("not warmed from {}: {why}", facts.from.display()),
        });
    }

    /// Writes the list, time after time.
    fn keep(&self) {
        let every = Duration::from_secs_f64(self.settings.every_s);
        while self.rest(every) {
            // It is said at the end.
            let _not_now = self.write();
        }
    }

    /// Writes the list now, if rule 2 allows it; why rule 1 does not.
    fn write(&self) -> Result<(), String> {
        let Some(path) = &self.list else {
            return Ok(());
        };
        let writing = self.writing.lock();
        let _one = writing.unwrap_or_else(PoisonError::into_inner);
        self.claiming
            .still_ours()
            .map_err(|failure| failure.message)?;
        self.engine
            .tier_state()
            .map_err(|why| format!("the tier is off: {why}"))?;
        if self.engine.loading().is_some() {
            return Err("the map was not read".into());
        }
        let started = Instant::now();
        let list = self.engine.hot_list();
        let stats = self.engine.stats();
        let room = stats.tier.is_some_and(|tier| tier.resident < tier.slots);
        let emptied = self.state().emptied.map(|at| at.elapsed());
        let young =
            stats.uptime_s < KEPT_FOR.as_secs_f64() || emptied.is_some_and(|e| e < KEPT_FOR);
        if room && young && HotList::read(path).is_ok_and(|old| old.pages() > list.pages()) {
            return Ok(());
        }
        let saved = list.save(path);
        let mut state = self.state();
        if let Err(error) = &saved
            && !state.unkept
        {
            let path = path.display();
            log::line(&format!(
                "no list of hot pages: cannot write {path}: {error}"
            ));
        }
        state.unkept = saved.is_err();
        if saved.is_ok() {
            state.facts.kept_pages = list.pages();
            state.facts.kept_bytes = list.bytes().len() as u64;
            state.facts.kept_ms = started.elapsed().as_millis() as u64;
            state.facts.kept += 1;
        }
        Ok(())
    }

    /// At the end of a mount: ends what runs and waits for that; then the last list is written.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.stop = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.ended.notify_all();
        for thread in threads {
            let _panicked = thread.join();
        }
        if let Err(why) = self.write() {
            log::line(&format!("no list of hot pages at the end: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_beside_base() {
        let directory = tempfile::tempdir().expect("directory");
        let base = directory.path().join("pgdata");
        std::fs::create_dir(&base).expect("base");
        let path = |setting: &str, none| named(Path::new(setting), none, &base).expect("a path");
        let beside = directory.path().join(".pgdata.thermocline-hot");
        assert_eq!(path("auto", "off"), Some(beside));
        assert_eq!(path("off", "off"), None);
        assert_eq!(path("", ""), None);
        assert_eq!(path("/a/list", ""), Some(PathBuf::from("/a/list")));
        let root = named(Path::new("auto"), "", Path::new("/proc")).expect("a path");
        assert_eq!(root, Some(PathBuf::from("/proc/.thermocline-hot")));
    }
}
