//! Hints: what a request says about itself beyond its address.
//!
//! A hint is advice. Wrong or missing hints change speed, never contents. Every hint is
//! categorical (thesis §3.1): a *hint type* (a column) takes one of a set of *hint values*
//! (small integers), and one value per type makes a *hint set*. Value 0 always means
//! "unknown". The first eight types are known to the built-in classifiers and rules; any
//! further type is named by the client's [`HintSchema`] and means something only to the
//! learning policies.

/// The most hint types one client can declare, the built-in ones included.
pub const HINT_TYPES_MAX: usize = 15;

/// Positions of the built-in hint types in every [`HintSet`].
pub mod hint_type {
    /// Which object (table, index, file group): ids are interned by the frontend.
    pub const OBJECT: usize = 0;
    /// [`super::FileKind`].
    pub const FILE_KIND: usize = 1;
    /// [`super::RequestType`].
    pub const REQUEST: usize = 2;
    /// [`super::PageType`].
    pub const PAGE_TYPE: usize = 3;
    /// [`super::Role`].
    pub const ROLE: usize = 4;
    /// [`super::PlanLevel`].
    pub const PLAN_LEVEL: usize = 5;
    /// [`super::PlanAccess`].
    pub const PLAN_ACCESS: usize = 6;
    /// [`super::PlanOperator`].
    pub const PLAN_OPERATOR: usize = 7;
    /// The first position free for a client's own hint types.
    pub const FIRST_CUSTOM: usize = 8;
}

/// One value per hint type and the client that gave them; 64 bytes, compared and hashed as a
/// whole by CLIC. Equal values from two clients are two hint sets (thesis §3.1): nothing says
/// that they mean the same.
///
/// ```
/// use thermocline_core::{FileKind, HintSet, RequestType, hint_type};
///
/// let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::RecoveryWrite.value());
/// assert_eq!(hints.request(), RequestType::RecoveryWrite);
/// assert_eq!(hints.file_kind(), FileKind::Unknown);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HintSet {
    values: [u32; HINT_TYPES_MAX],
    client: u32,
}

const _: () = assert!(size_of::<HintSet>() == 64);

impl HintSet {
    /// A hint set in which nothing is known.
    pub const UNKNOWN: Self = Self {
        values: [0; HINT_TYPES_MAX],
        client: 0,
    };

    /// The value of hint type `position`; 0 is unknown.
    #[must_use]
    pub fn get(&self, position: usize) -> u32 {
        self.values[position]
    }

    /// Sets the value of hint type `position`.
    pub fn set(&mut self, position: usize, value: u32) {
        self.values[position] = value;
    }

    /// The same set with one value changed.
    #[must_use]
    pub fn with(mut self, position: usize, value: u32) -> Self {
        self.values[position] = value;
        self
    }

    /// The database (or other source of hints) whose values these are; 0 where there is but one.
    /// Not a session: all sessions of one database share its hint types.
    #[must_use]
    pub fn client(&self) -> u32 {
        self.client
    }

    /// The same values given by another client.
    #[must_use]
    pub fn from_client(mut self, client: u32) -> Self {
        self.client = client;
        self
    }

    /// All values in the schema's order.
    #[must_use]
    pub fn values(&self) -> &[u32; HINT_TYPES_MAX] {
        &self.values
    }

    /// The kind of file the page is in.
    #[must_use]
    pub fn file_kind(&self) -> FileKind {
        FileKind::from_value(self.values[hint_type::FILE_KIND])
    }

    /// The type of request.
    #[must_use]
    pub fn request(&self) -> RequestType {
        RequestType::from_value(self.values[hint_type::REQUEST])
    }

    /// The type of page.
    #[must_use]
    pub fn page_type(&self) -> PageType {
        PageType::from_value(self.values[hint_type::PAGE_TYPE])
    }

    /// The role of the caller.
    #[must_use]
    pub fn role(&self) -> Role {
        Role::from_value(self.values[hint_type::ROLE])
    }
}

