//! A volume behind a network: a round trip, a bandwidth, and a limit on requests per second.

use super::{IoOp, Nanos, Wire, transfer_ns};

/// What a provider promises. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkParameters {
    /// What to call it in output.
    pub name: &'static str,
    /// From request to answer, without the transfer.
    pub round_trip: u64,
    /// Bytes per second, both directions together.
    pub rate: u64,
    /// Requests per second, reads, writes and syncs together.
    pub requests_per_second: u64,
    /// Requests under way at once.
    pub channels: u32,
}

impl NetworkParameters {
    /// A general-purpose block volume of a public cloud at its baseline: 3000 requests/s,
    /// 125 MiB/s; a round trip of 1 ms, the low end of the "single-digit milliseconds" such
    /// volumes are sold with.
    pub const VOLUME: Self = Self {
        name: "network volume",
        round_trip: 1_000_000,
        rate: 125 << 20,
        requests_per_second: 3000,
        channels: 64,
    };

    /// How long a request keeps others from passing: its bytes, or its share of the limit.
    fn occupancy(&self, len: u64) -> u64 {
        transfer_ns(len, self.rate).max(1_000_000_000 / self.requests_per_second)
    }

    /// Mean nanoseconds of a request with nothing queued.
    pub(super) fn expected(&self, _op: IoOp, len: u64) -> u64 {
        self.round_trip + transfer_ns(len, self.rate)
    }
}

/// A network volume at one moment.
#[derive(Clone, Debug)]
pub struct NetworkModel {
    parameters: NetworkParameters,
    wire: Wire,
}

impl NetworkModel {
    /// An idle volume.
    ///
    /// # Panics
    /// When it has no channel, no bandwidth or no requests per second.
    #[must_use]
    pub fn new(parameters: NetworkParameters) -> Self {
        assert!(parameters.channels > 0 && parameters.rate > 0);
        assert!(parameters.requests_per_second > 0);
        Self {
            parameters,
            wire: Wire::default(),
        }
    }

    /// What it was made with.
    #[must_use]
    pub fn parameters(&self) -> &NetworkParameters {
        &self.parameters
    }

    /// See [`super::Model::service`]. A sync is a round trip like any other request.
    pub fn service(&mut self, now: Nanos, _op: IoOp, len: u64) -> u64 {
        let p = &self.parameters;
        let transfer = transfer_ns(len, p.rate);
        // The request's turn comes when the ones before have used up their share.
        let turn = self.wire.free_at.max(now.0);
        self.wire.carry(now.0, p.occupancy(len));
        turn - now.0 + transfer + p.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: NetworkParameters = NetworkParameters::VOLUME;

    #[test]
    fn one_at_a_time_waits_for_the_round_trip() {
        let mut volume = NetworkModel::new(P);
        let mut now = 0;
        for _ in 0..100 {
            now += volume.service(Nanos(now), IoOp::Read, 8192);
        }
        assert_eq!(now, 100 * P.expected(IoOp::Read, 8192));
    }

    #[test]
    fn many_at_once_meet_the_request_limit() {
        let mut volume = NetworkModel::new(P);
        let last = (0..3000)
            .map(|_| volume.service(Nanos(0), IoOp::Read, 4096))
            .max()
            .unwrap();
        assert!((990_000_000..=1_002_000_000).contains(&last), "{last}");
    }

    #[test]
    fn large_requests_meet_the_bandwidth() {
        let mut volume = NetworkModel::new(P);
        let last = (0..125)
            .map(|_| volume.service(Nanos(0), IoOp::Write, 1 << 20))
            .max()
            .unwrap();
        assert!((1_000_000_000..=1_002_000_000).contains(&last), "{last}");
    }
}
