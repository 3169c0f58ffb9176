//! Acting for a caller while something is made for it.
//!
//! What a root's mount makes for somebody must be theirs from the start: to make it and to change
//! its owner afterwards, by name, would let whoever owns the directory put another file there in
//! between. A thread of the mount therefore takes the caller's user and group for file systems
//! (`setfsuid`) around the one call. Its capabilities stay: the kernel has checked the caller
//! against base's modes already, with supplementary groups that the mount is not told.
//!
//! All of this belongs to a thread, not to the process: other threads go on as they are. But a
//! change of users forbids core dumps of the process, so whether they were allowed is asked once,
//! before the first: later they may be forbidden because another thread acts.

use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::sys;

/// Whether a crash of the process may leave a core dump while nobody acts.
static DUMPABLE: OnceLock<bool> = OnceLock::new();

/// The thread acts for somebody until this is dropped.
pub(crate) struct Acting {
    /// What the thread had before.
    user: u32,
    group: u32,
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
        DUMPABLE.get_or_init(sys::is_dumpable);
        let before = Self {
            group: sys::set_fs_group(group),
            user: sys::set_fs_user(user),
            here: PhantomData,
        };
        if (sys::fs_user(), sys::fs_group()) != (user, group) {
            return Err(sys::errno(libc::EPERM));
        }
        // A change of the user from root takes those for files away.
        sys::set_capabilities(&for_caller(capabilities, user))?;
        Ok(before)
    }
}

/// The capabilities of a thread that acts for `user`: without the one to keep a set-group-id bit in
/// a group that is not theirs, which kernels before 6.0 leave to base to ask for.
fn for_caller(mut capabilities: sys::Capabilities, user: u32) -> sys::Capabilities {
    const FSETID: u32 = 1 << 4;
    if user != 0 {
        capabilities[0][0] &= !FSETID;
    }
    assert!(user == 0 || capabilities[0][0] & FSETID == 0);
    capabilities
}

impl Drop for Acting {
    fn drop(&mut self) {
        sys::set_fs_user(self.user);
        sys::set_fs_group(self.group);
        // The change back to root gives those for files back, if the thread may have them.
        if DUMPABLE.get() == Some(&true) {
            sys::set_dumpable();
        }
        let now = (sys::fs_user(), sys::fs_group());
        assert_eq!(
            now,
            (self.user, self.group),
            "the thread acts for itself again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn who_acts_for_a_user_may_not_keep_a_set_group_id_bit() {
        if sys::effective_uid() != 0 {
            return;
        }
        let fsetid = || sys::capabilities().unwrap()[0][0] & (1 << 4) != 0;
        let before = sys::capabilities().unwrap();
        for user in [0, 1] {
            let acting = Acting::start(user, 1).expect("acts");
            assert_eq!(fsetid(), user == 0);
            drop(acting);
            assert_eq!(sys::capabilities().unwrap(), before);
        }
    }

    /// Two act at the same time, and the one that began first ends first.
    #[test]
    fn core_dumps_are_allowed_again() {
        if sys::effective_uid() != 0 || !sys::is_dumpable() {
            return;
        }
        let turns = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let acting = Acting::start(1, 1).expect("acts");
                turns.wait();
                turns.wait();
                drop(acting);
                turns.wait();
            });
            turns.wait();
            let acting = Acting::start(2, 2).expect("acts");
            turns.wait();
            turns.wait();
            drop(acting);
        });
        assert!(sys::is_dumpable());
    }
}
