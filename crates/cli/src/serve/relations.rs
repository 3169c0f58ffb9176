//! Tables and indexes by their names: a list that PostgreSQL printed says which file each has.

use crate::failure::{Failure, Outcome};
use clap::{Args, ValueHint};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What prints the list; the first needs no extension.
const QUERY: &str = "psql -d DATABASE -At -c \"SELECT pg_relation_filepath(oid), oid::regclass \
                     FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL\" > FILE, or \
                     SELECT path, relation FROM thermocline_relations(); then --relations FILE";

/// Relations named on the command line.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RelationArgs {
    /// A table or an index of PostgreSQL, as --relations calls it; may be repeated
    #[arg(long = "relation", value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Which file each has: a line PATH|NAME each, as psql -At prints it; - for standard input
    #[arg(long = "relations", value_name = "FILE", value_hint = ValueHint::FilePath,
          requires = "names")]
    pub(crate) list: Option<PathBuf>,
    /// PostgreSQL's data directory, relative to the mountpoint [default: the mountpoint]
    #[arg(long = "data", value_name = "DIRECTORY", requires = "names")]
    pub(crate) data: Option<String>,
}

impl RelationArgs {
    /// The files of the relations as `pin` takes them, relative to the mountpoint.
    pub(crate) fn paths(&self, mountpoint: &Path) -> Result<Vec<String>, Failure> {
        let Some(first) = self.names.first() else {
            return Ok(Vec::new());
        };
        let Some(list) = &self.list else {
            let fact = format!("which file \"{first}\" has is not said");
            return Err(Failure::usage(fact).advise(QUERY));
        };
        let listed = Listed::read(list)?;
        let mut paths = Vec::new();
        for name in &self.names {
            let path = listed.path(name)?;
            let path = match self.data.as_deref().map(|data| data.trim_matches('/')) {
                None | Some("" | ".") => path.to_string(),
                Some(data) => format!("{data}/{path}"),
            };
            is_there(mountpoint, name, &path)?;
            // Beyond 1 GiB there are further files; a pattern must match one.
            if mountpoint.join(format!("{path}.1")).exists() {
                paths.push(format!("{path}.*"));
            }
            paths.push(path);
        }
        Ok(paths)
    }
}

fn is_there(mountpoint: &Path, name: &str, path: &str) -> Outcome {
    if mountpoint.join(path).is_file() {
        return Ok(());
    }
    let fact = format!(
        "\"{name}\" has the file {path}, which is not below {}",
        mountpoint.display()
    );
    Err(Failure::usage(fact).advise(
        "--data DIRECTORY, where PostgreSQL's data is below the mountpoint; and print the list \
         again: VACUUM FULL, CLUSTER and TRUNCATE give a new file",
    ))
}

/// What PostgreSQL printed.
#[derive(Debug)]
struct Listed {
    /// Where it was read from.
    from: String,
    /// File and name of each.
    rows: Vec<(String, String)>,
}

impl Listed {
    fn read(list: &Path) -> Result<Self, Failure> {
        let (from, text) = match list == Path::new("-") {
            true => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text)?;
                ("standard input".to_string(), text)
            }
            false => {
                let text = fs::read_to_string(list);
                let text = text.map_err(|error| Failure::io("read", list, &error))?;
                (list.display().to_string(), text)
            }
        };
        Self::parse(from, &text)
    }

    fn parse(from: String, text: &str) -> Result<Self, Failure> {
        let mut rows = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() {
                continue;
            }
            let cells = line.split_once('|').filter(|(path, name)| {
                let relative = !path.is_empty() && !path.starts_with('/');
                relative && !name.is_empty() && !path.split('/').any(|part| part == "..")
            });
            let Some((path, name)) = cells else {
                let fact = format!("line {number} of {from} is not PATH|NAME");
                return Err(Failure::usage(fact).advise(QUERY));
            };
            rows.push((path.to_string(), name.to_string()));
        }
        Ok(Self { from, rows })
    }

    /// The file of `name`. PostgreSQL prints a schema only where the search path lacks it, so
    /// `public.x` and `x` are one.
    fn path(&self, name: &str) -> Result<&str, Failure> {
        let plain = |name: &str| name.strip_prefix("public.").unwrap_or(name).to_string();
        let mut rows = self.rows.iter();
        if let Some((path, _)) = rows.find(|(_, listed)| plain(listed) == plain(name)) {
            return Ok(path);
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        let alike = self.rows.iter().map(|(_, listed)| listed.as_str());
        let alike = alike.filter(|listed| listed.contains(last)).take(5);
        let alike = alike.collect::<Vec<_>>().join(", ");
        let advice = match alike.is_empty() {
            true => "the list of the database that has it; names are spelt as the list does".into(),
            false => format!("there are {alike}"),
        };
        let fact = format!("no relation is called \"{name}\" in {}", self.from);
        Err(Failure::usage(fact).advise(advice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Listed {
        let text = "base/5/16384|orders\nbase/5/16390|shop.orders\n\nbase/5/2619|pg_statistic\n";
        Listed::parse("list".into(), text).expect("parses")
    }

    #[test]
    fn names_are_found_with_and_without_the_schema_of_the_search_path() {
        let list = list();
        assert_eq!(list.path("orders").expect("there"), "base/5/16384");
        assert_eq!(list.path("public.orders").expect("there"), "base/5/16384");
        assert_eq!(list.path("shop.orders").expect("there"), "base/5/16390");
        let refused = list.path("sales.orders").expect_err("not there");
        assert!(
            refused
                .to_string()
                .contains("there are orders, shop.orders")
        );
        let refused = list.path("x").expect_err("not there");
        assert!(refused.to_string().contains("\"x\" in list"), "{refused}");
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        for text in [
            "a|b\n16384 orders\n",
            "a|b\n/etc/x|y",
            "a|b\n|y",
            "a|b\n../../x|y",
        ] {
            let refused = Listed::parse("list".into(), text).expect_err(text);
            assert!(refused.message.contains("line 2 of list"), "{refused}");
        }
    }

    #[test]
    fn files_lie_below_the_mountpoint_or_are_refused() {
        let mountpoint = tempfile::tempdir().expect("directory");
        let list = mountpoint.path().join("list");
        fs::create_dir_all(mountpoint.path().join("data/base/5")).expect("directories");
        fs::write(&list, "base/5/16384|orders\nbase/5/16385|big\n").expect("a list");
        for file in ["16384", "16385", "16385.1"] {
            fs::write(mountpoint.path().join("data/base/5").join(file), "x").expect("a file");
        }
        let mut args = RelationArgs {
            names: vec!["orders".into(), "big".into()],
            list: Some(list),
            data: None,
        };
        let refused = args.paths(mountpoint.path()).expect_err("elsewhere");
        assert!(
            refused.to_string().contains("--data DIRECTORY"),
            "{refused}"
        );
        args.data = Some("data/".into());
        let paths = args.paths(mountpoint.path()).expect("there");
        let expected = [
            "data/base/5/16384",
            "data/base/5/16385.*",
            "data/base/5/16385",
        ];
        assert_eq!(paths, expected);
        args.list = None;
        let refused = args.paths(mountpoint.path()).expect_err("no list");
        assert!(refused.to_string().contains("psql"), "{refused}");
        args.names.clear();
        assert!(args.paths(mountpoint.path()).expect("nothing").is_empty());
    }
}
