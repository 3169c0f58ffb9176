//! `resize` and `replace`: the cache of a running mount becomes longer, shorter or another one.

use crate::args::{ReplaceArgs, ResizeArgs};
use crate::commands::control;
use crate::failure::{Code, Failure, Outcome};
use crate::pace::Pace;
use crate::preflight;
use crate::report::Report;
use crate::reshaping::Change;
use crate::units::show_count;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often progress is asked for.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Makes the cache of a mount longer or shorter.
pub(crate) fn resize(args: &ResizeArgs) -> Outcome {
    let change = Change::Resize(args.size);
    let seconds = follow(&args.mountpoint, &change)?;
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
    let seconds = follow(&args.mountpoint, &change)?;
    say(&report(&args.mountpoint)?, seconds, args.json);
    if !args.json {
        let old = facts.cache.display();
        println!("{old} holds nothing any more, and can be removed");
    }
    Ok(())
}

pub(crate) fn report(mountpoint: &Path) -> Result<Report, Failure> {
    let text = control::read(mountpoint, "stats.json")?;
    serde_json::from_str(&text).map_err(|_| control::not_understood(&text))
}

/// Starts a change and follows it, one of pins until their pages are loaded; how many seconds it
/// took.
pub(super) fn follow(mountpoint: &Path, change: &Change) -> Result<f64, Failure> {
    let pins = matches!(change, Change::Pin(_));
    let before = control::read(mountpoint, "cache")?;
    if Standing::parse(&before).is_some_and(|now| now.state == "running") {
        let file = control::file(mountpoint, "cache")?;
        let message = "another command is changing this cache";
        return Err(Failure::new(Code::Failure, message).advise(format!(
            "again once {} says that it is done",
            file.display()
        )));
    }
    let started = Instant::now();
    control::write(mountpoint, "cache", &change.to_command())?;
    let bar = ProgressBar::new(0).with_style(style(if pins { "pages" } else { "dirty pages" }));
    let mut pace = Pace::default();
    loop {
        let text = control::read(mountpoint, "cache")?;
        let now = Standing::parse(&text).ok_or_else(|| control::not_understood(&text))?;
        pace.note(started.elapsed(), now.left);
        bar.set_length(now.total);
        bar.set_position(now.total - now.left.min(now.total));
        bar.set_message(pace.describe());
        match now.state {
            "running" => std::thread::sleep(ASK_EVERY),
            "loading" if pins => std::thread::sleep(ASK_EVERY),
            "done" | "loading" => break,
            _ => {
                bar.finish_and_clear();
                return Err(now.failure());
            }
        }
    }
    bar.finish_and_clear();
    Ok(started.elapsed().as_secs_f64())
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

fn style(unit: &str) -> ProgressStyle {
    let template = format!("{{bar:40}} {{pos}} of {{len}} {unit}, {{msg}}");
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What the control file says.
#[derive(Debug, PartialEq, Eq)]
struct Standing<'a> {
    left: u64,
    total: u64,
    /// `idle`, `running`, `loading`, `done` or `failed N`.
    state: &'a str,
    message: &'a str,
    advice: &'a str,
}

impl<'a> Standing<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut lines = text.lines();
        let (left, total) = lines.next()?.strip_prefix("dirty ")?.split_once(" of ")?;
        Some(Self {
            left: left.parse().ok()?,
            total: total.parse().ok()?,
            state: lines.next()?.strip_prefix("state ")?,
            message: lines.next().unwrap_or("it ended early"),
            advice: lines.next().unwrap_or_default(),
        })
    }

    fn failure(&self) -> Failure {
        let number = self.state.strip_prefix("failed ");
        let number = number.and_then(|number| number.parse().ok());
        let failure = Failure::new(Code::from_number(number.unwrap_or(1)), self.message);
        match self.advice {
            "" => failure,
            advice => failure.advise(advice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_is_understood() {
        let running = Standing::parse("dirty 3 of 10\nstate running\n").expect("parses");
        assert_eq!((running.left, running.total), (3, 10));
        assert_eq!(running.state, "running");
        let text = "dirty 0 of 0\nstate failed 3\n/x is in use\nanother --cache\n";
        let failure = Standing::parse(text).expect("parses").failure();
        assert_eq!(failure.code, Code::Cache);
        assert_eq!(
            failure.to_string(),
            "error: /x is in use\n  try: another --cache"
        );
        assert_eq!(Standing::parse("dirty 3\n"), None);
    }
}
