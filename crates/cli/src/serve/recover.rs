//! `recover`: what a cache holds goes to base, without a mount.
//!
//! The cache is opened twice when pages are to be given up: first to learn which files were changed
//! behind it (nothing is given up then), and, when those are the ones that were named and their
//! pages are saved, to write back the others and give these up.

use crate::explain::unread;
use crate::failure::{Code, Failure, Outcome, reason};
use crate::serve::claiming::ClaimArgs;
use crate::serve::claiming::{self, Claiming};
use crate::serve::salvage;
use crate::serve::signals::outlive_file_limit;
use crate::show::pace::Pace;
use crate::units::show_count;
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thermocline::claim::{Fence, Fenced};
use thermocline::classify::Rules;
use thermocline::device::Device;
use thermocline::store::{Report, check_path};
use thermocline::{
    Discard, Engine, EngineConfig, Error, FlushProgress, LostPage, MapLoad, Refused, Store,
    StoreOptions,
};
use thermocline_mount::{DeviceFactory, Fs, file_devices};

/// Shown at the end of `recover --help`.
pub(crate) const HELP: &str = "\
After a crash of a mount in write-back, base lacks what only flash holds. The next mount recovers
that by itself; this command does it without a mount, so that base can be used alone:
  thermocline recover /bulk/pgdata /ssd/tier
It refuses when a file was changed or removed since: pages from before the change do not belong
into it. The refusal names those files and their pages. Best put the files back as they were.
--discard=FILE gives up the pages of that file, if it was changed, and keeps it as it is now;
without a name, those of all such files. --save-to DIR writes the pages before to DIR/FILE.pages
(with _ for /), at the offsets they have in FILE, so that a person can still look for what is
missing:
  thermocline recover /bulk/pgdata /ssd/tier --save-to /root/pages --discard=base/5/16384";

/// `thermocline recover`.
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// The base directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) base: PathBuf,
    /// Its cache file or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) cache: PathBuf,
    /// Give up dirty pages of a file that was changed or removed; may be given several times.
    /// Without a file: of all such files, and what cannot be read
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub(crate) discard: Vec<String>,
    /// Write pages that are to be given up to files in DIR first
    #[arg(long, value_name = "DIR", requires = "discard", value_hint = ValueHint::DirPath)]
    pub(crate) save_to: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
}

/// Lost pages listed at most.
const LISTED: usize = 20;

/// What came of it.
#[derive(Debug, Default)]
struct Recovery {
    written: u64,
    given_up: u64,
    /// Pages saved before they were given up.
    saved: u64,
    seconds: f64,
}

/// One recovery.
struct Recovering<'a> {
    args: &'a RecoverArgs,
    base: PathBuf,
    page_size: u32,
    claiming: Claiming,
}

/// Writes back and closes the cache: base is whole afterwards, the cache clean and warm.
pub(crate) fn run(args: &RecoverArgs) -> Outcome {
    let started = Instant::now();
    outlive_file_limit()?;
    let base = directory(&args.base)?;
    let found = check_path(&args.cache, false, &mut |_| ()).map_err(unread)?;
    sound_enough(args, &found)?;
    let leave = claiming::leave(&args.claim, false);
    let claiming = Claiming::take(&base, Some(&args.cache), leave)?;
    let recovering = Recovering {
        args,
        base,
        page_size: found.page_size,
        claiming,
    };
    let recovered = recovering.run();
    let released = recovering.claiming.release();
    let mut recovery = recovered?;
    released?;
    recovery.seconds = started.elapsed().as_secs_f64();
    print(args, &recovery);
    Ok(())
}

