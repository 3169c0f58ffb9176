//! A hard disk: one arm over rotating tracks.
//!
//! Service = seek + settle (writes) + rotational wait + transfer; a request that starts where
//! the last one of its kind ended pays the transfer only, because the drive reads ahead and
//! takes queued writes back to back. A read that leaves out up to `read_ahead` bytes of its stream
//! pays their transfer besides: they pass under the head into the drive's buffer.
//!
//! Simplifications, all on one side: tracks are equally long from rim to hub (no zones), one
//! surface, skew hides track switches, and there is no cache besides the read-ahead of the one
//! latest stream. The write cache is off, so a write is durable when done and a sync is free.

use super::{IoOp, Nanos, Pattern, transfer_ns};

/// What a data sheet says of a drive. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskParameters {
    /// What to call it in output.
    pub name: &'static str,
    /// Bytes.
    pub capacity: u64,
    /// Revolutions per minute.
    pub rpm: u32,
    /// Seek to the neighbouring track.
    pub seek_track: u64,
    /// Mean seek over all pairs of tracks.
    pub seek_average: u64,
    /// Seek from the first to the last track.
    pub seek_full: u64,
    /// What a write takes longer to settle on its track.
    pub write_settle: u64,
    /// Bytes per second under the head.
    pub media_rate: u64,
    /// Bytes that the drive buffers ahead of a stream of reads; 0: nothing but the next byte.
    pub read_ahead: u64,
}

impl DiskParameters {
    /// The disk of the TAC paper, §4.1: Seagate SATA, 1 TB, 7200 rpm, 8.2 ms average seek,
    /// 4.17 ms average rotational latency, 1070 Mbit/s from the media. Not in the paper, typical
    /// of such drives: 1 ms to the next track, full stroke twice the average, 1 ms longer
    /// seeks for writes.
    pub const RPM_7200: Self = Self {
        name: "7200-rpm disk",
        capacity: 1_000_000_000_000,
        rpm: 7200,
        seek_track: 1_000_000,
        seek_average: 8_200_000,
        seek_full: 16_400_000,
        write_settle: 1_000_000,
        media_rate: 133_750_000,
        read_ahead: 0,
    };

    /// Typical data-sheet values of a 15,000-rpm SAS drive of 600 GB: 3.4 ms average seek to
    /// read and 3.9 ms to write, 2 ms average rotational latency, 204 MB/s. Assumed: of its 16 MB
    /// of buffer a stream has 1 MiB.
    pub const RPM_15000: Self = Self {
        name: "15000-rpm disk",
        capacity: 600_000_000_000,
        rpm: 15_000,
        seek_track: 200_000,
        seek_average: 3_400_000,
        seek_full: 6_800_000,
        write_settle: 500_000,
        media_rate: 204_000_000,
        read_ahead: 1 << 20,
    };

    /// Nanoseconds of one revolution.
    #[must_use]
    pub const fn rotation(&self) -> u64 {
        60_000_000_000 / self.rpm as u64
    }

    /// Bytes on one track: what passes under the head in one revolution.
    fn track_bytes(&self) -> u64 {
        let bytes = u128::from(self.media_rate) * u128::from(self.rotation()) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    /// Mean nanoseconds of a request with nothing queued.
    pub(super) fn expected(&self, op: IoOp, pattern: Pattern, len: u64) -> u64 {
        let position = match pattern {
            Pattern::Random => self.seek_average + self.rotation() / 2,
            Pattern::Sequential => 0,
        };
        let settle = if pattern == Pattern::Random {
            self.write_settle
        } else {
            0
        };
        match op {
            IoOp::Read => position + transfer_ns(len, self.media_rate),
            IoOp::Write => position + settle + transfer_ns(len, self.media_rate),
            IoOp::Sync => 0,
        }
    }
}

/// Seek time as `a + b·√x + c·x` of the distance x, as a fraction of the full stroke.
///
/// The square root is the arm accelerating and braking, the linear part its coasting. The three
/// numbers are fitted to the three of the data sheet: x = 0 gives track-to-track (one track is
/// nothing against a stroke of a million), x = 1 gives full stroke, and the mean over two
/// independent uniform tracks, where E√x = 8/15 and Ex = 1/3, gives the average.
#[derive(Clone, Copy, Debug)]
struct SeekCurve {
    a: f64,
    b: f64,
    c: f64,
}

impl SeekCurve {
    fn fit(track: u64, average: u64, full: u64) -> Self {
        assert!(
            track <= average && average <= full,
            "seek times grow with distance"
        );
        let (a, average, full) = (track as f64, average as f64, full as f64);
        let b = 5.0 * (average - a) - 5.0 / 3.0 * (full - a);
        let c = full - a - b;
        assert!(
            b >= 0.0 && b / 2.0 + c >= 0.0,
            "the seek curve must not fall"
        );
        Self { a, b, c }
    }

