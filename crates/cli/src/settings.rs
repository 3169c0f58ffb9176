//! Writing measured costs into a configuration file without disturbing the rest of it.

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use std::fs;
use std::io;
use std::path::Path;
use thermocline::config::CostSettings;
use toml_edit::{DocumentMut, Item, Table, value};

/// Puts `costs` into the file at `path`, made if missing; comments and other settings stay.
pub(crate) fn store_costs(path: &Path, costs: &CostSettings, note: &str) -> Outcome {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::io("read", path, &error)),
    };
    let origin = path.display().to_string();
    Config::parse(&text, &origin)?;
    let edited = with_costs(&text, costs, note)
        .map_err(|error| Failure::usage(format!("{origin}: {error}")))?;
    Config::parse(&edited, &origin)?;
    replace(path, &edited)
}

/// `text` with its `[costs]` set.
fn with_costs(
    text: &str,
    costs: &CostSettings,
    note: &str,
) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    if !document.contains_table("costs") {
        let mut section = Table::new();
        let gap = if text.is_empty() { "" } else { "\n" };
        section.decor_mut().set_prefix(format!("{gap}# {note}\n"));
        document.insert("costs", Item::Table(section));
    }
    for (name, microseconds) in named(costs) {
        let rounded = (microseconds * 10.0).round() / 10.0;
        let setting = &mut document["costs"][name];
        let decor = setting.as_value().map(|old| old.decor().clone());
        *setting = value(rounded.max(0.1));
        if let (Some(decor), Some(new)) = (decor, setting.as_value_mut()) {
            *new.decor_mut() = decor;
        }
    }
    Ok(document.to_string())
}

/// Every cost with the name of its setting, in microseconds.
pub(crate) fn named(costs: &CostSettings) -> [(&'static str, f64); 5] {
    [
        ("base_random_read_us", costs.base_random_read_us),
        ("base_sequential_read_us", costs.base_sequential_read_us),
        ("base_random_write_us", costs.base_random_write_us),
        ("flash_read_us", costs.flash_read_us),
        ("flash_write_us", costs.flash_write_us),
    ]
}

/// Replaces the file in one step: a reader sees the old text or the new.
fn replace(path: &Path, text: &str) -> Outcome {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let fail = |error: io::Error| Failure::io("write", path, &error);
    let mut fresh = tempfile::NamedTempFile::new_in(directory).map_err(fail)?;
    io::Write::write_all(&mut fresh, text.as_bytes()).map_err(fail)?;
    let mode = fs::metadata(path).map(|old| old.permissions());
    let mode = mode.unwrap_or_else(|_| std::os::unix::fs::PermissionsExt::from_mode(0o644));
    fresh.as_file().set_permissions(mode).map_err(fail)?;
    fresh.as_file().sync_all().map_err(fail)?;
    fresh.persist(path).map_err(|error| fail(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EXAMPLE;

    fn measured() -> CostSettings {
        CostSettings {
            base_random_read_us: 8123.46,
            base_sequential_read_us: 52.5,
            base_random_write_us: 7001.0,
            flash_read_us: 81.0,
            flash_write_us: 23.75,
        }
    }

    #[test]
    fn the_example_keeps_its_comments() {
        let edited = with_costs(EXAMPLE, &measured(), "note").expect("edits");
        let comments = |text: &str| text.lines().filter(|l| l.starts_with('#')).count();
        assert_eq!(comments(&edited), comments(EXAMPLE));
        assert_eq!(edited.lines().count(), EXAMPLE.lines().count());
        assert!(
            edited.contains("base_random_read_us = 8123.5\n"),
            "{edited}"
        );
    }

    #[test]
    fn a_file_without_costs_gains_them_at_the_end() {
        let old = "[pool]\nsize = \"1GiB\" # enough\n";
        let edited = with_costs(old, &measured(), "measured").expect("edits");
        assert!(edited.starts_with(old), "{edited}");
        assert!(edited.contains("\n# measured\n[costs]\n"), "{edited}");
        let config = Config::parse(&edited, "edited").expect("parses");
        assert_eq!(config.costs.flash_read_us, 81.0);
    }

    #[test]
    fn a_missing_file_is_made_and_a_wrong_one_left_alone() {
        let directory = tempfile::tempdir().expect("dir");
        let path = directory.path().join("t.toml");
        store_costs(&path, &measured(), "measured").expect("stores");
        assert_eq!(
            Config::load(Some(&path))
                .expect("loads")
                .costs
                .base_random_write_us,
            7001.0
        );
        fs::write(&path, "[costs]\nspeed = 1\n").expect("write");
        assert!(store_costs(&path, &measured(), "measured").is_err());
        assert_eq!(
            fs::read_to_string(&path).expect("read"),
            "[costs]\nspeed = 1\n"
        );
    }
}
