//! The end of a mount on a signal.
//!
//! States: *serving* → *asked* (a signal came, and files are open: the end is tried again until
//! the last one is closed) → *over* (unmounted, by us or by anybody else). A second signal
//! detaches: the mountpoint is free at once, and the process ends when the last file is closed.
//!
//! Invariant: only the mount of this process is ever unmounted. Another one may stand on the same
//! directory as soon as ours has gone, so its device number is compared first.

use crate::serve::log;
use crate::serve::umount;
use crate::units::show_count;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thermocline::Engine;
use thermocline_mount::{Place, Seen};

/// Time between two tries, when no file is open.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// The same, when something else than open files stands in the way for long.
const TRY_AT_LEAST_EVERY: Duration = Duration::from_secs(2);

/// How the end of one mount stands.
pub(crate) struct Ending {
    place: Place,
    engine: Arc<Engine>,
    asked: AtomicBool,
    over: AtomicBool,
}

impl Ending {
    /// That of the mount at `place`.
    pub(crate) fn new(place: &Place, engine: Arc<Engine>) -> Self {
        Self {
            place: place.clone(),
            engine,
            asked: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Whether a signal asked for the end, and open files stand in its way.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether requests have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Says that requests have ended.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether the mount is still there, be it under another one.
    pub(crate) fn is_mounted(&self) -> bool {
        !self.is_over() && self.place.seen() != Seen::Gone
    }

    /// Whether it is what is seen at its mountpoint.
    pub(crate) fn is_on_top(&self) -> bool {
        !self.is_over() && self.place.is_on_top()
    }

    /// What a signal does, with `earlier` ones before it. `open` tells how many files are open.
    pub(crate) fn signal(
        self: &Arc<Self>,
        earlier: u32,
        open: impl Fn() -> usize + Send + 'static,
    ) {
        if earlier > 0 {
            log::line("asked again: detaching; the end comes when the last file is closed");
            self.detach(true);
            return;
        }
        log::line("asked to end");
        if self.detach(false) {
            return;
        }
        self.asked.store(true, Ordering::Release);
        let dirty = show_count(self.engine.dirty_pages());
        log::line(&format!(
            "waits for open files; then {dirty} pages are to be written back; a second signal \
             detaches at once"
        ));
        let ending = Arc::clone(self);
        let waiting = std::thread::Builder::new().name("ending".into());
        let waiting = waiting.spawn(move || ending.keep_trying(open));
        if let Err(error) = waiting {
            log::line(&format!(
                "cannot wait for open files: {error}; signal again"
            ));
        }
    }

    fn keep_trying(&self, open: impl Fn() -> usize) {
        let mut wait = TRY_EVERY;
        while self.is_mounted() {
            std::thread::sleep(wait);
            // A handle that is open is sure to stand in the way: nothing to try.
            if open() > 0 {
                wait = TRY_EVERY;
            } else if self.place.is_on_top() {
                match umount::detach(self.place.mountpoint(), false) {
                    Ok(()) => return log::line("the last file was closed"),
                    // A directory that somebody stands in: tried less and less often.
                    Err(_) => wait = (wait * 2).min(TRY_AT_LEAST_EVERY),
                }
            }
        }
    }

    /// Whether the mount is gone now.
    fn detach(&self, lazy: bool) -> bool {
        if !self.is_mounted() {
            return true;
        }
        let path = self.place.mountpoint();
        if !self.place.is_on_top() {
            let path = path.display();
            log::line(&format!(
                "still serving: not seen at {path}; unmount what is mounted over it, or where \
                 it is bound to"
            ));
            return false;
        }
        let detached = umount::detach(path, lazy);
        if let Err(failure) = &detached {
            log::line(&format!("still serving: {}", failure.message));
        }
        detached.is_ok()
    }
}
