//! The claim of a base, from the command line to the end of a mount or of `recover`.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::log;
use crate::units::show_count;
use clap::Args;
use std::path::Path;
use std::sync::Arc;
use thermocline::claim::{self, Claim, Clocks, Fence, Leave, State};
use thermocline::store::{CacheStamp, stamp_of};
use thermocline::{BaseIdentity, Engine, EngineConfig, Error, Store};

/// What is allowed where the mark of a base stands in the way.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ClaimArgs {
    /// Fence another host that serves this base, or did when it crashed, and wait until it has
    /// stopped
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Give up what another cache holds, by its id: every write that base does not have yet is
    /// lost. For a cache that is lost for good
    #[arg(long, value_name = "CACHE-ID")]
    pub(crate) abandon_dirty: Option<CacheId>,
    /// This is the base that the cache belongs to, restored or mounted in another way
    #[arg(long)]
    pub(crate) same_base: bool,
}

/// The id of a cache, as messages show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheId(pub(crate) u64);

impl std::str::FromStr for CacheId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = u64::from_str_radix(text, 16);
        let wrong = |_| "an id has 16 hexadecimal digits, as the message showed it".to_string();
        id.map(Self).map_err(wrong)
    }
}

/// A base that is ours to serve.
pub(crate) struct Claiming {
    claim: Arc<Claim>,
    leave: Leave,
}

/// What the command line allows.
pub(crate) fn leave(args: &ClaimArgs, format: bool) -> Leave {
    Leave {
        take_over: args.take_over,
        abandon: args.abandon_dirty.map(|id| id.0),
        same_base: args.same_base,
        format,
    }
}

impl Claiming {
    /// Claims `base` for use with the cache at `cache`.
    pub(crate) fn take(base: &Path, cache: Option<&Path>, leave: Leave) -> Result<Self, Failure> {
        claim::mounts::check(base)?;
        let claim = Claim::take(base)?;
        let stamp = || cache.map_or(Ok(None), |cache| stamp(cache, leave.format));
        let seconds = claim::PATIENCE.as_secs();
        if claim.is_half_taken() {
            log::line(&format!(
                "an earlier take-over did not end: whoever served before has {seconds} s to notice"
            ));
        } else if leave.take_over {
            log::line(&format!(
                "taking over: should another host serve base, it has {seconds} s to notice"
            ));
        }
        for note in claim.admit(&stamp, &leave)? {
            log::line(&note);
        }
        claim.when_lost(|reason| {
            log::line(&format!(
                "fenced: {reason}; nothing is written or answered any more, unmount"
            ));
        });
        let claim = Arc::new(claim);
        Ok(Self { claim, leave })
    }

    /// Which directory it is.
    pub(crate) fn identity(&self) -> BaseIdentity {
        self.claim.identity()
    }

    /// For the devices of base files.
    pub(crate) fn fence(&self) -> Arc<dyn Fence> {
        Arc::clone(&self.claim) as Arc<dyn Fence>
    }

    /// Refuses a cache file that is not there, and was when base was served last: its file system
    /// may not be mounted, and another one would be made in its place.
    pub(crate) fn check_gone(&self, cache: &Path) -> Outcome {
        if self.claim.cache_path() != Some(cache.display().to_string()) {
            return Ok(());
        }
        let shown = cache.display();
        let message = format!("cache {shown} is not there, and was when base was served last");
        Err(Failure::new(Code::Cache, message).advise(
            "see that the file system of the flash device is mounted; for a new, empty cache say \
             how large it may be with --size",
        ))
    }

    /// Whether base waits for pages of a cache.
    pub(crate) fn is_owed(&self) -> bool {
        self.claim.state() == Some(State::Dirty)
    }

    /// Refuses a cache with pages that base does not wait for. Clean pages are not believed where
    /// base was served without them since, or went back.
    pub(crate) fn check_store(&self, store: &mut Store) -> Outcome {
        for note in self.claim.check_store(store, &self.leave)? {
            log::line(&note);
        }
        Ok(())
    }

    /// `config` with base's clock.
    pub(crate) fn with_clock(&self, config: EngineConfig) -> Result<EngineConfig, Failure> {
        let clocks = self.claim.probe()?;
        if clocks != Clocks::default() {
            log::line(&format!(
                "base stamps files by a clock of {} ms, {:.3} s ahead of ours",
                clocks.granularity.as_millis(),
                clocks.offset_ns as f64 / 1e9
            ));
        }
        Ok(EngineConfig {
            stamp_granularity: clocks.granularity,
            clock_offset_ns: clocks.offset_ns,
            ..config
        })
    }

    /// Marks base as served by `engine` from now on; before its first request. What was held before
    /// with another engine must still be held.
    pub(crate) fn hold(&self, engine: &Engine, mountpoint: &Path) -> Outcome {
        self.claim.holds().map_err(|_| self.lost())?;
        Ok(self.claim.serve(engine, mountpoint)?)
    }

    /// Says that writes may stay off base from now on, or that base has everything again.
    pub(crate) fn switch(&self, engine: &Engine, dirty: bool) -> Outcome {
        // Whatever is to change is of no use to a mount that was taken over.
        self.claim.holds().map_err(|_| self.lost())?;
        Ok(self.claim.follow(engine, dirty)?)
    }

    /// Says that base has everything again, if it has: whether that was so.
    pub(crate) fn settle(&self, engine: &Engine) -> Result<bool, Failure> {
        self.claim.holds().map_err(|_| self.lost())?;
        Ok(self.claim.settle(engine)?)
    }

    /// Begins another opening of the cache, so that older copies of it, and of base, are told.
    pub(crate) fn renew(&self, engine: &Engine) -> Outcome {
        self.claim.holds().map_err(|_| self.lost())?;
        Ok(self.claim.renew(engine)?)
    }

    /// A failure once base belongs to somebody else.
    pub(crate) fn still_ours(&self) -> Outcome {
        self.claim.passes().map_err(|_| self.lost())
    }

    fn lost(&self) -> Failure {
        let why = self.claim.reason();
        let why = why.unwrap_or_else(|| "the mark of base cannot be read".into());
        Failure::new(Code::Failure, format!("fenced: {why}"))
            .advise("use the mount that serves base now; what this one acknowledged is there")
    }

    /// Nobody serves base any more; what it is owed stays as it is. Nothing after [`Self::end`].
    pub(crate) fn release(&self) -> Outcome {
        if self.claim.is_ended() || self.still_ours().is_err() {
            return Ok(());
        }
        Ok(self.claim.end(false)?)
    }

    /// The end: base is whole when it has everything. `stopped` says how the engine ended.
    pub(crate) fn end(&self, engine: &Engine, stopped: &Outcome) -> Outcome {
        if self.still_ours().is_err() {
            return Ok(());
        }
        let whole = self.claim.is_whole_after(engine, stopped.is_ok());
        if !whole {
            log::line(&format!(
                "base stays marked: it is whole only together with the cache ({} pages)",
                show_count(engine.dirty_pages())
            ));
        }
        Ok(self.claim.end(whole)?)
    }
}

/// What the cache file says; nothing where it will be made anew.
fn stamp(cache: &Path, format: bool) -> Result<Option<CacheStamp>, Error> {
    match stamp_of(cache) {
        Err(Error::NotACache { .. } | Error::Version { .. }) if format => Ok(None),
        found => found,
    }
}
