//! The store alone: batches, checkpoints, resizing and restarts with a crash at every boundary,
//! against maps in memory.
//!
//! # What is promised
//! 1. What a commit acknowledged is found after a crash, bytes and all.
//! 2. Of each page, object and intent that later batches change, any of the later states may be
//!    found instead: pages whose data did not survive keep what they had, or lose it when that was
//!    clean.
//! 3. What was found once is found again after another crash.

use crate::draw::Draw;
use crate::image::SECTOR;
use crate::model::pattern;
use crate::run::{Failure, Options, Tally};
use crate::setup::FLASH;
use crate::world::{Moment, World};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thermocline::mutant::Mutant;
use thermocline::store::{
    BaseIdentity, Batch, Fate, ObjectChange, Recovered, SavedObject, Store, StoreOptions, checksum,
};
use thermocline::{Error, Identity, Stamp};
use thermocline_core::ledger::{Intent, MapChange, MapEntry};
use thermocline_core::{BlockId, ObjectId, PageId};

/// Objects at a time, and pages of each.
const OBJECTS: u64 = 3;
const PAGES: u64 = 14;

/// What a map says at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Book {
    pages: BTreeMap<PageId, (BlockId, MapEntry)>,
    objects: BTreeMap<ObjectId, SavedObject>,
    intents: BTreeSet<Intent>,
}

impl Book {
    fn of(found: &Recovered) -> Self {
        let page = |&(block, entry): &(BlockId, MapEntry)| (entry.page, (block, entry));
        let object = |object: &SavedObject| (object.id, object.clone());
        Self {
            pages: found.entries.iter().map(page).collect(),
            objects: found.objects.iter().map(object).collect(),
            intents: found.intents.iter().copied().collect(),
        }
    }

    fn take_in(&mut self, batch: &Batch) {
        for change in &batch.objects {
            match change {
                ObjectChange::Put(object) => {
                    self.objects.insert(object.id, object.clone());
                }
                ObjectChange::Gone(id) => {
                    self.objects.remove(id);
                    self.pages.retain(|page, _| page.object != *id);
                }
            }
        }
        for change in &batch.changes {
            match *change {
                MapChange::Set { block, entry } => {
                    self.pages.retain(|_, (at, _)| *at != block);
                    if let Some(entry) = entry {
                        self.pages.insert(entry.page, (block, entry));
                    }
                }
                MapChange::Intend { intent, on: true } => {
                    self.intents.insert(intent);
                }
                MapChange::Intend { intent, on: false } => {
                    self.intents.remove(&intent);
                }
            }
        }
    }
}

type Captured = Arc<Mutex<Vec<World>>>;

/// A batch, and the blocks that are written before it.
type Next = (Batch, Vec<(BlockId, Vec<u8>)>);

struct StoreRun {
    draw: Draw,
    world: World,
    store: Arc<Store>,
    /// What is durable, then what it became with each batch that is not.
    books: Vec<Book>,
    /// How many of these the step at hand makes past.
    past: usize,
    /// Writes of blocks that come later, when they do.
    later: Option<Vec<(BlockId, Vec<u8>)>>,
    version: u64,
    next_object: u32,
    captured: Captured,
    tally: Tally,
    length: u64,
    planted: Mutant,
}

/// Runs the store under the workload of `seed`.
///
/// # Errors
/// The first broken promise.
pub fn run_store(seed: u64, options: &Options, tally: &mut Tally) -> Result<(), Failure> {
    let failed = |step, during: &str, what| Failure {
        step,
        during: during.into(),
        what,
    };
    let started = StoreRun::new(seed, options);
    let mut run = started.map_err(|what| failed(0, "start", what))?;
    let mut result = Ok(());
    for number in 0..options.steps {
        run.tally.steps += 1;
        let mut during = String::new();
        let ended = run.step(&mut during);
        if options.trace {
            println!("{number:4} {during}");
        }
        if let Err(what) = ended {
            result = Err(failed(number, &during, what));
            break;
        }
    }
    tally.add(&run.tally);
    result
}

impl StoreRun {
    fn new(seed: u64, options: &Options) -> Result<Self, String> {
        let mut draw = Draw::new(seed ^ 0x570E);
        let world = World::new(seed);
        let flash = world.create("flash", Identity::default());
        assert_eq!(flash, FLASH, "flash is the first file of a world");
        if let Some(fault) = options.flash_fault {
            world.inject(FLASH, fault);
        }
        // From some ten blocks to some sixty.
        let length = (44 + 4 * draw.below(8)) << 10;
        let store = open(&world, Some(length), options.mutant)?;
        store.mark_open().map_err(|e| e.to_string())?;
        let run = Self {
            draw,
            world,
            store: Arc::new(store),
            books: vec![Book::default()],
            past: 0,
            later: None,
            version: 1,
            next_object: 1,
            captured: Captured::default(),
            tally: Tally::default(),
            length,
            planted: options.mutant,
        };
        Ok(run.watched())
    }

