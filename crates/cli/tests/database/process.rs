//! Processes a test starts: each ends with the test, whatever happens to it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::ground::{User, program};

/// Longest wait for anything that should happen at once; passing does not depend on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until `condition` gives a value.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The installed program `name`, to be run as `user` (if root runs the test).
pub(crate) fn command(name: &str, user: User) -> Command {
    let path = program(name).unwrap_or_else(|| panic!("no program {name}"));
    let mut command = Command::new(path);
    command.uid(user.uid).gid(user.gid).current_dir("/");
    command.env_remove("LANG").env("LC_ALL", "C");
    command
}

/// Runs `command` to its end; its output, or a panic with what it said.
pub(crate) fn succeed(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("starts");
    let said = String::from_utf8_lossy(&stdout);
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{said}\n{errors}");
    said.trim_end().to_string()
}

/// As [`succeed`], with `input` on its standard input.
pub(crate) fn feed(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut pipe = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || pipe.write_all(input.as_bytes()));
        child.wait_with_output().expect("ends")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_string()
}

/// A process in the background, with its output in a file.
#[derive(Debug)]
pub(crate) struct Background {
    child: Child,
    pub(crate) log: PathBuf,
}

impl Background {
    /// Starts it; `log` is added to.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("log");
        let errors = output.try_clone().expect("log");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn();
        Self {
            child: child.unwrap_or_else(|e| panic!("{command:?}: {e}")),
            log: log.to_path_buf(),
        }
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waits")
    }

    /// Panics with its output when it has ended.
    pub(crate) fn check_running(&mut self) {
        if let Some(status) = self.ended() {
            panic!("ended, {status}:\n{}", self.said());
        }
    }

    /// Sends `signal`, unless it has ended.
    pub(crate) fn signal(&mut self, signal: i32) {
        if self.ended().is_none() {
            let pid = self.child.id().cast_signed();
            // SAFETY: no pointers. The child has not been waited for, so the number is its own.
            let sent = unsafe { libc::kill(pid, signal) };
            assert_eq!(sent, 0, "signal {signal} to {pid}");
        }
    }

    /// Waits for the end.
    pub(crate) fn join(&mut self) -> ExitStatus {
        wait_for("the end of a process", || self.ended())
    }

    /// Ends it by `signal`, or by force after `patience`.
    pub(crate) fn end(&mut self, signal: i32, patience: Duration) {
        self.signal(signal);
        let started = Instant::now();
        while self.ended().is_none() && started.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.signal(libc::SIGKILL);
        // A panicking test must not panic again.
        let _gone = self.child.wait();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end(libc::SIGKILL, Duration::ZERO);
    }
}
