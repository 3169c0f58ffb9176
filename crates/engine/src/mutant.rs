//! Bugs planted on purpose, to prove that the crash tester finds such bugs.
//!
//! Compiled in with the feature `mutants`, which the crash tester alone switches on; even then
//! nothing is planted until [`plant`] is called, and then on the calling thread only. Without the
//! feature every question is answered no at compile time.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None: the product as it is.
    #[default]
    None,
    /// A commit is acknowledged before the flash device was synced.
    EarlyAcknowledge,
    /// The journal is read without looking at checksums: a torn block of it is believed.
    UncheckedJournal,
    /// What the newest batches say is believed without looking at the pages' bytes.
    UnverifiedTail,
    /// A checkpoint moves the start of the journal before the map is durable.
    EarlyTruncation,
    /// Recovery declares the journal void before it has written the map: the second recovery
    /// finds less than the first.
    DoubleRecovery,
    /// A trim of dirty pages is not put into the journal: they come back.
    SilentTrim,
    /// A destaged page is called clean before base was synced.
    CleanBeforeSync,
    /// Metadata is changed however old the last commit is.
    UnleasedMetadata,
    /// The map does not say that a file is about to lose its name.
    SilentUnlink,
    /// Pages of a file without a name go before that is durable on base.
    EarlyGrave,
}

impl Mutant {
    /// All that are bugs.
    pub const ALL: [Self; 7] = [
        Self::EarlyAcknowledge,
        Self::UncheckedJournal,
        Self::UnverifiedTail,
        Self::EarlyTruncation,
        Self::DoubleRecovery,
        Self::SilentTrim,
        Self::CleanBeforeSync,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static PLANTED: std::cell::Cell<Mutant> = const { std::cell::Cell::new(Mutant::None) };
}

/// Plants `mutant` on this thread, in place of the one before.
#[cfg(feature = "mutants")]
pub fn plant(mutant: Mutant) {
    PLANTED.with(|planted| planted.set(mutant));
}

/// Whether `mutant` is planted on this thread.
#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    debug_assert_ne!(mutant, Mutant::None, "no bug is no question");
    PLANTED.with(std::cell::Cell::get) == mutant
}

/// Whether `mutant` is planted: never, in this build.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_mutant: Mutant) -> bool {
    false
}
