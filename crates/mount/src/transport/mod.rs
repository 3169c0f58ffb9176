//! Transports: how requests come from the kernel and answers go back.
//!
//! A transport brings requests to [`Frontend::dispatch`] and knows nothing of what they mean.
//! [`device`] is the one that every kernel has.

mod device;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, scope};

use crate::fuse::Frontend;

/// What serves a mount until it is unmounted.
pub(crate) struct Server {
    pub(crate) frontend: Arc<Frontend>,
    /// `/dev/fuse` as it was opened for this mount.
    pub(crate) device: Arc<File>,
    /// How many threads serve requests.
    pub(crate) threads: usize,
}

impl Server {
    /// Serves until the mount is no more; afterwards no thread does.
    ///
    /// # Errors
    /// The first error of the transport that is no unmount. Threads that can still serve go on
    /// until the unmount.
    pub(crate) fn run(self) -> io::Result<()> {
        assert!(self.threads > 0, "somebody must serve");
        scope(|scope| {
            let mut serving = Vec::with_capacity(self.threads);
            for number in 0..self.threads {
                let thread = Builder::new().name(format!("fuse-{number}"));
                let serve = || device::serve(&self.frontend, &self.device);
                match thread.spawn_scoped(scope, serve) {
                    Ok(thread) => serving.push(thread),
                    Err(error) if serving.is_empty() => return Err(error),
                    Err(error) => {
                        eprintln!("thermocline: only {number} threads serve: {error}");
                        break;
                    }
                }
            }
            let ends = serving.into_iter().map(|thread| {
                let end = thread.join();
                end.unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")))
            });
            // All of them are waited for before the first error is picked.
            let ends: Vec<_> = ends.collect();
            ends.into_iter().collect()
        })
    }
}
