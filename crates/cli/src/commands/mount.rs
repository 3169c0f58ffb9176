//! `mount`.

use crate::args::MountArgs;
use crate::failure::{Failure, Outcome};

/// Runs it.
pub(crate) fn run(_args: &MountArgs) -> Outcome {
    Err(Failure::usage("mount is not in this build"))
}
