//! Random batches, a crash at any I/O, and what may be there afterwards.

use super::*;
use proptest::prelude::*;

/// What a page is: its version, none when it is not on flash.
type State = Option<u64>;

/// A caller that keeps to the rules, and what it may find after a crash.
struct Caller {
    random: Random,
    /// Where each page is now.
    pages: BTreeMap<u64, (u32, u64)>,
    /// What may be found of a page: what it was at the last sync and all it has been since.
    allowed: BTreeMap<u64, Vec<State>>,
    intents: BTreeMap<u64, Vec<bool>>,
    free: Vec<u32>,
    /// Free once what empties them is durable.
    freed: Vec<u32>,
    next_version: u64,
    /// Pages of the batch at hand are written together with it.
    together: bool,
    news: Vec<(u32, Vec<u8>)>,
}

const PAGES: u64 = 40;
const REGIONS: u64 = 6;

/// Pages that the batch at hand names.
fn named(news: &[(u32, Vec<u8>)]) -> Vec<NewPage<'_>> {
    let mut all = Vec::new();
    for (block, bytes) in news {
        let block = BlockId(*block);
        all.push(NewPage {
            block,
            bytes,
            named: true,
            old: None,
        });
    }
    all
}

impl Caller {
    fn new(seed: u64, blocks: u32) -> Self {
        Self {
            random: Random(seed),
            pages: BTreeMap::new(),
            allowed: BTreeMap::new(),
            intents: BTreeMap::new(),
            free: (0..blocks).collect(),
            freed: Vec::new(),
            next_version: 1,
            together: false,
            news: Vec::new(),
        }
    }

    fn synced(&mut self) {
        let last = |states: &mut Vec<State>| {
            states.drain(..states.len() - 1);
        };
        self.allowed.values_mut().for_each(last);
        self.intents.values_mut().for_each(|states| {
            states.drain(..states.len() - 1);
        });
        self.free.append(&mut self.freed);
    }

    fn is(&mut self, index: u64, state: State) {
        self.allowed
            .entry(index)
            .or_insert_with(|| vec![None])
            .push(state);
    }

    fn take_free(&mut self) -> Option<u32> {
        let at = self.random.below(self.free.len().max(1) as u64) as usize;
        (at < self.free.len()).then(|| self.free.swap_remove(at))
    }

    /// A batch; `None` when the power went.
    fn batch(&mut self, store: &Store) -> Option<Batch> {
        let mut changes = Vec::new();
        for _ in 0..1 + self.random.below(12) {
            let index = self.random.below(PAGES);
            match self.random.below(10) {
                0..6 => self.write(store, index, &mut changes)?,
                6..8 => {
                    if let Some((block, _)) = self.pages.remove(&index) {
                        changes.push(set(block, None));
                        self.freed.push(block);
                        self.is(index, None);
                    }
                }
                _ => {
                    let region = self.random.below(REGIONS);
                    let on = self.random.chance(50);
                    let states = self.intents.entry(region).or_insert_with(|| vec![false]);
                    states.push(on);
                    let object = ObjectId(1);
                    let intent = Intent { object, region };
                    changes.push(MapChange::Intend { intent, on });
                }
            }
        }
        Some(with_object(changes))
    }

    fn write(&mut self, store: &Store, index: u64, changes: &mut Vec<MapChange>) -> Option<()> {
        let Some(block) = self.take_free() else {
            return Some(());
        };
        let version = self.next_version;
        self.next_version += 1;
        let page = PageId::new(ObjectId(1), index);
        self.is(index, Some(version));
        let bytes = content(page, version);
        match self.together {
            true => self.news.push((block, bytes)),
            false => store.write_block(BlockId(block), &bytes).ok()?,
        }
        changes.push(set(block, Some(entry(page, version))));
        if let Some((old, _)) = self.pages.insert(index, (block, version)) {
            changes.push(set(old, None));
            self.freed.push(old);
        }
        Some(())
    }

