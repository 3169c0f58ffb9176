//! The VFS against the stock one: same SQL, same answers, same file.

mod fixture;

use std::ffi::CStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use fixture::{Fixture, dump, fill, integrity};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

#[test]
fn every_journal_mode_keeps_the_database_whole() {
    for mode in ["delete", "truncate", "persist", "memory", "wal", "off"] {
        let fixture = Fixture::new(&format!("mode-{mode}"));
        let path = fixture.path("a.db");
        let db = fixture.connect(&path);
        db.execute_batch("PRAGMA locking_mode=exclusive").unwrap();
        let got: String = db
            .query_row(&format!("PRAGMA journal_mode={mode}"), [], |r| r.get(0))
            .unwrap();
        assert_eq!(got, mode);
        fill(&db, 2_000, 7);
        db.execute_batch("BEGIN; UPDATE t SET body = body || 'x'; COMMIT")
            .unwrap();
        if mode != "off" {
            db.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
        }
        assert_eq!(integrity(&db), "ok");
        let through_engine = dump(&db);
        drop(db);
        let stock = Connection::open(&path).unwrap();
        assert_eq!(dump(&stock), through_engine, "mode {mode}");
        assert_eq!(integrity(&stock), "ok");
    }
}

#[test]
fn a_journal_that_root_makes_is_the_owners_of_the_database() {
    let fixture = Fixture::new("owner");
    let path = fixture.path("a.db");
    drop(fixture.connect(&path).execute_batch("CREATE TABLE a(b)"));
    if chown(&path, Some(65_534), Some(65_533)).is_err() {
        println!("skipped: giving files away needs root");
        return;
    }
    let owner = |path: &Path| {
        let found = std::fs::metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    for (mode, suffix) in [("persist", "-journal"), ("wal", "-wal")] {
        let db = fixture.connect(&path);
        let setup = format!("PRAGMA locking_mode=exclusive; PRAGMA journal_mode={mode}");
        db.execute_batch(&setup).unwrap();
        db.execute_batch("INSERT INTO a VALUES (1)").unwrap();
        let journal = fixture.path(&format!("a.db{suffix}"));
        assert_eq!(owner(&journal), owner(&path), "{mode}");
        assert_eq!(owner(&journal).0, 65_534, "{mode}");
    }
}

#[test]
fn wal_without_exclusive_locking_is_not_offered() {
    let fixture = Fixture::new("wal-shared");
    let db = fixture.connect(&fixture.path("a.db"));
    let got: String = db
        .query_row("PRAGMA journal_mode=wal", [], |r| r.get(0))
        .unwrap();
    assert_eq!(got, "delete");
}

#[test]
fn vacuum_and_shrinking_leave_no_stale_pages() {
    let fixture = Fixture::new("vacuum");
    let path = fixture.path("a.db");
    let db = fixture.connect(&path);
    fill(&db, 5_000, 3);
    db.execute_batch("DELETE FROM t WHERE id % 3 <> 0; VACUUM")
        .unwrap();
    assert_eq!(integrity(&db), "ok");
    fill(&db, 3_000, 4);
    db.execute_batch("PRAGMA page_size=8192; VACUUM").unwrap();
    assert_eq!(integrity(&db), "ok");
    let through_engine = dump(&db);
    drop(db);
    assert_eq!(dump(&Connection::open(&path).unwrap()), through_engine);
}

#[test]
fn a_transaction_larger_than_the_cache_spills_and_rolls_back() {
    let fixture = Fixture::new("spill");
    let db = fixture.connect(&fixture.path("a.db"));
    db.execute_batch("PRAGMA cache_size=10; PRAGMA temp_store=file")
        .unwrap();
    fill(&db, 3_000, 11);
    let before = dump(&db);
    db.execute_batch("BEGIN").unwrap();
    db.execute_batch("UPDATE t SET body = upper(body) || hex(randomblob(50))")
        .unwrap();
    db.execute_batch("CREATE TABLE u AS SELECT * FROM t ORDER BY body")
        .unwrap();
    db.execute_batch("SAVEPOINT s; DELETE FROM u; ROLLBACK TO s")
        .unwrap();
    let copied: i64 = db
        .query_row("SELECT count(*) FROM u", [], |r| r.get(0))
        .unwrap();
    assert_eq!(copied, 3_000);
    db.execute_batch("ROLLBACK").unwrap();
    assert_eq!(dump(&db), before);
    assert_eq!(integrity(&db), "ok");
}

#[test]
fn attached_databases_commit_together() {
    let fixture = Fixture::new("attach");
    let db = fixture.connect(&fixture.path("a.db"));
    fill(&db, 500, 1);
    let attach = format!("ATTACH '{}' AS other", fixture.path("b.db").display());
    db.execute_batch(&attach).unwrap();
    db.execute_batch("CREATE TABLE other.t(id INTEGER PRIMARY KEY, body TEXT, n INT)")
        .unwrap();
    db.execute_batch("BEGIN; INSERT INTO other.t SELECT * FROM main.t; DELETE FROM main.t; COMMIT")
        .unwrap();
    drop(db);
    let other = fixture.connect(&fixture.path("b.db"));
    let moved: i64 = other
        .query_row("SELECT count(*) FROM t", [], |r| r.get(0))
        .unwrap();
    assert_eq!(moved, 500);
    assert_eq!(integrity(&other), "ok");
}

#[test]
fn connections_of_one_process_share_and_exclude() {
    let fixture = Fixture::new("two");
    let path = fixture.path("a.db");
    let (one, two) = (fixture.connect(&path), fixture.connect(&path));
    fill(&one, 200, 5);
    assert_eq!(dump(&two), dump(&one));
    one.execute_batch("BEGIN IMMEDIATE; UPDATE t SET n = n + 1")
        .unwrap();
    let refused = two.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    one.execute_batch("COMMIT").unwrap();
    assert_eq!(
        dump(&two),
        dump(&one),
        "a commit is seen by the other connection"
    );
    two.execute_batch("UPDATE t SET n = n * 2").unwrap();
    assert_eq!(dump(&two), dump(&one));
    one.execute_batch("PRAGMA locking_mode=exclusive; UPDATE t SET n = 0")
        .unwrap();
    let refused = two
        .query_row("SELECT count(*) FROM t", [], |_| Ok(()))
        .unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
}

#[test]
fn another_process_is_busy_until_we_close() {
    let fixture = Fixture::new("process");
    let path = fixture.path("a.db");
    let db = fixture.connect(&path);
    fill(&db, 100, 2);
    assert_eq!(child("probe_from_another_process", &path), "busy");
    drop(db);
    assert_eq!(child("probe_from_another_process", &path), "rows 100");
}

#[test]
fn changes_made_by_another_process_in_between_are_seen() {
    let fixture = Fixture::new("foreign");
    let path = fixture.path("a.db");
    let db = fixture.connect(&path);
    fill(&db, 1_000, 2);
    assert_eq!(integrity(&db), "ok");
    drop(db);
    assert_eq!(child("write_from_another_process", &path), "written");
    let db = fixture.connect(&path);
    let sum: i64 = db
        .query_row("SELECT sum(n) FROM t", [], |r| r.get(0))
        .unwrap();
    assert_eq!(sum, 1_000 * 77);
    assert_eq!(integrity(&db), "ok");
}

/// A file system that keeps whole seconds, at `mnt` below a directory.
struct WholeSeconds(tempfile::TempDir);

impl WholeSeconds {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let disk = std::fs::File::create(dir.path().join("disk")).unwrap();
        disk.set_len(32 << 20).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(dir.path());
            command.output().is_ok_and(|done| done.status.success())
        };
        let done = run("mkfs.ext4", &["-q", "-I", "128", "disk"])
            && run("mount", &["-o", "loop", "disk", "mnt"]);
        let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some();
        assert!(done || !required, "required, but no loop device");
        done.then_some(Self(dir))
    }
}

