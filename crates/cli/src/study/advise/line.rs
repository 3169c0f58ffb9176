//! One line of the advice: the commands that follow and undo it, and its form in JSON.

use super::AdviseArgs;
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
    let mount = &quoted(args.mount.as_deref().unwrap_or("MOUNTPOINT"));
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
            format!("thermocline pin {mount} {}", operand(path)),
            format!("thermocline unpin {mount} {}", operand(path)),
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

/// `path` as a shell and the command take it, which would take what begins with `-` for an option.
fn operand(path: &str) -> String {
    match path.starts_with('-') {
        true => format!("-- {}", quoted(path)),
        false => quoted(path),
    }
}

/// `path` as a shell takes it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:".contains(c);
    if path.contains(char::is_control) {
        // The terminal takes none, and the shell reads their escapes.
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'\'';
        let bytes = path.bytes().map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("\\x{byte:02x}"),
        });
        return format!("$'{}'", bytes.collect::<String>());
    }
    match path.chars().all(plain) && !path.is_empty() {
        true => path.to_string(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Lines for the configuration.
fn rule(path: &str, what: &str) -> String {
    // A TOML string takes JSON's escapes.
    let path = serde_json::Value::from(path);
    format!("[[rules]]\npath = {path}\n{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_and_the_command_take_a_name_for_a_name() {
        for (name, shown) in [
            ("/srv/data", "/srv/data"),
            ("/srv/my data;rm", "'/srv/my data;rm'"),
            ("it's", "'it'\\''s'"),
            ("$(x)", "'$(x)'"),
            ("-v", "-- -v"),
            ("-v w", "-- '-v w'"),
            ("", "''"),
            ("a b\u{1b}[2J'\n", "$'a\\x20b\\x1b[2J\\x27\\x0a'"),
        ] {
            assert_eq!(operand(name), shown);
        }
    }
}