    /// Nanoseconds to move over `x` of the full stroke, 0 < x <= 1.
    fn time(&self, x: f64) -> u64 {
        debug_assert!((0.0..=1.0).contains(&x));
        (self.a + self.b * x.sqrt() + self.c * x) as u64
    }
}

/// A disk's mechanics at one moment.
///
/// Invariant: `arm` is the track of the last byte served; `stream` is where the next byte of
/// the same stream would be.
#[derive(Clone, Debug)]
pub struct DiskModel {
    parameters: DiskParameters,
    curve: SeekCurve,
    track_bytes: u64,
    arm: u64,
    stream: Option<(IoOp, u64)>,
}

impl DiskModel {
    /// A disk with its arm on the first track.
    ///
    /// # Panics
    /// When the parameters contradict each other (zero rates, seek times that fall with
    /// distance).
    #[must_use]
    pub fn new(parameters: DiskParameters) -> Self {
        assert!(parameters.rpm > 0 && parameters.media_rate > 0 && parameters.capacity > 0);
        let curve = SeekCurve::fit(
            parameters.seek_track,
            parameters.seek_average,
            parameters.seek_full,
        );
        let track_bytes = parameters.track_bytes();
        Self {
            parameters,
            curve,
            track_bytes,
            arm: 0,
            stream: None,
        }
    }

    /// What it was made with.
    #[must_use]
    pub fn parameters(&self) -> &DiskParameters {
        &self.parameters
    }

    /// Nanoseconds to move the arm between two tracks.
    #[must_use]
    pub fn seek(&self, from: u64, to: u64) -> u64 {
        if from == to {
            return 0;
        }
        let tracks = (self.parameters.capacity / self.track_bytes).max(1);
        self.curve
            .time((from.abs_diff(to) as f64 / tracks as f64).min(1.0))
    }

    /// See [`super::Model::positioning`]. Ignores what a write needs to settle.
    #[must_use]
    pub fn positioning(&self, now: Nanos, position: u64) -> u64 {
        let position = position % self.parameters.capacity;
        if self.stream.is_some_and(|(_, next)| next == position) {
            return 0;
        }
        self.reach(now, IoOp::Read, position, 0)
    }

    /// Moves there, or lets what a read leaves out of its stream pass, whichever is sooner.
    fn reach(&self, now: Nanos, op: IoOp, position: u64, settle: u64) -> u64 {
        let moved = self.move_to(now, position, settle);
        let passing = self
            .left_out(op, position)
            .map(|gap| transfer_ns(gap, self.parameters.media_rate));
        passing.map_or(moved, |passing| passing.min(moved))
    }

    /// Bytes that a read at `position` leaves out of the stream, where the drive has them ahead.
    fn left_out(&self, op: IoOp, position: u64) -> Option<u64> {
        let (IoOp::Read, Some((IoOp::Read, next))) = (op, self.stream) else {
            return None;
        };
        position
            .checked_sub(next)
            .filter(|gap| *gap <= self.parameters.read_ahead)
    }

    /// Seek, `settle`, then wait until `position` comes round.
    fn move_to(&self, now: Nanos, position: u64, settle: u64) -> u64 {
        let arrived = self.seek(self.arm, position / self.track_bytes) + settle;
        arrived + self.rotational_wait(now.0.wrapping_add(arrived), position)
    }

    /// Nanoseconds until the sector at `position` is under the head. The platter has been
    /// turning since time 0, so this depends on the time alone.
    fn rotational_wait(&self, at: u64, position: u64) -> u64 {
        let rotation = self.parameters.rotation();
        let sector = u128::from(position % self.track_bytes) * u128::from(rotation)
            / u128::from(self.track_bytes);
        let sector = sector as u64;
        let wait = (sector + rotation - at % rotation) % rotation;
        debug_assert!(sector < rotation && wait < rotation);
        wait
    }

