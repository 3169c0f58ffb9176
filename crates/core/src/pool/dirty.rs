//! Which frames are dirty, and since when.
//!
//! # Invariants
//! 1. The list holds exactly the frames with a time, the oldest at its back.
//! 2. From back to front the times never fall.
//!
//! Memory: 16 bytes a frame.

use crate::list::{Links, List};
use crate::page::FrameId;

/// No time: the frame is clean.
const CLEAN: u64 = u64::MAX;

/// See the module text.
#[derive(Debug)]
pub(super) struct Dirty {
    links: Links,
    by_age: List,
    since: Vec<u64>,
}

impl Dirty {
    /// `frames` clean frames.
    pub(super) fn new(frames: u32) -> Self {
        Self {
            links: Links::new(frames),
            by_age: List::default(),
            since: vec![CLEAN; frames as usize],
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.by_age.len()
    }

    /// When `frame` became dirty.
    pub(super) fn since(&self, frame: FrameId) -> Option<u64> {
        let since = self.since[frame.at()];
        (since != CLEAN).then_some(since)
    }

    /// The clean `frame` is dirty since `now`. A time before the newest one counts as the newest.
    pub(super) fn insert(&mut self, frame: FrameId, now: u64) {
        assert_eq!(self.since(frame), None, "a frame is listed once");
        let newest = self.by_age.front().map_or(0, |id| self.since[id as usize]);
        assert_ne!(newest, CLEAN, "invariant 1");
        self.since[frame.at()] = now.clamp(newest, CLEAN - 1);
        self.by_age.push_front(&mut self.links, frame.0);
    }

    /// The dirty `frame` is clean.
    pub(super) fn remove(&mut self, frame: FrameId) {
        assert!(self.since(frame).is_some(), "only dirty frames are listed");
        self.since[frame.at()] = CLEAN;
        self.by_age.remove(&mut self.links, frame.0);
    }

    /// Dirty frames, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = FrameId> {
        self.by_age.iter_from_back(&self.links).map(FrameId)
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.bytes() + self.since.capacity() * size_of::<u64>()
    }

    /// Panics unless the numbered invariants hold. O(frames).
    pub(super) fn assert_invariants(&self) {
        let dirty = self.since.iter().filter(|since| **since != CLEAN).count();
        assert_eq!(dirty, self.len() as usize, "invariant 1");
        let times: Vec<u64> = self.iter().map(|frame| self.since[frame.at()]).collect();
        assert!(!times.contains(&CLEAN), "invariant 1");
        assert!(times.is_sorted(), "invariant 2");
    }
}
