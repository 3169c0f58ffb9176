//! Objects: base files as the engine knows them.

use crate::classify::Dialect;
use crate::device::Device;
use crate::durable::turns::Turns;
use crate::files::fate::UnderWay;
use crate::files::growth::Room;
use crate::lock::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::lock::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::store::Fate;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thermocline_core::{FileKind, ObjectId};

/// Which file this is, whatever it is called.
///
/// ```
/// # let base = tempfile::tempdir()?;
/// # let (one, two) = (base.path().join("one"), base.path().join("two"));
/// use thermocline::Identity;
///
/// std::fs::write(&one, "")?;
/// let before = Identity::of(&std::fs::metadata(&one)?);
/// std::fs::rename(&one, &two)?;
/// assert_eq!(Identity::of(&std::fs::metadata(&two)?), before);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Device number of its file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Inode generation or birth time: tells a reused inode number from the old file. 0 unknown.
    pub generation: u64,
}

/// The state of a file by which a change behind the tier's back is noticed.
///
/// ```
/// # let base = tempfile::tempdir()?;
/// # let path = base.path().join("file");
/// use thermocline::Stamp;
///
/// std::fs::write(&path, "four")?;
/// let before = Stamp::of(&std::fs::metadata(&path)?);
/// std::fs::write(&path, "seventeen")?;
/// assert_ne!(Stamp::of(&std::fs::metadata(&path)?), before);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Length in bytes.
    pub length: u64,
    /// Last change of contents, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of contents or attributes, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

/// Gives the stamp of a file now; `None` when it cannot be told.
pub type StampFn = Arc<dyn Fn() -> Option<Stamp> + Send + Sync>;

/// Sets when a file's contents were last changed: nanoseconds since 1970, or now.
pub type TouchFn = Arc<dyn Fn(Option<i64>) -> io::Result<()> + Send + Sync>;

/// A [`TouchFn`] for files whose times nobody looks at.
#[must_use]
pub fn untouched() -> TouchFn {
    Arc::new(|_| Ok(()))
}

/// Makes durable that a file has lost its name; see [`crate::Engine::unlinked`].
#[derive(Clone)]
pub struct Grave {
    /// The directory that had the name: device and inode. Graves of one directory are closed by
    /// one sync.
    pub directory: (u64, u64),
    /// Syncs that directory.
    pub sync: Arc<dyn Fn() -> io::Result<()> + Send + Sync>,
    /// The file, open, where base gives its inode's number to another file as soon as nobody has it
    /// open: it is kept until the durable map has nothing of it.
    pub kept: Option<Arc<File>>,
}

impl std::fmt::Debug for Grave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Grave").field(&self.directory).finish()
    }
}

/// A base file handed to the engine.
///
/// Most callers begin with [`ObjectSpec::of_file`] and change what they know better:
///
/// ```
/// use thermocline::{FileKind, ObjectSpec, classify::Dialect};
///
/// # let base = tempfile::tempdir()?;
/// # std::fs::write(base.path().join("orders.btree"), "")?;
/// let spec = ObjectSpec {
///     group: "orders".into(), // the table, which has other files too
///     dialect: Dialect::Sqlite,
///     ..ObjectSpec::of_file(base.path(), "orders.btree", FileKind::Relation)?
/// };
/// assert!(spec.cached);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct ObjectSpec {
    /// Path relative to the base directory, for people and traces.
    pub name: String,
    /// The table, index or other thing it is part of: segments and forks share one. The object
    /// hint of its requests.
    pub group: String,
    /// Which file it is.
    pub identity: Identity,
    /// Its bytes.
    pub base: Arc<dyn Device>,
    /// What it is for.
    pub kind: FileKind,
    /// Whose page layout it has.
    pub dialect: Dialect,
    /// False: every request goes to base; it is still counted and recorded.
    pub cached: bool,
    /// Reads the file's stamp.
    pub stamp: StampFn,
    /// Sets its time of change.
    pub touch: TouchFn,
}

