//! Requests over io_uring: `Documentation/filesystems/fuse/fuse-io-uring.rst` and
//! `include/uapi/linux/fuse.h` of Linux 6.14 and later (`fuse_uring_req_header`,
//! `fuse_uring_cmd_req`, `FUSE_IO_URING_CMD_*`).
//!
//! The kernel has one queue for each CPU that there may ever be, and gives a request to the queue
//! of the CPU that its caller is on. So one thread serves each CPU, and stays on it: the caller
//! sleeps, and whoever serves it runs in its place. The thread never waits for anything but its
//! ring. Reads whose pages are on flash are requests of the same ring, answered when they complete
//! (`thermocline::FlashRead`). Everything else is done by workers of the same CPU, which may wait
//! for base, for a sync, or for each other.
//!
//! States of an *entry*, a place for one request: *with the kernel* → *at hand* (a request came) →
//! *flying* (its pages are being read from flash) or *working* (a worker has it) → *at hand* →
//! *with the kernel* (answered, ready for the next), or → *gone* (the connection ended).
//!
//! States of a *lane*, a buffer for flash reads: *free* → *flying* → *free*, or → *late* (the
//! device did not answer in time, the request was answered from base) → *free* (it did answer).
//!
//! # Invariants
//! 1. An entry's memory is where the kernel was told, and is touched by nobody else while the
//!    entry is with the kernel.
//! 2. Bytes from flash go to a lane first, and from there, verified, to the entry. What a late
//!    device still writes can reach a lane that nobody reads, and nothing else.
//! 3. A lane is free only when the kernel has ended all its reads.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use thermocline::device::{AlignedBuf, Late};
use thermocline::{FailedRead, FlashRead};

use crate::fuse::{Frontend, REQUEST_MAX, Start};
use crate::lock::{lock, wait};
use crate::protocol::{Answer, Incoming};

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// `sizeof(struct fuse_uring_req_header)`: two headers of 128 bytes and what follows.
const HEAD: usize = 288;
/// Where the operation's first argument begins in it.
const ARGS: usize = 128;
/// Where `struct fuse_uring_ent_in_out` begins in it.
const IN_OUT: usize = 256;
/// Parts of an entry's memory: head and payload.
const PARTS: u32 = 2;

/// Entries of a queue, where there are few queues: more requests than that wait in the kernel.
const ENTRIES_MAX: usize = 64;
/// Entries of a queue, however many there are.
const ENTRIES_MIN: usize = 8;
/// Entries of the queues of all usable CPUs together, where there are many.
const ENTRIES_ALL: usize = 256;
/// Bytes of a lane: longer reads are a worker's.
const LANE: usize = 128 << 10;
/// Lanes of a thread.
const LANES: usize = 32;
/// How often a flash read that is under way is looked at, at least.
const LOOK: Duration = Duration::from_millis(100);
/// The same when one should have ended.
const LOOK_OVERDUE: Duration = Duration::from_millis(1);
/// Looks after which such a read is late. Should this thread have stood still, not the device, then
/// the kernel tells what has ended meanwhile, some at each look.
const LOOKS: u8 = 50;

/// What a completion is about, in the upper bits of its user data.
const OF_ENTRY: u64 = 0 << 56;
const OF_LANE: u64 = 1 << 56;
const OF_WORKERS: u64 = 2 << 56;

/// The memory of an entry.
struct Memory {
    head: Box<[u8; HEAD]>,
    payload: AlignedBuf,
    /// What the kernel is told at the registration: head and payload.
    parts: Box<[libc::iovec; PARTS as usize]>,
}

