//! `trace`: summaries of recorded requests.

use crate::args::TraceInfoArgs;
use crate::failure::{Failure, Outcome};

/// Runs it.
pub(crate) fn info(_args: &TraceInfoArgs) -> Outcome {
    Err(Failure::usage("trace is not in this build"))
}