/// An open base file, from [`crate::Engine::open_object`]. Whoever means a file holds this, not its
/// number: the number is given to another file only when nobody holds this any more.
///
/// ```
/// use thermocline::{Engine, EngineConfig, FileKind, ObjectSpec};
///
/// # let base = tempfile::tempdir()?;
/// # std::fs::write(base.path().join("t"), "")?;
/// # let engine = Engine::start(EngineConfig::default(), None)?;
/// let open = || engine.open_object(ObjectSpec::of_file(base.path(), "t", FileKind::Relation)?);
/// let (once, again) = (open()?, open()?);
/// assert_eq!(once.id(), again.id(), "one file, one object");
/// engine.close_object(&once); // once for each open
/// engine.close_object(&again);
/// # engine.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Object {
    pub(crate) id: ObjectId,
    pub(crate) identity: Identity,
    pub(crate) kind: FileKind,
    pub(crate) dialect: Dialect,
    pub(crate) cached: bool,
    pub(crate) name: RwLock<String>,
    pub(crate) group: String,
    /// Value of the object hint.
    pub(crate) hint: u32,
    /// The client whose file it is: see [`crate::files::clients`].
    pub(crate) client: u32,
    pub(crate) base: Arc<dyn Device>,
    pub(crate) stamp: StampFn,
    pub(crate) touch: TouchFn,
    /// Something was written that base's time of change does not show yet.
    pub(crate) touch_due: AtomicBool,
    /// Writes of base by requests, begun and ended: who sets its time back looks for them.
    pub(crate) base_writes: AtomicU64,
    /// A sync was acknowledged, in this run or one before: after a crash the file must be there.
    pub(crate) promised: AtomicBool,
    /// The kernel reads and writes base without the engine: what base holds, and how long it is,
    /// base alone knows.
    pub(crate) passthrough: AtomicBool,
    /// Its last name is gone; its pages go when nobody has it open and that is durable.
    pub(crate) unlinked: AtomicBool,
    pub(crate) grave: Mutex<Option<Grave>>,
    /// While nobody but the tier uses it: what its file looked like when that began, and the tier's
    /// own changes since.
    left: Mutex<Option<Stamp>>,
    /// Changes of the tier's own under way.
    changing: AtomicU32,
    /// Length of the file as the engine's own requests made it.
    pub(crate) length: AtomicU64,
    pub(crate) room: Room,
    layout: RwLock<()>,
    quiet: Mutex<()>,
    /// Nobody uses it any more, and `left` is to say how its file looks once `quiet` is free.
    leaving: AtomicBool,
    /// Changes of base for users, and those that a sync of it covered.
    pub(crate) unsynced: Owed,
    /// Dirty pages written to base, likewise.
    pub(crate) destaged: Owed,
    /// Base's data is durable, the times of its file perhaps are not.
    pub(crate) unstamped: AtomicBool,
    /// Syncs of base that failed, whoever's they were; one more, of which nobody was told, where
    /// some did before it was opened.
    pub(crate) failed_syncs: AtomicU64,
    /// Pages that flash had lost at the last sync that asked, and their versions.
    pub(crate) lost: Mutex<BTreeSet<(u64, Option<u64>)>>,
    /// How often more of them were found. Base knows nothing of these.
    pub(crate) losses: AtomicU64,
    /// Syncs of base under way.
    pub(crate) turns: Turns,
    /// A sync of base failed, and no sync of a frontend was told yet.
    pub(crate) sync_failed: AtomicBool,
    /// A sync of base failed: base may have given up the length that it shows.
    pub(crate) length_due: AtomicBool,
    /// The newest batch of a flash device that failed, when base durably shows that the file was
    /// changed later.
    pub(crate) shown_newer: Mutex<Option<Duration>>,
    pub(crate) under_way: UnderWay,
    /// Pages made dirty, and those that a sync made durable.
    pub(crate) uncommitted: Owed,
    pub(crate) opens: AtomicU32,
    /// Those of them that are the tier's own.
    pub(crate) asides: AtomicU32,
    pub(crate) counts: Arc<Counts>,
}

/// Changes that are to be made durable, counted: a sync answers for those that were made before it
/// began, and nobody is told that it ended before it has.
#[derive(Debug)]
pub(crate) struct Owed {
    made: AtomicU64,
    durable: AtomicU64,
}

impl Owed {
    pub(crate) fn new(made: u64) -> Self {
        Self {
            made: AtomicU64::new(made),
            durable: AtomicU64::new(0),
        }
    }

    /// A change was made, well or not.
    pub(crate) fn add(&self) {
        self.made.fetch_add(1, Ordering::AcqRel);
    }

    /// What a sync that begins now covers.
    pub(crate) fn begin(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// The sync that began with `covered` ended well.
    pub(crate) fn end(&self, covered: u64) {
        debug_assert!(covered <= self.begin(), "a sync covers what was made");
        self.durable.fetch_max(covered, Ordering::AcqRel);
    }

    /// Whether a sync is due.
    pub(crate) fn is_due(&self) -> bool {
        let durable = self.durable.load(Ordering::Acquire);
        let made = self.begin();
        debug_assert!(durable <= made, "a sync covers what was made");
        durable < made
    }
}

/// Requests of one object; they outlive its closing.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) writes: AtomicU64,
}

