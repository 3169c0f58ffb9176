//! `pin` and `unpin`: which files of a running mount stay on flash.

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::serve::client;
use crate::serve::relations::RelationArgs;
use crate::serve::reshape::{change, report};
use crate::serve::reshaping::Change;
use crate::show::report::Report;
use crate::show::table::Table;
use crate::units::{show_bytes, show_count};
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};
use thermocline::{ObjectStats, Pins};

/// Shown at the end of `pin --help`.
pub(crate) const HELP: &str = "\
A pinned file is read from base once, now, at no more than half of the time; from then on its pages
are on flash and never evicted. As many slots as it has pages are set aside; a tenth of the cache
stays with the policy. What the file grows by later is cached like any other, until it is pinned
again or the mount starts anew. Dirty pages are written back before; the policy forgets what it
learned, as with `resize`. Lasts as long as the mount: for more, name the paths in the configuration
(tier.pin). An interrupted command leaves the mount at work; `unpin`, `resize` and `replace` need
not wait for a load, which goes on after them.
  thermocline pin /srv/pgdata base/5/16384 'base/5/16384.*'
  thermocline pin /srv/pgdata
Tables and indexes of PostgreSQL by name; each index is a relation of its own:
  psql -d shop -At -c 'SELECT path, relation FROM thermocline_relations()' |
    thermocline pin /srv/pgdata --relations - --relation public.orders --relation orders_pkey
Without the extension: SELECT pg_relation_filepath(oid), oid::regclass FROM pg_class WHERE
pg_relation_filenode(oid) IS NOT NULL. A table of SQLite is a part of a file: pin the file.";

/// Shown at the end of `unpin --help`.
pub(crate) const UNPIN_HELP: &str = "\
The pages stay on flash until the policy evicts them. What the configuration pins (tier.pin) is
pinned again at the next mount. `thermocline pin MOUNTPOINT` lists what is pinned.
  thermocline unpin /srv/pgdata base/5/16384 'base/5/16384.*'
  thermocline unpin /srv/pgdata --all";

/// `thermocline pin`.
#[derive(Args, Debug)]
pub(crate) struct PinArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Files, relative to the base, beside those pinned already: * and ? stand for parts of a name,
    /// ** for any number of directories
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) relations: RelationArgs,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `thermocline unpin`.
#[derive(Args, Debug)]
pub(crate) struct UnpinArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Paths as they were pinned
    #[arg(value_name = "PATH", required_unless_present_any = ["all", "names"])]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) relations: RelationArgs,
    /// All of them
    #[arg(long, conflicts_with_all = ["paths", "names"])]
    pub(crate) all: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Pins files beside those that are, or lists them.
pub(crate) fn pin(args: &PinArgs) -> Outcome {
    let mut paths = pinned(&args.mountpoint)?;
    let relations = args.relations.paths(&args.mountpoint)?;
    if args.paths.is_empty() && relations.is_empty() {
        return list(&args.mountpoint, paths, args.json);
    }
    for path in args.paths.iter().chain(&relations) {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    set(&args.mountpoint, paths, args.json)
}

/// Lets go of files.
pub(crate) fn unpin(args: &UnpinArgs) -> Outcome {
    let mut paths = pinned(&args.mountpoint)?;
    let relations = args.relations.paths(&args.mountpoint)?;
    let named = || args.paths.iter().chain(&relations);
    // A relation may have been pinned before it grew a second file.
    for path in named().filter(|path| !path.ends_with(".*") || args.paths.contains(path)) {
        if !paths.contains(path) {
            let known = match paths.is_empty() {
                true => "nothing is pinned".to_string(),
                false => format!("pinned are {}", paths.join(", ")),
            };
            return Err(Failure::usage(format!("\"{path}\" is not pinned")).advise(known));
        }
    }
    paths.retain(|path| !args.all && !named().any(|other| other == path));
    set(&args.mountpoint, paths, args.json)
}

/// The patterns in force.
fn pinned(mountpoint: &Path) -> Result<Vec<String>, Failure> {
    let text = client::read(mountpoint, "config")?;
    let config = Config::parse(&text, "the settings in effect")?;
    Ok(config.tier.pin)
}

fn set(mountpoint: &Path, paths: Vec<String>, json: bool) -> Outcome {
    change(mountpoint, &Change::Pin(paths))?;
    // Another command may have come in between.
    let paths = pinned(mountpoint)?;
    list(mountpoint, paths.clone(), json)?;
    if !json && !paths.is_empty() {
        println!("\nuntil the mount ends; for longer, in the configuration under [tier]:");
        // A TOML array of strings takes JSON's form.
        println!("pin = {}", serde_json::json!(paths));
    }
    Ok(())
}

fn list(mountpoint: &Path, paths: Vec<String>, json: bool) -> Outcome {
    let report = report(mountpoint)?;
    let pins = Pins { paths, pages: 0 };
    let objects = report.stats.objects.iter();
    let files: Vec<&ObjectStats> = objects.filter(|file| pins.matches(&file.name)).collect();
    match json {
        true => println!("{}", as_json(&report, &pins, &files)),
        false => print!("{}", as_text(&report, &pins, &files)),
    }
    Ok(())
}

fn as_json(report: &Report, pins: &Pins, files: &[&ObjectStats]) -> serde_json::Value {
    let tier = report.stats.tier.clone().unwrap_or_default();
    let file = |file: &&ObjectStats| {
        let (name, pages, on_flash) = (&file.name, file.pages, file.resident);
        serde_json::json!({"name": name, "pages": pages, "on_flash": on_flash})
    };
    serde_json::json!({
        "pin": pins.paths,
        "slots": tier.pinned_slots,
        "pages": tier.pinned,
        "page_reads": tier.pinned_hits,
        "files": files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn as_text(report: &Report, pins: &Pins, files: &[&ObjectStats]) -> String {
    let tier = report.stats.tier.clone().unwrap_or_default();
    if pins.paths.is_empty() {
        return "nothing is pinned\n".into();
    }
    let mut table = Table::new(&["file", "pages", "on flash"]);
    for file in files {
        let (pages, on_flash) = (file.pages, u64::from(file.resident));
        table.row([file.name.clone(), show_count(pages), show_count(on_flash)]);
    }
    let bytes = u64::from(tier.pinned) * u64::from(report.stats.page_size);
    let (used, slots) = (
        show_count(tier.pinned.into()),
        show_count(tier.pinned_slots.into()),
    );
    let left = show_count((tier.slots - tier.pinned_slots).into());
    format!(
        "{table}\n{used} of {slots} slots set aside are in use ({}); the policy has {left} slots\n",
        show_bytes(bytes)
    )
}
