//! Whoever reads standard output may have seen enough, as `head` has: then a command ends, quietly.
//!
//! Rust's `println!` panics when the other end of a pipe is closed. That panic unwinds, so that
//! files made for a while are removed, but nothing is printed.

use crate::failure::Failure;
use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};

/// The exit code of a command whose reader is gone: as if SIGPIPE had ended it.
pub(crate) const GONE: u8 = 141;

/// What `command` gives; `None` when nobody reads what it prints any more.
pub(crate) fn until_gone<T>(command: impl FnOnce() -> T) -> Option<T> {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !is_gone(info.payload()) {
            others(info);
        }
    }));
    match panic::catch_unwind(AssertUnwindSafe(command)) {
        Ok(done) => Some(done),
        Err(payload) if is_gone(&*payload) => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// How `println!` begins to say that the pipe is closed.
const CLOSED: &str = "failed printing to stdout: Broken pipe";

/// What a failed write to standard output means. Where the pipe is closed it does not return, as
/// `println!` does not.
pub(crate) fn failed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => panic::panic_any(CLOSED.to_string()),
        _ => error.into(),
    }
}

/// Whether a panic is that of `println!` at a closed pipe.
fn is_gone(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<String>();
    text.is_some_and(|text| text.starts_with(CLOSED))
}
