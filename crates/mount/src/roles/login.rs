//! Roles of threads that a MariaDB or MySQL server does not name, asked of the server.
//!
//! MariaDB before 11.7 and MySQL before 8.0.27 give their threads no names that the system shows.
//! Their Performance Schema knows what each is for: with a login that may read it, the mount asks.
//!
//! The server may be waiting for this mount while it is asked. So a thread of its own asks, by the
//! server's own client program, and nobody waits for that thread: a role is looked up in what was
//! last told.
//!
//! States of the asker: *quiet* (nobody wants to know), *asking* (the client runs), *resting* (for
//! a second after an answer, for ten after none).
//!
//! # Invariants
//! 1. The client runs only after somebody asked for a thread that is not known, or that was told
//!    longer ago than [`AGED`]: a mount without requests starts no program.
//! 2. What the client prints is bounded by [`ANSWER_MAX`], and what it does by [`PATIENCE`]; past
//!    them it is ended, and what was told before stays. The end of a mount waits for none of it.
//! 3. The option file is one that nobody but this process's user and root may write, or else read
//!    (the group may): it has a password, and says what code the client loads.
//! 4. Of a client's words only a server's or connection's error is repeated, without control
//!    characters: others may quote the option file.
//! 5. A role is given only to threads of the process whose main thread the answer names: another
//!    server's threads, in another process namespace, may have the same numbers.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thermocline_core::hint::Role;

use crate::lock::{lock, wait, wait_for};
use crate::sys;

/// Between an answer and the next question.
const REST: Duration = Duration::from_secs(1);
/// The same after no answer: the server may not be up yet.
const REST_UNTOLD: Duration = Duration::from_secs(10);
/// An answer older than this is asked for again by who uses it: numbers of threads are reused.
const AGED: Duration = Duration::from_secs(30);
/// How long the client may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer, at most; a server with 10,000 sessions prints 300 kB.
const ANSWER_MAX: usize = 4 << 20;
/// Threads asked for at once, at most; others are asked for when they make their next requests.
const WANTED_MAX: usize = 8192;
/// How soon an end is noticed while the client runs.
const GLANCE: Duration = Duration::from_millis(100);
/// The same when all that is left of it is to exit.
const BLINK: Duration = Duration::from_millis(5);
/// Bytes of the client's errors that are looked at.
const ERRORS_MAX: usize = 1000;
/// Write permission of the group, and any of others.
const OTHERS: u32 = 0o026;

const QUESTION: &str = "SELECT thread_os_id, name FROM performance_schema.threads \
    WHERE thread_os_id IS NOT NULL";

/// Client programs.
const CLIENTS: [&str; 2] = ["mariadb", "mysql"];

/// The thread every server has once: its number is that of the process.
const MAIN: &str = "thread/sql/main";

/// A login at one server.
#[derive(Debug)]
pub(super) struct Login {
    shared: Arc<Shared>,
    asker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Option file of the client, as for `mariadb --defaults-file`.
    options: PathBuf,
    /// Client programs, the first that there is.
    programs: Vec<PathBuf>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    told: Option<Told>,
    /// Threads that somebody asked for since the last answer, as they number themselves.
    wanted: HashSet<u32>,
    ended: bool,
}

/// An answer.
#[derive(Debug)]
struct Told {
    /// The server's process, as it numbers itself.
    process: u32,
    roles: HashMap<u32, Role>,
    at: Instant,
}

impl Told {
    /// The role of a thread of the server.
    fn role_of(&self, process: u32, thread: u32) -> Option<Role> {
        assert_eq!(
            process, self.process,
            "invariant 5: a thread of another server"
        );
        self.roles.get(&thread).copied()
    }
}

