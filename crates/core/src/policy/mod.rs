//! Tier policies: which pages are on flash.
//!
//! A policy sees every page request that reaches the tier and answers one question: may this
//! page come in, and over whose slot? It owns no bytes, no map and no slots; it keeps what it
//! likes *about* slots and pages. The tier tells it of every change of residency, whoever
//! caused it.
//!
//! How later policies fit:
//! - CLIC, DP-CLIC: [`Access::hints`] is the hint set H; [`Access::number`] is the sequence
//!   number s; `on_request` feeds hint table and outqueue; `decide` is figure 3.7;
//! - priority groups (hStorage-DB): `on_request` re-allocates between groups; `decide` is
//!   selective allocation, its victim selective eviction; `on_trim` is priority N;
//! - CAC, CC and their rivals: `decide` with [`Opportunity::PoolEviction`] and
//!   [`Opportunity::Clean`]; `on_pool_hits` brings logical reads, `on_pool` what DRAM holds,
//!   `on_reserve` what flash holds past them.

mod arc;
mod auto;
mod cac;
mod clic;
mod clock;
mod dp_clic;
mod fifo;
pub mod hints;
mod lc;
mod lirs;
mod lru;
mod lru2;
mod mq;
mod mv_fifo;
pub mod parameters;
mod pass_on;
mod priority;
mod queues;
mod s3_fifo;
mod sieve;
mod standard;
mod streams;
mod tac;
mod tq;
mod two_q;
mod value;
mod w_tiny_lfu;

mod learned;

pub use arc::Arc;
pub use auto::{Auto, FINALISTS};
pub use cac::{Cac, CacConfig, Counts as CacCounts, Estimates, Measured};
pub use clic::{Clic, Ties};
pub use clock::Clock;
pub use dp_clic::DpClic;
pub use fifo::Fifo;
pub use hints::{ClicConfig, HintKeys};
pub use lc::LazyCleaning;
pub use learned::{
    Learned, LearnedFinalist, LearnedHintSet, LearnedHintType, LearnedRace, LearnedWorth,
};
pub use lirs::Lirs;
pub use lru::Lru;
pub use lru2::Lru2;
pub use mq::Mq;
pub use mv_fifo::MvFifo;
pub use parameters::{Parameters, Setting, resolve};
pub use priority::{Assignment, BuiltIn, Condition, Priority, PriorityConfig, PriorityRule};
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use standard::{DEFAULT, remark, standard};
pub use tac::{Labels as TacLabels, Order as TacOrder, Tac, TacConfig};
pub use tq::Tq;
pub use two_q::TwoQ;
pub use value::{Value, ValueConfig};
pub use w_tiny_lfu::WTinyLfu;

use crate::cost::Costs;
use crate::hint::HintSet;
use crate::list::{Links, List};
use crate::page::{ObjectId, PageId, SlotId};
use crate::tier::SlotTable;

/// Operation of a page request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The page's bytes are wanted.
    Read,
    /// The page's bytes are replaced.
    Write,
}

/// One page request as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// The page.
    pub page: PageId,
    /// Read or write.
    pub op: Op,
    /// What the request says about itself.
    pub hints: HintSet,
    /// Position in the stream of requests that reached the tier, from 1.
    pub number: u64,
}

/// When a page that is not on flash could be put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opportunity {
    /// It was just read from base.
    Read,
    /// It was just written to base.
    Write,
    /// It leaves the DRAM pool, clean.
    PoolEviction,
    /// Its newest bytes are in DRAM only and are being written out (write-back): when the policy
    /// refuses, they go to base, or to the write-back reserve where there is one.
    Clean,
}

/// What becomes of a dirty page that is written out (write-back only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyPages {
    /// To flash alone where the page is resident or admitted, else to base (thesis figure 6.2).
    Back,
    /// To flash where resident or admitted, and to base (dual-write).
    Both,
    /// To base alone; a copy on flash is dropped (clean-write).
    Around,
}

/// Why a page was not admitted. Every refusal is counted under one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// Not worth more than the least valuable page on flash.
    Cold,
    /// The policy does not admit on this opportunity.
    Opportunity,
    /// Every candidate victim was pinned or being written.
    Pinned,
    /// The write buffer was full of warmer pages.
    BufferFull,
    /// The tier is off.
    Off,
    /// The page was trimmed or overwritten while it was being read.
    Overtaken,
    /// Its requests have a priority that never caches (hStorage-DB §3.2).
    Bypass,
    /// Its victim is dirty and the reserve is full: destaging lags.
    Destage,
    /// A sync of its base file failed: base's bytes may not be durable.
    Doubted,
}

