//! `recover`: what a cache holds goes to base, without a mount.

use crate::args::RecoverArgs;
use crate::claiming::{self, Claiming};
use crate::failure::{Code, Failure, Outcome, reason};
use crate::pace::Pace;
use crate::units::show_count;
use indicatif::{ProgressBar, ProgressStyle};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thermocline::claim::{Fence, Fenced};
use thermocline::classify::Rules;
use thermocline::device::Device;
use thermocline::store::{Report, check_path};
use thermocline::{Engine, EngineConfig, FlushProgress, LostPage, Store, StoreOptions};
use thermocline_mount::{DeviceFactory, Fs, file_devices};

/// Lost pages listed at most.
const LISTED: usize = 20;

/// What came of it.
#[derive(Debug)]
struct Recovery {
    written: u64,
    given_up: u64,
    seconds: f64,
}

/// Writes back and closes the cache: base is whole afterwards, the cache clean and warm.
pub(crate) fn run(args: &RecoverArgs) -> Outcome {
    let started = Instant::now();
    let base = directory(&args.base)?;
    let found = check_path(&args.cache, false, &mut |_| ())?;
    sound_enough(args, &found)?;
    let leave = claiming::leave(&args.claim, false);
    let claiming = Claiming::take(&base, Some(&args.cache), leave)?;
    let engine = start(args, &claiming, &found)?;
    claiming.hold(&engine, Path::new(""))?;
    let dirty = engine.dirty_pages();
    let written = write_back(&engine, &base, &claiming, args.discard);
    let closed = engine.stop().map_err(Failure::from);
    let ended = claiming.end(&engine, &closed);
    let kept = written?;
    closed.and(ended)?;
    let recovery = Recovery {
        written: kept,
        given_up: dirty - kept.min(dirty),
        seconds: started.elapsed().as_secs_f64(),
    };
    print(args, &recovery);
    Ok(())
}

fn print(args: &RecoverArgs, recovery: &Recovery) {
    let Recovery {
        written,
        given_up,
        seconds,
    } = recovery;
    if args.json {
        let shown = serde_json::json!({
            "written": written, "given_up": given_up, "seconds": seconds,
        });
        println!("{shown}");
        return;
    }
    println!(
        "{} pages written back to {} in {seconds:.1} s, {} given up; \
         base is whole without the cache",
        show_count(*written),
        args.base.display(),
        show_count(*given_up)
    );
}

fn directory(base: &Path) -> Result<PathBuf, Failure> {
    let found = base.canonicalize();
    let found = found.map_err(|e| Failure::io("open base directory", base, &e))?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(
            Failure::usage(format!("base {} is no directory", base.display()))
                .advise("the directory that was mounted with this cache"),
        ),
    }
}

/// Where the map is damaged, dirty pages may be unknown: base would get old bytes beside new ones.
fn sound_enough(args: &RecoverArgs, found: &Report) -> Outcome {
    let shown = args.cache.display();
    if found.is_sound() || args.discard {
        return Ok(());
    }
    let message =
        format!("the map of cache {shown} is damaged: dirty pages may be missing from it");
    Err(Failure::new(Code::Cache, message).advise(format!(
        "thermocline check {shown} lists the damage; --discard writes back what can be read"
    )))
}

/// An engine over the cache that writes through, so that nothing becomes dirty any more.
fn start(args: &RecoverArgs, claiming: &Claiming, found: &Report) -> Result<Arc<Engine>, Failure> {
    let options = StoreOptions {
        page_size: found.page_size,
        size: None,
        base: claiming.identity(),
        format: false,
        deadline: None,
    };
    let store = Store::open(&args.cache, &options)?;
    claiming.check_store(&store)?;
    let config = EngineConfig {
        page_size: found.page_size,
        policy: "lru".into(),
        write_back: false,
        ..EngineConfig::default()
    };
    Ok(Engine::start(claiming.with_clock(config)?, Some(store))?)
}

/// Base files that are not touched once base belongs to somebody else.
fn fenced_devices(fence: Arc<dyn Fence>) -> DeviceFactory {
    let plain = file_devices();
    Arc::new(move |file, known| {
        let device = Fenced::new(plain(file, known)?, Arc::clone(&fence));
        Ok(Arc::new(device) as Arc<dyn Device>)
    })
}

/// Gives dirty pages to their files; how many there were.
fn write_back(
    engine: &Arc<Engine>,
    base: &Path,
    claiming: &Claiming,
    discard: bool,
) -> Result<u64, Failure> {
    let failed = |e: &io::Error| Failure::io("use base directory", base, e);
    let files = Fs::new(
        base.to_path_buf(),
        Arc::clone(engine),
        fenced_devices(claiming.fence()),
        Rules::default(),
        None,
    )
    .map_err(|e| failed(&e))?;
    files.adopt_dirty(discard)?;
    let dirty = engine.dirty_pages();
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} pages, {msg}");
    let bar =
        ProgressBar::new(dirty).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let started = Instant::now();
    let mut pace = Pace::default();
    let flushed = engine.flush(|FlushProgress { total, left }| {
        pace.note(started.elapsed(), left);
        bar.set_position(total - left);
        bar.set_message(pace.describe());
        true
    });
    bar.finish_and_clear();
    match flushed {
        Ok(()) => Ok(dirty),
        Err(error) => Err(not_all(engine, &error)),
    }
}

fn not_all(engine: &Engine, error: &io::Error) -> Failure {
    let lost = engine
        .stats()
        .tier
        .map(|tier| tier.lost)
        .unwrap_or_default();
    for LostPage { object, offset } in lost.iter().take(LISTED) {
        eprintln!("lost: {object} at byte {offset}");
    }
    if lost.len() > LISTED {
        eprintln!("and {} more", show_count((lost.len() - LISTED) as u64));
    }
    let left = show_count(engine.dirty_pages());
    let message = format!("{left} pages could not be written back: {}", reason(error));
    Failure::new(Code::Failure, message).advise(
        "everything else is on base; the cache keeps these, restore their files from a backup",
    )
}
