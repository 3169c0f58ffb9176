//! What was learned, for people: by hint set and age, what a page turned out to be worth.
//!
//! The model's weights say little one by one, so beside them the mean target of all samples is
//! kept for each hint set and each age (since the page's last request, in powers of two). A hint
//! set has one place; another one that hashes there takes it when it comes more often (the
//! frequent-items rule of Misra and Gries). Only reports read this: no decision depends on it.
//!
//! Memory: 100 KiB.

use crate::hint::HintSet;
use crate::policy::LearnedWorth;

/// Hint sets kept apart.
const PLACES: usize = 256;
/// Ages: 2⁰ to 2²³ requests, and all above.
const AGES: usize = 24;
/// Samples that a mean is over, about: older ones fade.
const MEMORY: f32 = 1024.0;

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    samples: f32,
    worth: f32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    hints: HintSet,
    number: u16,
    /// Requests sampled with these hints, less those with others that hash here.
    credit: u32,
    /// Of samples taken at a request: how many, how many were read next, after how long.
    requests: f64,
    rereads: f64,
    distance: f64,
    ages: [Mean; AGES],
}

impl Place {
    fn of(hints: HintSet, number: u16) -> Self {
        Self {
            hints,
            number,
            credit: 1,
            requests: 0.0,
            rereads: 0.0,
            distance: 0.0,
            ages: [Mean::default(); AGES],
        }
    }
}

/// What is known of one hint set.
pub(super) struct Known {
    pub hints: HintSet,
    pub number: u16,
    pub requests: f64,
    pub rereads: f64,
    /// Mean distance of the rereads, requests.
    pub distance: f64,
    /// Mean worth just after a request.
    pub worth: f32,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Worth {
    places: Vec<Option<Place>>,
}

impl Worth {
    /// Bytes of one.
    pub(super) const BYTES: usize = PLACES * size_of::<Option<Place>>();

    /// Nothing learned.
    pub(super) fn new() -> Self {
        Self {
            places: vec![None; PLACES],
        }
    }

    /// A page was sampled at a request with `hints`, which have this number.
    pub(super) fn on_request(&mut self, hints: &HintSet, number: u16) {
        match &mut self.places[usize::from(number) % PLACES] {
            Some(place) if place.number == number => place.credit = place.credit.saturating_add(1),
            Some(place) if place.credit > 1 => place.credit -= 1,
            place => *place = Some(Place::of(*hints, number)),
        }
    }

    /// A page last requested with the hint set `number`, `age` requests before it was sampled,
    /// was worth `worth`.
    pub(super) fn learn(&mut self, number: u16, age: u32, worth: f32) {
        let Some(place) = self.place(number) else {
            return;
        };
        let mean = &mut place.ages[(super::math::log2(age) as usize).min(AGES - 1)];
        mean.samples = (mean.samples + 1.0).min(MEMORY);
        mean.worth += (worth - mean.worth) / mean.samples;
    }

    /// A page sampled at its request with the hint set `number` was read next, `distance` requests
    /// later, or was not.
    pub(super) fn settle(&mut self, number: u16, distance: Option<u32>) {
        let Some(place) = self.place(number) else {
            return;
        };
        place.requests += 1.0;
        if let Some(distance) = distance {
            place.rereads += 1.0;
            place.distance += f64::from(distance);
        }
    }

    /// All hint sets known.
    pub(super) fn known(&self) -> impl Iterator<Item = Known> + '_ {
        self.places.iter().flatten().map(|place| Known {
            hints: place.hints,
            number: place.number,
            requests: place.requests,
            rereads: place.rereads,
            distance: match place.rereads > 0.0 {
                true => place.distance / place.rereads,
                false => 0.0,
            },
            worth: place.ages[0].worth,
        })
    }

    /// The worth of every hint set at every age that was sampled.
    pub(super) fn by_age(&self) -> Vec<LearnedWorth> {
        let sets = self.places.iter().flatten();
        let of = |place: &Place| {
            let ages = place.ages.iter().enumerate();
            let seen = ages.filter(|(_, mean)| mean.samples >= 1.0);
            seen.map(|(age, mean)| LearnedWorth {
                hints: place.hints,
                age: (1u64 << age) - 1,
                worth: f64::from(mean.worth),
                samples: mean.samples as u32,
            })
            .collect::<Vec<_>>()
        };
        sets.flat_map(of).collect()
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<Place>>()
    }

    fn place(&mut self, number: u16) -> Option<&mut Place> {
        let place = self.places[usize::from(number) % PLACES].as_mut();
        place.filter(|place| place.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list of all samples.
    #[test]
    fn means_are_those_of_the_samples() {
        let mut worth = Worth::new();
        let sets = [3u16, 4, 5].map(|number| (HintSet::UNKNOWN.with(0, u32::from(number)), number));
        let mut all = Vec::new();
        for step in 0..600u32 {
            let (hints, number) = sets[step as usize % 3];
            let (age, target) = (step * 7 % 50, (step * 13 % 100) as f32 / 100.0);
            worth.on_request(&hints, number);
            worth.learn(number, age, target);
            all.push((hints, (age + 1).ilog2(), target));
        }
        let rows = worth.by_age();
        assert_eq!(rows.iter().map(|row| row.samples).sum::<u32>(), 600);
        for row in rows {
            let age = (row.age + 1).ilog2();
            let of = |(hints, at, _): &&(HintSet, u32, f32)| *hints == row.hints && *at == age;
            let (count, sum) = all
                .iter()
                .filter(of)
                .fold((0, 0.0), |(count, sum), sample| {
                    (count + 1, sum + f64::from(sample.2))
                });
            assert_eq!(row.samples, count);
            assert!((row.worth - sum / f64::from(count)).abs() < 1e-4);
        }
        assert_eq!(worth.known().count(), 3);
    }

    #[test]
    fn the_more_frequent_hint_set_keeps_the_place() {
        let mut worth = Worth::new();
        let (often, rare) = (HintSet::UNKNOWN.with(0, 1), HintSet::UNKNOWN.with(0, 2));
        for step in 0..100 {
            match step % 10 {
                0 => worth.on_request(&rare, 7 + PLACES as u16),
                _ => worth.on_request(&often, 7),
            }
        }
        assert_eq!(
            worth.known().map(|known| known.hints).collect::<Vec<_>>(),
            [often]
        );
    }
}
