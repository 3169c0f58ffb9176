//! What a comparison comes to, in one careful sentence.
//!
//! A policy's score is the geometric mean of its I/Os per second over the sizes, as in `plan`: a
//! model of one trace, so that small differences say nothing.

use crate::show::report::text::show_duration;
use crate::units::show_count;
use thermocline_sim::RunResult;
use thermocline_sim::experiment::{Experiment, Results};
use thermocline_sim::opt;
use thermocline_sim::workload::Facts;

/// Policies closer than this are called as good.
const CLOSE: f64 = 0.02;
/// Names listed of those.
const LISTED: usize = 4;

/// The policies that can be had, best first, and what that comes to.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    pub(super) names: Vec<String>,
    pub(super) sentence: String,
}

impl Ranking {
    /// Of `results`; of equals the first named comes first.
    pub(super) fn of(experiment: &Experiment, results: &Results, facts: &Facts) -> Self {
        let had = experiment.policies.iter().filter(|name| !opt::is_opt(name));
        let mut scored: Vec<(&String, f64)> =
            had.map(|name| (name, score(name, results))).collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self {
            sentence: sentence(&scored, experiment.capacities.len(), results, facts),
            names: scored.iter().map(|(name, _)| (*name).clone()).collect(),
        }
    }
}

fn of_policy<'a>(name: &'a str, results: &'a Results) -> impl Iterator<Item = &'a RunResult> {
    results.runs.iter().filter(move |run| run.policy == name)
}

/// The logarithm of the mean.
fn score(name: &str, results: &Results) -> f64 {
    let logs = of_policy(name, results).map(|run| run.rate().max(f64::MIN_POSITIVE).ln());
    let (count, sum) = logs.fold((0, 0.0), |(count, sum), log| (count + 1, sum + log));
    sum / f64::from(count.max(1))
}

fn sentence(scored: &[(&String, f64)], sizes: usize, results: &Results, facts: &Facts) -> String {
    let Some((best, top)) = scored.first() else {
        return "Only what knows the future was simulated: that is no policy to be had.".into();
    };
    let base = results.base_only.rate();
    let times = |run: &RunResult| run.speedup.unwrap_or_else(|| run.rate() / base);
    let speedups = of_policy(best, results).map(times);
    let (low, high) = speedups.fold((f64::MAX, 0.0_f64), |(low, high), times| {
        (low.min(times), high.max(times))
    });
    let times = match high - low < 0.05 {
        true => format!("{high:.1}"),
        false => format!("{low:.1} to {high:.1}"),
    };
    let gain = format!("{times} times the I/Os per second of base alone");
    let close = scored[1..]
        .iter()
        .take_while(|(_, score)| (top - score).exp() < 1.0 + CLOSE);
    let close: Vec<&str> = close.map(|(name, _)| name.as_str()).collect();
    let over = match sizes {
        1 => "at this size".to_string(),
        sizes => format!("over these {sizes} sizes"),
    };
    let first = match (scored.len(), close.as_slice(), scored.get(1)) {
        _ if high < 1.0 + CLOSE => format!("None is faster than base alone {over}"),
        (1, ..) => format!("{best} has {gain} {over}"),
        (_, [], Some((next, score))) => format!(
            "{best} is fastest {over}, with {gain}, {:.0} % ahead of {next}",
            100.0 * ((top - score).exp() - 1.0)
        ),
        (_, close, _) => format!(
            "{best} is fastest {over}, with {gain}, but {} too close to tell apart",
            listed(close)
        ),
    };
    let evidence = match facts.duration_ms {
        0 => format!("{} I/Os", show_count(facts.ios)),
        ms => format!("{} of requests", show_duration((ms as f64 / 1e3).ceil())),
    };
    format!("{first} (a model, of one trace of {evidence}: another day may have another order).")
}

fn listed(names: &[&str]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let mut shown = names[..names.len() - more].join(", ");
    if more > 0 {
        shown += &format!(" and {more} more");
    }
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{shown} {verb}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(speeds: &[(&str, [f64; 2])]) -> Ranking {
        let run = |name: &str, ios_per_s: f64| RunResult {
            policy: name.into(),
            ios_per_s: Some(ios_per_s),
            speedup: Some(ios_per_s / 100.0),
            clients: 1,
            ..RunResult::default()
        };
        let runs = speeds
            .iter()
            .flat_map(|(name, both)| both.map(|speed| run(name, speed)));
        let results = Results {
            runs: runs.collect(),
            base_only: RunResult::default(),
            bound: vec![],
        };
        let experiment = Experiment {
            policies: speeds.iter().map(|(name, _)| (*name).to_string()).collect(),
            capacities: vec![1, 2],
            ..Experiment::default()
        };
        let facts = Facts {
            duration_ms: 28_000,
            ..Facts::default()
        };
        Ranking::of(&experiment, &results, &facts)
    }

    #[test]
    fn the_best_over_all_sizes_wins_and_the_future_does_not_count() {
        let found = ranking(&[
            ("lru", [150.0, 200.0]),
            ("opt", [900.0, 900.0]),
            ("tac", [140.0, 300.0]),
        ]);
        assert_eq!(found.names, ["tac", "lru"]);
        let expected = "tac is fastest over these 2 sizes, with 1.4 to 3.0 times the I/Os per \
                        second of base alone, 18 % ahead of lru (a model, of one trace of 28 s of \
                        requests: another day may have another order).";
        assert_eq!(found.sentence, expected);
    }

    #[test]
    fn what_is_close_is_not_told_apart() {
        let found = ranking(&[("lru", [200.0, 200.0]), ("arc", [201.0, 201.0])]);
        assert!(
            found
                .sentence
                .contains("but lru is too close to tell apart"),
            "{}",
            found.sentence
        );
        let alone = ranking(&[("lru", [200.0, 200.0])]);
        assert!(
            alone.sentence.starts_with("lru has 2.0 times the I/Os"),
            "{}",
            alone.sentence
        );
        let vain = ranking(&[("lru", [100.0, 100.5]), ("tac", [99.0, 100.0])]);
        assert!(
            vain.sentence
                .starts_with("None is faster than base alone over these 2 sizes (a model"),
            "{}",
            vain.sentence
        );
        // Where the pool serves all nothing takes time, or next to none.
        let run = |name: &str, ios_per_s| RunResult {
            policy: name.into(),
            ios_per_s,
            clients: 1,
            ..RunResult::default()
        };
        let results = |base| Results {
            runs: vec![run("lru", Some(2e6)), run("auto", None)],
            base_only: run("none", base),
            bound: vec![],
        };
        let of = |base| {
            let experiment = Experiment {
                policies: vec!["lru".into(), "auto".into()],
                capacities: vec![1],
                ..Experiment::default()
            };
            Ranking::of(&experiment, &results(base), &Facts::default()).sentence
        };
        let pooled = of(None);
        assert!(
            pooled.starts_with("None is faster than base alone"),
            "{pooled}"
        );
        let faster = of(Some(5e5));
        assert!(
            faster.starts_with("lru is fastest at this size, with 2.0 times"),
            "{faster}"
        );
        assert!(faster.contains("auto is too close"), "{faster}");
        let none = ranking(&[("opt", [200.0, 200.0])]);
        assert!(none.sentence.contains("no policy"), "{}", none.sentence);
    }
}
