//! Style and architecture as a test. Each ratchet names what breaks it, with file and line, and
//! prints the actual figures; none is ever loosened to let code in.

#[path = "tidy/scanner.rs"]
mod scanner;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use scanner::{Function, Source, block, is_word, word_positions};

const FUNCTION_LINES_MAX: usize = 70;
const FUNCTION_LINES_P90: usize = 40;
const FUNCTION_LINES_MEDIAN: usize = 10;
const FILE_LINES_MAX: usize = 800;
const LINE_WIDTH_MAX: usize = 100;
const FILE_BYTES_MAX: u64 = 2 << 20;
/// Bytes of a captured trace at most: tests and figures are made of them.
const CAPTURE_BYTES_MAX: u64 = 8 << 20;
const ASSERTS_PER_1000_LINES: f64 = 20.0;

/// Crates (by directory) and the crates they may depend on. What is not listed is forbidden.
const EDGES: [(&str, &[&str]); 9] = [
    ("core", &[]),
    ("trace", &["core"]),
    ("sim", &["core", "trace"]),
    ("engine", &["core", "trace"]),
    ("mount", &["core", "engine"]),
    ("sqlite", &["core", "engine"]),
    ("crash", &["core", "engine"]),
    ("filter", &["engine"]),
    (
        "cli",
        &[
            "core", "trace", "sim", "engine", "mount", "sqlite", "filter",
        ],
    ),
];

/// Edges allowed for tests only.
const TEST_EDGES: [(&str, &str); 1] = [("engine", "sim")];

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/cli")
        .to_path_buf()
}

/// Files of the repository, relative to its root: tracked ones and new ones that are not ignored.
/// Outside a git clone, every file that is not a build product.
fn files() -> Vec<PathBuf> {
    let list = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output();
    let mut files: Vec<PathBuf> = match list {
        Ok(list) if list.status.success() => String::from_utf8_lossy(&list.stdout)
            .split_terminator('\0')
            .map(PathBuf::from)
            .collect(),
        _ => walk(Path::new("")).expect("readable tree"),
    };
    files.retain(|file| root().join(file).is_file());
    assert!(!files.is_empty(), "no files found");
    files
}

fn walk(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(directory))? {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        let hidden = path == Path::new("target") || path == Path::new(".git");
        match entry.file_type()? {
            kind if kind.is_dir() && !hidden => found.extend(walk(&path)?),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    Ok(found)
}

fn text(file: &Path) -> String {
    let bytes = fs::read(root().join(file)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn rust_files() -> Vec<PathBuf> {
    files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|ext| ext == "rs"))
        .collect()
}

/// Rust files that are not tests, benches or fuzz targets as a whole.
fn product_files() -> Vec<(PathBuf, Source)> {
    let all: Vec<(PathBuf, Source)> = rust_files()
        .into_iter()
        .map(|file| (file.clone(), Source::new(&text(&file))))
        .collect();
    let mut test_paths = BTreeSet::new();
    for (file, source) in &all {
        let base = module_directory(file);
        for module in source.test_modules() {
            test_paths.insert(base.join(format!("{module}.rs")));
            test_paths.insert(base.join(module));
        }
    }
    let is_test = |file: &Path| {
        let folder = |part: &std::ffi::OsStr| {
            ["tests", "benches", "fuzz", "examples"]
                .iter()
                .any(|name| part == *name)
        };
        file.iter().any(folder) || file.ancestors().any(|path| test_paths.contains(path))
    };
    all.into_iter().filter(|(file, _)| !is_test(file)).collect()
}

/// Where the modules declared in `file` lie.
fn module_directory(file: &Path) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new("")).to_path_buf();
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => directory,
        Some(stem) => directory.join(stem),
    }
}

fn in_crate(file: &Path, name: &str) -> bool {
    file.starts_with(Path::new("crates").join(name).join("src"))
}