impl Drop for WholeSeconds {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        let _ = command.arg("-l").arg(self.0.path().join("mnt")).status();
    }
}

#[test]
fn changes_by_others_in_the_second_of_ours_are_seen() {
    let Some(base) = WholeSeconds::mount() else {
        println!("skipped: no loop device");
        return;
    };
    let dir = tempfile::tempdir_in(base.0.path().join("mnt")).unwrap();
    let fixture = Fixture::within("seconds", dir);
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 1_000, 2);
    for round in 0..5 {
        // Ours is the last change of a second that has just begun.
        let db = fixture.connect(&path);
        while std::time::UNIX_EPOCH.elapsed().unwrap().subsec_millis() > 200 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        db.execute_batch(&format!("UPDATE t SET n = {round}"))
            .unwrap();
        assert_eq!(integrity(&db), "ok");
        drop(db);
        let stock = Connection::open(&path).unwrap();
        stock.execute_batch("UPDATE t SET n = 77").unwrap();
        drop(stock);
        let all = dump(&fixture.connect(&path));
        assert!(all.iter().all(|row| row.2 == Some(77)), "round {round}");
    }
}

#[test]
fn a_hot_journal_is_rolled_back_after_a_crash() {
    let fixture = Fixture::new("crash");
    let path = fixture.path("a.db");
    let db = fixture.connect(&path);
    fill(&db, 2_000, 9);
    let before = dump(&db);
    drop(db);
    assert_eq!(child("crash_in_a_transaction", &path), "crashing");
    let journal = fixture.path("a.db-journal");
    assert!(
        std::fs::metadata(&journal).unwrap().len() > 0,
        "the crash left a hot journal"
    );
    let db = fixture.connect(&path);
    assert_eq!(dump(&db), before);
    assert_eq!(integrity(&db), "ok");
    assert!(!journal.exists());
}