impl Refusal {
    /// Every reason, in numeric order.
    pub const ALL: [Self; 9] = [
        Self::Cold,
        Self::Opportunity,
        Self::Pinned,
        Self::BufferFull,
        Self::Off,
        Self::Overtaken,
        Self::Bypass,
        Self::Destage,
        Self::Doubted,
    ];

    /// Name used in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Opportunity => "opportunity",
            Self::Pinned => "pinned",
            Self::BufferFull => "buffer-full",
            Self::Off => "off",
            Self::Overtaken => "overtaken",
            Self::Bypass => "bypass",
            Self::Destage => "destage",
            Self::Doubted => "doubted",
        }
    }
}

/// What a policy wants done with a page that is not on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Put it into a free slot; allowed only while there is one.
    Admit,
    /// Evict the page in this slot, then put it there; the slot must be evictable.
    Replace(SlotId),
    /// Leave it out.
    Refuse(Refusal),
}

/// Why a page left flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Removal {
    /// Replaced by another page.
    Evicted,
    /// Its object was deleted, truncated or punched.
    Trimmed,
    /// Its write to flash was given up because the buffer was full of warmer pages.
    Dropped,
    /// Partly overwritten, or its write to base failed: the copy is no longer the newest.
    Stale,
    /// Checksum mismatch or read or write error on flash.
    Failed,
    /// The tier was switched off.
    Off,
    /// Its page was made dirty in DRAM, or its dirty bytes went to base past it.
    Outdated,
}

impl Removal {
    /// Every reason, in numeric order.
    pub const ALL: [Self; 7] = [
        Self::Evicted,
        Self::Trimmed,
        Self::Dropped,
        Self::Stale,
        Self::Failed,
        Self::Off,
        Self::Outdated,
    ];

    /// Name used in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Trimmed => "trimmed",
            Self::Dropped => "dropped",
            Self::Stale => "stale",
            Self::Failed => "failed",
            Self::Off => "off",
            Self::Outdated => "outdated",
        }
    }
}

/// The write buffer of hStorage-DB (§4.2.4): pages among the policy's own that base has not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBuffer {
    /// Pages in it.
    pub pages: u32,
    /// With more than these, all that are in it go to base.
    pub most: u32,
}

impl WriteBuffer {
    /// Whether all of it is to go to base.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.pages > self.most
    }
}

/// What sets a request apart from those that the tier decides about as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// Its page, which has no slot of the policy's, is in the write-back reserve: flash serves it.
    Reserve,
    /// The tier is off: no page comes in.
    Off,
    /// A part of its page is written, or base does not take it whole: no page comes in, and what is
    /// in its slot leaves.
    Part,
}

/// A tier policy. See the module text for who calls what. A policy around another one writes down
/// every method, or names it to [`pass_on!`](crate::pass_on).
pub trait TierPolicy: Send {
    /// Name used in configuration and tables.
    fn name(&self) -> &'static str;

    /// A page request reached the tier; `resident` is the page's slot, if it has one.
    /// Called once per request and before [`TierPolicy::decide`] for the same request.
    fn on_request(&mut self, access: &Access, resident: Option<SlotId>);

    /// The same in place of [`Self::on_request`], for policies that care how a request is served.
    fn on_aside(&mut self, access: &Access, resident: Option<SlotId>, _why: Aside) {
        self.on_request(access, resident);
    }

    /// May `access.page`, which has no slot, come in? Changes nothing that [`Self::on_admit`]
    /// and [`Self::on_remove`] are told of afterwards.
    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision;

    /// A page that has to leave, because pages that were written again take more room than there
    /// is; its caller evicts it and asks again. `None` where a page takes as much room as its slot.
    fn surplus(&mut self, _slots: &SlotTable) -> Option<SlotId> {
        None
    }

    /// The page was given `slot`, and is written there.
    fn on_admit(&mut self, access: &Access, slot: SlotId);

    /// The page lies in `slot` already, and nothing is written: as a restart found it, as a policy
    /// before this one left it, or as the reserve had it. `access.number` is that of the newest
    /// request, 0 where there was none.
    fn on_found(&mut self, access: &Access, slot: SlotId) {
        self.on_admit(access, slot);
    }

