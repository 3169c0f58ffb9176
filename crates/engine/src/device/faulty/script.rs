//! The language of fault scripts; the grammar is in the parent module.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {message}, at \"{word}\"")]
pub struct ScriptError {
    /// Line, from 1.
    pub line: usize,
    /// The word that does not fit; "end of rule" when one is missing.
    pub word: String,
    /// What was expected.
    pub message: String,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Sync,
}

/// What a rule does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Fail(i32),
    Corrupt,
    Short(usize),
    Lose,
    Delay(Duration),
    Hang(Duration),
}

/// One line of a script and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// `None`: any.
    kind: Option<Kind>,
    every: u64,
    after: u64,
    times: u64,
    pub(super) offset: Option<Range<u64>>,
    pub(super) action: Action,
    matched: u64,
    fired: u64,
}

impl Rule {
    /// What the parser promises of every rule.
    pub(super) fn is_valid(&self) -> bool {
        let moves_bytes = !matches!(self.action, Action::Corrupt | Action::Short(_))
            || self.kind != Some(Kind::Sync);
        let loses =
            self.action != Action::Lose || matches!(self.kind, Some(Kind::Write | Kind::Sync));
        let range = self.offset.as_ref().is_none_or(|o| o.start < o.end);
        self.every > 0 && range && moves_bytes && loses
    }

    /// Counts the request if it matches; says whether the rule fires.
    pub(super) fn fires(&mut self, kind: Kind, range: &Range<u64>) -> bool {
        debug_assert!(self.every > 0 && range.start <= range.end);
        let kind_fits = self.kind.is_none_or(|k| k == kind);
        let offset_fits = self
            .offset
            .as_ref()
            .is_none_or(|o| range.start < o.end && o.start < range.end);
        if !kind_fits || !offset_fits {
            return false;
        }
        self.matched += 1;
        let turn =
            self.matched > self.after && (self.matched - self.after).is_multiple_of(self.every);
        let fires = turn && self.fired < self.times;
        self.fired += u64::from(fires);
        assert!(self.fired <= self.matched && self.fired <= self.times);
        fires
    }
}

/// One statement of a script.
pub(super) enum Statement {
    Clear,
    Rule(Rule),
}

pub(super) fn parse(script: &str) -> Result<Vec<Statement>, ScriptError> {
    let mut statements = Vec::new();
    for (index, line) in script.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        for text in code.split(';') {
            let mut words = Words {
                line: index + 1,
                rest: text.split_whitespace(),
            };
            match words.rest.clone().next() {
                None => {}
                Some("clear") => {
                    words.rest.next();
                    words.end()?;
                    statements.push(Statement::Clear);
                }
                Some(_) => statements.push(Statement::Rule(words.rule()?)),
            }
            debug_assert!(words.rest.next().is_none(), "read to the end");
        }
    }
    Ok(statements)
}