#[test]
fn a_journal_that_another_connection_deletes_is_not_written_on() {
    let fixture = Fixture::new("crash-journal");
    let path = fixture.path("a.db");
    let db = fixture.connect(&path);
    fill(&db, 2_000, 9);
    db.execute_batch("UPDATE t SET n = 2").unwrap();
    let before = dump(&db);
    drop(db);
    assert_eq!(child("crash_after_a_foreign_delete", &path), "crashing");
    let journal = fixture.path("a.db-journal");
    assert!(journal.exists(), "the crash left a hot journal");
    let db = fixture.connect(&path);
    assert_eq!(integrity(&db), "ok");
    assert_eq!(dump(&db), before);
}

#[test]
fn a_wal_left_by_a_crash_is_recovered() {
    let fixture = Fixture::new("crash-wal");
    let path = fixture.path("a.db");
    assert_eq!(child("crash_with_a_wal", &path), "crashing");
    assert!(std::fs::metadata(fixture.path("a.db-wal")).unwrap().len() > 0);
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA locking_mode=exclusive").unwrap();
    let rows: i64 = db
        .query_row("SELECT count(*) FROM t", [], |r| r.get(0))
        .unwrap();
    assert_eq!(rows, 700, "the committed rows, not the uncommitted ones");
    assert_eq!(integrity(&db), "ok");
}

#[test]
fn a_read_only_file_reads_and_refuses_writes() {
    let fixture = Fixture::new("read-only");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 300, 6);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = Connection::open_with_flags_and_vfs(&path, flags, fixture.vfs()).unwrap();
    assert_eq!(integrity(&db), "ok");
    let refused = db.execute_batch("DELETE FROM t").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
}

#[test]
fn the_last_close_ends_the_lock_against_others() {
    let fixture = Fixture::new("reopen");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 500, 3);
    // The engine has not let go of the file yet when the next connection comes.
    let first = dump(&fixture.connect(&path));
    assert_eq!(dump(&fixture.connect(&path)), first);
    assert_eq!(child("probe_from_another_process", &path), "rows 500");
}

#[test]
fn an_engine_in_write_back_is_refused() {
    let refused = fixture::register_write_back("test-write-back").err();
    assert_eq!(
        refused.map(|e| e.kind()),
        Some(std::io::ErrorKind::InvalidInput)
    );
    let fixture = Fixture::new("write-back");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 10, 1);
    fixture.engine().set_write_back(true);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let error = Connection::open_with_flags_and_vfs(&path, flags, fixture.vfs()).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    fixture.engine().set_write_back(false);
    assert_eq!(dump(&fixture.connect(&path)).len(), 10);
}

