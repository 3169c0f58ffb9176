//! Base files of a run, and what each must hold.

use crate::draw::Draw;
use crate::model::{FileModel, pattern};
use crate::setup::{Setup, spec_of};
use crate::world::{BARE_DEVICE, FileId, World};
use std::sync::Arc;
use thermocline::{Engine, Identity, Object, Request};
use thermocline_core::{HintSet, hint_type};

/// Device number of base files.
pub(crate) const BASE_DEVICE: u64 = BARE_DEVICE + 1;

/// A base file and what it must hold.
pub(crate) struct Tracked {
    pub(crate) file: FileId,
    pub(crate) identity: Identity,
    /// Its names so far: the engine may know it by an older one.
    pub(crate) names: Vec<String>,
    /// While an engine has it open.
    pub(crate) object: Option<Arc<Object>>,
    pub(crate) model: FileModel,
    /// A sync was acknowledged: a power failure leaves it there, under one of its names.
    pub(crate) promised: bool,
}

impl Tracked {
    /// A file as it is found, durable.
    pub(crate) fn holding(
        file: FileId,
        identity: Identity,
        name: String,
        model: FileModel,
    ) -> Self {
        Self {
            file,
            identity,
            names: vec![name],
            object: None,
            model,
            promised: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }
}

/// A new base file with some pages, durable.
pub(crate) fn new_file(world: &World, draw: &mut Draw, at: usize, setup: &Setup) -> Tracked {
    let identity = identity(at, 1);
    let name = setup.name_of(at, 0);
    let file = world.create(&name, identity);
    let length = draw.below(17 * u64::from(setup.page_size));
    let bytes = pattern(at as u64, 0, length as usize);
    world.put(file, &bytes);
    let mut tracked = Tracked::holding(file, identity, name, setup.model(&bytes));
    tracked.promised = true;
    tracked
}

/// The inode number of what is in place `at`, in its so many-th life.
pub(crate) fn identity(at: usize, generation: u64) -> Identity {
    Identity {
        device: BASE_DEVICE,
        inode: 10 + at as u64,
        generation,
    }
}

pub(crate) fn open(
    engine: &Engine,
    world: &World,
    tracked: &Tracked,
) -> Result<Arc<Object>, String> {
    let spec = spec_of(world, tracked.file, tracked.name(), tracked.identity);
    engine
        .open_object(spec)
        .map_err(|e| format!("{} does not open: {e}", tracked.name()))
}

/// Every byte of an object, read page by page in a fixed order.
pub(crate) fn contents(
    engine: &Engine,
    world: &World,
    file: FileId,
    object: &Object,
) -> Result<Vec<u8>, String> {
    let length = world.stamp(file).map_or(0, |stamp| stamp.length) as usize;
    let mut bytes = vec![0xEE; length];
    for (at, part) in (0u64..).zip(bytes.chunks_mut(1024)) {
        let read = engine.read(&request(object, at * 1024, 1), part);
        match read {
            Ok(read) if read == part.len() => {}
            Ok(read) => return Err(format!("{read} of {} bytes at page {at}", part.len())),
            Err(error) => return Err(format!("page {at} cannot be read after a crash: {error}")),
        }
    }
    Ok(bytes)
}

pub(crate) fn request(object: &Object, offset: u64, hint: u32) -> Request<'_> {
    Request {
        object,
        offset,
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, hint),
        client: 1,
    }
}
