//! What the mark says: one line of text, for programs and for people.
//!
//! `thermocline mark 1; state=dirty; MEANING; base=…; cache=…; epoch=…; …`. Fields are separated by
//! `; ` and are `key=value`, but for the meaning; values keep `;`, `%` and control characters as
//! `%XX`. Unknown keys are for later versions and are ignored; another number after `mark` is not
//! understood, and refuses.

use super::host::{self, Host};
use crate::store::CacheStamp;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const HEAD: &str = "thermocline mark 1";
/// Bytes of a path at most; its end is kept.
const PATH_MAX: usize = 400;

/// How a base stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Base has everything.
    Whole,
    /// A mount in write-through: base has everything, and is being written.
    Serving,
    /// Base is whole only together with the cache.
    Dirty,
}

impl State {
    const ALL: [Self; 3] = [Self::Whole, Self::Serving, Self::Dirty];

    fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Serving => "serving",
            Self::Dirty => "dirty",
        }
    }

    /// What it means to whoever looks.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Whole => "this directory has everything and can be used alone",
            Self::Serving => {
                "this directory is served by a Thermocline mount: use it through the mount only"
            }
            Self::Dirty => {
                "the newest bytes are in the cache and not in this directory: start no server on \
                 it, copy nothing out of it; mount it with the cache, or thermocline recover"
            }
        }
    }
}

/// Who serves a base, or did last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claimant {
    pub(crate) cache_path: String,
    pub(crate) mountpoint: String,
    pub(crate) host: Host,
    /// 0 once it has ended in good order.
    pub(crate) pid: u32,
    /// Tells one claim from every other.
    pub(crate) token: String,
    /// When, in seconds since 1970.
    pub(crate) time: u64,
}

impl Claimant {
    /// This process, with a new token.
    pub(super) fn new(host: &Host, cache_path: &str, mountpoint: &Path) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // Without random numbers process and time have to do.
        let fallback = now.as_nanos();
        let token = host::random().unwrap_or(fallback ^ u128::from(std::process::id()) << 96);
        Self {
            cache_path: cache_path.into(),
            mountpoint: mountpoint.display().to_string(),
            host: host.clone(),
            pid: std::process::id(),
            token: format!("{token:032x}"),
            time: now.as_secs(),
        }
    }

    pub(super) fn nobody() -> Self {
        Self::default()
    }

    /// Whether it had not ended when the mark was written.
    pub(super) fn is_serving(&self) -> bool {
        self.pid != 0
    }
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on host {}", self.pid, self.host.name)?;
        if !self.mountpoint.is_empty() {
            write!(f, ", mounted on {}", self.mountpoint)?;
        }
        Ok(())
    }
}

/// A mark. See the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(crate) state: State,
    /// Which base it is.
    pub(crate) base: u128,
    /// Format id of the cache; 0 for none.
    pub(crate) cache: u64,
    /// Opening of the cache.
    pub(crate) epoch: u64,
    pub(crate) claimant: Claimant,
    /// A take-over whose wait has not ended: somebody else may still rely on the base.
    pub(crate) taking: bool,
}

impl Mark {
    /// Format id of the cache; 0 for none.
    #[doc(hidden)]
    #[must_use]
    pub fn cache_id(&self) -> u64 {
        self.cache
    }

    /// Whether it names the cache in an opening that is not older than the newest it is known to
    /// have named.
    pub(super) fn is_of_newest(&self, cache: &CacheStamp) -> bool {
        self.cache == cache.format_id && self.epoch >= cache.marked
    }

    pub(crate) fn encode(&self) -> String {
        let claimant = &self.claimant;
        let mut out = format!(
            "{HEAD}; state={}; {}",
            self.state.word(),
            self.state.meaning()
        );
        let fields = [
            ("base", format!("{:032x}", self.base)),
            ("cache", format!("{:016x}", self.cache)),
            ("epoch", self.epoch.to_string()),
            ("cache-file", escape(&claimant.cache_path)),
            ("mountpoint", escape(&claimant.mountpoint)),
            ("host", escape(&claimant.host.name)),
            ("machine", escape(&claimant.host.machine)),
            ("boot", escape(&claimant.host.boot)),
            ("pid", claimant.pid.to_string()),
            ("token", escape(&claimant.token)),
            ("time", claimant.time.to_string()),
        ];
        for (key, value) in fields {
            // Writing to a String cannot fail.
            let _ = write!(out, "; {key}={value}");
        }
        if self.taking {
            out.push_str("; taking=1");
        }
        out
    }

    /// The mark in `text`, or what is wrong with it.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        let mut parts = text.trim_end().split("; ");
        let head = parts.next().unwrap_or_default();
        if head != HEAD {
            return Err(format!("it begins with \"{}\"", cut(head)));
        }
        let fields: BTreeMap<&str, String> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key, unescape(value)))
            .collect();
        let text = |key: &str| fields.get(key).cloned().unwrap_or_default();
        let wrong = |key: &str| format!("its {key} is \"{}\"", cut(&text(key)));
        let word = text("state");
        let state = State::ALL.into_iter().find(|state| state.word() == word);
        let hex = |key: &str| u128::from_str_radix(&text(key), 16).map_err(|_| wrong(key));
        let number = |key: &str| text(key).parse::<u64>().map_err(|_| wrong(key));
        Ok(Self {
            state: state.ok_or_else(|| wrong("state"))?,
            base: hex("base")?,
            cache: u64::try_from(hex("cache")?).map_err(|_| wrong("cache"))?,
            epoch: number("epoch")?,
            claimant: Claimant {
                cache_path: text("cache-file"),
                mountpoint: text("mountpoint"),
                host: Host {
                    name: text("host"),
                    machine: text("machine"),
                    boot: text("boot"),
                },
                pid: u32::try_from(number("pid")?).map_err(|_| wrong("pid"))?,
                token: text("token"),
                time: number("time")?,
            },
            // Older programs write none.
            taking: text("taking") == "1",
        })
    }

    /// The cache in words.
    pub(super) fn cache_in_words(&self) -> String {
        match self.claimant.cache_path.is_empty() {
            true if self.cache == 0 => "no cache".into(),
            true => format!("cache {:016x}", self.cache),
            false => format!("cache {:016x} ({})", self.cache, self.claimant.cache_path),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = self.cache_in_words();
        match self.state {
            State::Whole => return write!(f, "whole"),
            State::Serving => write!(f, "served with {cache}")?,
            State::Dirty => write!(f, "owed newer bytes by {cache}")?,
        }
        match self.claimant.is_serving() {
            true => write!(f, ", {}", self.claimant),
            false => Ok(()),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

fn escape(text: &str) -> String {
    let mut from = text.len().saturating_sub(PATH_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let mut out = String::new();
    for character in text[from..].chars() {
        match character {
            ';' | '%' | '\0'..='\x1f' | '\x7f' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{:02x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out
}

fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) if code.is_ascii() => {
                out.push(char::from(code));
                out.push_str(&part[2..]);
            }
            _ => {
                out.push('%');
                out.push_str(part);
            }
        }
    }
    out
}
