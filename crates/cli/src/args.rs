//! All commands: help, man pages and completions come from here. The arguments of each command are
//! beside it.

use crate::failure::CODES_HELP;
use crate::serve::client::{MODE_HELP, ModeArgs, POLICY_HELP, PolicyArgs, TIER_HELP, TierArgs};
use crate::serve::{calibrate, check, flush, mount, pin, record, recover, reshape, umount};
use crate::show::{config, generate, status};
use crate::study::{advise, demo, filter, joint, mrc, plan, replay, simulate, trace};
use clap::{Parser, Subcommand};

/// A flash tier for databases.
///
/// Puts a tier on an SSD between an unmodified database and its slow bulk storage, and decides
/// what to keep there by what a page is for and what it would cost to fetch again.
#[derive(Debug, Parser)]
#[command(name = "thermocline", version, after_help = CODES_HELP, max_term_width = 100)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a base directory with a flash tier above it
    #[command(after_long_help = mount::HELP)]
    Mount(Box<mount::MountArgs>),
    /// Unmount, then write back what only flash holds and save the map; waits for it
    ///
    /// Refused while files are open.
    #[command(visible_alias = "unmount", after_long_help = umount::HELP)]
    Umount(umount::UmountArgs),
    /// Show what a mount is doing
    #[command(after_long_help = status::HELP)]
    Status(status::StatusArgs),
    /// Switch the replacement policy of a running mount
    #[command(after_long_help = POLICY_HELP)]
    Policy(PolicyArgs),
    /// List the parameters of the policies: defaults, the papers' values, ranges, sources
    Policies,
    /// Switch the flash tier of a running mount off or back on
    #[command(after_long_help = TIER_HELP)]
    Tier(TierArgs),
    /// Keep writes on flash and write them back later, or write them through to base
    #[command(after_long_help = MODE_HELP)]
    Mode(ModeArgs),
    /// Write back to base what only the tier holds; the mount goes on serving
    #[command(after_long_help = flush::HELP)]
    Flush(flush::FlushArgs),
    /// Write through and flush while it still serves, then unmount
    ///
    /// Use it when writing back takes long. Base is then whole without the cache.
    #[command(after_long_help = flush::DETACH_HELP)]
    Detach(flush::DetachArgs),
    /// Make the cache of a running mount longer or shorter
    #[command(after_long_help = reshape::RESIZE_HELP)]
    Resize(reshape::ResizeArgs),
    /// Put another cache in the place of the one a running mount has
    #[command(after_long_help = reshape::REPLACE_HELP)]
    Replace(reshape::ReplaceArgs),
    /// Keep files on flash, whatever else is read; without paths, list what is pinned
    #[command(after_long_help = pin::HELP)]
    Pin(pin::PinArgs),
    /// Let pinned files be evicted like all others
    #[command(after_long_help = pin::UNPIN_HELP)]
    Unpin(pin::UnpinArgs),
    /// Record the requests of a running mount for a while: a trace for `advise` and `simulate`
    #[command(after_long_help = record::HELP)]
    Record(record::RecordArgs),
    /// Verify a cache that is not mounted; changes nothing
    #[command(after_long_help = check::HELP)]
    Check(check::CheckArgs),
    /// Write back to base what a cache holds, without a mount
    #[command(after_long_help = recover::HELP)]
    Recover(recover::RecoverArgs),
    /// Measure the base and flash devices and store the costs in the configuration
    #[command(after_long_help = calibrate::HELP)]
    Calibrate(calibrate::CalibrateArgs),
    /// Work with recorded traces
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Compare policies and sizes of the tier on recorded requests, without any device
    #[command(after_long_help = simulate::EXAMPLES)]
    Simulate(Box<simulate::SimulateArgs>),
    /// Compare policies of pool and tier together, in write-back, on recorded requests
    #[command(after_long_help = joint::EXAMPLES)]
    Joint(Box<joint::JointArgs>),
    /// Draw miss ratio by size of the tier, from a sample of a trace's pages
    #[command(after_long_help = mrc::EXAMPLES)]
    Mrc(Box<mrc::MrcArgs>),
    /// Recommend sizes of flash and memory for a trace, given their prices
    #[command(after_long_help = plan::EXAMPLES)]
    Plan(Box<plan::PlanArgs>),
    /// Say what to buy, which policy to use, what to pin and what to leave out
    ///
    /// In place of a trace, a mountpoint: the mount is recorded for --for, and advised on as it is.
    #[command(after_long_help = advise::EXAMPLES)]
    Advise(Box<advise::AdviseArgs>),
    /// Do a trace's requests on real files through the tier, and time them
    #[command(after_long_help = replay::EXAMPLES)]
    Replay(Box<replay::ReplayArgs>),
    /// Keep sets of keys larger than memory on flash, and ask them: anti-joins, duplicates
    #[command(subcommand)]
    Filter(filter::FilterCommand),
    /// Show the tier at work on an emulated disk: no mount, no database server needed
    #[command(after_help = demo::EXPLANATION)]
    Demo(demo::DemoArgs),
    /// Print the default settings, with or without explanations, or check a file
    #[command(after_long_help = config::HELP)]
    Config(config::ConfigArgs),
    /// Write the man pages
    Man(generate::ManArgs),
    /// Print a completion script for a shell
    Completions(generate::CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;
    use clap::CommandFactory;
    use thermocline_core::policy::NAMES;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_is_explained() {
        fn check(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no help",
                command.get_name()
            );
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(
                    argument.get_help().is_some(),
                    "{} {id} has no help",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn the_brief_mount_line_parses() {
        let line = "thermocline mount /data /mnt --cache /ssd/c --size 8GiB --policy lru --pool 0 \
                    --page-size 16k --record t.parquet --emulate-base hdd --foreground --format";
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("parses");
        let Command::Mount(mount) = cli.command else {
            panic!("not mount")
        };
        assert_eq!(mount.size, Some(Size::Bytes(8 << 30)));
        assert_eq!(mount.page_size, Some(Size::Bytes(16384)));
        assert_eq!(mount.emulate_base, Some("hdd".to_string()));
        assert!(mount.foreground && mount.format);
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_ones() {
        let error = Cli::try_parse_from(["thermocline", "policy", "/mnt", "magic"]).unwrap_err();
        let text = error.to_string();
        assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
    }
}