    fn watched(mut self) -> Self {
        self.watch();
        self
    }

    fn watch(&mut self) {
        let captured = Arc::clone(&self.captured);
        let mut draw = Draw::new(self.draw.bits());
        self.world.observe(Some(Box::new(move |state, io| {
            if !io.done {
                lock(&captured).push(state.crash(draw.bits()));
            }
        })));
    }

    fn now(&self) -> &Book {
        &self.books[self.books.len() - 1]
    }

    fn step(&mut self, during: &mut String) -> Result<(), String> {
        *during = match self.draw.below(40) {
            0..30 => self.write_batch()?,
            30..33 => {
                self.store.checkpoint().map_err(|e| e.to_string())?;
                "checkpoint".into()
            }
            33..35 => self.restart()?,
            35..37 => self.resize()?,
            _ => self.power_cut()?,
        };
        self.verify_captured()?;
        match during.starts_with("append") {
            true => {}
            false if self.past > 0 => drop(self.books.drain(..self.past)),
            false => self.acknowledge(),
        }
        self.past = 0;
        self.tally.crash_points += 1;
        let after = self.world.crash(self.draw.bits());
        self.verify(&after, 1)
    }

    fn acknowledge(&mut self) {
        self.books.drain(..self.books.len() - 1);
    }

    fn write_batch(&mut self) -> Result<String, String> {
        let two = self.draw.chance(1, 3);
        // Long ones take several sectors, or several blocks, of the journal.
        let most = if two { 3 } else { self.draw.one(&[3, 3, 40]) };
        let batch = self.draw_batch(most)?;
        if two {
            return self.commit_two(&batch);
        }
        let durable = self.draw.chance(1, 2);
        let done = match durable {
            true => self.store.commit(&batch),
            false => self.store.append(&batch),
        };
        done.map_err(|e| e.to_string())?;
        let how = if durable { "commit" } else { "append" };
        Ok(format!("{how} {batch:?}"))
    }

    /// Commits `batch`; the next one is written while that is made durable.
    fn commit_two(&mut self, batch: &Batch) -> Result<String, String> {
        let past = self.books.len() - 1;
        // What is named from here on is so after the first one.
        self.books.push(self.now().clone());
        self.later = Some(Vec::new());
        let drawn = self.draw_batch(3);
        let next = (drawn?, self.later.take().unwrap_or_default());
        let written = Arc::new(AtomicBool::new(false));
        // With little room in the journal a checkpoint comes before the first one.
        if !self.store.wants_checkpoint() {
            let (store, next, written) = (self.store.clone(), next.clone(), written.clone());
            let meanwhile = move || {
                let room = !store.wants_checkpoint();
                let done = room && later_writes(&store, &next).is_ok();
                written.store(done, Ordering::Relaxed);
            };
            self.world
                .during(FLASH, Moment::Sync, Some(Box::new(meanwhile)));
        }
        self.store.commit(batch).map_err(|e| e.to_string())?;
        self.world.during(FLASH, Moment::Sync, None);
        let meanwhile = written.load(Ordering::Relaxed);
        if !meanwhile {
            later_writes(&self.store, &next)?;
        }
        self.tally.meanwhile += u64::from(meanwhile);
        self.past = past;
        Ok(format!("commit {batch:?}, and {next:?}, {meanwhile}"))
    }

    /// Draws a batch, writes the blocks it names, and puts what it makes of the map into the books.
    fn draw_batch(&mut self, most: u64) -> Result<Batch, String> {
        let mut batch = Batch {
            time_ns: self.version as i64,
            ..Batch::default()
        };
        let mut book = self.now().clone();
        for _ in 0..1 + self.draw.below(most) {
            let change = self.draw_change(&book)?;
            book.take_in(&change);
            // An object is in a batch once, as it is last: so the engine makes them.
            for put in &change.objects {
                batch.objects.retain(|before| id_of(before) != id_of(put));
            }
            batch.objects.extend(change.objects);
            batch.changes.extend(change.changes);
        }
        // Objects come first in a batch; so that order cannot matter, one that goes stands alone.
        let goes = |change: &ObjectChange| matches!(change, ObjectChange::Gone(_));
        if batch.objects.iter().any(goes) {
            batch = self.gone_batch();
            book = self.now().clone();
            book.take_in(&batch);
        }
        self.books.push(book);
        Ok(batch)
    }