    /// Works until the power goes.
    fn work(&mut self, store: &Store) {
        loop {
            let how = self.random.below(10);
            self.together = how < 3;
            let Some(batch) = self.batch(store) else {
                return;
            };
            let news = std::mem::take(&mut self.news);
            let done = match how {
                0..3 => store.commit_pages(&batch, &named(&news)).map(|written| {
                    assert!(written.iter().all(Result::is_ok), "nothing fails alone");
                    self.synced();
                }),
                3..5 => store.commit(&batch).map(|()| self.synced()),
                5..9 => store.append(&batch),
                _ => store
                    .append(&batch)
                    .and_then(|()| store.checkpoint())
                    .map(|()| self.synced()),
            };
            if done.is_err() {
                return;
            }
            if self.random.chance(3) {
                match store.commit(&Batch::default()) {
                    Ok(()) => self.synced(),
                    Err(_) => return,
                }
            }
        }
    }

    /// Compares what was found with what may be there; goes on from it.
    fn compare(&mut self, store: &Store, recovered: &Recovered) {
        assert!(
            recovered.lost.iter().all(|l| !l.is_damage()),
            "{:?}",
            recovered.lost
        );
        let mut found = BTreeMap::new();
        let mut buf = vec![0; PAGE];
        for (block, entry) in &recovered.entries {
            let read = store.read_block(*block, entry.page, entry.checksum, &mut buf);
            assert_eq!(read, Ok(()), "what counts can be read");
            assert_eq!(buf, content(entry.page, entry.version));
            assert!(entry.version < recovered.next_version);
            assert!(
                found
                    .insert(entry.page.index, (block.0, entry.version))
                    .is_none()
            );
        }
        for (index, states) in &self.allowed {
            let state = found.get(index).map(|&(_, version)| version);
            assert!(
                states.contains(&state),
                "page {index} is {state:?}, not one of {states:?}"
            );
        }
        let on: BTreeSet<u64> = recovered.intents.iter().map(|i| i.region).collect();
        for (region, states) in &self.intents {
            assert!(states.contains(&on.contains(region)), "region {region}");
        }
        self.go_on(found, &on, store.blocks());
    }

    fn go_on(&mut self, found: BTreeMap<u64, (u32, u64)>, on: &BTreeSet<u64>, blocks: u32) {
        let used: BTreeSet<u32> = found.values().map(|&(block, _)| block).collect();
        let state = |i: u64| found.get(&i).map(|&(_, version)| version);
        self.allowed = (0..PAGES).map(|i| (i, vec![state(i)])).collect();
        self.intents = (0..REGIONS).map(|r| (r, vec![on.contains(&r)])).collect();
        self.free = (0..blocks).filter(|b| !used.contains(b)).collect();
        self.freed.clear();
        self.pages = found;
    }
}

/// Rounds of work, crash, recovery and a crash during that.
fn run(seed: u64, size: u64) {
    let disk = Disk::default();
    let mut store = create(disk.clone(), size);
    let mut caller = Caller::new(seed, store.blocks());
    let mut random = Random(seed ^ 0xABCD);
    let mut disk = disk;
    for _ in 0..6 {
        disk.fail_after(random.below(120));
        caller.work(&store);
        disk = disk.crashed(&mut random);
        let (found, first) = reopen(disk.clone());
        caller.compare(&found, &first);
        // The second crash, in recovery.
        disk.fail_after(random.below(8));
        let opened = found.mark_open().is_ok();
        disk = disk.crashed(&mut random);
        let (found, second) = reopen(disk.clone());
        assert_eq!(first.entries, second.entries, "opened: {opened}");
        assert_eq!(first.objects, second.objects);
        assert_eq!(first.intents, second.intents);
        assert_eq!(first.next_version, second.next_version);
        found.mark_open().unwrap();
        store = found;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn crashes(seed: u64, size in 40u64..300) {
        run(seed, size << 10);
    }
}
