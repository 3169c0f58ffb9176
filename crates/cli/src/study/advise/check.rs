//! Earlier advice beside what following it would have gained on another trace.

use super::AdviseArgs;
use crate::failure::{Failure, Outcome};
use crate::show::status;
use crate::show::table::Table;
use crate::study::modelled;
use serde::{Deserialize, Serialize};
use std::path::Path;
use thermocline_sim::advice::{self, Gain, State};
use thermocline_sim::experiment::Experiment;
use thermocline_sim::{SimError, Workload};

/// What is read of an element of the file.
#[derive(Deserialize)]
struct Advised {
    id: String,
    gain: Gain,
    now: State,
    then: State,
}

/// One row of what comes out.
#[derive(Serialize)]
struct Checked {
    id: String,
    predicted: Gain,
    observed: Gain,
    /// Whether the two are no further apart than the prediction's uncertainty.
    held: bool,
}

/// Follows every line of the file at `path` on the workload and prints how it went.
pub(super) fn run(
    args: &AdviseArgs,
    workload: &Workload,
    experiment: &Experiment,
    path: &Path,
) -> Outcome {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::io("read", path, &error))?;
    let lines: Vec<Advised> = serde_json::from_str(&text).map_err(|error| {
        let fact = format!(
            "{} is not what advise --json prints: {error}",
            path.display()
        );
        Failure::usage(fact).advise("thermocline advise TRACE --json > FILE")
    })?;
    let work = |progress: &_| {
        let follow = |line: Advised| {
            let observed = advice::follow(workload, experiment, &line.now, &line.then, progress)?;
            Ok::<_, SimError>(Checked {
                held: line.gain.holds(&observed),
                id: line.id,
                predicted: line.gain,
                observed,
            })
        };
        lines.into_iter().map(follow).collect::<Result<Vec<_>, _>>()
    };
    let rows = modelled::watched("simulating", work)?;
    if args.json {
        return modelled::print_json(&rows);
    }
    let mut table = Table::new(&["line", "predicted", "", "observed", "held"]);
    for row in &rows {
        table.row([
            row.id.clone(),
            format!("{:.1} %", row.predicted.percent),
            format!("±{:.1}", row.predicted.plus_minus),
            format!("{:.1} %", row.observed.percent),
            if row.held { "yes" } else { "no" }.to_string(),
        ]);
    }
    status::print(&table.to_string())
}