    fn draw_change(&mut self, book: &Book) -> Result<Batch, String> {
        let mut batch = Batch::default();
        let ids: Vec<ObjectId> = book.objects.keys().copied().collect();
        if (ids.len() as u64) < OBJECTS {
            let id = ObjectId(self.next_object);
            self.next_object += 1;
            batch.objects.push(ObjectChange::Put(object(id, 1)));
            return Ok(batch);
        }
        let id = self.draw.one(&ids);
        let index = self.draw.below(PAGES);
        let page = PageId { object: id, index };
        let held = book.pages.get(&page).copied();
        match (self.draw.below(20), held) {
            (0, _) if self.now().objects.contains_key(&id) => {
                batch.objects.push(ObjectChange::Gone(id));
            }
            // Often: a record of several sectors is what shows a torn block of the journal.
            (1 | 18 | 19, _) => {
                let length = self.draw.below(9999);
                batch.objects.push(ObjectChange::Put(object(id, length)));
            }
            (2..5, _) => {
                let intent = Intent {
                    object: id,
                    region: self.draw.below(3),
                };
                let on = self.draw.chance(1, 2);
                batch.changes.push(MapChange::Intend { intent, on });
            }
            (5..8, Some((block, _))) => {
                batch.changes.push(MapChange::Set { block, entry: None });
            }
            (8..11, Some((block, entry))) if entry.dirty => {
                let entry = Some(MapEntry {
                    dirty: false,
                    ..entry
                });
                batch.changes.push(MapChange::Set { block, entry });
            }
            _ => self.put_page(page, held.map(|(block, _)| block), &mut batch)?,
        }
        Ok(batch)
    }

    /// The next version of a page into a block that nothing names.
    fn put_page(
        &mut self,
        page: PageId,
        old: Option<BlockId>,
        batch: &mut Batch,
    ) -> Result<(), String> {
        let Some(block) = self.free_block() else {
            return Ok(());
        };
        self.version += 1;
        let bytes = bytes_of(page, self.version);
        match &mut self.later {
            Some(later) => later.push((block, bytes.clone())),
            None => write_block(&self.store, block, &bytes)?,
        }
        let entry = MapEntry {
            page,
            checksum: checksum(page, &bytes),
            version: self.version,
            dirty: self.draw.chance(2, 3),
        };
        let empty = old.map(|block| MapChange::Set { block, entry: None });
        batch.changes.extend(empty);
        batch.changes.push(MapChange::Set {
            block,
            entry: Some(entry),
        });
        // Named from here on, whatever becomes of the batch.
        let mut book = self.now().clone();
        book.pages.insert(page, (block, entry));
        self.books.insert(self.books.len() - 1, book);
        Ok(())
    }

    /// A block that no book names: rule R3.
    fn free_block(&mut self) -> Option<BlockId> {
        let named: BTreeSet<BlockId> = (self.books.iter())
            .flat_map(|book| book.pages.values().map(|(block, _)| *block))
            .collect();
        let free = (0..self.store.blocks()).map(BlockId);
        let free: Vec<BlockId> = free.filter(|block| !named.contains(block)).collect();
        (!free.is_empty()).then(|| self.draw.one(&free))
    }

    fn gone_batch(&mut self) -> Batch {
        let ids: Vec<ObjectId> = self.now().objects.keys().copied().collect();
        let id = self.draw.one(&ids);
        let of_it = self
            .now()
            .pages
            .iter()
            .filter(|(page, _)| page.object == id);
        let empty = |(_, (block, _)): (&PageId, &(BlockId, MapEntry))| MapChange::Set {
            block: *block,
            entry: None,
        };
        Batch {
            changes: of_it.map(empty).collect(),
            objects: vec![ObjectChange::Gone(id)],
            time_ns: self.version as i64,
        }
    }

    /// A clean stop and a start: exactly what was there is found.
    fn restart(&mut self) -> Result<String, String> {
        let objects = self.now().objects.values().cloned().collect();
        self.store.close(objects).map_err(|e| e.to_string())?;
        let mut store = open(&self.world, None, self.planted)?;
        let found = store.take_recovered().ok_or("nothing is found")?;
        self.store = Arc::new(store);
        if !found.clean_stop || Book::of(&found) != *self.now() {
            return Err(format!(
                "after a clean stop: {found:?}, not {:?}",
                self.now()
            ));
        }
        self.store.mark_open().map_err(|e| e.to_string())?;
        Ok("restart".into())
    }