fn print(args: &RecoverArgs, recovery: &Recovery) {
    let Recovery {
        written,
        given_up,
        saved,
        seconds,
    } = recovery;
    if args.json {
        let shown = serde_json::json!({
            "written": written, "given_up": given_up, "saved": saved, "seconds": seconds,
        });
        println!("{shown}");
        return;
    }
    if let Some(directory) = &args.save_to {
        let (saved, directory) = (show_count(*saved), directory.display());
        println!("{saved} pages saved in {directory} before they were given up");
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
    let wrong = |what: &str| {
        Failure::usage(format!("base {} {what}", base.display()))
            .advise("the directory that was mounted with this cache")
    };
    match base.canonicalize() {
        Ok(found) if found.is_dir() => Ok(found),
        Ok(_) => Err(wrong("is no directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(wrong("does not exist")),
        Err(error) => Err(Failure::io("open base directory", base, &error)),
    }
}

/// Where the map is damaged, dirty pages may be unknown: base would get old bytes beside new ones.
fn sound_enough(args: &RecoverArgs, found: &Report) -> Outcome {
    let shown = args.cache.display();
    if found.is_sound() || gives_up(args) == Discard::All {
        return Ok(());
    }
    let message =
        format!("the map of cache {shown} is damaged: dirty pages may be missing from it");
    Err(Failure::new(Code::Cache, message).advise(format!(
        "thermocline check {shown} lists the damage; --discard writes back what can be read"
    )))
}

/// Whose pages the command line gives up.
fn gives_up(args: &RecoverArgs) -> Discard {
    let named = || args.discard.iter().filter(|name| !name.is_empty()).cloned();
    match args.discard.as_slice() {
        [] => Discard::Nothing,
        all if all.iter().any(String::is_empty) => Discard::All,
        _ => Discard::Files(named().collect()),
    }
}

impl Recovering<'_> {
    fn run(&self) -> Result<Recovery, Failure> {
        let refused = match self.attempt(&Discard::Nothing)? {
            Ok(done) => {
                self.are_refused(&[])?;
                return Ok(done);
            }
            Err(refused) => refused,
        };
        let files = match &refused {
            Error::ChangedBehind { files, .. } => files.as_slice(),
            _ => return Err(refused.into()),
        };
        if self.args.discard.is_empty() {
            return Err(refused.into());
        }
        self.are_refused(files)?;
        let discard = gives_up(self.args);
        let kept = files.iter().any(|file| !discard.covers(&file.name));
        // Where others stand in the way nothing is given up, so there is nothing to save.
        let saved = match &self.args.save_to {
            Some(directory) if !kept => {
                salvage::save(&self.store()?, files, directory, self.page_size)?
            }
            _ => 0,
        };
        let done = self.attempt(&discard)??;
        Ok(Recovery { saved, ..done })
    }

    /// Refuses names of files that were not changed: a name that is written wrong gives up nothing.
    fn are_refused(&self, files: &[Refused]) -> Outcome {
        let named = self.args.discard.iter().filter(|name| !name.is_empty());
        let mut unknown = named.filter(|name| files.iter().all(|file| &file.name != *name));
        let Some(name) = unknown.next() else {
            return Ok(());
        };
        let message = match files.is_empty() {
            true => {
                format!("all files are as they were, and {name} too: nothing is to be given up")
            }
            false => format!("{name} is none of the files that were changed"),
        };
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        Err(Failure::usage(message).advise(match files.is_empty() {
            true => "the same command without --discard".to_string(),
            false => format!("one of: {}", names.join(", ")),
        }))
    }

    fn store(&self) -> Result<Store, Failure> {
        let options = StoreOptions {
            page_size: self.page_size,
            size: None,
            base: self.claiming.identity(),
            format: false,
            deadline: None,
            load: MapLoad::Before,
            ..StoreOptions::default()
        };
        let mut store = Store::open(&self.args.cache, &options)?;
        self.claiming.check_store(&mut store)?;
        Ok(store)
    }

    /// Writes back with an engine that writes through, so that nothing becomes dirty any more. The
    /// inner error is a refusal: base stays claimed then, for another attempt.
    fn attempt(&self, discard: &Discard) -> Result<Result<Recovery, Error>, Failure> {
        let config = EngineConfig {
            page_size: self.page_size,
            policy: "lru".into(),
            write_back: false,
            ..EngineConfig::default()
        };
        let store = self.store()?;
        let engine = Engine::start(self.claiming.with_clock(config)?, Some(store))?;
        self.claiming.hold(&engine, Path::new(""))?;
        let dirty = engine.dirty_pages();
        let written = self.write_back(&engine, discard);
        let closed = engine.stop().map_err(Failure::from);
        if let Ok(Err(refused)) = written {
            return Ok(Err(refused));
        }
        let ended = self.claiming.end(&engine, &closed);
        let written = written??;
        closed.and(ended)?;
        Ok(Ok(Recovery {
            written,
            given_up: dirty - written.min(dirty),
            ..Recovery::default()
        }))
    }

    /// Gives dirty pages to their files; how many there were.
    fn write_back(
        &self,
        engine: &Arc<Engine>,
        discard: &Discard,
    ) -> Result<Result<u64, Error>, Failure> {
        let files = Fs::new(
            self.base.clone(),
            Arc::clone(engine),
            fenced_devices(self.claiming.fence()),
            Rules::default(),
            None,
        );
        let files = files.map_err(|e| Failure::io("use base directory", &self.base, &e))?;
        match files.adopt_dirty(discard.clone()) {
            Ok(()) => {}
            Err(refused @ Error::ChangedBehind { .. }) => return Ok(Err(refused)),
            Err(error) => return Err(error.into()),
        }
        flush(engine).map(Ok)
    }
}

/// Base files that are not touched once base belongs to somebody else.
fn fenced_devices(fence: Arc<dyn Fence>) -> DeviceFactory {
    let plain = file_devices();
    Arc::new(move |file, known| {
        let device = Fenced::new(plain(file, known)?, Arc::clone(&fence));
        Ok(Arc::new(device) as Arc<dyn Device>)
    })
}

fn flush(engine: &Engine) -> Result<u64, Failure> {
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
        "all other files are whole on base; the cache keeps these pages: mend base (full, or a bad \
         disk) and do this again, or restore their files from a backup",
    )
}
