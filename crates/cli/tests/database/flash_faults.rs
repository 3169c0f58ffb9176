//! A flash device that fails, lies or hangs under PostgreSQL: no request fails, nothing wrong is
//! returned (data checksums are on), the tier goes off and says why, and can be put back.

use crate::ground::Ground;
use crate::mounted::Mounted;
use crate::process::wait_for;
use crate::server::{PROGRAMS, Postgres, initdb, verify_checksums};

/// Scale of pgbench: about 60 MB, several times the server's buffers.
const SCALE: u32 = 4;
/// Reads and writes during which the faults strike. So much work, not so much time: what a slow
/// machine reads in a second fits into the server's 2,048 buffers, and none of it comes twice.
const READS: [&str; 4] = [
    "--select-only",
    "--client=4",
    "--jobs=2",
    "--transactions=1500",
];
const MIXED: [&str; 3] = ["--client=4", "--jobs=2", "--transactions=400"];

/// The scripts, and the kinds of fault of which one, whichever comes first, takes the tier off.
const CASES: [(&str, &str, &[&str]); 6] = [
    ("reads fail", "read fail EIO", &["read-error"]),
    ("writes fail", "write fail EIO", &["write-error"]),
    (
        "everything fails",
        "any fail EIO",
        &["read-error", "write-error"],
    ),
    ("wrong bytes", "read corrupt", &["corrupt"]),
    ("reads hang", "read hang 600s", &["timed-out"]),
    ("everything hangs", "any hang 600s", &["timed-out"]),
];

/// Kinds of faults, as the reason names them.
const KINDS: [&str; 4] = ["read-error", "write-error", "corrupt", "timed-out"];

#[test]
fn a_sick_flash_device_costs_speed_and_nothing_else() {
    let Some(ground) = Ground::prepare("flash_faults", "postgres", &PROGRAMS) else {
        return;
    };
    let mount = Mounted::start(&ground, &["--size", "64M", "--faults"], "");
    let data = mount.path("data");
    initdb(ground.user, &data);
    let server = Postgres::start(&ground, &data, &[]);
    server.fill(SCALE);
    for (name, script, expected) in CASES {
        println!("-- {name}");
        serve_well(&mount, &server);
        let count = |fault: &&str| mount.count(&format!("/stats/tier/faults/{fault}"));
        let before = expected.iter().map(count).sum::<u64>();
        mount.faults(script);
        server.pgbench(&READS);
        server.pgbench(&MIXED);
        let said = wait_for("the tier to go off", || mount.off());
        let named = |kinds: &[&str]| kinds.iter().any(|kind| said.contains(kind));
        assert!(named(expected), "{name}: off because \"{said}\"");
        let after = expected.iter().map(count).sum::<u64>();
        assert!(after > before, "{name}: no more of {expected:?}");
        let others = KINDS.into_iter().filter(|kind| !expected.contains(kind));
        assert!(
            !named(&others.collect::<Vec<_>>()) || script.starts_with("any"),
            "{name}: \"{said}\""
        );
        println!("{said}");
        wait_for("a word of it in the log", || {
            let log = std::fs::read_to_string(ground.path("mount.log")).expect("log");
            log.contains(&format!("the tier is off: {said}"))
                .then_some(())
        });
        let shown = mount.status_text();
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains(&said), "{name}: {shown}");
        server.pgbench(&READS);
        mount.faults("clear");
        mount.tier("on");
        assert_eq!(mount.off(), None);
    }
    occasional_faults(&mount, &server);
    server.amcheck();
    let sum = server.dump_sum("bench");
    server.stop();
    verify_checksums(ground.user, &data);
    mount.unmount();
    let plain = ground.path("base/data");
    verify_checksums(ground.user, &plain);
    let server = Postgres::start(&ground, &plain, &[]);
    assert_eq!(server.dump_sum("bench"), sum);
    server.stop();
}

/// The tier is on and pages come from it.
fn serve_well(mount: &Mounted, server: &Postgres) {
    let before = mount.hits();
    server.pgbench(&READS);
    assert_eq!(mount.off(), None);
    assert!(mount.hits() > before, "no hits: {:#}", mount.status());
}

/// A bad page now and then is read from base and does not switch the tier off.
fn occasional_faults(mount: &Mounted, server: &Postgres) {
    println!("-- occasional faults");
    serve_well(mount, server);
    mount.faults("read every 500 corrupt; read every 700 fail EIO; write every 400 fail EIO");
    let faults = mount.count("/stats/tier/faults/corrupt");
    server.pgbench(&READS);
    server.pgbench(&MIXED);
    mount.faults("clear");
    assert!(mount.count("/stats/tier/faults/corrupt") > faults);
    assert_eq!(mount.off(), None);
}
