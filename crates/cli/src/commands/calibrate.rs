//! `calibrate`.

use crate::args::CalibrateArgs;
use crate::failure::{Failure, Outcome};

/// Runs it.
pub(crate) fn run(_args: &CalibrateArgs) -> Outcome {
    Err(Failure::usage("calibrate is not in this build"))
}
