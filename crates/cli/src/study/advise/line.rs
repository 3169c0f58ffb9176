//! One line of the advice: the commands that follow and undo it, and its form in JSON.

use super::AdviseArgs;
use crate::show::shell;
use crate::study::plan::table::years;
use crate::units::{Size, show_bytes};
use serde::Serialize;
use thermocline_sim::advice::{Gain, Kind, Line, State};
use thermocline_trace::printable;

/// What a line costs.
#[derive(Serialize)]
pub(super) struct Price {
    /// Money to be paid.
    amount: f64,
    currency: String,
    /// Flash to be bought, or that a pinned object takes of what there is, bytes.
    flash_bytes: u64,
    /// Memory to be bought, bytes.
    memory_bytes: u64,
}

/// One element of what `--json` prints.
#[derive(Serialize)]
pub(super) struct Printed<'a> {
    id: &'a str,
    kind: Kind,
    gain: Gain,
    price: Price,
    side_effects: Vec<String>,
    command: String,
    undo: String,
    now: &'a State,
    then: &'a State,
    more_flash_writes: Option<f64>,
    years: [Option<f64>; 2],
    dirty_bytes: Option<u64>,
    base_requests_saved_per_s: Option<f64>,
}

impl<'a> Printed<'a> {
    pub(super) fn new(args: &AdviseArgs, line: &'a Line) -> Self {
        let (command, undo) = commands(args, line);
        Self {
            id: &line.id,
            kind: line.kind,
            gain: line.gain,
            price: Price {
                amount: line.cost,
                currency: args.currency.clone(),
                flash_bytes: flash(line),
                memory_bytes: memory(line),
            },
            side_effects: side_effects(args, line),
            command,
            undo,
            now: &line.now,
            then: &line.then,
            more_flash_writes: line.more_flash_writes,
            years: line.years,
            dirty_bytes: line.dirty_bytes,
            base_requests_saved_per_s: line.base_requests_saved,
        }
    }
}

/// Bytes of flash that the line buys or takes.
pub(super) fn flash(line: &Line) -> u64 {
    let page_size = |pages: u64| pages * line.page_size;
    match (line.kind, &line.object) {
        (Kind::Pin, Some(object)) => page_size(object.pages),
        _ => line.then.flash_bytes.saturating_sub(line.now.flash_bytes),
    }
}

/// Bytes of memory that the line buys.
pub(super) fn memory(line: &Line) -> u64 {
    line.then.memory_bytes.saturating_sub(line.now.memory_bytes)
}

/// What else happens, in short sentences.
pub(super) fn side_effects(args: &AdviseArgs, line: &Line) -> Vec<String> {
    let mut all = Vec::new();
    if let Some((name, share)) = &line.loser {
        let name = printable(name);
        all.push(format!(
            "reads of {name} take longer, by {share:.1} % of the time of all reads"
        ));
    }
    if let Some(more) = line.more_flash_writes.filter(|more| more.abs() >= 0.005) {
        let word = if more > 0.0 { "more" } else { "fewer" };
        all.push(format!("{:.0} % {word} flash writes", 100.0 * more.abs()));
    }
    let rated = args.years;
    if let (Kind::Size, Some(left)) = (line.kind, line.years[1].filter(|left| *left < rated)) {
        let drive = (line.then.flash_bytes as f64 * rated / left) as u64;
        all.push(format!(
            "a drive of {}, of which the tier is a part, lasts {}",
            show_bytes(drive),
            years(rated)
        ));
    }
    match line.kind {
        Kind::Policy => all.push("the policy learns anew, its contents stay".into()),
        Kind::Pin => {
            all.push("nothing else can use that flash, and the policy learns anew".into());
        }
        Kind::Bypass => all.push("the rule holds from the next mount".into()),
        Kind::Memory => all.push("instead of flash, not beside it".into()),
        Kind::Size => {}
        Kind::WriteBack => {
            let dirty = show_bytes(line.dirty_bytes.unwrap_or(0));
            all.push(format!(
                "{dirty} were on flash alone at the end: base is whole only with the cache, and \
                 what a lost flash device held is lost"
            ));
        }
    }
    all
}

/// The command that follows the line, and the one that undoes it.
pub(super) fn commands(args: &AdviseArgs, line: &Line) -> (String, String) {
    let mount = &shell::quoted(args.mount.as_deref().unwrap_or("MOUNTPOINT"));
    let path = line.object.as_ref().map_or("", |object| &object.file);
    let length = |bytes: u64| match &args.cache {
        Some(cache) => cache.length(bytes / line.page_size),
        None => bytes,
    };
    let resize = |bytes: u64| {
        let size = Size::Bytes(length(bytes));
        format!("thermocline resize {mount} --size {size}")
    };
    let remove = "remove the rule from the configuration".to_string();
    match line.kind {
        Kind::Size if line.now.flash_bytes == 0 => {
            let (size, policy) = (Size::Bytes(line.then.flash_bytes), &line.then.policy);
            let command = format!(
                "thermocline mount BASE {mount} --cache FILE --size {size} --policy {policy}"
            );
            (command, format!("thermocline umount {mount}"))
        }
        Kind::Size => (resize(line.then.flash_bytes), resize(line.now.flash_bytes)),
        Kind::Policy => {
            let policy = |state: &State| format!("thermocline policy {mount} {}", state.policy);
            (policy(&line.then), policy(&line.now))
        }
        Kind::Pin => (
            format!("thermocline pin {mount} {}", shell::operand(path)),
            format!("thermocline unpin {mount} {}", shell::operand(path)),
        ),
        Kind::WriteBack => {
            let mode = |word: &str| format!("thermocline mode {mount} {word}");
            (mode("write-back"), mode("write-through"))
        }
        Kind::Bypass => (rule(path, "cache = false"), remove),
        Kind::Memory => (
            format!(
                "{} more for shared_buffers or innodb_buffer_pool_size",
                Size::Bytes(memory(line))
            ),
            "take it back".to_string(),
        ),
    }
}

/// Lines for the configuration.
fn rule(path: &str, what: &str) -> String {
    // A TOML string takes JSON's escapes. JSON leaves some of what a terminal obeys.
    let path = serde_json::Value::from(path).to_string();
    let shown = path.chars().map(|one| match one.is_control() {
        true => format!("\\u{:04x}", u32::from(one)),
        false => one.to_string(),
    });
    let path: String = shown.collect();
    format!("[[rules]]\npath = {path}\n{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_nothing_that_a_terminal_obeys() {
        let text = rule("a\u{9b}2J\u{7f}\u{1b}", "cache = false");
        assert!(text.contains("\"a\\u009b2J\\u007f\\u001b\""), "{text}");
    }
}