#[test]
fn a_database_that_was_moved_is_not_written() {
    let fixture = Fixture::new("moved");
    let (path, moved) = (fixture.path("a.db"), fixture.path("moved.db"));
    let db = fixture.connect(&path);
    fill(&db, 100, 8);
    std::fs::rename(&path, &moved).unwrap();
    let refused = db.execute_batch("DELETE FROM t").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
    std::fs::write(&path, "another file").unwrap();
    let refused = db.execute_batch("DELETE FROM t").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
    std::fs::rename(&moved, &path).unwrap();
    db.execute_batch("DELETE FROM t WHERE id > 50").unwrap();
    assert_eq!(dump(&db).len(), 50);
}

#[test]
fn an_extension_that_is_not_there_is_an_error() {
    let fixture = Fixture::new("extension");
    let said = child("load_an_extension", &fixture.path("a.db"));
    assert!(said.starts_with("1 ") && said.contains("absent"), "{said}");
}

#[test]
fn a_journal_has_the_permissions_of_its_database_under_any_umask() {
    let fixture = Fixture::new("umask");
    let said = child("make_journals_under_a_umask", &fixture.path("a.db"));
    assert_eq!(said, "660 660");
}

#[test]
fn a_read_only_file_that_others_changed_is_read_anew() {
    let fixture = Fixture::new("read-only-changed");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 100, 6);
    let mut command = child_command("read_what_others_changed", &path);
    std::fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    // Root may write any file.
    if chown(&path, Some(65_534), Some(65_533)).is_ok() {
        command.uid(65_534).gid(65_533);
    }
    assert_eq!(said(command), "rows 5100");
}

#[test]
fn a_file_that_is_not_there_cannot_be_opened() {
    let fixture = Fixture::new("absent");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let path = fixture.path("absent.db");
    let error = Connection::open_with_flags_and_vfs(path, flags, fixture.vfs()).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen));
}

#[test]
fn a_name_is_taken_once_and_free_after_dropping() {
    let fixture = Fixture::new("name");
    let name = fixture.vfs().to_owned();
    let twice = fixture::register_again(&name);
    assert_eq!(
        twice.err().map(|e| e.kind()),
        Some(std::io::ErrorKind::AlreadyExists)
    );
    let path = fixture.path("a.db");
    let db = fixture.connect(&path);
    fill(&db, 10, 1);
    let directory = fixture.unregister();
    assert_eq!(
        integrity(&db),
        "ok",
        "an open connection outlives the registration"
    );
    db.execute_batch("PRAGMA cache_size=5; PRAGMA temp_store=file; UPDATE t SET n = 5")
        .unwrap();
    db.execute_batch("CREATE TEMP TABLE u AS SELECT * FROM t ORDER BY body")
        .unwrap();
    assert!(dump(&db).iter().all(|row| row.2 == Some(5)));
    let other = directory.path().join("b.db");
    let attach = format!("ATTACH '{}' AS other", other.display());
    assert!(db.execute_batch(&attach).is_err());
    assert!(!other.exists());
    drop(db);
    assert!(fixture::register_again(&name).is_ok());
    drop(directory);
}

#[test]
fn a_random_workload_gives_what_the_stock_vfs_gives() {
    for seed in [1, 2, 3] {
        let fixture = Fixture::new(&format!("random-{seed}"));
        let (ours, stock) = (fixture.path("ours.db"), fixture.path("stock.db"));
        let (a, b) = (fixture.connect(&ours), Connection::open(&stock).unwrap());
        for db in [&a, &b] {
            db.execute_batch(
                "PRAGMA cache_size=20; PRAGMA synchronous=off; PRAGMA auto_vacuum=incremental",
            )
            .unwrap();
            db.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB, n INT)")
                .unwrap();
            db.execute_batch("CREATE INDEX t_n ON t(n)").unwrap();
        }
        for statement in fixture::random_sql(seed, 400) {
            let (x, y) = (a.execute_batch(&statement), b.execute_batch(&statement));
            assert_eq!(x.is_ok(), y.is_ok(), "seed {seed}: {statement}");
        }
        assert_eq!(dump(&a), dump(&b), "seed {seed}");
        assert_eq!(integrity(&a), "ok");
        drop((a, b));
        let (a, b) = (
            std::fs::read(&ours).unwrap(),
            std::fs::read(&stock).unwrap(),
        );
        assert_eq!(a.len(), b.len(), "seed {seed}");
        assert_eq!(
            without_counters(a),
            without_counters(b),
            "seed {seed}: same bytes"
        );
    }
}

