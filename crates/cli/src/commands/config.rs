//! `config`: the documented defaults, or the settings a file results in.

use crate::args::ConfigArgs;
use crate::config::{Config, EXAMPLE};
use crate::failure::{Code, Failure, Outcome};

/// Prints the settings.
pub(crate) fn run(args: &ConfigArgs) -> Outcome {
    if args.defaults {
        print!("{EXAMPLE}");
        return Ok(());
    }
    let config = Config::load(args.check.as_deref())?;
    let fail = |e: String| Failure::new(Code::Failure, format!("cannot print the settings: {e}"));
    if args.json {
        let text = serde_json::to_string_pretty(&config).map_err(|e| fail(e.to_string()))?;
        println!("{text}");
    } else {
        let text = toml::to_string(&config).map_err(|e| fail(e.to_string()))?;
        print!("{text}");
    }
    Ok(())
}
