//! A TPC-C-shaped database and its five transactions, in SQLite's SQL.
//!
//! Tables, row widths, skew (NURand) and mix are TPC-C's (specification revision 5.11, clauses
//! 1.3, 2.1.6, 2.4–2.8, 5.2.3). It is not the benchmark; what differs:
//! - one client that draws warehouse and district each time, no think times, no terminals;
//! - a warehouse has a tenth of the rows, so that a small database has several;
//! - warehouses are not equally busy ([`Scale::skew`]), as branches are not;
//! - composite keys are packed into SQLite's integer primary key, which clusters the tables.

mod draw;
mod load;
mod transactions;

pub(crate) use load::load;
pub(crate) use transactions::{Client, MIX};

/// Rows of the specification's warehouse divided by this make one of ours: more, smaller
/// warehouses in a database of demonstration size.
const SHRINK: u64 = 10;
/// Bytes of SQLite file one of our warehouses takes, measured with 4 KiB pages; only used to
/// turn a wanted size into a number of warehouses.
const WAREHOUSE_BYTES: u64 = 7_000_000;
/// Districts of a warehouse.
const DISTRICTS: u64 = 10;

/// How many rows of what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// Warehouses.
    pub(crate) warehouses: u64,
    /// Items, and stock rows of a warehouse.
    pub(crate) items: u64,
    /// Customers of a district, and its orders at the start.
    pub(crate) customers: u64,
    /// How unequally busy the warehouses are: the n-th busiest has weight 1 / nˢ. 0 is TPC-C's.
    pub(crate) skew: f64,
}

impl Scale {
    /// The scale whose database is about `bytes` long.
    pub(crate) fn for_size(bytes: u64, skew: f64) -> Self {
        let warehouses = (bytes / WAREHOUSE_BYTES).max(1);
        Self {
            warehouses,
            items: 100_000 / SHRINK,
            customers: 3_000 / SHRINK,
            skew,
        }
    }

    /// Steps of [`load`]'s progress: rows that take most of the time.
    pub(crate) fn load_steps(&self) -> u64 {
        self.items + self.warehouses * (self.items + 2 * DISTRICTS * self.customers)
    }
}

/// Packed keys; each number is smaller than the factor of its place.
mod key {
    use super::DISTRICTS;

    const WIDE: u64 = 1 << 24;

    /// Warehouse `w` (from 1), district `d` (from 1).
    pub(super) fn district(w: u64, d: u64) -> u64 {
        debug_assert!(w > 0 && (1..=DISTRICTS).contains(&d));
        w * 16 + d
    }

    /// Item `i` of warehouse `w`.
    pub(super) fn stock(w: u64, i: u64) -> u64 {
        debug_assert!(i < WIDE);
        w * WIDE + i
    }

    /// Customer or order number `n` of a district.
    pub(super) fn in_district(district: u64, n: u64) -> u64 {
        debug_assert!(n < WIDE);
        district * WIDE + n
    }

    /// Line `number` (up to 15) of an order.
    pub(super) fn line(order: u64, number: u64) -> u64 {
        debug_assert!(number < 16);
        order * 16 + number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn small() -> (Connection, Scale) {
        let db = Connection::open_in_memory().expect("memory");
        let scale = Scale {
            warehouses: 2,
            items: 200,
            customers: 30,
            skew: 1.0,
        };
        load(&db, scale, 7, &mut |_| {}).expect("loads");
        (db, scale)
    }

    fn number(db: &Connection, sql: &str) -> i64 {
        db.query_row(sql, [], |row| row.get(0)).expect(sql)
    }

    #[test]
    fn loaded_rows_match_the_scale() {
        let (db, _) = small();
        assert_eq!(number(&db, "SELECT count(*) FROM stock"), 400);
        assert_eq!(number(&db, "SELECT count(*) FROM customer"), 600);
        assert_eq!(number(&db, "SELECT count(*) FROM orders"), 600);
        assert_eq!(number(&db, "SELECT count(*) FROM new_order"), 20 * 9);
        let lines = number(&db, "SELECT sum(o_ol_cnt) FROM orders");
        assert_eq!(number(&db, "SELECT count(*) FROM order_line"), lines);
    }

    /// Consistency conditions 1–4 of the specification (clause 3.3.2), after a run.
    #[test]
    fn transactions_keep_the_consistency_conditions() {
        let (db, scale) = small();
        let mut client = Client::new(&db, scale, 3).expect("prepares");
        for _ in 0..2_000 {
            client.transact().expect("transaction");
        }
        assert_eq!(client.done().iter().sum::<u64>(), 2_000);
        assert!(
            client.done().iter().all(|&count| count > 20),
            "{:?}",
            client.done()
        );
        drop(client);
        let wrong_ytd = "SELECT count(*) FROM warehouse WHERE abs(w_ytd - (SELECT sum(d_ytd) \
                         FROM district WHERE d_w_id = w_id)) > 0.01";
        assert_eq!(number(&db, wrong_ytd), 0);
        let wrong_next = "SELECT count(*) FROM district WHERE d_next_o_id - 1 <> \
                          (SELECT max(o_number) FROM orders WHERE o_district = d_id)";
        assert_eq!(number(&db, wrong_next), 0);
        let gaps = "SELECT count(*) FROM (SELECT max(no_id) - min(no_id) + 1 - count(*) AS gap \
                    FROM new_order GROUP BY no_id >> 24) WHERE gap <> 0";
        assert_eq!(number(&db, gaps), 0);
        let lines = "SELECT (SELECT sum(o_ol_cnt) FROM orders) - (SELECT count(*) FROM order_line)";
        assert_eq!(number(&db, lines), 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_database() {
        let digest = |seed| {
            let (db, scale) = small();
            let mut client = Client::new(&db, scale, seed).expect("prepares");
            (0..300).for_each(|_| client.transact().expect("transaction"));
            drop(client);
            number(
                &db,
                "SELECT CAST(sum(c_balance * 100) AS INT) + sum(c_id) FROM customer",
            )
        };
        assert_eq!(digest(5), digest(5));
        assert_ne!(digest(5), digest(6));
    }

    #[test]
    fn sizes_become_warehouses() {
        assert_eq!(Scale::for_size(70_000_000, 0.0).warehouses, 10);
        assert_eq!(Scale::for_size(1, 0.0).warehouses, 1);
    }
}
