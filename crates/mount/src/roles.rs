//! Who makes a request, from the name of the calling thread.
//!
//! PostgreSQL keeps each process's present activity in its command line ("title"). Reading a
//! command line takes the target's address-space lock, which the target may hold while it
//! waits for *this* mount to serve a page fault: a request handler that read it would wait for
//! itself. Therefore the request path only looks into a table. A helper thread fills it; its
//! result is never awaited, and a thread's first requests simply have no role.
//!
//! States of an entry: *unknown* (queued for its first resolution), *known*, *stale* (older
//! than its refresh interval and asked for again: queued). A thread that has exited is noticed
//! when it is next asked for; the sweep of a full table removes the others.
//!
//! What the two sides keep to:
//! 1. The request path takes one read lock, reads the coarse clock, and at most puts a number
//!    into a bounded queue. It opens and reads nothing.
//! 2. An entry holds the thread's open `comm` file, which is bound to the thread and not to its
//!    number: when the number is reused, reading it gives `ESRCH` and the entry goes. A new
//!    thread can be taken for the old one for one refresh interval at most.
//! 3. `cmdline` is read by the helper only, and only of processes called `postgres`.
//!
//! A server of MariaDB or MySQL that does not name its threads can be asked: [`login`].

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;

use thermocline_core::hint::Role;

use crate::lock::{read, write};

mod login;

use login::Login;

/// Titles of PostgreSQL processes change with every statement.
const REFRESH_TITLE_MS: u64 = 20;
/// Names of other threads do not change; this only notices reused numbers.
const REFRESH_NAME_MS: u64 = 1000;
/// Resolutions waiting for the helper; more are dropped and asked for again later.
const QUEUE: usize = 1024;
/// Threads remembered; a sweep removes the dead ones when there are more.
const THREADS_MAX: usize = 8192;

#[derive(Debug)]
struct Entry {
    role: AtomicU8,
    /// Milliseconds on the coarse clock after which the entry is stale.
    stale_at: AtomicU64,
    queued: AtomicBool,
    comm: Option<File>,
}

impl Entry {
    fn role(&self) -> Role {
        Role::from_value(u32::from(self.role.load(Ordering::Relaxed)))
    }
}

type Table = RwLock<HashMap<u32, Arc<Entry>>>;

/// The roles of all threads that ever asked, as far as known.
#[derive(Debug)]
pub(crate) struct Roles {
    table: Arc<Table>,
    queue: Option<SyncSender<u32>>,
    helper: Option<JoinHandle<()>>,
}

impl Roles {
    /// Starts the helper thread.
    pub(crate) fn start() -> io::Result<Self> {
        Self::told_by(None)
    }

    /// The same, with a login at a server: the option file of its client.
    ///
    /// # Errors
    /// That of opening the option file, and of starting a thread.
    pub(crate) fn start_with(login: &Path) -> io::Result<Self> {
        Self::told_by(Some(Login::start(login)?))
    }

    fn told_by(login: Option<Login>) -> io::Result<Self> {
        let table = Arc::new(Table::default());
        let (queue, wanted) = sync_channel(QUEUE);
        let shared = Arc::clone(&table);
        let helper = std::thread::Builder::new().name("roles".into());
        let helper = helper.spawn(move || resolve_all(&wanted, &shared, login.as_ref()))?;
        Ok(Self {
            table,
            queue: Some(queue),
            helper: Some(helper),
        })
    }

    /// The role of a thread as last seen; unknown for one never seen before.
    pub(crate) fn of(&self, tid: u32) -> Role {
        if tid == 0 {
            return Role::Unknown;
        }
        let table = read(&self.table);
        let Some(entry) = table.get(&tid) else {
            drop(table);
            self.first_sight(tid);
            return Role::Unknown;
        };
        if entry.stale_at.load(Ordering::Relaxed) < now_ms()
            && !entry.queued.swap(true, Ordering::Relaxed)
            && !self.ask(tid)
        {
            entry.queued.store(false, Ordering::Relaxed);
        }
        entry.role()
    }

    fn first_sight(&self, tid: u32) {
        assert_ne!(tid, 0, "0 is nobody");
        let mut table = write(&self.table);
        table.entry(tid).or_insert_with(|| Arc::new(blank(None)));
        drop(table);
        if !self.ask(tid) {
            let mut table = write(&self.table);
            table.remove(&tid);
        }
    }

