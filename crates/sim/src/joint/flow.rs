//! Pages and bytes moved, counted from the start of a run.

/// See the module text. All but the last three are pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Read from base for requests.
    pub base_reads: u64,
    /// Read from flash for requests.
    pub flash_reads: u64,
    /// Written to base for whatever reason.
    pub base_writes: u64,
    /// Of these, writes that went to base at once.
    pub writes_through: u64,
    /// Of these, dirty pages of the pool that flash did not take.
    pub cleaned_to_base: u64,
    /// Read from flash to be destaged; each is written to base.
    pub destage_reads: u64,
    /// Base I/Os that destaged them: neighbours are one.
    pub destage_ios: u64,
    /// Dirty pages of flash that became clean or left, their bytes on base.
    pub destaged: u64,
    /// Written to flash.
    pub flash_writes: u64,
    /// Pages that were given a slot of the policy.
    pub admissions: u64,
    /// Batches of the journal.
    pub commits: u64,
    /// Bytes of them.
    pub journal_bytes: u64,
    /// Bytes of checkpoints of the map.
    pub checkpoint_bytes: u64,
}

impl Flow {
    /// What moved since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            base_reads: self.base_reads - before.base_reads,
            flash_reads: self.flash_reads - before.flash_reads,
            base_writes: self.base_writes - before.base_writes,
            writes_through: self.writes_through - before.writes_through,
            cleaned_to_base: self.cleaned_to_base - before.cleaned_to_base,
            destage_reads: self.destage_reads - before.destage_reads,
            destage_ios: self.destage_ios - before.destage_ios,
            destaged: self.destaged - before.destaged,
            flash_writes: self.flash_writes - before.flash_writes,
            admissions: self.admissions - before.admissions,
            commits: self.commits - before.commits,
            journal_bytes: self.journal_bytes - before.journal_bytes,
            checkpoint_bytes: self.checkpoint_bytes - before.checkpoint_bytes,
        }
    }

    /// Pages written to base to make room on flash.
    #[must_use]
    pub const fn destage_writes(&self) -> u64 {
        self.destage_reads
    }
}
