//! Which files of a base are pinned, and how many pages they have.

use crate::failure::{Failure, Outcome};
use crate::serve::log;
use crate::units::show_count;
use std::fs;
use std::path::Path;
use thermocline::{FlushProgress, Pins};
use thermocline_mount::Fs;

/// The files that patterns name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) pins: Pins,
    /// Path of each, relative to the base, and its pages; in order.
    pub(crate) files: Vec<(String, u64)>,
    /// Patterns that no file matches.
    pub(crate) unmatched: Vec<String>,
}

impl Pinned {
    /// Looks through `base` for the files that `paths` name. O(files of the base); symbolic links
    /// are not followed.
    pub(crate) fn find(base: &Path, paths: &[String], page_size: u32) -> Result<Self, Failure> {
        let mut found = Self {
            pins: Pins {
                paths: paths.to_vec(),
                pages: 0,
            },
            ..Self::default()
        };
        if paths.is_empty() {
            return Ok(found);
        }
        let mut directories = vec![(base.to_path_buf(), String::new())];
        while let Some((directory, prefix)) = directories.pop() {
            let failed = |error| Failure::io("look through", &directory, &error);
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                // It may be gone meanwhile.
                let Ok(facts) = entry.metadata() else {
                    continue;
                };
                if facts.is_dir() {
                    directories.push((entry.path(), format!("{name}/")));
                } else if facts.is_file() && found.pins.matches(&name) {
                    found
                        .files
                        .push((name, facts.len().div_ceil(page_size.into())));
                }
            }
        }
        found.files.sort_unstable();
        let pages = found.files.iter().map(|(_, pages)| pages).sum::<u64>();
        found.pins.pages = u32::try_from(pages).unwrap_or(u32::MAX);
        found.unmatched = unmatched(paths, &found.files);
        debug_assert!(found.files.iter().all(|(name, _)| found.pins.matches(name)));
        Ok(found)
    }

    /// Refuses patterns that no file matches, but for those of `before`: their files may have gone.
    pub(crate) fn check(&self, base: &Path, before: &[String]) -> Outcome {
        let mut unmatched = self.unmatched.iter();
        let Some(pattern) = unmatched.find(|pattern| !before.contains(pattern)) else {
            return Ok(());
        };
        let message = format!("no file below {} is called \"{pattern}\"", base.display());
        Err(Failure::usage(message).advise(
            "a path relative to the base, as `thermocline status` lists files; * and ? stand for \
             parts of a name, ** for any number of directories",
        ))
    }

    /// Brings the pages of these files to flash, those that are not there, and tells `note` how
    /// many are left to look at; false ends it.
    pub(crate) fn load(&self, fs: &Fs, mut note: impl FnMut(FlushProgress) -> bool) -> Outcome {
        let engine = fs.engine();
        let page_size = u64::from(engine.stats().page_size);
        let total = self.files.iter().map(|(_, pages)| pages).sum();
        let (mut seen, mut on_flash, mut go_on) = (0, 0, true);
        for (name, pages) in &self.files {
            let failed = |error| Failure::io("read", Path::new(name), &error);
            if let Some(object) = fs.open_named(name).map_err(failed)? {
                let loaded = engine.load(&object, |bytes| {
                    let left = total - (seen + bytes / page_size).min(total);
                    go_on = note(FlushProgress { total, left });
                    go_on
                });
                engine.close_aside(&object);
                on_flash += u64::from(loaded.map_err(failed)?);
            }
            seen += pages;
            if !go_on {
                return Ok(());
            }
        }
        log::line(&format!(
            "pinned: {} of {} pages are on flash",
            show_count(on_flash),
            show_count(total)
        ));
        note(FlushProgress { total, left: 0 });
        Ok(())
    }
}

fn unmatched(paths: &[String], files: &[(String, u64)]) -> Vec<String> {
    let none = |path: &&String| {
        let one = Pins {
            paths: vec![(*path).clone()],
            pages: 0,
        };
        !files.iter().any(|(name, _)| one.matches(name))
    };
    paths.iter().filter(none).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_paths_and_measured_in_pages() {
        let base = tempfile::tempdir().expect("directory");
        fs::create_dir_all(base.path().join("base/5")).expect("directories");
        for (name, bytes) in [("16384", 8193), ("16384.1", 8192), ("163840", 9), ("1", 0)] {
            let path = base.path().join("base/5").join(name);
            fs::write(path, vec![0; bytes]).expect("a file");
        }
        std::os::unix::fs::symlink("5", base.path().join("base/6")).expect("a link");
        let paths = ["base/*/16384", "base/*/16384.*", "gone"].map(String::from);
        let found = Pinned::find(base.path(), &paths, 8192).expect("looks");
        let files = [("base/5/16384", 2), ("base/5/16384.1", 1)];
        let files = files.map(|(name, pages)| (name.to_string(), pages));
        assert_eq!(found.files, files);
        assert_eq!(found.pins.pages, 3);
        assert_eq!(found.unmatched, ["gone"]);
        let refused = found.check(base.path(), &[]).expect_err("one is not there");
        assert!(refused.message.contains("\"gone\""), "{refused}");
        let before = ["gone".to_string()];
        assert!(found.check(base.path(), &before).is_ok(), "it was there");
        let none = Pinned::find(Path::new("/nowhere"), &[], 8192).expect("nothing to look for");
        assert_eq!(none, Pinned::default());
    }
}
