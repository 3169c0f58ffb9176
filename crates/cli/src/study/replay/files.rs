//! The base files of a replay: made, recognised, filled, removed. Nothing else is touched.

use crate::failure::{Failure, Outcome};
use crate::study::modelled::Bar;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline_core::hash::mix;

/// The file by which a directory of ours is known; its text is the layout.
const MARK: &str = ".thermocline-replay";
/// Bytes written at a time while filling.
const STRETCH: usize = 1 << 20;
/// The most bytes that files are made for.
const TOTAL_MAX: u64 = 16 << 40;

/// What the files are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) page_size: u32,
    /// Pages of each object.
    pub(super) extents: Vec<u64>,
    /// Every page has contents; else the files are holes until they are written.
    pub(super) filled: bool,
}

impl Layout {
    fn bytes(&self, object: usize) -> Option<u64> {
        self.extents[object].checked_mul(u64::from(self.page_size))
    }

    /// Bytes of all files; `None` when that exceeds 64 bits.
    pub(super) fn total(&self) -> Option<u64> {
        let bytes = (0..self.extents.len()).map(|object| self.bytes(object));
        bytes.sum::<Option<u64>>()
    }

    fn text(&self) -> String {
        let extents = self.extents.iter().map(u64::to_string);
        format!(
            "made by thermocline replay; removed by it\npage size {}\nfilled {}\npages {}\n",
            self.page_size,
            self.filled,
            extents.collect::<Vec<_>>().join(" ")
        )
    }
}

/// The files, removed when dropped unless they are to be kept.
#[derive(Debug)]
pub(super) struct BaseFiles {
    directory: PathBuf,
    made_directory: bool,
    made: Vec<PathBuf>,
    keep: bool,
}

impl BaseFiles {
    /// Makes the files in `directory`, which is missing, empty, or holds those of an earlier
    /// replay of the same layout.
    ///
    /// # Errors
    /// When files cannot be made, or `ended` became true meanwhile; then they are removed.
    pub(super) fn prepare(
        directory: &Path,
        layout: &Layout,
        keep: bool,
        ended: &AtomicBool,
    ) -> Result<Self, Failure> {
        let reused = recognise(directory, layout)?;
        let made_directory = !directory.exists();
        let made = fs::create_dir_all(directory);
        made.map_err(|error| Failure::io("create", directory, &error))?;
        let mut files = Self {
            directory: directory.to_path_buf(),
            made_directory,
            made: Vec::new(),
            keep,
        };
        if reused {
            let all = (0..layout.extents.len()).map(|object| files.path(object));
            files.made = all.chain([directory.join(MARK)]).collect();
            return Ok(files);
        }
        files.make(layout, ended)?;
        Ok(files)
    }

    /// The file of `object`.
    pub(super) fn path(&self, object: usize) -> PathBuf {
        self.directory.join(format!("object-{object:05}"))
    }

    fn make(&mut self, layout: &Layout, ended: &AtomicBool) -> Outcome {
        let mark = self.directory.join(MARK);
        // Written last: a directory with it is complete.
        let total = layout.total().unwrap_or(u64::MAX);
        let bar = Bar::new(
            "filling",
            "{wide_bar} {percent} % {bytes}, {eta} left",
            total,
        );
        let mut done = 0;
        for object in 0..layout.extents.len() {
            let path = self.path(object);
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            let file = file.map_err(|error| Failure::io("create", &path, &error))?;
            self.made.push(path.clone());
            let length = layout.bytes(object).unwrap_or(u64::MAX);
            let made = file.set_len(length).and_then(|()| match layout.filled {
                true => fill(&file, object, layout, &mut |bytes| {
                    done += bytes;
                    bar.set(done);
                    !ended.load(Ordering::Relaxed)
                }),
                false => Ok(()),
            });
            made.map_err(|error| Failure::io("fill", &path, &error))?;
            if ended.load(Ordering::Relaxed) {
                return Err(super::ended());
            }
        }
        self.made.push(mark.clone());
        let written = fs::write(&mark, layout.text());
        written.map_err(|error| Failure::io("write", &mark, &error))
    }
}