/// The header's change counter and version-valid-for move alike but the library version does
/// not differ either: nothing to mask but the random rollback-journal nonce, which is elsewhere.
fn without_counters(mut file: Vec<u8>) -> Vec<u8> {
    file[24..28].fill(0);
    file[92..100].fill(0);
    file
}

/// Reads of pages that went to base.
fn base_reads(fixture: &Fixture) -> u64 {
    fixture.engine().stats().page_reads["base"]
}

#[test]
fn a_connection_that_asks_nothing_leaves_the_pages_where_they_are() {
    let fixture = Fixture::new("idle");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 100, 3);
    let all = dump(&fixture.connect(&path));
    for idle in [0, 1, 3] {
        for _ in 0..idle {
            drop(fixture.connect(&path));
        }
        let before = base_reads(&fixture);
        assert_eq!(dump(&fixture.connect(&path)), all);
        assert_eq!(base_reads(&fixture), before, "after {idle} connections");
    }
}

#[test]
fn what_others_change_beside_a_connection_that_asks_nothing_is_seen() {
    let fixture = Fixture::new("idle-foreign");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 100, 2);
    let idle = fixture.connect(&path);
    assert_eq!(child("write_from_another_process", &path), "written");
    drop(idle);
    let all = dump(&fixture.connect(&path));
    assert!(all.len() == 100 && all.iter().all(|row| row.2 == Some(77)));
    // Also where the file cannot be locked when the connection ends.
    let (idle, stock) = (fixture.connect(&path), Connection::open(&path).unwrap());
    fill(&stock, 500, 3);
    stock.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(idle);
    stock.execute_batch("ROLLBACK").unwrap();
    let all = dump(&stock);
    drop(stock);
    assert_eq!(dump(&fixture.connect(&path)), all);
}

#[test]
fn connections_without_locks_read_and_leave_nothing() {
    let fixture = Fixture::new("lockless");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 100, 2);
    for promise in ["immutable", "nolock"] {
        let uri = format!("file:{}?{promise}=1", path.display());
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
        let db = Connection::open_with_flags_and_vfs(uri, flags, fixture.vfs()).unwrap();
        db.execute_batch("PRAGMA cache_size=1").unwrap();
        assert_eq!(dump(&db).len(), 100, "{promise}");
        let before = base_reads(&fixture);
        assert_eq!(dump(&db).len(), 100);
        assert_eq!(base_reads(&fixture), before, "{promise}: from memory");
        // Against the promise, and without another stamp than the one it was opened with.
        assert_eq!(child("write_from_another_process", &path), "written");
        drop(db);
        let all = dump(&fixture.connect(&path));
        assert!(all.iter().all(|row| row.2 == Some(77)), "{promise}");
        fill(&fixture.connect(&path), 0, 2);
        let changed = fixture.connect(&path).execute_batch("UPDATE t SET n = 5");
        changed.unwrap();
    }
}

