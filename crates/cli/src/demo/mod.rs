//! The demonstration.

use crate::failure::{Failure, Outcome};

/// `thermocline demo`.
#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {}

/// Runs the demonstration.
pub(crate) fn run(_args: &DemoArgs) -> Outcome {
    Err(Failure::usage("the demonstration is not in this build"))
}
