//! How counts fade, without touching them.
//!
//! A request counts [`Pace::one`]. Fading doubles that instead of halving all that was counted:
//! sums and differences of counts, their ratios and their order are the same. When a request
//! would count too much everybody is told to divide ([`Pace::step`]); what rounds to 0 then is
//! older than [`FIRST`] can show.

/// What a request counts at first and after a division: a request is forgotten between four and
/// ten fadings later.
const FIRST: u32 = 16;
/// log2 of the divisor.
const SHIFT: u32 = 7;

/// See the module text.
#[derive(Debug)]
pub(super) struct Pace {
    one: u32,
    epoch_requests: u64,
    in_epoch: u64,
    /// Requests so far, each for what it counted.
    time: u64,
}

impl Pace {
    /// Fades every `epoch_requests` requests; `u64::MAX` is never.
    pub(super) fn new(epoch_requests: u64) -> Self {
        debug_assert!(epoch_requests > 0, "requests come in between");
        Self {
            one: if epoch_requests == u64::MAX { 1 } else { FIRST },
            epoch_requests,
            in_epoch: 0,
            time: 0,
        }
    }

    /// What a request counts now.
    pub(super) fn one(&self) -> u32 {
        self.one
    }

    /// Requests so far, faded as their counts are.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    /// A request. `Some(shift)` when whoever keeps counts must shift them right by that much.
    pub(super) fn step(&mut self) -> Option<u32> {
        let mut divide = None;
        self.in_epoch += 1;
        if self.in_epoch >= self.epoch_requests {
            self.in_epoch = 0;
            self.one *= 2;
            if self.one == FIRST << SHIFT {
                self.one = FIRST;
                self.time >>= SHIFT;
                divide = Some(SHIFT);
            }
        }
        self.time += u64::from(self.one);
        debug_assert!(self.one < FIRST << SHIFT && self.time > 0);
        divide
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count kept at this pace is what halving at every epoch gives, but for rounding.
    #[test]
    fn lazy_fading_equals_halving() {
        let mut pace = Pace::new(3);
        let (mut lazy, mut eager, mut divisions) = (0u32, 0.0f64, 0);
        for request in 1u32..500 {
            if let Some(shift) = pace.step() {
                lazy >>= shift;
                divisions += 1;
            }
            if request % 3 == 0 {
                eager /= 2.0;
            }
            if request % 5 != 0 {
                lazy += pace.one();
                eager += 1.0;
            }
            let found = f64::from(lazy) / f64::from(pace.one());
            assert!((found - eager).abs() < 0.2, "{request}: {found} {eager}");
        }
        assert!(divisions > 10, "{divisions}");
    }

    #[test]
    fn never_is_never() {
        let mut pace = Pace::new(u64::MAX);
        assert!((0..10_000).all(|_| pace.step().is_none()));
        assert_eq!((pace.one(), pace.time()), (1, 10_000));
    }
}
