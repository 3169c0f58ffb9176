//! What an emulated device reports.

use serde::Serialize;

/// What an emulated device has done since it was made, in its own time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceUsage {
    /// The device's label; says "emulated".
    pub label: String,
    /// Nanoseconds since it was made.
    pub elapsed_ns: u64,
    /// Nanoseconds in which at least one request was in service.
    pub busy_ns: u64,
    /// Nanoseconds requests were in service, added up over requests.
    pub service_ns: u64,
    /// Nanoseconds requests waited for the device, added up over requests.
    pub queue_ns: u64,
    /// Reads served.
    pub reads: u64,
    /// Writes served.
    pub writes: u64,
    /// Syncs served.
    pub syncs: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl DeviceUsage {
    /// Reads, writes and syncs.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.syncs
    }

    /// Busy share of the elapsed time, 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        (self.busy_ns as f64 / self.elapsed_ns as f64).min(1.0)
    }

    /// What was done since `earlier`, a previous reading of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        debug_assert!(self.requests() >= earlier.requests(), "counters only grow");
        debug_assert!(self.elapsed_ns >= earlier.elapsed_ns && self.busy_ns >= earlier.busy_ns);
        Self {
            label: self.label.clone(),
            elapsed_ns: self.elapsed_ns.saturating_sub(earlier.elapsed_ns),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            service_ns: self.service_ns.saturating_sub(earlier.service_ns),
            queue_ns: self.queue_ns.saturating_sub(earlier.queue_ns),
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            syncs: self.syncs.saturating_sub(earlier.syncs),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
        }
    }
}
