//! `policy`, `tier` and `mode`: one word written to a control file of the running mount.

use crate::failure::{Code, Failure, Outcome, reason};
use crate::serve::ask::{self, PATIENCE};
use crate::serve::beacon::{self, Stage};
use crate::serve::log::News;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thermocline_core::policy::{DEFAULT, NAMES};
use thermocline_mount::is_gone;

/// Shown at the end of `policy --help`.
pub(crate) const POLICY_HELP: &str = "\
Lasts until the mount ends; for more, write it into the configuration (tier.policy) or give --policy
to `mount`. Keep the default unless `simulate` or `advise` found a better one. What the policy
learned is lost with each change.
  thermocline policy /srv/pgdata clic";

/// Shown at the end of `tier --help`.
pub(crate) const TIER_HELP: &str = "\
The tier goes off by itself when flash fails too often, and stays off until this command, `replace`
or the next mount; `status` says why. `on` is refused while flash still has to answer requests.
  thermocline tier /srv/pgdata off
  thermocline tier /srv/pgdata on";

/// Shown at the end of `mode --help`.
pub(crate) const MODE_HELP: &str = "\
Lasts until the mount ends: at the next one --write-back or tier.write_back decides. A mount that
began in write-through has no reserve for dirty pages, so more of them go to base at once. Base is
whole after `write-through` once `flush` is done too.
  thermocline mode /srv/pgdata write-through && thermocline flush /srv/pgdata";

/// `thermocline policy`.
#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// The policy to use from now on; the tier's contents stay. "default" is auto, or tac where
    /// tier.policy_memory is too little for auto
    #[arg(value_parser = PossibleValuesParser::new(NAMES.iter().copied().chain([DEFAULT])))]
    pub(crate) name: String,
}

/// `thermocline tier`.
#[derive(Args, Debug)]
pub(crate) struct TierArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Serve from the tier, or pass everything to base
    pub(crate) state: Switch,
}

/// Off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Use it again, from empty; hot pages come back by the list that the mount keeps
    On,
    /// Write all dirty pages back, then serve everything from base; what flash holds is forgotten
    Off,
}

impl Switch {
    /// The word written to the mount's control file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// `thermocline mode`.
#[derive(Args, Debug)]
pub(crate) struct ModeArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Where writes go from now on
    pub(crate) mode: WriteMode,
}

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteMode {
    /// To flash; base gets them later
    WriteBack,
    /// To base; what is dirty is written back in the background
    WriteThrough,
}

/// The virtual directory in the root of every mount.
pub(crate) const DIRECTORY: &str = ".thermocline";

/// Switches the policy.
pub(crate) fn policy(args: &PolicyArgs) -> Outcome {
    write(&args.mountpoint, "policy", &args.name)?;
    println!("policy {}", args.name);
    Ok(())
}

/// Switches the tier off or on.
pub(crate) fn tier(args: &TierArgs) -> Outcome {
    write(&args.mountpoint, "tier", args.state.word())?;
    println!("tier {}", args.state.word());
    Ok(())
}

/// Switches between write-back and write-through.
pub(crate) fn mode(args: &ModeArgs) -> Outcome {
    let (word, said) = match args.mode {
        WriteMode::WriteBack => (
            "on",
            "write-back: base is whole only together with the cache",
        ),
        WriteMode::WriteThrough => (
            "off",
            "write-through: dirty pages are written back in the background; `flush` waits for that",
        ),
    };
    write(&args.mountpoint, "write_back", word)?;
    println!("mode {said}");
    Ok(())
}

/// The control file `name` of the mount at `mountpoint`, once it is known to be there.
pub(crate) fn file(mountpoint: &Path, name: &str) -> Result<PathBuf, Failure> {
    file_within(PATIENCE, mountpoint, name)
}

fn file_within(patience: Duration, mountpoint: &Path, name: &str) -> Result<PathBuf, Failure> {
    let directory = mountpoint.join(DIRECTORY);
    match ask::is_directory(&directory, patience) {
        Ok(true) => Ok(directory.join(name)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(hung(mountpoint, patience)),
        Err(error) if is_gone(&error) => Err(gone(mountpoint)),
        Err(error) if !is_no_name(&error) => Err(Failure::io("look into", &directory, &error)),
        _ => Err(not_mounted(mountpoint)),
    }
}

fn is_no_name(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
}

/// Fails where a mount is at `mountpoint` that does not answer; whatever else is there is well.
pub(crate) fn answers(mountpoint: &Path) -> Outcome {
    match ask::is_directory(mountpoint, PATIENCE) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(hung(mountpoint, PATIENCE)),
        _ => Ok(()),
    }
}

