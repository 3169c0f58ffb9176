//! Requests as bytes, without a mount: what the kernel would send, and what it would not.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use thermocline::classify::Rules;
use thermocline::{Engine, EngineConfig};
use zerocopy::{FromBytes, IntoBytes};

use super::{Agreed, Frontend, REQUEST_MAX};
use crate::fs::Fs;
use crate::mount::file_devices;
use crate::passthrough::Passthrough;
use crate::protocol::*;

struct Bench {
    base: tempfile::TempDir,
    fs: Arc<Fs>,
    frontend: Frontend,
    out: Vec<u8>,
}

fn over(base: &Path) -> Fs {
    let config = EngineConfig {
        page_size: 4096,
        policy: "lru".into(),
        pool_bytes: 64 << 10,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, None).unwrap();
    let fs = Fs::new(base.into(), engine, file_devices(), Rules::default(), None);
    fs.unwrap()
}

/// A base with a file `f` ("0123456789") and a directory `d`, used by `owner` alone if given.
fn bench(owner: Option<u32>) -> Bench {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("f"), b"0123456789").unwrap();
    fs::create_dir(base.path().join("d")).unwrap();
    let fs = Arc::new(over(base.path()));
    let agreed = Agreed {
        direct_mmap: true,
        ring: false,
        killpriv: false,
        passthrough: false,
    };
    let device = Arc::new(File::open("/dev/null").unwrap());
    let passthrough = Passthrough::new(false, -1);
    Bench {
        base,
        frontend: Frontend::new(Arc::clone(&fs), passthrough, agreed, device, owner),
        fs,
        out: vec![0xaa; REQUEST_MAX],
    }
}

fn header(opcode: u32, nodeid: u64) -> InHeader {
    InHeader {
        opcode,
        nodeid,
        uid: crate::sys::effective_uid(),
        ..InHeader::default()
    }
}

impl Bench {
    fn base(&self) -> &Path {
        self.base.path()
    }

    fn send(&mut self, opcode: Opcode, node: u64, args: &[u8], payload: &[u8]) -> Answer {
        self.send_as(header(opcode as u32, node), args, payload)
    }

    /// Sends it as `/dev/fuse` does.
    fn send_as(&mut self, mut header: InHeader, args: &[u8], payload: &[u8]) -> Answer {
        header.len = (size_of::<InHeader>() + args.len() + payload.len()) as u32;
        let bytes = [header.as_bytes(), args, payload].concat();
        let request = Incoming::parse(&bytes).unwrap();
        self.frontend.dispatch(&request, &mut self.out)
    }

    /// The struct an answer begins with.
    fn answered<T: FromBytes>(&self, answer: Answer) -> T {
        let Answer::Data(len) = answer else {
            panic!("{answer:?}");
        };
        T::read_from_prefix(&self.out[..len]).unwrap().0
    }

    fn lookup(&mut self, name: &[u8]) -> EntryOut {
        let answer = self.send(Opcode::Lookup, 1, &[], &[name, b"\0"].concat());
        self.answered(answer)
    }

    fn open(&mut self, node: u64) -> u64 {
        let args = OpenIn {
            flags: libc::O_RDWR,
            open_flags: 0,
        };
        let answer = self.send(Opcode::Open, node, args.as_bytes(), &[]);
        self.answered::<OpenOut>(answer).fh
    }
}

