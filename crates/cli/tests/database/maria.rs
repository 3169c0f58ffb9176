//! A MariaDB server on any directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ground::{Ground, User};
use crate::process::{Background, command, feed, succeed, wait_for};

/// Programs of MariaDB the tests use.
pub(crate) const PROGRAMS: [&str; 3] = ["mariadbd", "mariadb", "mariadb-install-db"];

/// Makes the system tables in `data`.
pub(crate) fn install(user: User, data: &Path) {
    let mut install = command("mariadb-install-db", user);
    install.arg("--no-defaults");
    // The script knows this option in one word only.
    install.arg(format!("--datadir={}", data.display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    succeed(&mut install);
}

/// Where the server of a test listens, in a directory that is made for it.
pub(crate) fn socket(ground: &Ground) -> PathBuf {
    let sockets = ground.path("maria-sockets");
    if fs::create_dir(&sockets).is_ok() {
        ground.give(&sockets);
    }
    sockets.join("s")
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Maria {
    user: User,
    socket: PathBuf,
    process: Background,
}

impl Maria {
    /// Starts a server on `data` with a small pool and direct I/O; waits until it answers.
    pub(crate) fn start(ground: &Ground, data: &Path) -> Self {
        let socket = socket(ground);
        let temporary = data.join("tmp");
        if fs::create_dir(&temporary).is_ok() {
            ground.give(&temporary);
        }
        let mut mariadbd = command("mariadbd", ground.user);
        mariadbd.arg("--no-defaults").arg("--skip-networking");
        mariadbd.arg("--datadir").arg(data);
        mariadbd.arg("--tmpdir").arg(&temporary);
        mariadbd.arg("--socket").arg(&socket);
        mariadbd.arg("--pid-file").arg(socket.with_file_name("pid"));
        mariadbd.args([
            "--innodb-flush-method=O_DIRECT",
            "--innodb-buffer-pool-size=8M",
            "--innodb-page-size=16k",
            "--log-bin=binlog",
            "--innodb-buffer-pool-load-at-startup=OFF",
            "--performance-schema=ON",
        ]);
        let process = Background::start(&mut mariadbd, &ground.path("mariadb.log"));
        let mut server = Self {
            user: ground.user,
            socket,
            process,
        };
        wait_for("MariaDB", || {
            server.process.check_running();
            let said = server.client("mysql").args(["-e", "SELECT 1"]).output();
            said.ok().filter(|output| output.status.success())
        });
        server
    }

    fn client(&self, database: &str) -> std::process::Command {
        let mut client = command("mariadb", self.user);
        client
            .arg("--no-defaults")
            .arg("--socket")
            .arg(&self.socket);
        client.args(["--user=root", "--batch", "--skip-column-names"]);
        client.args(["--database", database]);
        client
    }

    /// What the statements of `sql` answer.
    pub(crate) fn run(&self, database: &str, sql: &str) -> String {
        feed(&mut self.client(database), sql)
    }

    /// A clean stop.
    pub(crate) fn stop(mut self) {
        self.process.signal(libc::SIGTERM);
        let status = self.process.join();
        assert!(status.success(), "{status}\n{}", self.process.said());
    }
}

impl Drop for Maria {
    fn drop(&mut self) {
        self.process.end(libc::SIGKILL, std::time::Duration::ZERO);
    }
}
