//! MariaDB on a mount: what it answers stays the same through restarts, with and without the
//! mount.

use crate::ground::Ground;
use crate::maria::{Maria, PROGRAMS, install, socket};
use crate::mounted::{Mounted, thermocline};
use crate::process::{succeed, wait_for};

/// Tables larger together than the server's pool of 8 MiB and the tier of 16 MiB.
const LOAD: &str = "
CREATE DATABASE shop;
USE shop;
CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(80), stock INT, KEY (stock)) ENGINE=InnoDB;
CREATE TABLE sale (id INT AUTO_INCREMENT PRIMARY KEY, item INT, note VARCHAR(120), KEY (item))
    ENGINE=InnoDB;
INSERT INTO item SELECT seq, CONCAT('item ', MD5(seq)), seq % 997 FROM seq_1_to_60000;
INSERT INTO sale (item, note)
    SELECT 1 + CRC32(seq) % 60000, REPEAT(MD5(seq), 3) FROM seq_1_to_80000;
UPDATE item SET stock = stock + 1 WHERE CRC32(id) % 3 = 0;
DELETE FROM sale WHERE CRC32(id) % 11 = 0;
ALTER TABLE sale ADD COLUMN price DECIMAL(8, 2) DEFAULT 1.25, FORCE;
CREATE TEMPORARY TABLE best AS SELECT item, COUNT(*) AS sold FROM sale GROUP BY item;
UPDATE item JOIN best ON best.item = item.id SET stock = stock - sold;
";

/// Checksums of both tables and a join that has to read all of them.
const QUESTION: &str = "
CHECKSUM TABLE item, sale EXTENDED;
SELECT COUNT(*), SUM(stock), SUM(CRC32(note)), SUM(price)
    FROM sale JOIN item ON item.id = sale.item;
SELECT SUM(CRC32(CONCAT(id, name, stock))) FROM item FORCE INDEX (stock) WHERE stock > -1000;
";

const CHECK: &str = "CHECK TABLE item, sale EXTENDED;";

#[test]
fn mariadb_answers_the_same_with_and_without_the_mount() {
    let Some(ground) = Ground::prepare("mariadb", "mysql", &PROGRAMS) else {
        return;
    };
    let options = ["--size", "16M", "--page-size", "16KiB"];
    let mount = Mounted::start(&ground, &options, "");
    let server = loaded(&ground, &mount);
    let answer = server.run("shop", QUESTION);
    assert_eq!(answer.lines().count(), 4, "{answer}");
    check_tables(&server);
    server.stop();
    assert!(
        mount.hits() > 0 && mount.off().is_none(),
        "{:#}",
        mount.status()
    );

    let server = Maria::start(&ground, &mount.path("data"));
    assert_eq!(server.run("shop", QUESTION), answer, "after a restart");
    server.stop();
    mount.unmount();

    let mount = Mounted::start(&ground, &options, "");
    assert!(mount.count("/stats/tier/restored") > 0, "a cold start");
    let server = Maria::start(&ground, &mount.path("data"));
    assert_eq!(server.run("shop", QUESTION), answer, "with a restored tier");
    assert!(mount.hits() > 0);
    server.stop();
    mount.unmount();

    let server = Maria::start(&ground, &ground.path("base/data"));
    assert_eq!(
        server.run("shop", QUESTION),
        answer,
        "on the base directory"
    );
    check_tables(&server);
    server.stop();
}

/// A new server on the mount, with its tables filled.
fn loaded(ground: &Ground, mount: &Mounted) -> Maria {
    let data = mount.path("data");
    std::fs::create_dir(&data).expect("data directory");
    ground.give(&data);
    install(ground.user, &data);
    let server = Maria::start(ground, &data);
    server.run("mysql", LOAD);
    server
}

fn check_tables(server: &Maria) {
    let checked = server.run("shop", CHECK);
    let sound = checked
        .lines()
        .filter(|line| line.ends_with("\tstatus\tOK"));
    assert_eq!(sound.count(), 2, "{checked}");
}

/// MariaDB 10.11 does not name its threads: with a login the server tells which one writes pages.
#[test]
fn mariadb_tells_what_its_threads_are() {
    let Some(ground) = Ground::prepare("mariadb", "mysql", &PROGRAMS) else {
        return;
    };
    let login = ground.path("login.cnf");
    let socket = socket(&ground);
    let options = format!("[client]\nuser=root\nsocket={}\n", socket.display());
    std::fs::write(&login, options).expect("option file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&login, mode).expect("for nobody else");
    let settings = format!("mount.mariadb_login = \"{}\"\n", login.display());
    let trace = ground.path("trace.parquet");
    let record = trace.to_str().expect("UTF-8");
    let options = ["--size", "16M", "--page-size", "16KiB", "--record", record];
    let mount = Mounted::start(&ground, &options, &settings);
    // Until the mount knows the threads, their requests have no role.
    let server = loaded(&ground, &mount);
    wait_for("an answer of the server", || {
        server.run("shop", "UPDATE item SET stock = stock + 1");
        let said = std::fs::read_to_string(ground.path("mount.log")).expect("log");
        said.contains("tells what").then_some(())
    });
    server.run(
        "shop",
        "UPDATE item SET stock = stock - 1; UPDATE item SET stock = stock + 1;",
    );
    server.run("shop", QUESTION);
    server.stop();
    mount.unmount();

    let mut info = thermocline();
    let info = succeed(info.args(["trace", "info"]).arg(&trace));
    let (_, roles) = info
        .split_once("hint role")
        .unwrap_or_else(|| panic!("{info}"));
    for role in ["page-cleaner", "backend"] {
        assert!(roles.contains(role), "{role}: {info}");
    }
}
