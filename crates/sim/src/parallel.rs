//! Jobs done several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What `work` makes of each job, in their order; `threads` at a time, 0 for as many as the
/// machine has processors.
pub(crate) fn each<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let machine = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match threads {
        0 => machine(),
        threads => threads,
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((at, job)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, job))
                } {
                    let result = work(job);
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..100).collect();
        for threads in [0, 1, 7] {
            let doubled = super::each(&jobs, threads, |job| job * 2);
            assert!(doubled.iter().zip(&jobs).all(|(d, job)| *d == job * 2));
            assert_eq!(doubled.len(), jobs.len());
        }
    }
}