    /// Bytes of a page were written to flash, to whatever slot. [`Self::on_admit`] and writes of
    /// pages on flash announce that; but newer bytes may overtake them, and the write buffer may
    /// drop them.
    fn on_written(&mut self, _page: PageId) {}

    /// The page in `slot` lost it.
    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal);

    /// Pages `first..` of an object are gone: what is remembered of absent ones is void. Others may
    /// come in their place, where a file was cut and grows again.
    fn on_trim(&mut self, _object: ObjectId, _first: u64) {}

    /// The page was found in the DRAM pool `hits` times since the last call: logical reads that
    /// never reached the tier.
    fn on_pool_hits(&mut self, _page: PageId, _hits: u32) {}

    /// `page` came into the DRAM pool (`buffered`), or left it. Not called without a pool.
    fn on_pool(&mut self, _page: PageId, _buffered: bool) {}

    /// `page`, which has no slot of the policy's, came into the write-back reserve (`reserved`), or
    /// left it. While it is there flash serves it, though its requests come without a slot. Only
    /// with [`HierarchyOptions::reserve_as_flash`](crate::HierarchyOptions::reserve_as_flash).
    /// Called after [`Self::on_remove`] and before [`Self::on_found`] when it changes over.
    fn on_reserve(&mut self, _page: PageId, _reserved: bool) {}

    /// It is `now_ms` milliseconds since a moment that stays the same. For policies that have an
    /// allowance by time; the others do not ask. Called now and then, or never.
    fn on_time(&mut self, _now_ms: u64) {}

    /// What becomes of dirty pages under this policy in write-back mode.
    fn dirty_pages(&self) -> DirtyPages {
        DirtyPages::Back
    }

    /// Whether the clean copy of a page that was just made dirty in DRAM stays on flash until the
    /// page is written out. CAC and its rivals free its slot (thesis §6.4).
    fn keeps_outdated(&self) -> bool {
        true
    }

    /// The page in `slot` is newer than base from now on: `access` wrote it, or it was so when it
    /// came in. Called after [`Self::on_admit`], [`Self::on_found`] or [`Self::on_request`], more
    /// than once for a page that is written again (write-back only).
    fn on_dirty(&mut self, _access: &Access, _slot: SlotId) {}

    /// Base has what is in `slot`, whose page stays.
    fn on_clean(&mut self, _slot: SlotId) {}

    /// Which dirty pages go to base together once they are many; `None` where nothing but the
    /// watermarks says so.
    fn write_buffer(&self) -> Option<WriteBuffer> {
        None
    }

    /// Whether the page in `slot` is in [`Self::write_buffer`].
    fn is_buffered(&self, _slot: SlotId) -> bool {
        false
    }

    /// Whether a page that was just admitted is to be on flash before its read is answered
    /// (synchronous read allocation, hStorage-DB §5.1).
    fn is_synchronous(&self) -> bool {
        false
    }

    /// How much `page` is worth having on flash; the write buffer gives up the least worthy page
    /// when flash writes lag (TAC §3.3). Where all are worth the same the newcomer stays out.
    fn worth(&self, _page: PageId) -> f64 {
        0.0
    }

    /// Begins with what another instance learned of hints from one of each `slots` slots and as
    /// small a share of the requests. Called before anything else, or not at all.
    fn taught(&mut self, _learned: &Learned, _slots: f64) {}

    /// What was learned about hints, most valuable first; `None` where nothing is learned.
    fn learned(&self) -> Option<Learned> {
        None
    }

    /// Bytes of memory held.
    fn bytes(&self) -> usize;

    /// Bytes of memory held once every slot, and every directory of absent pages, is full: what a
    /// simulation takes off the tier's capacity (thesis §3.4.1). Policies that allocate as they
    /// go say so here; the rest hold it from the start. Hint sets, of which nobody knows the
    /// number beforehand, are not in it.
    fn bytes_full(&self) -> usize {
        self.bytes()
    }

    /// Panics when an internal invariant does not hold. O(slots).
    fn assert_invariants(&self, slots: &SlotTable);
}

/// What a policy needs to know to be built.
#[derive(Clone, Debug)]
pub struct PolicyOptions {
    /// Slots of the tier.
    pub capacity: u32,
    /// Device costs.
    pub costs: Costs,
    /// Whether the recency policies admit a page on its write.
    pub admit_on_write: bool,
    /// Seed of the policies that draw lots (hint sampling, sketches): same seed, same decisions.
    pub seed: u64,
    /// Parameters of TAC.
    pub tac: TacConfig,
    /// Parameters of the priority groups.
    pub priority: PriorityConfig,
    /// Parameters of CLIC and of what is built on it.
    pub clic: ClicConfig,
    /// Parameters of CAC and CC.
    pub cac: CacConfig,
    /// Parameters of `value`.
    pub value: ValueConfig,
    /// Bytes that `value` and `auto` may remember; they have smaller forms. `None` for no limit.
    pub memory: Option<u64>,
    /// Parameters of single policies, over all of these; see [`parameters`].
    pub settings: Vec<Setting>,
}

