//! A PostgreSQL server on any directory, and what its programs say.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::ground::{Ground, User};
use crate::process::{Background, command, succeed, wait_for};

/// Programs of PostgreSQL the tests use.
pub(crate) const PROGRAMS: [&str; 7] = [
    "postgres",
    "initdb",
    "psql",
    "pgbench",
    "pg_dump",
    "pg_amcheck",
    "pg_checksums",
];

/// Makes a cluster with data checksums.
pub(crate) fn initdb(user: User, data: &Path) {
    let mut initdb = command("initdb", user);
    initdb.args(["--data-checksums", "--auth=trust", "--username=postgres"]);
    succeed(
        initdb
            .args(["--encoding=UTF8", "--no-locale", "-D"])
            .arg(data),
    );
}

/// Verifies the checksum of every page of a cluster that is not running.
pub(crate) fn verify_checksums(user: User, data: &Path) {
    let said = succeed(
        command("pg_checksums", user)
            .args(["--check", "-D"])
            .arg(data),
    );
    assert!(said.contains("Bad checksums:  0"), "{said}");
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Postgres {
    user: User,
    sockets: PathBuf,
    process: Background,
}

impl Postgres {
    /// Starts a server on `data` with small buffers, and waits until it answers; after a crash
    /// that is when recovery is over.
    pub(crate) fn start(ground: &Ground, data: &Path, settings: &[&str]) -> Self {
        let sockets = ground.path("pg-sockets");
        if fs::create_dir(&sockets).is_ok() {
            ground.give(&sockets);
        }
        let mut postgres = command("postgres", ground.user);
        postgres.arg("-D").arg(data).arg("-k").arg(&sockets);
        let always = [
            "listen_addresses=",
            "shared_buffers=16MB",
            "max_connections=40",
            "effective_io_concurrency=0",
            "maintenance_io_concurrency=0",
            "max_wal_size=256MB",
            "checkpoint_timeout=30s",
        ];
        for setting in always.iter().chain(settings) {
            postgres.args(["-c", setting]);
        }
        let process = Background::start(&mut postgres, &ground.path("postgres.log"));
        let mut server = Self {
            user: ground.user,
            sockets,
            process,
        };
        wait_for("PostgreSQL", || {
            server.process.check_running();
            let said = server.psql("postgres").args(["-c", "SELECT 1"]).output();
            said.ok().filter(|output| output.status.success())
        });
        server
    }

    /// A client program of PostgreSQL, told where the server is.
    pub(crate) fn client(&self, name: &str) -> Command {
        let mut client = command(name, self.user);
        client
            .env("PGHOST", &self.sockets)
            .env("PGUSER", "postgres");
        client
    }

    /// `psql`, bare output, ending at the first error.
    pub(crate) fn psql(&self, database: &str) -> Command {
        let mut psql = self.client("psql");
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
        ]);
        psql
    }

    /// The answer to `sql`.
    pub(crate) fn query(&self, database: &str, sql: &str) -> String {
        succeed(self.psql(database).args(["-c", sql]))
    }

    /// Runs `pgbench` with `options` on database `bench`; no transaction may fail.
    pub(crate) fn pgbench(&self, options: &[&str]) {
        let said = succeed(self.client("pgbench").args(options).arg("bench"));
        let sound = said.contains("number of failed transactions: 0 ");
        let ran = !said.contains("transactions actually processed: 0\n");
        assert!(sound && ran, "{said}");
        println!("pgbench {}: {}", options.join(" "), rate(&said));
    }

    /// Makes database `bench` of pgbench's tables.
    pub(crate) fn fill(&self, scale: u32) {
        self.query("postgres", "CREATE DATABASE bench");
        let scale = scale.to_string();
        let options = ["--initialize", "--quiet", "--scale", &scale, "bench"];
        succeed(self.client("pgbench").args(options));
    }

    /// MD5 of the text of all of `database`, in `pg_dump`'s order.
    pub(crate) fn dump_sum(&self, database: &str) -> String {
        let mut dump = self.client("pg_dump");
        let mut dump = dump
            .arg(database)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut sum = Command::new("md5sum");
        let sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut sum = sum.expect("starts");
        let mut text = BufReader::new(dump.stdout.take().expect("piped"));
        let mut pipe = sum.stdin.take().expect("piped");
        let mut line = Vec::new();
        while text.read_until(b'\n', &mut line).expect("reads") > 0 {
            // Newer dumps begin and end with a random word that guards psql.
            if !line.starts_with(b"\\restrict ") && !line.starts_with(b"\\unrestrict ") {
                pipe.write_all(&line).expect("writes");
            }
            line.clear();
        }
        drop(pipe);
        assert!(dump.wait().expect("ends").success(), "pg_dump");
        let sum = sum.wait_with_output().expect("ends");
        let sum = String::from_utf8_lossy(&sum.stdout)[..32].to_string();
        assert_ne!(sum, "d41d8cd98f00b204e9800998ecf8427e", "the dump is empty");
        sum
    }

    /// Checks the structure of every table and index.
    pub(crate) fn amcheck(&self) {
        let options = ["--all", "--install-missing", "--heapallindexed"];
        let said = succeed(self.client("pg_amcheck").args(options));
        assert!(said.is_empty(), "{said}");
    }

    /// A clean stop, checkpoint included.
    pub(crate) fn stop(mut self) {
        self.process.signal(libc::SIGINT);
        let status = self.process.join();
        assert!(status.success(), "{status}\n{}", self.process.said());
    }

    /// Waits until a server that has lost its files is gone, or ends it.
    pub(crate) fn perish(mut self) {
        self.process.end(libc::SIGQUIT, Duration::from_secs(5));
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.process.end(libc::SIGQUIT, Duration::from_secs(5));
    }
}

/// The line of pgbench's report that says how fast it was.
fn rate(report: &str) -> &str {
    let line = report.lines().find(|line| line.starts_with("tps = "));
    line.unwrap_or("no rate")
}
