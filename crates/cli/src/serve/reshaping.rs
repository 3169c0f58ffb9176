//! Growing, shrinking and replacing the cache of a mount: what a command started, and what its
//! control file says of it.
//!
//! States: *idle* → *running* → *loading* (pages of pinned files come to flash, where there are
//! such files) → *done*; from *running* also → *failed*. From each of these but *running* →
//! *running*: a load gives way to whatever is asked for next. A mount with pins begins with
//! *loading*. A load that fails does not undo the change before it: that is *done*, with the
//! reason.
//!
//! Invariants
//! 1. At most one runs: its thread is joined before another one starts.
//! 2. A file that was made for a cache that does not serve is removed.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::beacon::Beacon;
use crate::serve::caches::Caches;
use crate::serve::log;
use crate::serve::pins::Pinned;
use crate::serve::serving::note_policy;
use crate::serve::warming::Warming;
use crate::units::Size;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use thermocline::{Engine, FlushProgress};
use thermocline_mount::Fs;

/// What precedes the reason why pinned files were not loaded.
pub(crate) const NOT_LOADED: &str = "not loaded: ";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// `resize SIZE`: the same cache, longer or shorter.
    Resize(Size),
    /// `pin`, and one pattern a line: what is pinned from now on, and loaded.
    Pin(Vec<String>),
    /// `replace SIZE|- keep|format|format:N PATH`: another cache.
    Replace {
        /// Its size; that of the one there is by default.
        size: Option<Size>,
        /// Whether what the file holds may be overwritten.
        format: bool,
        /// How many pages newer than base may be given up with it.
        discard: Option<u64>,
        /// The file or block device, absolute.
        path: PathBuf,
    },
}

