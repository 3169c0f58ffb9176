//! Whether the flash device can be trusted.
//!
//! A score for reads and one for writes rise with every fault and fall with every success.
//! Sixteen faults in a row, two time-outs, or faults in more than about one I/O in nine switch the
//! tier off; an occasional bad page does not. Off is a state that only a person (or a restart)
//! ends.
//!
//! What the device is asked for as one counts once, by the worst of its pages: a request that is
//! late is late once, however many pages it is of.

/// A flash I/O that did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Fault {
    /// The bytes read are not those written (checksum).
    Corrupt,
    /// A read failed.
    ReadError,
    /// A write failed.
    WriteError,
    /// The device did not answer in time.
    TimedOut,
}

impl Fault {
    /// Every kind, in numeric order.
    pub const ALL: [Self; 4] = [
        Self::Corrupt,
        Self::ReadError,
        Self::WriteError,
        Self::TimedOut,
    ];

    /// Name used in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::ReadError => "read-error",
            Self::WriteError => "write-error",
            Self::TimedOut => "timed-out",
        }
    }

    const fn weight(self) -> u32 {
        match self {
            Self::Corrupt | Self::ReadError | Self::WriteError => 8,
            Self::TimedOut => 64,
        }
    }
}

/// Score at which the tier goes off.
const LIMIT: u32 = 128;

/// Which way an I/O went. Each way has its own score: a device that reads well and cannot write is
/// as sick as one that can do neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// From flash.
    Read,
    /// To flash.
    Write,
}

/// What the pages of one call of the device said so far.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    good: u32,
    worst: u32,
}

/// Trust in the flash device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    scores: [u32; 2],
    /// The call whose pages end now, each way.
    calls: [Option<Call>; 2],
    off: bool,
}

impl Health {
    /// Whether the tier is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// An I/O did its work.
    pub fn success(&mut self, way: Way) {
        match &mut self.calls[way as usize] {
            Some(call) => call.good += 1,
            None => self.forgive(way, 1),
        }
    }

    /// An I/O did not. True when this one switched the tier off.
    pub fn fault(&mut self, way: Way, fault: Fault) -> bool {
        match &mut self.calls[way as usize] {
            Some(call) => {
                call.worst = call.worst.max(fault.weight());
                false
            }
            None => self.blame(way, fault.weight()),
        }
    }

    /// What follows, until [`Health::end_call`], is about the pages of one call.
    pub fn begin_call(&mut self, way: Way) {
        let call = &mut self.calls[way as usize];
        assert!(call.is_none(), "the pages of one call end together");
        *call = Some(Call::default());
    }

    /// That call counts, as one. True when it switched the tier off.
    pub fn end_call(&mut self, way: Way) -> bool {
        let call = self.calls[way as usize].take().unwrap_or_default();
        // The pages of a call that was late are no excuse for it: they came late together.
        if call.worst < Fault::TimedOut.weight() {
            self.forgive(way, call.good);
        }
        call.worst > 0 && self.blame(way, call.worst)
    }

    fn forgive(&mut self, way: Way, good: u32) {
        let score = &mut self.scores[way as usize];
        *score = score.saturating_sub(good);
    }

    fn blame(&mut self, way: Way, weight: u32) -> bool {
        let score = &mut self.scores[way as usize];
        *score = score.saturating_add(weight).min(LIMIT);
        let was_off = self.off;
        self.off |= *score >= LIMIT;
        self.off && !was_off
    }

    /// Switches the tier off.
    pub fn switch_off(&mut self) {
        self.off = true;
    }

    /// Switches the tier on with full trust.
    pub fn switch_on(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_faults_switches_off_and_rare_faults_do_not() {
        let mut run = Health::default();
        let needed = (1..).find(|_| run.fault(Way::Read, Fault::ReadError));
        assert_eq!(needed, Some(16));
        let mut rare = Health::default();
        for _ in 0..10_000 {
            assert!(!rare.fault(Way::Read, Fault::Corrupt));
            (0..20).for_each(|_| rare.success(Way::Read));
        }
        let mut hung = Health::default();
        assert!(!hung.fault(Way::Read, Fault::TimedOut));
        assert!(hung.fault(Way::Read, Fault::TimedOut));
        assert!(!hung.fault(Way::Read, Fault::TimedOut), "it goes off once");
        hung.switch_on();
        assert!(!hung.is_off());
    }

    #[test]
    fn a_call_counts_once_by_its_worst_page() {
        let late = |health: &mut Health| {
            health.begin_call(Way::Write);
            for fault in [Fault::WriteError, Fault::TimedOut, Fault::TimedOut] {
                assert!(!health.fault(Way::Write, fault));
            }
            (0..200).for_each(|_| health.success(Way::Write));
            health.end_call(Way::Write)
        };
        let mut health = Health::default();
        assert!(!late(&mut health));
        assert!(late(&mut health), "two time-outs, which no page excuses");
        health.switch_on();
        assert!(!late(&mut health));
        health.begin_call(Way::Write);
        (0..64).for_each(|_| health.success(Way::Write));
        assert!(!health.end_call(Way::Write));
        assert!(!late(&mut health), "every page of a good call counts");
        // One page in some hundred: no reason to do without the device.
        for _ in 0..100 {
            health.begin_call(Way::Read);
            assert!(!health.fault(Way::Read, Fault::Corrupt));
            (0..300).for_each(|_| health.success(Way::Read));
            assert!(!health.end_call(Way::Read));
        }
    }

    #[test]
    fn good_reads_do_not_excuse_failing_writes() {
        let mut health = Health::default();
        let needed = (1..100).find(|_| {
            (0..50).for_each(|_| health.success(Way::Read));
            health.fault(Way::Write, Fault::WriteError)
        });
        assert_eq!(needed, Some(16));
    }
}