/// What [`Counts`] had at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) reads: u64,
    pub(crate) hits: u64,
    pub(crate) writes: u64,
}

impl Counts {
    pub(crate) fn now(&self) -> Counted {
        Counted {
            reads: self.reads.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }
}

impl Counted {
    pub(crate) fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.hits += other.hits;
        self.writes += other.writes;
    }
}

/// The object hint's value for a group: a hash (FNV-1a), so that it is the same after a restart.
fn group_hint(group: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    // 0 would mean unknown.
    group.bytes().fold(0x811c_9dc5, step).max(1)
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("id", &self.id)
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Object {
    pub(crate) fn new(id: ObjectId, spec: ObjectSpec, length: u64, counts: Arc<Counts>) -> Self {
        debug_assert!(!spec.name.is_empty(), "an object has a name to show");
        Self {
            id,
            identity: spec.identity,
            kind: spec.kind,
            dialect: spec.dialect,
            cached: spec.cached,
            name: RwLock::new(spec.name),
            hint: group_hint(&spec.group),
            client: 0,
            group: spec.group,
            base: spec.base,
            stamp: spec.stamp,
            touch: spec.touch,
            touch_due: AtomicBool::new(false),
            base_writes: AtomicU64::new(0),
            passthrough: AtomicBool::new(false),
            promised: AtomicBool::new(false),
            unlinked: AtomicBool::new(false),
            grave: Mutex::default(),
            left: Mutex::default(),
            changing: AtomicU32::new(0),
            length: AtomicU64::new(length),
            room: Room::default(),
            layout: RwLock::new(()),
            quiet: Mutex::default(),
            leaving: AtomicBool::new(false),
            // What was written before it was opened may wait for a sync too.
            unsynced: Owed::new(1),
            destaged: Owed::new(0),
            unstamped: AtomicBool::new(false),
            failed_syncs: AtomicU64::new(0),
            lost: Mutex::default(),
            losses: AtomicU64::new(0),
            turns: Turns::default(),
            sync_failed: AtomicBool::new(false),
            length_due: AtomicBool::new(false),
            shown_newer: Mutex::default(),
            under_way: UnderWay::default(),
            uncommitted: Owed::new(0),
            opens: AtomicU32::new(1),
            asides: AtomicU32::new(0),
            counts,
        }
    }

    /// The number that hints, traces and the map on flash know it by.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// What a record of it on flash is to say.
    pub(crate) fn fate(&self) -> Fate {
        let fate = self.under_way.fate();
        // Whatever else is under way with it, it may be gone after a crash.
        let unlinked = fate.unlinked || self.unlinked.load(Ordering::Acquire);
        Fate { unlinked, ..fate }
    }

    /// Whether base can be written through what it was opened with.
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.base.can_write()
    }

    /// What it is called now.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.name.read();
        name.clone()
    }

    /// Held while base is written in the background.
    pub(crate) fn layout(&self) -> RwLockReadGuard<'_, ()> {
        self.layout.read()
    }

    /// Held while base is cut or punched.
    pub(crate) fn layout_alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.layout.write()
    }

    /// Changes base for the tier's own reasons: the file keeps its time of change, which tells when
    /// a request wrote to it.
    pub(crate) fn change_quietly(
        &self,
        change: impl FnOnce(&dyn Device) -> io::Result<()>,
    ) -> io::Result<()> {
        self.quietly(|| {
            // A write between the two shows: its number is new, whatever time was seen.
            let writes = self.base_writes.load(Ordering::Acquire);
            let before = (self.stamp)();
            let written = change(&*self.base);
            let time = before.and_then(|before| before.time_of_change());
            if let Some(time) = time.filter(|_| written.is_ok()) {
                // A base that refuses it shows a newer time: a backup then copies once too often.
                let _ = (self.touch)(Some(time));
            }
            if self.base_writes.load(Ordering::Acquire) != writes {
                self.touch_due.store(true, Ordering::Release);
            }
            let mut left = self.left.lock();
            if left.is_some() && *left == before {
                *left = (self.stamp)();
            }
            written
        })
    }

    /// Alone with the file's times: nobody else of the tier changes them meanwhile.
    fn quietly<R>(&self, act: impl FnOnce() -> R) -> R {
        let one = self.quiet.lock();
        let done = act();
        drop(one);
        // Whoever left it meanwhile did not wait.
        if self.leaving.load(Ordering::Acquire) {
            let _one = self.quiet.lock();
            self.has_left();
        }
        done
    }

    fn has_left(&self) {
        if self.leaving.swap(false, Ordering::AcqRel) {
            *self.left.lock() = (self.stamp)();
        }
    }

    /// Nobody uses it any more: from now on only the tier changes its file. While base is written
    /// in the background that is noted when the write has ended: the caller holds the registry.
    pub(crate) fn leave_alone(&self) {
        self.leaving.store(true, Ordering::Release);
        if let Some(_one) = self.quiet.try_lock() {
            self.has_left();
        }
    }

    /// Does what changes the file's stamp and is the tier's own doing. While it lasts nobody else
    /// is
    /// blamed for a change.
    pub(crate) fn own_change<R>(&self, change: impl FnOnce() -> R) -> R {
        let others = self.changing.fetch_add(1, Ordering::AcqRel) > 0;
        let ours = others || self.is_as_left();
        let changed = change();
        // Whoever compares holds this: what it sees changed is still under way for it.
        self.quietly(|| {
            let mut left = self.left.lock();
            if ours && left.is_some() {
                *left = (self.stamp)();
            }
            let before = self.changing.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "a change ends once");
        });
        changed
    }

    /// Lets base's time of change show what was written, if that is due. Whoever sets times
    /// otherwise waits, and is not overwritten.
    pub(crate) fn touch_if_due(&self) {
        self.quietly(|| self.show_written());
    }

    /// Sets times of the file, once what was written before shows. No background write is half
    /// done, which would set them back.
    pub(crate) fn set_times<R>(&self, set: impl FnOnce() -> R) -> R {
        self.quietly(|| {
            self.show_written();
            set()
        })
    }

    fn show_written(&self) {
        if self.touch_due.swap(false, Ordering::AcqRel) {
            // A base that refuses it shows an older time, which is what it shows without a touch.
            let _ = (self.touch)(None);
        }
    }

    fn is_as_left(&self) -> bool {
        // No background write is half done.
        self.quietly(|| self.looks_as_left())
    }

    fn looks_as_left(&self) -> bool {
        let left = *self.left.lock();
        left.is_none_or(|left| (self.stamp)() == Some(left))
    }

    /// Whether somebody else changed its file since nobody uses it.
    pub(crate) fn was_changed(&self) -> bool {
        self.quietly(|| !self.looks_as_left() && self.changing.load(Ordering::Acquire) == 0)
    }

    /// From here on its file is to look like this, but for the tier's own changes.
    pub(crate) fn left_as(&self, stamp: Option<Stamp>) {
        self.quietly(|| *self.left.lock() = stamp);
    }

    /// Whether nobody but the tier uses it. To be asked under the registry's lock.
    pub(crate) fn is_alone(&self) -> bool {
        let asides = self.asides.load(Ordering::Acquire);
        self.opens.load(Ordering::Acquire) == asides
    }

    /// Somebody uses it again.
    pub(crate) fn in_use(&self) {
        self.leaving.store(false, Ordering::Release);
        *self.left.lock() = None;
    }

    /// What its file is to be known by once it is closed.
    pub(crate) fn last_stamp(&self) -> Option<Stamp> {
        let left = *self.left.lock();
        left.or_else(|| (self.stamp)())
    }

    /// Whether base has bytes that no sync covered.
    pub(crate) fn base_sync_is_due(&self) -> bool {
        self.unsynced.is_due() || self.destaged.is_due()
    }

    /// Writes base for a request, which may make the file longer.
    pub(crate) fn write_base(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        // Nobody cuts base, or sets its length to what it was, while this may make it longer.
        let _layout = self.layout();
        self.base_writes.fetch_add(1, Ordering::AcqRel);
        let written = self.base.write_at(bytes, offset);
        self.base_writes.fetch_add(1, Ordering::AcqRel);
        self.unsynced.add();
        match written {
            Ok(()) => self.grow(end),
            // A part may have been written, and have made the file longer.
            Err(_) => self.grow(self.base.len().unwrap_or(0)),
        }
        written
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Notes that bytes up to `end` exist.
    pub(crate) fn grow(&self, end: u64) {
        self.length.fetch_max(end, Ordering::AcqRel);
    }
}
