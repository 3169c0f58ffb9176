//! Virtual time: n clients that each wait for their I/O and then take the next of the trace.
//!
//! Each device has a queue (first come, first served) before as many channels as its model says.
//! A client does the steps of its I/O one after another, as the live engine does: the pages
//! found on flash one by one, and each run of adjacent pages that are not there with one base
//! I/O, which passes over pages found elsewhere where that is the shorter ([`Devices::bridge`]): it
//! brings those of flash that base has too. Pages written to flash go to its queue when the client
//! comes to them; nobody waits for them, but reads queue behind them. There is no time between
//! I/Os; the pool costs nothing.
//!
//! Which pages are where was decided in the order of the trace before, so that hit ratios do not
//! depend on the number of clients.

use crate::device::{Devices, Timing};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use thermocline_core::model::{IoOp, Nanos};

/// Bytes that one read of base over pages found elsewhere has at most, as in the live engine.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// Which device an I/O is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Bulk storage.
    Base,
    /// The tier's.
    Flash,
}

/// One I/O on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub device: Device,
    /// Read, write or sync.
    pub op: IoOp,
    /// First byte; flash has no positions.
    pub position: u64,
    /// Bytes.
    pub len: u64,
    /// Whether the client waits for it, or leaves it in the device's queue.
    pub waits: bool,
    /// Whether base has the same bytes.
    pub on_base: bool,
}

impl Step {
    /// The same I/O with nobody waiting for it.
    #[must_use]
    pub const fn later(self) -> Self {
        Self {
            waits: false,
            ..self
        }
    }

    /// The same I/O of bytes that base has too, if `clean`.
    #[must_use]
    pub const fn clean(self, clean: bool) -> Self {
        Self {
            on_base: clean,
            ..self
        }
    }

    /// An I/O of `len` bytes from `position` of base, that is waited for.
    #[must_use]
    pub const fn base(op: IoOp, position: u64, len: u64) -> Self {
        Self {
            device: Device::Base,
            op,
            position,
            len,
            waits: true,
            on_base: false,
        }
    }

    /// An I/O of `len` bytes on flash, that is waited for.
    #[must_use]
    pub const fn flash(op: IoOp, len: u64) -> Self {
        Self {
            device: Device::Flash,
            op,
            position: 0,
            len,
            waits: true,
            on_base: false,
        }
    }
}

/// What was done from one moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Until every device was idle, ns.
    pub ns: u64,
    /// Time base spent serving, over all its channels, ns.
    pub base_busy_ns: u64,
    /// The same of flash.
    pub flash_busy_ns: u64,
    /// Time base served at least one I/O, ns.
    pub base_active_ns: u64,
    /// The same of flash.
    pub flash_active_ns: u64,
    /// I/Os of base.
    pub base_ios: u64,
    /// I/Os of flash.
    pub flash_ios: u64,
}

/// A device and its queue.
#[derive(Debug)]
struct Server {
    timing: Timing,
    /// When each channel is free next.
    free: BinaryHeap<Reverse<u64>>,
    busy_ns: u64,
    active_ns: u64,
    ios: u64,
    last_end: u64,
}

impl Server {
    fn new(timing: Timing) -> Self {
        let channels = timing.channels().max(1) as usize;
        Self {
            timing,
            free: std::iter::repeat_n(Reverse(0), channels).collect(),
            busy_ns: 0,
            active_ns: 0,
            ios: 0,
            last_end: 0,
        }
    }

    /// Queues an I/O that arrives `now`, which never goes back; returns its end.
    fn submit(&mut self, now: u64, op: IoOp, position: u64, len: u64) -> u64 {
        let free = self.free.pop().map_or(0, |Reverse(free)| free);
        let start = now.max(free);
        let took = self.timing.service(Nanos(start), op, position, len);
        let end = start.saturating_add(took);
        self.free.push(Reverse(end));
        self.busy_ns = self.busy_ns.saturating_add(took);
        // I/Os start in the order of their submission.
        self.active_ns += end.saturating_sub(start.max(self.last_end));
        self.ios += 1;
        self.last_end = self.last_end.max(end);
        end
    }
}

/// See the module text.
#[derive(Debug)]
pub struct ClosedLoop {
    base: Server,
    flash: Server,
    /// When each client is done with its step.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// Steps each client has still to do.
    left: Vec<VecDeque<Step>>,
    /// See [`Devices::bridge_bytes`].
    bridge: u64,
    now: u64,
    mark: (u64, Elapsed),
    mark_next: bool,
}

impl ClosedLoop {
    /// `clients` idle clients (at least one) of `devices`, with pages of `page_size` bytes.
    #[must_use]
    pub fn new(devices: &Devices, clients: u32, page_size: u32) -> Self {
        let clients = clients.max(1) as usize;
        Self {
            base: Server::new(devices.base.clone()),
            flash: Server::new(devices.flash.clone()),
            ready: (0..clients).map(|client| Reverse((0, client))).collect(),
            left: vec![VecDeque::new(); clients],
            bridge: devices.bridge_bytes(page_size),
            now: 0,
            mark: (0, Elapsed::default()),
            mark_next: false,
        }
    }