impl PolicyOptions {
    /// Defaults for a tier of `capacity` slots.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            costs: Costs::default(),
            admit_on_write: true,
            seed: 1,
            tac: TacConfig::default(),
            priority: PriorityConfig::default(),
            clic: ClicConfig::default(),
            cac: CacConfig::default(),
            value: ValueConfig::default(),
            memory: None,
            settings: Vec::new(),
        }
    }
}

/// Names that [`build`] knows, in the order they are listed to people.
pub const NAMES: &[&str] = &[
    "tac",
    "tac-bands-lru",
    "tac-bands-mru",
    "priority",
    "lru",
    "fifo",
    "clock",
    "lirs",
    "s3-fifo",
    "sieve",
    "w-tinylfu",
    "clic",
    "clic-topk",
    "clic-hybrid",
    "dp-clic",
    "dp-clic-topk",
    "dp-clic-hybrid",
    "lru2",
    "2q",
    "arc",
    "mq",
    "tq",
    "cac",
    "cc",
    "lc",
    "mv-fifo",
    "clean-write",
    "dual-write",
    "tac-mixed",
    "tac-blocks",
    "value",
    "value-time",
    "auto",
];

/// Builds the policy called `name`, which may be [`DEFAULT`], with `:paper` at its end as its paper
/// says; `None` when there is no such policy, or it has not so many numbers as the tier has slots.
#[must_use]
pub fn build(name: &str, options: &PolicyOptions) -> Option<Box<dyn TierPolicy>> {
    let name = match name {
        DEFAULT => standard(options),
        name => name,
    };
    let (name, options) = resolve(name, options)?;
    let options = &options;
    if !has_numbers(name, options) {
        return None;
    }
    Some(match name {
        "tac" => Box::new(Tac::new(options)),
        "tac-bands-lru" => Box::new(Tac::with_bands(options, TacOrder::Lru)),
        "tac-bands-mru" => Box::new(Tac::with_bands(options, TacOrder::Mru)),
        "priority" => Box::new(Priority::new(options)),
        "lru" => Box::new(Lru::new(options)),
        "fifo" => Box::new(Fifo::new(options)),
        "clock" => Box::new(Clock::new(options)),
        "lirs" => Box::new(Lirs::new(options)),
        "s3-fifo" => Box::new(S3Fifo::new(options)),
        "sieve" => Box::new(Sieve::new(options)),
        "w-tinylfu" => Box::new(WTinyLfu::new(options)),
        "clic" => Box::new(Clic::new(HintKeys::All, options)),
        "clic-topk" => Box::new(Clic::new(HintKeys::TopK, options)),
        "lru2" => Box::new(Lru2::new(options)),
        "2q" => Box::new(TwoQ::new(options)),
        "arc" => Box::new(Arc::new(options)),
        "mq" => Box::new(Mq::new(options)),
        "tq" => Box::new(Tq::new(options)),
        "clic-hybrid" => Box::new(Clic::new(HintKeys::Hybrid, options)),
        "dp-clic" => Box::new(DpClic::new(HintKeys::All, options)),
        "dp-clic-topk" => Box::new(DpClic::new(HintKeys::TopK, options)),
        "dp-clic-hybrid" => Box::new(DpClic::new(HintKeys::Hybrid, options)),
        "cac" => Box::new(Cac::new(options)),
        "cc" => Box::new(Cac::cc(options)),
        "lc" => Box::new(LazyCleaning::new(options)),
        "mv-fifo" => Box::new(MvFifo::new(options)),
        "clean-write" => Box::new(LazyCleaning::clean_write(options)),
        "dual-write" => Box::new(LazyCleaning::dual_write(options)),
        "tac-mixed" => Box::new(Tac::mixed(options)),
        "tac-blocks" => Box::new(Tac::with_blocks(options)),
        "value" => Box::new(Value::new(options)),
        "value-time" => Box::new(Value::of_time(options)),
        "auto" => Box::new(Auto::new(options)),
        _ => return None,
    })
}

