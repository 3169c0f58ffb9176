//! Recording on a running mount: what a command started, and what its control file says of it.
//!
//! States: *idle* → *running* → *done* or *failed*, and from each of these → *running*.
//!
//! Invariants
//! 1. At most one runs: its thread is joined before another one starts.
//! 2. A recording ends by itself after the time it was given: whoever asked for it may be gone. One
//!    that the mount began with has no such time. Either ends when the trace cannot be written.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::log;
use crate::show::report::MountFacts;
use crate::units::show_count;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thermocline::Engine;
use thermocline_core::HintSchema;
use thermocline_trace::{
    DATABASE, RecordError, Recorder, RecorderOptions, RecorderSummary, Sample,
};

/// The state of a mount that records by its own option.
pub(crate) const SINCE_START: &str = "since the start";

/// How often it is looked whether the trace can still be written.
const LOOK: Duration = Duration::from_secs(1);

/// The recordings of one mount.
pub(crate) struct Recording {
    engine: Arc<Engine>,
    facts: MountFacts,
    page_size: u32,
    state: Mutex<State>,
    /// Ends the one that runs.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    path: PathBuf,
    begun: Option<Instant>,
    /// `None` for the one that the mount began with.
    length: Option<Duration>,
    stop: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default, PartialEq)]
enum Phase {
    #[default]
    Idle,
    Running,
    Done(RecorderSummary),
    Failed(String),
}

/// A recorder of a trace that starts now, with a column for the client where there are `clients`.
fn recorder(
    path: &Path,
    page_size: u32,
    sample: Sample,
    clients: bool,
) -> Result<Recorder, RecordError> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let schema = clients
        .then(|| HintSchema::with_custom([DATABASE]))
        .flatten();
    let options = RecorderOptions {
        page_size,
        sample,
        start_unix_ns: u64::try_from(now.as_nanos()).unwrap_or(0),
        schema: schema.unwrap_or_default(),
        ..RecorderOptions::default()
    };
    Recorder::create(path, options)
}

