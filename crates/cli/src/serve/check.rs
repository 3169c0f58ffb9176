//! `check`: reads a cache that is not mounted and says what it holds and what is wrong with it.

use crate::explain::unread;
use crate::failure::{Code, Failure, Outcome};
use crate::show::table::Table;
use crate::units::{show_bytes, show_count};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use thermocline::claim::{awaits, mark_of};
use thermocline::stamp_of;
use thermocline::store::{CheckStep, ObjectPages, Problem, Report, check_path};

/// Shown at the end of `check --help`.
pub(crate) const HELP: &str = "\
Reads superblocks, journal and map, and with --data every page. A page is dirty when flash has the
only newest copy: while there are such pages, mount or recover before anything uses base. Exit code
0 when nothing is damaged, dirty pages or not, 1 when something is, 2 when there is no such file, 3
when it is no cache. What a crash leaves behind without harm is listed as a note. Files are listed
by dirty pages, most first, twenty of them; --all lists every one.
  thermocline check /ssd/tier --data";

/// `thermocline check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The cache file or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) cache: PathBuf,
    /// Compare the bytes of every page with their checksum too
    #[arg(long)]
    pub(crate) data: bool,
    /// List every file and every problem
    #[arg(long)]
    pub(crate) all: bool,
    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Files and problems listed at most, without --all.
const LISTED: usize = 20;