// SAFETY: the pointers in `parts` are to the other fields' memory, which goes where they go.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Self {
        let mut head = Box::new([0; HEAD]);
        let mut payload = AlignedBuf::new(REQUEST_MAX);
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

    fn number(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.head[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }

    /// Bytes of the payload that came with the request.
    fn came(&self) -> usize {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.head[IN_OUT + 16..IN_OUT + 20]);
        (u32::from_ne_bytes(bytes) as usize).min(self.payload.len())
    }

    /// The number under which the request is answered.
    fn commit_id(&self) -> u64 {
        self.number(IN_OUT + 8)
    }

    /// Puts an answer in: `struct fuse_out_header`, and how long the payload is.
    fn answer(&mut self, answer: &Answer) {
        let (error, len) = match *answer {
            Answer::Data(len) => (0, len),
            Answer::Error(code) => (code, 0),
            Answer::Nothing => (0, 0),
        };
        assert!(len <= self.payload.len() && error >= 0, "{error}, {len}");
        let unique = self.number(8);
        self.head[..4].copy_from_slice(&(16 + len as u32).to_ne_bytes());
        self.head[4..8].copy_from_slice(&(-error).to_ne_bytes());
        self.head[8..16].copy_from_slice(&unique.to_ne_bytes());
        self.head[IN_OUT + 16..IN_OUT + 20].copy_from_slice(&(len as u32).to_ne_bytes());
    }
}

/// A place for one request of one queue.
struct Entry {
    queue: u16,
    /// `None`: a worker has it.
    memory: Option<Box<Memory>>,
    gone: bool,
}

/// Flash reads of one request, or what is left of them.
struct Flight {
    entry: usize,
    /// `None`: it is late, and was given up.
    read: Option<FlashRead>,
    results: Vec<Option<io::Result<usize>>>,
    /// Parts that the kernel has not ended.
    left: usize,
    until: Option<Instant>,
    /// Looks at it since it should have ended.
    overdue: u8,
    late: Option<Late>,
}

/// What a worker is to do.
enum Job {
    Serve,
    /// A flash read that needs base after all.
    Fetch(Box<FailedRead>, usize),
}

/// What threads of one CPU share.
struct Workers {
    state: Mutex<Work>,
    wanted: Condvar,
    /// Written to when something was done.
    bell: File,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<(usize, Box<Memory>, Job)>,
    done: Vec<(usize, Box<Memory>, Answer)>,
    idle: usize,
    threads: usize,
    ended: bool,
}

/// The thread of a CPU.
pub(super) struct Server {
    frontend: Arc<Frontend>,
    device: Arc<File>,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    lanes: Vec<AlignedBuf>,
    /// Whether the lanes are registered as buffers.
    fixed: bool,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    workers: Arc<Workers>,
    rung: Box<[u8; 8]>,
    cpu: usize,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// Whether this system has what it takes.
pub(crate) fn available() -> bool {
    let ring = builder().build(4);
    ring.is_ok() && possible_cpus().is_ok()
}

/// What serves each CPU that this process may use. The kernel sends requests once every queue has
/// an entry.
///
/// # Errors
/// Those of io_uring and of memory.
pub(super) fn prepare(frontend: &Arc<Frontend>, device: &Arc<File>) -> io::Result<Vec<Server>> {
    let cpus = usable_cpus();
    let queues = possible_cpus()?;
    assert!(!cpus.is_empty() && queues > 0, "there is a CPU");
    let entries = (ENTRIES_ALL / cpus.len()).clamp(ENTRIES_MIN, ENTRIES_MAX);
    let server = |(index, &cpu): (usize, &usize)| {
        // A CPU without a thread of its own: its queue is somebody else's.
        let others = (0..queues).filter(|queue| !cpus.contains(queue));
        let others = others.filter(|queue| queue % cpus.len() == index);
        let mine = std::iter::repeat_n(cpu as u16, entries);
        // Their callers may be many as well: they are CPUs that this process may not use.
        let others = others.flat_map(|queue| std::iter::repeat_n(queue as u16, ENTRIES_MIN));
        let all = mine.chain(others).collect();
        Server::new(frontend, device, cpu, all)
    };
    cpus.iter().enumerate().map(server).collect()
}

fn builder() -> io_uring::Builder<squeue::Entry128, cqueue::Entry> {
    let mut builder = IoUring::builder();
    // Only its thread enters it, and completions come when it does.
    builder
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun();
    builder
}

impl Server {
    fn new(
        frontend: &Arc<Frontend>,
        device: &Arc<File>,
        cpu: usize,
        queues: Vec<u16>,
    ) -> io::Result<Self> {
        let size = (queues.len() + LANES + 1).next_power_of_two() as u32;
        let ring = builder().build(size)?;
        let mut lanes: Vec<_> = (0..LANES).map(|_| AlignedBuf::new(LANE)).collect();
        let parts: Vec<_> = lanes
            .iter_mut()
            .map(|lane| libc::iovec {
                iov_base: lane.as_mut_ptr().cast(),
                iov_len: lane.len(),
            })
            .collect();
        // SAFETY: the lanes stay allocated as long as the ring: see `Drop`.
        let fixed = unsafe { ring.submitter().register_buffers(&parts) }.is_ok();
        // SAFETY: the call takes no pointers, and gives a new descriptor or an error.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        let workers = Workers {
            state: Mutex::default(),
            wanted: Condvar::new(),
            // SAFETY: a descriptor that nobody else has.
            bell: unsafe { File::from_raw_fd(bell) },
        };
        let entry = |queue| Entry {
            queue,
            memory: Some(Box::new(Memory::new())),
            gone: false,
        };
        Ok(Self {
            frontend: Arc::clone(frontend),
            device: Arc::clone(device),
            ring,
            entries: queues.into_iter().map(entry).collect(),
            lanes,
            fixed,
            flights: (0..LANES).map(|_| None).collect(),
            free: (0..LANES).collect(),
            workers: Arc::new(workers),
            rung: Box::new([0; 8]),
            cpu,
            threads: Vec::new(),
        })
    }