impl Login {
    /// Starts the thread that asks.
    ///
    /// # Errors
    /// That of opening the option file, `PermissionDenied` for one that others may write or read
    /// (rule 3), and that of starting a thread. A server that does not answer is none: it may start
    /// later.
    pub(super) fn start(options: &Path) -> io::Result<Self> {
        let options = checked(options).map_err(|error| {
            let path = options.display();
            io::Error::new(
                error.kind(),
                format!("mount.mariadb_login, {path}: {error}"),
            )
        })?;
        let shared = Arc::new(Shared {
            options,
            programs: CLIENTS.map(PathBuf::from).to_vec(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_asker = Arc::clone(&shared);
        let asker = std::thread::Builder::new().name("login".into());
        let asker = asker.spawn(move || of_asker.ask_on())?;
        Ok(Self {
            shared,
            asker: Some(asker),
        })
    }

    /// What the server last told of the thread `tid`. Asks if it told nothing, or long ago.
    pub(super) fn role_of(&self, tid: u32) -> Option<Role> {
        let (process, thread) = own_numbers(tid)?;
        let mut state = lock(&self.shared.state);
        let told = state.told.as_ref();
        let told = told.filter(|told| told.process == process);
        let role = told.and_then(|told| told.role_of(process, thread));
        let aged = told.is_none_or(|told| told.at.elapsed() > AGED);
        if (role.is_none() || aged) && state.wanted.len() < WANTED_MAX {
            state.wanted.insert(thread);
            self.shared.changed.notify_all();
        }
        role
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        lock(&self.shared.state).ended = true;
        self.shared.changed.notify_all();
        if let Some(asker) = self.asker.take() {
            // It holds nothing anybody needs, so a panic in it is the only news.
            let _ = asker.join();
        }
    }
}

impl Shared {
    /// The asker, until the end.
    fn ask_on(&self) {
        // So that the log has what changed, not what is.
        let mut last: Option<bool> = None;
        while self.wait_until_wanted() {
            let answer = self.ask();
            if last != Some(answer.is_ok()) {
                last = Some(answer.is_ok());
                let options = self.options.display();
                match &answer {
                    Ok(told) => sys::say(format_args!(
                        "the server behind {options} tells what {} threads are",
                        told.roles.len()
                    )),
                    Err(why) => sys::say(format_args!(
                        "the server behind {options} does not tell what its threads \
                         are, and is asked again every {} s: {why}",
                        REST_UNTOLD.as_secs()
                    )),
                }
            }
            let rest = match answer {
                Ok(told) => {
                    self.take(told);
                    REST
                }
                Err(_) => {
                    lock(&self.state).wanted.clear();
                    REST_UNTOLD
                }
            };
            self.rest(rest);
        }
    }

    /// An answer, in which a thread that was asked for and is not there has no role: it is not
    /// asked for again before the answer has aged.
    fn take(&self, mut told: Told) {
        let mut state = lock(&self.state);
        for thread in state.wanted.drain() {
            told.roles.entry(thread).or_insert(Role::Unknown);
        }
        assert!(
            told.roles.contains_key(&told.process),
            "an answer names the main thread"
        );
        state.told = Some(told);
    }

    /// Whether somebody wants to know, sooner or later; `false` at the end.
    fn wait_until_wanted(&self) -> bool {
        let mut state = lock(&self.state);
        while state.wanted.is_empty() && !state.ended {
            state = wait(&self.changed, state);
        }
        !state.ended
    }

    fn rest(&self, time: Duration) {
        assert!(!time.is_zero(), "the server is asked without a pause");
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while !state.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = wait_for(&self.changed, state, left);
        }
    }

    fn ask(&self) -> Result<Told, String> {
        let wanted = lock(&self.state).wanted.len();
        assert!(wanted > 0, "invariant 1: nobody wants to know");
        assert!(wanted <= WANTED_MAX, "more is wanted than is remembered");
        let mut client = self.start_client()?;
        let until = Instant::now() + PATIENCE;
        let ended = self.read_all(&mut client, until).and_then(|printed| {
            let status = self.wait_for_exit(&mut client, Some(until))?;
            Ok((printed, status))
        });
        if ended.is_err() {
            // Of a client that has ended already there is nothing to end.
            let _ = client.kill();
            self.wait_for_exit(&mut client, None)?;
        }
        let (printed, status) = ended?;
        match status.success() {
            true => read_answer(&printed),
            false => Err(self.told_of_failure(status, &errors_of(&mut client))),
        }
    }

    /// Waits until the client has exited, for as long as the mount is there.
    fn wait_for_exit(
        &self,
        client: &mut Child,
        until: Option<Instant>,
    ) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = client.try_wait().map_err(|error| error.to_string())? {
                return Ok(status);
            }
            let late = until.is_some_and(|until| Instant::now() >= until);
            if late || lock(&self.state).ended {
                return Err(no_answer());
            }
            std::thread::sleep(BLINK);
        }
    }

    /// What is said of a client that failed (rule 4).
    fn told_of_failure(&self, status: ExitStatus, errors: &[u8]) -> String {
        let errors = String::from_utf8_lossy(errors);
        match errors.lines().find(|line| line.starts_with("ERROR ")) {
            Some(line) => {
                let line = line.replace(char::is_control, " ");
                assert!(line.starts_with("ERROR "), "invariant 4: a server's error");
                format!("{status}: {line}")
            }
            None => format!(
                "{status}; mariadb --defaults-file={} says why",
                self.options.display()
            ),
        }
    }

