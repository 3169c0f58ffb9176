//! A base that hangs keeps nobody waiting whose pages are on flash.

mod common;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use common::{TestMount, cache_everything};
use thermocline::device::{Device, FileDevice, FileOptions};
use thermocline_mount::{DeviceFactory, Transport};

const PAGE: usize = common::PAGE as usize;
/// Clients that wait for base: many more than a mount has threads at first.
const CLIENTS: usize = 60;

/// Whether base hangs, and how many wait for it.
#[derive(Default)]
struct Gate {
    hung: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut hung = self.hung.lock().expect("lock");
        hung.1 += 1;
        self.changed.notify_all();
        let open = self.changed.wait_while(hung, |hung| hung.0);
        open.expect("lock").1 -= 1;
    }

    fn set(&self, hung: bool) {
        self.hung.lock().expect("lock").0 = hung;
        self.changed.notify_all();
    }

    fn is_reached_by(&self, clients: usize) -> bool {
        let hung = self.hung.lock().expect("lock");
        let wait = (self.changed).wait_timeout_while(hung, PATIENCE, |hung| hung.1 < clients);
        !wait.expect("lock").1.timed_out()
    }
}

/// Only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A base file whose reads may hang.
struct Hanging(FileDevice, Arc<Gate>);

impl Device for Hanging {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.pass();
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.0.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch(offset, len)
    }
    fn label(&self) -> String {
        self.0.label()
    }
}

/// Base files whose reads pass the gate.
fn hanging(gate: &Arc<Gate>) -> DeviceFactory {
    let passed = Arc::clone(gate);
    Arc::new(move |file, known| {
        let device = FileDevice::from_file(file, known.name, FileOptions::default())?;
        Ok(Arc::new(Hanging(device, Arc::clone(&passed))))
    })
}

#[test]
fn pages_on_flash_are_read_while_many_clients_wait_for_base() {
    let gate = Arc::new(Gate::default());
    let Some(mount) = TestMount::start(|config| {
        config.devices = hanging(&gate);
        config.rules = cache_everything();
    }) else {
        return;
    };
    let pages = 2 * CLIENTS;
    for name in ["hot", "cold"] {
        std::fs::write(mount.base().join(name), vec![7; pages * PAGE]).expect("write");
    }
    let [hot, cold] = ["hot", "cold"].map(|name| File::open(mount.mnt().join(name)).expect("open"));
    let mut page = vec![0; PAGE];
    for _ in 0..2 {
        hot.read_exact_at(&mut page, 0).expect("read");
    }
    gate.set(true);
    let (served, is_served) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let cold = &cold;
            // No two side by side, last one first: nothing is read ahead.
            let offset = (pages - 2 * client - 1) * PAGE;
            scope.spawn(move || {
                let mut page = vec![0; PAGE];
                cold.read_exact_at(&mut page, offset as u64).expect("read");
                assert_eq!(page, [7; PAGE]);
            });
        }
        let reached = gate.is_reached_by(CLIENTS);
        let hot = &hot;
        scope.spawn(move || {
            let mut page = vec![0; PAGE];
            for _ in 0..100 {
                hot.read_exact_at(&mut page, 0).expect("read");
                assert_eq!(page, [7; PAGE]);
            }
            served.send(()).expect("told");
        });
        let all_served = is_served.recv_timeout(PATIENCE).is_ok();
        gate.set(false);
        (reached, all_served)
    });
    assert_eq!(
        outcome,
        (true, true),
        "all reach base, and a hit waits for none"
    );
    drop((hot, cold));
    mount.end();
}

/// As many as a mount may have threads, before any file was ever closed.
#[test]
fn a_file_is_closed_while_every_thread_waits_for_base() {
    let gate = Arc::new(Gate::default());
    let threads = 128;
    let Some(mount) = TestMount::start(|config| {
        config.devices = hanging(&gate);
        config.rules = cache_everything();
        config.transport = Transport::Device;
        config.threads = threads;
    }) else {
        return;
    };
    for name in ["closed", "cold"] {
        let content = vec![7; 2 * threads * PAGE];
        std::fs::write(mount.base().join(name), content).expect("write");
    }
    let [closed, cold] =
        ["closed", "cold"].map(|name| File::open(mount.mnt().join(name)).expect("open"));
    gate.set(true);
    let (tell, is_closed) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        for client in 0..threads {
            let cold = &cold;
            let offset = (2 * (threads - client) - 1) * PAGE;
            scope.spawn(move || {
                let mut page = vec![0; PAGE];
                cold.read_exact_at(&mut page, offset as u64).expect("read");
            });
        }
        let reached = gate.is_reached_by(threads);
        scope.spawn(move || {
            drop(closed);
            tell.send(()).expect("told");
        });
        let is_closed = is_closed.recv_timeout(PATIENCE).is_ok();
        gate.set(false);
        (reached, is_closed)
    });
    assert_eq!(outcome, (true, true), "all wait, and a close does not");
    drop(cold);
    mount.end();
}