/// Fails with all violations, grouped as they were found.
fn report(rule: &str, violations: &[String]) {
    let count = violations.len();
    assert!(
        violations.is_empty(),
        "{rule}: {count} violation(s)\n{}",
        violations.join("\n")
    );
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    let mut violations = Vec::new();
    let mut packages = BTreeMap::new();
    for file in files()
        .iter()
        .filter(|file| file.starts_with("crates") && file.ends_with("Cargo.toml"))
    {
        let manifest: toml::Table = text(file).parse().expect("a manifest");
        let name = manifest["package"]["name"]
            .as_str()
            .expect("a name")
            .to_string();
        let directory = file
            .iter()
            .nth(1)
            .expect("a directory")
            .to_string_lossy()
            .into_owned();
        packages.insert(name, (directory, manifest));
    }
    let directories: BTreeMap<&str, &str> = packages
        .iter()
        .map(|(name, (directory, _))| (name.as_str(), directory.as_str()))
        .collect();
    for (from, manifest) in packages.values() {
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| name == from) else {
            violations.push(format!("crates/{from}: not in the architecture"));
            continue;
        };
        for (table, dependency) in dependencies(manifest) {
            let Some(&to) = directories.get(dependency.as_str()) else {
                continue;
            };
            let for_tests =
                table == "dev-dependencies" && TEST_EDGES.contains(&(from.as_str(), to));
            if !allowed.contains(&to) && !for_tests {
                violations.push(format!(
                    "crates/{from}/Cargo.toml: [{table}] {from} -> {to}"
                ));
            }
        }
    }
    report("dependency edges", &violations);
}

/// Tables and package names of all dependencies, those of single targets included.
fn dependencies(manifest: &toml::Table) -> Vec<(&'static str, String)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let nested = targets
        .into_iter()
        .flat_map(|table| table.values())
        .filter_map(|v| v.as_table());
    let mut found = Vec::new();
    for place in std::iter::once(manifest).chain(nested) {
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let listed = place.get(table).and_then(toml::Value::as_table);
            for (key, value) in listed.into_iter().flatten() {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                found.push((table, renamed.unwrap_or(key).to_string()));
            }
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut lengths = Vec::new();
    let mut violations = Vec::new();
    for (file, source) in product_files() {
        for Function {
            name,
            line,
            lines,
            test,
        } in source.functions()
        {
            if test {
                continue;
            }
            lengths.push(lines);
            if lines > FUNCTION_LINES_MAX {
                violations.push(format!(
                    "{}:{line}: fn {name}: {lines} lines",
                    file.display()
                ));
            }
        }
    }
    lengths.sort_unstable();
    assert!(!lengths.is_empty(), "no functions found");
    let (median, p90) = (lengths[lengths.len() / 2], lengths[lengths.len() * 9 / 10]);
    println!(
        "{} functions: median {median} lines, p90 {p90}",
        lengths.len()
    );
    if median > FUNCTION_LINES_MEDIAN || p90 > FUNCTION_LINES_P90 {
        violations.push(format!(
            "median {median} (at most {FUNCTION_LINES_MEDIAN}), \
             p90 {p90} (at most {FUNCTION_LINES_P90})"
        ));
    }
    report("function length", &violations);
}

#[test]
fn files_are_short() {
    let mut violations = Vec::new();
    for (file, source) in product_files() {
        let lines = source.product_lines().count();
        if lines > FILE_LINES_MAX {
            violations.push(format!("{}: {lines} lines without tests", file.display()));
        }
    }
    report("file length", &violations);
}

#[test]
fn lines_are_narrow() {
    let mut violations = Vec::new();
    for file in rust_files() {
        for (number, line) in (1..).zip(text(&file).lines()) {
            let width = line.chars().count();
            if width > LINE_WIDTH_MAX && !line.contains("https://") {
                violations.push(format!("{}:{number}: {width} columns", file.display()));
            }
        }
    }
    report("line width", &violations);
}

/// Names of Rust files in backticks: `commit.rs`, `engine/src/state.rs`.
fn named_files(text: &str) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let named = quoted.filter(|name| name.ends_with(".rs") && !name.contains(['*', '{', ' ']));
    named.map(str::to_string).collect()
}

