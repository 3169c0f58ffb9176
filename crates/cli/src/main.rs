//! The `thermocline` command: mounts, shows, measures; see `thermocline --help`.

mod advise;
mod args;
mod beacon;
mod caches;
mod chart;
mod claiming;
mod commands;
mod config;
mod control;
mod curve_page;
mod daemon;
mod demo;
#[cfg(test)]
mod documented;
mod ending;
mod explain;
mod failure;
mod filter;
mod flushing;
mod import;
mod joint;
mod log;
mod modelled;
mod mrc;
mod pace;
mod parameters;
mod pins;
mod plan;
mod plot;

mod preflight;
mod reader;
mod recording;
mod replay;
mod report;
mod reshaping;
mod salvage;
mod serving;
mod settings;
mod signals;
mod simulate;
mod table;
mod terminal;
mod units;

use args::{Cli, Command, TraceCommand};
use clap::Parser;
use failure::Outcome;
use std::process::ExitCode;

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
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::umount::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Policy(args) => commands::control::policy(&args),
        Command::Policies => parameters::list(),
        Command::Tier(args) => commands::control::tier(&args),
        Command::Mode(args) => commands::control::mode(&args),
        Command::Flush(args) => commands::flush::run(&args),
        Command::Detach(args) => commands::flush::detach(&args),
        Command::Resize(args) => commands::reshape::resize(&args),
        Command::Replace(args) => commands::reshape::replace(&args),
        Command::Pin(args) => commands::pin::pin(&args),
        Command::Unpin(args) => commands::pin::unpin(&args),
        Command::Record(args) => commands::record::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Recover(args) => commands::recover::run(&args),
        Command::Calibrate(args) => commands::calibrate::run(&args),
        Command::Trace(TraceCommand::Info(args)) => commands::trace::info(&args),
        Command::Trace(TraceCommand::Convert(args)) => commands::trace::convert(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Joint(args) => joint::run(&args),
        Command::Mrc(args) => mrc::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Filter(command) => filter::run(&command),
        Command::Demo(args) => demo::run(&args),
        Command::Config(args) => commands::config::run(&args),
        Command::Man(args) => commands::generate::man(&args),
        Command::Completions(args) => commands::generate::completions(&args),
    }
}