    fn resize(&mut self) -> Result<String, String> {
        let length = self.length + (self.draw.below(5) << 12);
        let length = length
            .saturating_sub(self.draw.below(5) << 12)
            .max(44 << 10);
        let Some(blocks) = self.store.blocks_at(length) else {
            return Ok("checkpoint instead of a resize".into());
        };
        // Blocks past the end are emptied first, durably.
        let mut batch = Batch::default();
        for (block, _) in self.now().pages.values().filter(|(b, _)| b.0 >= blocks) {
            let (block, entry) = (*block, None);
            batch.changes.push(MapChange::Set { block, entry });
        }
        let mut book = self.now().clone();
        book.take_in(&batch);
        self.books.push(book);
        self.store.commit(&batch).map_err(|e| e.to_string())?;
        self.verify_captured()?;
        self.acknowledge();
        match self.store.resize(length) {
            Ok(_) => self.length = length,
            // The map needs more room to move than that.
            Err(Error::CacheIo { source, .. }) if source.kind() == ErrorKind::InvalidInput => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(format!("resize to {length} bytes, {blocks} blocks"))
    }

    fn power_cut(&mut self) -> Result<String, String> {
        let next = self.world.crash(self.draw.bits());
        self.world.power_off();
        self.world = next;
        let mut store = open(&self.world, None, self.planted)?;
        let found = store.take_recovered().ok_or("nothing is found")?;
        self.check(&found, &store)?;
        self.length = store.length();
        self.store = Arc::new(store);
        self.version = self.version.max(found.next_version);
        self.store.mark_open().map_err(|e| e.to_string())?;
        let book = Book::of(&found);
        let known = book.objects.keys().last().map_or(0, |id| id.0);
        self.next_object = self.next_object.max(known + 1);
        self.books = vec![book];
        self.watch();
        Ok("power cut".into())
    }

    fn verify_captured(&mut self) -> Result<(), String> {
        let images = std::mem::take(&mut *lock(&self.captured));
        for image in images {
            self.tally.crash_points += 1;
            self.verify(&image, 1)?;
        }
        Ok(())
    }

    /// Recovers from `image`, crashes while the store is opened, and recovers again.
    fn verify(&mut self, image: &World, depth: u32) -> Result<(), String> {
        self.tally.recoveries += 1;
        let mut store = open(image, None, self.planted)?;
        let found = store.take_recovered().ok_or("nothing is found")?;
        self.check(&found, &store)?;
        if depth == 3 {
            return Ok(());
        }
        let during = Captured::default();
        let images = Arc::clone(&during);
        let mut draw = Draw::new(self.draw.bits());
        image.observe(Some(Box::new(move |state, io| {
            if !io.done && draw.chance(1, 8) {
                lock(&images).push(state.crash(draw.bits()));
            }
        })));
        store.mark_open().map_err(|e| e.to_string())?;
        image.observe(None);
        if self.draw.chance(1, 3) {
            self.tally.second_crashes += 1;
            let again = image.crash(self.draw.bits());
            self.verify_same(&again, &Book::of(&found))?;
        }
        for image in std::mem::take(&mut *lock(&during)) {
            self.tally.second_crashes += 1;
            self.verify(&image, depth + 1)?;
            self.verify_same(&image, &Book::of(&found))?;
        }
        Ok(())
    }

    /// Nothing was changed since `before` was found: it is found again.
    fn verify_same(&mut self, image: &World, before: &Book) -> Result<(), String> {
        self.tally.recoveries += 1;
        let found = open(image, None, self.planted)?.take_recovered();
        let again = Book::of(&found.ok_or("nothing is found")?);
        match again == *before {
            true => Ok(()),
            false => Err(format!("found {before:?}, after another crash {again:?}")),
        }
    }

    /// Compares what was found with what may be there.
    fn check(&mut self, found: &Recovered, store: &Store) -> Result<(), String> {
        if let Some(lost) = found.lost.iter().find(|lost| lost.is_damage()) {
            return Err(format!("called damage after a crash: {lost}"));
        }
        let book = Book::of(found);
        let books = &self.books;
        let names = books
            .iter()
            .flat_map(|b| b.pages.keys())
            .chain(book.pages.keys());
        for page in names.copied().collect::<BTreeSet<_>>() {
            let states = books.iter().map(|book| book.pages.get(&page));
            let found = book.pages.get(&page);
            if found.is_some() || !may_be_dropped(states.clone().flatten()) {
                one_of(&page, found, states)?;
            }
        }
        let names = books
            .iter()
            .flat_map(|b| b.objects.keys())
            .chain(book.objects.keys());
        for id in names.copied().collect::<BTreeSet<_>>() {
            let states = books.iter().map(|book| book.objects.get(&id));
            one_of(&id, book.objects.get(&id), states)?;
        }
        let names = books.iter().flat_map(|b| &b.intents).chain(&book.intents);
        for intent in names.copied().collect::<BTreeSet<_>>() {
            let states = books.iter().map(|book| book.intents.get(&intent));
            one_of(&intent, book.intents.get(&intent), states)?;
        }
        for (page, (block, entry)) in &book.pages {
            let mut bytes = [0; SECTOR];
            let read = store.read_block(*block, *page, entry.checksum, &mut bytes);
            read.map_err(|fault| format!("{page:?} in {block:?}, {entry:?}: {fault:?}"))?;
            if bytes[..] != bytes_of(*page, entry.version) {
                return Err(format!(
                    "{page:?} in {block:?} has other bytes than {entry:?}"
                ));
            }
            self.tally.bytes += SECTOR as u64;
        }
        Ok(())
    }
}

/// Whether no copy of a page may be found: where one of the states, oldest first, was clean and a
/// newer version, which may have failed, was to take its place. Any of them may have been durable.
fn may_be_dropped<'a>(states: impl Iterator<Item = &'a (BlockId, MapEntry)> + Clone) -> bool {
    let mut clean = states
        .clone()
        .enumerate()
        .filter(|(_, (_, entry))| !entry.dirty);
    let superseded = |at: usize, version: u64| {
        let mut later = states.clone().skip(at + 1);
        later.any(|(_, entry)| entry.version > version)
    };
    clean.any(|(at, (_, entry))| superseded(at, entry.version))
}