#[test]
fn opening_and_closing_at_once_is_never_busy() {
    let fixture = Fixture::new("churn");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 10, 2);
    // Every last close is a sync, with the lock held.
    fixture.engine().limit_objects(0);
    let churn = || {
        for round in 0..300 {
            let db = fixture.connect(&path);
            let rows = db.query_row("SELECT count(*) FROM t", [], |r| r.get::<_, i64>(0));
            assert_eq!(rows, Ok(10), "round {round}");
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(churn), scope.spawn(churn), scope.spawn(churn)];
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn the_lock_goes_when_later_changes_get_later_times() {
    let fixture = Fixture::new("tick");
    let path = fixture.path("a.db");
    let now = || {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is the structure that the call fills.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
        (now.tv_sec, now.tv_nsec)
    };
    for round in 0..50 {
        let db = fixture.connect(&path);
        let change = format!("PRAGMA synchronous=off; PRAGMA user_version={round}");
        db.execute_batch(&change).unwrap();
        drop(db);
        let meta = std::fs::metadata(&path).unwrap();
        assert!((meta.ctime(), meta.ctime_nsec()) < now(), "round {round}");
    }
}

#[test]
fn temporary_files_are_gone_when_the_process_is() {
    let fixture = Fixture::new("temporary");
    for variable in ["TMPDIR", "SQLITE_TMPDIR"] {
        let directory = fixture.path(variable);
        std::fs::create_dir(&directory).unwrap();
        let path = fixture.path(&format!("{variable}.db"));
        let mut command = child_command("crash_with_temporary_files", &path);
        command.env_remove("SQLITE_TMPDIR");
        command.env(variable, &directory);
        command.env("THERMOCLINE_TEST_TEMPORARY", &directory);
        assert_eq!(said(command), "temporary files there: true");
        let found = std::fs::read_dir(&directory).unwrap();
        let names = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<_> = names.filter(|n| n.contains("thermocline-sqlite")).collect();
        assert!(left.is_empty(), "{variable}: {left:?}");
    }
}

#[test]
fn a_database_in_wal_mode_needs_the_exclusive_mode_first() {
    let fixture = Fixture::new("wal-first");
    let path = fixture.path("a.db");
    let stock = Connection::open(&path).unwrap();
    let mode: String = stock
        .query_row("PRAGMA journal_mode=wal", [], |r| r.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    fill(&stock, 10, 1);
    drop(stock);
    let refused = fixture.connect(&path).execute_batch("SELECT * FROM t");
    let refused = refused.unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA locking_mode=exclusive").unwrap();
    assert_eq!(dump(&db).len(), 10);
}

#[test]
fn a_default_vfs_that_has_data_of_its_own_loads_extensions() {
    let fixture = Fixture::new("shim");
    let said = child("load_an_extension_by_a_shim", &fixture.path("a.db"));
    assert_eq!(said, "the shim's own structure: true");
}

#[test]
fn a_database_changed_in_another_century_opens() {
    let fixture = Fixture::new("century");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 10, 1);
    // 2300-01-01 and a half second: more nanoseconds than 64 bits hold.
    let far = std::time::UNIX_EPOCH + std::time::Duration::from_millis(10_413_792_000_500);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(far).unwrap();
    assert_eq!(dump(&fixture.connect(&path)).len(), 10);
}

#[test]
fn a_database_that_is_replaced_while_it_is_opened_is_refused() {
    let fixture = Fixture::new("replaced");
    let path = fixture.path("a.db");
    let (other, moved) = (fixture.path("other.db"), fixture.path("moved.db"));
    fill(&fixture.connect(&path), 10, 1);
    fill(&fixture.connect(&other), 20, 1);
    let replaces = move |file: &thermocline_sqlite::BaseFile<'_>| {
        if other.exists() {
            std::fs::rename(file.path, &moved)?;
            std::fs::rename(&other, file.path)?;
        }
        fixture::open_base(file)
    };
    let vfs = fixture::register_with("test-replaced", Box::new(replaces)).unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let open = || Connection::open_with_flags_and_vfs(&path, flags, vfs.name());
    let refused = open().unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    assert_eq!(dump(&open().unwrap()).len(), 20);
}

#[test]
fn a_directory_that_cannot_be_read_is_gone_on_without() {
    let fixture = Fixture::new("unreadable");
    let path = fixture.path("a.db");
    fill(&fixture.connect(&path), 10, 1);
    let directory = path.parent().unwrap();
    let mut command = child_command("commit_where_the_directory_cannot_be_read", &path);
    // Root may read any directory.
    for file in [directory, &path] {
        if chown(file, Some(65_534), Some(65_533)).is_ok() {
            command.uid(65_534).gid(65_533);
        }
    }
    std::fs::set_permissions(directory, Permissions::from_mode(0o300)).unwrap();
    let said = said(command);
    std::fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(said, "committed");
    assert!(
        dump(&fixture.connect(&path))
            .iter()
            .all(|row| row.2 == Some(5))
    );
}