    /// What to call its thread.
    pub(super) fn name(&self) -> String {
        format!("fuse-cpu-{}", self.cpu)
    }

    /// Serves until the connection ends.
    ///
    /// # Errors
    /// Those of io_uring: nobody serves this CPU any more.
    pub(super) fn run(mut self, abort: impl FnOnce()) -> io::Result<()> {
        let frontend = Arc::clone(&self.frontend);
        let _watch = frontend.watch();
        stay_on(self.cpu);
        let result = self.add_worker().and_then(|()| self.serve());
        if result.is_err() {
            // Before anything is waited for: whoever waits for this CPU gets an error.
            abort();
        }
        let mut work = lock(&self.workers.state);
        work.ended = true;
        self.workers.wanted.notify_all();
        drop(work);
        self.give_up_flights();
        for thread in mem::take(&mut self.threads) {
            let end = thread.join();
            assert!(end.is_ok(), "a panic of a worker ends the process");
        }
        result
    }

    fn serve(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        for index in 0..self.entries.len() {
            self.command(index, REGISTER, 0);
        }
        self.listen();
        let mut completed = Vec::new();
        while !self.entries.iter().all(|entry| entry.gone) {
            self.wait()?;
            let completions = self.ring.completion();
            completed.extend(completions.map(|one| (one.user_data(), one.result())));
            for (data, result) in completed.drain(..) {
                let index = (data & 0xffff_ffff) as usize;
                match data & !((1 << 56) - 1) {
                    OF_ENTRY => self.arrived(index, result)?,
                    OF_LANE => self.landed(index & 0xffff, index >> 16, result),
                    _ => self.answer_done(),
                }
            }
            self.look_for_late();
        }
        Ok(())
    }

