//! A mount at work: cache, engine, recorder, file system; started in this order, ended in reverse.

use crate::config;
use crate::failure::{Code, Failure, Outcome};
use crate::serve::beacon::Beacon;
use crate::serve::caches::Caches;
use crate::serve::claiming::Claiming;
use crate::serve::control::Control;
use crate::serve::ending::Ending;
use crate::serve::flushing::Flushing;
use crate::serve::log;
use crate::serve::mount::Plan;
use crate::serve::pins::Pinned;
use crate::serve::recording::Recording;
use crate::serve::reshaping::Reshaping;
use crate::serve::warming::Warming;
use crate::serve::watch::Watch;
use crate::show::report::MountFacts;
use crate::units::{show_bytes, show_count};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thermocline::claim::{Fence, Fenced};
use thermocline::device::{
    Device, FaultScript, FileDevice, FileOptions, Metered, Meters, ShapedDisk,
};
use thermocline::{Engine, Store};
use thermocline_core::model::{Model, NetworkParameters};
use thermocline_mount::{DeviceFactory, Mount, MountConfig, MountHandle, PlanSource, Transport};

/// A device whose work is counted, with the words for it.
pub(crate) struct Counted {
    /// `base` or `flash`.
    pub(crate) role: &'static str,
    /// What it calls itself.
    pub(crate) label: String,
    /// What it did.
    pub(crate) meters: Arc<Meters>,
}

/// A mount that serves.
pub(crate) struct Serving {
    handle: MountHandle,
    engine: Arc<Engine>,
    flushing: Arc<Flushing>,
    reshaping: Arc<Reshaping>,
    watch: Watch,
    recording: Arc<Recording>,
    warming: Arc<Warming>,
    claiming: Arc<Claiming>,
    ending: Arc<Ending>,
}

impl Serving {
    /// Starts everything `plan` asks for.
    pub(crate) fn start(plan: &Plan) -> Result<Self, Failure> {
        let flash_meters = Arc::new(Meters::default());
        let faults = plan.faults.then(FaultScript::new);
        let cache = plan.places.cache.as_deref();
        let claiming = Claiming::take(&plan.places.base, cache, plan.leave)?;
        let claiming = Arc::new(claiming);
        let caches = Caches {
            page_size: plan.config.page_size()?,
            base: claiming.identity(),
            claiming: Arc::clone(&claiming),
            meters: Arc::clone(&flash_meters),
            faults: faults.clone(),
        };
        let flash = open_cache(plan, &caches)?;
        let mut counted = Vec::new();
        let (devices, base) = base_devices(plan, &claiming.fence());
        counted.push(base);
        if let Some(flash) = &flash {
            counted.push(Counted {
                role: "flash",
                label: flash.label(),
                meters: flash_meters,
            });
        }
        let mut config = claiming.with_clock(plan.config.engine()?)?;
        let (base_path, page_size) = (&plan.places.base, config.page_size);
        let pinned = Pinned::find(base_path, &plan.config.tier.pin, page_size)?;
        config.pins = pinned.pins.clone();
        let engine = Engine::start(config, flash)?;
        note_pins(&engine, &pinned);
        claiming.hold(&engine, &plan.places.mountpoint)?;
        let flushing = Flushing::new(Arc::clone(&engine));
        let recording = Recording::new(Arc::clone(&engine), facts(plan), page_size);
        if let Some(path) = &plan.record {
            recording.since_start(path)?;
        }
        let warming = Warming::new(
            Arc::clone(&engine),
            Arc::clone(&claiming),
            plan.config.warm.clone(),
            base_path,
        )?;
        let reshaping = Reshaping::new(
            Arc::clone(&engine),
            caches,
            Arc::clone(&warming),
            plan.places.base.clone(),
        );
        let told: Arc<OnceLock<Arc<Ending>>> = Arc::default();
        let plans = plan_source(plan);
        let rules = plan.config.rules()?;
        let control = Control::new(
            facts(plan),
            plans.as_ref().map(|plans| plans.path.clone()),
            Arc::clone(&told),
            plan.config.clone(),
            rules.clone(),
            counted,
            faults,
            Arc::clone(&engine),
            Arc::clone(&flushing),
            Arc::clone(&reshaping),
            Arc::clone(&recording),
            Arc::clone(&warming),
        );
        let config = MountConfig {
            base: plan.places.base.clone(),
            mountpoint: plan.places.mountpoint.clone(),
            devices,
            rules,
            control: Some(Arc::new(control)),
            threads: plan.config.mount.threads as usize,
            allow_other: plan.config.mount.allow_other,
            // An emulated base is to be felt by every request.
            passthrough: plan.config.mount.passthrough && plan.emulated.is_none(),
            transport: match plan.config.mount.transport {
                config::Transport::Auto => Transport::Auto,
                config::Transport::Device => Transport::Device,
            },
            discard: false,
            plans,
            mariadb_login: plan.config.mount.mariadb_login.clone(),
            inodes_max: None,
        };
        match Mount::start(config, Arc::clone(&engine)) {
            Ok(handle) => {
                let ending = Ending::new(handle.place(), Arc::clone(&engine));
                let ending = Arc::clone(told.get_or_init(|| Arc::new(ending)));
                let beacon = Beacon::light(facts(plan), &engine, handle.fs(), &ending);
                note_start(&engine);
                reshaping.served(handle.fs(), &beacon);
                flushing.served(&reshaping);
                warming.served(handle.fs());
                let every = Duration::from_secs_f64(plan.config.mount.opening_s);
                let watch = Watch::begin(every, &engine, &reshaping);
                if handle.is_over_io_uring() {
                    log::line("requests come over io_uring");
                }
                Ok(Self {
                    handle,
                    engine,
                    flushing,
                    reshaping,
                    recording,
                    warming,
                    watch,
                    claiming,
                    ending,
                })
            }
            Err(error) => {
                drop(recording.finish());
                // The cache goes back to how it was found: clean, with its map.
                let closed = close(&engine);
                let ended = claiming.end(&engine, &closed);
                closed.and(ended)?;
                Err(error.into())
            }
        }
    }

