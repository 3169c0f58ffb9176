//! A device that fails on command.
//!
//! A [`Faulty`] device does what its [`FaultScript`] says, and the script can change while the
//! device is in use. Tests use it; so does whoever wants to see what a sick SSD does to a mount.
//!
//! # Language
//! ```text
//! script    = statement { (newline | ";") statement }        "#" starts a comment
//! statement = [ "clear" | rule ]                             clear: drops all rules before it
//! rule      = ("read" | "write" | "sync" | "any") { condition } action
//! condition = "every" N            each Nth request that matches, from the Nth on
//!           | "after" N            not the first N that match
//!           | "times" N            at most N times
//!           | "offset" A ".." B    requests that touch bytes A up to, not including, B
//! action    = "fail" ERRNO         the request does nothing and fails: EIO, ENOSPC, ...
//!           | "corrupt"            flips the lowest bit of every byte (in A..B, if given), on
//!                                  the way out for a read, on the way in for a write
//!           | "short" N            a read returns at most N bytes; a write writes at most N
//!                                  bytes and fails with EIO (a torn write)
//!           | "lose"               a write or sync reports success and does nothing
//!           | "delay" DURATION     the request takes that much longer
//!           | "hang" DURATION      as delay; when that exceeds the device's deadline, the
//!                                  request gives up at the deadline with TimedOut
//! DURATION  = a whole number and "us", "ms" or "s", in one word: 2ms
//! N, A, B   = whole numbers, optionally with K, M or G (powers of 1024)
//! ```
//! Rules are tried in order and every rule counts the requests that match its operation and
//! offset. All delays add up; then the first rule that fires with `fail`, `hang` or `lose`
//! decides, otherwise all that fire with `corrupt` and `short` apply.
//!
//! A hung write that timed out has not reached the device and never will; real ones may.

mod script;

use crate::lock::{Condvar, Mutex, MutexGuard};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Data, Device, Transfer, Witness, expired};
pub use script::ScriptError;
use script::{Action, Kind, Rule, Statement, parse};

/// How often each kind of fault struck since the script was made. `clear` keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Requests failed with an error number.
    pub failed: u64,
    /// Requests whose bytes were changed.
    pub corrupted: u64,
    /// Requests cut short.
    pub shortened: u64,
    /// Writes and syncs that were only said to be done.
    pub lost: u64,
    /// Requests delayed.
    pub delayed: u64,
    /// Requests hung, whether or not they gave up.
    pub hung: u64,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    counts: FaultCounts,
    /// Grows with every `clear`; a hanging request that sees it change goes on.
    cleared: u64,
}

