//! `check`: reads a cache that is not mounted and says what it holds and what is wrong with it.

use crate::args::CheckArgs;
use crate::failure::{Code, Failure, Outcome};
use crate::table::Table;
use crate::units::{show_bytes, show_count};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use thermocline::claim::mark_of;
use thermocline::store::{CheckStep, Fate, ObjectPages, Report, check_path};

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
    })?;
    bar.finish_and_clear();
    if args.json {
        println!("{:#}", as_json(&report));
    } else {
        print!("{}", show(&report));
        print_mark(&report);
    }
    verdict(args, &report)
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
    let advice = match report.pages().1 {
        0 => "base is whole: thermocline mount --format makes the cache anew".to_string(),
        _ => format!(
            "thermocline recover BASE {shown} --discard writes back what can be read; \
             restore the rest from a backup"
        ),
    };
    Err(Failure::new(Code::Failure, message).advise(advice))
}

fn show(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut out, report);
    let mut table = Table::new(&["object", "state", "clean", "dirty"]).left(2);
    for object in &report.objects {
        table.row([
            object.name.clone(),
            fate(object).to_string(),
            show_count(object.clean),
            show_count(object.dirty),
        ]);
    }
    if !table.is_empty() {
        let _ = write!(out, "\n{table}");
    }
    let _ = problems(&mut out, report);
    out
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
    match object.fate {
        Fate::Stays => "file",
        Fate::Unlinked => "being removed",
        Fate::Cut(_) => "being cut",
    }
}

fn problems(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.problems.is_empty() {
        return writeln!(out, "\nnothing is wrong");
    }
    writeln!(out)?;
    for problem in &report.problems {
        let kind = if problem.damage { "DAMAGE" } else { "note" };
        writeln!(
            out,
            "{kind:<9} at byte {}: {}",
            problem.offset, problem.text
        )?;
    }
    match report.more_problems {
        0 => Ok(()),
        more => writeln!(out, "and {} more", show_count(more)),
    }
}

fn as_json(report: &Report) -> Value {
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
        "objects": objects.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
        "more_problems": report.more_problems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::store::Problem;

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
            json: false,
        }
    }

    #[test]
    fn a_sound_cache_is_shown_with_its_objects() {
        let text = show(&report());
        for part in [
            "base/5/16384",
            "7 clean, 3 dirty",
            "/bulk/pg",
            "nothing is wrong",
        ] {
            assert!(text.contains(part), "no \"{part}\" in {text}");
        }
        assert!(verdict(&args(), &report()).is_ok());
        assert_eq!(as_json(&report())["sound"], true);
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
        assert!(show(&report).contains("DAMAGE    at byte 8192: wrong checksum"));
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
        assert!(
            failure
                .advice
                .is_some_and(|advice| advice.contains("--format"))
        );
    }
}
