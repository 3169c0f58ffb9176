//! Space-Saving: the most frequent elements of a stream with `k` counters (Metwally, Agrawal and
//! El Abbadi 2005; thesis §3.3.1), each request in O(1).
//!
//! An element that has no counter takes the one with the smallest count and goes on counting
//! from there; what it found is its *error*. Hence, after `n` requests:
//! - a counter is at least the true frequency of its element, and at most `error` more;
//! - no error exceeds `n / k`;
//! - every element with a true frequency above `n / k` has a counter.
//!
//! The stream summary (buckets of counters with equal counts, in order) is kept as an array:
//! counters in ascending order of count, and for every *run* of equal counts its two ends. An
//! increment swaps the counter with the last of its run, which then begins or joins the next run.
//!
//! Memory: 44 bytes a counter.

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    count: u64,
    error: u64,
    /// Its place in `order`.
    place: u32,
    /// Its run.
    run: u32,
}

/// Places `first..=last` of `order`, whose counters have equal counts.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
}

/// The counters; which element a counter counts is the caller's to remember.
#[derive(Clone, Debug)]
pub struct SpaceSaving {
    counters: Vec<Counter>,
    order: Vec<u32>,
    runs: Vec<Run>,
    free_runs: Vec<u32>,
}

impl SpaceSaving {
    /// `k` counters, at least one, at zero.
    #[must_use]
    pub fn new(k: u32) -> Self {
        assert!(k > 0, "something is counted");
        let mut new = Self {
            counters: Vec::with_capacity(k as usize),
            order: vec![0; k as usize],
            runs: Vec::with_capacity(k as usize + 1),
            free_runs: Vec::with_capacity(k as usize + 1),
        };
        new.clear();
        new
    }

    /// Number of counters.
    #[must_use]
    pub fn k(&self) -> u32 {
        self.order.len() as u32
    }

    /// Everything back to zero. O(k).
    pub fn clear(&mut self) {
        let k = self.k();
        self.order.clear();
        self.order.extend((0..k).rev());
        self.counters.clear();
        self.counters.extend((0..k).map(|id| Counter {
            count: 0,
            error: 0,
            place: k - 1 - id,
            run: 0,
        }));
        self.runs.clear();
        self.runs.push(Run {
            first: 0,
            last: k - 1,
        });
        self.free_runs.clear();
    }

    /// Estimated frequency of what `counter` counts: never below the true one.
    #[must_use]
    pub fn count(&self, counter: u32) -> u64 {
        self.counters[counter as usize].count
    }

    /// The most by which [`Self::count`] can be too high.
    #[must_use]
    pub fn error(&self, counter: u32) -> u64 {
        self.counters[counter as usize].error
    }

    /// One more request for what `counter` counts. O(1).
    pub fn increment(&mut self, counter: u32) {
        let Counter {
            count, place, run, ..
        } = self.counters[counter as usize];
        let Run { first, last } = self.runs[run as usize];
        debug_assert!((first..=last).contains(&place), "a counter is in its run");
        self.swap(place, last);
        match first == last {
            true => self.free_runs.push(run),
            false => self.runs[run as usize].last = last - 1,
        }
        let next = self.order.get(last as usize + 1);
        let next = next.map(|&id| self.counters[id as usize]);
        let run = match next {
            Some(next) if next.count == count + 1 => {
                self.runs[next.run as usize].first = last;
                next.run
            }
            _ => self.new_run(last),
        };
        let moved = &mut self.counters[counter as usize];
        moved.count += 1;
        moved.run = run;
        debug_assert!(moved.place == last && moved.count > moved.error);
    }

    /// Gives a counter with the smallest count to a new element, one request of which is
    /// counted; counters are first taken in order of number. O(1).
    pub fn replace_least(&mut self) -> u32 {
        let run = self.counters[self.order[0] as usize].run;
        let least = self.order[self.runs[run as usize].last as usize];
        let counter = &mut self.counters[least as usize];
        counter.error = counter.count;
        self.increment(least);
        least
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.counters.capacity() * size_of::<Counter>()
            + (self.order.capacity() + self.free_runs.capacity()) * 4
            + self.runs.capacity() * size_of::<Run>()
    }

    /// Panics unless counters are in order and the runs cover them. O(k).
    pub fn assert_invariants(&self) {
        for (place, &id) in self.order.iter().enumerate() {
            let counter = self.counters[id as usize];
            assert_eq!(counter.place as usize, place, "places agree with the order");
            assert!(counter.error <= counter.count, "errors are part of counts");
            let run = self.runs[counter.run as usize];
            assert!(
                (run.first..=run.last).contains(&counter.place),
                "in its run"
            );
            if let Some(&next) = self.order.get(place + 1) {
                let next = self.counters[next as usize];
                assert!(counter.count <= next.count, "counters ascend");
                let together = counter.run == next.run;
                assert_eq!(together, counter.count == next.count, "runs are maximal");
            }
        }
    }

    fn swap(&mut self, a: u32, b: u32) {
        self.order.swap(a as usize, b as usize);
        for place in [a, b] {
            let id = self.order[place as usize];
            self.counters[id as usize].place = place;
        }
    }

    fn new_run(&mut self, place: u32) -> u32 {
        let run = Run {
            first: place,
            last: place,
        };
        if let Some(id) = self.free_runs.pop() {
            self.runs[id as usize] = run;
            return id;
        }
        self.runs.push(run);
        (self.runs.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn keeps_its_guarantees(
            k in 1u32..9,
            stream in proptest::collection::vec(prop_oneof![0u32..4, 0u32..40], 0..600),
        ) {
            let mut saving = SpaceSaving::new(k);
            let mut holder: Vec<Option<u32>> = vec![None; k as usize];
            let mut exact: BTreeMap<u32, u64> = BTreeMap::new();
            for (seen, element) in stream.iter().enumerate() {
                *exact.entry(*element).or_default() += 1;
                match holder.iter().position(|held| *held == Some(*element)) {
                    Some(counter) => saving.increment(counter as u32),
                    None => {
                        let least = (0..k).map(|c| saving.count(c)).min();
                        let counter = saving.replace_least();
                        let unused = holder.iter().position(Option::is_none);
                        prop_assert!(unused.is_none_or(|next| next as u32 == counter));
                        prop_assert_eq!(Some(saving.error(counter)), least);
                        holder[counter as usize] = Some(*element);
                    }
                }
                saving.assert_invariants();
                let n = seen as u64 + 1;
                let total: u64 = (0..k).map(|c| saving.count(c)).sum();
                prop_assert_eq!(total, n, "every request is counted once");
            }
            let n = stream.len() as u64;
            for counter in 0..k {
                let (count, error) = (saving.count(counter), saving.error(counter));
                prop_assert!(error <= n / u64::from(k));
                if let Some(element) = holder[counter as usize] {
                    prop_assert!(count >= exact[&element]);
                    prop_assert!(count - error <= exact[&element]);
                }
            }
            for (element, frequency) in exact {
                let held = holder.contains(&Some(element));
                prop_assert!(held || frequency <= n / u64::from(k));
            }
            saving.clear();
            prop_assert_eq!((0..k).map(|c| saving.count(c) + saving.error(c)).sum::<u64>(), 0);
            saving.assert_invariants();
        }
    }
}