    fn start_client(&self) -> Result<Child, String> {
        for program in &self.programs {
            let mut defaults = std::ffi::OsString::from("--defaults-file=");
            defaults.push(&self.options);
            let mut client = Command::new(program);
            client.arg(defaults).arg("--connect-timeout=2");
            client.args(["--batch", "--skip-column-names", "--execute", QUESTION]);
            client.stdin(Stdio::null());
            client.stdout(Stdio::piped()).stderr(Stdio::piped());
            match client.spawn() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                started => {
                    return started.map_err(|error| format!("{}: {error}", program.display()));
                }
            }
        }
        Err(format!("no client program: {}", CLIENTS.join(" or ")))
    }

    /// What the client prints, until it closes its output.
    fn read_all(&self, client: &mut Child, until: Instant) -> Result<Vec<u8>, String> {
        let mut output = client.stdout.take().ok_or("no output")?;
        let mut printed = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            if lock(&self.state).ended || Instant::now() >= until {
                return Err(no_answer());
            }
            if !is_readable(&output, GLANCE) {
                continue;
            }
            let len = output.read(&mut part).map_err(|error| error.to_string())?;
            if len == 0 {
                assert!(
                    printed.len() <= ANSWER_MAX,
                    "invariant 2: too long an answer"
                );
                return Ok(printed);
            }
            if printed.len() + len > ANSWER_MAX {
                return Err(format!("an answer of more than {ANSWER_MAX} bytes"));
            }
            printed.extend_from_slice(&part[..len]);
        }
    }
}

