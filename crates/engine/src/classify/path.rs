//! What a file is for, from its path relative to the mount.
//!
//! User rules come first, in order; then the layouts of PostgreSQL, MariaDB/InnoDB and SQLite,
//! recognised by the shape of the path wherever below the mount the data directory lies. Only
//! files that are made of pages are cached. Logs and temporary files are left out of the tier
//! because they are written once and read at most once, in order (TAC section 3, "Other
//! files"); small files that are neither are not worth a region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thermocline_core::hint::FileKind;

use super::{Dialect, glob};

/// What the tier does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileClass {
    /// What the file is for.
    pub kind: FileKind,
    /// Whether its pages may be in the tier at all.
    pub cached: bool,
    /// Whose page layout it has.
    pub dialect: Dialect,
}

impl FileClass {
    /// Everything that no rule knows.
    pub const OTHER: Self = Self {
        kind: FileKind::Other,
        cached: false,
        dialect: Dialect::None,
    };

    const fn cached(kind: FileKind, dialect: Dialect) -> Self {
        Self {
            kind,
            cached: true,
            dialect,
        }
    }

    const fn bypassed(kind: FileKind, dialect: Dialect) -> Self {
        Self {
            kind,
            cached: false,
            dialect,
        }
    }
}

/// One rule of the configuration. What it leaves out is taken from the built-in rules.
///
/// ```
/// use thermocline::classify::{Rule, Rules};
///
/// let path = "archive/*".into();
/// let rule = Rule { path, kind: None, cache: Some(false), dialect: None };
/// let rules = Rules::new(vec![rule])?;
/// assert!(!rules.class("archive/old.db", Vec::new).cached);
/// assert!(rules.class("new.db", Vec::new).cached);
/// # Ok::<(), thermocline::classify::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which files, see [`glob::matches`].
    pub path: String,
    /// The kind by name (`relation`, `index`, `catalog`, `temporary`, `log`, `map`, `undo`,
    /// `other`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether the tier may hold the file's pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// Whose page layout the file has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
}

/// The rules in force. Clones have [`Rules::let_temporary`] in common.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    user: Vec<(Rule, Option<FileKind>)>,
    /// Whether temporary files are cached where no rule says otherwise.
    temporary: Arc<AtomicBool>,
}

impl Rules {
    /// User rules over the built-in ones.
    ///
    /// # Errors
    /// The first rule whose kind is not a known name, or whose path is empty.
    pub fn new(user: Vec<Rule>) -> Result<Self, RuleError> {
        let user = user.into_iter().map(|rule| {
            let kind = match &rule.kind {
                None => None,
                Some(name) => Some(
                    FileKind::from_name(name)
                        .ok_or_else(|| RuleError::Kind(rule.path.clone(), name.clone()))?,
                ),
            };
            if rule.path.is_empty() {
                Err(RuleError::EmptyPath)
            } else {
                Ok((rule, kind))
            }
        });
        let user: Vec<(Rule, Option<FileKind>)> = user.collect::<Result<_, _>>()?;
        let known = |(rule, kind): &(Rule, Option<_>)| rule.kind.is_some() == kind.is_some();
        debug_assert!(user.iter().all(known), "every name of a kind is known");
        Ok(Self {
            user,
            temporary: Arc::default(),
        })
    }

    /// Lets temporary files into the tier where no user rule says otherwise: the priority groups
    /// give them their best priority (hStorage-DB rule 3) and lose them when they are deleted.
    #[must_use]
    pub fn with_temporary(self, cached: bool) -> Self {
        self.let_temporary(cached);
        self
    }

    /// The same for rules in use, and for files that are opened from now on: the policy changed.
    pub fn let_temporary(&self, cached: bool) {
        self.temporary.store(cached, Ordering::Relaxed);
    }

    /// What the file at `path` is. `head` is called at most once, for files no rule knows by
    /// name, and returns the file's first bytes.
    pub fn class(&self, path: &str, head: impl FnOnce() -> Vec<u8>) -> FileClass {
        let mut class = built_in(path).unwrap_or_else(|| by_head(&head()));
        debug_assert!(!class.cached || class.kind != FileKind::Log);
        debug_assert!(!class.cached || class.kind != FileKind::Temporary);
        debug_assert!(!class.cached || class.kind != FileKind::Other);
        let temporary = class.kind == FileKind::Temporary;
        class.cached |= temporary && self.temporary.load(Ordering::Relaxed);
        if let Some((rule, kind)) = self.user.iter().find(|(r, _)| glob::matches(&r.path, path)) {
            class.kind = kind.unwrap_or(class.kind);
            class.dialect = rule.dialect.unwrap_or(class.dialect);
            class.cached = rule.cache.unwrap_or(class.cached);
        }
        class
    }
}

