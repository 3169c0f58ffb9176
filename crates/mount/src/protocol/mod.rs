//! The FUSE protocol: requests taken apart, answers put together. No I/O.
//!
//! A request is a header, a struct of the operation's own and the rest (names, data). Reads of
//! `/dev/fuse` bring all of it in one piece, other transports bring the three apart; [`Incoming`]
//! is the same either way. What is not there is an error of whoever asks for it: a request that
//! the kernel would never send is answered with `EIO`, and nothing here panics over its bytes.

mod wire;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use wire::*;

use crate::fs::Listed;
use crate::sys;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) header: InHeader,
    /// The operation's struct, or what there is of it.
    pub(crate) args: &'a [u8],
    /// What follows it: names, each with its NUL, and data.
    pub(crate) payload: &'a [u8],
}

impl<'a> Incoming<'a> {
    /// Takes a request in one piece apart. `None` when it is none: too short for its header, or
    /// shorter than its header says.
    pub(crate) fn parse(contiguous: &'a [u8]) -> Option<Self> {
        let (header, rest) = InHeader::read_from_prefix(contiguous).ok()?;
        let len = (header.len as usize).checked_sub(size_of::<InHeader>())?;
        let rest = rest.get(..len)?;
        let (args, payload) = rest.split_at(args_len(&header).min(rest.len()));
        assert_eq!(args.len() + payload.len(), len, "all of it");
        Some(Self {
            header,
            args,
            payload,
        })
    }

    /// A request that came in three parts; `args` may be longer than the operation's struct.
    /// `None` when the header is not whole.
    pub(crate) fn from_parts(header: &[u8], args: &'a [u8], payload: &'a [u8]) -> Option<Self> {
        let (header, _) = InHeader::read_from_prefix(header).ok()?;
        let args = &args[..args_len(&header).min(args.len())];
        Some(Self {
            header,
            args,
            payload,
        })
    }

    /// The operation, if the mount knows it.
    pub(crate) fn opcode(&self) -> Option<Opcode> {
        Opcode::new(self.header.opcode)
    }

    /// The operation's struct.
    ///
    /// # Errors
    /// `EIO` when it is not whole.
    pub(crate) fn args<T: FromBytes>(&self) -> io::Result<T> {
        let (args, _) = T::read_from_prefix(self.args).map_err(|_| malformed())?;
        Ok(args)
    }

    /// The name that the payload begins with, and what follows its NUL.
    ///
    /// # Errors
    /// `EIO` without a NUL.
    pub(crate) fn name(&self) -> io::Result<(&'a OsStr, &'a [u8])> {
        split_name(self.payload)
    }

    /// The two names in the payload.
    ///
    /// # Errors
    /// `EIO` when there are fewer.
    pub(crate) fn two_names(&self) -> io::Result<(&'a OsStr, &'a OsStr)> {
        let (first, rest) = split_name(self.payload)?;
        Ok((first, split_name(rest)?.0))
    }

    /// The inodes of a `BATCH_FORGET`, with the lookups taken back of each; without those that
    /// were announced but are not there.
    pub(crate) fn forgotten(&self) -> impl Iterator<Item = ForgetOne> + 'a {
        let count = self.args::<BatchForgetIn>().map_or(0, |args| args.count);
        let each = self.payload.chunks_exact(size_of::<ForgetOne>());
        each.take(count as usize)
            .filter_map(|bytes| ForgetOne::read_from_bytes(bytes).ok())
    }
}

/// What the kernel is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done; as many bytes were put at the start of the answer's buffer.
    Data(usize),
    /// A positive `errno`.
    Error(i32),
    /// Nothing at all: the kernel waits for no answer.
    Nothing,
}

fn args_len(header: &InHeader) -> usize {
    Opcode::new(header.opcode).map_or(0, Opcode::args_len)
}

/// A request that the kernel would not send.
pub(crate) fn malformed() -> io::Error {
    sys::errno(libc::EIO)
}

fn split_name(bytes: &[u8]) -> io::Result<(&OsStr, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let (name, rest) = bytes.split_at(end.ok_or_else(malformed)?);
    assert_eq!(rest.first(), Some(&0), "a name ends with its NUL");
    Ok((OsStr::from_bytes(name), &rest[1..]))
}