/// The faults of one or more devices, changeable while they are in use.
#[derive(Debug, Default)]
pub struct FaultScript {
    /// Whether there are rules; spares healthy devices the lock.
    armed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl FaultScript {
    /// No faults.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Runs the statements of `script`: rules are added behind those there are, `clear` drops
    /// them. Nothing changes when there is an error.
    ///
    /// # Errors
    /// The first word that does not fit.
    pub fn load(&self, script: &str) -> Result<(), ScriptError> {
        let statements = parse(script)?;
        let mut state = self.lock();
        for statement in statements {
            match statement {
                Statement::Clear => {
                    state.rules.clear();
                    state.cleared += 1;
                }
                Statement::Rule(rule) => state.rules.push(rule),
            }
        }
        debug_assert!(state.rules.iter().all(Rule::is_valid));
        self.armed.store(!state.rules.is_empty(), Ordering::Release);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Drops all rules; hanging requests go on.
    pub fn clear(&self) {
        let result = self.load("clear");
        debug_assert!(result.is_ok());
    }

    /// What has struck so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What to do with a request, after waiting out its delays.
    fn strike(&self, kind: Kind, range: Range<u64>, deadline: Option<Duration>) -> Verdict {
        if !self.armed.load(Ordering::Acquire) {
            return Verdict::default();
        }
        debug_assert!(range.start <= range.end && (kind != Kind::Sync || range.is_empty()));
        let arrival = Instant::now();
        let mut state = self.lock();
        let (delay, hang, verdict) = state.judge(kind, &range);
        let limit = deadline.filter(|limit| hang.is_some_and(|h| delay + h > *limit));
        let until = arrival + limit.unwrap_or(delay + hang.unwrap_or_default());
        debug_assert!(limit.is_none_or(|limit| until <= arrival + limit));
        let epoch = state.cleared;
        while state.cleared == epoch {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left);
        }
        debug_assert!(
            state.cleared != epoch || Instant::now() >= until,
            "only a clear cuts a delay short"
        );
        if limit.is_some() && state.cleared == epoch {
            return Verdict {
                outcome: Outcome::TimedOut,
                ..Verdict::default()
            };
        }
        verdict
    }
}

impl State {
    /// Total delay, the hang if there is one, and what happens afterwards.
    fn judge(&mut self, kind: Kind, range: &Range<u64>) -> (Duration, Option<Duration>, Verdict) {
        let mut delay = Duration::ZERO;
        let mut hang = None;
        let mut verdict = Verdict::default();
        let mut decided = false;
        for rule in &mut self.rules {
            // A rule behind the one that decided still counts what it sees.
            if !rule.fires(kind, range) || decided {
                continue;
            }
            match rule.action {
                Action::Delay(d) => {
                    delay += d;
                    self.counts.delayed += 1;
                }
                Action::Fail(code) => {
                    verdict.outcome = Outcome::Fail(code);
                    self.counts.failed += 1;
                }
                Action::Lose => {
                    verdict.outcome = Outcome::Lose;
                    self.counts.lost += 1;
                }
                Action::Hang(d) => {
                    hang = Some(d);
                    self.counts.hung += 1;
                }
                Action::Corrupt => {
                    verdict
                        .corrupt
                        .push(rule.offset.clone().unwrap_or(0..u64::MAX));
                    self.counts.corrupted += 1;
                }
                Action::Short(n) => {
                    verdict.short = Some(verdict.short.map_or(n, |m| m.min(n)));
                    self.counts.shortened += 1;
                }
            }
            decided = matches!(
                rule.action,
                Action::Fail(_) | Action::Lose | Action::Hang(_)
            );
        }
        debug_assert!(hang.is_none() || verdict.outcome == Outcome::Proceed);
        debug_assert!(verdict.outcome != Outcome::TimedOut, "time alone tells");
        (delay, hang, verdict)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outcome {
    #[default]
    Proceed,
    Fail(i32),
    Lose,
    TimedOut,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    outcome: Outcome,
    corrupt: Vec<Range<u64>>,
    short: Option<usize>,
}

impl Verdict {
    /// Whether the request is still to be done; an error when it failed.
    fn proceed(&self) -> io::Result<bool> {
        match self.outcome {
            Outcome::Proceed => Ok(true),
            Outcome::Lose => Ok(false),
            Outcome::Fail(code) => Err(io::Error::from_raw_os_error(code)),
            Outcome::TimedOut => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the device did not answer within its deadline (scripted)",
            )),
        }
    }

    /// Flips the lowest bit of the bytes of `buf` (which is at `offset`) that are to be wrong.
    fn spoil(&self, buf: &mut [u8], offset: u64) {
        debug_assert!(self.outcome == Outcome::Proceed, "nothing moves otherwise");
        for range in &self.corrupt {
            for (at, byte) in (offset..).zip(buf.iter_mut()) {
                *byte ^= u8::from(range.contains(&at));
            }
        }
    }
}

/// A device with scripted faults.
#[derive(Debug)]
pub struct Faulty<D> {
    device: D,
    script: Arc<FaultScript>,
    deadline: Option<Duration>,
}

impl<D> Faulty<D> {
    /// `device`, with the faults of `script`. A scripted hang lasts at most `deadline`; without
    /// one it is only a delay.
    pub fn new(device: D, script: Arc<FaultScript>, deadline: Option<Duration>) -> Self {
        Self {
            device,
            script,
            deadline,
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.device
    }

    fn strike(&self, kind: Kind, offset: u64, len: usize) -> Verdict {
        let range = offset..offset.saturating_add(len as u64);
        self.script.strike(kind, range, self.deadline)
    }
}

impl<D: Device> Device for Faulty<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let verdict = self.strike(Kind::Read, offset, buf.len());
        let proceed = verdict.proceed()?;
        assert!(proceed, "scripts cannot lose reads");
        let len = buf.len().min(verdict.short.unwrap_or(usize::MAX));
        let n = self.device.read_at(&mut buf[..len], offset)?;
        debug_assert!(n <= len, "a device fills no more than the buffer");
        verdict.spoil(&mut buf[..n], offset);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let verdict = self.strike(Kind::Write, offset, buf.len());
        if !verdict.proceed()? {
            return Ok(());
        }
        let len = buf.len().min(verdict.short.unwrap_or(usize::MAX));
        if verdict.corrupt.is_empty() {
            self.device.write_at(&buf[..len], offset)?;
        } else {
            let mut wrong = buf[..len].to_vec();
            verdict.spoil(&mut wrong, offset);
            self.device.write_at(&wrong, offset)?;
        }
        if len < buf.len() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }

