//! The default policy: `auto`, where what it remembers fits the memory it may take, else `tac`.
//!
//! [`DEFAULT`] is a name for [`super::build`] like others, but what is built has the name of the
//! policy that it is. It is chosen for the size of the tier, so whoever makes the tier larger asks
//! by [`DEFAULT`] again. A policy that is named itself is never another one.

use super::PolicyOptions;
use super::auto::Fit;

/// What the default policy is called where policies are named.
pub const DEFAULT: &str = "default";
/// Where there is memory for it.
const WANTED: &str = "auto";
/// Where there is not.
const FALL_BACK: &str = "tac";

/// The policy that [`DEFAULT`] is under `options`. O(1).
#[must_use]
pub fn standard(options: &PolicyOptions) -> &'static str {
    match Fit::of(options) {
        Some(_) => WANTED,
        None => FALL_BACK,
    }
}

/// What the memory allowed made of the policy asked for as `asked`, in one sentence; `None` where
/// it is whole. O(1).
#[must_use]
pub fn remark(asked: &str, options: &PolicyOptions) -> Option<String> {
    let memory = options.memory?;
    let slots = options.capacity;
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1u64 << 20) as f64);
    let allowed = format!("tier.policy_memory is {}", mib(memory));
    let name = if asked == DEFAULT { WANTED } else { asked };
    let (fits, least, whole) = match name {
        "auto" => (
            Fit::of(options).map(|fit| fit.bytes(slots)),
            Fit::smallest(options).bytes(slots),
            Fit::whole(options).bytes(slots),
        ),
        "value" | "value-time" => (
            options
                .value
                .within(slots, memory)
                .map(|form| form.bytes(slots)),
            options.value.smallest(slots).bytes(slots),
            options.value.bytes(slots),
        ),
        _ => return None,
    };
    match fits {
        Some(bytes) if bytes < whole => Some(format!(
            "{name} remembers less than it would like, {} instead of {}: {allowed}",
            mib(bytes),
            mib(whole)
        )),
        Some(_) => None,
        None if asked == DEFAULT => Some(format!(
            "{FALL_BACK} decides, because {name} needs {} at least for a tier of this size: \
             {allowed}",
            mib(least)
        )),
        None => Some(format!(
            "{name} takes {}, the least it can, which is more than allowed: {allowed}",
            mib(least)
        )),
    }
}