#[test]
fn a_file_is_found_opened_read_written_and_closed() {
    let mut bench = bench(None);
    let found = bench.lookup(b"f");
    assert_eq!((found.attr.size, found.attr.ino), (10, found.nodeid));
    assert_eq!(found.attr.mode & libc::S_IFMT, libc::S_IFREG);
    let fh = bench.open(found.nodeid);
    let mut write = WriteIn {
        fh,
        offset: 3,
        size: 4,
        ..WriteIn::default()
    };
    let answer = bench.send(Opcode::Write, found.nodeid, write.as_bytes(), b"abcd");
    assert_eq!(bench.answered::<WriteOut>(answer).size, 4);
    write.size = 5; // more than there is
    let answer = bench.send(Opcode::Write, found.nodeid, write.as_bytes(), b"abcd");
    assert_eq!(answer, Answer::Error(libc::EIO));
    let read = ReadIn {
        fh,
        offset: 1,
        size: u32::MAX,
        ..ReadIn::default()
    };
    let answer = bench.send(Opcode::Read, found.nodeid, read.as_bytes(), &[]);
    assert_eq!(answer, Answer::Data(9));
    assert_eq!(&bench.out[..9], b"12abcd789");
    let release = ReleaseIn {
        fh,
        ..ReleaseIn::default()
    };
    for expected in [Answer::Data(0), Answer::Error(libc::EBADF)] {
        let answer = bench.send(Opcode::Release, found.nodeid, release.as_bytes(), &[]);
        assert_eq!(answer, expected);
    }
    let forget = ForgetIn { nlookup: 1 };
    assert_eq!(bench.fs.held(), (2, 0));
    let answer = bench.send(Opcode::Forget, found.nodeid, forget.as_bytes(), &[]);
    assert_eq!((answer, bench.fs.held()), (Answer::Nothing, (1, 0)));
}

#[test]
fn names_are_made_moved_and_removed() {
    let mut bench = bench(None);
    let mkdir = MkdirIn {
        mode: 0o700,
        umask: 0,
    };
    let answer = bench.send(Opcode::Mkdir, 1, mkdir.as_bytes(), b"made\0");
    let made: EntryOut = bench.answered(answer);
    let rename = RenameIn {
        newdir: made.nodeid,
    };
    let answer = bench.send(Opcode::Rename, 1, rename.as_bytes(), b"f\0g\0");
    assert_eq!(answer, Answer::Data(0));
    assert_eq!(fs::read(bench.base().join("made/g")).unwrap().len(), 10);
    let answer = bench.send(Opcode::Symlink, 1, &[], b"link\0to/where\0");
    let link: EntryOut = bench.answered(answer);
    let answer = bench.send(Opcode::Readlink, link.nodeid, &[], &[]);
    assert_eq!(answer, Answer::Data(8));
    assert_eq!(&bench.out[..8], b"to/where");
    let answer = bench.send(Opcode::Unlink, made.nodeid, &[], b"g\0");
    assert_eq!(answer, Answer::Data(0));
    let answer = bench.send(Opcode::Rmdir, 1, &[], b"made\0");
    assert_eq!(answer, Answer::Data(0));
    assert!(!bench.base().join("made").exists());
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    let mut bench = bench(None);
    let answer = bench.send(Opcode::Opendir, 1, &[0; 8], &[]);
    let fh = bench.answered::<OpenOut>(answer).fh;
    let (mut offset, mut names) = (0, Vec::new());
    loop {
        let read = ReadIn {
            fh,
            offset,
            size: 40, // one entry at a time
            ..ReadIn::default()
        };
        let answer = bench.send(Opcode::Readdir, 1, read.as_bytes(), &[]);
        if answer == Answer::Data(0) {
            break;
        }
        let entry: Dirent = bench.answered(answer);
        offset = entry.off;
        names.push(bench.out[24..24 + entry.namelen as usize].to_vec());
    }
    names.sort();
    assert_eq!(names, [&b"."[..], b"..", b"d", b"f"]);
}