    /// The next client that is free does an I/O of these steps.
    pub fn io(&mut self, steps: &[Step]) {
        while let Some(Reverse((now, client))) = self.ready.pop() {
            debug_assert!(now >= self.now, "time never goes back");
            self.now = now;
            let idle = self.left[client].is_empty();
            if idle {
                let left = &mut self.left[client];
                steps.iter().for_each(|step| take(left, *step, self.bridge));
                if std::mem::take(&mut self.mark_next) {
                    self.mark = (now, self.totals());
                }
            }
            self.advance(now, client);
            if idle {
                return;
            }
        }
    }

    /// Does the client's next step that takes time.
    fn advance(&mut self, now: u64, client: usize) {
        let mut end = now;
        while let Some(step) = self.left[client].pop_front() {
            let server = match step.device {
                Device::Base => &mut self.base,
                Device::Flash => &mut self.flash,
            };
            let done = server.submit(now, step.op, step.position, step.len);
            if step.waits {
                end = done;
                break;
            }
        }
        self.ready.push(Reverse((end, client)));
    }

    /// Measures from the next I/O on.
    pub fn start_measuring(&mut self) {
        self.mark_next = true;
    }

    /// When the last I/O began, ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now
    }

    fn totals(&self) -> Elapsed {
        Elapsed {
            ns: 0,
            base_busy_ns: self.base.busy_ns,
            flash_busy_ns: self.flash.busy_ns,
            base_active_ns: self.base.active_ns,
            flash_active_ns: self.flash.active_ns,
            base_ios: self.base.ios,
            flash_ios: self.flash.ios,
        }
    }

    /// Lets every client finish; returns what was measured.
    #[must_use]
    pub fn finish(mut self) -> Elapsed {
        while let Some(Reverse((now, client))) = self.ready.pop() {
            self.now = now;
            if !self.left[client].is_empty() {
                self.advance(now, client);
            }
        }
        let end = self.now.max(self.base.last_end).max(self.flash.last_end);
        let (from, before) = self.mark;
        let after = self.totals();
        Elapsed {
            ns: end - from,
            base_busy_ns: after.base_busy_ns - before.base_busy_ns,
            flash_busy_ns: after.flash_busy_ns - before.flash_busy_ns,
            base_active_ns: after.base_active_ns - before.base_active_ns,
            flash_active_ns: after.flash_active_ns - before.flash_active_ns,
            base_ios: after.base_ios - before.base_ios,
            flash_ios: after.flash_ios - before.flash_ios,
        }
    }
}