    fn ask(&self, tid: u32) -> bool {
        self.queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(tid).is_ok())
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(helper) = self.helper.take() {
            // The helper may be stuck behind a process's lock for as long as that process
            // waits; it holds nothing anybody needs, so a panic in it is the only news.
            let _ = helper.join();
        }
    }
}

fn blank(comm: Option<File>) -> Entry {
    let stale_at = AtomicU64::new(u64::MAX);
    Entry {
        role: AtomicU8::new(0),
        stale_at,
        queued: AtomicBool::new(true),
        comm,
    }
}

/// The helper thread: resolves queued threads until the queue is closed.
fn resolve_all(wanted: &Receiver<u32>, table: &Table, login: Option<&Login>) {
    while let Ok(tid) = wanted.recv() {
        let known = {
            let table = read(table);
            table.get(&tid).cloned()
        };
        let resolved = resolve(tid, known.as_deref(), login);
        let mut table = write(table);
        match resolved {
            Some(Resolved::Refreshed) => {}
            Some(Resolved::New(entry)) => {
                if table.len() >= THREADS_MAX {
                    table.retain(|_, entry| entry.comm.as_ref().is_some_and(is_alive));
                }
                table.insert(tid, Arc::new(entry));
            }
            None => {
                // Gone, or not to be seen from here: not asked for again at once.
                let entry = blank(None);
                entry
                    .stale_at
                    .store(now_ms() + REFRESH_NAME_MS, Ordering::Relaxed);
                entry.queued.store(false, Ordering::Relaxed);
                table.insert(tid, Arc::new(entry));
            }
        }
    }
}

enum Resolved {
    Refreshed,
    New(Entry),
}

/// What a thread is now. `None` when it is gone.
fn resolve(tid: u32, known: Option<&Entry>, login: Option<&Login>) -> Option<Resolved> {
    if let Some(entry) = known
        && let Some(comm) = &entry.comm
        && let Some(name) = read_comm(comm)
    {
        fill(entry, tid, &name, login);
        return Some(Resolved::Refreshed);
    }
    let comm = File::open(format!("/proc/{tid}/comm")).ok()?;
    let name = read_comm(&comm)?;
    let entry = blank(Some(comm));
    fill(&entry, tid, &name, login);
    Some(Resolved::New(entry))
}

fn fill(entry: &Entry, tid: u32, name: &str, login: Option<&Login>) {
    let (role, refresh) = role_of(tid, name, login);
    assert!(role.value() <= u32::from(u8::MAX), "roles are bytes");
    assert!(
        refresh >= REFRESH_TITLE_MS,
        "a title is looked at too often"
    );
    entry.role.store(role.value() as u8, Ordering::Relaxed);
    entry.stale_at.store(now_ms() + refresh, Ordering::Relaxed);
    entry.queued.store(false, Ordering::Relaxed);
}

fn role_of(tid: u32, name: &str, login: Option<&Login>) -> (Role, u64) {
    // Kernel threads that finish buffered io_uring writes are named for the thread that
    // submitted them.
    if let Some(submitter) = name.strip_prefix("iou-wrk-").and_then(|n| n.parse().ok()) {
        let comm = std::fs::read_to_string(format!("/proc/{submitter}/comm"));
        return match comm {
            Ok(comm) if !comm.starts_with("iou-wrk-") => role_of(submitter, comm.trim_end(), login),
            _ => (Role::Unknown, REFRESH_NAME_MS),
        };
    }
    match name {
        "postgres" => {
            let title = std::fs::read(format!("/proc/{tid}/cmdline")).unwrap_or_default();
            (postgres_role(&title), REFRESH_TITLE_MS)
        }
        // A thread without a name of its own, as all of MariaDB before 11.7 and of MySQL before
        // 8.0.27: page cleaner or session, unknown unless the server tells.
        "mariadbd" | "mysqld" => {
            let told = login.and_then(|login| login.role_of(tid));
            (told.unwrap_or(Role::Unknown), REFRESH_NAME_MS)
        }
        _ => {
            let role = innodb_role(name).or_else(|| {
                let session = ["connection", "one_connection"].contains(&name);
                (session && is_of_mysql(tid)).then_some(Role::Backend)
            });
            (role.unwrap_or(Role::Application), REFRESH_NAME_MS)
        }
    }
}