#[test]
fn attributes_are_set_as_the_kernel_gives_them() {
    let mut bench = bench(None);
    let node = bench.lookup(b"f").nodeid;
    let mut set = SetattrIn {
        valid: fattr::SIZE | fattr::MODE | fattr::ATIME | fattr::MTIME,
        size: 3,
        mode: 0o600,
        atime: -2,
        atimensec: 500_000_000,
        mtime: 1,
        mtimensec: 999_999_999,
        ..SetattrIn::default()
    };
    let answer = bench.send(Opcode::Setattr, node, set.as_bytes(), &[]);
    let attr = bench.answered::<AttrOut>(answer).attr;
    assert_eq!((attr.size, attr.mode & 0o7777), (3, 0o600));
    assert_eq!((attr.atime, attr.atimensec), (-2, 500_000_000));
    assert_eq!((attr.mtime, attr.mtimensec), (1, 999_999_999));
    (set.valid, set.mtimensec) = (fattr::MTIME, 1_000_000_000);
    let answer = bench.send(Opcode::Setattr, node, set.as_bytes(), &[]);
    assert_eq!(answer, Answer::Error(libc::EINVAL));
    set.valid |= fattr::MTIME_NOW;
    let answer = bench.send(Opcode::Setattr, node, set.as_bytes(), &[]);
    assert!(bench.answered::<AttrOut>(answer).attr.mtime > 1_600_000_000);
    (set.valid, set.size) = (fattr::SIZE, u64::MAX);
    let answer = bench.send(Opcode::Setattr, node, set.as_bytes(), &[]);
    assert_eq!(answer, Answer::Error(libc::EINVAL));
}

impl Bench {
    fn set_attribute(&mut self, user: u32, node: u64, name: &[u8], value: &[u8]) -> Answer {
        let args = SetxattrIn {
            size: value.len() as u32,
            ..SetxattrIn::default()
        };
        let header = InHeader {
            uid: user,
            ..header(Opcode::Setxattr as u32, node)
        };
        self.send_as(header, args.as_bytes(), &[name, b"\0", value].concat())
    }
}

