//! The schema and its first rows (specification clauses 1.3 and 4.3.3).
//!
//! Tables are filled one after the other, so that each is one band of the file.

use super::draw::{Draw, last_name};
use super::{DISTRICTS, Scale, key};
use rusqlite::{Connection, Result, params};

const SCHEMA: &str = "
CREATE TABLE item(i_id INTEGER PRIMARY KEY, i_name TEXT, i_price REAL, i_data TEXT);
CREATE TABLE warehouse(w_id INTEGER PRIMARY KEY, w_name TEXT, w_address TEXT, w_tax REAL,
    w_ytd REAL);
CREATE TABLE district(d_id INTEGER PRIMARY KEY, d_w_id INT, d_name TEXT, d_address TEXT,
    d_tax REAL, d_ytd REAL, d_next_o_id INT);
CREATE TABLE stock(s_id INTEGER PRIMARY KEY, s_quantity INT, s_dist TEXT, s_ytd INT,
    s_order_cnt INT, s_remote_cnt INT, s_data TEXT);
CREATE TABLE customer(c_id INTEGER PRIMARY KEY, c_district INT, c_first TEXT, c_last TEXT,
    c_address TEXT, c_credit TEXT, c_discount REAL, c_balance REAL, c_ytd_payment REAL,
    c_payment_cnt INT, c_delivery_cnt INT, c_data TEXT);
CREATE TABLE history(h_id INTEGER PRIMARY KEY, h_c_id INT, h_district INT, h_date INT,
    h_amount REAL, h_data TEXT);
CREATE TABLE orders(o_id INTEGER PRIMARY KEY, o_district INT, o_number INT, o_c_id INT,
    o_entry_d INT, o_carrier_id INT, o_ol_cnt INT);
CREATE TABLE new_order(no_id INTEGER PRIMARY KEY);
CREATE TABLE order_line(ol_id INTEGER PRIMARY KEY, ol_i_id INT, ol_supply_w_id INT,
    ol_delivery_d INT, ol_quantity INT, ol_amount REAL, ol_dist_info TEXT);
";

/// Made when the rows are in, each in one sorted pass.
const INDEXES: &str = "
CREATE INDEX customer_name ON customer(c_district, c_last, c_first);
CREATE INDEX orders_customer ON orders(o_c_id, o_id);
";

/// A load under way.
struct Loader<'a> {
    db: &'a Connection,
    scale: Scale,
    draw: Draw,
    progress: &'a mut dyn FnMut(u64),
}

/// Makes and fills the tables; `progress` gets steps of [`Scale::load_steps`].
pub(crate) fn load(
    db: &Connection,
    scale: Scale,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut loader = Loader {
        db,
        scale,
        draw: Draw::new(seed),
        progress,
    };
    db.execute_batch(SCHEMA)?;
    db.execute_batch("BEGIN")?;
    loader.items()?;
    loader.warehouses()?;
    loader.stock()?;
    loader.customers()?;
    loader.history()?;
    loader.orders()?;
    db.execute_batch(INDEXES)?;
    db.execute_batch("COMMIT")
}