/// Why rules were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The kind is not one of the known names.
    #[error(
        "rule for \"{0}\": kind \"{1}\" is not known; use one of relation, index, catalog, \
         temporary, log, map, undo, other"
    )]
    Kind(String, String),
    /// A rule without a path.
    #[error("a rule has an empty path; use \"**\" for every file")]
    EmptyPath,
}

/// Files no name tells about: SQLite databases are known by their header.
fn by_head(head: &[u8]) -> FileClass {
    if head.starts_with(super::sqlite::MAGIC) {
        FileClass::cached(FileKind::Relation, Dialect::Sqlite)
    } else {
        FileClass::OTHER
    }
}

fn built_in(path: &str) -> Option<FileClass> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (name, dirs) = parts.split_last()?;
    postgres(dirs, name)
        .or_else(|| innodb(dirs, name))
        .or_else(|| sqlite(name))
}

/// PostgreSQL's data directory ("Database File Layout" in its manual).
fn postgres(dirs: &[&str], name: &str) -> Option<FileClass> {
    let class = |kind| FileClass::bypassed(kind, Dialect::Postgres);
    for dir in dirs {
        match *dir {
            "pg_wal" | "pg_xlog" => return Some(class(FileKind::Log)),
            "pgsql_tmp" => return Some(class(FileKind::Temporary)),
            "pg_stat" | "pg_stat_tmp" | "pg_replslot" | "pg_logical" | "pg_snapshots"
            | "pg_twophase" | "pg_dynshmem" | "pg_notify" | "pg_serial" | "pg_subtrans"
            | "pg_xact" | "pg_clog" | "pg_multixact" | "pg_commit_ts" => {
                return Some(class(FileKind::Other));
            }
            _ => {}
        }
    }
    match dirs {
        // Shared catalogs only, whatever number a rewrite gave them.
        [.., "global"] => relation(name).map(|class| match class.kind {
            FileKind::Relation => FileClass {
                kind: FileKind::Catalog,
                ..class
            },
            _ => class,
        }),
        [.., "base", database] if is_number(database) => relation(name),
        [.., version, database] if version.starts_with("PG_") && is_number(database) => {
            relation(name)
        }
        _ => None,
    }
}

/// A file of a database directory: `FILENODE[_FORK][.SEGMENT]`, `tBACKEND_FILENODE...`.
fn relation(name: &str) -> Option<FileClass> {
    let stem = match name.split_once('.') {
        Some((stem, segment)) if is_number(segment) => stem,
        Some(_) => return None,
        None => name,
    };
    if let Some((backend, rest)) = stem.strip_prefix('t').and_then(|t| t.split_once('_')) {
        let node = rest.split('_').next().unwrap_or(rest);
        let temporary = is_number(backend) && is_number(node);
        return temporary.then_some(FileClass::bypassed(FileKind::Temporary, Dialect::Postgres));
    }
    let (node, fork) = stem.split_once('_').unwrap_or((stem, ""));
    if !is_number(node) {
        return None;
    }
    let kind = match fork {
        "fsm" | "vm" => FileKind::Map,
        // Below FirstNormalObjectId everything was made by initdb.
        "" | "init" if node.parse::<u32>().is_ok_and(|n| n < 16384) => FileKind::Catalog,
        "" | "init" => FileKind::Relation,
        _ => return None,
    };
    Some(FileClass::cached(kind, Dialect::Postgres))
}

/// MariaDB's and MySQL's data directory.
fn innodb(dirs: &[&str], name: &str) -> Option<FileClass> {
    let cached = |kind| Some(FileClass::cached(kind, Dialect::InnoDb));
    let bypassed = |kind| Some(FileClass::bypassed(kind, Dialect::InnoDb));
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if name.starts_with("#sql-temptable") || name.starts_with("ibtmp") {
        return bypassed(FileKind::Temporary);
    }
    match extension {
        "ibd" if dirs.last() == Some(&"mysql") || name == "mysql.ibd" => {
            return cached(FileKind::Catalog);
        }
        "ibd" => return cached(FileKind::Relation),
        "ibu" => return cached(FileKind::Undo),
        "dblwr" => return bypassed(FileKind::Log),
        "ibt" => return bypassed(FileKind::Temporary),
        "MYD" | "MAD" | "MYI" | "MAI" => return other_engine(name, extension),
        _ => {}
    }
    if numbered(name, "ibdata") {
        return cached(FileKind::Catalog);
    }
    if numbered(name, "undo") || numbered(name, "undo_") {
        return cached(FileKind::Undo);
    }
    let redo = numbered(name, "ib_logfile") || dirs.last() == Some(&"#innodb_redo");
    let aria = name.starts_with("aria_log");
    let binary_log = is_number(extension)
        && extension.len() == 6
        && ["binlog", "bin", "relay"]
            .iter()
            .any(|word| name.contains(word));
    (redo || aria || binary_log).then_some(FileClass::bypassed(FileKind::Log, Dialect::InnoDb))
}

