//! The least that a read through FUSE costs: a mount with one file and no file system behind it.
//!
//! Its answers to reads are whatever the buffer holds, or one direct read of a file. It serves as
//! the mount does: through `/dev/fuse` with so many threads, or over io_uring with a thread pinned
//! to each CPU, whose ring reads the file too. Formats are those of `include/uapi/linux/fuse.h`.

use fuser::{Config, InitFlags, KernelConfig, Request, Session, SessionACL};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use thermocline::device::AlignedBuf;

/// Bytes of the largest answer.
const MOST: usize = 64 << 10;
/// Places for requests, a CPU.
const ENTRIES: usize = 16;
/// `sizeof(struct fuse_uring_req_header)`.
const HEAD: usize = 288;
/// Where the operation's own header begins in it.
const ARGS: usize = 128;
/// Where `struct fuse_uring_ent_in_out` begins in it.
const IN_OUT: usize = 256;
/// `sizeof(struct fuse_in_header)`.
const IN_HEADER: usize = 40;
/// `sizeof(struct fuse_out_header)`.
const OUT_HEADER: usize = 16;

/// A mount that does next to nothing.
pub(crate) struct Floor {
    mountpoint: PathBuf,
    serving: Vec<JoinHandle<()>>,
    session: Option<Session<Hello>>,
}

/// Agrees on what the mount agrees on.
struct Hello {
    ring: bool,
}

impl fuser::Filesystem for Hello {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .expect("every kernel");
        if self.ring {
            let added = config.add_capabilities(InitFlags::FUSE_OVER_IO_URING);
            added.expect("io_uring, where the mount has it");
        }
        config.set_max_write(MOST as u32).expect("a limit");
        config.set_max_background(64).expect("a limit");
        Ok(())
    }
}

