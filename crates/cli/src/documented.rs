//! The commands in README and docs/ are commands this program takes.

use crate::args::Cli;
use clap::Parser;
use std::path::{Path, PathBuf};

/// The documents whose commands are for users.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("docs/");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<PathBuf> = docs
        .filter(|path| path.extension() == Some("md".as_ref()))
        .collect();
    all.push(root.join("README.md"));
    all
}

/// Lines of the fenced blocks of `text` that call this program, without what a shell does there.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```").skip(1).step_by(2);
    let shell = blocks.filter_map(|block| {
        let (language, lines) = block.split_once('\n')?;
        ["sh", "console"]
            .contains(&language.trim())
            .then_some(lines)
    });
    let joined = shell.map(|lines| lines.replace("\\\n", " "));
    let mut found = Vec::new();
    for block in joined {
        for part in block.lines().flat_map(|line| line.split(" && ")) {
            let part = part.trim_start_matches("$ ").trim_start_matches("! ");
            let part = part.split([';', '|', '>', '#']).next().unwrap_or(part);
            let words: Vec<String> = part.split_whitespace().map(String::from).collect();
            if words.first().is_some_and(|word| word == "thermocline") {
                found.push(words);
            }
        }
    }
    found
}

#[test]
fn every_command_in_the_documents_is_taken() {
    let mut count = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("a document");
        for words in commands(&text) {
            count += 1;
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{}: {}\n{error}", path.display(), words.join(" "));
            }
        }
    }
    assert!(count > 30, "{count} commands were found");
}

#[test]
fn what_is_a_command_is_found() {
    let text = "```sh\nthermocline trace info a.parquet --columns \\\n  page=p  # all\n```\n\
                thermocline not in one\n```console\n$ pg stop && thermocline umount /m; ls\n```";
    let found: Vec<String> = commands(text).iter().map(|words| words.join(" ")).collect();
    let expected = [
        "thermocline trace info a.parquet --columns page=p",
        "thermocline umount /m",
    ];
    assert_eq!(found, expected);
}
