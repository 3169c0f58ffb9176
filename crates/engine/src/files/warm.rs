//! Warming: what a list says was hot comes to flash from base, in the background.
//!
//! The list is a wish ([`super::hot_list`]). Each page is read from base as by a reader who holds
//! it and takes a free slot past the policy's admission, of which the policy is told
//! ([`thermocline_core::hierarchy::Warming`]). So a file that changed since is read as it is now;
//! pages past its end are passed over; what is dirty, in DRAM, on flash or being written is left
//! alone; a file that loses its last name is let go; and when no slot is free warming is over.
//!
//! Pages of one worth of one file are read in base order, as many with one I/O as follow one
//! another up to 1 MiB, over gaps that cost base less than another request would
//! ([`thermocline_core::Costs::bridge_pages`]). What lies in a gap is read in vain: so the list has
//! pages that lie near each other together, whatever each is worth.
//!
//! One request is under way at a time, and no longer than the share of the time that
//! [`WarmPace::share`] says: when base is busy its requests take longer, and so do the rests
//! between. [`WarmPace::requests_per_s`] is a limit besides, for volumes that sell requests.

use super::hot_list::{Hot, HotList, PAGES_MAX, is_name};
use crate::device::AlignedBuf;
use crate::engine::Engine;
use crate::files::object::Object;
use crate::request::RUN_BYTES_MAX;
use crate::state::page_of;
use std::collections::BTreeMap;
use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thermocline_core::tier::HeatCounts;
use thermocline_core::{ObjectId, PageId, Warming};

/// Slots looked at under one hold of the engine's lock.
const SLOTS_AT_ONCE: u32 = 16 << 10;
/// Pages looked at under one hold of it.
const PAGES_AT_ONCE: u32 = 4096;
/// The longest part of a rest: whoever ends a mount waits for it.
const NAP: Duration = Duration::from_secs(1);

/// How much of base warming may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmPace {
    /// Share of the time in which a request of it may be under way, above 0 to 1.
    pub share: f64,
    /// Requests a second at most; 0 for no limit.
    pub requests_per_s: f64,
}

impl Default for WarmPace {
    fn default() -> Self {
        Self {
            share: 0.5,
            requests_per_s: 0.0,
        }
    }
}

impl WarmPace {
    /// How long to rest after a request that took `took`.
    fn rest(&self, took: Duration) -> Duration {
        assert!(self.share > 0.0 && self.share <= 1.0, "a share of the time");
        assert!(self.requests_per_s >= 0.0, "a limit, or none");
        let share = took.as_secs_f64() * (1.0 / self.share - 1.0);
        let limit = match self.requests_per_s > 0.0 {
            true => 1.0 / self.requests_per_s - took.as_secs_f64(),
            false => 0.0,
        };
        Duration::from_secs_f64(share.max(limit).max(0.0))
    }
}

/// What warming did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Pages of the list that were looked at.
    pub seen: u64,
    /// Those that came to flash.
    pub came: u64,
    /// Requests to base.
    pub requests: u64,
    /// Bytes they were for.
    pub bytes: u64,
}

/// How warming from a part of a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmEnd {
    /// All of it was looked at.
    Done,
    /// Every slot is taken.
    Full,
    /// The tier is off.
    Off,
    /// The caller did not want to go on.
    Stopped,
}

/// What a look for pages to read found.
enum Found {
    /// These are started; there is at least one.
    Run(Vec<u64>),
    /// Nothing yet, but there may be more.
    Nothing,
    /// Nothing can be started now.
    Wait,
    End(WarmEnd),
}