/// MyISAM and Aria: pages without a type, but tables and indexes all the same.
fn other_engine(name: &str, extension: &str) -> Option<FileClass> {
    debug_assert!(name.ends_with(extension) && extension.len() == 3);
    let kind = if extension.ends_with('I') {
        FileKind::Index
    } else {
        FileKind::Relation
    };
    let temporary = name.starts_with("#sql") && !name.starts_with("#sql-alter");
    Some(if temporary {
        FileClass::bypassed(FileKind::Temporary, Dialect::None)
    } else {
        FileClass::cached(kind, Dialect::None)
    })
}

/// SQLite's side files, and databases by their usual extensions (a new one is still empty when
/// it is opened, so its header says nothing).
fn sqlite(name: &str) -> Option<FileClass> {
    let bypassed = |kind| Some(FileClass::bypassed(kind, Dialect::Sqlite));
    if name.starts_with("etilqs_") {
        return bypassed(FileKind::Temporary);
    }
    if name.ends_with("-wal") || name.ends_with("-journal") {
        return bypassed(FileKind::Log);
    }
    if name.ends_with("-shm") {
        return bypassed(FileKind::Other);
    }
    let (_, extension) = name.rsplit_once('.')?;
    matches!(extension, "db" | "sqlite" | "sqlite3" | "db3")
        .then_some(FileClass::cached(FileKind::Relation, Dialect::Sqlite))
}

