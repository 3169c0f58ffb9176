//! The hits of objects that have flash for themselves alone.

use super::sample::Rate;
use super::stack::LruStack;
use crate::error::SimError;
use crate::experiment::Progress;
use crate::request::Kind;
use crate::workload::Workload;
use std::sync::atomic::Ordering;

/// Reads of each object that an LRU tier of its own would serve, by the `sizes` asked for it, in
/// pages. Estimates for the whole trace, unless the rate is 1.
pub(crate) fn hits_by_object(
    workload: &Workload,
    sizes: &[Vec<u32>],
    rate: Rate,
    progress: &Progress,
) -> Result<Vec<Vec<f64>>, SimError> {
    let mut stacks: Vec<LruStack> = sizes.iter().map(|_| LruStack::default()).collect();
    let mut reads = vec![0u64; sizes.len()];
    progress.done.store(0, Ordering::Relaxed);
    let total = workload.facts().requests;
    progress.total.store(total, Ordering::Relaxed);
    workload.for_each_chunk(|chunk, _| {
        for request in chunk {
            let object = request.object.0 as usize;
            reads[object] += u64::from(request.kind() == Kind::Read);
            if request.kind() == Kind::Trim || rate.takes(request.page(), 1) {
                stacks[object].request(request, true);
            }
        }
        progress
            .done
            .fetch_add(chunk.len() as u64, Ordering::Relaxed);
    })?;
    let of = |((stack, sizes), reads): ((&LruStack, &Vec<u32>), u64)| {
        let hits = |size: &u32| {
            let misses = stack.misses(rate.stack_slots(*size)).reads as f64 / rate.share();
            (reads as f64 - misses).max(0.0)
        };
        sizes.iter().map(hits).collect()
    };
    Ok(stacks.iter().zip(sizes).zip(reads).map(of).collect())
}