impl Drop for BaseFiles {
    fn drop(&mut self) {
        let complete = self.made.last().is_some_and(|path| path.ends_with(MARK));
        if self.keep && complete {
            return;
        }
        // What is gone already needs no removing; a directory with other files stays.
        for path in &self.made {
            let _ = fs::remove_file(path);
        }
        if self.made_directory {
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// Whether `directory` holds the files of `layout` already; refuses any that are not ours.
fn recognise(directory: &Path, layout: &Layout) -> Result<bool, Failure> {
    let entries = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(Failure::io("read", directory, &error)),
    };
    if !entries {
        return Ok(false);
    }
    let refused = |why: &str| {
        let fact = format!("{} {why}; nothing was touched", directory.display());
        Failure::usage(fact).advise("an empty or new directory for --directory")
    };
    match fs::read_to_string(directory.join(MARK)) {
        Ok(text) if text == layout.text() => Ok(true),
        Ok(_) => Err(refused("holds the files of a replay of another trace")),
        Err(_) => Err(refused(
            "is not empty and was not made by thermocline replay",
        )),
    }
}

/// Gives every page its contents, telling `goes_on` of bytes written, until that says no.
fn fill(
    file: &File,
    object: usize,
    layout: &Layout,
    goes_on: &mut dyn FnMut(u64) -> bool,
) -> io::Result<()> {
    let page = layout.page_size as usize;
    let mut buffer = vec![0; STRETCH.max(page)];
    let at_once = (buffer.len() / page) as u64;
    let mut writer = file;
    let mut index = 0;
    while index < layout.extents[object] {
        let pages = at_once.min(layout.extents[object] - index);
        let bytes = &mut buffer[..pages as usize * page];
        for (at, page) in (index..).zip(bytes.chunks_exact_mut(page)) {
            contents(object, at, page);
        }
        writer.write_all(bytes)?;
        index += pages;
        if !goes_on(bytes.len() as u64) {
            return Ok(());
        }
    }
    file.sync_all()
}

/// The bytes of a page: words that count up from a number of the page's own.
pub(super) fn contents(object: usize, index: u64, page: &mut [u8]) {
    let seed = mix(object as u64 + 1, index);
    for (at, word) in (0u64..).zip(page.chunks_mut(8)) {
        let bytes = seed.wrapping_add(at).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// Refuses what no file system holds.
pub(super) fn check(layout: &Layout) -> Outcome {
    match layout.total().filter(|bytes| *bytes <= TOTAL_MAX) {
        Some(_) => Ok(()),
        None => Err(
            Failure::usage("the trace's pages are spread over more than 16 TiB")
                .advise("a trace of a real disk: page numbers that are hashes cannot be replayed"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static GOES_ON: AtomicBool = AtomicBool::new(false);

    fn layout(filled: bool) -> Layout {
        Layout {
            page_size: 512,
            extents: vec![3, 0, 5000],
            filled,
        }
    }

    #[test]
    fn files_are_made_filled_found_again_and_removed() {
        let parent = tempfile::tempdir().expect("dir");
        let directory = parent.path().join("base");
        let files = BaseFiles::prepare(&directory, &layout(true), true, &GOES_ON).expect("makes");
        let bytes = fs::read(files.path(2)).expect("reads");
        assert_eq!(bytes.len(), 5000 * 512);
        let mut page = [0; 512];
        contents(2, 4999, &mut page);
        assert_eq!(bytes[4999 * 512..], page);
        drop(files);
        assert!(directory.join("object-00001").exists(), "kept");
        let other = BaseFiles::prepare(&directory, &layout(false), true, &GOES_ON);
        let message = other.expect_err("another layout").message;
        assert!(message.contains("another trace"), "{message}");
        drop(BaseFiles::prepare(&directory, &layout(true), false, &GOES_ON).expect("found again"));
        let left = fs::read_dir(&directory).map(|entries| entries.count());
        assert_eq!(left.ok(), Some(0), "the directory was there before");
        drop(
            BaseFiles::prepare(&directory.join("x"), &layout(false), false, &GOES_ON)
                .expect("makes"),
        );
        assert!(!directory.join("x").exists());
    }

    #[test]
    fn what_a_signal_ended_leaves_nothing() {
        let parent = tempfile::tempdir().expect("dir");
        let directory = parent.path().join("base");
        let ended = AtomicBool::new(true);
        let made = BaseFiles::prepare(&directory, &layout(true), true, &ended);
        assert!(made.expect_err("ended").message.contains("signal"));
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().expect("dir");
        fs::write(directory.path().join("object-00000"), "mine").expect("writes");
        let refused = BaseFiles::prepare(directory.path(), &layout(false), false, &GOES_ON);
        let failure = refused.expect_err("not ours");
        assert!(failure.message.contains("nothing was touched"), "{failure}");
        let bytes = fs::read(directory.path().join("object-00000")).expect("reads");
        assert_eq!(bytes, b"mine");
    }
}
