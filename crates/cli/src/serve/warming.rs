//! The list of what is hot on flash, which a mount keeps beside base, and warming from such a list.
//!
//! Two threads, each of which may be missing: one writes the list every so often, one reads the
//! pages of another mount's list, once. The list is read before anything writes one.
//!
//! States of warming: *none* → *reading* → *done*, *full* (no slot is free), *off* (the tier is),
//! *ended* (the mount is) or *failed* (there is no list to follow). None of them keeps a mount from
//! starting, or from serving.
//!
//! Rules
//! 1. A list is written only while base is ours, the tier is on and its map was read.
//! 2. A list that has more pages is not replaced by one of a tier that still has room, in the first
//!    hour of a mount: it may be what is left of a cache that was lost.

use crate::config::WarmSection;
use crate::failure::Failure;
use crate::serve::claiming::Claiming;
use crate::serve::log;
use crate::show::report::WarmFacts;
use crate::units::show_count;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
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
    state: Mutex<State>,
    /// The mount ends.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    stop: bool,
    facts: WarmFacts,
    threads: Vec<JoinHandle<()>>,
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
        // Before a list is written to the same place.
        let from = self.from.as_deref().map(HotList::read);
        if let Some(from) = from {
            let (warming, files) = (Arc::clone(self), Arc::downgrade(files));
            self.begin("tc-warm", move || {
                let ended = from.map_err(|error| error.to_string());
                let ended = ended.and_then(|list| warming.warm(&list, &files));
                warming.note_end(&ended);
            });
        }
        if self.list.is_some() {
            let warming = Arc::clone(self);
            self.begin("tc-hot", move || warming.keep());
        }
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
    fn warm(&self, list: &HotList, files: &Weak<Fs>) -> Result<&'static str, String> {
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
            let go_on = |tally: &Warmed| self.note(tally);
            let ended = (self.engine).warm(&object, part.ranges(), &pace, &mut tally, go_on);
            self.engine.close_aside(&object);
            match ended {
                Ok(WarmEnd::Done) => {}
                Ok(WarmEnd::Full) => return Ok("full"),
                Ok(WarmEnd::Off) => return Ok("off"),
                Ok(WarmEnd::Stopped) => return Ok("ended"),
                Err(error) => self.tell_failed(part.name, &error, &mut failed),
            }
            if !self.note(&tally) {
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

    fn note(&self, tally: &Warmed) -> bool {
        let mut state = self.state();
        state.facts.seen = tally.seen;
        state.facts.came = tally.came;
        state.facts.requests = tally.requests;
        state.facts.bytes = tally.bytes;
        !state.stop
    }

    fn note_end(&self, ended: &Result<&'static str, String>) {
        let mut state = self.state();
        state.facts.state = match ended {
            Ok(word) => (*word).into(),
            Err(why) => format!("failed: {why}"),
        };
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
        let young = stats.uptime_s < KEPT_FOR.as_secs_f64();
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