/// The words of one statement.
struct Words<'a> {
    line: usize,
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn error(&self, word: &str, message: &str) -> ScriptError {
        ScriptError {
            line: self.line,
            word: word.into(),
            message: message.into(),
        }
    }

    fn next(&mut self, expected: &str) -> Result<&'a str, ScriptError> {
        self.rest
            .next()
            .ok_or_else(|| self.error("end of rule", expected))
    }

    fn end(&mut self) -> Result<(), ScriptError> {
        match self.rest.next() {
            Some(word) => Err(self.error(word, "nothing may follow")),
            None => Ok(()),
        }
    }

    fn rule(&mut self) -> Result<Rule, ScriptError> {
        let expected = "expected read, write, sync, any or clear";
        let kind = match self.next(expected)? {
            "read" => Some(Kind::Read),
            "write" => Some(Kind::Write),
            "sync" => Some(Kind::Sync),
            "any" => None,
            word => return Err(self.error(word, expected)),
        };
        let (mut every, mut after, mut times, mut offset) = (1, 0, u64::MAX, None);
        loop {
            let expected = "expected a condition (every, after, times, offset) or an action \
                            (fail, corrupt, short, lose, delay, hang)";
            let word = self.next(expected)?;
            match word {
                "every" => every = self.positive()?,
                "after" => after = self.number()?,
                "times" => times = self.number()?,
                "offset" => offset = Some(self.range()?),
                _ => {
                    let action = self.action(word, kind, expected)?;
                    self.end()?;
                    let rule = Rule {
                        kind,
                        every,
                        after,
                        times,
                        offset,
                        action,
                        matched: 0,
                        fired: 0,
                    };
                    debug_assert!(rule.is_valid());
                    return Ok(rule);
                }
            }
        }
    }

    fn action(
        &mut self,
        word: &str,
        kind: Option<Kind>,
        expected: &str,
    ) -> Result<Action, ScriptError> {
        let moves_bytes = kind != Some(Kind::Sync);
        Ok(match word {
            "fail" => Action::Fail(self.errno()?),
            "corrupt" if moves_bytes => Action::Corrupt,
            "short" if moves_bytes => {
                Action::Short(usize::try_from(self.number()?).unwrap_or(usize::MAX))
            }
            "lose" if matches!(kind, Some(Kind::Write | Kind::Sync)) => Action::Lose,
            "delay" => Action::Delay(self.duration()?),
            "hang" => Action::Hang(self.duration()?),
            "corrupt" | "short" | "lose" => {
                return Err(self.error(word, "this operation cannot do that"));
            }
            _ => return Err(self.error(word, expected)),
        })
    }

    fn number(&mut self) -> Result<u64, ScriptError> {
        let expected = "expected a whole number, as in 12 or 4K";
        let word = self.next(expected)?;
        number(word).ok_or_else(|| self.error(word, expected))
    }

    fn positive(&mut self) -> Result<u64, ScriptError> {
        let expected = "expected a whole number above 0";
        let word = self.next(expected)?;
        number(word)
            .filter(|&n| n > 0)
            .ok_or_else(|| self.error(word, expected))
    }

    fn range(&mut self) -> Result<Range<u64>, ScriptError> {
        let expected = "expected a range of bytes, as in 4096..8192";
        let word = self.next(expected)?;
        word.split_once("..")
            .and_then(|(from, to)| Some(number(from)?..number(to)?))
            .filter(|range| range.start < range.end)
            .ok_or_else(|| self.error(word, expected))
    }

    fn duration(&mut self) -> Result<Duration, ScriptError> {
        let expected = "expected a duration, as in 50us, 2ms or 5s";
        let word = self.next(expected)?;
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let make = match unit {
            "us" => Duration::from_micros,
            "ms" => Duration::from_millis,
            "s" => Duration::from_secs,
            _ => return Err(self.error(word, expected)),
        };
        let digits = &word[..word.len() - unit.len()];
        debug_assert!(digits.bytes().all(|b| b.is_ascii_digit()));
        u64::from_str(digits)
            .map(make)
            .map_err(|_| self.error(word, expected))
    }

    fn errno(&mut self) -> Result<i32, ScriptError> {
        let expected = "expected an error name, as in EIO";
        let word = self.next(expected)?;
        let known = ERRORS.iter().find(|(name, _)| *name == word);
        debug_assert!(known.is_none_or(|&(_, code)| code > 0));
        known
            .map(|&(_, code)| code)
            .ok_or_else(|| self.error(word, expected))
    }
}

/// The errors storage gives.
const ERRORS: [(&str, i32); 14] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EDQUOT", libc::EDQUOT),
    ("EROFS", libc::EROFS),
    ("ENOENT", libc::ENOENT),
    ("ENODEV", libc::ENODEV),
    ("ENXIO", libc::ENXIO),
    ("ENOMEM", libc::ENOMEM),
    ("EAGAIN", libc::EAGAIN),
    ("EINVAL", libc::EINVAL),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("EREMOTEIO", libc::EREMOTEIO),
    ("ENOTCONN", libc::ENOTCONN),
];

fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(['K', 'M', 'G']);
    let unit = match &word[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    u64::from_str(digits).ok()?.checked_mul(unit)
}
