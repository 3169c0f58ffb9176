//! Acting for a caller while something is made for it.
//!
//! What a root's mount makes for somebody must be theirs from the start: to make it and to change
//! its owner afterwards, by name, would let whoever owns the directory put another file there in
//! between. A thread of the mount therefore takes the caller's user and group for file systems
//! (`setfsuid`) around the one call. Its capabilities stay: the kernel has checked the caller
//! against base's modes already, with supplementary groups that the mount is not told.
//!
//! All of this belongs to a thread, not to the process: other threads go on as they are.

use std::io;
use std::marker::PhantomData;

use crate::sys;

/// The thread acts for somebody until this is dropped.
pub(crate) struct Acting {
    /// What the thread had before.
    user: u32,
    group: u32,
    dumpable: bool,
    /// It is about this thread.
    here: PhantomData<*const ()>,
}

impl Acting {
    /// Acts as `user` and `group` from now on.
    ///
    /// # Errors
    /// `EPERM` when the kernel does not let the thread.
    pub(crate) fn start(user: u32, group: u32) -> io::Result<Self> {
        let capabilities = sys::capabilities()?;
        let before = Self {
            dumpable: sys::is_dumpable(),
            group: sys::set_fs_group(group),
            user: sys::set_fs_user(user),
            here: PhantomData,
        };
        if (sys::fs_user(), sys::fs_group()) != (user, group) {
            return Err(sys::errno(libc::EPERM));
        }
        // A change of the user from root takes those for files away.
        sys::set_capabilities(&capabilities)?;
        Ok(before)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        sys::set_fs_user(self.user);
        sys::set_fs_group(self.group);
        if self.dumpable {
            sys::set_dumpable(); // a change of users forbids core dumps of the process
        }
        let now = (sys::fs_user(), sys::fs_group());
        assert_eq!(
            now,
            (self.user, self.group),
            "the thread acts for itself again"
        );
    }
}
