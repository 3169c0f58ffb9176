//! A pool policy over a tier policy, as the thesis writes them (§6.5): `gd2l+cac`.

use std::fmt;
use std::str::FromStr;
use thermocline_core::policy::parameters::PAPERS;
use thermocline_core::{policy, pool};

/// What to call no tier at all.
pub const NO_TIER: &str = "none";
const THROUGH: &str = "through";
const BACK: &str = "back";

/// See the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// Policy of the DRAM pool.
    pub pool: String,
    /// Policy of the tier, also with `:paper` at its end, or [`NO_TIER`].
    pub tier: String,
    /// Write-back; else write-through, written `lru+tac:through`. Without a tier it is the other
    /// way: `lru+none` is write-through, in `lru+none:back` base gets what the pool cleans.
    pub back: bool,
}

impl FromStr for Combination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "\"{text}\" is not a combination; write lru+cc, gd2l+cac:paper or lru+tac:through"
            )
        };
        let (pool, tier) = text.trim().split_once('+').ok_or_else(form)?;
        let (tier, through) = match tier.strip_suffix(THROUGH).and_then(|t| t.strip_suffix(':')) {
            Some(tier) => (tier, true),
            None => (tier, false),
        };
        let buffers = tier.strip_suffix(BACK).and_then(|t| t.strip_suffix(':')) == Some(NO_TIER);
        if buffers && through {
            return Err(form());
        }
        let tier = if buffers { NO_TIER } else { tier };
        let plain = match tier.split_once(':') {
            Some((plain, _)) if PAPERS.contains(&tier) => plain,
            Some(_) => return Err(form()),
            None => tier,
        };
        known("pool", pool, pool::NAMES.iter().copied())?;
        let tiers = policy::NAMES.iter().copied().chain([NO_TIER]);
        known("tier", plain, tiers)?;
        Ok(Self {
            pool: pool.into(),
            tier: tier.into(),
            back: buffers || !through && tier != NO_TIER,
        })
    }
}

fn known(what: &str, name: &str, names: impl Iterator<Item = &'static str>) -> Result<(), String> {
    let names: Vec<_> = names.collect();
    match names.contains(&name) {
        true => Ok(()),
        false => Err(format!(
            "no {what} policy is called \"{name}\"; there are {}",
            names.join(", ")
        )),
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{}", self.pool, self.tier)?;
        match (self.tier.as_str(), self.back) {
            (NO_TIER, true) => write!(out, ":{BACK}"),
            (NO_TIER, false) | (_, true) => Ok(()),
            (_, false) => write!(out, ":{THROUGH}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_come_back_as_they_were_written() {
        for text in [
            "lru+cc",
            "gd2l+cac:paper",
            "lru+tac:paper:through",
            "clock+tac:through",
            "lru+none",
            "lru+none:back",
        ] {
            let combination: Combination = text.parse().expect(text);
            assert_eq!(combination.to_string(), text);
            let written_back = !text.ends_with("through") && text != "lru+none";
            assert_eq!(combination.back, written_back);
        }
    }

    #[test]
    fn what_is_no_combination_is_named() {
        for (text, part) in [
            ("lru", "lru+cc"),
            ("lru+cc:back", "lru+cc:back"),
            ("lru+none:back:through", "lru+none:back"),
            ("lru+lru:paper", "lru+lru:paper"),
            ("mru+cc", "gd2l"),
            ("lru+magic", "cac"),
        ] {
            let error = text.parse::<Combination>().expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
