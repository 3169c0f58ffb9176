//! How an engine comes to serve the base of a world, and ends: with a claim, as a mount does it.

use crate::setup::{FLASH, Setup, spec_of};
use crate::world::World;
use std::path::Path;
use std::sync::Arc;
use thermocline::claim::{Claim, Host, Refusal};
use thermocline::store::stamp_on;
use thermocline::{BaseIdentity, Engine, Error, Identity, Opener, Refused, Store};

/// An engine, and the claim of base that it serves under.
pub struct Served {
    /// The engine.
    pub engine: Arc<Engine>,
    /// Its claim.
    pub claim: Arc<Claim>,
}

impl Served {
    /// The end, as of a mount: base is marked as whole when it has everything.
    ///
    /// # Errors
    /// The engine's, and why the mark could not be written.
    pub fn stop(&self) -> Result<(), Ended> {
        let stopped = self.engine.stop();
        let whole = self.claim.is_whole_after(&self.engine, stopped.is_ok());
        let ended = self.claim.end(whole);
        stopped.map_err(Ended::Engine)?;
        ended.map_err(Ended::Claim)
    }
}

/// Why an end did not go well.
#[derive(Debug)]
pub enum Ended {
    /// The engine's error.
    Engine(Error),
    /// Base's mark could not be written.
    Claim(Refusal),
}

/// Why there is no engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStart {
    /// Dirty pages wait for files that were changed or are gone.
    Refused {
        /// Which, and what happened to each.
        files: Vec<Refused>,
        /// Dirty pages on flash, of all files.
        dirty: u64,
    },
    /// Base waits for the pages of another cache; its id.
    OtherCache(u64),
    /// The cache has pages that base does not wait for.
    NotAwaited,
    /// Anything else: never right.
    Failed(String),
}

impl NoStart {
    fn by(refusal: Refusal) -> Self {
        match refusal {
            Refusal::OtherCache { mark, .. } => Self::OtherCache(mark.cache_id()),
            Refusal::NotAwaited { .. } => Self::NotAwaited,
            other => Self::Failed(format!("base cannot be claimed: {other}")),
        }
    }
}

impl Setup {
    /// Starts an engine on the flash device of `world`, and lets it open the files that dirty
    /// pages wait for, or with `discard` gives those pages up.
    ///
    /// # Errors
    /// What the engine or base's mark said.
    pub fn start(&self, world: &World, discard: bool) -> Result<Arc<Engine>, NoStart> {
        self.serve(world, discard).map(|served| served.engine)
    }

    /// As [`Setup::start`], with files as `opener` finds them.
    ///
    /// # Errors
    /// As [`Setup::start`].
    pub fn start_with(
        &self,
        world: &World,
        discard: bool,
        opener: &Opener<'_>,
    ) -> Result<Arc<Engine>, NoStart> {
        let served = self.serve_with(world, discard, opener);
        served.map(|served| served.engine)
    }

    /// As [`Setup::start`], with the claim.
    ///
    /// # Errors
    /// As [`Setup::start`].
    pub fn serve(&self, world: &World, discard: bool) -> Result<Served, NoStart> {
        let opener = |identity: &Identity, _: &str, _: bool| {
            let found = world.find(identity);
            Ok(found.map(|(file, name)| spec_of(world, file, &name, *identity)))
        };
        self.serve_with(world, discard, &opener)
    }

    fn serve_with(
        &self,
        world: &World,
        discard: bool,
        opener: &Opener<'_>,
    ) -> Result<Served, NoStart> {
        let base = world.sync_base();
        base.map_err(|error| NoStart::Failed(format!("base cannot be synced: {error}")))?;
        let claim = Arc::new(self.claim(world, "here").map_err(NoStart::by)?);
        let served = self.claimed(world, claim)?;
        match served.engine.adopt(opener, discard) {
            Ok(()) => Ok(served),
            Err(Error::ChangedBehind { files, .. }) => {
                let dirty = served.engine.dirty_pages();
                // As a mount does; the cache must stay as it was found.
                let stopped = served.stop();
                stopped.map_err(|e| NoStart::Failed(format!("refused, and no stop: {e:?}")))?;
                Err(NoStart::Refused { files, dirty })
            }
            Err(error) => {
                // As a mount does, too.
                let stopped = served.stop().err();
                let stopped = stopped.map_or(String::new(), |e| format!("; no stop: {e:?}"));
                let why = format!("files are not adopted: {error}{stopped}");
                Err(NoStart::Failed(why))
            }
        }
    }

    /// The base of `world` as the host of this name finds it.
    ///
    /// # Errors
    /// When its mark cannot be read.
    pub fn claim(&self, world: &World, host: &str) -> Result<Claim, Refusal> {
        let identity = BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        };
        let host = Host {
            name: host.into(),
            ..Host::default()
        };
        let clock = world.clock().shared();
        Claim::simulated(world.keep(), identity, host, clock, self.planted)
    }

    /// An engine that serves under `claim`, from its admission on. No file was opened yet.
    ///
    /// # Errors
    /// As [`Setup::start`].
    pub fn claimed(&self, world: &World, claim: Arc<Claim>) -> Result<Served, NoStart> {
        let device = world.device(FLASH);
        let stamp = || match self.bare {
            true => Ok(None),
            false => stamp_on(&*device, "flash"),
        };
        claim.admit(&stamp, &self.leave).map_err(NoStart::by)?;
        let store = match self.bare {
            true => None,
            false => Some(self.open(world, &claim)?),
        };
        // The clock of base is the world's, and what is there is only written again.
        if world.mark().is_none() {
            claim.probe().map_err(NoStart::by)?;
        }
        let engine = Engine::start(self.config(world), store);
        let engine =
            engine.map_err(|e| NoStart::Failed(format!("the engine does not start: {e}")))?;
        let held = claim.serve(&engine, Path::new("/mounted"));
        held.map_err(NoStart::by)?;
        Ok(Served { engine, claim })
    }

    fn open(&self, world: &World, claim: &Claim) -> Result<Store, NoStart> {
        let found = world.stamp(FLASH).is_some_and(|stamp| stamp.length > 0);
        let options = self.store_options(world, found, claim.identity());
        let store = Store::with_device(world.device(FLASH), "flash", &options);
        let failed = |e| NoStart::Failed(format!("the cache does not open: {e}"));
        let mut store = store.map_err(failed)?;
        let checked = claim.check_store(&mut store, &self.leave);
        checked.map_err(NoStart::by).map(|_notes| store)
    }
}
