//! The file system against the real one: the same random operations on `Fs` (no mount) and,
//! with plain system calls, on a second directory. Every result must be equal, and so must the
//! two trees at the end. A failure names its seed and the operation.

mod common;

use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::Random;
use thermocline::Engine;
use thermocline_mount::{Caller, Fs, ROOT, SetAttr, WriteOptions, file_devices};

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    tid: 0,
};
const OPERATIONS: u32 = 3000;
const LENGTH_MAX: u64 = 64 << 10;

/// A path of at most two components below the root, from a small set, so that operations meet.
#[derive(Clone, Debug)]
struct Place {
    dir: Option<&'static str>,
    name: &'static str,
}

#[derive(Clone, Debug)]
enum Op {
    Open {
        place: Place,
        flags: i32,
    },
    Close {
        slot: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Resize {
        place: Place,
        len: u64,
    },
    Allocate {
        slot: usize,
        offset: u64,
        len: u64,
        mode: i32,
    },
    Sync {
        slot: usize,
    },
    Unlink {
        place: Place,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Link {
        from: Place,
        to: Place,
    },
    Symlink {
        target: &'static str,
        place: Place,
    },
    Readlink {
        place: Place,
    },
    Mkdir {
        place: Place,
        mode: u32,
    },
    Rmdir {
        place: Place,
    },
    Chmod {
        place: Place,
        mode: u32,
    },
    Stat {
        place: Place,
    },
    List {
        dir: Option<&'static str>,
    },
}

fn place(random: &mut Random) -> Place {
    let dir = [None, None, Some("d"), Some("e")][random.below(4) as usize];
    let names = ["a", "b", "c", "d", "e"];
    Place {
        dir,
        name: names[random.below(if dir.is_some() { 3 } else { 5 }) as usize],
    }
}

fn operation(random: &mut Random) -> Op {
    let slot = random.below(4) as usize;
    let offset = random.below(LENGTH_MAX);
    let len = random.below(20_000);
    match random.below(40) {
        0..=4 => {
            let extra = [
                0,
                libc::O_CREAT,
                libc::O_CREAT | libc::O_TRUNC,
                libc::O_CREAT | libc::O_EXCL,
            ];
            let flags = libc::O_RDWR | extra[random.below(4) as usize];
            Op::Open {
                place: place(random),
                flags,
            }
        }
        5 => Op::Close { slot },
        6..=13 => Op::Write {
            slot,
            offset,
            len: len as usize,
        },
        14..=22 => Op::Read {
            slot,
            offset,
            len: len as usize,
        },
        23 => Op::Resize {
            place: place(random),
            len: offset,
        },
        24..=25 => {
            let keep = libc::FALLOC_FL_KEEP_SIZE;
            let modes = [
                0,
                keep,
                keep | libc::FALLOC_FL_PUNCH_HOLE,
                libc::FALLOC_FL_ZERO_RANGE,
            ];
            Op::Allocate {
                slot,
                offset,
                len: len + 1,
                mode: modes[random.below(4) as usize],
            }
        }
        26 => Op::Sync { slot },
        27..=28 => Op::Unlink {
            place: place(random),
        },
        29..=31 => {
            let flags = [0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE];
            let flags = flags[random.below(4) as usize];
            Op::Rename {
                from: place(random),
                to: place(random),
                flags,
            }
        }
        32 => Op::Link {
            from: place(random),
            to: place(random),
        },
        33 => Op::Symlink {
            target: "some/where",
            place: place(random),
        },
        34 => Op::Readlink {
            place: place(random),
        },
        35 => Op::Mkdir {
            place: place(random),
            mode: 0o750,
        },
        36 => Op::Rmdir {
            place: place(random),
        },
        37 => Op::Chmod {
            place: place(random),
            mode: 0o600 | random.below(64) as u32,
        },
        38 => Op::Stat {
            place: place(random),
        },
        _ => Op::List {
            dir: [None, Some("d"), Some("e")][random.below(3) as usize],
        },
    }
}

/// What an operation gives, comparable: `Err` is the error's number.
type Outcome = Result<Vec<u8>, i32>;

fn outcome<T>(result: io::Result<T>, show: impl FnOnce(T) -> Vec<u8>) -> Outcome {
    result
        .map(show)
        .map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn done<T>(_: T) -> Vec<u8> {
    Vec::new()
}

/// The side under test. Every lookup is forgotten at once, except those of open files.
struct Ours {
    fs: Fs,
    open: Vec<Option<(u64, u64)>>,
}

impl Ours {
    fn find(&self, place: &Place) -> io::Result<u64> {
        self.within(place, |parent| {
            Ok(self.fs.lookup(parent, OsStr::new(place.name))?.id)
        })
    }

    /// Runs `with` on the id of the place's directory.
    fn within<T>(&self, place: &Place, with: impl FnOnce(u64) -> io::Result<T>) -> io::Result<T> {
        let Some(dir) = place.dir else {
            return with(ROOT);
        };
        let entry = self.fs.lookup(ROOT, OsStr::new(dir))?;
        // The kernel itself refuses to walk through what is no directory.
        let result = match entry.stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => with(entry.id),
            libc::S_IFLNK => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        };
        self.fs.forget(entry.id, 1);
        result
    }

    /// Runs `with` on the node at a place.
    fn on<T>(&self, place: &Place, with: impl FnOnce(u64) -> io::Result<T>) -> io::Result<T> {
        let id = self.find(place)?;
        let result = with(id);
        self.fs.forget(id, 1);
        result
    }

    fn made(&self, result: io::Result<thermocline_mount::Entry>) -> io::Result<()> {
        result.map(|entry| self.fs.forget(entry.id, 1))
    }

    fn handle(&self, slot: usize) -> io::Result<u64> {
        let open = self.open[slot].map(|(_, handle)| handle);
        open.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn close(&mut self, slot: usize) {
        if let Some((id, handle)) = self.open[slot].take() {
            self.fs.release(handle).expect("an open handle");
            self.fs.forget(id, 1);
        }
    }

    fn open(&mut self, place: &Place, flags: i32) -> io::Result<()> {
        let name = OsStr::new(place.name);
        let create = flags & libc::O_CREAT != 0;
        let opened = self.within(place, |parent| {
            if create {
                // As the kernel does: an existing file is found, not created.
                match self.fs.lookup(parent, name) {
                    Ok(entry) if flags & libc::O_EXCL != 0 => {
                        self.fs.forget(entry.id, 1);
                        return Err(io::Error::from_raw_os_error(libc::EEXIST));
                    }
                    Ok(entry) => return self.open_found(entry.id, flags),
                    Err(_) => {}
                }
                let (entry, opened) = self.fs.create(CALLER, parent, name, 0o640, flags)?;
                return Ok((entry.id, opened.handle));
            }
            self.open_found(self.fs.lookup(parent, name)?.id, flags)
        })?;
        let slot = self.open.iter().position(Option::is_none).unwrap_or(0);
        self.close(slot);
        self.open[slot] = Some(opened);
        Ok(())
    }

    fn open_found(&self, id: u64, flags: i32) -> io::Result<(u64, u64)> {
        let mode = self.fs.getattr(id)?.st_mode & libc::S_IFMT;
        let result = match mode {
            libc::S_IFREG => self.fs.open(id, flags).map(|opened| (id, opened.handle)),
            libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            _ => Err(io::Error::from_raw_os_error(libc::ELOOP)),
        };
        if result.is_err() {
            self.fs.forget(id, 1);
        }
        result
    }

    fn run(&mut self, op: &Op, data: &[u8]) -> Outcome {
        match op {
            Op::Open { place, flags } => outcome(self.open(place, *flags), done),
            Op::Close { slot } => {
                self.close(*slot);
                Ok(Vec::new())
            }
            Op::Write { slot, offset, len } => {
                let handle = self.handle(*slot);
                outcome(
                    handle.and_then(|h| {
                        let options = WriteOptions::default();
                        self.fs.write(CALLER, h, *offset, &data[..*len], options)
                    }),
                    done,
                )
            }
            Op::Read { slot, offset, len } => {
                let mut buf = vec![0xee; *len];
                let handle = self.handle(*slot);
                let read = handle.and_then(|h| self.fs.read(CALLER, h, *offset, &mut buf));
                outcome(read, |n| buf[..n].to_vec())
            }
            Op::Allocate {
                slot,
                offset,
                len,
                mode,
            } => {
                let handle = self.handle(*slot);
                outcome(
                    handle.and_then(|h| self.fs.fallocate(h, *offset, *len, *mode)),
                    done,
                )
            }
            Op::Sync { slot } => {
                let handle = self.handle(*slot);
                outcome(handle.and_then(|h| self.fs.fsync(h, true)), done)
            }
            _ => self.run_on_names(op),
        }
    }

    fn run_on_names(&self, op: &Op) -> Outcome {
        let fs = &self.fs;
        let name = |place: &Place| OsStr::new(place.name);
        match op {
            Op::Resize { place, len } => {
                let set = SetAttr {
                    size: Some(*len),
                    ..SetAttr::default()
                };
                outcome(
                    self.on(place, |id| self.regular(id)?.setattr(id, &set)),
                    done,
                )
            }
            Op::Unlink { place } => outcome(
                self.within(place, |parent| fs.unlink(parent, name(place))),
                done,
            ),
            Op::Rename { from, to, flags } => outcome(
                self.within(from, |a| {
                    self.within(to, |b| fs.rename((a, name(from)), (b, name(to)), *flags))
                }),
                done,
            ),
            Op::Link { from, to } => outcome(
                self.on(from, |id| {
                    self.within(to, |parent| self.made(fs.link(id, parent, name(to))))
                }),
                done,
            ),
            Op::Symlink { target, place } => outcome(
                self.within(place, |parent| {
                    self.made(fs.symlink(CALLER, parent, name(place), OsStr::new(target)))
                }),
                done,
            ),
            Op::Readlink { place } => outcome(self.on(place, |id| fs.readlink(id)), |t| {
                t.as_bytes().to_vec()
            }),
            Op::Mkdir { place, mode } => outcome(
                self.within(place, |parent| {
                    self.made(fs.mkdir(CALLER, parent, name(place), *mode))
                }),
                done,
            ),
            Op::Rmdir { place } => outcome(
                self.within(place, |parent| fs.rmdir(parent, name(place))),
                done,
            ),
            Op::Chmod { place, mode } => {
                let set = SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                };
                outcome(
                    self.on(place, |id| self.no_link(id)?.setattr(id, &set)),
                    done,
                )
            }
            Op::Stat { place } => outcome(self.on(place, |id| fs.getattr(id)), |s| {
                let size = if s.st_mode & libc::S_IFMT == libc::S_IFREG {
                    s.st_size
                } else {
                    0
                };
                format!("{:o} {} {size}", s.st_mode, s.st_nlink).into_bytes()
            }),
            Op::List { dir } => {
                let place = Place {
                    dir: None,
                    name: dir.unwrap_or("."),
                };
                let listed = match dir {
                    None => self.list(ROOT),
                    Some(_) => self.on(&place, |id| self.list(id)),
                };
                outcome(listed, |names| names.join("/").into_bytes())
            }
            _ => unreachable!("run on handles"),
        }
    }

    /// The file system, if the node is a regular file; the kernel asks nothing else of others.
    fn regular(&self, id: u64) -> io::Result<&Fs> {
        match self.fs.getattr(id)?.st_mode & libc::S_IFMT {
            libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            libc::S_IFREG => Ok(&self.fs),
            _ => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn no_link(&self, id: u64) -> io::Result<&Fs> {
        let mode = self.fs.getattr(id)?.st_mode & libc::S_IFMT;
        let is_link = mode == libc::S_IFLNK;
        if is_link {
            Err(io::Error::from_raw_os_error(libc::ENOENT))
        } else {
            Ok(&self.fs)
        }
    }

    /// The names in a directory, fetched two at a time.
    fn list(&self, id: u64) -> io::Result<Vec<String>> {
        if self.fs.getattr(id)?.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let handle = self.fs.opendir(id)?;
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let before = names.len();
            self.fs.readdir(handle, offset, &mut |entry| {
                if names.len() == before + 2 {
                    return true;
                }
                names.push(entry.name.to_string_lossy().into_owned());
                offset = entry.next;
                false
            })?;
            if names.len() == before {
                break;
            }
        }
        self.fs.fsyncdir(handle, false)?;
        self.fs.release(handle)?;
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}

/// The reference: the same operations by path.
struct Theirs {
    root: PathBuf,
    open: Vec<Option<File>>,
}

impl Theirs {
    fn path(&self, place: &Place) -> PathBuf {
        self.root.join(place.dir.unwrap_or("")).join(place.name)
    }

    fn file(&self, slot: usize) -> io::Result<&File> {
        self.open[slot]
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn open(&mut self, place: &Place, flags: i32) -> io::Result<()> {
        let path = c_path(&self.path(place));
        // SAFETY: the path is NUL-terminated; the descriptor is owned by the file made of it.
        let file = unsafe {
            let fd = libc::open(
                path.as_ptr(),
                flags | libc::O_NOFOLLOW | libc::O_CLOEXEC,
                0o640,
            );
            check(fd)?;
            <File as std::os::fd::FromRawFd>::from_raw_fd(fd)
        };
        let slot = self.open.iter().position(Option::is_none).unwrap_or(0);
        self.open[slot] = Some(file);
        Ok(())
    }

    fn run(&mut self, op: &Op, data: &[u8]) -> Outcome {
        match op {
            Op::Open { place, flags } => outcome(self.open(place, *flags), done),
            Op::Close { slot } => {
                self.open[*slot] = None;
                Ok(Vec::new())
            }
            Op::Write { slot, offset, len } => outcome(
                self.file(*slot)
                    .and_then(|f| f.write_all_at(&data[..*len], *offset)),
                done,
            ),
            Op::Read { slot, offset, len } => {
                let mut buf = vec![0; *len];
                let read = self.file(*slot).and_then(|f| f.read_at(&mut buf, *offset));
                outcome(read, |n| buf[..n].to_vec())
            }
            Op::Allocate {
                slot,
                offset,
                len,
                mode,
            } => {
                let allocate = |file: &File| {
                    // SAFETY: no memory is passed.
                    check(unsafe {
                        libc::fallocate(file.as_raw_fd(), *mode, *offset as i64, *len as i64)
                    })
                };
                outcome(self.file(*slot).and_then(allocate), done)
            }
            Op::Sync { slot } => outcome(self.file(*slot).and_then(File::sync_data), done),
            _ => self.run_on_names(op),
        }
    }

    fn run_on_names(&self, op: &Op) -> Outcome {
        match op {
            Op::Resize { place, len } => {
                let open = OpenOptions::new().write(true).open(self.path(place));
                outcome(open.and_then(|file| file.set_len(*len)), done)
            }
            Op::Unlink { place } => outcome(fs::remove_file(self.path(place)), done),
            Op::Rename { from, to, flags } => {
                let (from, to) = (c_path(&self.path(from)), c_path(&self.path(to)));
                let cwd = libc::AT_FDCWD;
                // SAFETY: both paths are NUL-terminated.
                let result =
                    unsafe { libc::renameat2(cwd, from.as_ptr(), cwd, to.as_ptr(), *flags) };
                outcome(check(result), done)
            }
            Op::Link { from, to } => outcome(fs::hard_link(self.path(from), self.path(to)), done),
            Op::Symlink { target, place } => {
                outcome(std::os::unix::fs::symlink(target, self.path(place)), done)
            }
            Op::Readlink { place } => outcome(fs::read_link(self.path(place)), |t| {
                t.as_os_str().as_bytes().to_vec()
            }),
            Op::Mkdir { place, mode } => {
                let made = fs::create_dir(self.path(place));
                let mode = fs::Permissions::from_mode(*mode);
                outcome(
                    made.and_then(|()| fs::set_permissions(self.path(place), mode)),
                    done,
                )
            }
            Op::Rmdir { place } => outcome(fs::remove_dir(self.path(place)), done),
            Op::Chmod { place, mode } => {
                let mode = fs::Permissions::from_mode(*mode);
                outcome(fs::set_permissions(self.path(place), mode), done)
            }
            Op::Stat { place } => outcome(fs::symlink_metadata(self.path(place)), |m| {
                let size = if m.is_file() { m.len() } else { 0 };
                format!("{:o} {} {size}", m.mode(), m.nlink()).into_bytes()
            }),
            Op::List { dir } => {
                let place = Place {
                    dir: None,
                    name: dir.unwrap_or("."),
                };
                let path = self.path(&place);
                let listed = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
                    .open(&path)
                    .and_then(|_| fs::read_dir(&path));
                outcome(listed, |entries| {
                    let name = |entry: io::Result<fs::DirEntry>| {
                        entry
                            .expect("entry")
                            .file_name()
                            .to_string_lossy()
                            .into_owned()
                    };
                    let mut names: Vec<String> = entries.map(name).collect();
                    names.sort();
                    names.join("/").into_bytes()
                })
            }
            _ => unreachable!("run on handles"),
        }
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without NUL")
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Everything below a directory: path, mode, link count, and content or target.
fn tree(root: &Path) -> Vec<(PathBuf, u32, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).expect("directory") {
            let path = dir.join(entry.expect("entry").file_name());
            let full = root.join(&path);
            let meta = fs::symlink_metadata(&full).expect("metadata");
            let content = if meta.is_dir() {
                dirs.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&full)
                    .expect("target")
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else {
                fs::read(&full).expect("content")
            };
            found.push((path, meta.mode(), meta.nlink(), content));
        }
    }
    found.sort();
    found
}

fn run(seed: u64, engine: Arc<Engine>) {
    let ours_dir = tempfile::tempdir().expect("temporary directory");
    let theirs_dir = tempfile::tempdir().expect("temporary directory");
    let (base, rules) = (ours_dir.path().to_path_buf(), common::cache_everything());
    let fs = Fs::new(base, engine.clone(), file_devices(), rules, None).expect("file system");
    let mut ours = Ours {
        fs,
        open: vec![None; 4],
    };
    let mut theirs = Theirs {
        root: theirs_dir.path().to_path_buf(),
        open: (0..4).map(|_| None).collect(),
    };
    let mut random = Random::new(seed);
    for number in 0..OPERATIONS {
        let op = operation(&mut random);
        let data = match &op {
            Op::Write { len, .. } => random.bytes(*len),
            _ => Vec::new(),
        };
        let (left, right) = (ours.run(&op, &data), theirs.run(&op, &data));
        assert!(
            left == right,
            "seed {seed}, operation {number} {op:?}:\n{}",
            differ(&left, &right)
        );
    }
    engine.flush(|_| true).expect("base has everything");
    assert_eq!(
        tree(ours_dir.path()),
        tree(theirs_dir.path()),
        "seed {seed}"
    );
    for slot in 0..4 {
        ours.close(slot);
    }
    assert_eq!(
        ours.fs.held(),
        (1, 0),
        "seed {seed}: nodes or handles are left over"
    );
    let stats = engine.stats();
    let hits = ["pool", "buffer", "flash"].map(|w| stats.page_reads.get(w).copied().unwrap_or(0));
    assert!(
        hits.iter().sum::<u64>() > 100,
        "the tier served too little: {hits:?}"
    );
    drop(ours);
    engine.stop().expect("engine stopped");
}

fn differ(left: &Outcome, right: &Outcome) -> String {
    match (left, right) {
        (Ok(a), Ok(b)) => {
            let at = a.iter().zip(b).position(|(x, y)| x != y);
            format!(
                "{} and {} bytes, first difference at {at:?}",
                a.len(),
                b.len()
            )
        }
        _ => format!(
            "ours {:?}, theirs {:?}",
            left.as_ref().err(),
            right.as_ref().err()
        ),
    }
}

#[test]
fn the_same_operations_give_the_same_results_with_a_small_tier() {
    for seed in 1..=6 {
        run(seed, common::engine(256 << 10, 0));
    }
}

#[test]
fn the_same_operations_give_the_same_results_with_tier_and_pool() {
    for seed in 11..=16 {
        run(seed, common::engine(1 << 20, 64 << 10));
    }
}

#[test]
fn the_same_operations_give_the_same_results_in_write_back() {
    for seed in 21..=26 {
        run(seed, common::engine_back(256 << 10, 0));
        run(seed + 10, common::engine_back(1 << 20, 64 << 10));
    }
}