/// The role a thread of MySQL (8.0.27 and later) or MariaDB (11.7 and later) has by its name: the
/// one that its Performance Schema gives the operating system, cut to 15 bytes.
fn innodb_role(name: &str) -> Option<Role> {
    let known = |(prefix, _): &&(&str, Role)| name.starts_with(prefix);
    THREADS.iter().find(known).map(|(_, role)| *role)
}

/// Names of threads begin so; the first that fits counts.
const THREADS: &[(&str, Role)] = &[
    ("page_cleaner", Role::PageCleaner),
    ("ib_pg_flush", Role::PageCleaner),
    ("ib_io_", Role::IoWorker),
    ("ib_tpool_worker", Role::IoWorker),
    ("ib_par_rd", Role::ParallelWorker),
    ("ib_log_", Role::WalWriter),
    ("ib_srv_purge", Role::Autovacuum),
    ("ib_srv_wkr", Role::Autovacuum),
    ("ib_recv_", Role::Recovery),
    ("ib_tx_recov", Role::Recovery),
    ("ib_dict_stats", Role::Maintenance),
    ("ib_", Role::Auxiliary),
];

/// Whether the thread's process is a server of MySQL or MariaDB.
fn is_of_mysql(tid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let Some(process) = process.and_then(|number| number.trim().parse::<u32>().ok()) else {
        return false;
    };
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    ["mysqld", "mariadbd"].contains(&name.trim_end())
}

fn read_comm(comm: &File) -> Option<String> {
    let mut buf = [0; 64];
    let len = comm.read_at(&mut buf, 0).ok()?;
    Some(String::from_utf8_lossy(&buf[..len]).trim_end().to_owned())
}

fn is_alive(comm: &File) -> bool {
    comm.read_at(&mut [0; 1], 0).is_ok()
}

/// The role a PostgreSQL process title stands for (`update_process_title`, on by default).
///
/// `postgres: [CLUSTER: ]checkpointer`, `postgres: USER DATABASE HOST(PORT) COMMAND`. The
/// postmaster and stand-alone processes have an ordinary command line instead.
pub(crate) fn postgres_role(title: &[u8]) -> Role {
    let title = String::from_utf8_lossy(title);
    let title = title.trim_end_matches(['\0', ' ']);
    let Some(rest) = title.strip_prefix("postgres: ") else {
        return Role::Auxiliary;
    };
    let known = |text: &str| {
        PROCESSES
            .iter()
            .find(|(prefix, _)| text.starts_with(prefix))
    };
    let after_cluster = rest.split_once(": ").map_or("", |(_, rest)| rest);
    if let Some((_, role)) = known(rest).or_else(|| known(after_cluster)) {
        return *role;
    }
    backend_command(rest).map_or(Role::Auxiliary, command_role)
}

const PROCESSES: &[(&str, Role)] = &[
    ("checkpointer", Role::Checkpointer),
    ("background writer", Role::BackgroundWriter),
    ("walwriter", Role::WalWriter),
    ("autovacuum", Role::Autovacuum),
    ("parallel worker", Role::ParallelWorker),
    ("io worker", Role::IoWorker),
    ("startup", Role::Recovery),
    ("walsender", Role::Replication),
    ("walreceiver", Role::Replication),
    ("archiver", Role::Replication),
    ("logical replication", Role::Replication),
];

/// The command tag of a session: what follows `[local]` or `HOST(PORT)`.
fn backend_command(title: &str) -> Option<&str> {
    let mut from = 0;
    for word in title.split(' ') {
        let end = from + word.len();
        let has_port = word
            .strip_suffix(')')
            .and_then(|w| w.rsplit_once('('))
            .is_some_and(|(_, port)| {
                !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
            });
        if word == "[local]" || has_port {
            return Some(title[end..].trim_start());
        }
        from = end + 1;
    }
    None
}

fn command_role(command: &str) -> Role {
    const MAINTENANCE: &[&str] = &[
        "VACUUM",
        "ANALYZE",
        "CREATE",
        "COPY",
        "REINDEX",
        "CLUSTER",
        "ALTER",
        "REFRESH",
        "DROP",
        "TRUNCATE",
        "CHECKPOINT",
        "BASE_BACKUP",
    ];
    let first = command.split(' ').next().unwrap_or("");
    match first {
        _ if MAINTENANCE.contains(&first) => Role::Maintenance,
        "START_REPLICATION" | "streaming" => Role::Replication,
        _ => Role::Backend,
    }
}