#[test]
fn the_architecture_names_files_that_exist() {
    let known: Vec<String> = rust_files()
        .iter()
        .map(|file| format!("/{}", file.display()))
        .collect();
    let text = text(Path::new("ARCHITECTURE.md"));
    let missing: Vec<String> = named_files(&text)
        .into_iter()
        .filter(|name| !known.iter().any(|file| file.ends_with(&format!("/{name}"))))
        .collect();
    report("files that ARCHITECTURE.md names and nobody has", &missing);
    // What a newcomer follows is named in full.
    let (mut lives, mut vague) = (0, Vec::new());
    for section in text.split("\n## ").filter(|s| s.starts_with("Life of")) {
        lives += 1;
        let short = named_files(section).into_iter();
        vague.extend(short.filter(|name| !name.contains("/src/")));
    }
    assert!(lives >= 2, "the life of a read and of a write are told");
    report("files not named in full in a \"Life of\" section", &vague);
}

#[test]
fn file_names_say_what_is_inside() {
    let vague = ["util", "helper", "manager", "common"];
    let is_vague = |file: &&PathBuf| {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        vague.iter().any(|word| name.contains(word))
    };
    let violations: Vec<String> = files()
        .iter()
        .filter(is_vague)
        .map(|file| file.display().to_string())
        .collect();
    report("vague file names", &violations);
}

#[test]
fn nothing_is_left_for_later() {
    let mut violations = Vec::new();
    // Put together so that this file does not contain them.
    let notes = [["FIX", "ME"].concat(), ["XX", "X"].concat()];
    let code = [
        "todo!",
        "dbg!",
        "#[ignore",
        "allow(dead_code)",
        "expect(dead_code)",
    ];
    for file in rust_files() {
        let text = text(&file);
        for (number, line) in (1..).zip(text.lines()) {
            for word in notes
                .iter()
                .filter(|word| word_positions(line, word).next().is_some())
            {
                violations.push(format!("{}:{number}: {word}", file.display()));
            }
        }
        for (number, line) in (1..).zip(scanner::blank(&text).lines()) {
            let whole = |at: usize| !line[..at].chars().next_back().is_some_and(is_word);
            for word in code
                .iter()
                .filter(|word| line.find(*word).is_some_and(whole))
            {
                violations.push(format!("{}:{number}: {word}", file.display()));
            }
        }
    }
    report("unfinished business", &violations);
}

#[test]
fn no_request_can_die_of_an_unwrap() {
    let mut violations = Vec::new();
    for (file, source) in product_files() {
        if !["core", "engine", "mount"]
            .iter()
            .any(|name| in_crate(&file, name))
        {
            continue;
        }
        for (number, line) in source.product_lines() {
            for call in [".unwrap()", ".expect("]
                .iter()
                .filter(|call| line.contains(*call))
            {
                violations.push(format!("{}:{number}: {call}", file.display()));
            }
        }
    }
    report("unwrap and expect outside tests", &violations);
}

#[test]
fn assertions_are_dense() {
    let mut violations = Vec::new();
    for name in ["core", "engine", "mount"] {
        let mut files = Vec::new();
        for (file, source) in product_files() {
            if in_crate(&file, name) {
                let code: Vec<&str> = source.product_lines().map(|(_, line)| line).collect();
                let lines = code.iter().filter(|line| !line.trim().is_empty()).count();
                let asserts: usize = code.iter().map(|line| asserts_in(line)).sum();
                files.push((file, asserts, lines));
            }
        }
        let asserts: usize = files.iter().map(|(_, asserts, _)| asserts).sum();
        let lines: usize = files.iter().map(|(_, _, lines)| lines).sum();
        let density = 1000.0 * asserts as f64 / f64::max(lines as f64, 1.0);
        let figures = format!("{name}: {asserts} in {lines} lines of code: {density:.1} per 1,000");
        println!("{figures}");
        if density < ASSERTS_PER_1000_LINES {
            violations.push(figures);
            // What each file lacks, most first.
            let lacks = |&(_, asserts, lines): &(PathBuf, usize, usize)| {
                (lines as f64 * ASSERTS_PER_1000_LINES / 1000.0).ceil() as i64 - asserts as i64
            };
            files.sort_by_key(|file| -lacks(file));
            let lacking = files.iter().filter(|file| lacks(file) > 0);
            violations.extend(
                lacking
                    .map(|file| format!("  {}: {} in {} lines", file.0.display(), file.1, file.2)),
            );
        }
    }
    report(
        "assertions (at least 20 per 1,000 lines of code)",
        &violations,
    );
}

