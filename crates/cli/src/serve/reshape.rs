//! `resize` and `replace`: the cache of a running mount becomes longer, shorter or another one.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::client;
use crate::serve::follow::{PagesBar, Standing, follow};
use crate::serve::preflight;
use crate::serve::reshaping::{Change, NOT_LOADED};
use crate::show::report::Report;
use crate::units::{Size, show_count};
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

/// Shown at the end of `resize --help`.
pub(crate) const RESIZE_HELP: &str = "\
The mount goes on serving. Before a cache becomes shorter, what is dirty in it is written back; then
writes wait until the last of that is done, and reads of pages on flash for a moment longer. Pages
in the part that goes are forgotten, the others stay; the policy forgets what it learned. The size
is kept in the cache. --size of `mount` is for making the cache: once it is there, leave it out. A
different number is refused (exit code 3), so remove it from unit files before you resize. An
interrupted command leaves the change at work; one that fails leaves the size there was.
  thermocline resize /srv/pgdata --size 20GiB";

/// `thermocline resize`.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Size of the cache from now on: 8GiB, 512M, 65536p
    #[arg(long)]
    pub(crate) size: Size,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shown at the end of `replace --help`.
pub(crate) const REPLACE_HELP: &str = "\
For a device that is to be taken out, or has failed. The mount goes on serving: what is dirty is
written back to base, then the new cache takes over, cold. The old one is left empty; where its
device does not work any more, the command waits a few seconds so that it cannot be believed should
it come back. Refused while the old device alone has pages and does not give them back:
`thermocline status` lists those. Name the new cache in later mounts.
  thermocline replace /srv/pgdata --cache /newssd/tier --size 20GiB";

/// `thermocline replace`.
#[derive(Args, Debug)]
pub(crate) struct ReplaceArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// The new cache file or block device
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cache: PathBuf,
    /// Its size [default: that of the old one, or the whole block device]
    #[arg(long)]
    pub(crate) size: Option<Size>,
    /// Overwrite what the file or device holds; refused while that is pages that a base does not
    /// have
    #[arg(long)]
    pub(crate) format: bool,
    /// With --format: give up the pages in it that a base does not have, which must be N
    #[arg(long, value_name = "N", requires = "format")]
    pub(crate) discard_dirty: Option<u64>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes the cache of a mount longer or shorter.
pub(crate) fn resize(args: &ResizeArgs) -> Outcome {
    let change = Change::Resize(args.size);
    let seconds = self::change(&args.mountpoint, &change)?;
    say(&report(&args.mountpoint)?, seconds, args.json);
    Ok(())
}

/// Puts another cache in the place of the one a mount has.
pub(crate) fn replace(args: &ReplaceArgs) -> Outcome {
    let facts = report(&args.mountpoint)?.mount;
    let path = preflight::check_cache(&args.cache, &facts.base, &facts.mountpoint)?;
    let change = Change::Replace {
        size: args.size,
        format: args.format,
        discard: args.discard_dirty,
        path,
    };
    let seconds = self::change(&args.mountpoint, &change)?;
    say(&report(&args.mountpoint)?, seconds, args.json);
    if !args.json {
        let old = facts.cache.display();
        println!("{old} holds nothing any more, and can be removed");
    }
    Ok(())
}

pub(crate) fn report(mountpoint: &Path) -> Result<Report, Failure> {
    let text = client::read(mountpoint, "stats.json")?;
    serde_json::from_str(&text).map_err(|_| client::not_understood(&text))
}

/// Starts a change and follows it, one of pins until their pages are loaded; how many seconds it
/// took.
pub(super) fn change(mountpoint: &Path, change: &Change) -> Result<f64, Failure> {
    let pins = matches!(change, Change::Pin(_));
    let before = client::read(mountpoint, "cache")?;
    if Standing::parse(&before).is_some_and(|now| now.state == "running") {
        let file = client::file(mountpoint, "cache")?;
        let message = "another command is changing this cache";
        return Err(Failure::new(Code::Failure, message).advise(format!(
            "again once {} says that it is done",
            file.display()
        )));
    }
    client::write(mountpoint, "cache", &change.to_command())?;
    let mut bar = PagesBar::new(if pins { "pages" } else { "dirty pages" });
    let ended = follow(mountpoint, "cache", |now| {
        bar.note(now);
        match now.state {
            "running" => None,
            "loading" if pins => None,
            "done" if pins => Some(loaded(now)),
            "done" | "loading" => Some(Ok(())),
            _ => Some(Err(failure(now))),
        }
    });
    let seconds = bar.end();
    ended??;
    Ok(seconds)
}

/// What came of loading the files that are pinned now.
fn loaded(now: &Standing<'_>) -> Outcome {
    let lines = &mut now.more.iter();
    let Some(why) = lines.find_map(|line| line.strip_prefix(NOT_LOADED)) else {
        return Ok(());
    };
    let message = format!("the pins hold, but not all of their pages were loaded: {why}");
    let again = "the same once more when that was mended, or `unpin`";
    Err(Failure::new(Code::Failure, message).advise(again))
}

/// The failure that a change ended with: its exit code, what was wrong, and advice.
fn failure(now: &Standing<'_>) -> Failure {
    let number = now.state.strip_prefix("failed ");
    let number = number.and_then(|number| number.parse().ok());
    let message = *now.more.first().unwrap_or(&"it ended early");
    let failure = Failure::new(Code::from_number(number.unwrap_or(1)), message);
    match now.more.get(1) {
        None | Some(&"") => failure,
        Some(advice) => failure.advise(*advice),
    }
}

fn say(report: &Report, seconds: f64, json: bool) {
    let tier = report.stats.tier.clone().unwrap_or_default();
    let cache = report.mount.cache.display().to_string();
    if json {
        let (bytes, slots, resident) = (tier.bytes, tier.slots, tier.resident);
        let shown = serde_json::json!({
            "cache": cache, "bytes": bytes, "slots": slots, "resident": resident,
            "seconds": seconds,
        });
        println!("{shown}");
        return;
    }
    let (bytes, slots) = (show_count(tier.bytes), show_count(tier.slots.into()));
    let resident = show_count(tier.resident.into());
    println!("{cache} serves with {bytes} bytes, {slots} slots, {resident} pages; {seconds:.1} s");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_that_holds_says_what_was_not_loaded() {
        let said = |text| loaded(&Standing::parse(text).expect("parses"));
        said("dirty 0 of 3\nstate done\n").expect("all of it");
        let text = "dirty 2 of 3\nstate done\nnot loaded: cannot read x\n";
        let failure = said(text).expect_err("not all of it");
        assert!(failure.message.ends_with(": cannot read x"), "{failure}");
    }

    #[test]
    fn a_failure_is_told_with_its_code_and_advice() {
        let text = "dirty 0 of 0\nstate failed 3\n/x is in use\nanother --cache\n";
        let failure = failure(&Standing::parse(text).expect("parses"));
        assert_eq!(failure.code, Code::Cache);
        assert_eq!(
            failure.to_string(),
            "error: /x is in use\n  try: another --cache"
        );
    }
}
