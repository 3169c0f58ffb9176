//! Miss-ratio curves: the misses of many sizes of the tier from one pass over a sample.
//!
//! A page is in the sample when a hash of its address is below a threshold, so that a page is
//! followed always or never: *spatially hashed sampling* (SHARDS; Waldspurger, Park, Garthwaite,
//! Ahmad: "Efficient MRC Construction with SHARDS", FAST 2015, §3). A share R of the pages in a
//! tier of R × C slots behaves much like all pages in a tier of C slots.
//!
//! - LRU keeps the order of all pages, so one pass gives the exact *stack distance* of every
//!   sampled read, and with it every size at once ([`stack`](self), FAST 2015 §2).
//! - Other policies, and LRU where writes do not admit, run as *miniature simulations*: one tier
//!   of R × C slots for each size, all in the same pass (Waldspurger, Saemundsson, Ahmad, Park:
//!   "Cache Modeling and Optimization using Miniature Simulations", USENIX ATC 2017, §3).
//!
//! Where the papers leave a choice:
//! - *Unit of sampling*: the page; for TAC its region, whose temperature is that of all its
//!   pages. A sample of regions varies more than one of pages.
//! - *Ratio*: sampled misses / (R × all reads), not / sampled reads: a sample holds too many or
//!   too few requests mostly because of a few hot pages, which hit (FAST 2015 §3.4, SHARDS-adj).
//!   Applied to miniatures as well.
//! - *Intervals that policies count in requests* (CLIC's window) shrink with the rate.
//!
//! Memory: 56 bytes a sampled page for LRU; the policy's own for R × C slots and size, of all at
//! once.

mod by_object;
mod mini;
mod sample;
mod stack;

pub(crate) use by_object::hits_by_object;
pub use sample::Rate;

use crate::error::SimError;
use crate::experiment::Progress;
use crate::request::{Kind, PageRequest};
use crate::split::Writes;
use crate::workload::Workload;
use mini::Mini;
use serde::Serialize;
use stack::LruStack;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use thermocline_core::HintSet;
use thermocline_core::policy::{self, PolicyOptions};

/// Sampled requests that all tiers do before more are read.
const BATCH: usize = 1 << 16;

/// What to draw.
#[derive(Clone, Debug)]
pub struct MrcOptions {
    /// Policies by name, each a curve.
    pub policies: Vec<String>,
    /// Sizes of the tier, pages, each at least 1.
    pub sizes: Vec<u32>,
    /// Share of the pages that is looked at.
    pub rate: Rate,
    /// Page requests that only warm up.
    pub warm_up: u64,
    /// Parameters of the policies; capacity and admission on writes are set here.
    pub policy_options: PolicyOptions,
    /// Threads; 0 for as many as the machine has.
    pub threads: usize,
}

/// How a curve was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Stack distances.
    StackDistance,
    /// One small tier for each size.
    Miniature,
}

/// One size of a curve. Numbers of pages are estimates for the whole trace unless the rate is 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Size of the tier, pages.
    pub capacity_pages: u64,
    /// Slots of the tier that stood for it.
    pub sample_slots: u64,
    /// Reads that base would serve.
    pub read_misses: u64,
    /// The same as a share of all reads; null where there are none.
    pub read_miss_ratio: Option<f64>,
    /// Pages that would be written to flash.
    pub flash_writes: u64,
}

/// The misses of one policy by size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The policy.
    pub policy: String,
    /// How it was found.
    pub method: Method,
    /// Share of the pages that was looked at; 1 is exact.
    pub rate: f64,
    /// Pages that are sampled together.
    pub unit_pages: u32,
    /// Bytes per page.
    pub page_size: u32,
    /// Different pages in the workload.
    pub distinct_pages: u64,
    /// Reads of the trace that are counted.
    pub reads: u64,
    /// Of these, reads of pages never requested before: misses of any tier.
    pub compulsory_misses: u64,
    /// Reads in the sample.
    pub sampled_reads: u64,
    /// By size, as they were asked for.
    pub points: Vec<Point>,
}

/// Whether one stack of pages gives every size of `policy`, and no tier is made for any.
#[must_use]
pub fn is_stack(policy: &str, writes: Writes) -> bool {
    policy == "lru" && writes != Writes::NoAllocate
}

/// What one tier counted, of the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misses {
    pub(crate) reads: u64,
    pub(crate) flash_writes: u64,
}

/// Draws one curve for each policy. Same workload and options, same curves.
///
/// Cost: one pass over the trace; O(log sampled pages) a sampled request for LRU, a request of
/// each size's own tier for the others.
///
/// # Errors
/// When a policy is unknown or knows the future, or the traces cannot be read again.
pub fn curves(
    workload: &Workload,
    options: &MrcOptions,
    progress: &Progress,
) -> Result<Vec<Curve>, SimError> {
    let facts = workload.facts();
    if options.warm_up >= facts.requests {
        return Err(SimError::WarmUp {
            warm_up: options.warm_up,
            requests: facts.requests,
        });
    }
    let mut followers = Vec::new();
    for policy in &options.policies {
        followers.push(Follower::new(policy, workload, options)?);
    }
    progress.total.store(facts.requests, Ordering::Relaxed);
    let mut seen = Seen::default();
    workload.for_each_chunk(|chunk, hint_sets| {
        for request in chunk {
            let measured = seen.count(request, options.warm_up);
            for follower in &mut followers {
                follower.add(request, measured);
            }
        }
        flush(&mut followers, hint_sets, BATCH, options.threads);
        progress
            .done
            .fetch_add(chunk.len() as u64, Ordering::Relaxed);
    })?;
    flush(&mut followers, workload.hint_sets(), 1, options.threads);
    let finish = |follower: Follower| follower.finish(&seen, workload, options);
    Ok(followers.into_iter().map(finish).collect())
}

