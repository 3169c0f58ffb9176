//! Panics of the Parquet decoder turned into errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use parquet::errors::ParquetError;

thread_local! {
    /// Whether this thread is inside [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a step of the Parquet decoder. It reports most damage as an error, but some of its
/// decoders still panic on some damaged pages; a damaged file must not take a process down that
/// may also be serving a database, nor write a panic's text to its log. A panic hook is put in
/// front of the one that is there, once; it passes on every panic from elsewhere.
pub(super) fn guarded<T>(step: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    silence_guarded_panics();
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(step));
    GUARDED.set(outer);
    match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("damaged page (the decoder panicked)".into()),
    }
}

fn silence_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A thread that is ending has no flag any more: not guarded.
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                others(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_is_an_error_and_the_flag_falls() {
        let error = guarded::<()>(|| panic!("damaged")).unwrap_err();
        assert!(error.contains("panicked"), "{error}");
        assert!(!GUARDED.get());
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }
}