    /// What a signal does, with how many came before it: see [`Ending`].
    pub(crate) fn unmounter(&self) -> impl Fn(u32) + Send + 'static {
        let ending = Arc::clone(&self.ending);
        let files = Arc::clone(self.handle.fs());
        move |earlier| {
            let files = Arc::clone(&files);
            ending.signal(earlier, move || files.held().1);
        }
    }

    /// Waits for the unmount, then writes back, ends recording and saves the map.
    pub(crate) fn finish(self) -> Outcome {
        let served = self.handle.wait();
        self.ending.set_over();
        log::line("unmounted");
        self.watch.finish();
        self.reshaping.finish();
        let recorded = self.recording.finish();
        self.warming.finish();
        let held = self.claiming.still_ours();
        let flushed = held.and_then(|()| self.flushing.finish());
        let closed = close(&self.engine);
        let ended = self.claiming.end(&self.engine, &closed);
        served?;
        flushed.and(closed).and(ended).and(recorded)
    }
}

/// Says what of the pins cannot be had.
fn note_pins(engine: &Engine, pinned: &Pinned) {
    for pattern in &pinned.unmatched {
        log::line(&format!("pin \"{pattern}\" matches no file"));
    }
    let slots = engine.stats().tier.map_or(0, |tier| tier.pinned_slots);
    if slots < pinned.pins.pages {
        log::line(&format!(
            "pinned files have {} pages; {} of them can be kept",
            show_count(pinned.pins.pages.into()),
            show_count(slots.into())
        ));
    }
}

/// Says what the restart found; of a map that is read meanwhile, when that is over.
fn note_start(engine: &Arc<Engine>) {
    if engine.loading().is_none() {
        return note_found(engine);
    }
    log::line("loading the map: everything is served from base until that is over");
    let engine = Arc::downgrade(engine);
    let said = std::thread::Builder::new().name("tc-note".into());
    let said = said.spawn(move || {
        let mut quarter = 0;
        while let Some(engine) = engine.upgrade() {
            let Some(percent) = engine.loading() else {
                return note_loaded(&engine);
            };
            if percent / 25 > quarter {
                quarter = percent / 25;
                log::line(&format!("loading the map: {percent} %"));
            }
            drop(engine);
            std::thread::sleep(LOOK);
        }
    });
    if let Err(why) = said {
        log::line(&format!("nobody will say when the map was read: {why}"));
    }
}

/// How often it is looked whether the map was read.
const LOOK: Duration = Duration::from_millis(100);

/// Says how the reading of the map ended.
fn note_loaded(engine: &Engine) {
    for lost in engine.lost_in_map() {
        log::line(&format!("lost: {lost}"));
    }
    match engine.tier_state() {
        Ok(()) => note_found(engine),
        Err(why) => log::line(&format!("the tier is off: {why}")),
    }
}

/// Says what the memory allowed made of the policy, where it made something of it.
pub(crate) fn note_policy(engine: &Engine) {
    if let Some(remark) = engine.policy_remark() {
        log::line(&remark);
    }
}

fn note_found(engine: &Engine) {
    note_policy(engine);
    let Some(tier) = engine.stats().tier else {
        return;
    };
    let (restored, dirty) = (
        // Some may have been given up by now, with their files.
        show_count(tier.restored.min(tier.resident).into()),
        show_count(tier.dirty.into()),
    );
    let doubted = match tier.doubted {
        0 => String::new(),
        n => format!("; {} wait to be compared with base", show_count(n.into())),
    };
    log::line(&format!(
        "{restored} pages are warm, {dirty} of them newer than base{doubted}"
    ));
    for page in &tier.lost {
        log::line(&format!("lost: {} at byte {}", page.object, page.offset));
    }
}

