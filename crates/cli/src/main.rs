//! The `thermocline` command: mounts, shows, measures; see `thermocline --help`.

mod args;
mod config;
#[cfg(test)]
mod documented;
mod explain;
mod failure;
mod reader;
mod serve;
mod settings;
mod show;
mod study;
mod units;

use args::{Cli, Command};
use clap::Parser;
use failure::Outcome;
use std::process::ExitCode;
use study::trace::TraceCommand;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match reader::until_gone(|| run(command)) {
        None => ExitCode::from(reader::GONE),
        Some(outcome) => code_of(outcome),
    }
}

fn code_of(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.code as u8)
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Mount(args) => serve::mount::run(&args),
        Command::Umount(args) => serve::umount::run(&args),
        Command::Status(args) => show::status::run(&args),
        Command::Policy(args) => serve::client::policy(&args),
        Command::Policies => study::parameters::list(),
        Command::Tier(args) => serve::client::tier(&args),
        Command::Mode(args) => serve::client::mode(&args),
        Command::Flush(args) => serve::flush::run(&args),
        Command::Detach(args) => serve::flush::detach(&args),
        Command::Resize(args) => serve::reshape::resize(&args),
        Command::Replace(args) => serve::reshape::replace(&args),
        Command::Pin(args) => serve::pin::pin(&args),
        Command::Unpin(args) => serve::pin::unpin(&args),
        Command::Record(args) => serve::record::run(&args),
        Command::Check(args) => serve::check::run(&args),
        Command::Recover(args) => serve::recover::run(&args),
        Command::Calibrate(args) => serve::calibrate::run(&args),
        Command::Trace(TraceCommand::Info(args)) => study::trace::info(&args),
        Command::Trace(TraceCommand::Convert(args)) => study::trace::convert(&args),
        Command::Simulate(args) => study::simulate::run(&args),
        Command::Joint(args) => study::joint::run(&args),
        Command::Mrc(args) => study::mrc::run(&args),
        Command::Plan(args) => study::plan::run(&args),
        Command::Advise(args) => study::advise::run(&args),
        Command::Replay(args) => study::replay::run(&args),
        Command::Filter(command) => study::filter::run(&command),
        Command::Demo(args) => study::demo::run(&args),
        Command::Config(args) => show::config::run(&args),
        Command::Man(args) => show::generate::man(&args),
        Command::Completions(args) => show::generate::completions(&args),
    }
}
