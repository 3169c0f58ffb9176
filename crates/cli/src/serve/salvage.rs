//! Pages that are about to be given up, written to files of their own for people to look into.

use crate::failure::{Code, Failure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thermocline::{Refused, Store};
use thermocline_core::{MapEntry, ObjectId};

/// Writes the dirty pages of `files` into `directory`, each into a sparse file of its own at the
/// offsets they have, and syncs. How many there were. Files that are there are not overwritten.
pub(crate) fn save(
    store: &Store,
    files: &[Refused],
    directory: &Path,
    page_size: u32,
) -> Result<u64, Failure> {
    fs::create_dir_all(directory).map_err(|e| Failure::io("make", directory, &e))?;
    let Some(found) = store.recovered() else {
        return Ok(0);
    };
    let refused = |name: &str| files.iter().any(|file| file.name == name);
    let objects = found.objects.iter().filter(|object| refused(&object.name));
    let mut names = Names::default();
    let paths: BTreeMap<ObjectId, PathBuf> = objects
        .map(|object| (object.id, directory.join(names.of(&object.name))))
        .collect();
    let mut entries: Vec<_> = found.entries.iter().filter(|(_, e)| e.dirty).collect();
    entries.sort_by_key(|(_, entry)| entry.page);
    let mut page = vec![0; page_size as usize];
    let mut saved = 0;
    for of_file in entries.chunk_by(|(_, a), (_, b)| a.page.object == b.page.object) {
        let Some(path) = paths.get(&of_file[0].1.page.object) else {
            continue;
        };
        let fail = |e: std::io::Error| Failure::io("write", path, &e);
        let file = make(path)?;
        for (block, entry) in of_file {
            let read = store.read_block(*block, entry.page, entry.checksum, &mut page);
            if read.is_err() {
                say_unreadable(path, entry);
                continue;
            }
            let offset = entry.page.index * u64::from(page_size);
            file.write_all_at(&page, offset).map_err(fail)?;
            saved += 1;
        }
        file.sync_all().map_err(fail)?;
    }
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|e| Failure::io("sync", directory, &e))?;
    Ok(saved)
}

fn say_unreadable(path: &Path, entry: &MapEntry) {
    let index = entry.page.index;
    eprintln!(
        "page {index} cannot be read from flash, and is not in {}",
        path.display()
    );
}

/// A new file for the owner alone: the pages may hold what nobody else may read.
fn make(path: &Path) -> Result<File, Failure> {
    let made = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(Code::Failure, format!("{} exists already", path.display()))
                .advise("another --save-to; nothing was given up")
        }
        _ => Failure::io("create", path, &error),
    })
}

/// Names of files in one directory for names with directories in them.
#[derive(Default)]
struct Names {
    given: BTreeMap<String, u32>,
}

impl Names {
    fn of(&mut self, name: &str) -> String {
        let flat = match name {
            "" => "unknown".to_string(),
            name => name.replace('/', "_"),
        };
        let before = self.given.entry(flat.clone()).or_default();
        *before += 1;
        match *before {
            1 => format!("{flat}.pages"),
            number => format!("{flat}.{number}.pages"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_gets_a_file_of_its_own() {
        let mut names = Names::default();
        assert_eq!(names.of("base/5/16384"), "base_5_16384.pages");
        assert_eq!(names.of("base/5_16384"), "base_5_16384.2.pages");
        assert_eq!(names.of(""), "unknown.pages");
    }
}