/// A policy around another policy passes every method on: a default body is right for a policy
/// that does not care, and the one inside may.
#[test]
fn policies_around_policies_pass_everything_on() {
    let policies = Source::new(&text(Path::new("crates/core/src/policy/mod.rs"))).code;
    let at = policies.find("pub trait TierPolicy").expect("the trait");
    let all = methods_of(block(&policies, at));
    assert!(all.len() > 20, "{all:?}");
    let (mut violations, mut wrappers) = (Vec::new(), 0);
    for file in rust_files() {
        let code = Source::new(&text(&file)).code;
        for (at, named) in code.match_indices("TierPolicy for ") {
            let body = block(&code, at);
            if !is_wrapper(body) {
                continue;
            }
            wrappers += 1;
            let name = code[at + named.len()..].split([' ', '<', '{']).next();
            let has = methods_of(body);
            let lacks: Vec<&str> = all.difference(&has).map(String::as_str).collect();
            if !lacks.is_empty() {
                let name = name.unwrap_or_default();
                violations.push(format!("{}: {name}: {}", file.display(), lacks.join(", ")));
            }
        }
    }
    assert!(wrappers >= 5, "{wrappers} policies around policies");
    report("methods that a policy around a policy lacks", &violations);
}

/// Whether an implementation of a policy asks another one.
fn is_wrapper(body: &str) -> bool {
    body.contains(".decide(") || body.contains("pass_on!")
}

/// Methods that a block has or names to `pass_on!`.
fn methods_of(body: &str) -> BTreeSet<String> {
    let word = |rest: &str| rest.chars().take_while(|&c| is_word(c)).collect();
    let written = word_positions(body, "fn").map(|at| word(body[at + 2..].trim_start()));
    let mut methods: BTreeSet<String> = written.collect();
    for (at, _) in body.match_indices("pass_on!(") {
        let named = body[at..].split_once(':').map_or("", |(_, names)| names);
        let named = named.split(')').next().unwrap_or_default();
        methods.extend(named.split(',').map(|name| name.trim().to_string()));
    }
    methods
}

/// What a header writes down as an invariant is checked in release builds: an assertion names its
/// number, in that file, or for the header of a folder in one of its files.
#[test]
fn invariants_are_asserted() {
    let files = product_files();
    let (mut violations, mut numbered) = (Vec::new(), 0);
    let covered = |file: &Path| {
        ["core", "engine", "mount"]
            .iter()
            .any(|c| in_crate(file, c))
    };
    for (file, _) in files.iter().filter(|(file, _)| covered(file)) {
        let claimed = invariants_of(&text(file));
        numbered += claimed.len();
        let is_folder = file.file_name().is_some_and(|name| name == "mod.rs");
        let near = |other: &Path| match file.parent() {
            Some(folder) if is_folder => other.parent() == Some(folder),
            _ => other == file,
        };
        let asserted: BTreeSet<u32> = files
            .iter()
            .filter(|(other, _)| near(other))
            .flat_map(|(other, _)| invariants_asserted(&text(other)))
            .collect();
        for number in claimed.difference(&asserted) {
            violations.push(format!("{}: invariant {number}", file.display()));
        }
    }
    assert!(numbered > 40, "headers have invariants: {numbered} found");
    report("invariants are asserted by number", &violations);
}

/// Numbers of the list under "# Invariants" in the doc comments of a file.
fn invariants_of(text: &str) -> BTreeSet<u32> {
    let doc = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("//!").or(line.strip_prefix("///"));
        text.map(|text| text.trim().to_string())
    };
    let (mut numbers, mut inside) = (BTreeSet::new(), false);
    for line in text.lines().map(doc) {
        let Some(line) = line else {
            inside = false;
            continue;
        };
        inside = (inside && !line.is_empty()) || line.starts_with("# Invariants");
        let number = line
            .split_once(". ")
            .and_then(|(n, _)| n.parse::<u32>().ok());
        numbers.extend(number.filter(|_| inside));
    }
    numbers
}