/// Whether `found` is one of `states`.
fn one_of<'a, T: 'a + PartialEq + std::fmt::Debug>(
    of: &impl std::fmt::Debug,
    found: Option<&T>,
    states: impl Iterator<Item = Option<&'a T>> + Clone,
) -> Result<(), String> {
    match states.clone().any(|state| state == found) {
        true => Ok(()),
        false => {
            let states: Vec<_> = states.collect();
            Err(format!("of {of:?} found {found:?}, none of {states:?}"))
        }
    }
}

fn write_block(store: &Store, block: BlockId, bytes: &[u8]) -> Result<(), String> {
    let written = store.write_block(block, bytes);
    written.map_err(|fault| format!("a block cannot be written: {fault:?}"))
}

/// Writes blocks, and the batch that names them, without a sync.
fn later_writes(store: &Store, (batch, blocks): &Next) -> Result<(), String> {
    for (block, bytes) in blocks {
        write_block(store, *block, bytes)?;
    }
    store.append(batch).map_err(|e| e.to_string())
}

fn id_of(change: &ObjectChange) -> ObjectId {
    match change {
        ObjectChange::Put(object) => object.id,
        ObjectChange::Gone(id) => *id,
    }
}

fn object(id: ObjectId, length: u64) -> SavedObject {
    SavedObject {
        id,
        identity: Identity {
            device: 1,
            inode: u64::from(id.0),
            generation: 1,
        },
        stamp: Stamp {
            length,
            mtime_ns: length as i64,
            ctime_ns: 7,
        },
        // Its words differ from those of another length: a record of two halves shows.
        name: format!("{length} ").repeat(length as usize % 120),
        fate: Fate::default(),
        promised: length.is_multiple_of(2),
    }
}

fn bytes_of(page: PageId, version: u64) -> Vec<u8> {
    pattern(version, page.index * SECTOR as u64, SECTOR)
}

fn lock(captured: &Captured) -> std::sync::MutexGuard<'_, Vec<World>> {
    captured.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens what is there, or makes a cache of `length` bytes.
fn open(world: &World, length: Option<u64>, planted: Mutant) -> Result<Store, String> {
    let options = StoreOptions {
        clock: world.clock().shared(),
        planted,
        page_size: SECTOR as u32,
        size: length,
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        ..StoreOptions::default()
    };
    let store = Store::with_device(world.device(FLASH), "flash", &options);
    store.map_err(|error| format!("the cache does not open: {error}"))
}
