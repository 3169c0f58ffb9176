//! Where an object has bytes that base has not: what `SEEK_DATA` and `SEEK_HOLE` need to know.

use crate::engine::Engine;
use crate::files::object::Object;
use std::ops::Range;
use thermocline_core::{ObjectId, PageId};

/// Pages looked at under one hold of the engine's lock.
const RUN_MAX: usize = 4096;

/// The dirty pages of an object: those in DRAM as they were when this was made, those on flash as
/// they are when asked. A page that went to base in between may still be called dirty; one that
/// base did not have at the beginning, and has not been given, is never left out. Whoever asks
/// base afterwards has therefore seen everything.
pub struct DirtyPages<'a> {
    engine: &'a Engine,
    id: ObjectId,
    /// Page indices in DRAM, ascending.
    frames: Vec<u64>,
}

impl Engine {
    /// Whether somebody reads or writes page `index` of an object, the tier itself included: a
    /// write of it may have to wait.
    #[doc(hidden)]
    #[must_use]
    pub fn is_busy(&self, object: &Object, index: u64) -> bool {
        let page = PageId::new(object.id, index);
        self.inner().hierarchy.is_busy(page)
    }

    /// The dirty pages of an object. Without dirty pages in DRAM the cost is that of a look-up.
    #[doc(hidden)]
    #[must_use]
    pub fn dirty_of(&self, object: &Object) -> DirtyPages<'_> {
        let id = object.id;
        let mut frames = Vec::new();
        let inner = self.inner();
        // Every page made dirty in DRAM is owed until a sync has written it out.
        let owed = self.is_paged(object) && object.uncommitted.is_due();
        if owed {
            let pool = inner.hierarchy.pool();
            let pages = pool.dirty_of(id).into_iter().filter_map(|f| pool.page(f));
            frames.extend(pages.map(|page| page.index));
        }
        drop(inner);
        assert!(frames.is_sorted(), "dirty frames come in page order");
        DirtyPages {
            engine: self,
            id,
            frames,
        }
    }
}

impl DirtyPages<'_> {
    /// The bytes of the first dirty page that ends behind `offset`, and of those that follow it
    /// without a gap (a part of them, when they are many).
    #[must_use]
    pub fn run_from(&self, offset: u64) -> Option<Range<u64>> {
        let size = self.engine.page_size() as u64;
        let first = offset / size;
        let inner = self.engine.inner();
        let slots = inner.hierarchy.slots();
        let id = self.id;
        let on_flash = |reserve| {
            let found = slots.dirty_from(reserve, PageId::new(id, first));
            // It goes round to the objects before.
            let mine = move |page: &PageId| page.object == id && page.index >= first;
            let pages = found.map(|(page, _)| page).take_while(mine);
            pages.map(|page| page.index).peekable()
        };
        let (mut policy, mut reserve) = (on_flash(false), on_flash(true));
        let from = self.frames.partition_point(|index| *index < first);
        let mut frames = self.frames[from..].iter().copied().peekable();
        let heads = [frames.peek(), policy.peek(), reserve.peek()];
        let begin = *heads.into_iter().flatten().min()?;
        assert!(begin >= first, "page {begin} lies before page {first}");
        let mut end = begin;
        for _ in 0..RUN_MAX {
            let next = |index: &u64| *index == end;
            let found = [
                frames.next_if(next),
                policy.next_if(next),
                reserve.next_if(next),
            ];
            if found.iter().all(Option::is_none) {
                break;
            }
            end += 1;
        }
        assert!(end > begin, "a run has a page");
        Some(begin * size..end * size)
    }
}