/// Numbers of invariants that the messages of assertions name, those of debug builds left out.
fn invariants_asserted(text: &str) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for (at, _) in text.match_indices("\"invariant") {
        let before = &text[..at];
        let call = ["assert!", "assert_eq!", "assert_ne!", "panic!"].map(|call| before.rfind(call));
        let start = call.into_iter().flatten().max();
        if start.is_none_or(|start| before[..start].ends_with("debug_")) {
            continue;
        }
        let message = text[at + 1..].split(['"', ':']).next().unwrap_or("");
        let words = message.split(|c: char| !c.is_ascii_digit());
        numbers.extend(words.filter_map(|word| word.parse::<u32>().ok()));
    }
    numbers
}

fn asserts_in(line: &str) -> usize {
    let names = ["assert", "assert_eq", "assert_ne"];
    let names = names
        .iter()
        .flat_map(|name| [name.to_string(), format!("debug_{name}")]);
    let calls = |name: String| {
        word_positions(line, &name)
            .filter(|at| line[at + name.len()..].starts_with('!'))
            .count()
    };
    names.map(calls).sum()
}

#[test]
fn core_is_pure() {
    let impure = [
        "fs",
        "net",
        "thread",
        "process",
        "env",
        "io",
        "os",
        "Instant",
        "SystemTime",
        "Mutex",
        "RwLock",
        "Condvar",
        "Once",
        "OnceLock",
        "LazyLock",
        "atomic",
        "mpsc",
        "HashMap",
        "HashSet",
        "RandomState",
        "DefaultHasher",
    ];
    let mut violations = Vec::new();
    for (file, source) in product_files() {
        if !in_crate(&file, "core") {
            continue;
        }
        let mut product = vec![""; source.code.lines().count()];
        for (number, line) in source.product_lines() {
            product[number - 1] = line;
        }
        let code = product.join("\n");
        for (at, path) in std_paths(&code) {
            let line = code[..at].matches('\n').count() + 1;
            for word in impure
                .iter()
                .filter(|word| word_positions(path, word).next().is_some())
            {
                violations.push(format!("{}:{line}: std {word}", file.display()));
            }
        }
        for macro_name in ["print!", "println!", "eprint!", "eprintln!"] {
            for (at, _) in code.match_indices(macro_name) {
                if !code[..at].chars().next_back().is_some_and(is_word) {
                    let line = code[..at].matches('\n').count() + 1;
                    violations.push(format!("{}:{line}: {macro_name}", file.display()));
                }
            }
        }
    }
    report(
        "core has files, sockets, threads, locks, clocks, random sources or output",
        &violations,
    );
}

/// `eprintln!` panics where nobody can be told, and a thread that serves must not end by that.
#[test]
fn libraries_say_nothing_that_may_panic() {
    let mut violations = Vec::new();
    for (file, source) in product_files() {
        if !in_crate(&file, "mount") && !in_crate(&file, "engine") {
            continue;
        }
        for (number, line) in source.product_lines() {
            if line.contains("print!") || line.contains("println!") {
                violations.push(format!("{}:{number}: {}", file.display(), line.trim()));
            }
        }
    }
    report("prints that may panic", &violations);
}

/// Every path that begins with `std::`, with its brace group when it is a use declaration.
fn std_paths(code: &str) -> Vec<(usize, &str)> {
    let path_of = |at: usize| {
        let rest = &code[at..];
        let begin = code[..at].trim_end();
        let is_use = begin.ends_with("use") || begin.ends_with("use ::");
        let end = if is_use {
            rest.find(';')
        } else {
            rest.find(|c: char| !is_word(c) && c != ':')
        };
        (at, &rest[..end.unwrap_or(rest.len())])
    };
    word_positions(code, "std").map(path_of).collect()
}