/// The failure for a mount that gave no answer within `patience`.
pub(crate) fn hung(mountpoint: &Path, patience: Duration) -> Failure {
    let (shown, seconds) = (mountpoint.display(), patience.as_secs());
    let said = format!("the mount at {shown} does not answer, for {seconds} s");
    match beacon::listener_of(mountpoint) {
        Some(pid) => {
            Failure::new(Code::Hung, format!("{said}; its process is {pid}")).advise(format!(
                "`ps -o pid,stat,wchan -Lp {pid}` says what it waits for (T: it is stopped, kill \
                 -CONT {pid}; D: for base). To give it up: thermocline umount --lazy {shown}, then \
                 kill -9 {pid}"
            ))
        }
        None => Failure::new(Code::Hung, said).advise(format!(
            "see whether what {shown} stands on answers; thermocline umount --lazy {shown} \
             detaches a mount"
        )),
    }
}

/// The failure for a mount that was killed.
pub(crate) fn gone(mountpoint: &Path) -> Failure {
    let shown = mountpoint.display();
    Failure::new(
        Code::NotMounted,
        format!("the process serving {shown} is gone"),
    )
    .advise(format!("thermocline umount {shown}, then mount again"))
}

/// The failure for a directory that is no mount.
pub(crate) fn not_mounted(mountpoint: &Path) -> Failure {
    let standing = beacon::of_mountpoint(mountpoint);
    if let Some(standing) = standing.filter(|standing| standing.stage != Stage::Serving) {
        return standing.not_mounted(mountpoint);
    }
    Failure::new(
        Code::NotMounted,
        format!("no Thermocline mount at {}", mountpoint.display()),
    )
    .advise("thermocline mount BASE MOUNTPOINT --cache FILE --size SIZE")
}

/// The failure for a control file that says something else than it should.
pub(crate) fn not_understood(text: &str) -> Failure {
    let first = text.lines().next().unwrap_or_default();
    Failure::new(Code::Failure, format!("the mount says \"{first}\""))
        .advise("the mount may run another version of thermocline; use that one")
}

/// The text of control file `name`.
pub(crate) fn read(mountpoint: &Path, name: &str) -> Result<String, Failure> {
    read_within(PATIENCE, mountpoint, name)
}

/// The text of control file `name`, if it comes in time.
pub(crate) fn read_within(
    patience: Duration,
    mountpoint: &Path,
    name: &str,
) -> Result<String, Failure> {
    let path = file_within(patience, mountpoint, name)?;
    let text = ask::read(&path, patience).map_err(|error| match error.kind() {
        _ if is_gone(&error) => gone(mountpoint),
        io::ErrorKind::TimedOut => hung(mountpoint, patience),
        _ => Failure::io("read", &path, &error),
    })?;
    String::from_utf8(text).map_err(|error| {
        let shown = path.display();
        Failure::new(Code::Failure, format!("{shown} is no text: {error}"))
    })
}

/// Writes `word` to control file `name`. A mount that refuses it says why in its log.
pub(crate) fn write(mountpoint: &Path, name: &str, word: &str) -> Outcome {
    let path = file(mountpoint, name)?;
    let standing = beacon::of_mountpoint(mountpoint);
    let news = standing.map(|standing| News::of(&standing.mount.log));
    fs::write(&path, format!("{word}\n")).map_err(|error| {
        let why = news.as_ref().and_then(News::refusal);
        let shown = mountpoint.display();
        match error.raw_os_error() {
            _ if is_gone(&error) => gone(mountpoint),
            Some(libc::EINVAL) => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let said = format!("the mount at {shown} refused {name} \"{word}\"{why}");
                Failure::new(Code::Failure, said).advise(format!("thermocline status {shown}"))
            }
            _ if error.kind() == io::ErrorKind::PermissionDenied => {
                Failure::io("write", &path, &error)
            }
            _ => {
                let why = why.unwrap_or_else(|| reason(&error));
                let said = format!("{name} \"{word}\" failed: {why}");
                Failure::new(Code::Failure, said).advise(format!("thermocline status {shown}"))
            }
        }
    })
}