    /// Whether the head is on the track of `position` and has just written there: it need not
    /// settle again, so writes in order of position cost the rotation between them.
    fn settled_at(&self, position: u64) -> bool {
        let wrote = self.stream.is_some_and(|(op, _)| op == IoOp::Write);
        wrote && self.arm == position / self.track_bytes
    }

    /// See [`super::Model::service`].
    pub fn service(&mut self, now: Nanos, op: IoOp, position: u64, len: u64) -> u64 {
        if op == IoOp::Sync || len == 0 {
            return 0;
        }
        let position = position % self.parameters.capacity;
        let settle = if op == IoOp::Write && !self.settled_at(position) {
            self.parameters.write_settle
        } else {
            0
        };
        let move_ns = match self.stream {
            Some(continued) if continued == (op, position) => 0,
            _ => self.reach(now, op, position, settle),
        };
        let end = position.saturating_add(len) % self.parameters.capacity;
        self.arm = end.saturating_sub(1) / self.track_bytes;
        self.stream = Some((op, end));
        move_ns + transfer_ns(len, self.parameters.media_rate)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DISKS: [DiskParameters; 2] = [DiskParameters::RPM_7200, DiskParameters::RPM_15000];

    #[test]
    fn a_read_that_skips_waits_for_what_it_leaves_out_to_pass() {
        let mut disk = DiskModel::new(DiskParameters::RPM_15000);
        let mut now = disk.service(Nanos(0), IoOp::Read, 1 << 30, 8192);
        // Away for 0.1 ms, in which the sector after the gap passes under the head.
        now += 100_000;
        let rate = DiskParameters::RPM_15000.media_rate;
        let skipped = disk.service(Nanos(now), IoOp::Read, (1 << 30) + 16_384, 8192);
        assert_eq!(skipped, 2 * transfer_ns(8192, rate));
        let far = (1 << 30) + 24_576 + (1 << 20) + 8192;
        assert!(disk.service(Nanos(now + skipped), IoOp::Read, far, 8192) > skipped);
        assert!(disk.service(Nanos(now), IoOp::Write, far + 16_384, 8192) > skipped);
    }

    /// Mean service time of random requests over the whole disk, back to back.
    fn random_mean(parameters: DiskParameters, op: IoOp, len: u64) -> u64 {
        let mut disk = DiskModel::new(parameters);
        let (mut now, mut state) = (0, 1u64);
        let requests = 20_000;
        for _ in 0..requests {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let page = (u128::from(state) * u128::from(parameters.capacity / len)) >> 64;
            now += disk.service(Nanos(now), op, page as u64 * len, len);
        }
        now / requests
    }

    fn within(actual: u64, expected: u64, percent: u64) -> bool {
        actual.abs_diff(expected) * 100 <= expected * percent
    }

    #[test]
    fn random_pages_cost_seek_plus_half_a_turn_plus_transfer() {
        // TAC §4.1: 8.2 ms + 4.17 ms + 8 KiB at 133.75 MB/s.
        let mean = random_mean(DiskParameters::RPM_7200, IoOp::Read, 8192);
        assert!(within(mean, 8_200_000 + 4_166_666 + 61_248, 2), "{mean}");
        for disk in DISKS {
            for op in [IoOp::Read, IoOp::Write] {
                let mean = random_mean(disk, op, 16384);
                let expected = disk.expected(op, Pattern::Random, 16384);
                assert!(
                    within(mean, expected, 2),
                    "{}: {mean} for {expected}",
                    disk.name
                );
            }
        }
    }

    #[test]
    fn a_stream_runs_at_the_media_rate() {
        for parameters in DISKS {
            let mut disk = DiskModel::new(parameters);
            let mut now = 0;
            for page in 0..10_000u64 {
                now += disk.service(Nanos(now), IoOp::Read, (1 << 30) + page * 8192, 8192);
            }
            let rate = u128::from(10_000 * 8192u64) * 1_000_000_000 / u128::from(now);
            assert!(within(rate as u64, parameters.media_rate, 5), "{rate}");
        }
    }

    #[test]
    fn a_stream_broken_by_another_request_pays_again() {
        let mut disk = DiskModel::new(DiskParameters::RPM_7200);
        let transfer = transfer_ns(8192, DiskParameters::RPM_7200.media_rate);
        let mut now = disk.service(Nanos(0), IoOp::Read, 0, 8192);
        let next = disk.service(Nanos(now), IoOp::Read, 8192, 8192);
        assert_eq!(next, transfer);
        now += next;
        now += disk.service(Nanos(now), IoOp::Read, 500_000_000_000, 8192);
        let back = disk.service(Nanos(now), IoOp::Read, 16384, 8192);
        assert!(back > DiskParameters::RPM_7200.seek_average, "{back}");
        let other_kind = disk.service(Nanos(now + back), IoOp::Write, 24576, 8192);
        assert!(other_kind > transfer + DiskParameters::RPM_7200.write_settle);
    }

    #[test]
    fn writes_in_order_on_one_track_share_a_turn() {
        let mut disk = DiskModel::new(DiskParameters::RPM_7200);
        let mut now = disk.service(Nanos(0), IoOp::Write, 0, 4096);
        let first = now;
        for step in 1..10 {
            now += disk.service(Nanos(now), IoOp::Write, step * disk.track_bytes / 10, 4096);
        }
        assert!(now - first < DiskParameters::RPM_7200.rotation(), "{now}");
    }

    #[test]
    fn the_platter_turns_with_time() {
        let disk = DiskModel::new(DiskParameters::RPM_7200);
        let turn = DiskParameters::RPM_7200.rotation();
        let half_track = disk.track_bytes / 2;
        // Same track, no seek: the sector half a turn away is half a turn away.
        assert!(within(
            disk.positioning(Nanos(turn * 7), half_track),
            turn / 2,
            1
        ));
        assert!(disk.positioning(Nanos(turn * 7 + turn / 2 - 10_000), half_track) < 20_000);
        // Just missed: nearly a whole turn.
        assert!(disk.positioning(Nanos(turn * 7 + turn / 2 + 10_000), half_track) > turn * 9 / 10);
    }

    #[test]
    fn syncs_are_free_without_a_write_cache() {
        let mut disk = DiskModel::new(DiskParameters::RPM_7200);
        assert_eq!(disk.service(Nanos(5), IoOp::Sync, 0, 0), 0);
        assert_eq!(
            DiskParameters::RPM_7200.expected(IoOp::Sync, Pattern::Random, 0),
            0
        );
    }

    #[test]
    fn the_seek_curve_meets_the_data_sheet() {
        for p in DISKS {
            let disk = DiskModel::new(p);
            let tracks = p.capacity / disk.track_bytes;
            assert!(within(disk.seek(10, 11), p.seek_track, 5));
            assert_eq!(disk.seek(0, tracks), p.seek_full);
            assert_eq!(disk.seek(9, 9), 0);
            let steps = 300;
            let sum: u64 = (0..steps * steps)
                .map(|i| disk.seek(i / steps * tracks / steps, i % steps * tracks / steps))
                .sum();
            assert!(within(sum / (steps * steps), p.seek_average, 2));
        }
    }

    #[test]
    #[should_panic(expected = "seek times grow")]
    fn contradictory_seek_times_are_refused() {
        let _ = DiskModel::new(DiskParameters {
            seek_full: 1,
            ..DiskParameters::RPM_7200
        });
    }

    proptest! {
        #[test]
        fn longer_seeks_take_longer(from in 0u64..897_000, a in 0u64..897_000, b in 0u64..897_000) {
            let disk = DiskModel::new(DiskParameters::RPM_7200);
            let (near, far) = if from.abs_diff(a) <= from.abs_diff(b) { (a, b) } else { (b, a) };
            prop_assert!(disk.seek(from, near) <= disk.seek(from, far));
            prop_assert_eq!(disk.seek(from, a), disk.seek(a, from));
        }

        #[test]
        fn service_is_positioning_plus_transfer_for_reads(
            now in 0u64..1 << 50, start in any::<u64>(), position in any::<u64>(),
        ) {
            let mut disk = DiskModel::new(DiskParameters::RPM_15000);
            disk.service(Nanos(0), IoOp::Read, start, 4096);
            let expected = disk.positioning(Nanos(now), position);
            let p = DiskParameters::RPM_15000;
            prop_assert!(expected <= p.seek_full + p.rotation());
            let took = disk.service(Nanos(now), IoOp::Read, position, 4096);
            prop_assert_eq!(took, expected + transfer_ns(4096, p.media_rate));
        }
    }
}