#[test]
fn the_journal_of_a_private_database_is_private_whatever_its_name() {
    let fixture = Fixture::new("bytes");
    let name = std::ffi::OsStr::from_bytes(b"\xff.db");
    let path = fixture.path("").join(name);
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA journal_mode=persist").unwrap();
    db.execute_batch("PRAGMA user_version=1").unwrap();
    let journal = fixture
        .path("")
        .join(std::ffi::OsStr::from_bytes(b"\xff.db-journal"));
    std::fs::remove_file(&journal).unwrap();
    drop(db);
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA journal_mode=persist; PRAGMA user_version=2")
        .unwrap();
    assert_eq!(std::fs::metadata(&journal).unwrap().mode() & 0o777, 0o600);
}

/// Runs one of the tests below in a process of its own; returns its last line.
fn child(test: &str, path: &Path) -> String {
    said(child_command(test, path))
}

fn child_command(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("THERMOCLINE_TEST_DB", path);
    command
}

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("child: "));
    line.map_or_else(|| panic!("{text}{output:?}"), |(_, said)| said.to_owned())
}

fn child_path() -> Option<std::path::PathBuf> {
    std::env::var_os("THERMOCLINE_TEST_DB").map(Into::into)
}

#[test]
fn probe_from_another_process() {
    let Some(path) = child_path() else { return };
    let db = Connection::open(path).unwrap();
    db.busy_timeout(std::time::Duration::ZERO).unwrap();
    match db.query_row("SELECT count(*) FROM t", [], |r| r.get::<_, i64>(0)) {
        Ok(rows) => println!("child: rows {rows}"),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => println!("child: busy"),
        Err(e) => println!("child: {e}"),
    }
}

#[test]
fn write_from_another_process() {
    let Some(path) = child_path() else { return };
    let db = Connection::open(path).unwrap();
    db.execute_batch("UPDATE t SET n = 77").unwrap();
    println!("child: written");
}

#[test]
fn load_an_extension() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("extension-child");
    let db = fixture.connect(&path);
    let mut text = std::ptr::null_mut();
    // SAFETY: the connection is open, the name ends with a NUL, and a null entry point means the
    // default one.
    let code = unsafe {
        ffi::sqlite3_enable_load_extension(db.handle(), 1);
        let name = c"/absent/extension".as_ptr();
        ffi::sqlite3_load_extension(db.handle(), name, std::ptr::null(), &raw mut text)
    };
    assert!(!text.is_null());
    // SAFETY: SQLite gave a text that ends with a NUL.
    let text = unsafe { CStr::from_ptr(text) };
    println!("child: {code} {}", text.to_string_lossy());
}

#[test]
fn make_journals_under_a_umask() {
    let Some(path) = child_path() else { return };
    // SAFETY: no memory is involved.
    unsafe { libc::umask(0o022) };
    let fixture = Fixture::new("umask-child");
    let db = fixture.connect(&path);
    db.execute_batch("CREATE TABLE t(a)").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    let mut modes = Vec::new();
    for (mode, suffix) in [("persist", "-journal"), ("wal", "-wal")] {
        let setup = format!("PRAGMA locking_mode=exclusive; PRAGMA journal_mode={mode}");
        db.execute_batch(&setup).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let journal = format!("{}{suffix}", path.display());
        let mode = std::fs::metadata(journal).unwrap().mode();
        modes.push(format!("{:o}", mode & 0o777));
    }
    println!("child: {}", modes.join(" "));
}

#[test]
fn read_what_others_changed() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("read-only-changed-child");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = Connection::open_with_flags_and_vfs(&path, flags, fixture.vfs()).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fill(&Connection::open(&path).unwrap(), 5_000, 7);
    match db.query_row("SELECT count(*) FROM t", [], |r| r.get::<_, i64>(0)) {
        Ok(rows) => println!("child: rows {rows}"),
        Err(error) => println!("child: {error}"),
    }
}