    /// Hands over what was prepared, and sleeps until something completes.
    fn wait(&mut self) -> io::Result<()> {
        let flying = self.free.len() < LANES;
        let entered = match flying {
            false => self.ring.submit_and_wait(1),
            true => {
                let overdue = |flight: &Flight| flight.overdue > 0 && flight.read.is_some();
                let overdue = self.flights.iter().flatten().any(overdue);
                let time = Timespec::from(if overdue { LOOK_OVERDUE } else { LOOK });
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY), _)) => Ok(()),
            Err((Some(libc::EAGAIN), _)) => {
                // Memory is short at the moment.
                std::thread::sleep(LOOK_OVERDUE);
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    fn push(&mut self, entry: &squeue::Entry128) {
        // SAFETY: what entries point to (an entry's memory, a lane, `rung`) stays where it is and
        // allocated until they have completed; `Drop` sees to those that never do.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if let Err(error) = self.ring.submit() {
                let codes = [libc::EINTR, libc::EBUSY, libc::EAGAIN];
                let passing = error
                    .raw_os_error()
                    .is_some_and(|code| codes.contains(&code));
                assert!(passing, "the ring takes no more: {error}");
            }
        }
    }

    /// Gives an entry to the kernel.
    fn command(&mut self, index: usize, command: u32, commit_id: u64) {
        let entry = &self.entries[index];
        let Some(memory) = &entry.memory else {
            panic!("invariant 1: a worker has the entry's memory");
        };
        // `struct fuse_uring_cmd_req`: flags, commit_id, qid.
        let mut body = [0; 80];
        body[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        body[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let parts = memory.parts.as_ptr().addr() as u64;
        let mut built = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), command)
            .cmd(body)
            .addr(Some(parts))
            .build()
            .user_data(OF_ENTRY | index as u64);
        // SAFETY: the entry is `struct io_uring_sqe` of `include/uapi/linux/io_uring.h`, whose
        // `len` is at byte 24; the crate has no word for it here.
        unsafe { (&raw mut built).cast::<u32>().add(6).write(PARTS) };
        self.push(&built);
    }

    /// Waits for the workers' bell.
    fn listen(&mut self) {
        let bell = Fd(self.workers.bell.as_raw_fd());
        let read = opcode::Read::new(bell, self.rung.as_mut_ptr(), 8).build();
        self.push(&squeue::Entry128::from(read).user_data(OF_WORKERS));
    }

    /// An entry came back from the kernel: with a request, or for good.
    fn arrived(&mut self, index: usize, result: i32) -> io::Result<()> {
        match result {
            0 => {}
            _ if result == -libc::EAGAIN || result == -libc::EINTR => {
                return Err(io::Error::from_raw_os_error(-result));
            }
            _ => {
                self.entries[index].gone = true;
                let ends = [
                    libc::ENOTCONN,
                    libc::ECONNABORTED,
                    libc::ECANCELED,
                    libc::ENODEV,
                ];
                return match ends.contains(&-result) {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(-result)),
                };
            }
        }
        let Some(mut memory) = self.entries[index].memory.take() else {
            panic!("invariant 1: the kernel had the entry");
        };
        let most = if self.free.is_empty() { 0 } else { LANE };
        let Memory { head, payload, .. } = &mut *memory;
        let started = match Incoming::from_parts(&head[..ARGS], &head[ARGS..IN_OUT], &[]) {
            Some(request) => self.frontend.start(&request, payload, most),
            None => Start::Waits,
        };
        match started {
            Start::Done(answer) => self.reply(index, memory, &answer),
            Start::Waits => self.hand_over(index, memory, Job::Serve),
            Start::Flash(read) => {
                self.entries[index].memory = Some(memory);
                self.fly(index, read);
            }
        }
        Ok(())
    }

    fn reply(&mut self, index: usize, mut memory: Box<Memory>, answer: &Answer) {
        memory.answer(answer);
        let commit_id = memory.commit_id();
        self.entries[index].memory = Some(memory);
        self.command(index, COMMIT_AND_FETCH, commit_id);
    }

    /// Has the pages of a request read from flash.
    fn fly(&mut self, entry: usize, read: FlashRead) {
        let Some(lane) = self.free.pop() else {
            panic!("without a free lane none is asked for");
        };
        assert!(self.flights[lane].is_none(), "invariant 3: a free lane");
        assert!(read.length() <= LANE, "no more than was asked for");
        let file = read.file();
        // Of a file that is lent no more the read fails, and goes to base.
        let fd = Fd(file.map_or(-1, |file| file.file().as_raw_fd()));
        let deadline = file.and_then(|file| file.deadline());
        let until = deadline.map(|deadline| Instant::now() + deadline);
        let mut prepared = Vec::new();
        let mut at = 0;
        for (part, (offset, len)) in read.parts().enumerate() {
            let to = self.lanes[lane][at..at + len].as_mut_ptr();
            at += len;
            let built = match self.fixed {
                true => opcode::ReadFixed::new(fd, to, len as u32, lane as u16)
                    .offset(offset)
                    .build(),
                false => opcode::Read::new(fd, to, len as u32).offset(offset).build(),
            };
            let data = OF_LANE | (part as u64) << 16 | lane as u64;
            prepared.push(squeue::Entry128::from(built).user_data(data));
        }
        let left = prepared.len();
        self.flights[lane] = Some(Flight {
            entry,
            read: Some(read),
            results: (0..left).map(|_| None).collect(),
            left,
            until,
            overdue: 0,
            late: None,
        });
        for one in &prepared {
            self.push(one);
        }
    }

    /// A flash read completed.
    fn landed(&mut self, lane: usize, part: usize, result: i32) {
        let Some(flight) = &mut self.flights[lane] else {
            panic!("invariant 3: a lane is free only when its reads have ended");
        };
        let outcome = usize::try_from(result);
        let outcome = outcome.map_err(|_| io::Error::from_raw_os_error(-result));
        let before = flight.results[part].replace(outcome);
        assert!(before.is_none(), "a read completes once");
        flight.left -= 1;
        if flight.left > 0 {
            return;
        }
        if flight.read.is_some() {
            self.end(lane);
        }
        self.flights[lane] = None;
        self.free.push(lane);
    }

    /// Ends the read of a flight: with what it has by now.
    fn end(&mut self, lane: usize) {
        let Some(flight) = &mut self.flights[lane] else {
            panic!("a lane that flies");
        };
        let (entry, Some(read)) = (flight.entry, flight.read.take()) else {
            panic!("a read ends once");
        };
        let open = flight.results.iter().filter(|result| result.is_none());
        assert_eq!(
            open.count(),
            flight.left,
            "invariant 2: what the device may still write to is no part of an answer"
        );
        let result = |result: &mut Option<io::Result<usize>>| match result {
            Some(Ok(moved)) => Ok(*moved),
            Some(Err(error)) => Err(io::Error::from(error.kind())),
            None => Err(io::ErrorKind::TimedOut.into()),
        };
        let results: Vec<_> = flight.results.iter_mut().map(result).collect();
        let length = read.length();
        let Some(mut memory) = self.entries[entry].memory.take() else {
            panic!("invariant 1: an entry that flies is with its thread");
        };
        let reply = &mut memory.payload[..length];
        match self
            .frontend
            .end_read(read, &results, &self.lanes[lane][..length], reply)
        {
            Ok(answer) => self.reply(entry, memory, &answer),
            Err(failed) => self.hand_over(entry, memory, Job::Fetch(failed, length)),
        }
    }

    /// Gives up what is late. The lanes stay the device's until it answers.
    fn look_for_late(&mut self) {
        if self.free.len() == LANES {
            return;
        }
        let now = Instant::now();
        for lane in 0..LANES {
            let Some(flight) = &mut self.flights[lane] else {
                continue;
            };
            let overdue = flight.until.is_some_and(|until| until <= now);
            flight.overdue = flight.overdue.saturating_add(u8::from(overdue));
            let late = flight.overdue > LOOKS;
            let Some(read) = flight.read.as_ref().filter(|_| late) else {
                continue;
            };
            let counted = read.file().map(|file| file.late());
            flight.late = counted;
            self.end(lane);
        }
    }

    fn hand_over(&mut self, index: usize, memory: Box<Memory>, job: Job) {
        assert!(
            self.entries[index].memory.is_none(),
            "invariant 1: one has it"
        );
        let mut work = lock(&self.workers.state);
        work.jobs.push_back((index, memory, job));
        if work.jobs.len() <= work.idle {
            drop(work);
            self.workers.wanted.notify_one();
            return;
        }
        if work.threads < self.entries.len() {
            drop(work);
            // Without one more the others do it, one after another.
            let _ = self.add_worker();
        }
    }

    fn add_worker(&mut self) -> io::Result<()> {
        let (workers, frontend) = (Arc::clone(&self.workers), Arc::clone(&self.frontend));
        let (cpu, number) = (self.cpu, self.threads.len());
        // Their panics end the process.
        let thread = std::thread::Builder::new()
            .name(format!("fuse-{cpu}-{number}"))
            .spawn(move || {
                stay_on(cpu);
                workers.work(&frontend);
            })?;
        self.threads.push(thread);
        lock(&self.workers.state).threads += 1;
        Ok(())
    }

    /// Answers what workers have done.
    fn answer_done(&mut self) {
        self.listen();
        let done = mem::take(&mut lock(&self.workers.state).done);
        for (index, memory, answer) in done {
            self.reply(index, memory, &answer);
        }
    }

    /// The connection has ended: nobody waits for what flies.
    fn give_up_flights(&mut self) {
        for flight in self.flights.iter_mut().flatten() {
            let Some(read) = flight.read.take() else {
                continue;
            };
            // No fault of the device: it is asked again.
            let interrupted = || Err(io::ErrorKind::Interrupted.into());
            let results: Vec<_> = flight.results.iter().map(|_| interrupted()).collect();
            let length = read.length();
            let mut reply = AlignedBuf::new(length);
            let lane = AlignedBuf::new(length);
            let ended = self.frontend.end_read(read, &results, &lane, &mut reply);
            if let Err(failed) = ended {
                let _ = self.frontend.fetch(*failed, &mut reply);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Reads that the kernel has not ended may still write to their lanes, and an entry that it
        // has not given back is its own: such memory is never used again.
        if self.free.len() < LANES {
            mem::take(&mut self.lanes).into_iter().for_each(mem::forget);
        }
        for entry in &mut self.entries {
            if !entry.gone {
                mem::forget(entry.memory.take());
            }
        }
        mem::forget(mem::replace(&mut self.rung, Box::new([0; 8])));
    }
}

impl Workers {
    /// The life of a worker.
    fn work(&self, frontend: &Frontend) {
        let _watch = frontend.watch();
        let mut scratch = AlignedBuf::new(REQUEST_MAX);
        let mut work = lock(&self.state);
        loop {
            if let Some((index, mut memory, job)) = work.jobs.pop_front() {
                drop(work);
                let answer = serve(frontend, &mut memory, &mut scratch, job);
                work = lock(&self.state);
                work.done.push((index, memory, answer));
                if work.done.len() == 1 {
                    self.ring();
                }
                continue;
            }
            if work.ended {
                return;
            }
            work.idle += 1;
            work = wait(&self.wanted, work);
            work.idle -= 1;
        }
    }

    fn ring(&self) {
        use std::io::Write;
        let rung = (&self.bell).write_all(&1u64.to_ne_bytes());
        assert!(rung.is_ok(), "a counter that is nowhere near its end");
    }
}

/// Does what a worker is asked to.
fn serve(frontend: &Frontend, memory: &mut Memory, scratch: &mut [u8], job: Job) -> Answer {
    if let Job::Fetch(failed, length) = job {
        return frontend.fetch(*failed, &mut memory.payload[..length]);
    }
    let came = memory.came();
    let Memory { head, payload, .. } = memory;
    let (header, args) = (&head[..ARGS], &head[ARGS..IN_OUT]);
    if came == 0 {
        return match Incoming::from_parts(header, args, &[]) {
            Some(request) => frontend.dispatch(&request, payload),
            None => Answer::Error(libc::EIO),
        };
    }
    // What came lies where the answer is to go.
    let answer = match Incoming::from_parts(header, args, &payload[..came]) {
        Some(request) => frontend.dispatch(&request, scratch),
        None => Answer::Error(libc::EIO),
    };
    if let Answer::Data(len) = answer {
        payload[..len].copy_from_slice(&scratch[..len]);
    }
    answer
}

/// Keeps this thread on `cpu`. Where that is not allowed, it goes where the system puts it.
fn stay_on(cpu: usize) {
    // SAFETY: an all-zero set is a valid empty one, and the call reads as many bytes as it has.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// CPUs that this process may use.
fn usable_cpus() -> Vec<usize> {
    // SAFETY: as in `stay_on`; the call fills the set.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the index is below the set's size.
    let cpus: Vec<_> = all
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// How many CPUs the kernel has queues for: all that may ever be there, numbered from 0.
fn possible_cpus() -> io::Result<usize> {
    let path = "/sys/devices/system/cpu/possible";
    let ranges = std::fs::read_to_string(path)?;
    let last = match ranges.trim() {
        "0" => Some(0),
        one => one
            .strip_prefix("0-")
            .and_then(|last| last.parse::<usize>().ok()),
    };
    let last = last.ok_or_else(|| io::Error::other(format!("{path} says {ranges:?}")))?;
    Ok(last + 1)
}