/// An access list that says what the mode 0666 says.
fn access_list() -> Vec<u8> {
    let entries = [0x01_u16, 0x04, 0x20].map(|tag| (tag, 6_u16, u32::MAX));
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn system_attributes_are_roots_and_the_owners_to_change() {
    let mut bench = bench(None);
    let me = crate::sys::effective_uid();
    let path = bench.base().join("f");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let node = bench.lookup(b"f").nodeid;
    let name = b"system.posix_acl_access";
    let answer = bench.set_attribute(me + 1, node, name, &access_list());
    assert_eq!((answer, mode()), (Answer::Error(libc::EPERM), 0o600));
    let others = InHeader {
        uid: me + 1,
        ..header(Opcode::Removexattr as u32, node)
    };
    let answer = bench.send_as(others, &[], &[name, &b"\0"[..]].concat());
    assert_eq!(answer, Answer::Error(libc::EPERM));
    match bench.set_attribute(me, node, name, &access_list()) {
        Answer::Error(libc::EOPNOTSUPP) => {} // base knows none
        answer => assert_eq!((answer, mode()), (Answer::Data(0), 0o666)),
    }
    if me == 0 {
        std::os::unix::fs::chown(&path, Some(7), None).unwrap();
        let answer = bench.set_attribute(7, node, name, &access_list());
        assert_ne!(answer, Answer::Error(libc::EPERM), "the owner's");
    }
}

#[test]
fn names_of_trusted_attributes_are_roots_to_see() {
    let mut bench = bench(None);
    let node = bench.lookup(b"f").nodeid;
    let set = bench.set_attribute(0, node, b"trusted.secret", b"1");
    let set = [set, bench.set_attribute(0, node, b"user.open", b"1")];
    if set != [Answer::Data(0); 2] {
        return assert_ne!(crate::sys::effective_uid(), 0, "root may set them: {set:?}");
    }
    for (user, expected) in [
        (0, &b"trusted.secret\0user.open\0"[..]),
        (1, b"user.open\0"),
    ] {
        for size in [0, 100] {
            let args = GetxattrIn {
                size,
                ..GetxattrIn::default()
            };
            let header = InHeader {
                uid: user,
                ..header(Opcode::Listxattr as u32, node)
            };
            let answer = bench.send_as(header, args.as_bytes(), &[]);
            if size == 0 {
                let told: GetxattrOut = bench.answered(answer);
                assert_eq!(told.size as usize, expected.len());
                continue;
            }
            assert_eq!(answer, Answer::Data(expected.len()));
            let listed = &bench.out[..expected.len()];
            let mut names: Vec<&[u8]> = listed.split_inclusive(|byte| *byte == 0).collect();
            names.sort_unstable();
            assert_eq!(names.concat(), expected);
        }
    }
}

#[test]
fn operations_without_an_answer_get_none_and_unknown_ones_enosys() {
    let mut bench = bench(None);
    let unserved = [
        Opcode::Flush,
        Opcode::Access,
        Opcode::CopyFileRange,
        Opcode::Interrupt,
    ];
    for opcode in unserved {
        let answer = bench.send(opcode, 1, &[0; 56], &[]);
        assert_eq!(answer, Answer::Error(libc::ENOSYS), "{opcode:?}");
    }
    for number in [0, 7, 31, 37, 39, 40, 44, 48, 53, 4096, u32::MAX] {
        let answer = bench.send_as(header(number, 1), &[], &[]);
        assert_eq!(answer, Answer::Error(libc::ENOSYS), "{number}");
    }
    let (f, d) = (bench.lookup(b"f").nodeid, bench.lookup(b"d").nodeid);
    assert_eq!(bench.fs.held(), (3, 0));
    let ones = [f, d].map(|nodeid| ForgetOne { nodeid, nlookup: 1 });
    let args = BatchForgetIn { count: 2, dummy: 0 };
    let answer = bench.send(Opcode::BatchForget, 0, args.as_bytes(), ones.as_bytes());
    assert_eq!((answer, bench.fs.held()), (Answer::Nothing, (1, 0)));
}

#[test]
fn an_owners_mount_refuses_others() {
    let me = crate::sys::effective_uid();
    let mut bench = bench(Some(me));
    let other = |opcode: Opcode| InHeader {
        uid: me + 1,
        ..header(opcode as u32, 1)
    };
    for opcode in [Opcode::Lookup, Opcode::Getattr, Opcode::Open] {
        let answer = bench.send_as(other(opcode), &[0; 40], b"f\0");
        assert_eq!(answer, Answer::Error(libc::EACCES), "{opcode:?}");
    }
    // The kernel may send these for itself.
    for opcode in [Opcode::Read, Opcode::Write, Opcode::Fsync, Opcode::Release] {
        let answer = bench.send_as(other(opcode), &[0; 40], &[]);
        assert_eq!(answer, Answer::Error(libc::EBADF), "{opcode:?}");
    }
    assert_eq!(
        bench.send_as(other(Opcode::Forget), &[0; 8], &[]),
        Answer::Nothing
    );
    assert_eq!(bench.lookup(b"f").attr.size, 10);
}

#[test]
fn requests_cut_anywhere_are_answered_and_change_nothing() {
    let mut bench = bench(None);
    let (f, d) = (bench.lookup(b"f").nodeid, bench.lookup(b"d").nodeid);
    let fh = bench.open(f);
    let known = (0..64)
        .filter_map(Opcode::new)
        .filter(|&opcode| opcode != Opcode::Destroy);
    let mut asked = 0;
    for opcode in known {
        for node in [0, 1, f, d, u64::MAX] {
            for cut in 0..opcode.args_len() {
                // Whatever is there of the struct is as good as it can be.
                let args = [fh.as_bytes(), &[0; 128]].concat();
                let answer = bench.send(opcode, node, &args[..cut], &[]);
                assert!(!matches!(answer, Answer::Data(_)), "{opcode:?}: {answer:?}");
                asked += 1;
            }
            let without_a_name = bench.send(opcode, node, &[], &[]);
            let needs_none = [Opcode::Readlink, Opcode::Statfs].contains(&opcode);
            let done = matches!(without_a_name, Answer::Data(_));
            assert!(!done || needs_none, "{opcode:?}: {without_a_name:?}");
        }
    }
    assert!(asked > 1000, "{asked} requests");
    assert_eq!(bench.fs.held(), (3, 1));
    assert_eq!(fs::read(bench.base().join("f")).unwrap(), b"0123456789");
    assert_eq!(fs::read_dir(bench.base()).unwrap().count(), 2);
}

#[test]
fn nonsense_about_what_is_not_there_is_answered() {
    let mut bench = bench(None);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        // Nodes and handles that never were: of the others all of these would be good requests.
        let mut args: Vec<u8> = (0..16).flat_map(|_| random().to_ne_bytes()).collect();
        args[..8].copy_from_slice(&(random() | 1 << 40).to_ne_bytes());
        let payload: Vec<u8> = (0..random() % 9)
            .flat_map(|_| (random() & random() & random()).to_ne_bytes())
            .collect();
        let node = random() | 1 << 40;
        let number = (random() % 64) as u32;
        let args = &args[..(random() % 129) as usize];
        let (whole, parts) = (header(number, node), header(number, node));
        let contiguous = bench.send_as(whole, args, &payload);
        let request = Incoming::from_parts(parts.as_bytes(), args, &payload).unwrap();
        let split = bench.frontend.dispatch(&request, &mut bench.out);
        for answer in [contiguous, split] {
            match answer {
                Answer::Error(code) => assert!((1..512).contains(&code), "{code}"),
                Answer::Nothing => assert!([2, 42].contains(&number), "{number}"),
                Answer::Data(len) => {
                    assert!([17, 38].contains(&number) && len <= 80, "{number}: {len}");
                }
            }
        }
    }
    assert_eq!(bench.fs.held(), (1, 0));
}

