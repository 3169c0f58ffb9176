#![no_main]

use libfuzzer_sys::fuzz_target;

// The configuration belongs to the command, which is no library.
#[path = "../../crates/cli/src/config.rs"]
mod config;
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src/units.rs"]
mod units;

impl From<thermocline::Error> for failure::Failure {
    fn from(error: thermocline::Error) -> Self {
        Self::usage(error.to_string())
    }
}

fuzz_target!(|text: &str| {
    if let Ok(config) = config::Config::parse(text, "fuzz") {
        let _ = config.check();
        let _ = config.engine();
        let _ = config.rules();
        let printed = toml::to_string(&config).expect("settings can be printed");
        assert_eq!(config::Config::parse(&printed, "printed").ok(), Some(config));
    }
});
