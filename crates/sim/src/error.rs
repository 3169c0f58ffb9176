//! Why a simulation could not be done. Messages read "fact; what to do".

use std::path::PathBuf;
use thermocline_trace::ReadError;

/// See the module text.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The trace could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A page of the simulation is in several extents of a sample.
    #[error(
        "trace {trace} is a sample by extents of {extent} B, and pages of {page_size} B would be \
         in several of them; simulate smaller pages"
    )]
    Extents {
        /// Position of the trace among those given, from 1.
        trace: usize,
        /// Bytes of an extent.
        extent: u64,
        /// Bytes per page.
        page_size: u32,
    },
    /// A trace that comes through a pipe would have to be read again.
    #[error(
        "{} is no regular file: it was read once, and is needed again; \
         write it to a file, or allow more memory where that is what lacks", path.display()
    )]
    ReadOnce {
        /// The pipe.
        path: PathBuf,
    },
    /// One request spans more pages than makes sense.
    #[error(
        "trace {trace}, record {record}: one request of {pages} pages of {page_size} B; \
         the trace may be malformed, or the page size too small"
    )]
    TooLong {
        /// Position of the trace among those given, from 1.
        trace: usize,
        /// Its record, from 1.
        record: u64,
        /// Pages it spans.
        pages: u64,
        /// Bytes per page.
        page_size: u32,
    },
    /// More different pages than can be numbered.
    #[error("more than {pages} different pages; simulate larger pages, or a part of the trace")]
    TooMany {
        /// Different pages at most.
        pages: u64,
    },
    /// A request ends beyond the largest address.
    #[error("trace {trace}, record {record}: the request ends beyond 2^64 bytes")]
    Address {
        /// Position of the trace among those given, from 1.
        trace: usize,
        /// Its record, from 1.
        record: u64,
    },
    /// Nothing is left to simulate.
    #[error("the trace holds no page request{}", reason(*.bypassed, *.ignored))]
    Nothing {
        /// Requests left out because they were recorded past the tier.
        bypassed: u64,
        /// Writes left out because they were to be ignored.
        ignored: u64,
    },
    /// Too little was recorded to advise on.
    #[error(
        "{reads} page reads after the warm-up are too few for advice, which needs {needed}; \
         record {times} times as long{pace}",
        times = times(*.reads, *.needed),
        pace = pace(*.reads, *.needed, *.seconds)
    )]
    Evidence {
        /// Page reads that count.
        reads: u64,
        /// Page reads needed.
        needed: u64,
        /// Seconds of the trace.
        seconds: f64,
    },
    /// A state names an object that is not in the trace.
    #[error("the trace holds no request for \"{0}\"; name an object as `trace info` does")]
    NoObject(String),
    /// The warm-up is as long as the trace.
    #[error("the warm-up of {warm_up} page requests leaves none of {requests}; warm up less")]
    WarmUp {
        /// Page requests of warm-up.
        warm_up: u64,
        /// Page requests of the trace.
        requests: u64,
    },
    /// There is no policy of that name.
    #[error(
        "no policy is called \"{0}\"; there are {names}",
        names = crate::opt::names().join(", ")
    )]
    UnknownPolicy(String),
    /// OPT needs the future, which is not kept in memory.
    #[error(
        "{policy} needs the whole trace in memory: {needed} bytes for {requests} page requests; \
         allow more memory, or leave it out"
    )]
    Future {
        /// The policy.
        policy: String,
        /// Bytes it takes.
        needed: u64,
        /// Page requests of the trace.
        requests: u64,
    },
    /// More hint types than a hint set holds.
    #[error(
        "{noise} noise hint types do not fit: the trace has {found} and a hint set holds {max}; \
         use fewer"
    )]
    Noise {
        /// Noise types asked for.
        noise: usize,
        /// Types of the trace.
        found: usize,
        /// Most types.
        max: usize,
    },
    /// Traces of one workload count different things.
    #[error(
        "trace {trace} has pages of {found} and trace 1 of {first}; \
         say with a page size which one all are split into"
    )]
    PageSizes {
        /// Position of the trace, from 1.
        trace: usize,
        /// Its page size.
        found: String,
        /// The first trace's.
        first: String,
    },
    /// A trace says that it has pages of a size that no page has.
    #[error(
        "trace {trace} has pages of {size} B (as it says, or --unit), which is no power of two \
         from 512; say with a page size which one it is split into"
    )]
    PageSize {
        /// Position of the trace, from 1.
        trace: usize,
        /// Its page size.
        size: u32,
    },
    /// Traces are samples of different shares of the requests.
    #[error(
        "trace {trace} has a share of {found} of all requests and trace 1 of {first}; \
         such traces do not go together"
    )]
    Shares {
        /// Position of the trace, from 1.
        trace: usize,
        /// Its share.
        found: f64,
        /// The first trace's.
        first: f64,
    },
}

/// How much longer a recording must be, rounded up.
fn times(reads: u64, needed: u64) -> u64 {
    needed.div_ceil(reads.max(1))
}

/// How long that is, where the trace has times.
fn pace(reads: u64, needed: u64, seconds: f64) -> String {
    match seconds > 0.0 {
        true => {
            let minutes = seconds * times(reads, needed) as f64 / 60.0;
            format!(": about {} minutes at this pace", minutes.ceil())
        }
        false => String::new(),
    }
}

fn reason(bypassed: u64, ignored: u64) -> String {
    let mut parts = Vec::new();
    if bypassed > 0 {
        parts.push(format!(
            ": {bypassed} were recorded past the tier; include the bypassed ones"
        ));
    }
    if ignored > 0 {
        parts.push(format!(": {ignored} writes are ignored; count writes"));
    }
    parts.concat()
}
