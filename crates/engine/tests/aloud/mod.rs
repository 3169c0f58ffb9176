//! Panics that are heard: one under a lock of the engine ends the process, and with it what the
//! harness kept of a test's output.

use std::io::Write;
use std::sync::Once;

/// Has panics say where and why past what a test's output is kept by.
pub(crate) fn panic_aloud() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = writeln!(std::io::stderr(), "{panic}");
            before(panic);
        }));
    });
}