impl Change {
    /// As it is written to the control file.
    pub(crate) fn to_command(&self) -> String {
        match self {
            Self::Resize(size) => format!("resize {size}"),
            Self::Pin(paths) => format!("pin\n{}", paths.join("\n")),
            Self::Replace {
                size,
                format,
                discard,
                path,
            } => {
                let size = size.map_or_else(|| "-".into(), |size| size.to_string());
                let word = match (format, discard) {
                    (false, _) => "keep".to_string(),
                    (true, None) => "format".to_string(),
                    (true, Some(pages)) => format!("format:{pages}"),
                };
                format!("replace {size} {word} {}", path.display())
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        if lines.next() == Some("pin") {
            let paths = lines.filter(|path| !path.is_empty());
            return Some(Self::Pin(paths.map(String::from).collect()));
        }
        let (word, rest) = text.split_once(' ')?;
        if word == "resize" {
            return Some(Self::Resize(rest.trim().parse().ok()?));
        }
        let (size, rest) = rest.split_once(' ')?;
        let (kept, path) = rest.split_once(' ')?;
        let (format, discard) = match kept.split_once(':') {
            None if kept == "keep" => (false, None),
            None if kept == "format" => (true, None),
            Some(("format", pages)) => (true, Some(pages.parse().ok()?)),
            _ => return None,
        };
        let size = match size {
            "-" => None,
            size => Some(size.parse().ok()?),
        };
        let path = PathBuf::from(path);
        let known = word == "replace" && path.is_absolute();
        known.then_some(Self::Replace {
            size,
            format,
            discard,
            path,
        })
    }
}

/// How often, and with what pauses, a change of the mode waits for whoever changes base's mark.
const MARKING_TRIES: u32 = 200;
const MARKING_PAUSE: Duration = Duration::from_millis(10);

/// The changes of the cache of one mount.
pub(crate) struct Reshaping {
    engine: Arc<Engine>,
    caches: Caches,
    warming: Arc<Warming>,
    /// Directory that is served.
    base: PathBuf,
    /// Opens its files; set once it is served. Weak: its control files are made of this.
    files: OnceLock<Weak<Fs>>,
    /// Is told when another cache serves; set with those.
    beacon: OnceLock<Arc<Beacon>>,
    /// Held while something is begun.
    turn: Mutex<()>,
    state: Mutex<State>,
    /// Held while the mode or the cache, and with it the mark of base, are changed.
    marking: Mutex<()>,
    /// Ends what runs, where it still can be ended.
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    progress: FlushProgress,
    /// Why the pinned files were not loaded; empty when they were.
    not_loaded: String,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Running,
    Loading,
    Done,
    Failed(Failure),
}

impl Reshaping {
    pub(crate) fn new(
        engine: Arc<Engine>,
        caches: Caches,
        warming: Arc<Warming>,
        base: PathBuf,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            caches,
            warming,
            base,
            files: OnceLock::new(),
            beacon: OnceLock::new(),
            turn: Mutex::default(),
            state: Mutex::default(),
            marking: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the control file says: `dirty N of M`, the pages to be written back before, or the
    /// pages of pinned files to be looked at; how it stands; when it failed, the code, the fact and
    /// the advice; and when it took place and the load failed, `not loaded: ` and why.
    pub(crate) fn describe(&self) -> String {
        let state = self.state();
        let FlushProgress { left, total } = state.progress;
        let phase = match &state.phase {
            Phase::Idle => "idle".to_string(),
            Phase::Running => "running".to_string(),
            Phase::Loading => "loading".to_string(),
            Phase::Done if state.not_loaded.is_empty() => "done".to_string(),
            Phase::Done => format!("done\n{NOT_LOADED}{}", state.not_loaded),
            Phase::Failed(why) => {
                let advice = why.advice.as_deref().unwrap_or_default();
                format!("failed {}\n{}\n{advice}", why.code as u8, why.message)
            }
        };
        format!("dirty {left} of {total}\nstate {phase}\n")
    }

    /// Executes what was written to the control file: a [`Change`], or `stop`.
    pub(crate) fn command(self: &Arc<Self>, text: &str) -> io::Result<()> {
        if text == "stop" {
            self.stop.store(true, Ordering::Release);
            return Ok(());
        }
        let change = Change::parse(text).ok_or(io::ErrorKind::InvalidInput)?;
        let shown = text.replace('\n', " ");
        self.begin(&shown, Phase::Running, move |reshaping| {
            reshaping.run(&change)
        })
    }

    /// The mount serves: pages of pinned files that are not on flash come there from now on.
    pub(crate) fn served(self: &Arc<Self>, files: &Arc<Fs>, beacon: &Arc<Beacon>) {
        self.files.get_or_init(|| Arc::downgrade(files));
        // A command may have been quicker.
        self.beacon
            .get_or_init(|| Arc::clone(beacon))
            .follow_cache();
        if self.engine.pins().paths.is_empty() {
            return;
        }
        let begun = self.begin("load pinned files", Phase::Loading, |reshaping| {
            reshaping.loaded(reshaping.load());
        });
        if let Err(error) = begun {
            log::line(&format!("pinned files are not loaded: {error}"));
        }
    }

    /// Does `work` in a thread of its own; it ends with [`Reshaping::loaded`] or
    /// [`Reshaping::failed`].
    fn begin(
        self: &Arc<Self>,
        shown: &str,
        phase: Phase,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> io::Result<()> {
        let _one = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        match state.phase {
            Phase::Running => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            Phase::Loading => self.stop.store(true, Ordering::Release),
            _ => {}
        }
        let before = state.thread.take();
        drop(state);
        if let Some(before) = before {
            let _panicked = before.join();
        }
        let mut state = self.state();
        self.stop.store(false, Ordering::Release);
        state.progress = FlushProgress::default();
        let reshaping = Arc::clone(self);
        let thread = std::thread::Builder::new().name("reshape".into());
        state.thread = Some(thread.spawn(move || work(&reshaping))?);
        state.phase = phase;
        log::line(&format!("cache: {shown}"));
        Ok(())
    }

    fn run(&self, change: &Change) {
        let outcome = match change {
            Change::Resize(size) => self.resize(*size),
            Change::Pin(paths) => self.pin(paths),
            Change::Replace {
                size,
                format,
                discard,
                path,
            } => self.replace(*size, *format, *discard, path),
        };
        if let Err(failure) = outcome {
            return self.failed(failure);
        }
        log::line(&format!("cache: {} serves", self.engine.cache_name()));
        note_policy(&self.engine);
        let mut state = self.state();
        (state.phase, state.progress) = (Phase::Loading, FlushProgress::default());
        drop(state);
        self.loaded(self.load());
    }

    fn failed(&self, failure: Failure) {
        log::line(&format!("cache: {}", failure.message));
        self.state().phase = Phase::Failed(failure);
    }

    /// The change took place, whatever came of the load.
    fn loaded(&self, load: Outcome) {
        let not_loaded = load.map_or_else(|failure| failure.message, |()| String::new());
        if !not_loaded.is_empty() {
            log::line(&format!("pinned files are not loaded: {not_loaded}"));
        }
        let mut state = self.state();
        (state.phase, state.not_loaded) = (Phase::Done, not_loaded);
    }

    /// Why the pinned files were not loaded, the last time; empty when they were.
    pub(crate) fn not_loaded(&self) -> String {
        self.state().not_loaded.clone()
    }

    fn note(&self, progress: FlushProgress) -> bool {
        let mut state = self.state();
        let total = state.progress.total.max(progress.total);
        state.progress = FlushProgress { total, ..progress };
        !self.stop.load(Ordering::Acquire)
    }

    fn bytes(&self, size: Size) -> Result<u64, Failure> {
        let bytes = size.bytes(self.caches.page_size);
        bytes.ok_or_else(|| Failure::usage(format!("a cache of {size} is more than 16 EiB")))
    }

    fn resize(&self, size: Size) -> Outcome {
        let bytes = self.bytes(size)?;
        self.engine.resize(bytes, |progress| self.note(progress))?;
        Ok(())
    }

    fn find(&self, paths: &[String]) -> Result<Pinned, Failure> {
        Pinned::find(&self.base, paths, self.caches.page_size)
    }

    fn pin(&self, paths: &[String]) -> Outcome {
        let found = self.find(paths)?;
        let before = self.engine.pins().paths;
        found.check(&self.base, &before)?;
        for pattern in &found.unmatched {
            log::line(&format!("pin \"{pattern}\" matches no file"));
        }
        self.engine
            .set_pins(found.pins, |progress| self.note(progress))?;
        Ok(())
    }

    /// Brings the pages of pinned files to flash, those that are not there.
    fn load(&self) -> Outcome {
        let paths = self.engine.pins().paths;
        let files = self.files.get().and_then(Weak::upgrade);
        match files.filter(|_| !paths.is_empty()) {
            Some(files) => {
                let found = self.find(&paths)?;
                found.load(&files, |progress| self.note(progress))
            }
            None => Ok(()),
        }
    }

    /// Write-back or write-through from now on. Base is marked before a write may stay off it.
    pub(crate) fn set_write_back(&self, back: bool) -> io::Result<()> {
        let Some(_one) = self.marks() else {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        };
        if back {
            let marked = self.caches.claiming.switch(&self.engine, true);
            marked.map_err(|failure| {
                log::refused(&failure.message);
                io::Error::from_raw_os_error(libc::EIO)
            })?;
        }
        self.engine.set_write_back(back);
        Ok(())
    }

    /// The right to change base's mark. A new opening of the cache has it for a moment, a change of
    /// the cache may have it long: then `None`.
    fn marks(&self) -> Option<MutexGuard<'_, ()>> {
        for _ in 0..MARKING_TRIES {
            if let Ok(one) = self.marking.try_lock() {
                return Some(one);
            }
            std::thread::sleep(MARKING_PAUSE);
        }
        None
    }

    /// Says in base's mark that base has everything, where it has by now: in write-through, once
    /// nothing is dirty any more.
    pub(crate) fn mark_whole(&self) -> Outcome {
        if !(self.caches.claiming.is_owed() && self.engine.is_whole()) {
            return Ok(());
        }
        // Whoever has it now marks base at its end, and it is looked again each second.
        let Some(_one) = self.marks() else {
            return Ok(());
        };
        if self.caches.claiming.settle(&self.engine)? {
            log::line("base has everything: its mark says so");
        }
        Ok(())
    }

    /// Begins another opening of the cache: see [`Claim::renew`]. False where the mark is just
    /// being changed, to be tried again.
    ///
    /// [`Claim::renew`]: thermocline::claim::Claim::renew
    pub(crate) fn renew_opening(&self) -> bool {
        let Ok(_one) = self.marking.try_lock() else {
            return false;
        };
        if let Err(failure) = self.caches.claiming.renew(&self.engine) {
            log::refused(&failure.message);
        }
        true
    }

    /// Switches the tier on; a cache that had failed is made anew for that, and has another id.
    /// Then it is warmed: whatever was off has lost its pages.
    pub(crate) fn tier_on(&self) -> Outcome {
        if self.engine.tier_state().is_ok() {
            return Ok(());
        }
        if !matches!(self.state().phase, Phase::Running | Phase::Loading) {
            // Said of something that has ended.
            self.stop.store(false, Ordering::Release);
        }
        self.warming.emptying();
        self.take_turns(|engine| Ok(engine.tier_on()?))?;
        self.warming.emptied();
        Ok(())
    }

    /// Switches the tier off, by a command.
    pub(crate) fn tier_off(&self) -> io::Result<()> {
        self.warming.emptying();
        self.engine.tier_off("switched off by command")
    }

    /// Lets `change` put another cache into the place of the one there is, once base has
    /// everything: until then its mark names the old one; before anything is dirty again, the new
    /// one.
    fn take_turns(&self, change: impl FnOnce(&Engine) -> Outcome) -> Outcome {
        let mark = |dirty| self.caches.claiming.switch(&self.engine, dirty);
        self.turns(mark, change)
    }

    /// The same; `mark` writes base's mark, that something may be dirty or that nothing is.
    fn turns(
        &self,
        mark: impl Fn(bool) -> Outcome,
        change: impl FnOnce(&Engine) -> Outcome,
    ) -> Outcome {
        let marking = self.marking.lock();
        let _one = marking.unwrap_or_else(PoisonError::into_inner);
        let go_on = |progress| self.note(progress);
        self.engine.take_turns(go_on, mark, change)
    }

    fn replace(
        &self,
        size: Option<Size>,
        format: bool,
        discard: Option<u64>,
        path: &Path,
    ) -> Outcome {
        let found = fs::metadata(path).ok();
        let device = found
            .as_ref()
            .is_some_and(|f| f.file_type().is_block_device());
        let used = device || found.as_ref().is_some_and(|f| f.len() > 0);
        if used && !format {
            let message = format!("{} exists and is not empty", path.display());
            return Err(Failure::new(Code::Cache, message)
                .advise("another --cache, or --format to overwrite what it holds"));
        }
        let size = match size {
            Some(size) => Some(self.bytes(size)?),
            // A block device has its own.
            None if device => None,
            None => self.engine.stats().tier.map(|tier| tier.bytes),
        };
        let opened = self.caches.open(path, size, true, discard);
        self.warming.emptying();
        let replaced = opened.and_then(|store| {
            self.take_turns(|engine| {
                let store = self.caches.watched(store);
                Ok(engine.replace(store, |progress| self.note(progress))?)
            })
        });
        if let Some(beacon) = self.beacon.get() {
            beacon.follow_cache();
        }
        // It may serve though base's mark could not be written after that.
        let serves = Path::new(&self.engine.cache_name()) == path;
        if replaced.is_err() && found.is_none() && !serves {
            // Nothing uses it; should it be gone already that is as well.
            let _gone = fs::remove_file(path);
        }
        if replaced.is_ok() {
            self.warming.emptied();
        }
        replaced
    }

    /// At the end of a mount: ends what runs and waits for that.
    pub(crate) fn finish(&self) {
        let _one = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(true, Ordering::Release);
        let thread = self.state().thread.take();
        if let Some(thread) = thread {
            let _panicked = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WarmSection;
    use crate::serve::claiming::Claiming;
    use thermocline::claim::Leave;
    use thermocline::device::{FaultScript, Faulty};
    use thermocline::{EngineConfig, FileKind, HintSet, ObjectSpec, Request};

    /// The changes of an engine in write-back, and what is behind them.
    fn ground() -> (tempfile::TempDir, Arc<Engine>, Arc<Reshaping>) {
        let directory = tempfile::tempdir().expect("directory");
        let base = directory.path().join("base");
        fs::create_dir(&base).expect("base");
        let claiming = Claiming::take(&base, None, Leave::default()).expect("a claim");
        let claiming = Arc::new(claiming);
        let caches = Caches {
            page_size: 8192,
            base: claiming.identity(),
            claiming: Arc::clone(&claiming),
            meters: Arc::default(),
            faults: None,
        };
        let cache = directory.path().join("tier");
        let store = caches.open(&cache, Some(4 << 20), false, None);
        let config = EngineConfig {
            write_back: true,
            ..EngineConfig::default()
        };
        let engine = Engine::start(config, Some(store.expect("a cache"))).expect("engine");
        let warm = WarmSection::default();
        let warming = Warming::new(Arc::clone(&engine), claiming, warm, &base).expect("warming");
        let reshaping = Reshaping::new(Arc::clone(&engine), caches, warming, base);
        (directory, engine, reshaping)
    }

    #[test]
    fn a_mark_that_cannot_be_cleared_leaves_the_mode_as_it_was() {
        let (_directory, engine, reshaping) = ground();
        let marks = Mutex::new(Vec::new());
        let mark = |dirty| {
            marks.lock().expect("marks").push(dirty);
            match dirty {
                true => Ok(()),
                false => Err(Failure::usage("full")),
            }
        };
        let turned = reshaping.turns(mark, |_| panic!("base's mark names the old cache"));
        assert_eq!(turned.expect_err("no mark").message, "full");
        assert_eq!(*marks.lock().expect("marks"), [false, true]);
        assert!(engine.is_write_back(), "as it was");
        let turned = reshaping.turns(|_| Err(Failure::usage("full")), |_| Ok(()));
        turned.expect_err("no mark");
        assert!(!engine.is_write_back(), "base is not marked for it");
    }

    #[test]
    fn no_other_cache_serves_while_base_waits_for_the_one_there_is() {
        let (directory, engine, reshaping) = ground();
        fs::write(directory.path().join("t"), [0; 8192]).expect("file");
        let script = FaultScript::new();
        let spec = ObjectSpec::of_file(directory.path(), "t", FileKind::Relation);
        let mut spec = spec.expect("a file");
        spec.base = Arc::new(Faulty::new(spec.base, Arc::clone(&script), None));
        let file = engine.open_object(spec).expect("opens");
        let request = Request {
            object: &file,
            offset: 0,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        let marks = Mutex::new(Vec::new());
        let mark = |dirty| {
            marks.lock().expect("marks").push(dirty);
            Ok(())
        };
        engine.write(&request, &[1; 8192]).expect("writes");
        script.load("write fail EIO").expect("a script");
        let turned = reshaping.turns(mark, |_| panic!("base waits for a page of the old cache"));
        let why = turned.expect_err("base refuses").message;
        assert!(why.contains("1 pages could not be written back"), "{why}");
        assert_eq!(*marks.lock().expect("marks"), [true], "never cleared");
        // Base fails for a moment.
        script
            .load("clear; write times 1 fail EIO")
            .expect("a script");
        marks.lock().expect("marks").clear();
        let change = |engine: &Engine| {
            assert_eq!(
                (engine.dirty_pages(), marks.lock().expect("marks").len()),
                (0, 1)
            );
            Ok(())
        };
        reshaping.turns(mark, change).expect("in the end");
        assert_eq!(*marks.lock().expect("marks"), [false, true]);
        engine.close_object(&file);
    }

    #[test]
    fn commands_are_read_as_they_are_written() {
        let changes = [
            Change::Resize(Size::Bytes(20 << 30)),
            Change::Resize(Size::Pages(77)),
            Change::Pin(vec![]),
            Change::Pin(vec!["base/5/1 2".into(), "x*".into()]),
            Change::Replace {
                size: None,
                format: false,
                discard: None,
                path: "/a b/c".into(),
            },
            Change::Replace {
                size: Some(Size::Pages(9)),
                format: true,
                discard: None,
                path: "/dev/x".into(),
            },
            Change::Replace {
                size: None,
                format: true,
                discard: Some(12),
                path: "/dev/x \n".into(),
            },
        ];
        for change in changes {
            assert_eq!(Change::parse(&change.to_command()), Some(change));
        }
        for text in [
            "",
            "resize",
            "resize much",
            "replace - keep tier",
            "replace - /x",
            "replace - keep:3 /x",
            "replace - format:all /x",
        ] {
            assert_eq!(Change::parse(text), None, "{text}");
        }
    }
}