/// Says what of a cache could not be read, and refuses it when base may lack what was there:
/// when dirty pages were found, or base waits for some (`awaited`), or there may be some.
fn check_found(store: &Store, plan: &Plan, awaited: bool) -> Outcome {
    let Some(found) = store.recovered() else {
        return Ok(());
    };
    let ended = if found.clean_stop {
        "closed"
    } else {
        "not closed"
    };
    let batches = show_count(found.journal_batches);
    log::line(&format!(
        "cache was {ended}; {batches} batches in the journal"
    ));
    for lost in &found.lost {
        log::line(&format!("lost: {lost}"));
    }
    let damaged = found.lost.iter().any(|lost| lost.is_damage());
    let dirty = found.entries.iter().any(|(_, entry)| entry.dirty);
    if !damaged || !(dirty || awaited || plan.config.tier.write_back) {
        return Ok(());
    }
    let cache = plan.config.tier.cache.display();
    let base = plan.places.base.display();
    let message = format!(
        "the map of cache {cache} is damaged: pages newer than base may be missing from it"
    );
    Err(Failure::new(Code::Cache, message).advise(format!(
        "thermocline check {cache} lists the damage; thermocline recover {base} {cache} --discard \
         writes back what can be read; restore the rest from a backup"
    )))
}

/// Saves the map of the cache.
fn close(engine: &Engine) -> Outcome {
    // A base that was lost meanwhile is noticed before anything is written.
    engine.check_fence()?;
    let tier = engine.tier_state();
    engine.stop()?;
    match tier {
        Ok(()) => log::line("map saved"),
        Err(why) => log::line(&format!("no map to save: {why}")),
    }
    Ok(())
}

/// The cache `plan` names, opened or made.
fn open_cache(plan: &Plan, caches: &Caches) -> Result<Option<Store>, Failure> {
    let Some(cache) = &plan.places.cache else {
        return Ok(None);
    };
    let size = plan.cache_size()?;
    if size.is_none() && !cache.exists() {
        caches.claiming.check_gone(cache)?;
    }
    let mut store = caches.open(cache, size, plan.format, plan.discard_dirty)?;
    check_found(&store, plan, caches.claiming.is_owed())?;
    caches.claiming.check_store(&mut store)?;
    Ok(Some(caches.watched(store)))
}

/// Makes the devices of base files, all counted as one device.
fn base_devices(plan: &Plan, fence: &Arc<dyn Fence>) -> (DeviceFactory, Counted) {
    let fence = Arc::clone(fence);
    let meters = Arc::new(Meters::default());
    let emulated = plan.emulated.clone();
    let disk = emulated.map(|(model, capacity)| ShapedDisk::new(model, capacity));
    let directory = format!("directory {}", plan.places.base.display());
    let label = match &disk {
        Some(disk) => format!("{}{} over {directory}", disk.name(), limits(plan)),
        None => directory,
    };
    let counted = Counted {
        role: "base",
        label,
        meters: Arc::clone(&meters),
    };
    let factory: DeviceFactory = Arc::new(move |file, known| {
        // What the tier leaves alone belongs into the page cache, as without a mount.
        let options = FileOptions {
            direct: known.class.cached,
            ..FileOptions::default()
        };
        let file = FileDevice::from_file(file, known.name, options)?;
        let file = Fenced::new(file, Arc::clone(&fence));
        let device: Arc<dyn Device> = match &disk {
            Some(disk) => Arc::new(Metered::sharing(
                disk.attach(file, known.key),
                Arc::clone(&meters),
            )),
            None => Arc::new(Metered::sharing(file, Arc::clone(&meters))),
        };
        Ok(device)
    });
    (factory, counted)
}

/// The limits of an emulated volume, where they are not those of its model.
fn limits(plan: &Plan) -> String {
    match &plan.emulated {
        Some((Model::Network(network), _))
            if *network.parameters() != NetworkParameters::VOLUME =>
        {
            let parameters = network.parameters();
            let (requests, rate) = (parameters.requests_per_second, parameters.rate);
            format!(" ({requests} requests/s, {}/s)", show_bytes(rate))
        }
        _ => String::new(),
    }
}

/// Where query plans are published.
fn plan_source(plan: &Plan) -> Option<PlanSource> {
    let path = match plan.config.mount.hints.to_str() {
        Some("off") => return None,
        Some("") => {
            let mountpoint = plan.places.mountpoint.as_os_str().as_bytes();
            let mixed = |sum: u64, byte: &u8| thermocline_core::hash::mix(sum, u64::from(*byte));
            let sum = mountpoint.iter().fold(0, mixed);
            PathBuf::from(format!("/dev/shm/thermocline-{sum:016x}"))
        }
        _ => plan.config.mount.hints.clone(),
    };
    // Function (1) with n1 = 2 and n2 = N - 2.
    let range = plan.config.priority.priorities.saturating_sub(4);
    Some(PlanSource { path, range })
}

fn facts(plan: &Plan) -> MountFacts {
    MountFacts {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        base: plan.places.base.clone(),
        mountpoint: plan.places.mountpoint.clone(),
        cache: plan.places.cache.clone().unwrap_or_default(),
        log: plan.log.clone().unwrap_or_default(),
        record: plan.record.clone().unwrap_or_default(),
        asked_to_end: false,
        ..MountFacts::default()
    }
}