/// Verifies.
pub(crate) fn run(args: &CheckArgs) -> Outcome {
    let style = ProgressStyle::with_template("{msg} {bar:40} {bytes} of {total_bytes}, {eta} left");
    let bar =
        ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let report = check_path(&args.cache, args.data, &mut |progress| {
        bar.set_message(match progress.step {
            CheckStep::Map => "map  ",
            CheckStep::Data => "pages",
        });
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    let report = report.map_err(unread)?;
    bar.finish_and_clear();
    let awaited = awaited(args);
    if args.json {
        println!("{:#}", as_json(&report, awaited));
    } else {
        print!("{}", show(args, &report, awaited));
        print_mark(&report);
    }
    verdict(args, &report)
}

/// Whether base waits for dirty pages of this cache; `None` where that cannot be told from here.
fn awaited(args: &CheckArgs) -> Option<bool> {
    let stamp = stamp_of(&args.cache).ok().flatten()?;
    awaits(&stamp).ok()?
}

/// What the mark of the base says, where that can be seen from here.
fn print_mark(report: &Report) {
    match mark_of(Path::new(&report.base)) {
        Ok(Some(mark)) => println!("\nbase {} is {mark}", report.base),
        Ok(None) => println!("\nbase {} has no mark", report.base),
        Err(refusal) => println!("\nbase {}: {refusal}", report.base),
    }
}

fn damaged(report: &Report) -> u64 {
    let listed = report.problems.iter().filter(|problem| problem.damage);
    listed.count() as u64 + report.more_problems
}

/// A failure when something is damaged.
fn verdict(args: &CheckArgs, report: &Report) -> Outcome {
    let shown = args.cache.display();
    if report.is_sound() {
        return Ok(());
    }
    let message = format!(
        "{} problems in cache {shown}, {} of them dirty pages whose bytes are not there",
        show_count(damaged(report)),
        show_count(report.dirty_damaged)
    );
    Err(Failure::new(Code::Failure, message).advise(format!(
        "thermocline recover BASE {shown} --discard writes back what can be read; restore the rest \
         from a backup"
    )))
}

fn show(args: &CheckArgs, report: &Report, awaited: Option<bool>) -> String {
    let limit = if args.all { usize::MAX } else { LISTED };
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut out, report);
    let _ = objects(&mut out, report, limit);
    let _ = problems(&mut out, report, limit);
    let _ = dirty(&mut out, args, report, awaited);
    out
}

/// The files, those with most dirty pages first.
fn objects(out: &mut String, report: &Report, limit: usize) -> std::fmt::Result {
    let mut objects: Vec<&ObjectPages> = report.objects.iter().collect();
    objects.sort_by_key(|o| (Reverse(o.dirty), Reverse(o.clean), &o.name));
    let mut table = Table::new(&["object", "state", "clean", "dirty"]).left(2);
    for object in objects.iter().take(limit) {
        table.row([
            shown_name(&object.name).to_string(),
            fate(object).to_string(),
            show_count(object.clean),
            show_count(object.dirty),
        ]);
    }
    if !table.is_empty() {
        write!(out, "\n{table}")?;
    }
    let rest = objects.get(limit..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(());
    }
    let sum = |of: fn(&ObjectPages) -> u64| show_count(rest.iter().map(|o| of(o)).sum());
    writeln!(
        out,
        "  and {} more files with {} clean and {} dirty pages; --all lists them",
        show_count(rest.len() as u64),
        sum(|o| o.clean),
        sum(|o| o.dirty)
    )
}

fn shown_name(name: &str) -> &str {
    if name.is_empty() { "(no name)" } else { name }
}

/// What must come before base is used.
fn dirty(
    out: &mut String,
    args: &CheckArgs,
    report: &Report,
    awaited: Option<bool>,
) -> std::fmt::Result {
    let dirty = report.pages().1;
    if dirty == 0 {
        return Ok(());
    }
    if awaited == Some(false) {
        return writeln!(
            out,
            "\nBASE DOES NOT WAIT for {} dirty pages of this cache: they were given up, or base is \
             an older copy\n  (a snapshot, a backup with its attributes). Only a mount with \
             --same-base writes them to it",
            show_count(dirty)
        );
    }
    writeln!(
        out,
        "\nBASE IS NOT WHOLE: {} pages are newer here. Mount or recover before you use base:\n  \
         thermocline recover {} {}",
        show_count(dirty),
        report.base,
        args.cache.display()
    )
}

fn head(out: &mut String, report: &Report) -> std::fmt::Result {
    let (clean, dirty) = report.pages();
    let ended = match report.clean_stop {
        true => "closed",
        false => "not closed: the process was killed, or the machine went down",
    };
    let size = show_bytes(report.length);
    let page = show_bytes(report.page_size.into());
    writeln!(
        out,
        "cache     {size}, pages of {page}, of base {}",
        report.base
    )?;
    writeln!(
        out,
        "state     {ended}; {} batches in the journal, {} regions being written",
        show_count(report.journal_batches),
        show_count(report.intents)
    )?;
    writeln!(
        out,
        "pages     {} clean, {} dirty (newer than base) in {} blocks",
        show_count(clean),
        show_count(dirty),
        show_count(report.blocks.into())
    )?;
    if report.verified > 0 {
        let verified = show_count(report.verified);
        writeln!(out, "verified  {verified} pages against their checksums")?;
    }
    Ok(())
}

fn fate(object: &ObjectPages) -> &'static str {
    match (object.fate.unlinked, object.fate.cut) {
        (false, None) => "file",
        (true, _) => "being removed",
        (false, Some(_)) => "being cut",
    }
}

fn problems(out: &mut String, report: &Report, limit: usize) -> std::fmt::Result {
    if report.problems.is_empty() {
        return writeln!(out, "\nnothing is damaged");
    }
    writeln!(out)?;
    let mut listed: Vec<&Problem> = report.problems.iter().collect();
    listed.sort_by_key(|problem| (!problem.damage, problem.offset));
    for problem in listed.iter().take(limit) {
        let kind = if problem.damage { "DAMAGE" } else { "note" };
        writeln!(
            out,
            "{kind:<9} at byte {}: {}",
            problem.offset, problem.text
        )?;
    }
    let unlisted = listed.len().saturating_sub(limit) as u64;
    match report.more_problems + unlisted {
        0 => Ok(()),
        more => writeln!(out, "and {} more", show_count(more)),
    }
}