#[test]
fn only_what_the_mount_does_without_is_answered_as_unknown() {
    let mut bench = bench(None);
    let without = [
        Opcode::Flush,
        Opcode::Access,
        Opcode::CopyFileRange,
        Opcode::Interrupt,
    ];
    for opcode in without {
        let answer = bench.send(opcode, 1, &[0; 64], &[]);
        assert_eq!(answer, Answer::Error(libc::ENOSYS), "{opcode:?}");
    }
    // The kernel would not ask for it again.
    for code in 1..512 {
        let told = super::errno(&crate::sys::errno(code));
        let expected = match code {
            libc::ENOSYS => libc::EOPNOTSUPP,
            _ => code,
        };
        assert_eq!(told, expected);
    }
}

#[test]
fn a_directory_that_cannot_be_synced_is_synced_with_its_file_system() {
    // Directories of this one cannot.
    let fs = over(Path::new("/proc"));
    let directory = fs.opendir(1).unwrap();
    for data_only in [false, true] {
        fs.fsyncdir(directory, data_only).unwrap();
    }
    fs.release(directory).unwrap();
}

/// A fence that does not know yet, and nobody who must not wait may ask it to look.
struct Unseen;

impl thermocline::claim::Fence for Unseen {
    fn holds(&self) -> std::io::Result<()> {
        self.passes()
    }
    fn passes(&self) -> std::io::Result<()> {
        panic!("a thread that others wait for waits for base");
    }
    fn passes_now(&self) -> bool {
        false
    }
    fn reason(&self) -> Option<String> {
        None
    }
}

#[test]
fn a_read_is_begun_without_a_look_at_the_fence() {
    let mut bench = bench(None);
    let found = bench.lookup(b"f");
    let fh = bench.open(found.nodeid);
    bench.fs.engine().set_fence(Arc::new(Unseen));
    let caller = crate::fs::Caller {
        uid: 0,
        gid: 0,
        tid: 0,
    };
    let out = &mut bench.out[..10];
    let started = bench.fs.start_read(caller, fh, 0, out, 4096);
    assert!(matches!(started, thermocline::ReadStarted::Waits));
}