/// The relation a file belongs to: its path without segment number and fork suffix, so that
/// all files of one table share one object hint.
#[must_use]
pub fn object_group(path: &str, dialect: Dialect) -> &str {
    if dialect != Dialect::Postgres {
        return path;
    }
    let (dir_len, name) = path
        .rsplit_once('/')
        .map_or((0, path), |(d, n)| (d.len() + 1, n));
    let stem = name.split('.').next().unwrap_or(name);
    debug_assert!(dir_len <= path.len() && stem.len() <= name.len());
    let group = ["_fsm", "_vm", "_init"]
        .iter()
        .find_map(|fork| stem.strip_suffix(fork));
    let end = dir_len + group.unwrap_or(stem).len();
    debug_assert!(dir_len <= end && end <= path.len());
    &path[..end]
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `PREFIX` followed by a number and nothing else.
fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(path: &str) -> FileClass {
        Rules::default().class(path, Vec::new)
    }

    #[test]
    fn temporary_files_are_let_in_unless_a_rule_says_no() {
        let no = Rule {
            path: "base/pgsql_tmp/**".into(),
            kind: None,
            cache: Some(false),
            dialect: None,
        };
        let rules = Rules::new(vec![no]).expect("rules").with_temporary(true);
        let class = |path: &str| rules.class(path, Vec::new);
        assert!(class("base/5/t3_16402").cached && class("ibtmp1").cached);
        assert!(!class("base/pgsql_tmp/pgsql_tmp812.0").cached);
        assert!(!class("pg_wal/000000010000000000000001").cached);
        rules.clone().let_temporary(false);
        assert!(!class("ibtmp1").cached, "clones have it in common");
    }

    #[test]
    fn files_of_three_databases() {
        use Dialect::{InnoDb, None as Untyped, Postgres, Sqlite};
        use FileKind::{Catalog, Index, Log, Map, Other, Relation, Temporary, Undo};
        for (path, kind, cached, dialect) in [
            ("base/5/16402", Relation, true, Postgres),
            ("pg/data/base/5/16402.7", Relation, true, Postgres),
            ("base/5/16402_init", Relation, true, Postgres),
            ("base/5/16402_fsm", Map, true, Postgres),
            ("base/5/16402_vm.1", Map, true, Postgres),
            ("base/5/2619", Catalog, true, Postgres),
            ("global/1262", Catalog, true, Postgres),
            ("global/24601", Catalog, true, Postgres),
            ("global/pg_control", Other, false, Untyped),
            ("base/5/PG_VERSION", Other, false, Untyped),
            ("base/5/pg_filenode.map", Other, false, Untyped),
            ("base/5/t3_16402", Temporary, false, Postgres),
            ("base/5/t3_16402_fsm", Temporary, false, Postgres),
            ("base/pgsql_tmp/pgsql_tmp812.0", Temporary, false, Postgres),
            (
                "base/pgsql_tmp/pgsql_tmp812.0.fileset/i1of2.p0",
                Temporary,
                false,
                Postgres,
            ),
            ("ts/PG_15_202209061/5/16402", Relation, true, Postgres),
            (
                "ts/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0",
                Temporary,
                false,
                Postgres,
            ),
            ("pg_wal/000000010000000000000001", Log, false, Postgres),
            ("pg_wal/archive_status/0001.ready", Log, false, Postgres),
            ("pg_xact/0000", Other, false, Postgres),
            ("postgresql.conf", Other, false, Untyped),
            ("shop/orders.ibd", Relation, true, InnoDb),
            ("shop/#sql-alter-1a-4.ibd", Relation, true, InnoDb),
            ("mysql/innodb_table_stats.ibd", Catalog, true, InnoDb),
            ("ibdata1", Catalog, true, InnoDb),
            ("undo001", Undo, true, InnoDb),
            ("undo_002", Undo, true, InnoDb),
            ("ib_logfile0", Log, false, InnoDb),
            ("mysql-bin.000012", Log, false, InnoDb),
            ("ibtmp1", Temporary, false, InnoDb),
            ("tmp/#sql-temptable-1-2-3.MAD", Temporary, false, InnoDb),
            ("shop/log.MAD", Relation, true, Untyped),
            ("shop/log.MAI", Index, true, Untyped),
            ("aria_log.00000001", Log, false, InnoDb),
            ("ib_buffer_pool", Other, false, Untyped),
            ("app.db", Relation, true, Sqlite),
            ("app.db-wal", Log, false, Sqlite),
            ("app.db-journal", Log, false, Sqlite),
            ("app.db-shm", Other, false, Sqlite),
            ("tmp/etilqs_9f3a", Temporary, false, Sqlite),
        ] {
            assert_eq!(
                class(path),
                FileClass {
                    kind,
                    cached,
                    dialect
                },
                "{path}"
            );
        }
    }

    #[test]
    fn a_sqlite_header_is_recognised_under_any_name() {
        let head = || b"SQLite format 3\0and more".to_vec();
        let class = Rules::default().class("profile/places", head);
        assert_eq!(
            class,
            FileClass::cached(FileKind::Relation, Dialect::Sqlite)
        );
    }

    #[test]
    fn user_rules_win_and_inherit_what_they_leave_out() {
        let rule = |path: &str, kind: Option<&str>, cache| Rule {
            path: path.into(),
            kind: kind.map(String::from),
            cache,
            dialect: None,
        };
        let rules = Rules::new(vec![
            rule("**/16402*", None, Some(false)),
            rule("*.dat", Some("relation"), Some(true)),
        ]);
        let rules = rules.unwrap();
        let big = rules.class("base/5/16402.1", Vec::new);
        assert_eq!(
            big,
            FileClass::bypassed(FileKind::Relation, Dialect::Postgres)
        );
        let data = rules.class("x/y.dat", Vec::new);
        assert_eq!(data, FileClass::cached(FileKind::Relation, Dialect::None));
        let error = Rules::new(vec![rule("a", Some("tabel"), None)]).unwrap_err();
        assert!(error.to_string().contains("\"tabel\""), "{error}");
    }

    #[test]
    fn segments_and_forks_share_a_group() {
        for path in [
            "base/5/16402",
            "base/5/16402.3",
            "base/5/16402_vm",
            "base/5/16402_fsm.1",
        ] {
            assert_eq!(object_group(path, Dialect::Postgres), "base/5/16402");
        }
        assert_eq!(object_group("a/b.ibd", Dialect::InnoDb), "a/b.ibd");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]
        #[test]
        fn any_path_is_classified(path in "[a-z0-9_./#-]{0,40}", pattern in "[a*?/.]{0,12}") {
            let rule = Rule { path: format!("x{pattern}"), kind: None, cache: None, dialect: None };
            let class = Rules::new(vec![rule]).unwrap().class(&path, Vec::new);
            prop_assert!(!class.cached || class.kind != FileKind::Log);
            for dialect in [Dialect::Postgres, Dialect::None] {
                prop_assert!(path.starts_with(object_group(&path, dialect)));
            }
        }
    }
}