/// Whether the policy called `name` can number what it keeps of so many slots.
fn has_numbers(name: &str, options: &PolicyOptions) -> bool {
    let slots = options.capacity;
    match name {
        "lirs" => slots <= Lirs::SLOTS_MAX,
        "value" | "value-time" | "auto" => options.value.within(slots, u64::MAX).is_some(),
        _ => true,
    }
}

/// [`TierPolicy::bytes_full`] of the policy called `name`; `None` when there is no such policy.
/// O(slots): builds it.
#[must_use]
pub fn metadata_bytes(name: &str, options: &PolicyOptions) -> Option<usize> {
    build(name, options).map(|policy| policy.bytes_full())
}

/// Whether policies that do not look at the DRAM pool admit on this opportunity.
fn takes(why: Opportunity, admit_on_write: bool) -> bool {
    match why {
        Opportunity::Read => true,
        Opportunity::Write | Opportunity::Clean => admit_on_write,
        Opportunity::PoolEviction => false,
    }
}

/// Whether there is a DRAM pool, for the policies that work with one; they admit when a page is
/// cleaned or leaves the pool (thesis §6.4).
///
/// [`TierPolicy::on_pool`] tells of it. Where it has not yet, a page that is offered as it leaves
/// the pool is the first sign. That page stays out: the one that took its frame may have come in.
#[derive(Debug, Default)]
struct Pooled(bool);

impl Pooled {
    /// There is one.
    fn announce(&mut self) {
        self.0 = true;
    }

    /// Whether a page is considered on this opportunity. Without a pool nothing clean would ever
    /// come in, so there a page is considered when it is read.
    fn takes(&mut self, why: Opportunity, admit_on_write: bool) -> bool {
        match why {
            Opportunity::Read => !self.0,
            Opportunity::Write => admit_on_write,
            Opportunity::Clean => true,
            Opportunity::PoolEviction => std::mem::replace(&mut self.0, true),
        }
    }
}

/// The answer of the policies that admit whatever comes by: room first, then a victim.
///
/// A free slot is taken even when a policy's own order would evict (slots become free by trims
/// and failures, and at the start), so `victim` is asked only when every slot is taken.
fn admit_always(
    slots: &SlotTable,
    why: Opportunity,
    admit_on_write: bool,
    victim: impl FnOnce() -> Option<SlotId>,
) -> Decision {
    if !takes(why, admit_on_write) {
        return Decision::Refuse(Refusal::Opportunity);
    }
    if slots.has_room() {
        return Decision::Admit;
    }
    victim().map_or(Decision::Refuse(Refusal::Pinned), Decision::Replace)
}

/// Steps of a hand that goes round `len` pages twice.
const fn two_rounds(len: u32) -> u64 {
    2 * len as u64
}

/// The evictable slot nearest the back of `list`: O(slots in use by a read or a write).
fn evictable_from_back(list: &List, links: &Links, slots: &SlotTable) -> Option<SlotId> {
    let mut from_back = list.iter_from_back(links).map(SlotId);
    from_back.find(|slot| slots.evictable(*slot))
}

/// The evictable slot nearest the front of `list`: O(slots in use by a read or a write).
fn evictable_from_front(list: &List, links: &Links, slots: &SlotTable) -> Option<SlotId> {
    let mut from_front = list.iter_from_front(links).map(SlotId);
    from_front.find(|slot| slots.evictable(*slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_goes_round_the_largest_tier() {
        assert_eq!(two_rounds(1 << 31), 1 << 32);
        assert_eq!(two_rounds(3), 6);
    }

    /// Nothing is allocated here: it is said beforehand what cannot be numbered.
    #[test]
    fn a_tier_too_large_for_a_policy_is_refused() {
        let slots = u32::MAX - 1;
        let options = PolicyOptions::new(slots);
        for name in ["lirs", "value", "value-time", "auto"] {
            assert!(build(name, &options).is_none(), "{name}");
        }
        assert_eq!(standard(&options), "tac");
        // The largest form of `value` has numbers for a sixth of as many slots as there can be.
        let whole = ValueConfig::default();
        let most = (u32::MAX - 8) / 6;
        assert_eq!(whole.within(most, u64::MAX), Some(whole));
        let smaller = whole.within(most + 2, u64::MAX).expect("a smaller form");
        assert!(smaller.ghosts < whole.ghosts);
        assert_eq!(standard(&PolicyOptions::new(most + 2)), "auto");
    }
}
