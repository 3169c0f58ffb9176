//! The file formats a trace can come in, and how one is told from another.

use std::path::Path;

/// A file format of traces. docs/trace-format.md has one section for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The native one: every column, every hint.
    Parquet,
    /// libCacheSim's 24-byte records: time, object, size, next access.
    OracleGeneral,
    /// VMware's `vscsiStats` records, versions 1 and 2.
    Vscsi,
    /// CSV of the MSR Cambridge traces, seven columns without a header.
    Msr,
    /// The traces of the ARC paper: start, count, ignored, request number.
    Lis,
    /// One page number per line, as the LIRS traces.
    Ids,
    /// The text `blkparse` prints by default.
    Blkparse,
    /// Columns separated by commas, semicolons or tabs, mostly with a header.
    Csv,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::Parquet,
        Self::OracleGeneral,
        Self::Vscsi,
        Self::Msr,
        Self::Lis,
        Self::Ids,
        Self::Blkparse,
        Self::Csv,
    ];

    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::OracleGeneral => "oracle-general",
            Self::Vscsi => "vscsi",
            Self::Msr => "msr",
            Self::Lis => "lis",
            Self::Ids => "ids",
            Self::Blkparse => "blkparse",
            Self::Csv => "csv",
        }
    }

    /// The format with this name; case and hyphens do not matter (`oracleGeneral`).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
        let wanted = plain(name);
        Self::ALL
            .into_iter()
            .find(|format| plain(format.name()) == wanted)
    }

    /// The format of the file at `path` whose content, decompressed, begins with `head`; `None`
    /// when neither its name nor its beginning tells.
    ///
    /// The beginning decides where it can (Parquet, and all text formats, whatever the name
    /// says); binary records without a mark are known by the name: `.oracleGeneral`,
    /// `.oracleGeneral.bin`, `.vscsi`.
    #[must_use]
    pub fn detect(path: &Path, head: &[u8]) -> Option<Self> {
        if head.starts_with(b"PAR1") {
            return Some(Self::Parquet);
        }
        let by_name = Self::of_name(path);
        let binary = matches!(by_name, Some(Self::OracleGeneral | Self::Vscsi));
        if binary || head.is_empty() {
            return by_name;
        }
        Self::of_text(head).or(by_name)
    }

    /// What the name says, endings of compression left out.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let plain = [".zst", ".xz", ".gz"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending))
            .unwrap_or(&name);
        let plain = plain.strip_suffix(".bin").unwrap_or(plain);
        let plain = plain.strip_suffix(".txt").unwrap_or(plain);
        let (_, ending) = plain.rsplit_once('.')?;
        match ending {
            "parquet" => Some(Self::Parquet),
            "oraclegeneral" => Some(Self::OracleGeneral),
            "vscsi" | "vscsitrace" => Some(Self::Vscsi),
            "lis" => Some(Self::Lis),
            "ids" => Some(Self::Ids),
            "blkparse" | "blktrace" => Some(Self::Blkparse),
            "csv" | "tsv" => Some(Self::Csv),
            _ => None,
        }
    }

    fn of_text(head: &[u8]) -> Option<Self> {
        // The last line may be cut off; it only counts when it is the only one.
        let text = match std::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        if text.contains('\0') {
            return None;
        }
        let mut lines = text.lines().map(str::trim);
        lines
            .find(|line| !line.is_empty() && *line != "*" && !line.starts_with('#'))
            .and_then(Self::of_line)
    }

    /// What the first line that says something looks like.
    fn of_line(line: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().is_ok();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.iter().all(|word| number(word)) {
            return match words.len() {
                1 => Some(Self::Ids),
                4 => Some(Self::Lis),
                _ => line.contains('\t').then_some(Self::Csv),
            };
        }
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() == 7
            && number(cells[0])
            && matches!(cells[3].to_ascii_lowercase().as_str(), "read" | "write")
        {
            return Some(Self::Msr);
        }
        let device = words[0].split_once(',');
        if words.len() >= 6 && device.is_some_and(|(major, minor)| number(major) && number(minor)) {
            return Some(Self::Blkparse);
        }
        line.contains([',', ';', '\t']).then_some(Self::Csv)
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(name: &str, head: &str) -> Option<Format> {
        Format::detect(Path::new(name), head.as_bytes())
    }

    #[test]
    fn names_round_trip_in_any_spelling() {
        for format in Format::ALL {
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
        assert_eq!(
            Format::from_name("oracleGeneral"),
            Some(Format::OracleGeneral)
        );
        assert_eq!(Format::from_name("xls"), None);
    }

    #[test]
    fn file_names_are_read_under_compression() {
        for (name, format) in [
            ("d/a.oracleGeneral.bin.zst", Some(Format::OracleGeneral)),
            ("a.oracleGeneral", Some(Format::OracleGeneral)),
            ("a.vscsi.xz", Some(Format::Vscsi)),
            ("OLTP.lis.zst", Some(Format::Lis)),
            ("a.blkparse.txt", Some(Format::Blkparse)),
            ("a.CSV.gz", Some(Format::Csv)),
            ("a.trace", None),
            ("gz", None),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn text_is_known_by_its_first_line() {
        let msr = "128166372003061629,hm,1,Read,383496192,32768,1331";
        let blk = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]";
        for (text, format) in [
            (msr, Some(Format::Msr)),
            (blk, Some(Format::Blkparse)),
            ("time_us,op,rel\n1,R,wal\n", Some(Format::Csv)),
            ("1\t2\t3\n", Some(Format::Csv)),
            ("# taken on db1\ntime_us;op;rel\n", Some(Format::Csv)),
            ("*\n10000\n1\n", Some(Format::Ids)),
            ("230027 8 0 0\n", Some(Format::Lis)),
            ("hello", None),
        ] {
            assert_eq!(detect("x", text), format, "{text:?}");
        }
        assert_eq!(detect("hm_0.csv", msr), Some(Format::Msr));
        assert_eq!(detect("a.vscsi", "1 2 3 4"), Some(Format::Vscsi));
        assert_eq!(detect("a.lis", ""), Some(Format::Lis));
        assert_eq!(Format::detect(Path::new("x"), b"1 2 3 4\xff\0"), None);
    }
}