/// The option file at `path`, if it may be believed (rule 3).
fn checked(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    // Before it is opened: a pipe would keep whoever does that waiting.
    let found = std::fs::metadata(&path)?;
    let why = if !found.is_file() {
        "it is no file"
    } else if !is_ours(&found) {
        "it belongs to another user"
    } else if found.mode() & OTHERS != 0 {
        "its group may write it, or others may read or write it: chmod 600"
    } else {
        assert!(
            found.mode() & 0o022 == 0,
            "invariant 3: nobody else writes it"
        );
        return std::fs::File::open(&path).map(|_| path);
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Whether a file belongs to the user of this process, or to root.
fn is_ours(found: &std::fs::Metadata) -> bool {
    // SAFETY: no arguments, cannot fail.
    let user = unsafe { libc::geteuid() };
    found.uid() == user || found.uid() == 0
}

fn no_answer() -> String {
    format!("no answer in {} s", PATIENCE.as_secs())
}

/// What a client that has exited said of its failure. What it started may hold its errors open: no
/// more is waited for.
fn errors_of(client: &mut Child) -> Vec<u8> {
    let mut said = vec![0; ERRORS_MAX];
    let errors = client.stderr.take();
    let errors = errors.filter(|errors| is_readable(errors, Duration::ZERO));
    let read = errors.and_then(|mut errors| errors.read(&mut said).ok());
    said.truncate(read.unwrap_or(0));
    said
}

/// Whether there is something to read, or the end of it, within `time`.
fn is_readable(output: &impl AsRawFd, time: Duration) -> bool {
    let mut wanted = libc::pollfd {
        fd: output.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `wanted` is one valid entry for the length of the call.
    unsafe { libc::poll(&raw mut wanted, 1, time) > 0 }
}

/// The roles in what the client printed: a number, a tab and a name in each line.
fn read_answer(printed: &[u8]) -> Result<Told, String> {
    assert!(
        printed.len() <= ANSWER_MAX,
        "invariant 2: the reader bounds it"
    );
    let mut roles = HashMap::new();
    let mut process = None;
    for line in String::from_utf8_lossy(printed).lines() {
        let Some((number, name)) = line.split_once('\t') else {
            continue;
        };
        let Ok(number) = number.parse() else {
            continue;
        };
        if name == MAIN {
            process = Some(number);
        }
        roles.insert(number, role_named(name));
    }
    let process = process.ok_or("performance_schema is off: start the server with it on")?;
    Ok(Told {
        process,
        roles,
        at: Instant::now(),
    })
}

/// The role of a thread by its name in `performance_schema.threads`.
fn role_named(name: &str) -> Role {
    let name = name.strip_prefix("thread/").unwrap_or(name);
    let known = NAMES.iter().find(|(prefix, _)| name.starts_with(prefix));
    known.map_or(Role::Auxiliary, |(_, role)| *role)
}

/// Names begin so; the first that fits counts.
const NAMES: &[(&str, Role)] = &[
    ("sql/one_connection", Role::Backend),
    ("sql/replica", Role::Replication),
    ("sql/slave", Role::Replication),
    ("sql/bootstrap", Role::Maintenance),
    ("innodb/page_cleaner", Role::PageCleaner),
    ("innodb/page_flush", Role::PageCleaner),
    ("innodb/io_", Role::IoWorker),
    ("innodb/thread_pool", Role::IoWorker),
    ("innodb/parallel_read", Role::ParallelWorker),
    ("innodb/log_", Role::WalWriter),
    ("innodb/srv_purge", Role::Autovacuum),
    ("innodb/srv_worker", Role::Autovacuum),
    ("innodb/recv_", Role::Recovery),
    ("innodb/dict_stats", Role::Maintenance),
    ("threadpool/worker", Role::Backend),
];

/// The numbers of a thread's process and of itself as they see them, in their innermost namespace.
fn own_numbers(tid: u32) -> Option<(u32, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let innermost = |key: &str| -> Option<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next_back()?.parse().ok()
    };
    Some((innermost("NStgid:")?, innermost("NSpid:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_mariadb_10_11() {
        let told = read_answer(
            b"23128\tthread/sql/main\n23133\tthread/innodb/page_cleaner_thread\n\
              23134\tthread/innodb/thread_pool_thread\n23138\tthread/sql/signal_handler\n\
              23141\tthread/sql/one_connection\n",
        );
        let told = told.expect("an answer");
        assert_eq!(told.process, 23128);
        for (thread, role) in [
            (23128, Role::Auxiliary),
            (23133, Role::PageCleaner),
            (23134, Role::IoWorker),
            (23138, Role::Auxiliary),
            (23141, Role::Backend),
        ] {
            assert_eq!(told.roles.get(&thread), Some(&role), "{thread}");
        }
    }

    #[test]
    fn an_answer_without_threads_says_what_to_do() {
        let said = read_answer(b"").expect_err("no threads");
        assert!(said.contains("performance_schema"), "{said}");
        assert!(read_answer(b"x\ty\n\xff\xfe\n-4\tthread/sql/main\n").is_err());
    }

    #[test]
    fn the_numbers_of_this_thread() {
        // SAFETY: the call always succeeds.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        let (process, thread) = own_numbers(tid).expect("alive");
        assert_eq!(process, std::process::id());
        assert_eq!(thread, tid);
        assert_eq!(own_numbers(1 << 30), None);
    }

    /// What a client that is this shell script makes of a question.
    fn asked_of(script: &str) -> Result<Told, String> {
        let directory = tempfile::tempdir().expect("directory");
        let client = directory.path().join("client");
        // Written by another process: none that is started beside holds it open for writing.
        let made = Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 700 \"$0\"",
            ])
            .arg(&client)
            .arg(script)
            .status();
        assert!(made.expect("a shell").success());
        let shared = Shared {
            options: PathBuf::from("/etc/login.cnf"),
            programs: vec![directory.path().join("none"), client],
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        lock(&shared.state).wanted.insert(1);
        shared.ask()
    }

    #[test]
    fn what_a_client_says_of_its_file_is_not_repeated() {
        let told = asked_of("printf '7\\tthread/sql/main\\n'").expect("an answer");
        assert_eq!(told.process, 7);
        let said = asked_of("echo \"client: unknown variable 'pasword=hunter2'\" >&2; exit 7");
        let said = said.expect_err("it failed");
        assert!(said.contains("exit status: 7"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let said = asked_of("printf 'x\\nERROR 1045 (28000): Denied\\033[2J\\r.\\nno' >&2; exit 1");
        let said = said.expect_err("it failed");
        assert!(
            said.ends_with(": ERROR 1045 (28000): Denied [2J ."),
            "{said:?}"
        );
    }

    #[test]
    fn a_client_that_does_not_end_is_ended() {
        for script in ["exec sleep 20", "exec >&-; sleep 20", "yes"] {
            let said = asked_of(script).expect_err("no answer");
            assert!(said.contains("an"), "{said}");
            assert!(!said.contains("performance_schema"), "{script}: {said}");
        }
        // Its child holds what it said open.
        let said = asked_of("exec >&-; sleep 20 & echo ERROR 1 >&2; exit 3");
        assert!(said.expect_err("it failed").ends_with(": ERROR 1"));
    }

    #[test]
    fn a_login_that_others_can_write_or_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("login.cnf");
        std::fs::write(&path, "[client]\n").expect("written");
        for (mode, taken) in [
            (0o600, true),
            (0o640, true),
            (0o660, false),
            (0o644, false),
            (0o602, false),
        ] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            assert_eq!(checked(&path).is_ok(), taken, "{mode:o}");
        }
        assert!(checked(directory.path()).is_err(), "a directory");
        assert!(checked(Path::new("/dev/null")).is_err(), "a device");
        let fifo = directory.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo").success());
        assert!(checked(&fifo).is_err(), "a pipe, and nobody waits for it");
    }

    #[test]
    fn a_login_that_is_not_there_is_an_error() {
        let error = Login::start(Path::new("/nowhere/login.cnf")).expect_err("no file");
        assert!(error.to_string().contains("mount.mariadb_login"), "{error}");
    }
}