fn as_json(report: &Report, awaited: Option<bool>) -> Value {
    let objects = report.objects.iter().map(|object| {
        json!({
            "name": object.name, "state": fate(object),
            "clean": object.clean, "dirty": object.dirty,
        })
    });
    let problems = report.problems.iter().map(|problem| {
        json!({ "offset": problem.offset, "text": problem.text, "damage": problem.damage })
    });
    let (clean, dirty) = report.pages();
    json!({
        "sound": report.is_sound(),
        "base": report.base,
        "bytes": report.length,
        "page_size": report.page_size,
        "blocks": report.blocks,
        "clean_stop": report.clean_stop,
        "last_commit_unix_ns": report.last_commit_ns,
        "journal_batches": report.journal_batches,
        "intents": report.intents,
        "duplicates": report.duplicates,
        "verified": report.verified,
        "clean": clean,
        "dirty": dirty,
        "dirty_damaged": report.dirty_damaged,
        "awaited_by_base": awaited,
        "objects": objects.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
        "more_problems": report.more_problems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            page_size: 8192,
            blocks: 100,
            length: 1 << 20,
            base: "/bulk/pg".into(),
            objects: vec![ObjectPages {
                name: "base/5/16384".into(),
                clean: 7,
                dirty: 3,
                ..ObjectPages::default()
            }],
            ..Report::default()
        }
    }

    fn args() -> CheckArgs {
        CheckArgs {
            cache: "/ssd/tier".into(),
            data: false,
            all: false,
            json: false,
        }
    }

    #[test]
    fn a_sound_cache_is_shown_with_its_objects() {
        let text = show(&args(), &report(), None);
        for part in [
            "base/5/16384",
            "7 clean, 3 dirty",
            "/bulk/pg",
            "nothing is damaged",
            "BASE IS NOT WHOLE: 3 pages",
            "thermocline recover /bulk/pg /ssd/tier",
        ] {
            assert!(text.contains(part), "no \"{part}\" in {text}");
        }
        assert!(verdict(&args(), &report()).is_ok());
        let given_up = show(&args(), &report(), Some(false));
        assert!(given_up.contains("BASE DOES NOT WAIT for 3 dirty pages"));
        assert!(!given_up.contains("NOT WHOLE"), "{given_up}");
        assert_eq!(as_json(&report(), None)["sound"], true);
    }

    #[test]
    fn damage_fails_and_names_its_offset() {
        let mut report = report();
        let problem = |damage| Problem {
            offset: 8192,
            text: "wrong checksum".into(),
            damage,
        };
        report.problems = vec![problem(false)];
        assert!(verdict(&args(), &report).is_ok(), "a note is no damage");
        report.problems.push(problem(true));
        assert!(show(&args(), &report, None).contains("DAMAGE    at byte 8192: wrong checksum"));
        let failure = verdict(&args(), &report).expect_err("fails");
        assert_eq!(failure.code, Code::Failure);
        assert!(failure.message.starts_with("1 problems"), "{failure}");
        assert!(
            failure
                .advice
                .is_some_and(|advice| advice.contains("recover"))
        );
        report.objects.clear();
        let failure = verdict(&args(), &report).expect_err("fails");
        let advice = failure.advice.expect("advice");
        assert!(!advice.contains("--format"), "{advice}");
    }

    #[test]
    fn a_long_list_is_sorted_and_cut() {
        let mut report = report();
        report.objects = (0..70)
            .map(|n| ObjectPages {
                name: format!("base/5/{n}"),
                dirty: n * 37 % 70,
                ..ObjectPages::default()
            })
            .collect();
        let text = show(&args(), &report, None);
        assert!(text.lines().count() < 40, "{text}");
        let most = report.objects.iter().max_by_key(|o| o.dirty).expect("some");
        let first = text
            .lines()
            .position(|line| line.contains("object"))
            .expect("head");
        assert!(
            text.lines()
                .nth(first + 1)
                .expect("row")
                .contains(&most.name),
            "{text}"
        );
        assert!(
            text.contains("and 50 more files with 0 clean and 1,225 dirty pages"),
            "{text}"
        );
        let all = CheckArgs {
            all: true,
            ..args()
        };
        let text = show(&all, &report, None);
        assert!(report.objects.iter().all(|o| text.contains(&o.name)));
        assert!(text.contains("BASE IS NOT WHOLE: 2,415 pages"), "{text}");
    }
}