/// Puts `step` behind those of its I/O, or into the base read before it that it is bridged to. What
/// nobody waits for parts no read from its neighbour.
fn take(left: &mut VecDeque<Step>, step: Step, bridge: u64) {
    let is_read = |s: &Step| (s.device, s.op, s.waits) == (Device::Base, IoOp::Read, true);
    // Only a read of base is bridged: no other step is worth a look at all before it.
    let before = match is_read(&step) {
        true => left
            .iter()
            .rposition(|s| s.device == Device::Base && s.waits),
        false => None,
    };
    if let Some(at) = before
        && is_read(&left[at])
        && let Some(gap) = step.position.checked_sub(left[at].position + left[at].len)
        && (gap == 0 || gap <= bridge && left[at].len + gap + step.len <= RUN_BYTES_MAX)
    {
        left[at].len += gap + step.len;
        if gap == 0 {
            return;
        }
        let mut between = left.split_off(at + 1);
        between.retain(|s| (s.op, s.waits, s.on_base) != (IoOp::Read, true, true));
        left.append(&mut between);
        return;
    }
    left.push_back(step);
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::Costs;

    fn devices() -> Devices {
        let costs = Costs {
            base_random_read: 1000.0,
            base_sequential_read: 1000.0,
            base_random_write: 1000.0,
            flash_read: 10.0,
            flash_write: 20.0,
        };
        Devices::calibrated(&costs, 4096)
    }

    const BASE: Step = Step::base(IoOp::Read, 0, 4096);
    const READ: Step = Step::flash(IoOp::Read, 4096);
    const WRITE: Step = Step::flash(IoOp::Write, 4096).later();

    fn run(clients: u32, ios: &[&[Step]]) -> Elapsed {
        let mut all = ClosedLoop::new(&devices(), clients, 4096);
        ios.iter().for_each(|steps| all.io(steps));
        all.finish()
    }

    #[test]
    fn one_client_waits_for_every_step_but_flash_writes() {
        let elapsed = run(1, &[&[BASE, WRITE], &[READ], &[]]);
        // 1000 + (the read waits behind the write of 20) + 10.
        assert_eq!(elapsed.ns, 1030);
        assert_eq!((elapsed.base_busy_ns, elapsed.flash_busy_ns), (1000, 30));
        assert_eq!((elapsed.base_ios, elapsed.flash_ios), (1, 2));
    }

    #[test]
    fn clients_overlap_on_different_devices_and_queue_on_the_same() {
        assert_eq!(run(2, &[&[BASE], &[READ], &[READ], &[READ]]).ns, 1000);
        assert_eq!(run(2, &[&[BASE], &[BASE], &[BASE]]).ns, 3000);
        assert_eq!(run(1, &[&[READ], &[BASE]]).ns, 1010);
    }

    #[test]
    fn base_reads_of_one_io_are_bridged_over_what_is_on_flash() {
        let bridged = |between: Step, gap: u64, bridge| {
            let devices = Devices {
                bridge,
                ..devices()
            };
            let mut all = ClosedLoop::new(&devices, 1, 4096);
            all.io(&[BASE, between, Step::base(IoOp::Read, 4096 + gap, 4096)]);
            all.io(&[Step::base(IoOp::Read, 8192 + gap, 4096)]);
            let elapsed = all.finish();
            (elapsed.base_ios, elapsed.base_busy_ns, elapsed.flash_ios)
        };
        // A page of a run costs 1000 here, wherever it is.
        assert_eq!(bridged(READ, 4096, Some(0)), (3, 3000, 1));
        assert_eq!(bridged(READ, 8192, Some(4096)), (3, 3000, 1));
        // The page between is read too, and from flash if it is dirty; another I/O is read alone.
        assert_eq!(bridged(READ, 4096, Some(4096)), (2, 4000, 1));
        assert_eq!(bridged(READ.clean(true), 4096, Some(4096)), (2, 4000, 0));
        // No read becomes longer than the engine's longest.
        let far = RUN_BYTES_MAX - 8192;
        assert_eq!(bridged(READ, far, Some(u64::MAX)).0, 2);
        assert_eq!(bridged(READ, far + 4096, Some(u64::MAX)).0, 3);
        // Nothing is saved where nothing seeks.
        assert_eq!(bridged(READ, 4096, None).0, 3);
    }

    #[test]
    fn a_run_of_pages_is_one_read_whatever_is_done_with_each() {
        // Each page that comes goes to flash, and another leaves for base.
        let destage = Step::base(IoOp::Write, 1 << 20, 4096).later();
        let second = Step::base(IoOp::Read, 4096, 4096);
        let devices = Devices {
            bridge: Some(0),
            ..devices()
        };
        let mut all = ClosedLoop::new(&devices, 1, 4096);
        all.io(&[BASE, WRITE, destage, second, WRITE, destage]);
        let elapsed = all.finish();
        assert_eq!((elapsed.base_ios, elapsed.flash_ios), (3, 2));
    }

    /// By the square of their number it would not end.
    #[test]
    fn an_io_of_many_pages_costs_by_their_number() {
        let mut left = VecDeque::new();
        take(&mut left, BASE, 0);
        (0..1_000_000).for_each(|_| take(&mut left, WRITE, 0));
        assert_eq!(left.len(), 1_000_001);
        left.clear();
        for page in 0..20_000 {
            take(&mut left, Step::base(IoOp::Read, page * 4096, 4096), 0);
            take(&mut left, WRITE, 0);
        }
        assert_eq!(left.len(), 20_001);
    }

    #[test]
    fn by_itself_the_bridge_is_as_long_as_a_seek() {
        let costs = Costs {
            base_random_read: 1000.0,
            base_sequential_read: 300.0,
            flash_read: 10.0,
            ..Costs::default()
        };
        let devices = Devices::calibrated(&costs, 4096);
        assert_eq!(devices.bridge_bytes(4096), 2 * 4096);
        let disk = Devices {
            base: crate::device::Timing::base("hdd").expect("a preset"),
            ..devices
        };
        assert!(disk.bridge_bytes(8192) > 128 << 10);
        let given = Devices {
            bridge: Some(7),
            ..disk
        };
        assert_eq!(given.bridge_bytes(8192), 7);
    }

    #[test]
    fn two_clients_interleave_their_steps_in_time() {
        // Client A: base then flash; client B: flash three times meanwhile.
        let elapsed = run(2, &[&[BASE, READ], &[READ, READ, READ]]);
        assert_eq!(elapsed.ns, 1010);
    }

    #[test]
    fn a_device_is_active_while_any_of_its_channels_is() {
        let flash = crate::device::Timing::flash("ssd").expect("a preset");
        let devices = Devices { flash, ..devices() };
        let mut all = ClosedLoop::new(&devices, 1, 4096);
        all.io(&[WRITE, WRITE, READ]);
        all.io(&[BASE.later()]);
        let elapsed = all.finish();
        assert!(elapsed.flash_active_ns < elapsed.flash_busy_ns);
        assert!(elapsed.flash_active_ns + elapsed.base_active_ns >= elapsed.ns);
        assert_eq!(elapsed.base_active_ns, elapsed.base_busy_ns);
    }

    #[test]
    fn warm_up_is_not_measured() {
        let mut all = ClosedLoop::new(&devices(), 1, 4096);
        all.io(&[BASE]);
        all.io(&[READ]);
        all.start_measuring();
        all.io(&[READ]);
        let elapsed = all.finish();
        assert_eq!((elapsed.flash_ios, elapsed.base_ios), (1, 0));
        assert_eq!(elapsed.ns, 10);
    }
}