/// Milliseconds on the coarse monotonic clock, which costs no system call.
pub(crate) fn now_ms() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid `timespec`. The clock exists, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_of_postgresql() {
        for (title, role) in [
            ("postgres: checkpointer ", Role::Checkpointer),
            ("postgres: main: checkpointer ", Role::Checkpointer),
            ("postgres: background writer ", Role::BackgroundWriter),
            ("postgres: walwriter ", Role::WalWriter),
            ("postgres: autovacuum launcher ", Role::Autovacuum),
            ("postgres: autovacuum worker app", Role::Autovacuum),
            (
                "postgres: startup recovering 000000010000000000000003",
                Role::Recovery,
            ),
            (
                "postgres: parallel worker for PID 812 ",
                Role::ParallelWorker,
            ),
            ("postgres: io worker 2", Role::IoWorker),
            (
                "postgres: walsender rep 10.0.0.7(51312) streaming 0/3000148",
                Role::Replication,
            ),
            ("postgres: logical replication launcher ", Role::Replication),
            ("postgres: app shop [local] SELECT", Role::Backend),
            (
                "postgres: app shop [local] idle in transaction",
                Role::Backend,
            ),
            (
                "postgres: app shop 127.0.0.1(55012) VACUUM",
                Role::Maintenance,
            ),
            (
                "postgres: app shop 127.0.0.1(55012) CREATE INDEX",
                Role::Maintenance,
            ),
            ("postgres: my user my db ::1(5) COPY", Role::Maintenance),
            ("postgres: app shop [local] initializing", Role::Backend),
            (
                "/usr/lib/postgresql/15/bin/postgres\0-D\0/data",
                Role::Auxiliary,
            ),
            ("", Role::Auxiliary),
        ] {
            let seen = postgres_role(format!("{title}\0\0").as_bytes());
            assert_eq!(seen, role, "{title:?}");
        }
    }

    #[test]
    fn names_of_threads_of_mysql_and_mariadb() {
        for (name, role) in [
            ("ib_pg_flush_co", Some(Role::PageCleaner)),
            ("ib_pg_flush-3", Some(Role::PageCleaner)),
            ("page_cleaner", Some(Role::PageCleaner)),
            ("ib_io_rd-4", Some(Role::IoWorker)),
            ("ib_log_writer", Some(Role::WalWriter)),
            ("ib_srv_purge", Some(Role::Autovacuum)),
            ("ib_srv_wkr-2", Some(Role::Autovacuum)),
            ("ib_buf_dump", Some(Role::Auxiliary)),
            ("connection", None),
            ("library", None),
        ] {
            assert_eq!(innodb_role(name), role, "{name}");
        }
    }

    #[test]
    fn a_session_is_one_of_a_server() {
        // A thread of this name in a process that is no server of MySQL.
        let thread = std::thread::Builder::new().name("connection".into());
        let thread = thread.spawn(|| {
            // SAFETY: the call always succeeds.
            let tid = unsafe { libc::gettid() }.unsigned_abs();
            assert_eq!(role_of(tid, "connection", None).0, Role::Application);
            assert_eq!(role_of(tid, "ib_pg_flush-1", None).0, Role::PageCleaner);
        });
        thread.expect("starts").join().expect("ends");
    }

    #[test]
    fn a_thread_is_resolved_without_being_waited_for() {
        let roles = Roles::start().unwrap();
        // SAFETY: the call always succeeds.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        assert_eq!(roles.of(0), Role::Unknown);
        assert_eq!(roles.of(tid), Role::Unknown);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while roles.of(tid) != Role::Application {
            assert!(std::time::Instant::now() < deadline, "never resolved");
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_that_are_gone_are_forgotten() {
        let roles = Roles::start().unwrap();
        // Above the largest pid_max there is.
        roles.of(1 << 30);
        drop(roles);
        let table = Table::default();
        table
            .write()
            .unwrap()
            .insert(1 << 30, Arc::new(blank(None)));
        let table = table.read().unwrap();
        let known = table.get(&(1 << 30)).map(|entry| &**entry);
        assert!(resolve(1 << 30, known, None).is_none());
    }
}
