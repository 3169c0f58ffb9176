//! Page classifiers on bytes that PostgreSQL, SQLite and MariaDB wrote.

use thermocline::classify::{Dialect, page_type};
use thermocline_core::{FileKind, PageType};

const PAGES: &str = include_str!("fixtures/pages.txt");

struct Sample {
    dialect: Dialect,
    kind: FileKind,
    expected: PageType,
    page: Vec<u8>,
    what: &'static str,
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn samples() -> Vec<Sample> {
    let mut lines = PAGES.lines().skip_while(|line| line.starts_with('#'));
    let mut samples = Vec::new();
    while let Some(line) = lines.next() {
        let (fields, what) = line.split_once("  # ").expect("a comment");
        let fields: Vec<&str> = fields.split(' ').collect();
        let dialect = match fields[0] {
            "postgres" => Dialect::Postgres,
            "sqlite" => Dialect::Sqlite,
            "innodb" => Dialect::InnoDb,
            other => panic!("dialect {other}"),
        };
        let head = bytes(lines.next().expect("first bytes"));
        let tail = bytes(lines.next().expect("last bytes"));
        let mut page = vec![0; fields[3].parse().expect("size")];
        let tail_at = page.len() - tail.len();
        page[..head.len()].copy_from_slice(&head);
        page[tail_at..].copy_from_slice(&tail);
        samples.push(Sample {
            dialect,
            kind: FileKind::from_name(fields[1]).expect("kind"),
            expected: PageType::from_name(fields[2]).expect("page type"),
            page,
            what,
        });
    }
    samples
}

#[test]
fn every_real_page_is_what_its_database_says() {
    let samples = samples();
    assert!(samples.len() >= 30, "only {} samples", samples.len());
    for sample in &samples {
        let found = page_type(sample.dialect, &sample.page, sample.kind);
        assert_eq!(
            found, sample.expected,
            "{:?}: {}",
            sample.dialect, sample.what
        );
    }
}

#[test]
fn changed_bytes_never_make_a_classifier_panic() {
    let mut state = 1_u64;
    let mut random = |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let samples = samples();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        for sample in &samples {
            let mut page = sample.page.clone();
            for _ in 0..1 + random(4) {
                page[random(128)] = random(256) as u8;
            }
            let cut = random(2) * random(page.len());
            page.truncate(page.len() - cut);
            seen.insert(page_type(sample.dialect, &page, sample.kind));
        }
    }
    assert!(
        seen.contains(&PageType::Unknown) && seen.len() > 5,
        "{seen:?}"
    );
}
