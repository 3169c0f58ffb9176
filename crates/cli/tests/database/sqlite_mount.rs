//! SQLite's own command on a mount, with rollback and write-ahead journals, one process and two.

use std::path::Path;

use crate::ground::{Ground, User};
use crate::mounted::Mounted;
use crate::process::{command, feed, succeed};

/// About 6 MB; three times the tier.
const LOAD: &str = "
CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT, balance INTEGER);
CREATE INDEX by_name ON account (name);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO account SELECT i, hex(i * 2654435761 % 4294967296) || printf('%0100d', i), 100 FROM n;
UPDATE account SET balance = balance + id % 7 WHERE id % 3 = 0;
DELETE FROM account WHERE id % 101 = 0;
PRAGMA mmap_size = 4000000;
SELECT count(*) FROM account;
VACUUM;
";

/// Reads the whole table in two orders.
const QUESTION: &str = "
SELECT count(*), sum(balance), sum(id * balance), group_concat(substr(name, 1, 3), '')
    FROM (SELECT * FROM account INDEXED BY by_name ORDER BY name);
SELECT sum(length(name) * id) FROM account;
PRAGMA integrity_check;
";

/// Transactions of each of the two processes that write at once.
const TRANSACTIONS: usize = 50;

#[test]
fn sqlite_with_a_rollback_journal() {
    compare("sqlite_rollback", "delete");
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    compare("sqlite_wal", "wal");
}

/// The same work on the mount and on a plain directory gives the same answers.
fn compare(test: &str, journal: &str) {
    let Some(ground) = Ground::prepare(test, "root", &["sqlite3"]) else {
        return;
    };
    let options = ["--size", "2M", "--page-size", "4KiB"];
    let mount = Mounted::start(&ground, &options, "");
    let plain = ground.make("plain").join("test.db");
    let tiered = mount.path("test.db");
    for database in [&plain, &tiered] {
        run(
            ground.user,
            database,
            &format!("PRAGMA journal_mode = {journal};{LOAD}"),
        );
    }
    let expected = run(ground.user, &plain, QUESTION);
    assert!(expected.ends_with("\nok"), "{expected}");
    assert_eq!(run(ground.user, &tiered, QUESTION), expected);

    for database in [&plain, &tiered] {
        two_writers(ground.user, database);
    }
    let expected = run(ground.user, &plain, QUESTION);
    assert_eq!(run(ground.user, &tiered, QUESTION), expected);
    assert!(
        mount.hits() > 0 && mount.off().is_none(),
        "{:#}",
        mount.status()
    );
    mount.unmount();
    let base = ground.path("base/test.db");
    assert_eq!(run(ground.user, &base, QUESTION), expected);
}

/// Two processes take turns for the lock; what they add up to does not depend on the order.
fn two_writers(user: User, database: &Path) {
    let transfer = |from: usize| {
        let one = format!(
            "BEGIN IMMEDIATE;
             UPDATE account SET balance = balance - 1 WHERE id = {from};
             UPDATE account SET balance = balance + 1 WHERE id BETWEEN 900 AND 1400;
             COMMIT;\n"
        );
        format!(".timeout 60000\n.bail on\n{}", one.repeat(TRANSACTIONS))
    };
    std::thread::scope(|scope| {
        for from in [5, 6] {
            scope.spawn(move || feed(sqlite(user).arg(database), &transfer(from)));
        }
    });
}

fn sqlite(user: User) -> std::process::Command {
    let mut sqlite = command("sqlite3", user);
    sqlite.args(["-batch", "-bail"]);
    sqlite
}

fn run(user: User, database: &Path, sql: &str) -> String {
    succeed(sqlite(user).arg(database).arg(sql))
}