    fn transfer(&self, batch: &mut [Transfer<'_>]) {
        // A device has them under way at once, and is given up once. Writes are all tried: what is
        // said to be late must be on its way.
        let reads = batch.iter().all(|one| matches!(one.data, Data::Read(_)));
        let mut late = false;
        for one in batch {
            if late {
                one.result = Err(expired());
            } else {
                one.perform(self);
                late = reads && one.is_late();
            }
        }
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        if self.strike(Kind::Sync, 0, 0).proceed()? {
            self.device.sync(data_only)
        } else {
            Ok(())
        }
    }

    fn witness(&self) -> Witness {
        self.device.witness()
    }

    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        match self.strike(Kind::Sync, 0, 0).proceed()? {
            true => self.device.sync_before(witness, data_only),
            false => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        match self.strike(Kind::Write, offset, bytes).proceed()? {
            true => self.device.reserve(offset, len, ahead),
            false => Ok(()),
        }
    }

    fn give_back(&self) -> io::Result<()> {
        self.device.give_back()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.punch(offset, len)
    }

    fn late(&self) -> u32 {
        self.device.late()
    }

    fn label(&self) -> String {
        format!("{} with scripted faults", self.device.label())
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryDevice;
    use super::*;

    fn faulty(script: &str) -> Faulty<MemoryDevice> {
        faulty_within(script, None)
    }

    fn faulty_within(script: &str, deadline: Option<Duration>) -> Faulty<MemoryDevice> {
        let handle = FaultScript::new();
        handle.load(script).unwrap();
        Faulty::new(MemoryDevice::from_bytes(vec![8; 16384]), handle, deadline)
    }

    fn read(device: &impl Device, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut buf = vec![0; len];
        let n = device.read_at(&mut buf, offset)?;
        buf.truncate(n);
        Ok(buf)
    }

    fn code(result: io::Result<impl Sized>) -> Option<i32> {
        result.err().and_then(|e| e.raw_os_error())
    }

    #[test]
    fn without_rules_nothing_is_wrong() {
        let device = faulty("  # only a comment\n\n;;");
        assert_eq!(read(&device, 0, 3).unwrap(), [8, 8, 8]);
        device.write_at(&[1], 0).unwrap();
        device.sync(true).unwrap();
        assert_eq!(device.script.counts(), FaultCounts::default());
    }

    #[test]
    fn every_after_and_times_count_matching_requests() {
        let device = faulty("read after 2 every 3 times 2 fail EIO");
        let failed: Vec<usize> = (1..=20).filter(|_| read(&device, 0, 1).is_err()).collect();
        assert_eq!(failed, [5, 8]);
        let device = faulty("write after 3 fail ENOSPC");
        let failed: Vec<usize> = (1..=5)
            .filter(|_| device.write_at(&[1], 0).is_err())
            .collect();
        assert_eq!(failed, [4, 5]);
        assert_eq!(device.script.counts().failed, 2);
    }

    #[test]
    fn a_batch_waits_once_for_a_device_that_hangs() {
        let device = faulty_within("read after 1 hang 10s", Some(Duration::from_millis(5)));
        let mut pages = [[0; 512]; 16];
        let mut batch: Vec<_> = (0..)
            .zip(&mut pages)
            .map(|(at, page)| Transfer::read(at * 512, page))
            .collect();
        device.transfer(&mut batch);
        assert!(matches!(batch[0].result, Ok(512)));
        assert!(batch[1..].iter().all(Transfer::is_late));
        assert_eq!(device.script.counts().hung, 1);
    }

    #[test]
    fn operations_and_offsets_are_told_apart() {
        let device = faulty("read offset 4K..8K fail EIO; sync fail EROFS");
        assert!(read(&device, 0, 4096).is_ok());
        assert_eq!(code(read(&device, 0, 4097)), Some(libc::EIO));
        assert_eq!(code(read(&device, 8191, 1)), Some(libc::EIO));
        assert!(read(&device, 8192, 1).is_ok());
        device.write_at(&[0; 16], 4096).unwrap();
        assert_eq!(code(device.sync(false)), Some(libc::EROFS));
        let device = faulty("any fail ENODEV");
        assert_eq!(code(read(&device, 0, 1)), Some(libc::ENODEV));
        assert_eq!(code(device.write_at(&[1], 0)), Some(libc::ENODEV));
        assert_eq!(code(device.sync(true)), Some(libc::ENODEV));
    }

    #[test]
    fn corruption_stays_in_its_range() {
        let device = faulty("read offset 4..6 corrupt");
        assert_eq!(read(&device, 2, 6).unwrap(), [8, 8, 9, 9, 8, 8]);
        assert_eq!(device.inner().snapshot()[4], 8, "the device itself is fine");
        let device = faulty("write times 1 corrupt");
        device.write_at(&[2, 2], 0).unwrap();
        device.write_at(&[2, 2], 2).unwrap();
        assert_eq!(device.inner().snapshot()[..4], [3, 3, 2, 2]);
    }

    #[test]
    fn short_reads_torn_and_lost_writes() {
        let device = faulty("read short 512; write times 1 short 1; write lose; sync lose");
        assert_eq!(read(&device, 0, 4096).unwrap().len(), 512);
        assert_eq!(
            code(device.write_at(&[1, 1], 0)),
            None,
            "lost before it is torn"
        );
        let device = faulty("write times 1 short 1");
        assert_eq!(code(device.write_at(&[1, 1], 0)), Some(libc::EIO));
        assert_eq!(device.inner().snapshot()[..2], [1, 8]);
        let device = faulty("write lose");
        device.write_at(&[1, 1], 0).unwrap();
        assert_eq!(device.inner().snapshot()[..2], [8, 8]);
        assert_eq!(device.script.counts().lost, 1);
    }

    #[test]
    fn a_hang_ends_at_the_deadline() {
        let ms = Duration::from_millis;
        let device = faulty_within("read hang 1000s", Some(ms(2)));
        let error = read(&device, 0, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Shorter than the deadline, or no deadline: only late.
        assert!(read(&faulty_within("read hang 1ms", Some(ms(100_000))), 0, 1).is_ok());
        assert!(read(&faulty("read hang 1ms"), 0, 1).is_ok());
        assert_eq!(device.script.counts().hung, 1);
    }

    #[test]
    fn delays_do_not_time_out() {
        let device = faulty_within(
            "any delay 3ms; any delay 1ms",
            Some(Duration::from_millis(1)),
        );
        let begin = Instant::now();
        read(&device, 0, 1).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(4));
        assert_eq!(device.script.counts().delayed, 2);
    }

    #[test]
    fn clear_lets_hanging_requests_go_on() {
        let device = faulty_within("read hang 1000s", Some(Duration::from_secs(500)));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&device, 0, 2));
            while device.script.counts().hung == 0 {
                std::thread::yield_now();
            }
            device.script.clear();
            assert_eq!(reader.join().unwrap().unwrap(), [8, 8]);
        });
        assert!(read(&device, 0, 1).is_ok());
    }

    #[test]
    fn loading_adds_and_clear_drops() {
        let device = faulty("read fail EIO");
        device.script.load("sync fail EIO").unwrap();
        assert!(read(&device, 0, 1).is_err() && device.sync(true).is_err());
        device.script.load("clear; write fail EIO").unwrap();
        assert!(read(&device, 0, 1).is_ok() && device.write_at(&[0], 0).is_err());
        device.script.clear();
        assert!(device.write_at(&[0], 0).is_ok());
    }

    #[test]
    fn errors_name_line_and_word() {
        let error = |script: &str| FaultScript::new().load(script).unwrap_err();
        for (script, line, word) in [
            ("frobnicate", 1, "frobnicate"),
            ("read fail EIO\n\nread fial EIO", 3, "fial"),
            ("read fail EOOPS", 1, "EOOPS"),
            ("read", 1, "end of rule"),
            ("read every 0 fail EIO", 1, "0"),
            ("read after x fail EIO", 1, "x"),
            ("read offset 8..8 corrupt", 1, "8..8"),
            ("read offset 8 corrupt", 1, "8"),
            ("read delay 2", 1, "2"),
            ("read delay ms", 1, "ms"),
            ("read delay 2h", 1, "2h"),
            ("read short 1KK", 1, "1KK"),
            ("read short 99999999999G", 1, "99999999999G"),
            ("read fail EIO twice", 1, "twice"),
            ("clear all", 1, "all"),
            ("sync corrupt", 1, "corrupt"),
            ("read lose", 1, "lose"),
        ] {
            let found = error(script);
            assert_eq!((found.line, found.word.as_str()), (line, word), "{script}");
        }
        let shown = error("read fail EOOPS").to_string();
        assert_eq!(
            shown,
            "line 1: expected an error name, as in EIO, at \"EOOPS\""
        );
    }

    #[test]
    fn a_wrong_script_changes_nothing() {
        let device = faulty("read fail EIO");
        assert!(device.script.load("clear\nread fail EVIL").is_err());
        assert!(read(&device, 0, 1).is_err());
    }
}
