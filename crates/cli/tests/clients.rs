//! Several databases on one mount, from the setting to what a simulation of a recording says.

mod common;

use common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

fn json(arguments: &[&str]) -> Vec<Value> {
    let mut command = thermocline(arguments[0]);
    serde_json::from_str(&success(command.args(&arguments[1..]))).expect("an array")
}

/// A mount of two databases and a file of none, whose configuration is in `clients.toml`.
fn prepared(case: &str) -> Option<Ground> {
    let ground = Ground::prepare(case)?;
    for database in ["orders", "reports"] {
        let directory = ground.path("base").join(database).join("base/5");
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join("16384"), content()).expect("a relation");
    }
    let setting = "[tier]\nclients = [\"orders\", \"reports\"]\n";
    fs::write(ground.path("clients.toml"), setting).expect("written");
    Some(ground)
}

/// Reads the relation of orders 20 times, that of reports 10 times, that of neither 5 times.
fn read_all(ground: &Ground) {
    for (database, times) in [("orders/", 20), ("reports/", 10), ("", 5)] {
        let path = ground.mountpoint().join(format!("{database}base/5/16384"));
        for _ in 0..times {
            assert!(fs::read(&path).expect("reads") == content());
        }
    }
}

/// That a simulation of `trace` has both databases as clients, in reads and in what is learned.
fn told_apart(trace: &Path) {
    let trace = trace.to_str().expect("a path");
    let arguments = ["simulate", trace, "--policy", "clic", "--flash", "40p"];
    let runs = json(&[&arguments[..], &["--learned", "--json"]].concat());
    let by_client = runs[0]["by_client"].as_array().expect("clients");
    let reads: BTreeMap<&str, u64> = by_client
        .iter()
        .map(|of| (of["name"].as_str().expect("a name"), &of["reads"]))
        .map(|(name, reads)| (name, reads.as_u64().expect("a count") / PAGES as u64))
        .collect();
    let expected = [("orders", 20), ("reports", 10), ("trace 1, no database", 5)];
    assert!(reads.into_iter().eq(expected), "{by_client:?}");
    let learned = runs[0]["learned"]["hint_sets"].as_array().expect("rows");
    let mut clients: Vec<u64> = learned
        .iter()
        .map(|row| row["client"].as_u64().expect("a number"))
        .collect();
    clients.sort_unstable();
    clients.dedup();
    assert_eq!(clients, [1, 2, 3], "{learned:?}");
}

#[test]
fn databases_of_a_mount_are_clients_of_its_recordings() {
    let Some(ground) = prepared("clients") else {
        return;
    };
    let config = ground.path("clients.toml");
    let first = ground.path("first.parquet");
    let record = format!("--record {}", first.display());
    ground.mounted(&format!(
        "--size 4M --policy clic --config {} {record}",
        config.display()
    ));
    read_all(&ground);
    for (at, name, reads) in [(0, "orders", 20), (1, "reports", 10), (2, "", 5)] {
        let client = ground.status(&format!("/stats/clients/{at}"));
        assert_eq!(client["name"], name);
        let expected = reads * (client["reads"].as_u64().expect("a count") / reads);
        assert_eq!(client["reads"], expected, "{reads} times the same");
        assert_eq!(client["resident"], PAGES as u64, "{client}");
    }
    ground.umount();
    told_apart(&first);

    // The same of a recording that a command begins.
    ground.mounted(&format!("--config {}", config.display()));
    let second = ground.path("second.parquet");
    let mut record = thermocline("record");
    record.arg(ground.mountpoint()).arg(&second);
    let mut record = record.args(["--for", "1h"]).spawn().expect("starts");
    eventually("the recording", || {
        ground.said("record").contains("state running")
    });
    read_all(&ground);
    success(thermocline("record").arg(ground.mountpoint()).arg("--stop"));
    assert!(record.wait().expect("ends").success());
    ground.umount();
    told_apart(&second);
}

/// Requests that nothing but the database tells apart: a loop over more pages than fit, which is
/// hopeless, and a few pages that are asked for again at once.
fn trace(directory: &Path, with: bool) -> String {
    let mut text = "time_ns,offset,length,op,database\n".to_string();
    for number in 0..40_000u64 {
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let draw = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33;
        let (database, page) = match number % 2 {
            0 => ("reports", 1000 + number / 2 % 2000),
            _ => ("orders", draw % 150),
        };
        let database = if with { database } else { "one" };
        let offset = page * 4096;
        let _ = writeln!(text, "{number}000,{offset},4096,r,{database}");
    }
    let path = directory.join(format!("{with}.csv"));
    fs::write(&path, text).expect("written");
    path.to_str().expect("a path").to_string()
}

/// CLIC needs to know whose a request is, in simulation and under the live engine alike.
#[test]
fn clic_tells_the_databases_of_a_trace_apart_simulated_and_replayed() {
    let directory = tempfile::tempdir().expect("directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (with, without) = (
        trace(directory.path(), true),
        trace(directory.path(), false),
    );
    let hits = |run: &Value| run["flash_reads"].as_u64().expect("a count");
    let replayed = |trace: &str| {
        let (base, cache) = (path("base"), path("cache"));
        let tier = ["--directory", &base, "--cache", &cache, "--size", "120p"];
        let how = [
            "--policy",
            "clic",
            "--settle",
            "--json",
            "--emulate-base",
            "hdd",
        ];
        json(&[&["replay", trace, "--prepare", "sparse"][..], &tier, &how].concat())
    };
    let simulated = |trace: &str, slots: u64| {
        let flash = format!("{slots}p");
        json(&[
            "simulate", trace, "--policy", "clic", "--flash", &flash, "--json",
        ])
    };
    let live = replayed(&with);
    let slots = live[0]["slots"].as_u64().expect("slots");
    let (apart, alike) = (simulated(&with, slots), simulated(&without, slots));
    assert!(hits(&apart[0]) > 2 * hits(&alike[0]), "{apart:?} {alike:?}");
    assert_eq!(
        hits(&live[0]),
        hits(&apart[0]),
        "the engine is told as well"
    );
    assert_eq!(hits(&replayed(&without)[0]), hits(&alike[0]));
}
