//! Transports: how requests come from the kernel and answers go back.
//!
//! A transport brings requests to [`Frontend::dispatch`] and knows nothing of what they mean.
//! [`device`] is the one that every kernel has; [`ring`] needs Linux 6.14 and `fuse.enable_uring`.

mod crew;
mod device;
mod ring;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, scope};

pub(crate) use device::{forget_name, forget_nodes, is_unmount};
pub(crate) use ring::available as has_ring;

use crate::fuse::Frontend;
use crate::place::Place;
use crate::prune;
use crate::sys;
use crew::Crew;

/// What serves a mount until it is unmounted.
pub(crate) struct Server {
    pub(crate) frontend: Arc<Frontend>,
    /// `/dev/fuse` as it was opened for this mount.
    pub(crate) device: Arc<File>,
    /// How many threads serve requests of the device at most: each waits for its device, so one
    /// more comes when all are busy.
    pub(crate) threads: usize,
    /// Whether requests come over io_uring.
    pub(crate) ring: bool,
    /// Where it is mounted, and which mount it is.
    pub(crate) place: Place,
}

impl Server {
    /// Serves until the mount is no more; afterwards no thread does.
    ///
    /// # Errors
    /// The first error of the transport that is no unmount. Threads that can still serve go on
    /// until the unmount.
    pub(crate) fn run(self) -> io::Result<()> {
        assert!(self.threads > 0, "somebody must serve");
        let servers = match self.ring {
            true => ring::prepare(&self.frontend, &self.device),
            false => Ok(Vec::new()),
        };
        // The kernel waits for the queues that were agreed on: without them there is no mount.
        let servers = servers.inspect_err(|_| self.abort())?;
        let (waiting, told) = crew::prepare();
        scope(|scope| {
            let mut crew = Crew::new(scope, &waiting, told);
            for server in servers {
                let name = server.name();
                let started = crew.start(name, || server.run(|| self.abort()));
                started.inspect_err(|_| self.abort())?;
            }
            let serve = || device::serve(&self.frontend, &self.device, &waiting);
            crew.start_first(self.threads, serve)
                .inspect_err(|_| self.abort())?;
            let fs = self.frontend.file_system();
            let pruner = Builder::new().name("prune".into());
            // Without it there is a limit, as before.
            let pruning = pruner.spawn_scoped(scope, || prune::run(fs, &self.device));
            if let Err(error) = pruning {
                sys::say(format_args!("inodes are not pruned: {error}"));
            }
            let end = crew.run(self.threads, serve);
            fs.pruner().end();
            end
        })
    }

    /// Ends the connection: whoever waits for it gets an error.
    fn abort(&self) {
        self.place.abort();
    }
}