impl Engine {
    /// What is hot on flash now, for [`Engine::warm`] of another day. Reads counted before count
    /// half from now on. O(slots) in steps, and O(pages listed) memory.
    #[must_use]
    pub fn hot_list(&self) -> HotList {
        let mut counts: HeatCounts = [0; 256];
        for range in self.slot_steps() {
            self.inner()
                .hierarchy
                .slots()
                .count_heat(range, &mut counts);
        }
        // The least that is listed, and how many of those that were read that often.
        let (mut least, mut of_least) = (0, PAGES_MAX as u64);
        for (heat, count) in counts.iter().enumerate().rev() {
            least = heat as u8;
            if *count >= of_least || heat == 0 {
                break;
            }
            of_least -= count;
        }
        let names = self.names_by_id();
        let mut sorted: Vec<String> = names.values().cloned().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let file = |name: &String| sorted.binary_search(name).ok().map(|at| at as u32);
        let files: BTreeMap<ObjectId, u32> = names
            .iter()
            .filter_map(|(id, name)| file(name).map(|file| (*id, file)))
            .collect();
        let mut pages = Vec::new();
        for range in self.slot_steps() {
            let hot = self.inner().hierarchy.take_hot(range, least);
            let listed = |(page, heat): (PageId, u8)| {
                if heat == least {
                    of_least = of_least.checked_sub(1)?;
                }
                let file = *files.get(&page.object)?;
                let (page, reads) = (page.index, heat);
                Some(Hot { file, page, reads })
            };
            pages.extend(hot.into_iter().filter_map(listed));
        }
        HotList::of(self.config.page_size, &sorted, pages)
    }

    fn slot_steps(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let all = self.inner().hierarchy.slots().all();
        let step = SLOTS_AT_ONCE as usize;
        (0..all).step_by(step).map(move |from| {
            let to = from.saturating_add(SLOTS_AT_ONCE).min(all);
            from..to
        })
    }

    /// Files that are known and can be in a list.
    fn names_by_id(&self) -> BTreeMap<ObjectId, String> {
        let closed = self.registry().to_save();
        let closed = closed.into_iter().map(|object| (object.id, object.name));
        let mut names: BTreeMap<ObjectId, String> = closed.collect();
        let open = self.all_objects();
        names.extend(open.iter().map(|object| (object.id, object.name())));
        names.retain(|_, name| is_name(name));
        names
    }

    /// Brings those of the pages of `object` in `ranges`, which ascend, that are neither on flash
    /// nor in DRAM to flash, as long as slots are free, in the background's pace. `tally` is added
    /// to; `go_on` is told it after each request, and false ends it. The policy is told, not asked.
    ///
    /// # Errors
    /// Those of base; the pages they were for are passed over.
    pub fn warm(
        &self,
        object: &Object,
        ranges: impl Iterator<Item = Range<u64>>,
        pace: &WarmPace,
        tally: &mut Warmed,
        mut go_on: impl FnMut(&Warmed) -> bool,
    ) -> io::Result<WarmEnd> {
        let object = self.still_open(object)?;
        let size = self.page_size() as u64;
        // What is cut meanwhile is found so when it is started.
        let pages = object.length().div_ceil(size);
        let within = ranges.flat_map(|range| range.start..range.end.min(pages));
        let mut wanted = within.peekable();
        loop {
            if !go_on(tally) {
                return Ok(WarmEnd::Stopped);
            }
            match self.start_run(object, &mut wanted, tally) {
                Found::End(end) => return Ok(end),
                Found::Nothing => {}
                Found::Wait => drop(self.wait_for_room(self.inner())),
                Found::Run(run) => {
                    let started = Instant::now();
                    let read = self.warm_run(object, &run, tally);
                    let rest = pace.rest(started.elapsed());
                    // A base that fails is not asked faster.
                    if !self.config.inline && !nap(rest, || go_on(tally)) {
                        return Ok(WarmEnd::Stopped);
                    }
                    read?;
                }
            }
        }
    }

