//! The serving process is killed under writers, again and again: no commit that PostgreSQL
//! acknowledged may be missing after recovery, and every page must be whole. In write-through, and
//! in write-back, where most of what was committed is on flash alone when the kill comes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::ground::{Ground, number};
use crate::mounted::Mounted;
use crate::process::wait_for;
use crate::server::{PROGRAMS, Postgres, initdb, verify_checksums};

/// Kills. `THERMOCLINE_TEST_ROUNDS` overrides; `evaluation/kill9` has the long campaign.
const ROUNDS: u32 = 6;
/// Kills in write-back, unless overridden: few, as the crash tester goes through all of them.
const WRITE_BACK_ROUNDS: u32 = 2;
/// Sessions that write at once.
const WRITERS: u32 = 4;
/// Acknowledged commits after which a round's kill is due; it strikes at a varying later moment.
const COMMITS: usize = 200;
/// Accounts: at 100 bytes each three times the server's buffers, so that pages leave and return.
const ACCOUNTS: u32 = 300_000;

const SCHEMA: &str = "
CREATE TABLE ledger (id bigint PRIMARY KEY, account int NOT NULL, amount int NOT NULL);
CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, filler char(84) NOT NULL);
INSERT INTO account SELECT i, 0, '' FROM generate_series(1, 300000) i;
CHECKPOINT;
";

#[test]
fn acknowledged_commits_survive_kills_of_the_mount() {
    let Some(ground) = Ground::prepare("crash", "postgres", &PROGRAMS) else {
        return;
    };
    kills(&ground, &["--size", "16M"], ROUNDS);
}

#[test]
fn acknowledged_commits_survive_kills_in_write_back() {
    let Some(ground) = Ground::prepare("crash in write-back", "postgres", &PROGRAMS) else {
        return;
    };
    let options = "--write-back --size 64M --policy lc --pool 16M";
    let options: Vec<&str> = options.split(' ').collect();
    kills(&ground, &options, WRITE_BACK_ROUNDS);
}

/// Rounds of writers, a kill, a restart of mount and server, and a look at the ledger.
fn kills(ground: &Ground, options: &[&str], rounds: u32) {
    let mut mount = Mounted::start(ground, options, "");
    let data = mount.path("data");
    initdb(ground.user, &data);
    let mut server = Postgres::start(ground, &data, &[]);
    server.query("postgres", SCHEMA);
    let mut ledger = Ledger::new(ground.path("acknowledged"));
    let mut hits = 0;
    for round in 0..number("THERMOCLINE_TEST_ROUNDS", rounds) {
        let writers = Writers::start(&server, &ledger, round);
        wait_for("commits", || {
            (ledger.acknowledged().len() >= ledger.known + COMMITS).then_some(())
        });
        std::thread::sleep(Duration::from_millis(u64::from(round) * 37 % 500));
        hits += mount.hits();
        mount.kill();
        writers.end();
        server.perish();
        mount.unmount();
        mount = Mounted::start(ground, options, "");
        server = Postgres::start(ground, &data, &[]);
        ledger.check(&server, round);
    }
    server.amcheck();
    server.stop();
    verify_checksums(ground.user, &data);
    mount.unmount();
    verify_checksums(ground.user, &ground.path("base/data"));
    println!("{} commits were acknowledged", ledger.known);
    assert!(hits > 0, "the tier served nothing, so it proved nothing");
}

/// What the database promised, kept outside of it and of the mount.
struct Ledger {
    file: PathBuf,
    /// Commits acknowledged before this round.
    known: usize,
}

impl Ledger {
    fn new(file: PathBuf) -> Self {
        File::create(&file).expect("ledger");
        Self { file, known: 0 }
    }

    /// Ids of the transactions whose commit returned.
    fn acknowledged(&self) -> BTreeSet<u64> {
        let text = fs::read_to_string(&self.file).expect("ledger");
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().filter(|line| !line.is_empty());
        lines.map(|line| line.parse().expect("an id")).collect()
    }

    /// Every acknowledged transaction is there, and each is there as a whole.
    fn check(&mut self, server: &Postgres, round: u32) {
        let promised = self.acknowledged();
        let ids = server.query("postgres", "SELECT id FROM ledger");
        let kept: BTreeSet<u64> = ids.lines().map(|id| id.parse().expect("an id")).collect();
        let lost: Vec<&u64> = promised.difference(&kept).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        let torn = server.query(
            "postgres",
            "SELECT count(*) FROM account FULL JOIN
                (SELECT account AS id, sum(amount) AS amount FROM ledger GROUP BY account) l
                USING (id) WHERE account.balance IS DISTINCT FROM coalesce(l.amount, 0)",
        );
        assert_eq!(
            torn, "0",
            "round {round}: accounts that differ from the ledger"
        );
        assert!(promised.len() > self.known, "round {round} did nothing");
        println!(
            "round {round}: {} acknowledged; {} in all were kept without that",
            promised.len() - self.known,
            kept.len() - promised.len()
        );
        self.known = promised.len();
    }
}

/// Sessions that commit one transaction after another and note each that was acknowledged.
struct Writers {
    sessions: Vec<Child>,
}

impl Writers {
    fn start(server: &Postgres, ledger: &Ledger, round: u32) -> Self {
        let start = |writer| session(server, &ledger.file, u64::from(round * WRITERS + writer));
        Self {
            sessions: (0..WRITERS).map(start).collect(),
        }
    }

    /// Waits until all have noticed that the server is gone.
    fn end(mut self) {
        for session in &mut self.sessions {
            let status = wait_for("a writer to fail", || session.try_wait().expect("waits"));
            assert!(!status.success(), "a writer came to its end unharmed");
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        for session in &mut self.sessions {
            // Ended long ago unless the test failed.
            let _ended = session.kill();
            let _status = session.wait();
        }
    }
}

/// A `psql` that prints an id only after the server acknowledged its commit, and ends at the
/// first error. Its output is added to the ledger.
fn session(server: &Postgres, ledger: &Path, number: u64) -> Child {
    let output = File::options().append(true).open(ledger).expect("ledger");
    let mut psql = server.psql("postgres");
    psql.stdin(Stdio::piped())
        .stdout(output)
        .stderr(Stdio::null());
    let mut child = psql.spawn().expect("starts");
    let mut pipe = child.stdin.take().expect("piped");
    std::thread::spawn(move || {
        // Ends when psql does.
        for turn in 0..1_000_000 {
            let id = number * 1_000_000 + turn;
            let account = 1 + id.wrapping_mul(2_654_435_761) % u64::from(ACCOUNTS);
            let amount = 1 + id % 9;
            let transaction = format!(
                "BEGIN; \
                 UPDATE account SET balance = balance + {amount} WHERE id = {account}; \
                 INSERT INTO ledger VALUES ({id}, {account}, {amount}); COMMIT;\n\
                 \\echo {id}\n"
            );
            if pipe.write_all(transaction.as_bytes()).is_err() {
                break;
            }
        }
    });
    child
}
