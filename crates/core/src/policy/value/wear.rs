//! The wear dial: what a flash write must earn, so that the drive is not written more than allowed.
//!
//! The allowance is a number people know: drive writes a day, the tier's size being the drive's.
//! κ, the read hits that a flash write must earn, follows it: at the end of each window of time it
//! is raised where more was written than the allowance so far leaves room for, and lowered, never
//! below [`KAPPA`], where less was. Writes that renew a copy cannot be refused, nor those to the
//! reserve and of pinned files; they count, and what is admitted pays for them. A write counts when
//! it ended well, not when it is announced: a page written often while it waits in the write buffer
//! is written once. Writes that failed are not counted, though they may have worn the drive, nor
//! those of the map and its journal. Time is an argument ([`Dial::on_time`]): who never tells it
//! has the fixed price [`KAPPA`].
//!
//! # States
//! ```text
//! fixed --allowance and a first time--> following --time--> following
//! ```
//!
//! # Invariants (checked by [`Dial::assert_invariants`])
//! 1. κ is between [`KAPPA`] and [`KAPPA_MAX`].

/// The price of a flash write in read hits where wear is not at its limit.
pub(super) const KAPPA: f32 = 0.12;
/// Little earns more: then hardly more than free slots are filled.
const KAPPA_MAX: f32 = 64.0;
/// Windows are this long, milliseconds: a 1440th of a day.
const WINDOW_MS: u64 = 60_000;
/// Windows of the allowance that may be saved up for a burst, or owed after one: the first fill of
/// a cache is many times as much, and is not paid back for days.
const SAVED: f64 = 60.0;
/// κ changes by at most this factor in a window.
const STEP: f32 = 1.5;

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    kappa: f32,
    /// Pages that may be written in a window.
    allowance: Option<f64>,
    /// Pages written in this window.
    written: f64,
    /// Of the allowance, what earlier windows left; below 0, what they overdrew.
    saved: f64,
    window_end: Option<u64>,
}

impl Dial {
    /// `drive_writes_per_day` of a drive of `slots` pages, or the fixed price.
    pub(super) fn new(drive_writes_per_day: Option<f64>, slots: u32) -> Self {
        let windows_per_day = 86_400_000.0 / WINDOW_MS as f64;
        let allowance = drive_writes_per_day.map(|writes| writes * f64::from(slots));
        Self {
            kappa: KAPPA,
            allowance: allowance.map(|pages| pages / windows_per_day),
            written: 0.0,
            saved: 0.0,
            window_end: None,
        }
    }

    /// Read hits that a flash write must earn.
    pub(super) fn kappa(&self) -> f32 {
        self.kappa
    }

    /// Whether there is an allowance.
    pub(super) fn is_following(&self) -> bool {
        self.allowance.is_some()
    }

    /// A page is written to flash.
    pub(super) fn on_write(&mut self) {
        self.written += 1.0;
    }

    /// It is `now_ms` milliseconds since some moment that stays the same.
    pub(super) fn on_time(&mut self, now_ms: u64) {
        let Some(allowance) = self.allowance else {
            return;
        };
        let end = *self.window_end.get_or_insert(now_ms + WINDOW_MS);
        if now_ms < end {
            return;
        }
        let windows = 1 + (now_ms - end) / WINDOW_MS;
        let allowed = allowance * windows as f64;
        self.window_end = Some(end + windows * WINDOW_MS);
        let most = SAVED * allowance;
        self.saved = (self.saved + allowed - self.written).clamp(-most, most);
        // What is left is meant to last for the windows that can be saved up; what was
        // overdrawn is to be paid back in as many.
        let budget = (allowance + self.saved / SAVED).max(0.0);
        let rate = self.written / windows as f64;
        let ratio = ((rate + 1.0) / (budget + 1.0)) as f32;
        self.kappa = (self.kappa * ratio.clamp(1.0 / STEP, STEP)).clamp(KAPPA, KAPPA_MAX);
        self.written = 0.0;
    }

    /// Panics unless the numbered invariant holds.
    pub(super) fn assert_invariants(&self) {
        assert!((KAPPA..=KAPPA_MAX).contains(&self.kappa), "invariant 1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A day of minutes in which the workload would write `demand` pages at no price and half as
    /// many each time the price doubles. Gives pages written, and κ at the end.
    fn day(dial: &mut Dial, demand: f32) -> (f64, f32) {
        let mut written = 0.0;
        for minute in 0..1440u64 {
            let writes = (demand * KAPPA / dial.kappa()).round();
            for _ in 0..writes as u32 {
                dial.on_write();
            }
            written += f64::from(writes);
            dial.on_time(minute * WINDOW_MS);
            dial.assert_invariants();
        }
        (written, dial.kappa())
    }

    #[test]
    fn the_allowance_is_kept_and_used() {
        for (per_day, demand) in [(1.0, 1000.0), (0.3, 400.0), (3.0, 5000.0)] {
            let slots = 144_000;
            let mut dial = Dial::new(Some(per_day), slots);
            let (written, kappa) = day(&mut dial, demand);
            let share = written / (per_day * f64::from(slots));
            assert!((0.85..=1.1).contains(&share), "{per_day} {demand} {share}");
            assert!(kappa > KAPPA);
        }
    }

    #[test]
    fn below_the_allowance_the_price_is_the_lowest() {
        let mut dial = Dial::new(Some(1.0), 144_000);
        assert_eq!(day(&mut dial, 50.0), (72_000.0, KAPPA));
        let mut fixed = Dial::new(None, 144_000);
        assert_eq!(day(&mut fixed, 5000.0).1, KAPPA);
    }

    /// The first fill is a whole drive: what can be paid back in an hour is, no more.
    #[test]
    fn a_cache_that_was_filled_is_written_on_the_same_day() {
        for (per_day, demand) in [(1.0, 1000.0), (0.1, 100.0)] {
            let slots = 144_000;
            let mut dial = Dial::new(Some(per_day), slots);
            (0..slots).for_each(|_| dial.on_write());
            let (written, _) = day(&mut dial, demand);
            let share = written / (per_day * f64::from(slots));
            assert!((0.85..=1.1).contains(&share), "{per_day} {share}");
        }
    }

    #[test]
    fn a_burst_after_a_quiet_time_is_not_punished_at_once() {
        let mut dial = Dial::new(Some(1.0), 144_000);
        day(&mut dial, 0.0);
        for _ in 0..110 {
            dial.on_write();
        }
        dial.on_time(1440 * WINDOW_MS);
        assert_eq!(dial.kappa(), KAPPA, "an hour of allowance is saved");
    }
}
