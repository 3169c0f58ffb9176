//! The databases of a mount that has several, side by side.

use super::Report;
use crate::show::table::Table;
use crate::units::{show_count, show_share, show_short};
use std::fmt::Write;

/// A row for each; nothing where none are told apart.
pub(crate) fn clients(out: &mut String, report: &Report) -> std::fmt::Result {
    let clients = &report.stats.clients;
    if clients.is_empty() {
        return Ok(());
    }
    let all: u64 = clients.iter().map(|client| client.resident).sum();
    let mut table =
        Table::new(&["database", "on flash", "of it", "reads", "hits", "writes"]).left(1);
    for client in clients {
        let name = match client.name.as_str() {
            "" => "(none of these)",
            name => name,
        };
        table.row([
            name.to_string(),
            show_count(client.resident),
            show_share(client.resident, all),
            show_short(client.reads),
            show_share(client.hits, client.reads),
            show_short(client.writes),
        ]);
    }
    write!(out, "\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::{ClientStats, Stats};

    #[test]
    fn each_database_has_a_row_and_one_alone_has_none() {
        let client = |name: &str, resident, reads, hits| ClientStats {
            name: name.into(),
            resident,
            reads,
            hits,
            writes: 7,
        };
        let mut report = Report::default();
        let mut out = String::new();
        clients(&mut out, &report).expect("text");
        assert_eq!(out, "");
        report.stats = Stats {
            clients: vec![client("orders", 30, 10, 9), client("", 10, 4, 1)],
            ..Stats::default()
        };
        clients(&mut out, &report).expect("text");
        let rows: Vec<Vec<&str>> = out
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        let orders = rows.iter().find(|row| row.first() == Some(&"orders"));
        let said = format!("{:?}", orders.expect("a row"));
        for figure in ["30", "75", "10", "90", "7"] {
            assert!(said.contains(figure), "{figure} in {said}");
        }
        assert!(out.contains("(none of these)"), "{out}");
    }
}
