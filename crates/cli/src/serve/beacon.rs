//! What the process of a mount tells about itself, whatever has become of the mount: while it
//! writes back after an unmount, it is to be found nowhere in the file system.
//!
//! It listens at two abstract sockets, one named by the mountpoint and one by the cache; whoever
//! connects is told how it stands, as one line of JSON. They vanish with the process; that of a
//! cache also when another one takes its place. Where another process still answers (a mount that
//! was detached from the same mountpoint) this one takes the name over when that one ends. An
//! answer counts when it comes from root or from one's own user: anybody may listen at such a name.

use crate::failure::{Code, Failure};
use crate::serve::ending::Ending;
use crate::serve::log;
use crate::show::report::MountFacts;
use crate::units::show_count;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thermocline::Engine;
use thermocline_mount::Fs;

/// The longest an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a mount's process is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// It serves, and is seen at its mountpoint.
    Serving,
    /// It serves files that were open when it was detached.
    Detached,
    /// It was unmounted; dirty pages go to base.
    WritingBack,
    /// Nothing is left to be written back; the map is being saved.
    Saving,
}

/// How a mount's process stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// What it is at.
    pub(crate) stage: Stage,
    /// Pages newer than base.
    pub(crate) dirty: u64,
    /// What it was mounted with.
    pub(crate) mount: MountFacts,
}

impl Standing {
    /// In words: "process 7 still writes back 12 pages".
    pub(crate) fn describe(&self) -> String {
        let (pid, dirty) = (self.mount.pid, show_count(self.dirty));
        let mountpoint = self.mount.mountpoint.display();
        match self.stage {
            Stage::Serving => format!("process {pid} serves it at {mountpoint}"),
            Stage::Detached => {
                format!("process {pid} serves files that are still open from {mountpoint}")
            }
            Stage::WritingBack => format!("still writing back {dirty} pages, pid {pid}"),
            Stage::Saving => format!("still saving the map, pid {pid}"),
        }
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> String {
        let mountpoint = self.mount.mountpoint.display();
        let log = self.mount.log.display();
        match self.stage {
            Stage::Serving => format!("thermocline umount {mountpoint}"),
            Stage::Detached => format!(
                "end the programs that use them: it ends after the last one; \
                 thermocline umount {mountpoint} waits for that"
            ),
            Stage::WritingBack | Stage::Saving if self.mount.log.as_os_str().is_empty() => {
                format!("wait for it: thermocline umount {mountpoint} does")
            }
            Stage::WritingBack | Stage::Saving => format!(
                "wait for it: thermocline umount {mountpoint} does, and {log} says how far it is"
            ),
        }
    }

    /// The failure of a command that wants the mount at its mountpoint.
    pub(crate) fn not_mounted(&self, mountpoint: &Path) -> Failure {
        let message = format!(
            "{} is not mounted any more; {}",
            mountpoint.display(),
            self.describe()
        );
        Failure::new(Code::NotMounted, message).advise(self.advice())
    }
}

/// What answers in the process of a mount, from its start until the process ends.
pub(crate) struct Beacon {
    /// With the cache that serves now.
    facts: Mutex<MountFacts>,
    engine: Arc<Engine>,
    files: Arc<Fs>,
    ending: Arc<Ending>,
    /// Whoever asks by the cache is answered there.
    by_cache: Mutex<Option<Listening>>,
}

impl Beacon {
    /// Answers from now on.
    pub(crate) fn light(
        facts: MountFacts,
        engine: &Arc<Engine>,
        files: &Arc<Fs>,
        ending: &Arc<Ending>,
    ) -> Arc<Self> {
        let by_mountpoint = name("mount", &facts.mountpoint);
        let by_cache = facts.cache.clone();
        let beacon = Arc::new(Self {
            facts: Mutex::new(facts),
            engine: Arc::clone(engine),
            files: Arc::clone(files),
            ending: Arc::clone(ending),
            by_cache: Mutex::default(),
        });
        beacon.answer_at(&by_mountpoint);
        if !by_cache.as_os_str().is_empty() {
            *beacon.by_cache() = beacon.answer_at(&name("cache", &by_cache));
        }
        beacon
    }

