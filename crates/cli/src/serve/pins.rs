//! Which files of a base are pinned, and how many pages they have.

use crate::failure::{Failure, Outcome};
use crate::serve::log;
use crate::units::show_count;
use std::fs::{self, DirEntry};
use std::io;
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
    /// are not followed. Directories below that went meanwhile, or may not be looked into, have no
    /// files to pin.
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
            let read = fs::read_dir(&directory).and_then(Iterator::collect);
            let entries: Vec<DirEntry> = spared(read, &directory, prefix.is_empty())?;
            for entry in entries {
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
    /// Nor has one with wild cards to match anything, beside another that does: a table of less
    /// than 1 GiB has no files `16384.*`.
    pub(crate) fn check(&self, base: &Path, before: &[String]) -> Outcome {
        let is_new = |pattern: &&String| !before.contains(pattern);
        let news = self.pins.paths.iter().filter(is_new).count();
        let unmatched: Vec<&String> = self.unmatched.iter().filter(is_new).collect();
        let is_wild = |pattern: &str| pattern.contains(['*', '?']);
        let all = unmatched.len() == news;
        let wrong = unmatched.iter().find(|pattern| all || !is_wild(pattern));
        let Some(pattern) = wrong else {
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

/// What was read of a directory: nothing where one below base is gone, or forbidden.
fn spared<T: Default>(read: io::Result<T>, directory: &Path, is_base: bool) -> Result<T, Failure> {
    let failed = |error| Failure::io("look through", directory, &error);
    match read.as_ref().map_err(io::Error::kind) {
        Err(io::ErrorKind::NotFound) if !is_base => Ok(T::default()),
        // As lost+found is for all but root.
        Err(io::ErrorKind::PermissionDenied) if !is_base => {
            let shown = directory.display();
            log::line(&format!("nothing in {shown} is pinned: permission denied"));
            Ok(T::default())
        }
        _ => read.map_err(failed),
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
    use std::os::unix::fs::PermissionsExt;

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
        let check = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_string()).collect();
            let found = Pinned::find(base.path(), &paths, 8192).expect("looks");
            found.check(base.path(), &before)
        };
        check(&["base/5/163840", "base/5/163840.*"]).expect("a small table has one file");
        check(&["base/5/9.*"]).expect_err("nothing would be pinned");
        check(&["gone", "base/5/9.*"]).expect_err("nor now");
        let none = Pinned::find(Path::new("/nowhere"), &[], 8192).expect("nothing to look for");
        assert_eq!(none, Pinned::default());
    }

    /// Does `work` in a thread that modes hold for, also where the process is root.
    fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: no pointers; it is about this thread alone, which ends.
                unsafe { libc::setfsuid(65_534) };
                work()
            });
            thread.join().expect("ends")
        })
    }

    #[test]
    fn a_directory_that_is_forbidden_or_gone_keeps_no_file_from_being_found() {
        let base = tempfile::tempdir().expect("directory");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        let forbidden = base.path().join("lost+found");
        fs::create_dir(&forbidden).expect("directory");
        fs::write(base.path().join("data"), [0; 9]).expect("a file");
        mode(base.path(), 0o755);
        mode(&forbidden, 0);
        let paths = ["**".to_string(), "data".to_string()];
        let found = as_nobody(|| Pinned::find(base.path(), &paths, 8192)).expect("looks");
        assert_eq!(found.files, [("data".to_string(), 1)]);
        mode(base.path(), 0);
        let refused = as_nobody(|| Pinned::find(base.path(), &paths, 8192));
        refused.expect_err("base itself must be seen");
        mode(base.path(), 0o755);

        let gone = || Err::<Vec<u8>, _>(io::ErrorKind::NotFound.into());
        let nothing = spared(gone(), &forbidden, false).expect("it went meanwhile");
        assert!(nothing.is_empty());
        spared(gone(), base.path(), true).expect_err("base itself must be there");
        let broken = Err::<Vec<u8>, _>(io::Error::from_raw_os_error(libc::EIO));
        spared(broken, &forbidden, false).expect_err("nobody knows what is in it");
    }
}