impl Floor {
    /// Mounts on `mountpoint`. The file in it, `f`, has `len` bytes: those of `source`, when there
    /// is one. `threads` serve where `ring` does not.
    pub(crate) fn start(
        mountpoint: &Path,
        len: u64,
        source: Option<Arc<File>>,
        ring: bool,
        threads: usize,
    ) -> Self {
        std::fs::create_dir_all(mountpoint).expect("a directory");
        let mut config = Config::default();
        config.acl = SessionACL::All;
        let session = Session::new(Hello { ring }, mountpoint, &config).expect("a mount");
        let device = session.as_fd().try_clone_to_owned().expect("a descriptor");
        let serving = Arc::new(Serving {
            device: File::from(device),
            len,
            source,
        });
        let mut threads: Vec<_> = (0..if ring { 1 } else { threads })
            .map(|_| {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.by_device())
            })
            .collect();
        let cpus = if ring { cpus() } else { 0 };
        threads.extend((0..cpus).map(|cpu| {
            let serving = Arc::clone(&serving);
            std::thread::spawn(move || serving.by_ring(cpu))
        }));
        Self {
            mountpoint: mountpoint.into(),
            serving: threads,
            session: Some(session),
        }
    }

    /// The file in it.
    pub(crate) fn file(&self) -> PathBuf {
        self.mountpoint.join("f")
    }

    /// Unmounts; the file must not be open.
    pub(crate) fn end(mut self) {
        drop(self.session.take());
        for thread in self.serving.drain(..) {
            thread.join().expect("serves to the end");
        }
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How a request goes on.
enum Next {
    Answer(Result<usize, i32>),
    /// So many bytes from there on.
    Read(u64, usize),
    Nothing,
}

struct Serving {
    device: File,
    len: u64,
    source: Option<Arc<File>>,
}

impl Serving {
    /// Serves one request: its header, what follows it, and room for the answer.
    fn serve(&self, header: &[u8], args: &[u8], out: &mut [u8]) -> Next {
        let node = word64(header, 16);
        match word(header, 4) {
            // LOOKUP
            1 => {
                out[..128].fill(0);
                out[..8].copy_from_slice(&2u64.to_ne_bytes());
                out[16..24].copy_from_slice(&10u64.to_ne_bytes());
                out[24..32].copy_from_slice(&10u64.to_ne_bytes());
                self.attributes(2, &mut out[40..128]);
                Next::Answer(Ok(128))
            }
            // GETATTR
            3 => {
                out[..104].fill(0);
                out[..8].copy_from_slice(&10u64.to_ne_bytes());
                self.attributes(node, &mut out[16..104]);
                Next::Answer(Ok(104))
            }
            // OPEN: FOPEN_DIRECT_IO
            14 => {
                out[..16].fill(0);
                out[8..12].copy_from_slice(&1u32.to_ne_bytes());
                Next::Answer(Ok(16))
            }
            // READ
            15 => match &self.source {
                Some(_) => Next::Read(word64(args, 8), word(args, 16) as usize),
                None => Next::Answer(Ok(word(args, 16) as usize)),
            },
            // RELEASE
            18 => Next::Answer(Ok(0)),
            // FORGET, INTERRUPT, BATCH_FORGET
            2 | 36 | 42 => Next::Nothing,
            _ => Next::Answer(Err(libc::ENOSYS)),
        }
    }

    /// `struct fuse_attr`.
    fn attributes(&self, node: u64, out: &mut [u8]) {
        let (mode, len) = match node {
            1 => (libc::S_IFDIR | 0o755, 4096),
            _ => (libc::S_IFREG | 0o644, self.len),
        };
        out[..8].copy_from_slice(&node.to_ne_bytes());
        out[8..16].copy_from_slice(&len.to_ne_bytes());
        out[60..64].copy_from_slice(&mode.to_ne_bytes());
        out[64..68].copy_from_slice(&1u32.to_ne_bytes());
    }

    fn by_device(&self) {
        let (mut request, mut out) = (AlignedBuf::new(MOST + 8192), AlignedBuf::new(MOST));
        let mut device = &self.device;
        loop {
            let len = match device.read(&mut request) {
                Ok(len) => len,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
                Err(_) => return,
            };
            let (header, args) = request[..len].split_at(IN_HEADER);
            let answer = match self.serve(header, args, &mut out) {
                Next::Answer(answer) => answer,
                Next::Read(at, len) => {
                    let source = self.source.as_ref().expect("a file to read");
                    Ok(source.read_at(&mut out[..len], at).expect("reads"))
                }
                Next::Nothing => continue,
            };
            let head = out_header(word64(header, 8), answer);
            let data = [
                io::IoSlice::new(&head),
                io::IoSlice::new(&out[..answer.unwrap_or(0)]),
            ];
            // Nobody waits any more, or for nothing: the next read tells.
            let _ = device.write_vectored(&data);
        }
    }

    fn by_ring(&self, cpu: usize) {
        stay_on(cpu);
        let mut places: Vec<_> = (0..ENTRIES).map(|_| Place::new()).collect();
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(2 * ENTRIES as u32);
        let mut ring = ring.expect("a ring");
        let parts: Vec<_> = places.iter().map(|place| place.parts[1]).collect();
        // SAFETY: the places outlive the ring's requests: it is left when none is open.
        unsafe { ring.submitter().register_buffers(&parts) }.expect("buffers");
        for (index, place) in places.iter().enumerate() {
            self.command(&mut ring, place, index, cpu, 1);
        }
        let mut gone = 0;
        while gone < ENTRIES {
            match ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => panic!("{error}"),
                _ => {}
            }
            let done: Vec<_> = ring.completion().collect();
            for one in done {
                let (index, flown) = ((one.user_data() & 0xffff) as usize, one.user_data() >> 16);
                if flown == 0 && one.result() != 0 {
                    gone += 1;
                    continue;
                }
                let place = &mut places[index];
                let next = match flown {
                    0 => {
                        let (head, out) = (&place.head[..], &mut place.payload[..]);
                        self.serve(&head[..IN_HEADER], &head[ARGS..IN_OUT], out)
                    }
                    _ => Next::Answer(usize::try_from(one.result()).map_err(|_| libc::EIO)),
                };
                match next {
                    Next::Answer(answer) => {
                        place.answer(answer);
                        self.command(&mut ring, &places[index], index, cpu, 2);
                    }
                    Next::Read(at, len) => {
                        let source = self.source.as_ref().expect("a file to read");
                        let to = place.payload[..len].as_mut_ptr();
                        let read = opcode::ReadFixed::new(
                            Fd(source.as_raw_fd()),
                            to,
                            len as u32,
                            index as u16,
                        );
                        let read = squeue::Entry128::from(read.offset(at).build());
                        push(&mut ring, &read.user_data(1 << 16 | index as u64));
                    }
                    Next::Nothing => panic!("such requests come through the device"),
                }
            }
        }
    }

    /// Gives a place to the kernel: `FUSE_IO_URING_CMD_REGISTER` or `_COMMIT_AND_FETCH`.
    fn command(
        &self,
        ring: &mut IoUring<squeue::Entry128, cqueue::Entry>,
        place: &Place,
        index: usize,
        cpu: usize,
        command: u32,
    ) {
        let mut body = [0; 80];
        body[8..16].copy_from_slice(&place.head[IN_OUT + 8..IN_OUT + 16]);
        body[16..18].copy_from_slice(&(cpu as u16).to_ne_bytes());
        let mut built = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), command)
            .cmd(body)
            .addr(Some(place.parts.as_ptr().addr() as u64))
            .build()
            .user_data(index as u64);
        // SAFETY: `len` of `struct io_uring_sqe` is at byte 24; the crate has no word for it here.
        unsafe { (&raw mut built).cast::<u32>().add(6).write(2) };
        push(ring, &built);
    }
}

/// A place for one request: what the kernel writes, and where the answer's data goes.
struct Place {
    head: Box<[u8; HEAD]>,
    payload: AlignedBuf,
    parts: Box<[libc::iovec; 2]>,
}

impl Place {
    fn new() -> Self {
        let (mut head, mut payload) = (Box::new([0; HEAD]), AlignedBuf::new(MOST));
        let part = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let parts = Box::new([part(&mut head[..]), part(&mut payload)]);
        Self {
            head,
            payload,
            parts,
        }
    }

    fn answer(&mut self, answer: Result<usize, i32>) {
        let unique = word64(&self.head[..], IN_OUT + 8);
        self.head[..OUT_HEADER].copy_from_slice(&out_header(unique, answer));
        let len = answer.unwrap_or(0) as u32;
        self.head[IN_OUT + 16..IN_OUT + 20].copy_from_slice(&len.to_ne_bytes());
    }
}

fn push(ring: &mut IoUring<squeue::Entry128, cqueue::Entry>, entry: &squeue::Entry128) {
    // SAFETY: what entries point to are places, which outlive the ring's requests.
    unsafe { ring.submission().push(entry) }.expect("room for one a place");
}

fn out_header(unique: u64, answer: Result<usize, i32>) -> [u8; OUT_HEADER] {
    let mut out = [0; OUT_HEADER];
    let len = OUT_HEADER + answer.unwrap_or(0);
    out[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    out[4..8].copy_from_slice(&(-answer.err().unwrap_or(0)).to_ne_bytes());
    out[8..].copy_from_slice(&unique.to_ne_bytes());
    out
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn stay_on(cpu: usize) {
    // SAFETY: an all-zero set is a valid empty one, and the call reads as many bytes as it has.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