    /// Another cache may serve: from now on it is asked for by that one, and whoever asks by the
    /// one before finds nobody.
    pub(crate) fn follow_cache(self: &Arc<Self>) {
        let mut by_cache = self.by_cache();
        let cache = PathBuf::from(self.engine.cache_name());
        let before = mem::replace(&mut self.facts().cache, cache.clone());
        if before == cache {
            return;
        }
        if let Some(before) = by_cache.take() {
            before.end();
        }
        *by_cache = self.answer_at(&name("cache", &cache));
    }

    fn facts(&self) -> MutexGuard<'_, MountFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn by_cache(&self) -> MutexGuard<'_, Option<Listening>> {
        self.by_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_at(self: &Arc<Self>, name: &str) -> Option<Listening> {
        let beacon = Arc::clone(self);
        let listening = listen(name, move || beacon.standing());
        if let Err(error) = &listening {
            log::line(&format!("nobody can ask how this mount stands: {error}"));
        }
        listening.ok()
    }

    fn standing(&self) -> Standing {
        let dirty = self.engine.dirty_pages();
        let stage = match () {
            () if self.ending.is_on_top() => Stage::Serving,
            // Nobody finds it at its mountpoint. It serves what is open, or bound elsewhere.
            () if self.ending.is_mounted() => Stage::Detached,
            () if !self.ending.is_over() && self.files.held().1 > 0 => Stage::Detached,
            () if dirty > 0 => Stage::WritingBack,
            () => Stage::Saving,
        };
        Standing {
            stage,
            dirty,
            mount: self.facts().clone(),
        }
    }
}

/// How often it is looked whether a name has become free.
const AGAIN: Duration = Duration::from_secs(1);

/// Somebody who answers at a socket, for ever where it is not ended.
pub(super) struct Listening {
    ear: Arc<Ear>,
    thread: JoinHandle<()>,
}

/// What whoever answers and whoever ends that share.
#[derive(Default)]
struct Ear {
    state: Mutex<Heard>,
    /// It is over.
    ended: Condvar,
}

#[derive(Default)]
struct Heard {
    /// `None` while another process has the name.
    listener: Option<Arc<UnixListener>>,
    over: bool,
}

impl Ear {
    fn state(&self) -> MutexGuard<'_, Heard> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the name is free and this process's; `None` when it is over before.
    fn listener(&self, address: &SocketAddr) -> Option<Arc<UnixListener>> {
        let mut state = self.state();
        while !state.over {
            if state.listener.is_none() {
                state.listener = UnixListener::bind_addr(address).ok().map(Arc::new);
            }
            if let Some(listener) = &state.listener {
                return Some(Arc::clone(listener));
            }
            let waited = self.ended.wait_timeout(state, AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

impl Listening {
    /// Nobody answers any more, and the name is free.
    pub(super) fn end(self) {
        let mut state = self.ear.state();
        state.over = true;
        if let Some(listener) = &state.listener {
            // SAFETY: no pointers; the descriptor lives for the whole call.
            // It wakes whoever accepts.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
        drop(state);
        self.ear.ended.notify_all();
        let _panicked = self.thread.join();
    }
}

fn listen(name: &str, standing: impl Fn() -> Standing + Send + 'static) -> io::Result<Listening> {
    let address = SocketAddr::from_abstract_name(name)?;
    let ear = Arc::new(Ear::default());
    match UnixListener::bind_addr(&address) {
        Ok(listener) => ear.state().listener = Some(Arc::new(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            log::line("another process has the name of this mount; it is tried again each second");
        }
        Err(error) => return Err(error),
    }
    let shared = Arc::clone(&ear);
    let answer = move || {
        let Some(listener) = shared.listener(&address) else {
            return;
        };
        for asking in listener.incoming() {
            if shared.state().over {
                return;
            }
            let Ok(mut asking) = asking else { continue };
            let text = serde_json::to_string(&standing()).unwrap_or_default();
            // Whoever asked may have gone away.
            let _gone = asking.write_all(text.as_bytes());
        }
    };
    let thread = std::thread::Builder::new().name("beacon".into());
    Ok(Listening {
        ear,
        thread: thread.spawn(answer)?,
    })
}

/// How the process stands that serves, or served, this mountpoint; `None` when there is none.
pub(crate) fn of_mountpoint(path: &Path) -> Option<Standing> {
    ask("mount", path)
}

/// How the process stands that uses this cache.
pub(crate) fn of_cache(path: &Path) -> Option<Standing> {
    ask("cache", path)
}

/// Whether process `pid` is there and answers for this mountpoint, though perhaps not in time.
pub(crate) fn is_lit(path: &Path, pid: u32) -> bool {
    let Some(stream) = connect("mount", path) else {
        return false;
    };
    // One that saves its map may take its time to answer.
    answer(stream).is_none_or(|standing| standing.mount.pid == pid)
}

/// The number that this process's own namespace has for the one that says it is `pid`, and answers
/// for this mountpoint, though perhaps not in time; 0 where it has none.
pub(crate) fn process_of(path: &Path, pid: u32) -> Option<u32> {
    let stream = connect("mount", path)?;
    let here = peer(&stream)?.pid.cast_unsigned();
    let is_it = match answer(stream) {
        Some(standing) => standing.mount.pid == pid,
        // It may be the one that had the mountpoint before.
        None => here == pid,
    };
    is_it.then_some(here)
}

/// Its number here of the process that listens for this mountpoint, though it may never answer.
pub(crate) fn listener_of(path: &Path) -> Option<u32> {
    let here = peer(&connect("mount", path)?)?.pid.cast_unsigned();
    (here != 0).then_some(here)
}

fn ask(kind: &str, path: &Path) -> Option<Standing> {
    answer(connect(kind, path)?)
}

/// Where it is answered, if it may be believed.
fn connect(kind: &str, path: &Path) -> Option<UnixStream> {
    let stream = connect_now(&name(kind, &resolved(path).ok()?)).ok()?;
    is_trusted(&stream).then_some(stream)
}

/// The path without symbolic links or `..`. Of its last part nothing is asked but whether it is a
/// link: it may be a mount that does not answer, or whose process is gone.
pub(crate) fn resolved(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let whole = parent.canonicalize()?.join(name);
    match std::fs::read_link(&whole) {
        Ok(_) => whole.canonicalize(),
        Err(_) => Ok(whole),
    }
}

/// Connects to the abstract socket `name`. Where as many wait as may, which nobody answers, it
/// fails: a blocking call would wait for a process that is stopped.
fn connect_now(name: &str) -> io::Result<UnixStream> {
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    // The first byte stays 0: that is what an abstract name begins with.
    let place = address.sun_path.get_mut(1..=name.len());
    let place = place.ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in place.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers. A negative return is an error and not wrapped.
    let stream = match unsafe { libc::socket(libc::AF_UNIX, flags, 0) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: it was just opened and belongs to nobody else.
        fd => unsafe { UnixStream::from_raw_fd(fd) },
    };
    // SAFETY: `address` outlives the call and has at least as many bytes as `length` says.
    let connected = unsafe {
        libc::connect(
            stream.as_raw_fd(),
            (&raw const address).cast(),
            length as libc::socklen_t,
        )
    };
    match connected {
        0 => stream.set_nonblocking(false).map(|()| stream),
        _ => Err(io::Error::last_os_error()),
    }
}

fn answer(mut stream: UnixStream) -> Option<Standing> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Whether root or this process's own user answers.
fn is_trusted(stream: &UnixStream) -> bool {
    // SAFETY: no arguments, cannot fail.
    peer(stream).is_some_and(|who| who.uid == 0 || who.uid == unsafe { libc::geteuid() })
}

/// Who listens at the other end.
fn peer(stream: &UnixStream) -> Option<libc::ucred> {
    let mut who = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: 0,
    };
    let mut length = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor lives for the whole call; `who` has as many bytes as `length` says.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(who)
}

/// The name of the socket for a path: abstract names are short, so the path is hashed (FNV-1a).
fn name(kind: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("thermocline/{kind}/{hash:016x}")
}

/// A beacon of nothing but these facts.
#[cfg(test)]
pub(super) fn of(facts: &MountFacts) -> io::Result<Listening> {
    let standing = Standing {
        stage: Stage::Saving,
        dirty: 0,
        mount: facts.clone(),
    };
    listen(&name("mount", &facts.mountpoint), move || standing.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Standing {
        Standing {
            stage: Stage::WritingBack,
            dirty: 10_539,
            mount: MountFacts {
                pid: 77,
                log: "/ssd/tier.log".into(),
                mountpoint: "/srv/pg".into(),
                ..MountFacts::default()
            },
        }
    }

    #[test]
    fn whoever_asks_is_told() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().canonicalize().expect("path");
        assert_eq!(of_mountpoint(&path), None);
        listen(&name("mount", &path), sample).expect("listens");
        assert_eq!(of_mountpoint(&path), Some(sample()));
        assert_eq!(of_mountpoint(&path), Some(sample()), "and again");
        assert_eq!(of_cache(&path), None);
    }

    #[test]
    fn whoever_does_not_answer_any_more_leaves_the_name_to_others() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().canonicalize().expect("path");
        for _ in 0..3 {
            let listening = listen(&name("cache", &path), sample).expect("listens");
            assert_eq!(of_cache(&path), Some(sample()));
            listening.end();
            assert_eq!(of_cache(&path), None);
        }
    }

    #[test]
    fn a_process_that_listens_is_known_by_its_number() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().canonicalize().expect("path");
        assert_eq!(listener_of(&path), None);
        let listening = listen(&name("mount", &path), sample).expect("listens");
        assert_eq!(listener_of(&path), Some(std::process::id()));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert_eq!(listener_of(&link), Some(std::process::id()));
        listening.end();
    }

    /// As a process that is stopped: it listens, and accepts nobody.
    #[test]
    fn who_accepts_nobody_is_not_waited_for() {
        let name = format!("thermocline/test/{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("listens");
        // SAFETY: no pointers; the descriptor lives for the whole call.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
        let waiting: Vec<UnixStream> = (0..9).map_while(|_| connect_now(&name).ok()).collect();
        assert!((1..9).contains(&waiting.len()), "{}", waiting.len());
    }

    #[test]
    fn a_name_that_another_has_is_taken_over() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().canonicalize().expect("path");
        let newer = || Standing {
            dirty: 1,
            ..sample()
        };
        let before = listen(&name("mount", &path), sample).expect("listens");
        let after = listen(&name("mount", &path), newer).expect("waits");
        let never = listen(&name("mount", &path), newer).expect("waits");
        never.end();
        assert_eq!(of_mountpoint(&path), Some(sample()));
        before.end();
        while of_mountpoint(&path) != Some(newer()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        after.end();
    }

    #[test]
    fn a_mount_that_writes_back_says_how_much_and_who() {
        let failure = sample().not_mounted(Path::new("/srv/pg"));
        assert_eq!(failure.code, Code::NotMounted);
        let text = failure.to_string();
        assert!(
            text.contains("still writing back 10,539 pages, pid 77"),
            "{text}"
        );
        assert!(text.contains("/ssd/tier.log"), "{text}");
    }
}
