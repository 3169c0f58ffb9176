//! What is agreed with the kernel before the first request.

use std::io;
use std::sync::{Arc, OnceLock};

use fuser::{InitFlags, KernelConfig, Request};

use super::REQUEST_MAX;

/// Readahead and other background requests the kernel may have in flight.
const BACKGROUND_MAX: u16 = 64;

/// What the kernel can do of what was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// Files opened for direct I/O can be mapped shared.
    pub(crate) direct_mmap: bool,
    /// Files can be read and written by the kernel itself.
    pub(crate) passthrough: bool,
    /// The mount takes set-id bits and capabilities away when a file is changed, not the kernel.
    pub(crate) killpriv: bool,
    /// Requests come over io_uring once all its queues are there, and not before.
    pub(crate) ring: bool,
}

/// Agrees with the kernel while `fuser` mounts. All requests after that are served without it.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    agreed: Arc<OnceLock<Agreed>>,
    ring: bool,
    passthrough: bool,
}

impl Handshake {
    /// Asks for io_uring when `ring`, and for files that the kernel serves when `passthrough`.
    pub(crate) fn new(ring: bool, passthrough: bool) -> Self {
        let agreed = Arc::default();
        Self {
            agreed,
            ring,
            passthrough,
        }
    }

    /// What was agreed. To be asked after the mount.
    pub(crate) fn agreed(&self) -> Agreed {
        let agreed = self.agreed.get();
        assert!(agreed.is_some(), "a mount begins with a handshake");
        agreed.copied().unwrap_or_default()
    }
}

impl fuser::Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Not `FUSE_ATOMIC_O_TRUNC`: the kernel then truncates as `truncate` does, and says whether
        // to take set-id bits away.
        // A kernel without one of them is served all the same.
        let mut ask = |flag| config.add_capabilities(flag).is_ok();
        ask(InitFlags::FUSE_ASYNC_DIO);
        ask(InitFlags::FUSE_PARALLEL_DIROPS);
        let direct_mmap = ask(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let ring = self.ring && ask(InitFlags::FUSE_OVER_IO_URING);
        // Depth 1: base is no stacked file system, and this one can be below one.
        let passthrough = self.passthrough
            && ask(InitFlags::FUSE_PASSTHROUGH)
            && config.set_max_stack_depth(1).is_ok();
        // Without it the kernel asks for file capabilities before each write of such a file, and
        // keeps no note of the answer. With it the mount takes privileges away itself.
        let killpriv = passthrough
            && config
                .add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
                .is_ok();
        let limits = config.set_max_write(REQUEST_MAX as u32).is_ok()
            && config.set_max_background(BACKGROUND_MAX).is_ok();
        assert!(limits, "limits that every kernel takes");
        let agreed = Agreed {
            direct_mmap,
            passthrough,
            killpriv,
            ring,
        };
        let first = self.agreed.set(agreed).is_ok();
        assert!(first, "a mount begins once");
        Ok(())
    }
}