    /// Starts the base reads of pages to be read with one I/O.
    fn start_run(
        &self,
        object: &Object,
        wanted: &mut Peekable<impl Iterator<Item = u64>>,
        tally: &mut Warmed,
    ) -> Found {
        let size = self.page_size();
        let most = (RUN_BYTES_MAX / size).max(1) as u64;
        let widest = self.config.bridge_pages();
        let mut run: Vec<u64> = Vec::new();
        // What nobody can name any more is not held for longer, nor are slots taken for it.
        if !self.is_paged(object) || object.unlinked.load(Ordering::Acquire) {
            return Found::End(WarmEnd::Done);
        }
        let mut inner = self.inner();
        // A run that finds little room in the write buffer would be a short one.
        if inner.hierarchy.staged() > self.config.write_buffer_pages / 4 {
            return Found::Wait;
        }
        for _ in 0..PAGES_AT_ONCE {
            let Some(&index) = wanted.peek() else {
                return match run.is_empty() {
                    true => Found::End(WarmEnd::Done),
                    false => Found::Run(run),
                };
            };
            let bounds = run.first().copied().zip(run.last().copied());
            let near =
                |(first, last): (u64, u64)| index - first < most && index - last - 1 <= widest;
            if !bounds.is_none_or(near) {
                return Found::Run(run);
            }
            let past = index >= object.length().div_ceil(size as u64);
            let page = page_of(object, index);
            let started = match past {
                true => Warming::There,
                false => inner.hierarchy.start_warm(page, run.len() as u32),
            };
            let ends = match started {
                Warming::Started => {
                    debug_assert!(run.last().is_none_or(|last| *last < index));
                    run.push(index);
                    None
                }
                Warming::There | Warming::Busy => None,
                Warming::Later => Some(Found::Wait),
                Warming::Full => Some(Found::End(WarmEnd::Full)),
                Warming::Off => Some(Found::End(WarmEnd::Off)),
            };
            match ends {
                None => {
                    tally.seen += 1;
                    wanted.next();
                }
                Some(_) if !run.is_empty() => return Found::Run(run),
                Some(found) => return found,
            }
        }
        match run.is_empty() {
            true => Found::Nothing,
            false => Found::Run(run),
        }
    }

    /// Reads the pages of `run`, whose reads are started, with what lies between, and ends them.
    fn warm_run(&self, object: &Object, run: &[u64], tally: &mut Warmed) -> io::Result<()> {
        let size = self.page_size();
        assert!(!run.is_empty(), "a run has pages");
        let (first, last) = (run[0], run[run.len() - 1]);
        assert!(last >= first && ((last - first) as usize) < (RUN_BYTES_MAX / size).max(1));
        let mut bytes = AlignedBuf::new((last - first + 1) as usize * size);
        let read = object.base.read_at(&mut bytes, first * size as u64);
        if let Ok(read) = read {
            debug_assert!(read <= bytes.len(), "no more than was asked");
            bytes[read..].fill(0);
        }
        let mut inner = self.inner();
        for index in run {
            let from = (index - first) as usize * size;
            let page = page_of(object, *index);
            let bytes = &bytes[from..from + size];
            let came = self.decide(&mut inner, bytes, |hierarchy, out| {
                hierarchy.end_warm(page, read.is_ok(), out)
            });
            tally.came += u64::from(came);
        }
        drop(inner);
        assert!(tally.came <= tally.seen, "what came was looked at");
        tally.requests += 1;
        tally.bytes += bytes.len() as u64;
        read.map(|_| ())
    }
}

/// Rests as long as `go_on` says so, which is asked after every [`NAP`].
fn nap(rest: Duration, mut go_on: impl FnMut() -> bool) -> bool {
    let mut left = rest;
    while left > NAP {
        std::thread::sleep(NAP);
        left -= NAP;
        if !go_on() {
            return false;
        }
    }
    std::thread::sleep(left);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_with_what_base_takes() {
        let ms = Duration::from_millis;
        let half = WarmPace::default();
        assert_eq!(half.rest(ms(3)), ms(3));
        let whole = WarmPace { share: 1.0, ..half };
        assert_eq!(whole.rest(ms(3)), ms(0));
        let few = WarmPace {
            requests_per_s: 100.0,
            ..whole
        };
        assert_eq!(few.rest(ms(3)), ms(7));
        assert_eq!(few.rest(ms(30)), ms(0));
        // However long: a share is a promise to base.
        assert_eq!(half.rest(ms(9000)), ms(9000));
        let seldom = WarmPace {
            requests_per_s: 0.1,
            ..whole
        };
        assert_eq!(seldom.rest(ms(0)), ms(10_000));
    }

    #[test]
    fn a_long_rest_ends_when_the_mount_does() {
        let mut asked = 0;
        let rested = nap(Duration::from_secs(3600), || {
            asked += 1;
            false
        });
        assert!(!rested && asked == 1);
    }
}
