//! Whole objects into a tier of a size: the 0/1 knapsack problem.

use super::profile::ObjectKind;

/// The most objects that [`optimum`] takes: it may look at 2^objects sets.
pub const OPTIMUM_MAX: usize = 24;

/// One object to place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// Pages, at least one.
    pub pages: u64,
    /// Time saved were it on flash, ns; below 0 when flash is slower for it.
    pub benefit: f64,
    /// What it is.
    pub kind: ObjectKind,
}

impl Item {
    /// Access density: time saved per page.
    fn density(&self) -> f64 {
        self.benefit / self.pages.max(1) as f64
    }
}

/// What [`greedy`] does with an object that does not fit any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// It ends there, as the paper says: "until there is no space left for the next object". One
    /// large dense object leaves the flash empty then.
    Stop,
    /// It goes on with the next. Worse than the optimum when a dense small object keeps a large
    /// one out that has nearly its density: a factor of the number of objects at worst.
    Skip,
    /// As `Skip`, once more with each single object put in first, and the best of these: at least
    /// half of the optimum (Sahni: "Approximate Algorithms for the 0/1 Knapsack Problem", JACM
    /// 22(1), 1975, with k = 1). O(objects²).
    Seeded,
}

/// Objects for flash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// Their positions among the items, in ascending order.
    pub items: Vec<usize>,
    /// Pages of all of them.
    pub pages: u64,
    /// Time saved by all of them, ns.
    pub benefit: f64,
}

impl Chosen {
    fn of(mut positions: Vec<usize>, items: &[Item]) -> Self {
        positions.sort_unstable();
        let chosen = || positions.iter().map(|&at| &items[at]);
        Self {
            pages: chosen().map(|item| item.pages).sum(),
            benefit: chosen().fold(0.0, |sum, item| sum + item.benefit),
            items: positions,
        }
    }
}

/// Objects by access density until `capacity` pages are full. Objects without benefit stay where
/// they are. O(objects × log objects), but for [`Fill::Seeded`].
#[must_use]
pub fn greedy(items: &[Item], capacity: u64, fill: Fill) -> Chosen {
    let order = by_density(items);
    let from = |first: Option<usize>| {
        let positions = first.into_iter();
        let rest = order.iter().copied().filter(move |at| Some(*at) != first);
        Chosen::of(fitting(items, positions.chain(rest), capacity, fill), items)
    };
    let mut best = from(None);
    if fill == Fill::Seeded {
        for &first in &order {
            let other = from(Some(first));
            if other.benefit > best.benefit {
                best = other;
            }
        }
    }
    assert!(best.pages <= capacity, "what was chosen fits");
    best
}

/// All indexes, by access density while they fit, and nothing else.
#[must_use]
pub fn indexes_only(items: &[Item], capacity: u64) -> Chosen {
    let order = by_density(items).into_iter();
    let indexes = order.filter(|&at| items[at].kind == ObjectKind::Index);
    Chosen::of(fitting(items, indexes, capacity, Fill::Skip), items)
}

/// The set of objects with the largest benefit that fits; `None` for more than [`OPTIMUM_MAX`].
///
/// Branch and bound: with the objects by density, what is left over filled with a part of the next
/// object bounds what a branch can come to.
#[must_use]
pub fn optimum(items: &[Item], capacity: u64) -> Option<Chosen> {
    let order = by_density(items);
    if items.len() > OPTIMUM_MAX {
        return None;
    }
    let mut search = Search {
        items: order.iter().map(|&at| items[at]).collect(),
        best: 0.0,
        best_set: 0,
    };
    search.branch(0, capacity, 0.0, 0);
    let taken = (0..order.len()).filter(|at| search.best_set >> at & 1 == 1);
    Some(Chosen::of(taken.map(|at| order[at]).collect(), items))
}

/// Positions of the items with a benefit, the densest first; of equals the first.
fn by_density(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.retain(|&at| items[at].benefit > 0.0);
    order.sort_by(|&a, &b| items[b].density().total_cmp(&items[a].density()));
    order
}

fn fitting(
    items: &[Item],
    order: impl Iterator<Item = usize>,
    capacity: u64,
    fill: Fill,
) -> Vec<usize> {
    let mut left = capacity;
    let mut taken = Vec::new();
    for at in order {
        match left.checked_sub(items[at].pages) {
            Some(rest) => {
                left = rest;
                taken.push(at);
            }
            None if fill == Fill::Stop => break,
            None => {}
        }
    }
    taken
}

/// A search through sets of items, which are in order of density.
struct Search {
    items: Vec<Item>,
    best: f64,
    /// Bit n for item n.
    best_set: u32,
}

impl Search {
    fn branch(&mut self, at: usize, left: u64, benefit: f64, set: u32) {
        if benefit > self.best {
            (self.best, self.best_set) = (benefit, set);
        }
        let Some(item) = self.items.get(at).copied() else {
            return;
        };
        if self.bound(at, left, benefit) <= self.best {
            return;
        }
        if let Some(rest) = left.checked_sub(item.pages) {
            self.branch(at + 1, rest, benefit + item.benefit, set | 1 << at);
        }
        self.branch(at + 1, left, benefit, set);
    }

