//! `mount --warm-from`: the list a mount keeps beside base, what an empty cache makes of it, and
//! that no list keeps a mount from serving.

mod common;

use common::*;
use std::fs;
use std::path::PathBuf;

fn list(ground: &Ground) -> PathBuf {
    ground.path(".base.thermocline-hot")
}

fn lose_cache(ground: &Ground) {
    fs::remove_file(ground.path("tier")).expect("there was one");
}

fn count(ground: &Ground, pointer: &str) -> u64 {
    ground.status(pointer).as_u64().expect("a count")
}

fn warmed(ground: &Ground, state: &str) {
    eventually("warming to end", || {
        ground.status("/warm/state") != "reading"
    });
    assert_eq!(ground.status("/warm/state"), state);
}

#[test]
fn a_lost_cache_is_warm_again() {
    let Some(ground) = Ground::prepare("warming") else {
        return;
    };
    ground.mounted("--size 4M");
    (0..3).for_each(|_| ground.read());
    ground.umount();
    let kept = fs::read(list(&ground)).expect("a list");

    lose_cache(&ground);
    ground.mounted("--size 4M --warm-from auto");
    warmed(&ground, "done");
    assert_eq!(count(&ground, "/warm/came"), PAGES as u64);
    assert_eq!(count(&ground, "/stats/tier/warmed"), PAGES as u64);
    let reads = count(&ground, "/stats/page_reads/base");
    ground.read();
    assert_eq!(count(&ground, "/stats/page_reads/base"), reads);
    let status = success(thermocline("status").arg("--once").arg(ground.mountpoint()));
    assert!(status.contains("warmed    64 of 64 pages"), "{status}");
    let metrics = ground.said("metrics");
    assert!(
        metrics.contains("thermocline_warmed_pages_total 64\n"),
        "{metrics}"
    );
    ground.umount();

    // Whoever forgets to say so loses the cache's contents, but not the list.
    lose_cache(&ground);
    ground.mounted("--size 4M");
    assert_eq!(ground.status("/warm/state"), "none");
    ground.umount();
    let pages = |bytes: &[u8]| bytes[24];
    let after = fs::read(list(&ground)).expect("a list");
    assert_eq!((pages(&after), pages(&kept)), (PAGES as u8, PAGES as u8));
}

/// Whoever empties flash on a running mount has what was hot come back, and the list stays.
#[test]
fn a_cache_that_was_emptied_is_warm_again() {
    let Some(ground) = Ground::prepare("warming again") else {
        return;
    };
    ground.mounted("--size 4M");
    (0..3).for_each(|_| ground.read());
    let warm_again = |way: &str| {
        eventually(way, || {
            ground.status("/warm/state") == "done" && count(&ground, "/warm/came") == PAGES as u64
        });
        let reads = count(&ground, "/stats/page_reads/base");
        ground.read();
        assert_eq!(count(&ground, "/stats/page_reads/base"), reads, "{way}");
        let kept = fs::read(list(&ground)).expect("a list");
        assert_eq!(kept[24], PAGES as u8, "{way}");
    };
    let mut replace = thermocline("replace");
    replace.arg(ground.mountpoint());
    success(replace.arg("--cache").arg(ground.path("another")));
    warm_again("replace");
    assert_eq!(
        count(&ground, "/stats/tier/resident"),
        PAGES as u64,
        "on the other cache"
    );
    success(thermocline("tier").arg(ground.mountpoint()).arg("off"));
    assert_eq!(count(&ground, "/stats/tier/resident"), 0);
    ground.read();
    success(thermocline("tier").arg(ground.mountpoint()).arg("on"));
    warm_again("tier on");
    // What was on loses nothing, and nothing is read for it.
    let requests = count(&ground, "/warm/requests");
    success(thermocline("tier").arg(ground.mountpoint()).arg("on"));
    assert_eq!(ground.status("/warm/state"), "done");
    assert_eq!(count(&ground, "/warm/requests"), requests);
    ground.umount();
}

#[test]
fn no_list_keeps_a_mount_from_serving() {
    let Some(ground) = Ground::prepare("warming from nothing") else {
        return;
    };
    fs::write(list(&ground), b"tc-hot\r\n and nothing more").expect("written");
    for (from, why) in [
        ("auto", "failed: not a list of hot pages"),
        ("/nowhere/list", "failed: No such file"),
        ("/dev/zero", "failed: not a list of hot pages: no file"),
    ] {
        ground.mounted(&format!("--size 4M --warm-from {from}"));
        eventually("warming to end", || {
            ground.status("/warm/state") != "reading"
        });
        let state = ground.status("/warm/state").to_string();
        assert!(state.contains(why), "{from}: {state}");
        ground.read();
        ground.umount();
    }
    // What was no list is one by now.
    let config = ground.path("warm.toml");
    fs::write(&config, "[warm]\nevery_s = 1.0\nfrom = \"auto\"\n").expect("written");
    ground.mounted(&format!("--size 4M --config {}", config.display()));
    warmed(&ground, "done");
    assert_eq!(count(&ground, "/warm/came"), 0, "the cache was not lost");
    ground.read();
    eventually("a list to be written", || count(&ground, "/warm/kept") > 0);
    assert_eq!(count(&ground, "/warm/kept_pages"), PAGES as u64);
    ground.umount();

    fs::write(&config, "[warm]\nlist = \"off\"\n").expect("written");
    fs::remove_file(list(&ground)).expect("there was one");
    ground.mounted(&format!("--config {}", config.display()));
    ground.umount();
    assert!(!list(&ground).exists());
}

/// Whoever restores a file on base, which nobody has open, cannot know that it is being warmed.
#[test]
fn a_closed_file_may_be_changed_while_it_is_warmed() {
    let Some(ground) = Ground::prepare("changing what is warmed") else {
        return;
    };
    ground.mounted("--size 4M");
    (0..3).for_each(|_| ground.read());
    ground.umount();
    lose_cache(&ground);
    // One request brings all of it; the rest after it is long.
    let config = ground.path("warm.toml");
    fs::write(&config, "[warm]\nrequests_per_s = 0.05\n").expect("written");
    let config = config.display();
    ground.mounted(&format!("--size 4M --warm-from auto --config {config}"));
    eventually("warming", || count(&ground, "/warm/came") == PAGES as u64);
    assert_eq!(ground.status("/warm/state"), "reading", "it rests");
    let changed: Vec<u8> = content().iter().map(|byte| !byte).collect();
    fs::write(ground.path("base/base/5/16384"), &changed).expect("written");
    let read = fs::read(ground.mountpoint().join("base/5/16384")).expect("read");
    assert!(read == changed, "the bytes from before");
    ground.umount();
}