/// Names of the hint types of one client, in position order.
///
/// ```
/// use thermocline_core::{HintSchema, hint_type};
///
/// let schema = HintSchema::with_custom(["tenant"]).expect("at most 15");
/// assert_eq!(schema.names()[hint_type::FIRST_CUSTOM], "tenant");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintSchema {
    names: Vec<String>,
}

impl Default for HintSchema {
    fn default() -> Self {
        let names = [
            "hint_object",
            "file_kind",
            "request",
            "page_type",
            "role",
            "plan_level",
            "plan_access",
            "plan_operator",
        ];
        Self {
            names: names.map(String::from).to_vec(),
        }
    }
}

impl HintSchema {
    /// The built-in types followed by `custom` ones. `None` when that is more than
    /// [`HINT_TYPES_MAX`].
    #[must_use]
    pub fn with_custom<S: Into<String>>(custom: impl IntoIterator<Item = S>) -> Option<Self> {
        let mut schema = Self::default();
        schema.names.extend(custom.into_iter().map(Into::into));
        (schema.names.len() <= HINT_TYPES_MAX).then_some(schema)
    }

    /// The names, position by position.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// Declares a hint domain: an enum whose values start at 0 = unknown and have stable names.
macro_rules! hint_domain {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            /// Nothing is known.
            #[default]
            Unknown,
            $($(#[$vdoc])* $variant),+
        }

        impl $name {
            /// Every value, in numeric order.
            pub const ALL: &'static [Self] = &[Self::Unknown, $(Self::$variant),+];

            /// The value with this number; out of range is unknown.
            #[must_use]
            pub fn from_value(value: u32) -> Self {
                Self::ALL.get(value as usize).copied().unwrap_or_default()
            }

            /// The number used in a hint set.
            #[must_use]
            pub const fn value(self) -> u32 {
                self as u32
            }

            /// The name used in traces, configuration and tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { Self::Unknown => "unknown", $(Self::$variant => $text),+ }
            }

            /// The value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }
    };
}

hint_domain! {
    /// What a file is for.
    FileKind {
        /// Table or index data (which of the two, the page type says).
        Relation = "relation",
        /// Known to be an index.
        Index = "index",
        /// System catalog.
        Catalog = "catalog",
        /// Sort runs, hash batches, temporary tables: dead when the statement ends.
        Temporary = "temporary",
        /// Write-ahead log, redo log, journal, binary log.
        Log = "log",
        /// Free-space and visibility maps and other small per-relation side files.
        Map = "map",
        /// Undo or rollback segments.
        Undo = "undo",
        /// Configuration, control and lock files.
        Other = "other",
    }
}

hint_domain! {
    /// Why the request is made (thesis §3.1 request types).
    RequestType {
        /// A demand read, not part of a scan.
        Read = "read",
        /// A read that continues a sequential stream.
        SequentialRead = "sequential-read",
        /// A write that bounds recovery time (checkpoint).
        RecoveryWrite = "recovery-write",
        /// An asynchronous write that cleans a page about to be replaced.
        ReplacementWrite = "replacement-write",
        /// A replacement write made by a query that had to wait for it.
        SynchronousWrite = "synchronous-write",
        /// A write about which only that is known.
        Write = "write",
    }
}

hint_domain! {
    /// What the page's own header says it is.
    PageType {
        /// Never initialised: all zero.
        Empty = "empty",
        /// Table data.
        Heap = "heap",
        /// B-tree leaf.
        BtreeLeaf = "btree-leaf",
        /// B-tree inner page or root.
        BtreeInner = "btree-inner",
        /// B-tree meta page.
        BtreeMeta = "btree-meta",
        /// Any other index access method.
        OtherIndex = "other-index",
        /// Sequence.
        Sequence = "sequence",
        /// Free-space map, visibility map, allocation bitmap.
        Map = "map",
        /// Undo.
        Undo = "undo",
        /// Large values out of line.
        Overflow = "overflow",
        /// Transaction system, data dictionary and the like.
        System = "system",
    }
}

hint_domain! {
    /// Who makes the request.
    Role {
        /// A session serving a client's statement.
        Backend = "backend",
        /// Checkpointer.
        Checkpointer = "checkpointer",
        /// Background writer: makes room.
        BackgroundWriter = "background-writer",
        /// Log writer.
        WalWriter = "wal-writer",
        /// Autovacuum worker or launcher, purge.
        Autovacuum = "autovacuum",
        /// A statement that maintains rather than queries (VACUUM, CREATE INDEX, COPY ...).
        Maintenance = "maintenance",
        /// Parallel worker of a query.
        ParallelWorker = "parallel-worker",
        /// Asynchronous I/O worker: the requester is not known.
        IoWorker = "io-worker",
        /// Crash recovery or replay.
        Recovery = "recovery",
        /// Replication sender or receiver, archiver.
        Replication = "replication",
        /// Any other process of the database.
        Auxiliary = "auxiliary",
        /// An application with the database in process.
        Application = "application",
        /// InnoDB's page cleaner: it writes to make room and to let the log go on, and does not
        /// say which.
        PageCleaner = "page-cleaner",
    }
}

hint_domain! {
    /// Where in the plans of the running queries the page's table or index is read at random:
    /// steps above the lowest level of all, by function (1) of hStorage-DB §4.2.2, so 0 is read
    /// most often. The plan's own level is not known here.
    PlanLevel {
        /// The lowest.
        L0 = "0",
        /// One step above it, and so on.
        L1 = "1",
        /// Two steps.
        L2 = "2",
        /// Three steps.
        L3 = "3",
        /// Four steps.
        L4 = "4",
        /// Five steps.
        L5 = "5",
        /// Six steps.
        L6 = "6",
        /// Seven steps.
        L7 = "7",
        /// Eight steps.
        L8 = "8",
        /// Nine steps.
        L9 = "9",
        /// Ten steps or more.
        L10 = "10",
    }
}

impl PlanLevel {
    /// The level `steps` above the lowest; the last one where there are more.
    #[must_use]
    pub fn of_steps(steps: u8) -> Self {
        let at = (usize::from(steps) + 1).min(Self::ALL.len() - 1);
        Self::ALL[at]
    }
}

hint_domain! {
    /// How the reader's plan reads the page's table or index.
    PlanAccess {
        /// From its beginning to its end.
        Sequential = "sequential",
        /// Page by page, as an index says.
        Random = "random",
    }
}

hint_domain! {
    /// The operator that reads the page.
    PlanOperator {
        /// Sequential scan.
        SeqScan = "seq-scan",
        /// Scan of a sample.
        SampleScan = "sample-scan",
        /// Index scan: of the index and its table.
        IndexScan = "index-scan",
        /// Scan of an index, and of its table where the visibility map does not do.
        IndexOnlyScan = "index-only-scan",
        /// Bitmap scan: of indexes and their table.
        BitmapScan = "bitmap-scan",
        /// Rows by their addresses.
        TidScan = "tid-scan",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_round_trip() {
        for &v in RequestType::ALL {
            assert_eq!(RequestType::from_value(v.value()), v);
            assert_eq!(RequestType::from_name(v.name()), Some(v));
        }
        assert_eq!(Role::from_value(9999), Role::Unknown);
    }

    #[test]
    fn schema_refuses_too_many_types() {
        let seven = (0..7).map(|i| format!("t{i}"));
        let eight = (0..8).map(|i| format!("t{i}"));
        assert!(HintSchema::with_custom(seven).is_some());
        assert!(HintSchema::with_custom(eight).is_none());
    }

    #[test]
    fn levels_are_named_for_their_steps() {
        assert_eq!(PlanLevel::of_steps(0).name(), "0");
        assert_eq!(PlanLevel::of_steps(10).name(), "10");
        assert_eq!(PlanLevel::of_steps(255).name(), "10");
    }
}