/// What went by, sampled or not.
#[derive(Default)]
struct Seen {
    requests: u64,
    reads: u64,
    first_touches: u64,
}

impl Seen {
    /// Whether the request counts.
    fn count(&mut self, request: &PageRequest, warm_up: u64) -> bool {
        if request.kind() == Kind::Trim {
            return false;
        }
        self.requests += 1;
        let measured = self.requests > warm_up;
        let read = measured && request.kind() == Kind::Read;
        self.reads += u64::from(read);
        self.first_touches += u64::from(read && request.is_first_touch());
        measured
    }
}

/// One policy: its sample, and the tiers that follow it.
struct Follower {
    policy: String,
    unit_pages: u32,
    rate: Rate,
    batch: Vec<(PageRequest, bool)>,
    sampled_reads: u64,
    tiers: Vec<Tier>,
}

/// Something that follows a sample.
enum Tier {
    Stack(Box<LruStack>),
    Mini(Box<Mini>),
}

impl Tier {
    fn follow(&mut self, batch: &[(PageRequest, bool)], hint_sets: &[HintSet]) {
        for (request, measured) in batch {
            match self {
                Self::Stack(stack) => stack.request(request, *measured),
                Self::Mini(mini) => {
                    mini.request(request, &hint_sets[request.hints as usize], *measured);
                }
            }
        }
    }
}

impl Follower {
    fn new(policy: &str, workload: &Workload, options: &MrcOptions) -> Result<Self, SimError> {
        let writes = workload.options().writes;
        let mut policy_options = options.policy_options.clone();
        policy_options.admit_on_write = writes == Writes::Allocate;
        let tiers = if is_stack(policy, writes) {
            vec![Tier::Stack(Box::default())]
        } else {
            let sizes = options.sizes.iter();
            let minis: Result<_, SimError> = sizes
                .map(|&size| {
                    let mini = Mini::new(policy, size, options.rate, &policy_options)?;
                    Ok(Tier::Mini(Box::new(mini)))
                })
                .collect();
            minis?
        };
        let unit_pages = match policy.starts_with("tac") {
            true => match policy::resolve(policy, &policy_options) {
                Some((_, own)) => own.tac.region_pages,
                None => policy_options.tac.region_pages,
            },
            false => 1,
        };
        Ok(Self {
            policy: policy.to_string(),
            unit_pages,
            rate: options.rate,
            batch: Vec::new(),
            sampled_reads: 0,
            tiers,
        })
    }

    fn add(&mut self, request: &PageRequest, measured: bool) {
        let trim = request.kind() == Kind::Trim;
        if trim || self.rate.takes(request.page(), self.unit_pages) {
            self.sampled_reads += u64::from(measured && request.kind() == Kind::Read);
            self.batch.push((*request, measured));
        }
    }

    fn finish(self, seen: &Seen, workload: &Workload, options: &MrcOptions) -> Curve {
        let found: Vec<(Method, u64, Misses)> = match &self.tiers[..] {
            [Tier::Stack(stack)] => {
                let at = |size: &u32| {
                    let slots = self.rate.stack_slots(*size);
                    (Method::StackDistance, slots, stack.misses(slots))
                };
                options.sizes.iter().map(at).collect()
            }
            tiers => {
                let of = |tier: &Tier| match tier {
                    Tier::Mini(mini) => (Method::Miniature, mini.slots(), mini.misses()),
                    Tier::Stack(stack) => (Method::StackDistance, 0, stack.misses(0)),
                };
                tiers.iter().map(of).collect()
            }
        };
        let method = found.first().map_or(Method::Miniature, |(how, ..)| *how);
        let scale = |count: u64| (count as f64 / self.rate.share()).round() as u64;
        let point = |(&size, (_, slots, misses)): (&u32, &(Method, u64, Misses))| {
            let read_misses = scale(misses.reads).min(seen.reads);
            Point {
                capacity_pages: u64::from(size),
                sample_slots: *slots,
                read_misses,
                read_miss_ratio: crate::result::ratio(read_misses, seen.reads),
                flash_writes: scale(misses.flash_writes),
            }
        };
        Curve {
            method,
            rate: self.rate.share(),
            unit_pages: self.unit_pages,
            page_size: workload.facts().page_size,
            distinct_pages: workload.facts().distinct_pages,
            reads: seen.reads,
            compulsory_misses: seen.first_touches,
            sampled_reads: self.sampled_reads,
            points: options.sizes.iter().zip(&found).map(point).collect(),
            policy: self.policy,
        }
    }
}

/// Has all tiers follow what was sampled, when that is at least `enough` requests.
fn flush(followers: &mut [Follower], hint_sets: &[HintSet], enough: usize, threads: usize) {
    if followers
        .iter()
        .all(|follower| follower.batch.len() < enough)
    {
        return;
    }
    let machine = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { machine() } else { threads };
    // One more has nothing to do, and the system may not have as many as were asked for.
    let tiers: usize = followers.iter().map(|follower| follower.tiers.len()).sum();
    let threads = threads.min(tiers);
    let work = followers.iter_mut().flat_map(|follower| {
        let batch = &follower.batch;
        follower.tiers.iter_mut().map(move |tier| (tier, batch))
    });
    let work = Mutex::new(work);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((tier, batch)) = {
                    let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
                    work.next()
                } {
                    tier.follow(batch, hint_sets);
                }
            });
        }
    });
    for follower in followers {
        follower.batch.clear();
    }
}
