//! Writing measured costs into a configuration file without disturbing the rest of it.

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::show::beside;
use std::fs;
use std::io;
use std::path::Path;
use thermocline::config::CostSettings;
use toml_edit::{DocumentMut, Item, Table, value};

/// What a note of a calibration begins with, as a comment.
const MEASURED: &str = "# Measured by thermocline calibrate: ";

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
    // In one step, where that can be: a reader sees the old text or the new.
    beside::write(path, &edited)
}

/// `text` with its `[costs]` set.
fn with_costs(
    text: &str,
    costs: &CostSettings,
    note: &str,
) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    if document.contains_table("costs") {
        renew_note(&mut document["costs"], note);
    } else {
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

/// Says what was measured above `costs` where an earlier note says it of other devices; what
/// somebody wrote there stays.
fn renew_note(costs: &mut Item, note: &str) {
    let Some(decor) = costs.as_table_mut().map(Table::decor_mut) else {
        return;
    };
    let above = decor.prefix().and_then(|prefix| prefix.as_str());
    let Some(above) = above.map(str::to_string) else {
        return;
    };
    let renewed = |line: &str| match line.starts_with(MEASURED) {
        true => format!("# {note}\n"),
        false => line.to_string(),
    };
    decor.set_prefix(above.split_inclusive('\n').map(renewed).collect::<String>());
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
    fn a_later_note_takes_the_place_of_an_earlier_one() {
        let [first, second] = ["hdd, flash a", "ssd, flash b"]
            .map(|devices| format!("Measured by thermocline calibrate: base {devices}."));
        let old = "[pool]\nsize = \"1GiB\"\n\n# our own words\n";
        let once = with_costs(old, &measured(), &first).expect("edits");
        let twice = with_costs(&once, &measured(), &second).expect("edits");
        assert_eq!(twice, once.replace(&first, &second));
        assert!(twice.contains("# our own words\n"), "{twice}");
        let theirs = "# measured by hand\n[costs]\nflash_read_us = 9.0\n";
        let edited = with_costs(theirs, &measured(), &first).expect("edits");
        assert!(
            edited.starts_with("# measured by hand\n[costs]\n"),
            "{edited}"
        );
        assert!(!edited.contains(&first), "{edited}");
    }

    #[test]
    fn a_link_stays_and_its_file_keeps_its_owner() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
        let directory = tempfile::tempdir().expect("dir");
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::write(&real, "").expect("write");
        fs::set_permissions(&real, PermissionsExt::from_mode(0o600)).expect("mode");
        // Only root can give a file away; others see the link alone.
        let given = chown(&real, Some(1234), None).is_ok();
        symlink("real", &link).expect("link");
        store_costs(&link, &measured(), "measured").expect("stores");
        assert!(link.is_symlink());
        let text = fs::read_to_string(&real).expect("read");
        assert!(text.contains("[costs]"), "{text}");
        let found = real.metadata().expect("there");
        assert_eq!(found.mode() & 0o777, 0o600);
        assert!(!given || found.uid() == 1234, "{}", found.uid());
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
