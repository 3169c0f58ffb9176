//! Policies around a policy.
//!
//! Most methods of [`TierPolicy`](super::TierPolicy) have a default, which is right for a policy
//! that does not care. Around another policy a default is wrong: that one may care. So an
//! implementation that asks another policy writes every method down, or names it to [`pass_on!`];
//! `tidy` fails on one that is missing, and so on every wrapper when the trait gets a new method.

/// The methods of [`TierPolicy`](crate::policy::TierPolicy) that are named, each that of the
/// policy in the field `self.$field`.
///
/// ```
/// use thermocline_core::policy::{self, Access, PolicyOptions, TierPolicy};
/// use thermocline_core::SlotId;
///
/// struct Counted(Box<dyn TierPolicy>, u64);
/// impl TierPolicy for Counted {
///     fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
///         self.1 += 1;
///         self.0.on_request(access, resident);
///     }
///     thermocline_core::pass_on!(0: name, on_aside, decide, surplus, on_admit, on_found,
///         on_written, on_remove, on_trim, on_pool_hits, on_pool, on_reserve, on_time, dirty_pages,
///         keeps_outdated, on_dirty, on_clean, write_buffer, is_buffered, is_synchronous, worth,
///         taught, learned, bytes, bytes_full, assert_invariants);
/// }
/// let lru = policy::build("lru", &PolicyOptions::new(1)).expect("lru");
/// assert_eq!(Counted(lru, 0).name(), "lru");
/// ```
#[macro_export]
macro_rules! pass_on {
    ($field:tt: $($method:ident),+ $(,)?) => {
        $($crate::pass_on!(@ $field $method);)+
    };
    (@ $of:tt name) => {
        fn name(&self) -> &'static str {
            self.$of.name()
        }
    };
    (@ $of:tt on_request) => {
        fn on_request(
            &mut self,
            access: &$crate::policy::Access,
            resident: Option<$crate::SlotId>,
        ) {
            self.$of.on_request(access, resident);
        }
    };
    (@ $of:tt on_aside) => {
        fn on_aside(
            &mut self,
            access: &$crate::policy::Access,
            resident: Option<$crate::SlotId>,
            why: $crate::policy::Aside,
        ) {
            self.$of.on_aside(access, resident, why);
        }
    };
    (@ $of:tt decide) => {
        fn decide(
            &mut self,
            access: &$crate::policy::Access,
            why: $crate::policy::Opportunity,
            slots: &$crate::tier::SlotTable,
        ) -> $crate::policy::Decision {
            self.$of.decide(access, why, slots)
        }
    };
    (@ $of:tt surplus) => {
        fn surplus(&mut self, slots: &$crate::tier::SlotTable) -> Option<$crate::SlotId> {
            self.$of.surplus(slots)
        }
    };
    (@ $of:tt on_admit) => {
        fn on_admit(&mut self, access: &$crate::policy::Access, slot: $crate::SlotId) {
            self.$of.on_admit(access, slot);
        }
    };
    (@ $of:tt on_found) => {
        fn on_found(&mut self, access: &$crate::policy::Access, slot: $crate::SlotId) {
            self.$of.on_found(access, slot);
        }
    };
    (@ $of:tt on_written) => {
        fn on_written(&mut self, page: $crate::PageId) {
            self.$of.on_written(page);
        }
    };
    (@ $of:tt on_remove) => {
        fn on_remove(
            &mut self,
            page: $crate::PageId,
            slot: $crate::SlotId,
            why: $crate::policy::Removal,
        ) {
            self.$of.on_remove(page, slot, why);
        }
    };
    (@ $of:tt on_trim) => {
        fn on_trim(&mut self, object: $crate::ObjectId, first: u64) {
            self.$of.on_trim(object, first);
        }
    };
    (@ $of:tt on_pool_hits) => {
        fn on_pool_hits(&mut self, page: $crate::PageId, hits: u32) {
            self.$of.on_pool_hits(page, hits);
        }
    };
    (@ $of:tt on_pool) => {
        fn on_pool(&mut self, page: $crate::PageId, buffered: bool) {
            self.$of.on_pool(page, buffered);
        }
    };
    (@ $of:tt on_reserve) => {
        fn on_reserve(&mut self, page: $crate::PageId, reserved: bool) {
            self.$of.on_reserve(page, reserved);
        }
    };
    (@ $of:tt on_time) => {
        fn on_time(&mut self, now_ms: u64) {
            self.$of.on_time(now_ms);
        }
    };
    (@ $of:tt dirty_pages) => {
        fn dirty_pages(&self) -> $crate::policy::DirtyPages {
            self.$of.dirty_pages()
        }
    };
    (@ $of:tt keeps_outdated) => {
        fn keeps_outdated(&self) -> bool {
            self.$of.keeps_outdated()
        }
    };
    (@ $of:tt on_dirty) => {
        fn on_dirty(&mut self, access: &$crate::policy::Access, slot: $crate::SlotId) {
            self.$of.on_dirty(access, slot);
        }
    };
    (@ $of:tt on_clean) => {
        fn on_clean(&mut self, slot: $crate::SlotId) {
            self.$of.on_clean(slot);
        }
    };
    (@ $of:tt write_buffer) => {
        fn write_buffer(&self) -> Option<$crate::policy::WriteBuffer> {
            self.$of.write_buffer()
        }
    };
    (@ $of:tt is_buffered) => {
        fn is_buffered(&self, slot: $crate::SlotId) -> bool {
            self.$of.is_buffered(slot)
        }
    };
    (@ $of:tt is_synchronous) => {
        fn is_synchronous(&self) -> bool {
            self.$of.is_synchronous()
        }
    };
    (@ $of:tt worth) => {
        fn worth(&self, page: $crate::PageId) -> f64 {
            self.$of.worth(page)
        }
    };
    (@ $of:tt taught) => {
        fn taught(&mut self, learned: &$crate::policy::Learned, slots: f64) {
            self.$of.taught(learned, slots);
        }
    };
    (@ $of:tt learned) => {
        fn learned(&self) -> Option<$crate::policy::Learned> {
            self.$of.learned()
        }
    };
    (@ $of:tt bytes) => {
        fn bytes(&self) -> usize {
            self.$of.bytes()
        }
    };
    (@ $of:tt bytes_full) => {
        fn bytes_full(&self) -> usize {
            self.$of.bytes_full()
        }
    };
    (@ $of:tt assert_invariants) => {
        fn assert_invariants(&self, slots: &$crate::tier::SlotTable) {
            self.$of.assert_invariants(slots);
        }
    };
}
