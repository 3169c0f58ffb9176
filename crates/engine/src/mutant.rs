//! Bugs planted on purpose, to prove that the testers find such bugs.
//!
//! A tester plants one by handing it in with the settings of an engine or a store; nothing else
//! names any but [`Mutant::None`].

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
    /// A close asks whether *an* object has its id instead of whether it is the one that has, and
    /// an
    /// id is given out again while somebody may still use it.
    SharedId,
    /// Metadata is changed however old the last commit is.
    UnleasedMetadata,
    /// The map does not say that a file is about to lose its name.
    SilentUnlink,
    /// The map forgets that a file was being cut when it says that it may lose its name.
    LostCut,
    /// A file that was never synced is asked for after a crash as if it had been.
    UnsyncedPromise,
    /// Pages of a file without a name go before that is durable on base.
    EarlyGrave,
    /// A write of a page that is late counts as one that failed: its block is written again, and
    /// the late one arrives over that.
    LateForgotten,
    /// What was written or dropped while the map was being read stays in the tables made of it.
    TouchedKept,
    /// Marks of regions are taken back while the map is being read.
    MarksForgotten,
    /// A cut marks no regions while the map is being read.
    UnmarkedCut,
    /// What base gave for a page that a read passed over is served whatever its slot holds.
    BaseBelieved,
    /// A file that grew is not synced on base for its length.
    UnsyncedGrowth,
    /// A sync counts for the batch that was written while it was under way, too.
    EarlyBatch,
    /// Recovery takes all batches after the last that is said to be durable as one: what an
    /// acknowledged one of them says is given up with the next.
    TailAsOne,
    /// After a crash pages are believed also where base was served without their cache since.
    ServedElsewhere,
    /// After a clean stop the stamps of files are believed, also where base was served without the
    /// cache since.
    CleanBelieved,
    /// A mark of an older opening than the cache knows of is taken for one of the newest.
    BaseWentBack,
    /// The cache says that base's mark names its opening before that is so.
    EarlyNote,
    /// Base's mark goes on to name the opening from before the tier was put back.
    StaleMark,
    /// A base without a mark is called whole while dirty pages of a cache are accepted for it.
    UnmarkedWhole,
    /// Base is marked as whole at the change to write-through, while pages are dirty.
    EarlyWhole,
    /// The tier is put back while base's mark says that base waits for what the cache held.
    EarlyRenewal,
    /// Who finds a take-over that was interrupted does not wait for whoever served before.
    HalfTakenServed,
}
