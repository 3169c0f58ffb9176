//! A row cut into cells.

use crate::import::number::text;

/// The cells of one row, one after another in a buffer that is used again.
#[derive(Default)]
pub(super) struct Cells {
    bytes: Vec<u8>,
    /// Where each cell ends in `bytes`.
    ends: Vec<usize>,
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        self.bytes.get(start..end)
    }

    pub(super) fn texts(&self) -> Result<Vec<&str>, String> {
        let cells = (0..self.len()).filter_map(|at| self.get(at));
        cells.map(text).collect()
    }

    /// Cuts a line. White space around a cell is dropped. A cell may be in double quotes, a doubled
    /// quote inside standing for one; a line break inside quotes is not possible.
    pub(super) fn split(&mut self, line: &[u8], delimiter: u8) -> Result<(), String> {
        self.bytes.clear();
        self.ends.clear();
        let mut rest = line;
        loop {
            let after = match rest {
                [b'"', quoted @ ..] => self.quoted(quoted)?,
                _ => {
                    let end = rest.iter().position(|&byte| byte == delimiter);
                    let (cell, after) = rest.split_at(end.unwrap_or(rest.len()));
                    self.bytes.extend_from_slice(cell.trim_ascii());
                    after
                }
            };
            self.ends.push(self.bytes.len());
            match after {
                [] => return Ok(()),
                [byte, after @ ..] if *byte == delimiter => rest = after,
                _ => return Err(format!("text after the quotes of cell {}", self.len())),
            }
        }
    }

    /// Takes a cell whose opening quote has been read; returns what follows the closing one.
    fn quoted<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], String> {
        loop {
            let Some(end) = rest.iter().position(|&byte| byte == b'"') else {
                return Err(format!("cell {} has no closing quote", self.len() + 1));
            };
            self.bytes.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let [b'"', after @ ..] = rest else {
                return Ok(rest);
            };
            self.bytes.push(b'"');
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str, delimiter: char) -> Result<Vec<String>, String> {
        let mut cells = Cells::default();
        cells.split(line.as_bytes(), delimiter as u8)?;
        Ok(cells.texts()?.into_iter().map(String::from).collect())
    }

    #[test]
    fn rows_are_cut_at_delimiters_outside_quotes() {
        assert_eq!(split("a, b ,,c", ',').unwrap(), ["a", "b", "", "c"]);
        assert_eq!(split("", ',').unwrap(), [""]);
        assert_eq!(split("a;", ';').unwrap(), ["a", ""]);
        assert_eq!(
            split("\" a,\"\"b\"\"\",\"\",c", ',').unwrap(),
            [" a,\"b\"", "", "c"]
        );
    }

    #[test]
    fn quotes_that_do_not_match_are_errors() {
        assert!(split("a,\"b", ',').unwrap_err().contains("cell 2"));
        assert!(split("\"a\"b,c", ',').unwrap_err().contains("cell 1"));
    }
}