#[test]
fn crash_with_temporary_files() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("temporary-child");
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA temp_store=file; CREATE TEMP TABLE u(a)")
        .unwrap();
    db.execute_batch("PRAGMA temp.cache_size=5; INSERT INTO u SELECT zeroblob(500000)")
        .unwrap();
    let directory = std::env::var_os("THERMOCLINE_TEST_TEMPORARY").unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let ours = |file: &std::path::PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&directory) && name.starts_with("thermocline-sqlite")
    };
    println!(
        "child: temporary files there: {}",
        open.into_iter().any(|file| ours(&file))
    );
    std::process::abort();
}

#[test]
fn commit_where_the_directory_cannot_be_read() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("unreadable-child");
    let db = fixture.connect(&path);
    match db.execute_batch("UPDATE t SET n = 5") {
        Ok(()) => println!("child: committed"),
        Err(error) => println!("child: {error}"),
    }
}

static SHIM_SAW_ITSELF: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn shim_open(
    vfs: *mut ffi::sqlite3_vfs,
    _name: *const std::ffi::c_char,
) -> *mut std::ffi::c_void {
    // SAFETY: SQLite, or a VFS above, passes a VFS.
    let name = unsafe { CStr::from_ptr((*vfs).zName) };
    SHIM_SAW_ITSELF.store(name == c"shim", Ordering::SeqCst);
    std::ptr::null_mut()
}

#[test]
fn load_an_extension_by_a_shim() {
    let Some(path) = child_path() else { return };
    // SAFETY: the structure is a copy of the stock one, which has version 3, and is never freed.
    unsafe {
        let stock = ffi::sqlite3_vfs_find(std::ptr::null());
        let shim = Box::leak(Box::new(*stock));
        (shim.zName, shim.pNext) = (c"shim".as_ptr(), std::ptr::null_mut());
        shim.xDlOpen = Some(shim_open);
        assert_eq!(ffi::sqlite3_vfs_register(shim, 1), ffi::SQLITE_OK);
    }
    let fixture = Fixture::new("shim-child");
    let db = fixture.connect(&path);
    // SAFETY: as in `load_an_extension`; nobody asks for the text.
    let code = unsafe {
        ffi::sqlite3_enable_load_extension(db.handle(), 1);
        let (name, none) = (c"/absent/extension".as_ptr(), std::ptr::null_mut());
        ffi::sqlite3_load_extension(db.handle(), name, std::ptr::null(), none)
    };
    assert_eq!(code, ffi::SQLITE_ERROR);
    let itself = SHIM_SAW_ITSELF.load(Ordering::SeqCst);
    println!("child: the shim's own structure: {itself}");
}

#[test]
fn crash_in_a_transaction() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("crash-child");
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA cache_size=5; BEGIN; UPDATE t SET body = 'lost', n = -1")
        .unwrap();
    println!("child: crashing");
    std::process::abort();
}

#[test]
fn crash_after_a_foreign_delete() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("crash-journal-child");
    let (one, two) = (fixture.connect(&path), fixture.connect(&path));
    one.execute_batch("PRAGMA cache_size=5; PRAGMA journal_mode=truncate; UPDATE t SET n = 1")
        .unwrap();
    two.execute_batch("UPDATE t SET n = 2").unwrap();
    one.execute_batch("BEGIN; UPDATE t SET body = 'lost', n = -1")
        .unwrap();
    println!("child: crashing");
    std::process::abort();
}

#[test]
fn crash_with_a_wal() {
    let Some(path) = child_path() else { return };
    let fixture = Fixture::new("crash-wal-child");
    let db = fixture.connect(&path);
    db.execute_batch("PRAGMA locking_mode=exclusive; PRAGMA journal_mode=wal")
        .unwrap();
    fill(&db, 700, 4);
    db.execute_batch("PRAGMA cache_size=5; BEGIN; DELETE FROM t")
        .unwrap();
    println!("child: crashing");
    std::process::abort();
}