/// Puts a struct at the start of an answer; its length.
pub(crate) fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> usize {
    let bytes = value.as_bytes();
    assert!(bytes.len() <= out.len(), "an answer has room for a struct");
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// A directory's entries as the kernel wants them.
pub(crate) struct Listing<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Listing<'a> {
    /// A listing as long as `out` at most.
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Adds an entry if there is room for it; whether there was none.
    pub(crate) fn push(&mut self, entry: &Listed<'_>) -> bool {
        let name = entry.name.as_bytes();
        let head = Dirent {
            ino: entry.ino,
            off: entry.next,
            namelen: name.len() as u32,
            kind: u32::from(entry.kind),
        };
        let len = size_of::<Dirent>() + name.len();
        let Some(out) = self.out.get_mut(self.len..) else {
            return true;
        };
        let Some(out) = out.get_mut(..len.next_multiple_of(size_of::<u64>())) else {
            return true;
        };
        let at = put(out, &head);
        out[at..len].copy_from_slice(name);
        out[len..].fill(0);
        self.len += out.len();
        assert!(self.len.is_multiple_of(size_of::<u64>()), "entries align");
        false
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as `/dev/fuse` gives it.
    fn contiguous(opcode: u32, args: &[u8], payload: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + args.len() + payload.len()) as u32,
            opcode,
            unique: 7,
            nodeid: 1,
            ..InHeader::default()
        };
        [header.as_bytes(), args, payload].concat()
    }

    #[test]
    fn a_rename_comes_apart_the_same_from_both_transports() {
        let args = Rename2In {
            newdir: 9,
            flags: 2,
            padding: 0,
        };
        let number = Opcode::Rename2 as u32;
        let whole = contiguous(number, args.as_bytes(), b"old\0new\0");
        // Zeros follow the struct where the kernel has one size for all of them.
        let padded = [args.as_bytes(), &[0; 112]].concat();
        let requests = [
            Incoming::parse(&whole).unwrap(),
            Incoming::from_parts(&whole[..40], &padded, b"old\0new\0").unwrap(),
        ];
        for request in requests {
            assert_eq!(request.opcode(), Some(Opcode::Rename2));
            assert_eq!((request.header.unique, request.header.nodeid), (7, 1));
            let args: Rename2In = request.args().unwrap();
            assert_eq!((args.newdir, args.flags), (9, 2));
            let (old, new) = request.two_names().unwrap();
            assert_eq!((old, new), (OsStr::new("old"), OsStr::new("new")));
            assert_eq!(request.name().unwrap().1, b"new\0");
        }
    }

    #[test]
    fn what_follows_a_request_is_not_of_it() {
        let mut bytes = contiguous(Opcode::Write as u32, &[0; 40], b"data");
        bytes.extend_from_slice(b"of the request before");
        let request = Incoming::parse(&bytes).unwrap();
        assert_eq!((request.args.len(), request.payload), (40, &b"data"[..]));
    }

    #[test]
    fn truncated_requests_of_every_kind_are_refused_without_a_panic() {
        for number in 0..64 {
            let whole = contiguous(number, &[0xff; 128], b"name without an end");
            for cut in 0..whole.len() {
                assert!(Incoming::parse(&whole[..cut]).is_none(), "{number}: {cut}");
                let mut honest = whole[..cut].to_vec();
                if let Some(len) = honest.get_mut(..4) {
                    len.copy_from_slice(&(cut as u32).to_ne_bytes());
                }
                let Some(request) = Incoming::parse(&honest) else {
                    assert!(cut < 40, "{number}: {cut} bytes have a whole header");
                    continue;
                };
                let all = request.args.len() + request.payload.len();
                assert_eq!(all, cut - 40);
                assert!(request.name().is_err() && request.two_names().is_err());
                let short = request.args.len() < args_len(&request.header);
                assert_eq!(request.args::<[u8; 8]>().is_err(), request.args.len() < 8);
                assert!(!short || request.payload.is_empty());
                assert!(request.forgotten().count() <= request.payload.len() / 16);
            }
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let mut bytes = contiguous(1, b"", b"name\0");
        for len in [0_u32, 39, 46, u32::MAX] {
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            assert!(Incoming::parse(&bytes).is_none(), "{len}");
        }
        bytes[..4].copy_from_slice(&40_u32.to_ne_bytes());
        assert!(Incoming::parse(&bytes).unwrap().payload.is_empty());
        assert!(Incoming::from_parts(&bytes[..39], &[], &[]).is_none());
    }

    #[test]
    fn a_batch_forgets_what_is_there() {
        let ones = [(5, 1), (6, 2), (7, 3)].map(|(nodeid, nlookup)| ForgetOne { nodeid, nlookup });
        for (count, there) in [(0, 0), (2, 2), (3, 3), (u32::MAX, 3)] {
            let args = BatchForgetIn { count, dummy: 0 };
            let whole = contiguous(42, args.as_bytes(), &[ones.as_bytes(), &[1; 15]].concat());
            let request = Incoming::parse(&whole).unwrap();
            let found: Vec<_> = request.forgotten().map(|one| one.nodeid).collect();
            assert_eq!(found, [5, 6, 7][..there], "{count}");
        }
    }

    #[test]
    fn entries_are_padded_and_never_cut() {
        let entry = |name| Listed {
            ino: 3,
            next: 4,
            kind: libc::DT_DIR,
            name: OsStr::new(name),
        };
        let mut out = [0xff; 71];
        let mut listing = Listing::new(&mut out);
        assert!(!listing.push(&entry("hello")));
        assert!(!listing.push(&entry("eightlen")));
        assert!(listing.push(&entry("")), "7 bytes are left");
        assert_eq!(listing.len(), 32 + 32);
        let (head, rest) = Dirent::read_from_prefix(&out).unwrap();
        assert_eq!((head.ino, head.off, head.namelen, head.kind), (3, 4, 5, 4));
        assert_eq!(&rest[..8], b"hello\0\0\0");
        assert_eq!(&out[56..], b"eightlen\xff\xff\xff\xff\xff\xff\xff");
    }
}