#[test]
fn files_are_small_enough_for_a_repository() {
    let mut violations = Vec::new();
    for file in files() {
        let bytes = root().join(&file).metadata().map_or(0, |found| found.len());
        let capture = file.starts_with("evaluation/captures");
        let most = if capture {
            CAPTURE_BYTES_MAX
        } else {
            FILE_BYTES_MAX
        };
        if bytes > most {
            violations.push(format!("{}: {bytes} bytes", file.display()));
        }
    }
    report("file size", &violations);
}

#[test]
fn the_repository_stands_alone() {
    // Put together so that this file does not contain them.
    let outside = [["/wo", "rk/"].concat(), ["../sha", "red"].concat()];
    let mut violations = Vec::new();
    for file in files() {
        let document = file
            .extension()
            .is_some_and(|ext| ext == "md" || ext == "toml");
        let temporary = document.then(|| ["/tm", "p/"].concat());
        for (number, line) in (1..).zip(text(&file).lines()) {
            for path in outside
                .iter()
                .chain(&temporary)
                .filter(|path| line.contains(*path))
            {
                violations.push(format!("{}:{number}: {path}", file.display()));
            }
        }
    }
    report("paths outside the repository", &violations);
}

#[test]
fn paths_of_std_are_found_wherever_they_stand() {
    let code =
        "use std::{\n    fs, mem};\nlet a = std::mem::take(b); use std::collections::HashMap;";
    let paths: Vec<&str> = std_paths(code).into_iter().map(|(_, path)| path).collect();
    assert_eq!(
        paths,
        [
            "std::{\n    fs, mem}",
            "std::mem::take",
            "std::collections::HashMap"
        ]
    );
}

#[test]
fn assertions_of_all_kinds_are_counted() {
    assert_eq!(
        asserts_in("assert!(a); debug_assert_eq!(b, c); my_assert!(d); assert(e)"),
        2
    );
}

#[test]
fn methods_are_found_written_and_named() {
    let code = "impl TierPolicy for A { fn a(&self) { self.0.decide() } fn b() {}\n\
        x::pass_on!(0: c,\n d); } impl TierPolicy for B { fn decide(&self) {} }";
    let body = block(code, 0);
    let other = code.rfind("impl").expect("another one");
    assert!(is_wrapper(body) && !is_wrapper(block(code, other)));
    let methods = methods_of(body);
    assert!(methods.iter().eq(["a", "b", "c", "d"]), "{methods:?}");
}

#[test]
fn files_are_found_between_backticks() {
    let found = named_files("see `a.rs` and `b/c.rs`, not `d` nor e.rs, nor `f*.rs`");
    assert_eq!(found, BTreeSet::from(["a.rs".into(), "b/c.rs".into()]));
}

#[test]
fn invariants_are_found_where_they_are_listed_and_where_they_are_asserted() {
    let text = "//! # Invariants (of it)\n//! 1. One.\n//! 2. Two.\n//!\n//! 3. No.";
    let found: Vec<u32> = invariants_of(text).into_iter().collect();
    assert_eq!(found, [1, 2]);
    let text = "assert!(x, \"invariant 1: of 4\"); debug_assert!(y, \"invariant 2\"); \
                assert_eq!(a, b, \"invariants 3 and 5\");";
    let found: Vec<u32> = invariants_asserted(text).into_iter().collect();
    assert_eq!(found, [1, 3, 5]);
}

#[test]
fn dependencies_are_found_under_targets_and_under_other_names() {
    let manifest = r#"
        [dependencies]
        thermocline-core.workspace = true
        [dev-dependencies]
        simulator = { package = "thermocline-sim", path = "../sim" }
        [target.'cfg(unix)'.build-dependencies]
        cc = "1"
    "#;
    let found = dependencies(&manifest.parse().expect("a manifest"));
    let expected = [
        ("dependencies", "thermocline-core"),
        ("dev-dependencies", "thermocline-sim"),
        ("build-dependencies", "cc"),
    ];
    assert_eq!(
        found,
        expected.map(|(table, name)| (table, name.to_string()))
    );
}