impl Recording {
    /// Those of the mount of `facts`.
    pub(crate) fn new(engine: Arc<Engine>, facts: MountFacts, page_size: u32) -> Arc<Self> {
        Arc::new(Self {
            engine,
            facts,
            page_size,
            state: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where requests are recorded now; empty when they are not.
    pub(crate) fn path(&self) -> PathBuf {
        let state = self.state();
        match state.phase {
            Phase::Running => state.path.clone(),
            _ => PathBuf::new(),
        }
    }

    /// Why the last recording is not whole; empty when it is, or is not over.
    pub(crate) fn failure(&self) -> String {
        match &self.state().phase {
            Phase::Failed(why) => why.clone(),
            _ => String::new(),
        }
    }

    /// What the control file says: `seconds N of M`, how it stands, and to which file.
    pub(crate) fn describe(&self) -> String {
        let state = self.state();
        let elapsed = state.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        let phase = match &state.phase {
            Phase::Idle => "idle".to_string(),
            Phase::Running if state.length.is_none() => SINCE_START.to_string(),
            Phase::Running => "running".to_string(),
            Phase::Done(sum) => format!("done {} {}", sum.written, sum.dropped),
            Phase::Failed(why) => format!("failed: {why}"),
        };
        let length = state.length.unwrap_or_default();
        let (elapsed, length) = (elapsed.min(length).as_secs(), length.as_secs());
        let path = state.path.display();
        format!("seconds {elapsed} of {length}\nstate {phase}\npath {path}\n")
    }

    /// Executes what was written to the control file: `start SECONDS SAMPLE PATH` or `stop`. SAMPLE
    /// is [`Sample::bits`].
    pub(crate) fn command(self: &Arc<Self>, text: &str) -> io::Result<()> {
        if text == "stop" {
            return self.stop();
        }
        let started = text.strip_prefix("start ").and_then(|rest| {
            let (seconds, rest) = rest.split_once(' ')?;
            let (bits, path) = rest.split_once(' ')?;
            let sample = Sample::from_bits(bits.parse().ok()?)?;
            Some((seconds.parse::<u64>().ok()?, sample, Path::new(path)))
        });
        let (seconds, sample, path) = started.ok_or(io::ErrorKind::InvalidInput)?;
        let place = path.is_absolute() && !self.is_served(path);
        if !place || seconds == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.start(path, sample, Some(Duration::from_secs(seconds)))
            .map_err(|error| match error {
                Unable::Busy => io::ErrorKind::ResourceBusy.into(),
                Unable::Record(error) => {
                    log::refused(&error.to_string());
                    io::ErrorKind::InvalidInput.into()
                }
                Unable::Thread(error) => error,
            })
    }

    /// Records everything from now on until the mount ends.
    pub(crate) fn since_start(self: &Arc<Self>, path: &Path) -> Outcome {
        self.start(path, Sample::ALL, None)
            .map_err(|error| match error {
                Unable::Busy => io::Error::from(io::ErrorKind::ResourceBusy).into(),
                Unable::Record(error) => error.into(),
                Unable::Thread(error) => error.into(),
            })
    }

    /// Ends the recording that a command started, and no other.
    fn stop(&self) -> io::Result<()> {
        let mut state = self.state();
        let why = match state.phase {
            Phase::Running if state.length.is_none() => {
                "it records as it was told at its start: umount ends it"
            }
            Phase::Running => {
                state.stop = true;
                self.ended.notify_all();
                return Ok(());
            }
            _ => "nothing is recorded",
        };
        log::refused(why);
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// Whether a file would be recorded while it is written.
    fn is_served(&self, path: &Path) -> bool {
        path.starts_with(&self.facts.base) || path.starts_with(&self.facts.mountpoint)
    }

    fn start(
        self: &Arc<Self>,
        path: &Path,
        sample: Sample,
        length: Option<Duration>,
    ) -> Result<(), Unable> {
        let mut state = self.state();
        if state.phase == Phase::Running {
            return Err(Unable::Busy);
        }
        if let Some(ended) = state.thread.take() {
            let _panicked = ended.join();
        }
        let recorder = recorder(path, self.page_size, sample, self.engine.has_clients());
        let recorder = recorder.map_err(Unable::Record)?;
        let (recording, watched) = (Arc::clone(self), recorder.clone());
        let thread = std::thread::Builder::new().name("recording".into());
        let thread = thread.spawn(move || recording.run(length, watched));
        let thread = thread.map_err(Unable::Thread)?;
        let other = self.engine.set_recorder(Some(recorder));
        assert!(other.is_none(), "invariant 1: at most one runs");
        if let Some(length) = length {
            log::line(&format!(
                "recording {} % to {} for {} s",
                100.0 * sample.share(),
                path.display(),
                length.as_secs()
            ));
        }
        *state = State {
            phase: Phase::Running,
            path: path.to_path_buf(),
            begun: Some(Instant::now()),
            length,
            stop: false,
            thread: Some(thread),
        };
        Ok(())
    }

    /// Waits, on a thread of its own, until it is over.
    fn run(&self, length: Option<Duration>, watched: Recorder) {
        let begun = Instant::now();
        let left = || length.map_or(LOOK, |length| length.saturating_sub(begun.elapsed()));
        // `start` holds the lock until everything is in place.
        let mut state = self.state();
        while !state.stop && !left().is_zero() && !watched.has_failed() {
            let waited = self.ended.wait_timeout(state, left().min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        // What comes meanwhile is not for this one any more.
        drop(self.engine.set_recorder(None));
        let phase = match watched.finish() {
            Ok(sum) => {
                let (requests, lost) = (show_count(sum.written), show_count(sum.dropped));
                log::line(&format!("recorded {requests} requests, {lost} lost"));
                Phase::Done(sum)
            }
            Err(error) => {
                let why = Failure::from(error).message;
                log::line(&format!("recording failed: {why}"));
                Phase::Failed(why)
            }
        };
        self.state().phase = phase;
    }

    /// At the end of a mount: ends what runs. Fails when the mount was to be recorded from its
    /// start, and that is not whole.
    pub(crate) fn finish(&self) -> Outcome {
        let mut state = self.state();
        state.stop = true;
        let thread = state.thread.take();
        drop(state);
        self.ended.notify_all();
        if let Some(thread) = thread {
            let _panicked = thread.join();
        }
        let state = self.state();
        match &state.phase {
            Phase::Failed(why) if state.length.is_none() => {
                let message = format!("the recording is not whole: {why}");
                Err(Failure::new(Code::Failure, message).advise(
                    "everything else ended well; free space there, or record to another disk",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Why no recording starts.
enum Unable {
    /// One runs.
    Busy,
    /// There can be no such trace.
    Record(RecordError),
    /// There is no thread for it.
    Thread(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::EngineConfig;

    fn recording() -> Arc<Recording> {
        let engine = Engine::start(EngineConfig::default(), None).expect("engine");
        let facts = MountFacts {
            base: "/base".into(),
            mountpoint: "/mnt".into(),
            ..MountFacts::default()
        };
        Recording::new(engine, facts, 8192)
    }

    fn wait_for(recording: &Recording, state: &str) {
        let begun = Instant::now();
        while !recording.describe().contains(state) {
            assert!(begun.elapsed().as_secs() < 60, "{}", recording.describe());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn it_ends_when_asked_and_when_its_time_is_over() {
        let directory = tempfile::tempdir().expect("dir");
        let recording = recording();
        assert!(recording.describe().contains("state idle"));
        recording.command("stop").expect_err("nothing is recorded");
        let start = |seconds: u64, name: &str| {
            let path = directory.path().join(name);
            recording.command(&format!("start {seconds} 65536 {}", path.display()))
        };
        start(1000, "a.parquet").expect("starts");
        assert_eq!(recording.path(), directory.path().join("a.parquet"));
        let busy = start(1, "b.parquet").expect_err("one at a time");
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        recording.command("stop").expect("stops");
        wait_for(&recording, "state done 0 0");
        assert_eq!(recording.path(), PathBuf::new());
        recording.command("stop").expect_err("it was stopped");
        start(1, "a.parquet").expect_err("it is there");
        start(1, "b.parquet").expect("starts");
        wait_for(&recording, "state done 0 0");
        start(1000, "c.parquet").expect("starts");
        recording.finish().expect("it is whole");
        assert!(recording.describe().contains("state done"));
    }

    #[test]
    fn nothing_that_is_served_is_written() {
        let recording = recording();
        for text in [
            "start 5 16777216 /base/t",
            "start 5 16777216 /mnt/t",
            "start 5 16777216 t",
            "start 0 16777216 /nowhere/t",
            "start 5 16777216 /nowhere/t",
            "start x 16777216 /nowhere/t",
            "start 5 0 /nowhere/t",
            "start 5 /nowhere/t",
            "start",
            "",
        ] {
            recording.command(text).expect_err(text);
        }
        assert!(recording.describe().contains("state idle"));
    }

    #[test]
    fn a_mount_that_records_since_its_start_goes_on_with_that() {
        let directory = tempfile::tempdir().expect("dir");
        let path = directory.path().join("trace");
        let recording = recording();
        recording.since_start(&path).expect("starts");
        let said = format!("state since the start\npath {}", path.display());
        assert!(recording.describe().contains(&said));
        let busy = recording
            .command("start 5 65536 /nowhere/t")
            .expect_err("busy");
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        recording
            .command("stop")
            .expect_err("no command started it");
        assert_eq!(recording.path(), path);
        recording.finish().expect("it is whole");
        assert!(path.is_file());
    }
}