impl Loader<'_> {
    fn items(&mut self) -> Result<()> {
        let mut insert = self.db.prepare("INSERT INTO item VALUES (?, ?, ?, ?)")?;
        for item in 1..=self.scale.items {
            let price = self.draw.between(100, 10_000) as f64 / 100.0;
            let name = self.draw.letters(14, 24).to_owned();
            insert.execute(params![item as i64, name, price, self.draw.letters(26, 50)])?;
            self.step(item);
        }
        Ok(())
    }

    fn warehouses(&mut self) -> Result<()> {
        let mut warehouse = self
            .db
            .prepare("INSERT INTO warehouse VALUES (?, ?, ?, ?, ?)")?;
        let mut district = self
            .db
            .prepare("INSERT INTO district VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        for w in 1..=self.scale.warehouses {
            let name = self.draw.letters(6, 10).to_owned();
            let address = self.draw.letters(60, 80);
            let ytd = 30_000.0 * DISTRICTS as f64;
            warehouse.execute(params![w as i64, name, address, 0.1, ytd])?;
            for d in 1..=DISTRICTS {
                let name = self.draw.letters(6, 10).to_owned();
                let address = self.draw.letters(60, 80);
                let (id, next) = (key::district(w, d) as i64, self.scale.customers as i64 + 1);
                district.execute(params![id, w as i64, name, address, 0.1, 30_000.0, next])?;
            }
        }
        Ok(())
    }

    fn stock(&mut self) -> Result<()> {
        let mut insert = self
            .db
            .prepare("INSERT INTO stock VALUES (?, ?, ?, 0, 0, 0, ?)")?;
        for w in 1..=self.scale.warehouses {
            for item in 1..=self.scale.items {
                let quantity = self.draw.between(10, 100) as i64;
                let info = self.draw.letters(240, 240).to_owned();
                let data = self.draw.letters(26, 50);
                insert.execute(params![key::stock(w, item) as i64, quantity, info, data])?;
                self.step(item);
            }
        }
        Ok(())
    }

    fn customers(&mut self) -> Result<()> {
        let sql = "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?, -10.0, 10.0, 1, 0, ?)";
        let mut insert = self.db.prepare(sql)?;
        for district in self.districts() {
            for c in 1..=self.scale.customers {
                let id = key::in_district(district, c) as i64;
                let name = self.name_of(c);
                let first = self.draw.letters(8, 16).to_owned();
                let address = self.draw.letters(100, 120).to_owned();
                let credit = if self.draw.chance(10) { "BC" } else { "GC" };
                let discount = self.draw.between(0, 5_000) as f64 / 10_000.0;
                let (district, data) = (district as i64, self.draw.letters(300, 500));
                insert.execute(params![
                    id, district, first, name, address, credit, discount, data
                ])?;
                self.step(c);
            }
        }
        Ok(())
    }

    fn history(&mut self) -> Result<()> {
        let sql = "INSERT INTO history VALUES (NULL, ?, ?, 0, 10.0, ?)";
        let mut insert = self.db.prepare(sql)?;
        for district in self.districts() {
            for c in 1..=self.scale.customers {
                let customer = key::in_district(district, c) as i64;
                insert.execute(params![
                    customer,
                    district as i64,
                    self.draw.letters(12, 24)
                ])?;
            }
        }
        Ok(())
    }

    /// The first customers of a district have one name each, the others skewed ones.
    fn name_of(&mut self, customer: u64) -> String {
        let names = self.scale.customers.div_ceil(3).min(1_000);
        if customer <= names {
            last_name(customer - 1)
        } else {
            self.draw.last_name(self.scale.customers)
        }
    }

    fn orders(&mut self) -> Result<()> {
        let mut orders = self
            .db
            .prepare("INSERT INTO orders VALUES (?, ?, ?, ?, 0, ?, ?)")?;
        let mut open = self.db.prepare("INSERT INTO new_order VALUES (?)")?;
        let customers = self.scale.customers;
        let mut lines = vec![];
        for district in self.districts() {
            for (number, customer) in (1..).zip(self.draw.permutation(customers)) {
                let id = key::in_district(district, number);
                let count = self.draw.between(5, 15);
                lines.push((id, count));
                // The last 900 of 3,000 orders are not delivered yet.
                let delivered = number <= customers - customers * 3 / 10;
                let carrier = delivered.then(|| self.draw.between(1, 10) as i64);
                let customer = key::in_district(district, customer) as i64;
                let row = params![
                    id as i64,
                    district as i64,
                    number as i64,
                    customer,
                    carrier,
                    count as i64
                ];
                orders.execute(row)?;
                if !delivered {
                    open.execute([id as i64])?;
                }
            }
        }
        self.order_lines(&lines)
    }

    fn order_lines(&mut self, orders: &[(u64, u64)]) -> Result<()> {
        let mut insert = self
            .db
            .prepare("INSERT INTO order_line VALUES (?, ?, ?, ?, 5, ?, ?)")?;
        for (done, &(order, count)) in (1..).zip(orders) {
            let warehouse = (order >> 28) as i64;
            for line in 1..=count {
                let id = key::line(order, line) as i64;
                let item = self.draw.between(1, self.scale.items) as i64;
                let amount = self.draw.between(1, 999_999) as f64 / 100.0;
                let info = self.draw.letters(24, 24);
                insert.execute(params![id, item, warehouse, 0, amount, info])?;
            }
            self.step(done);
        }
        Ok(())
    }

    fn districts(&self) -> Vec<u64> {
        let warehouses = 1..=self.scale.warehouses;
        warehouses
            .flat_map(|w| (1..=DISTRICTS).map(move |d| key::district(w, d)))
            .collect()
    }

    /// Reports every so often.
    fn step(&mut self, row: u64) {
        const EVERY: u64 = 10;
        if row.is_multiple_of(EVERY) {
            (self.progress)(EVERY);
        }
    }
}
