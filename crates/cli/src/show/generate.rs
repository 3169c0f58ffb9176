//! `man` and `completions`: both generated from the definitions in `args`.

use crate::args::Cli;
use crate::failure::{CODES_HELP, Failure, Outcome};
use clap::{Args, CommandFactory, ValueHint};
use std::fs;
use std::path::PathBuf;

/// `thermocline man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write them to; made if missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

/// `thermocline completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Writes one page for the program and one for each command.
pub(crate) fn man(args: &ManArgs) -> Outcome {
    fs::create_dir_all(&args.out).map_err(|e| Failure::io("create", &args.out, &e))?;
    let command = Cli::command().mut_subcommands(|inner| {
        let own = inner.get_after_long_help().or(inner.get_after_help());
        let own = own.map_or(String::new(), |text| format!("{text}\n\n"));
        inner.after_long_help(own + CODES_HELP)
    });
    clap_mangen::generate_to(command, &args.out)
        .map_err(|e| Failure::io("write", &args.out, &e))?;
    println!("man pages written to {}", args.out.display());
    Ok(())
}

/// Prints the completion script of one shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "thermocline", &mut script);
    super::status::print(&String::from_utf8_lossy(&script))
}