    /// What items from `at` on could add at most.
    fn bound(&self, at: usize, mut left: u64, mut benefit: f64) -> f64 {
        for item in &self.items[at..] {
            match left.checked_sub(item.pages) {
                Some(rest) => {
                    left = rest;
                    benefit += item.benefit;
                }
                None => return benefit + item.density() * left as f64,
            }
        }
        benefit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thermocline_core::hash::mix;

    fn item(pages: u64, benefit: f64) -> Item {
        let kind = ObjectKind::Table;
        Item {
            pages,
            benefit,
            kind,
        }
    }

    /// Numbers from 0 to 1, the same for the same seed.
    struct Draws(u64);

    impl Draws {
        fn next(&mut self) -> f64 {
            self.0 += 1;
            (mix(self.0, 0x706c_6163_6500) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Normal with mean 0 and deviation 1 (Box and Muller).
        fn normal(&mut self) -> f64 {
            let (a, b) = (1.0 - self.next(), self.next());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }
    }

    /// 8 to 24 objects. Sizes are log-normal around 3,000 pages with a deviation of 1.5 (times 4.5
    /// up or down), densities log-normal with 1.5, independent of size; flash holds 5 % to 60 % of
    /// all.
    fn case(draws: &mut Draws) -> (Vec<Item>, u64) {
        let count = 8 + (17.0 * draws.next()) as usize;
        let object = |draws: &mut Draws| {
            let pages = (8.0 + 1.5 * draws.normal()).exp().ceil();
            item(pages as u64, pages * (1.5 * draws.normal()).exp())
        };
        let items: Vec<Item> = (0..count).map(|_| object(draws)).collect();
        let all: u64 = items.iter().map(|item| item.pages).sum();
        (items, (all as f64 * (0.05 + 0.55 * draws.next())) as u64)
    }

    /// Greedy ÷ optimum over 200 random cases: mean, the worst, and how many reach 0.95.
    fn against_optimum(fill: Fill) -> (f64, f64, usize) {
        let mut draws = Draws(1);
        let ratios = (0..200).map(|_| {
            let (items, capacity) = case(&mut draws);
            let best = optimum(&items, capacity).expect("few objects");
            greedy(&items, capacity, fill).benefit / best.benefit
        });
        let ratios: Vec<f64> = ratios.collect();
        assert!(ratios.iter().all(|ratio| *ratio <= 1.0 + 1e-12));
        let good = ratios.iter().filter(|ratio| **ratio >= 0.95).count();
        let worst = ratios
            .iter()
            .fold(1.0, |worst: f64, ratio| worst.min(*ratio));
        (ratios.iter().sum::<f64>() / 200.0, worst, good)
    }

    #[test]
    fn greedy_reaches_the_optimum_but_for_a_twentieth() {
        // Measured: means 0.787, 0.978 and 0.999; worst 0, 0.354 and 0.910; 99, 180 and 199 of the
        // 200 cases reach 0.95.
        let [stop, skip, seeded] = [Fill::Stop, Fill::Skip, Fill::Seeded].map(against_optimum);
        assert!(skip.0 >= 0.95 && skip.0 > stop.0, "{skip:?} {stop:?}");
        assert!(seeded.0 >= 0.99 && seeded.1 >= 0.5, "{seeded:?}");
        assert!(seeded.2 >= 190, "{seeded:?}");
    }

    #[test]
    fn an_object_too_large_ends_it_or_not() {
        let items = [item(90, 900.0), item(50, 100.0), item(10, 10.0)];
        let chosen = |fill| greedy(&items, 60, fill).items;
        assert_eq!(chosen(Fill::Stop), Vec::<usize>::new());
        assert_eq!(chosen(Fill::Skip), [1, 2]);
        // A small dense one keeps the large one out.
        let items = [item(1, 2.0), item(100, 100.0)];
        assert_eq!(greedy(&items, 100, Fill::Skip).items, [0]);
        assert_eq!(greedy(&items, 100, Fill::Seeded).items, [1]);
    }

    #[test]
    fn indexes_alone_and_nothing_that_flash_slows() {
        let index = |pages, benefit| Item {
            kind: ObjectKind::Index,
            ..item(pages, benefit)
        };
        let items = [
            item(10, 90.0),
            index(20, 20.0),
            index(20, 10.0),
            index(5, -3.0),
        ];
        assert_eq!(indexes_only(&items, 30).items, [1]);
        assert_eq!(indexes_only(&items, 100).items, [1, 2]);
        assert_eq!(optimum(&items, 100).expect("few").items, [0, 1, 2]);
        assert!(optimum(&vec![item(1, 1.0); OPTIMUM_MAX + 1], 3).is_none());
    }

    proptest! {
        #[test]
        fn the_optimum_is_that_of_trying_all(
            sizes in prop::collection::vec((1u64..30, -5i32..40), 0..10),
            capacity in 0u64..120,
        ) {
            let items: Vec<Item> = sizes
                .iter()
                .map(|&(pages, benefit)| item(pages, f64::from(benefit)))
                .collect();
            let sets = (0u32..1 << items.len()).map(|set| {
                let taken = (0..items.len()).filter(|at| set >> at & 1 == 1);
                Chosen::of(taken.collect(), &items)
            });
            let fits = sets.filter(|chosen| chosen.pages <= capacity);
            let best = fits.fold(0.0, |best: f64, chosen| best.max(chosen.benefit));
            let found = optimum(&items, capacity).expect("few");
            prop_assert_eq!(found.benefit, best);
            prop_assert!(found.pages <= capacity);
            let seeded = greedy(&items, capacity, Fill::Seeded);
            prop_assert!(seeded.benefit >= best / 2.0 && seeded.benefit <= best);
        }
    }
}
